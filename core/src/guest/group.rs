//! Grouping of processes into guests.

use std::collections::{BTreeSet, HashMap};

use super::{Guest, GuestMemoryFigures, ProcessIdentity, ProcessPlacement, RollupFigures};
use crate::account::{self, ProcessShare};
use crate::huge_worth::SplitMemory;
use crate::sample::{ProcessId, ProcessSample, Sample};
use crate::units::Bytes;

/// The key of a group of processes that are one guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum GuestGroupKey {
    /// One service or container.
    Unit(String),
    /// This process and, for some kinds, its children.
    Process(ProcessId),
}

/// A process, its identity if known, and its share of the savings.
type Part<'a> = (&'a ProcessSample, Option<&'a ProcessIdentity>, ProcessShare);

/// Groups the processes of a sample into guests, in the order of their first processes in it.
///
/// Also returns the saved bytes that belong to no guest because processes hide their figures. Together they are
/// exactly the host's `saved_bytes`.
///
/// `identity` returns the identity of a process; one that it does not know counts as a plain process.
pub fn group<'a>(
    sample: &Sample,
    identity: impl Fn(&ProcessId) -> Option<&'a ProcessIdentity>,
) -> (Vec<Guest>, u64) {
    let (shares, unattributed) = account::shares(sample);
    let by_pid: HashMap<u32, (&ProcessSample, Option<&ProcessIdentity>)> =
        sample.processes.iter().map(|process| (process.id.pid, (process, identity(&process.id)))).collect();
    let mut groups: Vec<(GuestGroupKey, Vec<Part>)> = Vec::new();
    let mut places: HashMap<GuestGroupKey, usize> = HashMap::new();
    for (process, share) in sample.processes.iter().zip(shares) {
        let known = identity(&process.id);
        let key = key(process, known, &by_pid);
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, parts)) = groups.get_mut(place) {
            parts.push((process, known, share));
        }
    }
    let guests = groups.into_iter().filter_map(|(key, parts)| guest(&key, parts, sample.page_size)).collect();
    (guests, unattributed)
}

/// Makes one guest of its processes. The first process of user-mode Linux, or the oldest of a service, identifies it,
/// and not the one with the lowest PID: after PIDs wrap around, a child's is lower than its parent's.
fn guest(key: &GuestGroupKey, mut parts: Vec<Part>, page_size: u64) -> Option<Guest> {
    parts.sort_by_key(|(process, ..)| {
        (*key != GuestGroupKey::Process(process.id), process.id.start_ticks, process.id.pid)
    });
    let (first, known, _) = parts.first()?;
    let mut guest = of_first(first, *known);
    // Most guests are one process.
    if parts.len() > 1 {
        let placements: BTreeSet<ProcessPlacement> = parts.iter().map(|(_, known, _)| placement(*known)).collect();
        if placements.len() > 1 {
            guest.placements = placements.into_iter().collect();
        }
    }
    for (process, known, share) in parts {
        guest.processes.push(process.id);
        // A guest is as little to be believed as the least of its processes.
        guest.is_verified &= known.is_some_and(|known| known.is_verified);
        guest.uid = guest.uid.filter(|uid| known.and_then(|known| known.uid) == Some(*uid));
        if process.is_twin || known.is_some_and(|known| known.is_twin) {
            // It may have a share of the savings; everything else was counted with its parent.
            guest.figures.add_saved(share.saved_bytes);
        } else {
            guest.figures.add(process, &share, page_size);
        }
        // As for the host: by what the sample says of twins, so that the guests' figures add up to the host's.
        if !process.is_twin {
            let huge_bytes = process.merge_reading.map(|reading| reading.huge_bytes);
            guest.folded_bytes = add_known(guest.folded_bytes, process.folded_bytes, u64::saturating_add);
            guest.huge_bytes = add_known(guest.huge_bytes, huge_bytes, u64::saturating_add);
            guest.split = add_known(guest.split, process.split, SplitMemory::plus);
        }
        guest.mergeable = match (guest.mergeable, process.ksm.mergeable) {
            (Some(a), Some(b)) => Some(a || b),
            (a, b) => a.or(b),
        };
    }
    if let Some(obstacle) = guest.obstacle.as_deref().filter(|_| guest.figures.merged_bytes > 0) {
        let merged = Bytes::from(guest.figures.merged_bytes);
        guest.errors.push(format!(
            "by its command line none of its RAM can merge ({obstacle}), but {merged} of its memory is merged; pruning goes by \
             its profit"
        ));
    }
    Some(guest)
}

/// Adds two figures; one that is unknown adds nothing.
fn add_known<T>(one: Option<T>, other: Option<T>, add: fn(T, T) -> T) -> Option<T> {
    one.into_iter().chain(other).reduce(add)
}

fn placement(known: Option<&ProcessIdentity>) -> ProcessPlacement {
    ProcessPlacement {
        cgroup: known.and_then(|known| known.cgroup.clone()),
        user: known.filter(|known| known.uid.is_some()).and_then(|known| known.user.clone()),
    }
}

fn key(
    process: &ProcessSample,
    known: Option<&ProcessIdentity>,
    all: &HashMap<u32, (&ProcessSample, Option<&ProcessIdentity>)>,
) -> GuestGroupKey {
    match known {
        Some(ProcessIdentity { unit: Some(unit), .. }) => GuestGroupKey::Unit(unit.clone()),
        Some(known) if known.includes_children => GuestGroupKey::Process(root_of(process, known, all)),
        _ => GuestGroupKey::Process(process.id),
    }
}

/// Returns the first process of a guest that includes its children: the topmost parent of the same kind, name and
/// user.
fn root_of(
    process: &ProcessSample,
    known: &ProcessIdentity,
    all: &HashMap<u32, (&ProcessSample, Option<&ProcessIdentity>)>,
) -> ProcessId {
    let (mut at, mut parent) = (process.id, known.parent);
    // A table read over a while may name parents in a circle.
    for _ in 0..all.len() {
        match all.get(&parent) {
            Some((process, Some(above)))
                if above.kind == known.kind && above.name == known.name && above.uid == known.uid =>
            {
                (at, parent) = (process.id, above.parent);
            }
            _ => break,
        }
    }
    at
}

/// Creates a guest of its first process, which is not in its list yet.
fn of_first(process: &ProcessSample, known: Option<&ProcessIdentity>) -> Guest {
    let known = known.cloned().unwrap_or_else(|| ProcessIdentity::plain(&process.name));
    Guest {
        uuid: known.uuid,
        is_verified: known.is_verified,
        kind: known.kind,
        manager: known.manager.map(str::to_owned),
        number: known.number,
        processes: Vec::new(),
        program: known.program,
        memory_bytes: known.memory_bytes,
        cgroup: known.cgroup,
        user: known.user,
        uid: known.uid,
        obstacle: known.obstacle.map(str::to_owned),
        figures: GuestMemoryFigures { rss_bytes: Some(0), ..GuestMemoryFigures::default() },
        ..Guest::plain(&known.name, process.id)
    }
}

impl Guest {
    /// Sets the sum of its processes' `smaps_rollup`. `None` for one makes the sum unknown.
    pub fn set_memory(&mut self, of_processes: impl IntoIterator<Item = Option<RollupFigures>>) {
        let sum = of_processes.into_iter().map(Option::unwrap_or_default).reduce(RollupFigures::plus);
        self.figures.memory = sum.unwrap_or_default();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::HostTotals;
    use crate::guest::GuestKind;
    use crate::kernel::KsmStat;
    use crate::reading::Reading;
    use crate::sample::MergeReading;

    pub(in super::super) fn guest(name: &str, pid: u32) -> Guest {
        Guest::plain(name, ProcessId { pid, start_ticks: 1 })
    }

    fn process(pid: u32, merging: u64) -> ProcessSample {
        ProcessSample {
            rss_bytes: Some(4096),
            ksm: KsmStat { merging_pages: Some(merging), rmap_items: Some(merging), ..KsmStat::default() },
            ..ProcessSample::new(ProcessId { pid, start_ticks: 1 }, "p".into(), false)
        }
    }

    fn plain(name: &str) -> ProcessIdentity {
        ProcessIdentity { parent: 1, ..ProcessIdentity::plain(name) }
    }

    fn of_service(program: &str, service: &str) -> ProcessIdentity {
        let unit = Some(format!("/system.slice/{service}.service"));
        ProcessIdentity { name: service.to_owned(), kind: GuestKind::new("service"), unit, ..plain(program) }
    }

    fn uml(parent: u32) -> ProcessIdentity {
        ProcessIdentity { kind: GuestKind::new("uml"), includes_children: true, parent, ..plain("u") }
    }

    fn grouped(processes: &[(u32, ProcessIdentity)]) -> Vec<(String, Vec<u32>)> {
        let sample = Sample {
            page_size: 4096,
            processes: processes.iter().map(|(pid, _)| process(*pid, 1)).collect(),
            ..Sample::default()
        };
        let table: HashMap<u32, &ProcessIdentity> =
            processes.iter().map(|(pid, identity)| (*pid, identity)).collect();
        let (guests, _) = group(&sample, |id| table.get(&id.pid).copied());
        let pids = |guest: &Guest| guest.processes.iter().map(|id| id.pid).collect();
        guests.iter().map(|guest| (guest.name.clone(), pids(guest))).collect()
    }

    #[test]
    fn a_process_that_hides_its_count_leaves_the_guests_merged_memory_unknown() {
        let web = of_service("web", "web");
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.processes = vec![process(1, 3), process(2, 4)];
        let counted = |sample: &Sample| group(sample, |_| Some(&web)).0[0].figures.counted_merged_bytes();
        assert_eq!(counted(&sample), Some(7 * 4096));
        sample.processes[1].ksm.merging_pages = None;
        assert_eq!(counted(&sample), None);
    }

    #[test]
    fn processes_of_a_service_are_one_guest_and_plain_ones_each_their_own() {
        let service = || of_service("postgres", "pg");
        let found = grouped(&[(10, service()), (11, plain("sh")), (12, service()), (13, plain("sh"))]);
        let expected = [("pg".to_owned(), vec![10, 12]), ("sh".to_owned(), vec![11]), ("sh".to_owned(), vec![13])];
        assert_eq!(found, expected);
    }

    #[test]
    fn guests_of_one_name_stay_apart() {
        let vm = || ProcessIdentity { kind: GuestKind::new("qemu"), ..plain("web") };
        assert_eq!(grouped(&[(10, vm()), (11, vm())]).len(), 2);
        // Two user-mode Linuxes of the same name, each with a child; the second one's came to be its first.
        let found = grouped(&[(10, uml(1)), (11, uml(10)), (20, uml(1)), (21, uml(20)), (22, uml(21))]);
        assert_eq!(found, [("u".to_owned(), vec![10, 11]), ("u".to_owned(), vec![20, 21, 22])]);
    }

    #[test]
    fn a_guest_is_known_by_its_first_process_also_when_pids_began_anew() {
        // Its helpers got PIDs below its own.
        let found = grouped(&[(310, uml(32_760)), (311, uml(310)), (32_760, uml(1))]);
        assert_eq!(found, [("u".to_owned(), vec![32_760, 310, 311])]);
        // Of a service, the oldest one, with its program.
        let mut sample =
            Sample { page_size: 4096, processes: vec![process(300, 1), process(32_000, 1)], ..Sample::default() };
        sample.processes[0].id.start_ticks = 2;
        let (worker, main) = (of_service("worker", "a"), of_service("main", "a"));
        let (guests, _) = group(&sample, |id| Some(if id.pid == 300 { &worker } else { &main }));
        assert_eq!((guests[0].id().pid(), guests[0].program.as_str()), (32_000, "main"));
    }

    #[test]
    fn memory_that_two_processes_have_in_common_counts_once() {
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.processes = vec![process(10, 100), process(11, 100)];
        sample.ksm.pages_sharing = Reading::Value(100);
        let first = of_service("p", "a");
        let twin = ProcessIdentity { is_twin: true, parent: 10, ..of_service("p", "a") };
        let (guests, rest) = group(&sample, |id| Some(if id.pid == 10 { &first } else { &twin }));
        let figures = guests[0].figures;
        assert_eq!(
            (figures.merged_bytes, figures.rss_bytes, figures.metadata_bytes),
            (100 * 4096, Some(4096), 6400)
        );
        assert_eq!((figures.saved_bytes, figures.profit_bytes, rest), (100 * 4096, 100 * 4096 - 6400, 0));
        // The reader of page tables finds twins too, also where no identity says so.
        for process in &mut sample.processes {
            process.merge_reading = Some(MergeReading { huge_bytes: 2 << 20, ..MergeReading::default() });
            process.folded_bytes = Some(4096);
            process.split = Some(SplitMemory::new(6 << 20, 2 << 20, 1.0, &sample.split_losses));
        }
        sample.processes[1].is_twin = true;
        let (guests, _) = group(&sample, |_| Some(&first));
        let figures = guests[0].figures;
        assert_eq!((figures.merged_bytes, figures.rss_bytes), (100 * 4096, Some(4096)));
        assert_eq!((guests[0].folded_bytes, guests[0].huge_bytes), (Some(4096), Some(2 << 20)));
        assert_eq!(guests[0].split, sample.processes[0].split);
    }

    #[test]
    fn a_guest_with_a_process_of_another_user_is_of_no_user_and_not_verified() {
        let of = |uid| ProcessIdentity {
            uid: Some(uid),
            is_verified: true,
            user: Some("root".to_owned()),
            ..of_service("p", "a")
        };
        let sample = Sample { page_size: 4096, processes: vec![process(5, 1), process(6, 1)], ..Sample::default() };
        let grouped = |second: ProcessIdentity| {
            let first = of(0);
            let (guests, _) = group(&sample, |id| Some(if id.pid == 5 { &first } else { &second }));
            assert_eq!(guests.len(), 1);
            (guests[0].only_user().map(str::to_owned), guests[0].is_verified)
        };
        assert_eq!(grouped(of(0)), (Some("root".to_owned()), true));
        assert_eq!(grouped(of(7)), (None, true));
        assert_eq!(grouped(ProcessIdentity { uid: None, ..of(0) }), (None, true), "a set-user-ID program");
        assert_eq!(grouped(ProcessIdentity { is_verified: false, ..of(0) }), (Some("root".to_owned()), false));
    }

    #[test]
    fn a_guest_has_the_places_of_all_its_processes() {
        let of = |cgroup: &str, uid| ProcessIdentity {
            cgroup: Some(cgroup.to_owned()),
            user: Some("alice".to_owned()),
            uid,
            ..of_service("p", "a")
        };
        let processes = [5, 6, 7, 8].map(|pid| process(pid, 1)).into();
        let sample = Sample { page_size: 4096, processes, ..Sample::default() };
        let known = [of("/a", Some(1)), of("/b", Some(1)), of("/a", Some(1)), of("/a", None)];
        let (guests, _) = group(&sample, |id| known.get(id.pid as usize - 5));
        let place = |cgroup: &str, user: Option<&str>| ProcessPlacement {
            cgroup: Some(cgroup.to_owned()),
            user: user.map(str::to_owned),
        };
        assert_eq!(guests[0].cgroup.as_deref(), Some("/a"));
        assert_eq!(
            guests[0].placements,
            [place("/a", None), place("/a", Some("alice")), place("/b", Some("alice"))]
        );
        let (alike, _) = group(&sample, |_| Some(&known[0]));
        assert_eq!(alike[0].placements, []);
    }

    #[test]
    fn a_child_of_another_user_is_not_part_of_a_user_mode_linux() {
        let of = |uid, parent| ProcessIdentity { uid: Some(uid), ..uml(parent) };
        assert_eq!(grouped(&[(10, of(1, 1)), (11, of(1, 10)), (12, of(2, 10))]).len(), 2);
    }

    #[test]
    fn parents_in_a_circle_do_not_hang() {
        assert_eq!(grouped(&[(10, uml(11)), (11, uml(10))]).len(), 2);
    }

    #[test]
    fn an_obstacle_beside_merged_memory_is_a_contradiction() {
        let vm = ProcessIdentity { obstacle: Some("shared"), ..plain("vm") };
        for (merging, expected) in [(0, Some("shared")), (256, None)] {
            let sample = Sample { page_size: 4096, processes: vec![process(5, merging)], ..Sample::default() };
            let (guests, _) = group(&sample, |_| Some(&vm));
            assert_eq!(guests[0].lasting_obstacle(), expected);
            assert_eq!(guests[0].obstacle.as_deref(), Some("shared"));
            let has_note = guests[0].errors.iter().any(|error| error.contains("(shared), but 1.00 MiB"));
            assert_eq!(has_note, merging > 0, "{:?}", guests[0].errors);
        }
    }

    #[test]
    fn an_unknown_process_is_a_guest_too() {
        let sample = Sample { page_size: 4096, processes: vec![process(5, 1)], ..Sample::default() };
        let (guests, _) = group(&sample, |_| None);
        assert_eq!((guests[0].name.as_str(), guests[0].kind, guests[0].id().pid()), ("p", GuestKind::PROCESS, 5));
    }

    proptest! {
        #[test]
        fn the_saved_column_adds_up_to_the_hosts_figure(
            shape in prop::collection::vec((0_u64..1000, 0_u64..100, 0_usize..4), 0..40),
            shared in 0_u64..10_000, sharing in 0_u64..10_000, zero in 0_u64..5000, hidden in 0_u64..2,
        ) {
            let mut sample = Sample { page_size: 4096, hidden_processes: hidden, ..Sample::default() };
            sample.ksm.pages_shared = Reading::Value(shared);
            sample.ksm.pages_sharing = Reading::Value(sharing);
            sample.ksm.ksm_zero_pages = Reading::Value(zero.cast_signed());
            let units: Vec<ProcessIdentity> = (0..4).map(|n| of_service("p", &n.to_string())).collect();
            for (n, (merging, zero, _)) in shape.iter().enumerate() {
                let mut process = process(n as u32, *merging);
                process.ksm.zero_pages = Some(*zero);
                sample.processes.push(process);
            }
            let of = |id: &ProcessId| shape.get(id.pid as usize).and_then(|(_, _, unit)| units.get(*unit));
            let (guests, rest) = group(&sample, of);
            let saved: u64 = guests.iter().map(|guest| guest.figures.saved_bytes).sum();
            prop_assert_eq!(saved + rest, HostTotals::from_sample(&sample).saved_bytes);
            let processes: usize = guests.iter().map(|guest| guest.processes.len()).sum();
            prop_assert_eq!(processes, sample.processes.len());
            let merged: u64 = guests.iter().map(|guest| guest.figures.merged_bytes).sum();
            prop_assert_eq!(merged, shape.iter().map(|(m, z, _)| (m + z) * 4096).sum::<u64>());
        }
    }
}
