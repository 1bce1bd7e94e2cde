//! The names of users, from `/etc/passwd` alone: a directory service might take seconds to answer.

use std::collections::HashMap;

use crate::root::Root;

/// Names by number.
#[derive(Debug)]
pub(super) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads the names of a host.
    pub(super) fn new(root: &Root) -> Self {
        let text = root.text("etc/passwd");
        Self(text.value().map(|text| parse(text)).unwrap_or_default())
    }

    /// The name, or the number where there is none.
    pub(super) fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

fn parse(text: &str) -> HashMap<u32, String> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    // The first of several names of one number counts, as it does for everybody else.
    text.lines().rev().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts() {
        let users =
            Users(parse("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\nbroken\na:x:y:0::/:\nqemu:x:64:64::/:\n"));
        assert_eq!(
            (users.name(0).as_str(), users.name(64).as_str(), users.name(7).as_str()),
            ("root", "qemu", "7")
        );
    }
}
