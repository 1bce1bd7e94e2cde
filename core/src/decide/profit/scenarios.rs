//! Scenarios of the lab at half their size, on the simulated ksmd: what `profit` saves of what can be saved at any
//! time, and what that costs. The bounds are a little above what it does, so that a change shows where it gets worse.

use std::time::Duration;

use super::ProfitConfig;
use super::tests::ProfitRun;
use crate::decide::PolicyLimits;
use crate::sim::{GuestPlan, SimConfig, SimMachine, UNIQUE};
use crate::trial::SimHost;

const MIB: u32 = 256;
const SECOND: Duration = Duration::from_secs(1);

/// Plays a run. Returns its savings as a part of what could be saved, and ksmd's CPU-seconds.
fn play(plans: Vec<GuestPlan>, seconds: u64, has_page_samples: bool) -> (f64, f64) {
    let mut run = ProfitRun::sampled(has_page_samples);
    plans.into_iter().for_each(|plan| run.machine_mut().start(plan));
    let (mut saved, mut could) = (0.0, 1.0);
    for tick in 0..seconds * 4 {
        run.until(Duration::from_millis(250 * (tick + 1)), |_, _| false);
        let most = run.machine().attainable_pages();
        saved += run.machine().sample().ksm.saved_pages().min(most) as f64;
        could += most as f64;
    }
    (saved / could, run.ksmd_seconds())
}

fn check(plans: impl Fn() -> Vec<GuestPlan>, seconds: u64, least: f64, most: f64, most_without: f64) {
    for (has_page_samples, most) in [(true, most), (false, most_without)] {
        let (share, cpu) = play(plans(), seconds, has_page_samples);
        assert!(share >= least, "page samples {has_page_samples}: {:.1} %", share * 100.0);
        assert!(cpu <= most, "page samples {has_page_samples}: {cpu:.2} CPU-s");
    }
}

fn guest(name: &str, number: u32, at: u64) -> GuestPlan {
    GuestPlan::new(format!("{name}-{number}")).starting_at(Duration::from_secs(at)).busy(50)
}

#[test]
fn burst() {
    let clone =
        |n| guest("clone", n, 5).equal(1, 128 * MIB).zero(25 * MIB).rewritten(33 * MIB, SECOND).unique(69 * MIB);
    check(|| (0..8).map(clone).collect(), 150, 0.98, 4.0, 5.5);
}

#[test]
fn trickle() {
    let clone = |n: u32| {
        guest("clone", n, 5 + 50 * u64::from(n)).equal(1, 64 * MIB).unique(48 * MIB).rewritten(16 * MIB, SECOND)
    };
    check(|| (0..6).map(clone).collect(), 300, 0.98, 4.2, 6.0);
}

#[test]
fn churn() {
    let base = |n| guest("base", n, 5).equal(1, 96 * MIB).unique(32 * MIB).rewritten(8 * MIB, SECOND);
    let visitor = |n: u32| {
        let at = 15 + 30 * u64::from(n);
        let plan = guest("visitor", n, at).stopping_at(Duration::from_secs(at + 120));
        plan.equal(1, 64 * MIB).equal(2, 32 * MIB).zero(16 * MIB).unique(32 * MIB).rewritten(16 * MIB, SECOND)
    };
    check(|| (0..2).map(base).chain((0..9).map(visitor)).collect(), 300, 0.98, 8.5, 13.0);
}

/// Two guests, a part of which is a build's own while it runs and the same in both once it is done.
#[test]
fn build() {
    let mut run = ProfitRun::new(SimConfig::default(), PolicyLimits::default());
    let part = || (1..=u64::from(64 * MIB)).map(|page| page << 20);
    let rest = || (1..=u64::from(128 * MIB)).chain((0..u64::from(192 * MIB)).map(|_| UNIQUE));
    let ids = [0, 1].map(|_| run.machine_mut().add_guest("vm", part().chain(rest())));
    // Second, guest, and whether its contents revert.
    let steps = [
        (12, 0, false),
        (16, 1, false),
        (18, 0, true),
        (24, 1, true),
        (28, 0, false),
        (34, 0, true),
        (38, 1, false),
        (44, 0, false),
        (46, 1, true),
        (50, 0, true),
    ];
    let (mut saved, mut could) = (0.0, 0.0);
    let mut steps = steps.into_iter().peekable();
    // The kernel counts rewritten pages as saved until ksmd visits them, so the true savings are counted here.
    for tick in 0..240 {
        while let Some((_, guest, is_back)) = steps.next_if(|(at, ..)| *at * 4 == tick) {
            for (page, content) in part().enumerate() {
                run.machine_mut().write_page(ids[guest], page, if is_back { content } else { UNIQUE });
            }
        }
        run.until(Duration::from_millis(250 * (tick + 1)), |_, _| false);
        saved += run.machine().truly_saved_pages() as f64;
        could += run.machine().attainable_pages() as f64;
    }
    let (share, cpu) = (saved / could, run.ksmd_seconds());
    assert!(share >= 0.93, "{:.1} %", share * 100.0);
    assert!(cpu <= 4.6, "{cpu:.2} CPU-s");
}

/// Four guests with a part of memory that is unique and equal by turns, for half of the period each. Returns what is
/// saved of what could be, ksmd's CPU-seconds, and merged pages that were written to.
fn diverge(period_seconds: u64, periods: u64) -> (f64, f64, u64) {
    const START: u64 = 10;
    let mut run = ProfitRun::new(SimConfig::default(), PolicyLimits::default());
    let part = || (1..=u64::from(32 * MIB)).map(|page| page << 20);
    let rest = || (1..=u64::from(64 * MIB)).chain((0..u64::from(64 * MIB)).map(|_| UNIQUE));
    let ids = [0; 4].map(|_| run.machine_mut().add_guest("clone", part().chain(rest())));
    let (mut saved, mut could) = (0.0, 0.0);
    for tick in 0..(START + periods * period_seconds) * 4 {
        let since = tick.checked_sub(START * 4).filter(|since| since % (period_seconds * 2) == 0);
        if let Some(since) = since {
            let is_back = since % (period_seconds * 4) != 0;
            for id in ids {
                for (page, content) in part().enumerate() {
                    run.machine_mut().write_page(id, page, if is_back { content } else { UNIQUE });
                }
            }
        }
        run.until(Duration::from_millis(250 * (tick + 1)), |_, _| false);
        saved += run.machine().truly_saved_pages() as f64;
        could += run.machine().attainable_pages() as f64;
    }
    let vmstat = run.machine().sample().host.vmstat;
    (saved / could, run.ksmd_seconds(), vmstat.value().and_then(|vmstat| vmstat.cow_ksm).unwrap())
}

/// Contents that stay for four seconds only are merged no more than a few times in forty; those that stay longer always
/// are.
#[test]
fn diverge_is_merged_again_if_it_stays_for_a_while() {
    let wave = 4 * u64::from(32 * MIB);
    let (share, cpu, breaks) = diverge(8, 40);
    assert!(share >= 0.8 && cpu <= 2.4, "{:.1} %, {cpu:.2} CPU-s", share * 100.0);
    assert!(breaks <= 4 * wave, "{breaks} breaks, {wave} in a wave");
    for (period_seconds, periods, least, most) in [(16, 20, 0.92, 9.5), (30, 10, 0.96, 6.0), (80, 6, 0.98, 4.0)] {
        let (share, cpu, _) = diverge(period_seconds, periods);
        let share_percent = share * 100.0;
        assert!(share >= least && cpu <= most, "every {period_seconds} s: {share_percent:.1} %, {cpu:.2} CPU-s");
    }
}

/// Ranks of a solver with equal tables. They fill their memory in three seconds, and then free and allocate a third of it
/// all the time. Returns what is saved of what could be, ksmd's CPU-seconds, and passes.
fn solver(config: ProfitConfig, seconds: u64) -> (f64, f64, u64) {
    const STEP: u32 = 6 * MIB;
    let host = SimHost::new(SimMachine::new(SimConfig::default()));
    let mut run = ProfitRun::configured(host, PolicyLimits::default(), config);
    let contents = |from: u32, pages: u32| {
        (from..from + pages).map(|page| if page < 24 * MIB { u64::from(page) + 1 } else { UNIQUE })
    };
    let ids = [0; 4].map(|_| run.machine_mut().add_guest("rank", contents(0, STEP)));
    let arrays = 48 * MIB..72 * MIB;
    let (mut saved, mut could) = (0.0, 0.0);
    for tick in 0..seconds * 4 {
        for (rank, id) in ids.into_iter().enumerate() {
            if (1..12).contains(&tick) {
                let from = u32::try_from(tick).unwrap() * STEP;
                assert!(run.machine_mut().grow_guest(id, contents(from, STEP)));
            }
            // Each rank is in another part of its iteration.
            let turn = (tick + rank as u64) % 8;
            for page in arrays.clone().filter(|_| tick >= 16) {
                let page = page as usize;
                match turn {
                    0 => assert!(run.machine_mut().take_page(id, page)),
                    4 => assert!(run.machine_mut().write_page(id, page, UNIQUE)),
                    _ => {}
                }
            }
        }
        run.until(Duration::from_millis(250 * (tick + 1)), |_, _| false);
        saved += run.machine().truly_saved_pages() as f64;
        could += run.machine().attainable_pages() as f64;
    }
    (saved / could, run.ksmd_seconds(), run.machine().sample().ksm.full_scans.get().unwrap())
}

#[test]
fn a_solver_that_frees_and_allocates_is_scanned_once() {
    let hpc = ProfitConfig {
        price_mib_per_cpu_second: 100.0,
        growth_mib: 8.0,
        first_probe_seconds: 60.0,
        probe_cpu_percent: 0.2,
        ..ProfitConfig::default()
    };
    let after_init = ProfitConfig { after_init: true, max_delay_percent: 2.0, ..hpc.clone() };
    let look_first = ProfitConfig { look_first: true, ..after_init.clone() };
    for (config, least, most) in [(hpc, 0.9, 1.0), (after_init, 0.9, 0.5), (look_first, 0.9, 0.5)] {
        let name = format!("after init {}, look first {}", config.after_init, config.look_first);
        let (share, cpu, passes) = solver(config, 60);
        assert!(share >= least && cpu <= most, "{name}: {:.1} %, {cpu:.2} CPU-s, {passes} passes", share * 100.0);
    }
}

#[test]
fn idle() {
    let loner = |n| guest("loner", n, 2).unique(240 * MIB).rewritten(16 * MIB, SECOND);
    check(|| (0..4).map(loner).collect(), 300, 0.0, 1.5, 2.5);
}

/// Ranks of which each has data of its own, as LAMMPS: each page is visited twice for nothing, or some are read.
#[test]
fn ranks_that_have_nothing_in_common_are_looked_at_and_left_alone() {
    let play = |look_first| {
        let config = ProfitConfig {
            price_mib_per_cpu_second: 100.0,
            growth_mib: 64.0,
            first_probe_seconds: 60.0,
            after_init: true,
            look_first,
            ..ProfitConfig::default()
        };
        let host = SimHost::new(SimMachine::new(SimConfig::default()));
        let mut run = ProfitRun::configured(host, PolicyLimits::default(), config);
        for number in 0..4 {
            let rank = guest("rank", number, 2).equal(1, 4 * MIB).unique(96 * MIB);
            run.machine_mut().start(rank.rewritten(16 * MIB, SECOND));
        }
        run.for_seconds(300);
        run.ksmd_seconds()
    };
    let (without, with) = (play(false), play(true));
    assert!(without > 0.4, "{without:.2} CPU-s");
    assert!(with < 0.01, "{with:.2} CPU-s, {without:.2} without looking");
}

/// A guest of equal memory every ten seconds, beside ranks that spin: ksmd may use a second, 2 % of the time, and one scan more.
#[test]
fn a_limit_of_the_delay_is_kept_over_minutes() {
    const SECONDS: u32 = 300;
    let play = |max_delay_percent| {
        let config = ProfitConfig { max_delay_percent, ..ProfitConfig::default() };
        let host = SimHost::new(SimMachine::new(SimConfig::default()));
        let mut run = ProfitRun::configured(host, PolicyLimits::default(), config);
        for number in 0..SECONDS / 10 {
            let rank = guest("rank", number, 10 * u64::from(number)).equal(1, 64 * MIB).unique(128 * MIB);
            run.machine_mut().start(rank);
        }
        run.for_seconds(SECONDS.into());
        run
    };
    let (without, with) = (play(100.0), play(2.0));
    let most = 1.0 + f64::from(SECONDS) * 0.02 + with.dearest_scan_seconds();
    let (without, seconds) = (without.ksmd_seconds(), with.ksmd_seconds());
    assert!(without > 1.5 * most && seconds <= most, "{without:.2}, with a limit {seconds:.2} of {most:.2} CPU-s");
    assert!(with.saved_part() > 0.5, "{:.2}", with.saved_part());
}

/// Ranks on huge pages, half of them zeros, that are folded for some seconds after their start: ksmd begins when that is over, and
/// merges the rest.
#[test]
fn ksmd_begins_when_memory_has_been_folded() {
    const RANK: u32 = 256 * MIB;
    let begins = |after_init: bool| {
        let config = ProfitConfig { after_init, ..ProfitConfig::default() };
        let host = SimHost::new(SimMachine::new(SimConfig::default()));
        let mut run = ProfitRun::configured(host, PolicyLimits::default(), config);
        let contents = || (0..RANK).map(|page| if page % 2 == 0 { 0 } else { u64::from(page) + 1 });
        let ranks = [0; 4].map(|_| run.machine_mut().add_guest("rank", contents()));
        ranks.into_iter().for_each(|rank| assert!(run.machine_mut().use_huge_pages(rank)));
        let numbers = (0..RANK as usize).step_by(512);
        let huge_pages: Vec<_> = numbers.flat_map(|page| ranks.map(|rank| (rank, page))).collect();
        let (mut began, mut split) = (None, 0);
        // Some at each turn.
        for part in huge_pages.chunks(60) {
            let end = run.machine().now() + Duration::from_nanos(1);
            run.until(end, |_, _| false);
            split += part.iter().filter(|(rank, page)| run.machine_mut().split_page(*rank, *page)).count();
            began = began.or_else(|| (run.ksmd_seconds() > 0.0).then(|| run.machine().now().as_secs_f64()));
        }
        let folded = run.machine().now().as_secs_f64();
        run.for_seconds(30);
        let saved = run.machine().truly_saved_pages() as f64 / run.machine().attainable_pages() as f64;
        (began, folded, split, saved)
    };
    let (began, folded, split, saved) = begins(true);
    assert!(folded > 3.0 && split > 400, "{folded:.1} s, {split} split");
    assert!(began.is_none() && saved > 0.9, "{began:?} s, folded at {folded:.1} s, {saved:.2} saved");
    assert!(begins(false).0.is_some(), "others are merged at once");
}
