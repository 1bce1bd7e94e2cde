//! The sample mode: some pages drawn by position, and bounds instead of an extrapolation.

use super::bounds::SurplusBounds;
use super::interval::{ConfidenceInterval, Z, proportion};
use super::outcome::{GuestOutcome, SavingsOutcome};
use super::rules::MergeRules;
use super::{SKIPPED, ZERO};

/// One page of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageProbe {
    /// The place: the same number for the same place in different guests. Places are drawn, not pages: the page at a
    /// drawn place is read in every guest.
    pub place: u64,
    /// The number of the page's guest.
    pub guest: u32,
    /// Its fingerprint, [`ZERO`], or [`SKIPPED`] for a page that changes.
    pub page: u64,
}

/// A sample of the pages of some guests.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSample {
    /// The chance with which each place was drawn.
    pub rate: f64,
    /// The number of pages of each guest, from the kernel's counters.
    pub pages: Vec<u64>,
    /// The pages that were read, in any order.
    pub probes: Vec<PageProbe>,
}

/// The result of one set of probes: one guest's, or all.
struct ProbeFindings {
    zero: ConfidenceInterval,
    stable: ConfidenceInterval,
    saved: ConfidenceInterval,
}

impl ProbeSample {
    /// Computes bounds on the savings. `expected` is only the middle of the interval, and `within`, `across` and
    /// `unique` are split accordingly.
    pub fn outcome(&self, rules: &MergeRules) -> SavingsOutcome {
        let all = self.findings(&self.probes, self.pages.iter().sum(), rules).saved;
        let mut by_guest = vec![Vec::new(); self.pages.len()];
        for probe in &self.probes {
            if let Some(probes) = by_guest.get_mut(probe.guest as usize) {
                probes.push(*probe);
            }
        }
        let alone: Vec<ProbeFindings> =
            by_guest.iter().zip(&self.pages).map(|(probes, &pages)| self.findings(probes, pages, rules)).collect();
        // The savings of all beyond those of each alone are split by what each has left.
        let left = |found: &ProbeFindings| (found.stable.expected - found.saved.expected).max(0.0);
        let sum_alone: f64 = alone.iter().map(|found| found.saved.expected).sum();
        let sum_left: f64 = alone.iter().map(left).sum();
        let beyond = all.expected - sum_alone;
        let guests = alone.iter().map(|found| {
            let share = match beyond {
                _ if beyond > 0.0 && sum_left > 0.0 => (beyond * left(found) / sum_left).min(left(found)),
                _ if beyond < 0.0 && sum_alone > 0.0 => beyond * found.saved.expected / sum_alone,
                _ => 0.0,
            };
            let nonzero = (found.stable.expected - found.zero.expected).max(0.0);
            let within = (found.saved.expected - found.zero.expected + share.min(0.0)).clamp(0.0, nonzero);
            let across = share.max(0.0).min(nonzero - within);
            let expected = found.saved.expected + share;
            GuestOutcome {
                pages: found.stable.expected.round() as u64,
                zero: found.zero.expected,
                within,
                across,
                unique: nonzero - within - across,
                // A guest alone saves no more than with others, and with others at most its pages and the savings of all.
                saved: ConfidenceInterval {
                    expected,
                    low: found.saved.low.min(expected),
                    high: found.stable.high.min(all.high).max(expected),
                },
            }
        });
        SavingsOutcome::from_guests(guests.collect(), all, None)
    }

    /// First each place is reduced to its distinct contents, which catches clones. The reduced population has
    /// each content at most once per place, so that its copies are drawn independently, as [`SurplusBounds`] needs.
    fn findings(&self, probes: &[PageProbe], pages: u64, rules: &MergeRules) -> ProbeFindings {
        let whole = pages as f64;
        let is_all = self.rate >= 1.0;
        // The pages of a place are drawn together, which counts as fewer draws.
        let lump = lump(probes);
        let part_of = |is: fn(u64) -> bool| {
            let hits = probes.iter().filter(|probe| is(probe.page)).count() as f64;
            if is_all {
                return ConfidenceInterval::exactly(hits);
            }
            let thin = |count: f64| (count / lump).round() as u64;
            let exact = if probes.is_empty() { 0.0 } else { hits / probes.len() as f64 * whole };
            ConfidenceInterval { expected: exact, ..proportion(thin(hits), thin(probes.len() as f64), whole) }
        };
        let zero = part_of(|page| page == ZERO);
        let stable = match probes {
            [] => ConfidenceInterval { expected: whole, low: 0.0, high: whole },
            _ => part_of(|page| page != SKIPPED),
        };
        let (in_place, in_place_error, drawn) = reduce(probes, self.rate);
        let zero_saved = |pages: f64| pages - rules.zero_frames(pages.round() as u64) as f64;
        let known = zero_saved(zero.expected) + in_place;
        let known_error = (zero.expected - zero.low).hypot(Z * in_place_error);
        if is_all {
            let surplus = SurplusBounds::from_draws(&drawn, 1.0, stable).low;
            return ProbeFindings { zero, stable, saved: ConfidenceInterval::exactly(known + surplus) };
        }
        // Zero pages and others are complements: only the number of contents is uncertain.
        let bounds = SurplusBounds::from_draws(&drawn, self.rate, stable);
        let high = (bounds.high - rules.zero_frames(zero.low.round() as u64) as f64).max(0.0);
        let low = (known - known_error).max(0.0) + bounds.low;
        let low = (low * rules.least_share()).min(high);
        ProbeFindings { zero, stable, saved: ConfidenceInterval { expected: f64::midpoint(low, high), low, high } }
    }
}

/// Returns the number of pages at a drawn place, in the mean over pages.
fn lump(probes: &[PageProbe]) -> f64 {
    let mut places: Vec<u64> = probes.iter().map(|probe| probe.place).collect();
    places.sort_unstable();
    let squares: f64 = places.chunk_by(|a, b| a == b).map(|place| (place.len() as f64).powi(2)).sum();
    if places.is_empty() { 1.0 } else { squares / places.len() as f64 }
}

/// Computes the pages that equal another one at the same place (an unbiased estimate and its standard error), and the
/// number of contents drawn at 0, 1, 2... places.
fn reduce(probes: &[PageProbe], rate: f64) -> (f64, f64, Vec<u64>) {
    let mut pages: Vec<(u64, u64)> =
        probes.iter().filter(|probe| probe.page > SKIPPED).map(|probe| (probe.place, probe.page)).collect();
    pages.sort_unstable();
    let (mut in_place, mut variance) = (0.0, 0.0);
    for place in pages.chunk_by(|a, b| a.0 == b.0) {
        let contents = place.chunk_by(|a, b| a.1 == b.1).count();
        let saved = (place.len() - contents) as f64 / rate;
        in_place += saved;
        variance += saved * saved * (1.0 - rate);
    }
    pages.dedup();
    let mut contents: Vec<u64> = pages.into_iter().map(|(_, page)| page).collect();
    contents.sort_unstable();
    let mut drawn = Vec::new();
    for content in contents.chunk_by(|a, b| a == b) {
        if drawn.len() <= content.len() {
            drawn.resize(content.len() + 1, 0);
        }
        drawn[content.len()] += 1;
    }
    (in_place, variance.sqrt(), drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::SamplePositions;
    use crate::sketch::exact::{self, GuestPages};
    use crate::sketch::populations::{self, POPULATIONS};

    fn sample(guests: &[Vec<u64>], rate: f64, seed: u64) -> ProbeSample {
        let mut probes = Vec::new();
        for (guest, pages) in (0..).zip(guests) {
            let places = SamplePositions::new(seed, 0, pages.len() as u64, rate);
            probes.extend(places.map(|place| PageProbe { place, guest, page: pages[place as usize] }));
        }
        ProbeSample { rate, pages: guests.iter().map(|guest| guest.len() as u64).collect(), probes }
    }

    fn truth(guests: &[Vec<u64>]) -> SavingsOutcome {
        let pages: Vec<_> = guests.iter().map(|guest| GuestPages { pieces: vec![guest] }).collect();
        exact::outcome(&pages, &MergeRules::default(), false)
    }

    /// The bounds hold at common rates and sizes and at awkward ones.
    #[test]
    #[allow(clippy::disallowed_macros, reason = "prints the figures of docs/measurements")]
    fn the_bounds_hold_the_truth() {
        for (pages, rate) in [(400_000, 0.01), (40_000, 0.05), (4_000, 0.02)] {
            for population in POPULATIONS {
                let guests = population.guests(pages);
                let truth = truth(&guests).total.saved.expected;
                let mut covered = 0;
                let mut width = 0.0;
                for seed in 0..100 {
                    let salted = populations::salted(&guests, seed);
                    let saved = sample(&salted, rate, seed).outcome(&MergeRules::default()).total.saved;
                    covered += u32::from(saved.low <= truth && truth <= saved.high);
                    width += (saved.high - saved.low) / pages as f64;
                }
                println!("{} {pages} at {rate}: {covered} of 100, mean width {width:.1} %", population.name());
                assert!(covered >= 93, "{} {pages} at {rate}: {covered} of 100", population.name());
            }
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        for population in POPULATIONS {
            let guests = population.guests(2_000);
            let rules = MergeRules { max_page_sharing: u64::MAX, use_zero_pages: true };
            let pages: Vec<_> = guests.iter().map(|guest| GuestPages { pieces: vec![guest] }).collect();
            let truth = exact::outcome(&pages, &rules, false);
            let ours = sample(&guests, 1.0, 1).outcome(&rules);
            assert!((ours.total.saved.expected - truth.total.saved.expected).abs() < 1e-6, "{}", population.name());
            assert_eq!(ours.total.zero, truth.total.zero);
        }
    }

    #[test]
    fn a_guest_without_probes_is_not_known_and_changing_pages_are_left_out() {
        let probe = |place, guest, page| PageProbe { place, guest, page };
        let probes = vec![probe(1, 0, SKIPPED), probe(2, 0, 9), probe(3, 0, 8), probe(4, 0, SKIPPED)];
        let outcome = ProbeSample { rate: 0.01, pages: vec![400, 50], probes }.outcome(&MergeRules::default());
        assert_eq!(outcome.guests[0].pages, 200);
        assert_eq!((outcome.guests[1].saved.low, outcome.guests[1].saved.high), (0.0, 50.0));
        assert_eq!(outcome.total.saved.low, 0.0);
    }

    #[test]
    fn parts_add_up_for_every_guest() {
        for population in POPULATIONS {
            let outcome = sample(&population.guests(40_000), 0.05, 3).outcome(&MergeRules::default());
            for guest in &outcome.guests {
                let sum = guest.zero + guest.within + guest.across + guest.unique;
                assert!((sum - guest.pages as f64).abs() <= 1.0, "{}: {guest:?}", population.name());
                assert!(guest.saved.low <= guest.saved.expected && guest.saved.expected <= guest.saved.high);
            }
            let sum: f64 = outcome.guests.iter().map(|guest| guest.saved.expected).sum();
            assert!((sum - outcome.total.saved.expected).abs() < 0.01 * 40_000.0, "{}", population.name());
        }
    }
}
