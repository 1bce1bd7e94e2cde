//! `ksmith guests`: who gains, who only costs.

use std::collections::BTreeMap;
use std::fmt;

use ksmith_core::account::Totals;
use ksmith_core::decide::domains::{PairSharing, Sharing};
use ksmith_core::guest::{Efficiency, Figures, Guest, MEANINGS, Memory};
use ksmith_core::sample::Sample;
use ksmith_core::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Table;

/// All guests at one moment, with the host's figures of the same moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestsReport {
    /// The guests.
    pub guests: Vec<Guest>,
    /// Saved in processes that hide their figures.
    pub unattributed_bytes: u64,
    /// The host's savings: what the guests' and the unattributed add up to.
    pub saved_bytes: u64,
    /// The host's profit.
    pub profit_bytes: i64,
    /// The host's ratios.
    pub efficiency: Efficiency,
    /// Merged pages that were broken by writes since boot, the whole host's churn.
    pub cow_ksm: Option<u64>,
    /// The same for each second, lately.
    pub cow_ksm_per_second: Option<f64>,
    /// What domains share with each other now, where that was looked up.
    #[serde(default)]
    pub sharing: Option<Sharing>,
    /// What could not be found out, one sentence each.
    pub errors: Vec<String>,
}

/// What makes one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum By {
    /// Each guest by itself
    #[default]
    Guest,
    /// Guests that run the same program
    Program,
    /// Guests of the same user
    User,
    /// Guests in the same cgroup
    Cgroup,
    /// Guests of the same trust domain
    Domain,
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Sort {
    /// Those that save most first
    #[default]
    Saved,
    /// Those that pay most first, those that cost most last
    Profit,
    /// The largest first
    Rss,
    /// By name
    Name,
}

/// Several guests summed up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Group {
    name: String,
    guests: usize,
    /// Merged memory that other domains map too.
    #[serde(skip_serializing_if = "Option::is_none")]
    across_bytes: Option<u64>,
    #[serde(flatten)]
    figures: Figures,
}

/// A report in one order and grouping.
#[derive(Debug, Clone)]
pub struct GuestsView<'a> {
    report: &'a GuestsReport,
    by: By,
    sort: Sort,
}

/// What stands where a guest has no user, cgroup or domain.
const NONE: &str = "-";

impl GuestsReport {
    /// A report of these guests, which are those of `sample`.
    pub fn new(sample: &Sample, guests: Vec<Guest>, unattributed_bytes: u64) -> Self {
        let totals = Totals::of(sample);
        let hidden = sample.hidden_processes;
        let errors = (hidden > 0).then(|| {
            format!("{hidden} processes do not show their KSM figures to this user; run as root to see all")
        });
        Self {
            guests,
            unattributed_bytes,
            saved_bytes: totals.saved_bytes,
            profit_bytes: totals.profit_bytes,
            efficiency: Efficiency::of(&sample.ksm),
            cow_ksm: sample.vmstat.value().and_then(|vm| vm.cow_ksm),
            cow_ksm_per_second: None,
            sharing: None,
            errors: errors.into_iter().collect(),
        }
    }

    /// The report in an order and grouping.
    pub fn view(&self, by: By, sort: Sort) -> GuestsView<'_> {
        GuestsView { report: self, by, sort }
    }
}

impl GuestsView<'_> {
    /// The stable JSON form: `guests`, or `groups` where guests are summed up.
    pub fn to_json(&self) -> Value {
        let report = self.report;
        let rows = match self.by {
            By::Guest => ("guests", self.guests().into_iter().map(guest_json).collect::<Vec<_>>()),
            _ => ("groups", self.groups().into_iter().map(|group| json!(group)).collect()),
        };
        let mut whole = json!({
            "unattributed_bytes": report.unattributed_bytes,
            "saved_bytes": report.saved_bytes,
            "profit_bytes": report.profit_bytes,
            "efficiency": report.efficiency,
            "cow_ksm": report.cow_ksm,
            "cow_ksm_per_second": report.cow_ksm_per_second,
            "errors": report.errors,
        });
        if let Value::Object(whole) = &mut whole {
            whole.insert(rows.0.to_owned(), Value::Array(rows.1));
            if self.by == By::Domain {
                whole.insert("sharing".to_owned(), json!(report.sharing));
            }
        }
        whole
    }

    fn guests(&self) -> Vec<&Guest> {
        let mut guests: Vec<&Guest> = self.report.guests.iter().collect();
        guests.sort_by(|a, b| order(self.sort, (&a.name, &a.figures), (&b.name, &b.figures)));
        guests
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
        for guest in &self.report.guests {
            let key = match self.by {
                By::Guest => &guest.name,
                By::Program => &guest.program,
                By::User => guest.user.as_deref().unwrap_or(NONE),
                By::Cgroup => guest.cgroup.as_deref().unwrap_or(NONE),
                By::Domain => guest.domain.as_deref().unwrap_or(NONE),
            };
            match groups.get_mut(key) {
                Some(group) => {
                    group.guests += 1;
                    group.figures = sum(group.figures, guest.figures);
                }
                None => {
                    let sharing = self.report.sharing.as_ref().filter(|_| self.by == By::Domain);
                    let across_bytes = sharing.map(|sharing| sharing.across(guest.domain.as_deref()));
                    let group = Group { name: key.to_owned(), guests: 1, across_bytes, figures: guest.figures };
                    groups.insert(key, group);
                }
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by(|a, b| order(self.sort, (&a.name, &a.figures), (&b.name, &b.figures)));
        groups
    }
}

fn order(sort: Sort, a: (&str, &Figures), b: (&str, &Figures)) -> std::cmp::Ordering {
    let by_name = || a.0.cmp(b.0);
    match sort {
        Sort::Saved => b.1.saved_bytes.cmp(&a.1.saved_bytes).then_with(by_name),
        Sort::Profit => b.1.profit_bytes.cmp(&a.1.profit_bytes).then_with(by_name),
        Sort::Rss => b.1.rss_bytes.cmp(&a.1.rss_bytes).then_with(by_name),
        Sort::Name => by_name(),
    }
}

fn sum(a: Figures, b: Figures) -> Figures {
    Figures {
        rss_bytes: a.rss_bytes.saturating_add(b.rss_bytes),
        memory: a.memory.plus(b.memory),
        merged_bytes: a.merged_bytes.saturating_add(b.merged_bytes),
        zero_bytes: a.zero_bytes.saturating_add(b.zero_bytes),
        saved_bytes: a.saved_bytes.saturating_add(b.saved_bytes),
        metadata_bytes: a.metadata_bytes.saturating_add(b.metadata_bytes),
        profit_bytes: a.profit_bytes.saturating_add(b.profit_bytes),
    }
}

fn guest_json(guest: &Guest) -> Value {
    let mut value = json!({
        "name": guest.name,
        "uuid": guest.uuid,
        "kind": guest.kind,
        "pids": guest.processes.iter().map(|id| id.pid).collect::<Vec<_>>(),
        "program": guest.program,
        "user": guest.user,
        "cgroup": guest.cgroup,
        "memory_bytes": guest.memory_bytes,
        "mergeable": guest.mergeable,
        "obstacle": guest.obstacle,
        "has_residue": guest.has_residue,
        "domain": guest.domain,
        "errors": guest.errors,
    });
    if let (Value::Object(value), Value::Object(figures)) = (&mut value, json!(guest.figures)) {
        value.extend(figures);
    }
    value
}

/// `a and b share 12.0 MiB`, or that nobody does.
fn in_words(sharing: &Sharing) -> String {
    let pair = |pair: &PairSharing| {
        let bytes = Bytes::from(pair.bytes);
        match pair.domains.each_ref().map(Option::as_deref) {
            [Some(one), Some(other)] => format!("{one} and {other} share {bytes}"),
            [None, None] => format!("guests of no domain share {bytes} among themselves"),
            [Some(one), None] | [None, Some(one)] => format!("{one} shares {bytes} with guests of no domain"),
        }
    };
    let pairs: Vec<String> = sharing.pairs.iter().map(pair).collect();
    match pairs.is_empty() {
        true => "no merged page is shared across domains now".to_owned(),
        false => {
            format!("across domains {} are shared now: {}", Bytes::from(sharing.across_bytes), pairs.join("; "))
        }
    }
}

/// Who is told to be kept apart by domains, or switched off, and is not wholly.
fn residue(guests: &[Guest]) -> Option<String> {
    let guests = guests.iter().filter(|guest| guest.has_residue);
    let names: Vec<String> = guests.map(Guest::title).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the RAM of {} is not offered to merging; QEMU's firmware and devices still are, across domains too: \
             -machine mem-merge=off at their start ends that (docs/domains.md)",
            names.join(", ")
        )
    })
}

fn cells(figures: &Figures) -> [String; 8] {
    let Memory { private_bytes, shared_bytes, .. } = figures.memory;
    let maybe = |bytes: Option<u64>| bytes.map_or_else(|| NONE.to_owned(), |bytes| Bytes::from(bytes).to_string());
    let bytes = |bytes: u64| Bytes::from(bytes).to_string();
    [
        bytes(figures.rss_bytes),
        maybe(private_bytes),
        maybe(shared_bytes),
        bytes(figures.merged_bytes),
        bytes(figures.zero_bytes),
        bytes(figures.saved_bytes),
        bytes(figures.metadata_bytes),
        Bytes::from(figures.profit_bytes).to_string(),
    ]
}

impl fmt::Display for GuestsView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        if report.guests.is_empty() {
            writeln!(f, "no guest has mergeable memory")?;
        } else {
            let heading = match self.by {
                By::Guest => ["guest", "kind", "pid"],
                By::Program => ["program", "guests", ""],
                By::User => ["user", "guests", ""],
                By::Cgroup => ["cgroup", "guests", ""],
                By::Domain => ["domain", "guests", ""],
            };
            let [first, second, third] = heading;
            let columns = ["rss", "private", "shared", "merged", "zero", "saved", "metadata", "profit"];
            let more = report.sharing.is_some() && self.by == By::Domain;
            let headings = [first, second, third].into_iter().chain(columns).chain(more.then_some("across"));
            let mut table = Table::of_columns(headings.map(str::to_owned).collect());
            let mut row = |head: [String; 3], figures: &Figures, across: Option<u64>| {
                let across = across.map(|bytes| Bytes::from(bytes).to_string());
                table.cells(head.into_iter().chain(cells(figures)).chain(across).collect());
            };
            if self.by == By::Guest {
                for guest in self.guests() {
                    let others = guest.processes.len().saturating_sub(1);
                    let others = if others > 0 { format!("+{others}") } else { String::new() };
                    let pid = format!("{}{others}", guest.id().pid);
                    row([guest.name.clone(), guest.kind.to_string(), pid], &guest.figures, None);
                }
            } else {
                for group in self.groups() {
                    let head = [group.name.clone(), group.guests.to_string(), String::new()];
                    row(head, &group.figures, group.across_bytes);
                }
            }
            write!(f, "{table}")?;
            if let Some(sharing) = report.sharing.as_ref().filter(|_| more) {
                writeln!(f, "\n{}", in_words(sharing))?;
            }
        }
        let unattributed = match report.unattributed_bytes {
            0 => String::new(),
            bytes => format!("; {} of it in processes that are not shown", Bytes::from(bytes)),
        };
        writeln!(
            f,
            "\nsaved {} on this host (profit {}){unattributed}",
            Bytes::from(report.saved_bytes),
            Bytes::from(report.profit_bytes)
        )?;
        for (value, (name, meaning)) in report.efficiency.values().into_iter().zip(MEANINGS) {
            if let Some(value) = value {
                writeln!(f, "{:<22}{value:<8.3}{meaning}", name.replace('_', " "))?;
            }
        }
        if let Some(rate) = report.cow_ksm_per_second {
            writeln!(
                f,
                "{:<22}{rate:<8.1}merged pages broken by writes, a second: what merging churns",
                "cow_ksm"
            )?;
        }
        let of_guests = report
            .guests
            .iter()
            .flat_map(|guest| guest.errors.iter().map(move |error| format!("{}: {error}", guest.title())));
        for error in report.errors.iter().cloned().chain(of_guests).chain(residue(&report.guests)) {
            writeln!(f, "note  {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::guest::Kind;
    use ksmith_core::sample::ProcessId;

    use super::*;

    fn guest(name: &str, pid: u32, user: &str, saved_mib: u64, profit_mib: i64) -> Guest {
        Guest {
            name: name.to_owned(),
            uuid: None,
            kind: Kind::Qemu,
            processes: vec![ProcessId { pid, start_ticks: 1 }],
            program: "qemu".to_owned(),
            memory_bytes: Some(1 << 30),
            cgroup: None,
            user: Some(user.to_owned()),
            metadata: None,
            domain: None,
            mergeable: Some(true),
            offered: None,
            has_residue: false,
            obstacle: None,
            figures: Figures {
                rss_bytes: 1 << 20,
                saved_bytes: saved_mib << 20,
                profit_bytes: profit_mib << 20,
                ..Figures::default()
            },
            errors: vec!["it hangs".to_owned()],
        }
    }

    fn report() -> GuestsReport {
        let mut report = GuestsReport::new(
            &Sample { page_size: 4096, ..Sample::default() },
            vec![guest("b", 1, "x", 1, 1), guest("a", 2, "x", 3, -2), guest("c", 3, "y", 2, 5)],
            0,
        );
        report.efficiency.sharing_per_shared = Some(2.5);
        report
    }

    fn names(by: By, sort: Sort) -> Vec<String> {
        let json = report().view(by, sort).to_json();
        let rows = json.get("guests").or_else(|| json.get("groups")).unwrap().as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn rows_come_in_the_order_asked_for() {
        assert_eq!(names(By::Guest, Sort::Saved), ["a", "c", "b"]);
        assert_eq!(names(By::Guest, Sort::Profit), ["c", "b", "a"]);
        assert_eq!(names(By::Guest, Sort::Name), ["a", "b", "c"]);
        assert_eq!(names(By::User, Sort::Saved), ["x", "y"]);
        assert_eq!(names(By::Cgroup, Sort::Saved), ["-"]);
    }

    #[test]
    fn groups_are_sums() {
        let json = report().view(By::User, Sort::Name).to_json();
        assert_eq!(json["groups"][0]["guests"], 2);
        assert_eq!(json["groups"][0]["saved_bytes"], 4 << 20);
        assert_eq!(json["groups"][0]["profit_bytes"], -(1 << 20));
    }

    #[test]
    fn the_json_of_a_guest_has_every_promised_key() {
        let json = report().view(By::Guest, Sort::Saved).to_json();
        let guest = json["guests"][0].as_object().unwrap();
        for key in [
            "name",
            "uuid",
            "kind",
            "pids",
            "rss_bytes",
            "pss_bytes",
            "merged_bytes",
            "zero_bytes",
            "saved_bytes",
            "metadata_bytes",
            "profit_bytes",
            "mergeable",
            "domain",
            "errors",
        ] {
            assert!(guest.contains_key(key), "{key}");
        }
        assert_eq!(guest["kind"], "qemu");
    }

    #[test]
    fn people_see_a_table_and_what_is_wrong() {
        let text = report().view(By::Guest, Sort::Name).to_string();
        assert!(text.starts_with("guest  kind  pid"), "{text}");
        assert!(text.contains("a (pid 2): it hangs") && text.contains("sharing per shared"), "{text}");
    }

    #[test]
    fn who_still_offers_firmware_is_named() {
        let mut report = report();
        assert!(!report.view(By::Guest, Sort::Name).to_string().contains("firmware"));
        report.guests[1].has_residue = true;
        let text = report.view(By::Domain, Sort::Name).to_string();
        assert!(text.contains("note  the RAM of a (pid 2) is not offered"), "{text}");
        assert_eq!(report.view(By::Guest, Sort::Name).to_json()["guests"][0]["has_residue"], true);
    }

    #[test]
    fn domains_are_shown_with_what_they_share() {
        let mut report = report();
        for (guest, domain) in report.guests.iter_mut().zip([Some("one"), Some("two"), None]) {
            guest.domain = domain.map(str::to_owned);
        }
        let without = report.view(By::Domain, Sort::Name);
        assert!(without.to_json()["sharing"].is_null() && !without.to_string().contains("across"));
        let held = |guest| ksmith_core::decide::domains::Held { frame: 1, guest, pages: 256 };
        report.sharing = Some(Sharing::of(&[Some("one"), Some("two"), None], vec![held(0), held(1)], 4096));
        let view = report.view(By::Domain, Sort::Name);
        let json = view.to_json();
        let across: Vec<_> =
            json["groups"].as_array().unwrap().iter().map(|group| &group["across_bytes"]).collect();
        assert_eq!(across, [0, 1 << 20, 1 << 20]);
        assert_eq!(json["sharing"]["pairs"][0]["domains"], json!(["one", "two"]));
        let text = view.to_string();
        assert!(text.contains("across domains 4.00 KiB are shared now: one and two share 4.00 KiB"), "{text}");
        assert!(!report.view(By::Guest, Sort::Name).to_string().contains("across"));
        report.sharing = Some(Sharing::default());
        assert!(report.view(By::Domain, Sort::Name).to_string().contains("no merged page is shared across"));
    }

    #[test]
    fn a_report_comes_back_from_the_wire() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<GuestsReport>(&text).unwrap(), report());
    }
}
