//! Runs of pages: the machine that keeps them as one counts as the machine that keeps each page.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum PairEvent {
    Advance(u64),
    Add(Vec<u64>),
    Remove(u32),
    Rewrite(u32, usize, u64),
    Reserve(u32, usize),
    Take(u32, usize),
    Write(Knob, u64),
}

/// A content: often one of a few, sometimes empty, sometimes unique.
fn content() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1_u64..6, 1 => Just(ZERO), 1 => Just(UNIQUE)]
}

fn happening() -> impl Strategy<Value = PairEvent> {
    prop_oneof![
        5 => (0_u64..5_000_000).prop_map(PairEvent::Advance),
        1 => prop::collection::vec(content(), 0..30).prop_map(PairEvent::Add),
        1 => (0_u32..8).prop_map(PairEvent::Remove),
        4 => (0_u32..8, 0_usize..30, content()).prop_map(|(g, p, c)| PairEvent::Rewrite(g, p, c)),
        1 => (0_u32..8, 0_usize..9).prop_map(|(g, runs)| PairEvent::Reserve(g, runs)),
        2 => (0_u32..8, 0_usize..30).prop_map(|(g, p)| PairEvent::Take(g, p)),
        1 => (1_u64..200).prop_map(|pages| PairEvent::Write(Knob::PagesToScan, pages)),
        1 => (0_u64..2).prop_map(|smart| PairEvent::Write(Knob::SmartScan, smart)),
        1 => prop_oneof![1 => Just(2), 1 => Just(0), 4 => Just(1)].prop_map(|run| PairEvent::Write(Knob::Run, run)),
    ]
}

/// Two machines with the same pages: one keeps each page, the other runs of them.
struct MachinePair {
    pages: SimMachine,
    runs: SimMachine,
    length: u32,
}

impl MachinePair {
    fn new(kernel: KernelVersion, length: u32) -> Self {
        let machine = |run_pages| {
            let mut machine = SimMachine::new(SimConfig { kernel, run_pages, ..SimConfig::default() });
            // Chains of nodes are pruned at a time, which may fall between two pages of a run.
            let _ = machine.write(Knob::StableNodeChainsPruneMillisecs, 0);
            let _ = machine.write(Knob::MaxPageSharing, 3);
            let _ = machine.write(Knob::UseZeroPages, 1);
            machine.write(Knob::Run, 1).unwrap();
            machine
        };
        Self { pages: machine(1), runs: machine(length), length }
    }

    /// Page `n` of a run has a content of its own.
    fn spread(&self, content: u64) -> impl Iterator<Item = u64> + use<> {
        let length = u64::from(self.length);
        (0..length)
            .map(move |page| if matches!(content, ZERO | UNIQUE) { content } else { content * length + page })
    }

    /// Lets ksmd come out of the run that it is in: a write to it, the end of its guest, or unmerging would settle it.
    fn leave_run(&mut self) {
        for _ in 0..100_000 {
            if self.runs.ksmd.inside.is_none() || self.runs.is_asleep() || self.runs.settings.run != 1 {
                return;
            }
            self.advance(100);
        }
    }

    fn advance(&mut self, ns: u64) {
        self.pages.advance(Duration::from_nanos(ns));
        self.runs.advance(Duration::from_nanos(ns));
    }

    fn is_inside(&self) -> bool {
        self.runs.ksmd.inside.is_some()
    }

    fn happen(&mut self, happening: &PairEvent) {
        match happening {
            PairEvent::Advance(ns) => self.advance(*ns),
            PairEvent::Add(contents) => {
                let spread: Vec<_> = contents.iter().flat_map(|&content| self.spread(content)).collect();
                self.pages.add_guest("a", spread);
                self.runs.add_guest("a", contents.iter().copied());
            }
            PairEvent::Remove(guest) => {
                self.leave_run();
                if !self.is_inside() {
                    self.pages.remove_guest(SimGuestId(*guest));
                    self.runs.remove_guest(SimGuestId(*guest));
                }
            }
            PairEvent::Rewrite(guest, run, content) => {
                self.leave_run();
                if !self.is_inside() {
                    for (page, content) in self.spread(*content).enumerate() {
                        self.pages.write_page(SimGuestId(*guest), run * self.length as usize + page, content);
                    }
                    self.runs.write_page(SimGuestId(*guest), *run, *content);
                }
            }
            PairEvent::Reserve(guest, runs) => {
                self.pages.reserve_pages(SimGuestId(*guest), runs * self.length as usize);
                self.runs.reserve_pages(SimGuestId(*guest), *runs);
            }
            PairEvent::Take(guest, run) => {
                self.leave_run();
                if !self.is_inside() {
                    for page in 0..self.length as usize {
                        self.pages.take_page(SimGuestId(*guest), run * self.length as usize + page);
                    }
                    self.runs.take_page(SimGuestId(*guest), *run);
                }
            }
            PairEvent::Write(Knob::Run, 2) => {
                self.leave_run();
                if !self.is_inside() {
                    assert_eq!(self.pages.write(Knob::Run, 2), self.runs.write(Knob::Run, 2));
                }
            }
            PairEvent::Write(knob, value) => {
                assert_eq!(self.pages.write(*knob, *value), self.runs.write(*knob, *value));
            }
        }
    }
}

proptest! {
    #[test]
    fn runs_count_as_their_pages_at_every_moment(
        version in prop_oneof![Just((6, 18)), Just((6, 10)), Just((6, 1))],
        length in prop_oneof![Just(2_u32), Just(7), Just(64)],
        story in prop::collection::vec(happening(), 0..60),
    ) {
        let mut pair = MachinePair::new(KernelVersion::new(version.0, version.1), length);
        for step in &story {
            pair.happen(step);
            prop_assert_eq!(format!("{:?}", pair.pages.sample()), format!("{:?}", pair.runs.sample()), "{:?}", step);
            prop_assert_eq!(pair.pages.attainable_pages(), pair.runs.attainable_pages());
            prop_assert_eq!(pair.pages.truly_saved_pages(), pair.runs.truly_saved_pages());
        }
    }
}
