//! Properties that hold in every sequence of events.

use proptest::prelude::*;

use super::*;

/// An event of a machine.
#[derive(Debug, Clone)]
enum RandomEvent {
    Advance(u64),
    Add(Vec<u64>),
    Start(u16, u32, u32, u32, u64),
    Remove(u32),
    Rewrite(u32, usize, u64),
    Reserve(u32, usize),
    Huge(u32),
    Khugepaged(u32),
    Take(u32, usize),
    Write(usize, u64),
}

/// A content: often one of a few, sometimes empty, sometimes unique.
fn content() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1_u64..6, 1 => Just(ZERO), 1 => Just(UNIQUE)]
}

/// A value for a knob, near the values that matter.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..4, 0_u64..100, any::<u64>()]
}

fn happening() -> impl Strategy<Value = RandomEvent> {
    prop_oneof![
        4 => (0_u64..20_000_000).prop_map(RandomEvent::Advance),
        1 => prop::collection::vec(content(), 0..40).prop_map(RandomEvent::Add),
        1 => (0_u16..3, 0_u32..9, 0_u32..9, 0_u32..9, 0_u64..40_000)
            .prop_map(|(a, b, c, d, e)| RandomEvent::Start(a, b, c, d, e)),
        1 => (0_u32..12).prop_map(RandomEvent::Remove),
        4 => (0_u32..12, 0_usize..40, content()).prop_map(|(g, p, c)| RandomEvent::Rewrite(g, p, c)),
        1 => (0_u32..12, 0_usize..9).prop_map(|(g, pages)| RandomEvent::Reserve(g, pages)),
        3 => (0_u32..12, 0_usize..40).prop_map(|(g, p)| RandomEvent::Take(g, p)),
        1 => (0_u32..12).prop_map(RandomEvent::Huge),
        1 => (0_u32..9).prop_map(RandomEvent::Khugepaged),
        2 => (0..Knob::ALL.len(), value()).prop_map(|(k, v)| RandomEvent::Write(k, v)),
        // ksmd would else be off most of the time.
        2 => Just(RandomEvent::Write(Knob::ALL.len() - 1, 1)),
    ]
}

fn happen(machine: &mut SimMachine, happening: &RandomEvent) {
    match happening {
        RandomEvent::Advance(ns) => machine.advance(Duration::from_nanos(*ns)),
        RandomEvent::Add(pages) => {
            machine.add_guest("added", pages.iter().copied());
        }
        RandomEvent::Start(label, equal, zero, rewritten, us) => machine.start(
            GuestPlan::new("planned")
                .equal(*label, *equal)
                .zero(*zero)
                .rewritten(*rewritten, Duration::from_micros(*us))
                .starting_at(machine.now() + Duration::from_micros(*us))
                .stopping_at(machine.now() + Duration::from_micros(us * 7)),
        ),
        RandomEvent::Remove(guest) => {
            machine.remove_guest(SimGuestId(*guest));
        }
        RandomEvent::Rewrite(guest, page, content) => {
            machine.write_page(SimGuestId(*guest), *page, *content);
        }
        RandomEvent::Reserve(guest, pages) => {
            machine.reserve_pages(SimGuestId(*guest), *pages);
        }
        RandomEvent::Huge(guest) => {
            machine.use_huge_pages(SimGuestId(*guest));
        }
        RandomEvent::Khugepaged(scan_sleep_millisecs) => {
            machine.set_khugepaged(KhugepagedPace {
                pages_to_scan: 4096,
                scan_sleep_millisecs: *scan_sleep_millisecs,
            });
        }
        RandomEvent::Take(guest, page) => {
            machine.take_page(SimGuestId(*guest), *page);
        }
        RandomEvent::Write(knob, value) => {
            let _ = machine.write(Knob::ALL[*knob], *value);
        }
    }
}

fn kernel() -> impl Strategy<Value = KernelVersion> {
    prop_oneof![Just((6, 18)), Just((6, 10)), Just((6, 1)), Just((2, 6))]
        .prop_map(|(major, minor)| KernelVersion::new(major, minor))
}

proptest! {
    #[test]
    fn the_counters_are_what_the_pages_say(
        kernel in kernel(),
        story in prop::collection::vec(happening(), 0..60),
    ) {
        let mut machine = running(kernel);
        let mut last = machine.sample();
        for step in &story {
            happen(&mut machine, step);
            audit(&machine).map_err(|why| TestCaseError::fail(format!("{step:?}: {why}")))?;
            let sample = machine.sample();
            prop_assert!(sample.at >= last.at);
            prop_assert!(sample.ksmd_cpu_ns.get() >= last.ksmd_cpu_ns.get());
            let spent = sample.ksmd_cpu_ns.get().unwrap() - last.ksmd_cpu_ns.get().unwrap();
            prop_assert!(u128::from(spent) <= (sample.at - last.at).as_nanos(), "over one CPU");
            // The frames can't be fewer than distinct contents need.
            let pages: u64 = machine.memory.guests.iter().filter(|g| !g.ended).map(|g| g.present()).sum();
            let frames = machine.memory.private + machine.memory.stable.frames;
            prop_assert!(frames + machine.memory.zero_pages <= pages);
            last = sample;
        }
    }

    #[test]
    fn the_same_story_gives_the_same_samples(story in prop::collection::vec(happening(), 0..40)) {
        let tell = || {
            let mut machine = today();
            story.iter().for_each(|step| happen(&mut machine, step));
            format!("{:?}", machine.sample())
        };
        prop_assert_eq!(tell(), tell());
    }

    #[test]
    fn two_clean_passes_save_all_that_contents_allow(
        guests in prop::collection::vec(prop::collection::vec(content(), 0..60), 1..6),
        writes in prop_oneof![
            1 => Just(Vec::new()),
            2 => prop::collection::vec((0_u32..6, 0_usize..60, content()), 0..40),
        ],
        limit in prop_oneof![2_u64..9, Just(256)],
        use_zero_pages in 0_u64..2,
        batch in 1_u64..50,
        before in 0_u64..20_000,
    ) {
        let mut machine = today();
        machine.write(Knob::MaxPageSharing, limit).unwrap();
        machine.write(Knob::UseZeroPages, use_zero_pages).unwrap();
        machine.write(Knob::PagesToScan, batch).unwrap();
        machine.write(Knob::StableNodeChainsPruneMillisecs, 0).unwrap();
        for pages in &guests {
            machine.add_guest("a", pages.iter().copied());
        }
        prop_assume!(guests.iter().any(|pages| !pages.is_empty()));
        machine.advance(Duration::from_micros(before));
        let saved = |machine: &SimMachine| machine.sample().ksm.saved_pages();
        prop_assert!(saved(&machine) <= machine.attainable_pages());
        for &(guest, page, content) in &writes {
            machine.write_page(SimGuestId(guest), page, content);
        }
        // The pass that is under way, then two from start to end.
        passes(&mut machine, 3);
        // Frames of one chain that writes left half empty are not joined, in the kernel neither.
        prop_assert!(saved(&machine) <= machine.attainable_pages());
        if writes.is_empty() || limit == 256 {
            prop_assert_eq!(saved(&machine), machine.attainable_pages());
        }
        audit(&machine).map_err(TestCaseError::fail)?;
        let merging: u64 = machine.sample().processes.iter().map(|process| process.merging_pages()).sum();
        let [shared, sharing, ..] = gauges(&machine);
        prop_assert_eq!(merging, shared + sharing);
    }
}
