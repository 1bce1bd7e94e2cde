//! The model of `ksmith balance`: the pool, its guests, and the plan for each, with reasons.

use serde::{Deserialize, Serialize};

use crate::balance::{GuestView, KsmStep, PoolView};

/// Everything that `ksmith balance` shows, as of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceReport {
    /// Whether a daemon carries plans out.
    pub is_enabled: bool,
    /// The name of the policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// `host`, or the cgroup.
    pub pool_name: String,
    /// What guests share.
    pub pool: PoolView,
    /// Below this memory is taken.
    pub low_bytes: u64,
    /// Above this it goes back.
    pub high_bytes: u64,
    /// What it would mean if all merged pages diverged, where there is too little for that.
    pub exposed: Option<String>,
    /// The guests of the pool.
    pub guests: Vec<GuestRow>,
    /// What is asked of merging, and why.
    pub merging: Vec<(KsmStep, String)>,
    /// The resizes of lately, the newest first.
    pub recent: Vec<Done>,
}

/// One guest with what is planned for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRow {
    /// As the policy saw it.
    #[serde(flatten)]
    pub guest: GuestView,
    /// How it is resized: `mconsole`, `virtio-balloon`, `cgroup`.
    pub way: Option<String>,
    /// What stands in the way of resizing it, for good.
    pub why_not: Option<String>,
    /// It would not be taken below this now.
    pub least_bytes: u64,
    /// What it is to have. `None`: it stays as it is.
    pub to_bytes: Option<u64>,
    /// The reason of the plan, in a sentence.
    pub reason: Option<String>,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The guest's key.
    pub key: String,
    /// The guest's name.
    pub name: String,
    /// Seconds since it was done.
    pub seconds_ago: f64,
    /// What it had.
    pub from_bytes: u64,
    /// What it was to have.
    pub to_bytes: u64,
    /// What it had afterwards. `None`: that is not known yet, or it failed.
    pub got_bytes: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Why it was done.
    pub reason: String,
}

impl Done {
    /// Whether its outcome is known.
    pub fn is_over(&self) -> bool {
        self.got_bytes.is_some() || self.error.is_some()
    }
}

/// A daemon's view of balance in a line or two, for `ksmith status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceStatus {
    /// The name of the policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// What was taken from guests and not given back, in all.
    pub taken_bytes: u64,
    /// Why no more memory is offered to merging, while that is so.
    pub exposed: Option<String>,
}

impl BalanceReport {
    /// The short form.
    pub fn status(&self) -> BalanceStatus {
        BalanceStatus {
            policy: self.policy.clone(),
            state: self.state.clone(),
            reason: self.reason.clone(),
            taken_bytes: self.guests.iter().map(|row| row.guest.taken_bytes()).sum(),
            exposed: self.exposed.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::balance::{Class, Inside};

    use super::*;

    const MIB: u64 = 1 << 20;

    pub(crate) fn report() -> BalanceReport {
        let guest = |name: &str, to: Option<u64>| GuestRow {
            guest: GuestView {
                key: format!("uml:{name}:7"),
                name: name.to_owned(),
                class: Class { name: "gold".to_owned(), weight: 100 },
                given_bytes: 200 * MIB,
                whole_bytes: 256 * MIB,
                resident_bytes: 190 * MIB,
                inside: Inside { available_bytes: Some(90 * MIB), ..Inside::default() },
                floor_bytes: 0,
                ceiling_bytes: 256 * MIB,
                step_bytes: MIB,
                can_take: true,
                can_give: true,
                held: to == Some(0),
                merged_bytes: 0,
                giving_for: None,
                trouble: to.is_none().then(|| "it gives no answer".to_owned()),
            },
            way: Some("mconsole".to_owned()),
            why_not: None,
            least_bytes: 126 * MIB,
            to_bytes: to,
            reason: to.map(|_| "90 MiB to spare".to_owned()),
        };
        BalanceReport {
            is_enabled: false,
            policy: "no-swap".to_owned(),
            state: "short".to_owned(),
            reason: "60 MiB of 1.00 GiB available".to_owned(),
            pool_name: "host".to_owned(),
            pool: PoolView { size_bytes: 1024 * MIB, available_bytes: 60 * MIB, ..PoolView::default() },
            low_bytes: 102 * MIB,
            high_bytes: 204 * MIB,
            exposed: Some("they would need more".to_owned()),
            guests: vec![guest("a", Some(188 * MIB)), guest("b", None), guest("c", Some(0))],
            merging: vec![(KsmStep::RefuseSwitches, "exposed".to_owned())],
            recent: vec![Done {
                key: "uml:a:7".to_owned(),
                name: "a".to_owned(),
                seconds_ago: 3.2,
                from_bytes: 256 * MIB,
                to_bytes: 200 * MIB,
                got_bytes: Some(204 * MIB),
                error: None,
                reason: "short".to_owned(),
            }],
        }
    }

    #[test]
    fn the_report_crosses_the_control_socket_whole() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<BalanceReport>(&text).unwrap(), report());
        assert_eq!(report().status().taken_bytes, 3 * 56 * MIB);
    }
}
