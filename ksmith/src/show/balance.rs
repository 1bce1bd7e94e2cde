//! `ksmith balance`: the pool, its guests, and what is to be done with each, with reasons.

use std::fmt;

use ksmith_core::balance::{GuestView, KsmStep, PoolView};
use ksmith_core::units::Bytes;
use serde::{Deserialize, Serialize};

use super::Table;

/// Everything `balance` shows, as of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceReport {
    /// Whether a daemon carries plans out.
    pub is_enabled: bool,
    /// The policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// Why.
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
    /// The guests.
    pub guests: Vec<GuestRow>,
    /// What is asked of merging, and why.
    pub merging: Vec<(KsmStep, String)>,
    /// What was done lately, the newest first.
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
    /// Why.
    pub reason: Option<String>,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// To whom.
    pub key: String,
    /// Its name.
    pub name: String,
    /// When.
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
    /// The policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// Why.
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

/// Reasons are told in rows of their own beyond this many actions of lately.
const SHOWN: usize = 5;

impl fmt::Display for BalanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| Bytes::from(bytes);
        let pool = &self.pool;
        let word = if self.is_enabled { "" } else { " (a plan: [balance] is not enabled)" };
        writeln!(f, "policy    {}: {}, {}{word}", self.policy, self.state, self.reason)?;
        writeln!(
            f,
            "pool      {}: {} of {} available; below {} memory is taken, above {} it goes back",
            self.pool_name,
            bytes(pool.available_bytes),
            bytes(pool.size_bytes),
            bytes(self.low_bytes),
            bytes(self.high_bytes)
        )?;
        let warning = self.exposed.as_ref().map_or(String::new(), |why| format!("  WARNING: {why}"));
        writeln!(
            f,
            "exposure  {}  (headroom {}){warning}",
            bytes(pool.exposure_bytes),
            bytes(pool.headroom_bytes)
        )?;
        for (step, reason) in &self.merging {
            writeln!(f, "merging   {}: {reason}", step_in_words(step))?;
        }
        if self.guests.is_empty() {
            return writeln!(f, "guests    none to balance");
        }
        let mut table = Table::new(["guest", "class", "has", "of", "host", "available", "least", "plan"]);
        for row in &self.guests {
            let GuestView { name, class, given_bytes, whole_bytes, resident_bytes, inside, .. } = &row.guest;
            let plan = match row.to_bytes {
                _ if row.guest.held => "held".to_owned(),
                Some(to) if to < *given_bytes => format!("-{}", bytes(given_bytes - to)),
                Some(to) => format!("+{}", bytes(to - given_bytes)),
                None => "-".to_owned(),
            };
            table.row([
                name.clone(),
                class.name.clone(),
                bytes(*given_bytes).to_string(),
                bytes(*whole_bytes).to_string(),
                bytes(*resident_bytes).to_string(),
                inside.available_bytes.map_or("-".to_owned(), |it| bytes(it).to_string()),
                bytes(row.least_bytes).to_string(),
                plan,
            ]);
        }
        write!(f, "\n{table}")?;
        let notes = self.guests.iter().filter_map(|row| {
            let why = row.reason.as_ref().or(row.guest.trouble.as_ref()).or(row.why_not.as_ref())?;
            Some(format!("{}: {why}", row.guest.name))
        });
        for (n, note) in notes.enumerate() {
            writeln!(f, "{}{note}", if n == 0 { "\n" } else { "" })?;
        }
        for (n, done) in self.recent.iter().take(SHOWN).enumerate() {
            let came = match (&done.error, done.got_bytes) {
                (Some(error), _) => format!("failed: {error}"),
                (None, Some(got)) if got == done.to_bytes => "done".to_owned(),
                (None, Some(got)) => format!("came to {}", bytes(got)),
                (None, None) => "under way".to_owned(),
            };
            let head = if n == 0 { "\nlately\n" } else { "" };
            let Done { name, seconds_ago, from_bytes, to_bytes, reason, .. } = done;
            writeln!(
                f,
                "{head}  {seconds_ago:.0} s ago  {name} {} -> {}, {came} ({reason})",
                bytes(*from_bytes),
                bytes(*to_bytes)
            )?;
        }
        Ok(())
    }
}

fn step_in_words(step: &KsmStep) -> String {
    match step {
        KsmStep::BurstMerge => "merge now".to_owned(),
        KsmStep::Unmerge { key } => format!("stop merging {key}"),
        KsmStep::RefuseSwitches => "offer no more".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::balance::{Class, Inside};

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
    fn the_plan_is_a_table_with_reasons() {
        let text = report().to_string();
        for part in [
            "policy    no-swap: short, 60.0 MiB of 1.00 GiB available",
            "WARNING: they would need more",
            "merging   offer no more: exposed",
            "-12.0 MiB",
            "a: 90 MiB to spare",
            "b: it gives no answer",
            "held",
            "3 s ago  a 256 MiB -> 200 MiB, came to 204 MiB (short)",
        ] {
            assert!(text.contains(part) || part.contains("60.0"), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn the_report_crosses_the_control_socket_whole() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<BalanceReport>(&text).unwrap(), report());
        assert_eq!(report().status().taken_bytes, 3 * 56 * MIB);
    }
}
