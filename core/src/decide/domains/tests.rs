//! Tests of the rules, the guard, its pace and its pass budget.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::decide::{DecisionReason, PolicyDecision};
use crate::guest::{Guest, GuestId, ProcessPlacement};
use crate::knobs::{Knob, KnobSettings};
use crate::sample::{ProcessId, ProcessSample, Sample};

fn config(text: &str) -> Result<DomainsConfig, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn one() -> DomainsConfig {
    DomainsConfig { mode: DomainMode::One, admit: Some("a".to_owned()), ..DomainsConfig::default() }
}

fn guest(name: &str) -> Guest {
    let process = ProcessSample::new(ProcessId { pid: 7, start_ticks: 1 }, name.into(), true);
    let sample = Sample { page_size: 4096, processes: vec![process], ..Sample::default() };
    Guest { is_verified: true, uid: Some(1), ..crate::guest::group(&sample, |_| None).0.remove(0) }
}

fn domain_guest(pid: u32, domain: Option<&str>, mergeable: Option<bool>) -> DomainGuest {
    DomainGuest {
        id: GuestId::new(ProcessId { pid, start_ticks: 1 }),
        name: format!("g{pid}"),
        is_known: true,
        domain: domain.map(str::to_owned),
        mergeable,
        unswitchable: None,
        profit_bytes: 0,
        rss_bytes: 0,
        nodes: None,
    }
}

const NOW: Duration = Duration::from_secs(1000);

#[test]
fn the_first_rule_that_fits_counts() {
    let config = config(
        "default = \"rest\"\n[[rule]]\ndomain = \"a\"\nname = \"web-?\"\nuser = \"alice\"\n[[rule]]\ndomain = \"b\"\n\
         name = \"web-*\"\n[[rule]]\ndomain = \"c\"\nuuid = \"AB-1\"\n[[rule]]\ndomain = \"d\"\nmetadata = \"*customer>d<*\"\n\
         [[rule]]\ndomain = \"e\"\ncgroup = \"/machine.slice/*\"\n",
    )
    .unwrap();
    let domain = |change: &dyn Fn(&mut Guest)| {
        let mut guest = guest("web-1");
        change(&mut guest);
        config.domain_of(&guest).unwrap().to_owned()
    };
    assert_eq!(domain(&|guest| guest.user = Some("alice".to_owned())), "a");
    assert_eq!(domain(&|_| ()), "b");
    let other = |guest: &mut Guest| guest.name = "db".to_owned();
    assert_eq!(domain(&other), "rest");
    assert_eq!(domain(&|guest| (other(guest), guest.uuid = Some("ab-1".to_owned())).1), "c");
    let metadata = Some("<m>\n<customer>d</customer></m>".to_owned());
    assert_eq!(domain(&|guest| (other(guest), guest.metadata = metadata.clone()).1), "d");
    assert_eq!(domain(&|guest| (other(guest), guest.cgroup = Some("/machine.slice/x/y".to_owned())).1), "e");
}

#[test]
fn a_guest_that_is_not_verified_gets_into_a_domain_by_user_and_cgroup_alone() {
    let of = |rule: &str, guest: &Guest| {
        config(&format!("default = \"rest\"\n[[rule]]\ndomain = \"a\"\n{rule}"))
            .unwrap()
            .domain_of(guest)
            .map(str::to_owned)
    };
    let verified = Guest {
        uuid: Some("ab-1".to_owned()),
        metadata: Some("<m/>".to_owned()),
        cgroup: Some("/machine.slice/x".to_owned()),
        user: Some("alice".to_owned()),
        ..guest("web")
    };
    let claims = Guest { is_verified: false, ..verified.clone() };
    let words = ["name = \"web\"", "uuid = \"ab-1\"", "metadata = \"*m*\"", "name = \"*\"\nuser = \"alice\""];
    for rule in words {
        assert_eq!(of(rule, &verified).as_deref(), Some("a"), "{rule}");
        assert_eq!(of(rule, &claims), None, "{rule}: neither the domain nor the default one");
    }
    for rule in ["user = \"alice\"", "cgroup = \"/machine.slice/*\"", "user = \"*\""] {
        assert_eq!(of(rule, &claims).as_deref(), Some("a"), "{rule}");
    }
    assert_eq!(of("user = \"bob\"", &claims), None);
    assert_eq!(of("user = \"bob\"", &verified).as_deref(), Some("rest"));
    // A process of another user in it, or a set-user-ID program: it is no guest of this user's.
    let mixed = Guest { uid: None, ..verified };
    assert_eq!(of("user = \"alice\"", &mixed).as_deref(), Some("rest"));
}

#[test]
fn a_guest_with_processes_that_rules_tell_apart_belongs_to_none() {
    let rules = "[[rule]]\ndomain = \"a\"\ncgroup = \"/system.slice/x.service/a\"\n[[rule]]\ndomain = \"b\"\nuser = \"bob\"\n";
    let place = |cgroup: &str, user: Option<&str>| ProcessPlacement {
        cgroup: Some(format!("/system.slice/x.service{cgroup}")),
        user: user.map(str::to_owned),
    };
    for (places, default, expected) in [
        (vec![place("/a", None)], "", Some("a")),
        (vec![place("/a", None), place("/a", Some("bob"))], "", Some("a")),
        (vec![place("/a", None), place("/b", None)], "", None),
        (vec![place("/a", None), place("/b", None)], "rest", None),
        (vec![place("/b", None), place("/c", None)], "rest", Some("rest")),
        (vec![place("", Some("root")), place("", Some("bob"))], "rest", None),
        (vec![place("/c", Some("bob")), place("/d", Some("bob"))], "rest", Some("b")),
    ] {
        let default = if default.is_empty() { String::new() } else { format!("default = {default:?}\n") };
        let config = config(&format!("{default}{rules}")).unwrap();
        let guest = Guest { uid: None, placements: places.clone(), ..guest("x") };
        assert_eq!(config.domain_of(&guest), expected, "{places:?}");
    }
}

#[test]
fn a_rule_for_cgroups_that_users_can_make_is_refused() {
    for loose in ["*", "*/pg.service", "machine.slice/*", "/*/pg.service", "/user*/x", ""] {
        let error = config(&format!("[[rule]]\ndomain = \"a\"\ncgroup = {loose:?}")).unwrap_err();
        assert!(error.contains("users make cgroups of any name"), "{loose}: {error}");
    }
    for sound in ["/machine.slice", "/system.slice/*", "/user.slice/user-1000.slice/*"] {
        config(&format!("[[rule]]\ndomain = \"a\"\ncgroup = {sound:?}")).unwrap();
    }
}

#[test]
fn a_configuration_without_sense_is_refused() {
    assert!(config("mode = \"two\"").unwrap_err().contains("unknown variant"));
    assert!(config("[[rule]]\nname = \"x\"").unwrap_err().contains("must name the domain"));
    assert!(config("[[rule]]\ndomain = \"x\"").unwrap_err().contains("at least one of"));
    assert!(config("[[rule]]\ndomain = \"x\"\nnmae = \"y\"").unwrap_err().contains("unknown field"));
    assert!(config("max_passes_per_hour = 0").unwrap_err().contains("nonzero"));
    let shared = config("mode = \"node\"\nnodes = { a = 0, b = 0 }").unwrap();
    assert_eq!(shared.contradictions()[0].message, "domains.nodes gives node 0 to both a and b");
    assert_eq!(config("mode = \"node\"").unwrap().contradictions().len(), 1);
    assert_eq!(config("mode = \"one\"").unwrap().contradictions(), []);
}

#[test]
fn without_rules_or_a_default_a_guest_belongs_to_none_and_is_outside() {
    assert_eq!(DomainsConfig::default().domain_of(&guest("x")), None);
    let mut domains = TrustDomainGuard::new(one());
    let ruling = domains.rule(NOW, &[domain_guest(1, None, Some(true))], 0, None);
    assert_eq!(ruling.park.unwrap(), "g1 (pid 1) belongs to no domain and is being switched off");
}

#[test]
fn a_foreigner_is_switched_off_and_ksmd_waits_for_it() {
    let mut domains = TrustDomainGuard::new(one());
    let mut guests = [domain_guest(1, Some("a"), Some(true)), domain_guest(2, Some("b"), Some(true))];
    let ruling = domains.rule(NOW, &guests, 0, None);
    assert_eq!(ruling.off, [guests[1].id]);
    assert_eq!(ruling.park.unwrap(), "g2 (pid 2) is of domain b (a is admitted) and is being switched off");
    // Ordered once; and that the switch says so is not enough where the kernel can tell.
    let ruling = domains.rule(NOW, &guests, 0, None);
    assert!(ruling.off.is_empty() && ruling.park.is_some());
    domains.record_outcome(guests[1].id, NOW, None);
    assert!(domains.rule(NOW, &guests, 0, None).park.is_some());
    guests[1].mergeable = Some(false);
    domains.record_outcome(guests[1].id, NOW, None);
    let outside = vec![guests[1].id];
    assert_eq!(domains.rule(NOW, &guests, 0, None), GuardRuling { outside, ..GuardRuling::default() });
    // Admitted now: it is switched on again, since it was off by our doing.
    domains.configure(DomainsConfig { admit: Some("b".to_owned()), ..one() });
    let ruling = domains.rule(NOW, &guests, 0, None);
    assert_eq!((ruling.on, ruling.off), (vec![guests[1].id], vec![guests[0].id]));
}

#[test]
fn a_switch_that_fails_is_told_and_tried_again_later() {
    let mut domains = TrustDomainGuard::new(one());
    let guests = [domain_guest(2, Some("b"), Some(true))];
    domains.rule(NOW, &guests, 0, None);
    domains.record_outcome(guests[0].id, NOW, Some("its monitor does not answer".to_owned()));
    let ruling = domains.rule(NOW + Duration::from_secs(1), &guests, 0, None);
    assert!(ruling.off.is_empty());
    assert!(ruling.park.unwrap().ends_with("could not be switched off: its monitor does not answer"));
    assert_eq!(domains.rule(NOW + Duration::from_secs(5), &guests, 0, None).off, [guests[0].id]);
}

#[test]
fn a_guest_that_is_not_known_yet_keeps_ksmd_parked_and_is_switched_once_it_is_known() {
    let mut domains = TrustDomainGuard::new(DomainsConfig { unswitchable: UnswitchableMode::Allow, ..one() });
    let mut guests = [DomainGuest { is_known: false, ..domain_guest(2, None, Some(true)) }];
    let ruling = domains.rule(NOW, &guests, 0, None);
    assert_eq!((ruling.park.unwrap().as_str(), ruling.off.len()), ("g2 (pid 2) is not known yet", 0));
    guests[0].is_known = true;
    assert_eq!(domains.rule(NOW, &guests, 0, None).off, [guests[0].id], "without a pause");
}

#[test]
fn a_guest_that_can_not_be_switched_keeps_ksmd_parked_unless_allowed() {
    let guests = [DomainGuest {
        unswitchable: Some("it offered its memory itself".to_owned()),
        ..domain_guest(2, Some("b"), None)
    }];
    let mut domains = TrustDomainGuard::new(one());
    let ruling = domains.rule(NOW, &guests, 0, None);
    assert!(ruling.park.unwrap().ends_with("may merge: it offered its memory itself") && ruling.off.is_empty());
    domains.configure(DomainsConfig { unswitchable: UnswitchableMode::Allow, ..one() });
    let outside = vec![guests[0].id];
    assert_eq!(domains.rule(NOW, &guests, 0, None), GuardRuling { outside, ..GuardRuling::default() });
}

/// By a daemon that was there before.
#[test]
fn a_guest_that_an_earlier_guard_switched_off_is_switched_on_when_admitted() {
    let mut domains = TrustDomainGuard::new(one());
    let off = [domain_guest(1, Some("a"), Some(false)), domain_guest(2, Some("b"), Some(false))];
    assert!(domains.rule(NOW, &off, 0, None).on.is_empty(), "a guest that was not switched off here stays off");
    off.iter().for_each(|guest| domains.adopt(guest.id));
    assert_eq!(domains.rule(NOW, &off, 0, None).on, [off[0].id], "and a guest outside stays off");
}

#[test]
fn a_hidden_process_keeps_ksmd_parked() {
    let ruling = TrustDomainGuard::new(one()).rule(NOW, &[], 3, None);
    assert!(ruling.park.unwrap().starts_with("3 processes hide"));
    assert_eq!(TrustDomainGuard::new(DomainsConfig::default()).rule(NOW, &[], 3, None), GuardRuling::default());
}

#[test]
fn the_domain_that_gains_most_is_admitted_and_stays_so() {
    let mut domains = TrustDomainGuard::new(DomainsConfig { admit: None, ..one() });
    let gaining = |pid, domain, profit_bytes, rss_bytes| DomainGuest {
        profit_bytes,
        rss_bytes,
        ..domain_guest(pid, Some(domain), Some(true))
    };
    domains.rule(NOW, &[], 0, None);
    assert_eq!(domains.admitted(), None);
    domains.rule(NOW, &[gaining(1, "a", 10, 99), gaining(2, "b", 6, 0), gaining(3, "b", 6, 0)], 0, None);
    assert_eq!(domains.admitted(), Some("b"));
    domains.rule(NOW, &[gaining(1, "a", 100, 99), gaining(2, "b", 6, 0)], 0, None);
    assert_eq!(domains.admitted(), Some("b"));
    domains.rule(NOW, &[gaining(1, "a", 0, 5), gaining(4, "c", 0, 7)], 0, None);
    assert_eq!(domains.admitted(), Some("c"), "more memory, where nothing has merged yet");
}

#[test]
fn on_its_own_node_each_domain_may_merge() {
    let nodes = BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 1)]);
    let mut domains =
        TrustDomainGuard::new(DomainsConfig { mode: DomainMode::Node, nodes, ..DomainsConfig::default() });
    let bound = |pid, domain, nodes: &[u32]| DomainGuest {
        nodes: Some(nodes.iter().copied().collect::<BTreeSet<_>>()),
        ..domain_guest(pid, Some(domain), Some(true))
    };
    let good = [bound(1, "a", &[0]), bound(2, "b", &[1])];
    assert_eq!(domains.rule(NOW, &good, 0, Some(0)), GuardRuling::default());
    assert!(domains.rule(NOW, &good, 0, Some(1)).park.unwrap().starts_with("merge_across_nodes is not 0"));
    assert!(domains.rule(NOW, &good, 0, None).park.is_some());
    for bad in
        [bound(3, "b", &[0]), bound(3, "b", &[0, 1]), bound(3, "c", &[1]), domain_guest(3, Some("b"), Some(true))]
    {
        let ruling = domains.rule(NOW, std::slice::from_ref(&bad), 0, Some(0));
        assert_eq!(ruling.off, [bad.id], "{bad:?}");
        domains = TrustDomainGuard::new(domains.config().clone());
    }
}

#[test]
fn the_guards_pace_keeps_the_work_per_second() {
    let knobs =
        KnobSettings::none().with(Knob::PagesToScan, 1000).with(Knob::SleepMillisecs, 20).with(Knob::Run, 1);
    let decision = PolicyDecision::new(knobs, DecisionReason::new("burst", "why"), Duration::from_secs(9));
    let paced = paced(decision);
    assert_eq!(paced.knobs.to_string(), "pages_to_scan=25000 sleep_millisecs=500 run=1");
    assert_eq!(paced.check_after, GUARD_LOOK);
    let parked = parked(paced, "guarded", "a guest".to_owned(), Duration::from_millis(50));
    assert_eq!((parked.knobs.get(Knob::Run), parked.reason.state), (Some(0), "guarded"));
}

#[test]
fn a_clock_that_can_not_be_read_stands_still() {
    let mut budget = PassBudget::new(NonZeroU32::MIN);
    assert!(budget.record_passes(NOW, None).is_some());
    assert_eq!(budget.record_passes(NOW, Some(5)), None);
    assert_eq!(budget.record_passes(NOW, Some(6)), Some(Duration::from_secs(3600)));
    assert_eq!(budget.record_passes(NOW + Duration::from_secs(3599), Some(6)), Some(Duration::from_secs(1)));
    assert_eq!(budget.record_passes(NOW + Duration::from_secs(3600), Some(6)), None);
    // A reset of the counter is no gift.
    assert!(budget.record_passes(NOW + Duration::from_secs(3601), Some(1)).is_some());
}

#[test]
fn the_report_says_which_domains_may_share_pages() {
    let rules = "[[rule]]\ndomain = \"a\"\nname = \"a*\"\n[[rule]]\ndomain = \"b\"\nname = \"b*\"\n";
    let meaning = |text: &str, names: &[&str], admitted| {
        let mut guests: Vec<Guest> = names.iter().map(|name| guest(name)).collect();
        for guest in &mut guests {
            guest.mergeable = Some(!guest.name.ends_with("off"));
            guest.figures.merged_bytes = 10;
        }
        DomainsReport::from_guests(&config(text).unwrap(), &guests, admitted)
    };
    let none = meaning("", &["x", "y"], None);
    assert!(none.may_share_across && none.meaning.starts_with("no domains are configured, and all 2 guests"));
    let mixed = meaning(rules, &["a1", "a2", "b1"], None);
    assert!(mixed.meaning.starts_with("guests of 2 domains (a, b) may share pages"), "{}", mixed.meaning);
    assert_eq!(mixed.domains[0].merged_bytes, 20);
    let apart = meaning(rules, &["a1", "a2", "b1off"], None);
    assert!(!apart.may_share_across);
    assert_eq!(apart.meaning, "only guests of domain a may share pages now, and they trust each other");
    assert!(meaning(rules, &["x", "y"], None).may_share_across, "a guest of no domain may share with no other");
    assert!(meaning(rules, &["a1"], None).meaning.starts_with("fewer than two"));
    let one = meaning(&format!("mode = \"one\"\n{rules}"), &["a1", "b1"], Some("a"));
    assert!(!one.may_share_across && one.meaning.contains("only domain a may merge"));
}

fn any_guest() -> impl Strategy<Value = DomainGuest> {
    let domain = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    let mergeable = prop::option::of(any::<bool>());
    let nodes = prop::option::of(prop::collection::btree_set(0_u32..3, 0..3));
    (0_u32..6, domain, mergeable, any::<[bool; 2]>(), any::<i8>(), nodes).prop_map(
        |(pid, domain, mergeable, [can, is_known], profit, nodes)| DomainGuest {
            is_known,
            unswitchable: (!can).then(|| "no".to_owned()),
            profit_bytes: profit.into(),
            nodes,
            ..domain_guest(pid, domain.filter(|_| is_known), mergeable)
        },
    )
}

proptest! {
    /// Whatever guests start and end and however switches end: while ksmd may run, no guest that may merge is outside
    /// the admitted domain, or off its domain's node.
    #[test]
    fn no_guest_outside_may_merge_while_ksmd_may_run(
        steps in prop::collection::vec(
            (prop::collection::vec(any_guest(), 0..5), 0_u64..2, prop::option::of(0_u64..2), any::<Option<bool>>()),
            1..12,
        ),
        is_node: bool, admit in prop::option::of(prop::sample::select(vec!["a", "b"])),
    ) {
        let mode = if is_node { DomainMode::Node } else { DomainMode::One };
        let nodes = BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 1)]);
        let config = DomainsConfig { mode, admit: admit.map(str::to_owned), nodes, ..DomainsConfig::default() };
        let mut domains = TrustDomainGuard::new(config.clone());
        // Guests of kernels that say nothing, which were switched off.
        let mut told: BTreeSet<GuestId> = BTreeSet::new();
        for (step, (mut guests, hidden, across, outcome)) in steps.into_iter().enumerate() {
            guests.sort_by_key(|guest| guest.id);
            guests.dedup_by_key(|guest| guest.id);
            let now = NOW + Duration::from_secs(step as u64);
            let ruling = domains.rule(now, &guests, hidden, across);
            told.retain(|id| guests.iter().any(|guest| guest.id == *id));
            if ruling.park.is_none() {
                prop_assert_eq!(hidden, 0);
                prop_assert!(!is_node || across == Some(0));
                for guest in &guests {
                    let may_merge = guest.mergeable.unwrap_or(!told.contains(&guest.id));
                    let inside = match (&guest.domain, is_node) {
                        (None, _) => false,
                        (Some(domain), false) => domains.admitted() == Some(domain),
                        (Some(domain), true) => {
                            let own = config.nodes.get(domain).map(|node| BTreeSet::from([*node]));
                            own.is_some() && guest.nodes == own
                        }
                    };
                    prop_assert!(inside || !may_merge, "{guest:?} of {:?}", domains.admitted());
                }
            }
            for id in ruling.off.iter().chain(&ruling.on) {
                match outcome {
                    None => {}
                    Some(true) => {
                        domains.record_outcome(*id, now, None);
                        if ruling.off.contains(id) { told.insert(*id); } else { told.remove(id); }
                    }
                    Some(false) => domains.record_outcome(*id, now, Some("no".to_owned())),
                }
            }
            for id in &ruling.on {
                told.remove(id);
            }
        }
    }

    /// With at most one pass between two looks, no hour has more passes than allowed.
    #[test]
    fn no_hour_has_more_passes_than_allowed(
        most in 1_u32..20,
        looks in prop::collection::vec((1_u64..900, any::<bool>()), 1..300),
    ) {
        let mut budget = PassBudget::new(NonZeroU32::new(most).unwrap());
        let (mut now, mut scans, mut ended) = (NOW, 0, Vec::new());
        budget.record_passes(now, Some(scans));
        let mut may_scan = true;
        for (seconds, ends) in looks {
            now += Duration::from_secs(seconds);
            if may_scan && ends {
                scans += 1;
                ended.push(now);
            }
            may_scan = budget.record_passes(now, Some(scans)).is_none();
        }
        for (at, &end) in ended.iter().enumerate() {
            let in_hour = ended[..=at].iter().filter(|&&other| end - other < Duration::from_secs(3600)).count();
            prop_assert!(in_hour <= most as usize, "{in_hour} passes within an hour before {end:?}");
        }
    }

    /// Nor does the budget keep ksmd from scanning for ever.
    #[test]
    fn a_full_hour_without_passes_frees_ksmd(most in 1_u32..20, scans in 1_u64..100) {
        let mut budget = PassBudget::new(NonZeroU32::new(most).unwrap());
        budget.record_passes(NOW, Some(0));
        budget.record_passes(NOW, Some(scans));
        prop_assert_eq!(budget.record_passes(NOW + Duration::from_secs(3600), Some(scans)), None);
    }
}

#[test]
fn a_domain_that_no_guest_can_have_is_named() {
    let unknown = |text: &str| {
        let found = config(text).unwrap().unknown_domains();
        found.into_iter().map(|one| one.keys[0].join(".")).collect::<Vec<_>>()
    };
    let rule = "[[rule]]\ndomain = 'b'\nuser = 'bob'";
    assert_eq!(unknown("admit = 'a'"), ["domains.admit"]);
    assert_eq!(unknown("admit = 'a'\ndefault = 'a'"), [""; 0]);
    assert_eq!(unknown(&format!("admit = 'b'\nnodes = {{ b = 0, c = 1 }}\n{rule}")), ["domains.nodes.c"]);
}
