//! Tests of the configuration.

use std::fs;

use proptest::prelude::*;

use ksmith_core::sample::ProcessId;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("ksmith.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(parse("").unwrap(), Config::default());
    assert_eq!(Config::default().policy().unwrap().name(), "profit");
}

/// Each bad configuration with all that is said of it.
const BAD: &[(&str, &[&str])] = &[
    ("polcy = 1", &["ksmith.toml:1:1: there is no key \"polcy\" at the top of the file: did you mean \"policy\"?"]),
    (
        "[policy]\nkind = \"best\"",
        &[
            "ksmith.toml:2:8: kind takes \"profit\", \"score\", \"ksmtuned\", \"advisor\", \"fixed\", \"scan\" or \"off\", not \"best\"",
        ],
    ),
    ("[policy]\nkind = 3", &["ksmith.toml:2:8: kind takes a text in quotes, not 3"]),
    (
        "[policy.profit]\nprice = 1",
        &[
            "ksmith.toml:2:1: there is no key \"price\" in [policy.profit]: did you mean \"price_mib_per_cpu_second\"?",
        ],
    ),
    (
        "[policy.profit]\nbusy_cpu_percent = 0",
        &["ksmith.toml:2:20: busy_cpu_percent must be over 0 and at most 100, not 0"],
    ),
    (
        "[policy.profit]\ngrowth_mib = \"much\"\nfirst_probe_seconds = \"5%\"",
        &[
            "ksmith.toml:2:14: growth_mib takes a number of MiB, or a text with its unit such as \"512M\" or \"1.5 GiB\", not the text \"much\"",
            "ksmith.toml:3:23: first_probe_seconds takes a number of seconds, or a text with its unit such as \"90s\", \"10min\" or \"1.5h\", not the text \"5%\"",
        ],
    ),
    (
        "[history]\nmax_mib = \"100K\"",
        &["ksmith.toml:2:11: max_mib takes a whole number, 0 or more, not 0.09765625"],
    ),
    (
        "[fold]\nmode = \"some\"\nmax_cpu_percent = 0\nprice_mib_per_cpu_second = -1\nleast_zero_percent = 0.01",
        &[
            "ksmith.toml:2:8: mode takes \"off\", \"guests\" or \"all\", not \"some\"",
            "ksmith.toml:3:19: [fold] max_cpu_percent: it must be over 0 and at most 100",
            "ksmith.toml:4:28: [fold] price_mib_per_cpu_second: it must be 0 or more",
            "ksmith.toml:5:22: [fold] least_zero_percent: it must be 0.1 at least and at most 100",
        ],
    ),
    ("[policy.profit]\ngrowth_mib = true", &["ksmith.toml:2:14: growth_mib takes a number, not true"]),
    (
        "[policy.profit]\nprice_mib_per_cpu_second = 2\npressed_price_mib_per_cpu_second = 3",
        &["ksmith.toml:3:36: pressed_price_mib_per_cpu_second (3) must not be more than \
            price_mib_per_cpu_second (2): memory is worth more while it is short, so less must be saved per \
            second of CPU (see line 2)"],
    ),
    (
        "[policy.profit]\nprice_mib_per_cpu_second = 0.25",
        &["ksmith.toml:2:28: pressed_price_mib_per_cpu_second (0.5) must not be more than \
            price_mib_per_cpu_second (0.25): memory is worth more while it is short, so less must be saved per \
            second of CPU"],
    ),
    (
        "[limits]\nmax_cpu = 50",
        &["ksmith.toml:2:11: max_cpu: a percentage is a text with its sign, not 50: write \"50%\""],
    ),
    (
        "[limits]\nmax_cpu = 0.5",
        &["ksmith.toml:2:11: max_cpu: a percentage is a text with its sign, not 0.5: write \"0.5%\""],
    ),
    ("[limits]\nmax_cpu = true", &["ksmith.toml:2:11: max_cpu takes a percentage such as \"20%\", not true"]),
    (
        "[limits]\nmax_cpu = \"120%\"",
        &["ksmith.toml:2:11: max_cpu: \"120%\" is not a percentage over 0 % and up to 100 %, such as \"20%\""],
    ),
    (
        "[limits]\nmax_pages_to_scan = -1",
        &["ksmith.toml:2:21: max_pages_to_scan takes a whole number from 0 to 4294967295, not -1"],
    ),
    (
        "[policy.fixed]\nsettings = { pages_shared = 1 }",
        &[
            "ksmith.toml:2:12: settings: KSM has no setting called \"pages_shared\"; there are: max_ptes_shared, max_ptes_none, khugepaged_pages_to_scan, khugepaged_scan_sleep_millisecs, advisor_max_cpu, advisor_min_pages_to_scan, advisor_max_pages_to_scan, advisor_target_scan_time, advisor_mode, smart_scan, use_zero_pages, merge_across_nodes, max_page_sharing, stable_node_chains_prune_millisecs, pages_to_scan, sleep_millisecs, run",
        ],
    ),
    ("[daemon]\ncontrol_socket = \"/a\"\ncontrol_socket = \"/b\"", &["ksmith.toml:3:1: duplicate key"]),
    ("[limits\nmax_cpu = \"20%\"", &["ksmith.toml:1:8: unclosed table, expected `]`"]),
    (
        "[policy.score]\nsharing_pages_per_point = 0",
        &["ksmith.toml:2:27: sharing_pages_per_point takes a whole number from 1 to 4294967295, not 0"],
    ),
    (
        "[policy.advisor]\nmax_cpu_percent = 101",
        &["ksmith.toml:2:19: max_cpu_percent takes a number from 0 to 100, not 101"],
    ),
    (
        "[guests]\nlibvirt_uri = \"qemu+ssh://other/system\"",
        &["ksmith.toml:2:15: libvirt_uri: \"qemu+ssh://other/system\" is not a libvirt URI that ksmith can \
            use: it takes DRIVER:///system or DRIVER:///session on this host, with ?socket=PATH where the socket \
            is elsewhere"],
    ),
    ("[guests]\nprune = \"yes\"", &["ksmith.toml:2:9: prune takes true or false, not the text \"yes\""]),
    (
        "[huge_pages]\nsplit_loss_cpus = [0.2, 0.1, 0.3]",
        &[
            "ksmith.toml:2:19: split_loss_cpus must be three numbers from 0 to 1, of which none is less than the one before",
        ],
    ),
    ("[balance]\npolicy = \"swap\"", &["ksmith.toml:2:10: policy takes \"no-swap\" or \"squeeze\", not \"swap\""]),
    ("[balance]\nlow_percent = 0", &["ksmith.toml:2:15: low_percent must be over 0 and at most 100, not 0"]),
    (
        "[balance]\nlow_percent = 30\nhigh_percent = 20\nurgent_step_percent = 1",
        &[
            "ksmith.toml:2:15: low_percent (30) must be less than high_percent (20) (see line 3)",
            "ksmith.toml:4:23: urgent_step_percent (1) must not be less than step_percent (5)",
        ],
    ),
    (
        "[balance]\ncgroups = \"a\"",
        &["ksmith.toml:2:11: cgroups takes a list, as in [\"a\", \"b\"], not the text \"a\""],
    ),
    ("[balance]\ncgroups = [\"a\", 3]", &["ksmith.toml:2:17: cgroups takes a text in quotes, not 3"]),
    (
        "[balance.squeeze]\nrest = 1",
        &["ksmith.toml:2:1: there is no key \"rest\" in [balance.squeeze]: did you mean \"rest_seconds\"?"],
    ),
    (
        "[[balance.rule]]\nclass = \"gold\"",
        &["ksmith.toml:1:1: a rule must name a guest by name or uuid; all other guests fall under default_class"],
    ),
    (
        "[[balance.rule]]\nname = \"a\"\n[[balance.rule]]\nname = \"b\"\nfloor_mib = 9\nceiling_mib = 8",
        &["ksmith.toml:5:13: floor_mib (9) must not be more than ceiling_mib (8) (see line 6)"],
    ),
    (
        "[[balance.rule]]\nname = \"a\"\nclass = \"lead\"",
        &[
            "ksmith.toml:3:9: the class \"lead\" has no weight: add it to [balance.classes], which has \"bronze\", \"gold\", \"silver\"",
        ],
    ),
    ("[[domains.rule]]\nuser = \"*\"", &["ksmith.toml:1:1: a rule must name the domain that it assigns to"]),
    ("[domains]\nnodes = { a = 0, b = 0 }", &["ksmith.toml:2:22: domains.nodes gives node 0 to both a and b"]),
    (
        "[domains]\nmode = \"node\"",
        &[
            "ksmith.toml:2:8: mode is \"node\", and domains.nodes gives no domain a node: name them, as in nodes = { customer-a = 0 }",
        ],
    ),
    (
        "[policy.fixed]\npreset = \"slow\"",
        &["ksmith.toml:2:10: there is no preset \"slow\"; there are: kernel-default, morfik, still"],
    ),
    (
        "[view]\nport = 9797",
        &["ksmith.toml:2:1: there is no key \"port\" in [view]: it has \"socket\" and \"group\""],
    ),
    (
        "[optin]\npasses_per_hour = 0",
        &["ksmith.toml:2:19: passes_per_hour: a number of passes over 0, or \"unlimited\""],
    ),
    (
        "[optin]\npasses_per_hour = \"many\"\ncpu_seconds_per_hour = 9999",
        &[
            "ksmith.toml:2:19: passes_per_hour: a number of passes over 0, or \"unlimited\"",
            "ksmith.toml:3:24: [optin] cpu_seconds_per_hour: an hour has 0 to 3600 seconds",
        ],
    ),
    (
        "[history]\nsamples_hours = 1\nmax_mib = 1\npath = \"h\"",
        &[
            "ksmith.toml:2:17: [history] samples_hours: samples are needed for 2 hours at least",
            "ksmith.toml:3:11: [history] max_mib: the file needs 4 MiB at least",
            "ksmith.toml:4:8: [history] path: name an absolute path",
        ],
    ),
    ("[notify]\ncommand = [\"mail\"]", &["ksmith.toml:2:11: [notify] command: \"mail\" is not an absolute path"]),
    (
        "[daemon]\nksmd_cpus = \"all\"\nmerge_across_nodes = 1\n[view]\nsocket = 1\n[x]",
        &[
            "ksmith.toml:2:13: [daemon] ksmd_cpus: \"all\" is not a list of CPUs: write it as 0-1,4, or auto",
            "ksmith.toml:3:22: merge_across_nodes takes true or false, not 1",
            "ksmith.toml:5:10: socket takes a path in quotes, not 1",
            "ksmith.toml:6:2: there is no key \"x\" at the top of the file: `man ksmith.toml` lists all",
        ],
    ),
    (
        "[policy]\nprofit = 4\noff = { a = 1 }",
        &[
            "ksmith.toml:2:10: profit takes a table of keys, not 4",
            "ksmith.toml:3:9: there is no key \"a\" in [policy.off]: it has no keys",
        ],
    ),
];

#[test]
fn each_bad_configuration_is_refused_with_all_that_is_wrong_in_it_and_where() {
    for (text, said) in BAD {
        let error = parse(text).unwrap_err();
        assert_eq!(error.lines().collect::<Vec<_>>(), *said, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_each_fault_is_in_it(text in any_text()) {
        if let Err(ConfigError::Faults(ConfigFaults { faults, .. })) = Config::parse(Path::new("ksmith.toml"), &text) {
            prop_assert!(!faults.is_empty());
            for ConfigFault { line, column, message } in faults {
                let long = text.split('\n').nth(line - 1).map(|line| line.chars().count());
                prop_assert!(long.is_some_and(|long| column <= long + 1), "{line}:{column} {message}");
                prop_assert!(!message.is_empty());
            }
        }
    }
}

/// Any text, or lines out of bad configurations in any order.
fn any_text() -> impl Strategy<Value = String> {
    let line = prop::sample::select(BAD.iter().flat_map(|(text, _)| text.lines()).collect::<Vec<_>>());
    prop_oneof![any::<String>(), prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))]
}

/// A tree with two nodes, four CPUs, one cgroup without a limit and one group.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/fs/cgroup/machine.slice/memory.max", "max\n"),
        ("etc/group", "root:x:0:\nstaff:x:50:\n"),
        ("proc/sys/kernel/osrelease", "6.18.0\n"),
    ] {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    tree
}

#[test]
fn what_this_host_does_not_have_is_refused_all_at_once() {
    let tree = tree();
    let check = |text: &str| {
        let read = Config::check(Path::new("k.toml"), text, &Root::at(tree.path()));
        read.map_err(|error| error.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let good = "[optin]\ngroup = \"staff\"\n[daemon]\nksmd_cpus = \"0-3\"\n[balance]\ncgroups = [\"machine.slice\"]\n\
                [domains]\ndefault = \"a\"\nadmit = \"a\"\nnodes = { a = 1 }";
    assert!(check(good).is_ok(), "{:?}", check(good));
    assert!(check("").is_ok());
    let bad = "[optin]\ngroup = \"stuff\"\n[daemon]\nksmd_cpus = \"2-6\"\n\
               [balance]\npool = \"vms.slice\"\ncgroups = [\"machine.slice\", \"web.service\"]\n\
               [domains]\ndefault = \"a\"\nadmit = \"b\"\nnodes = { a = 2, c = 0 }\n[limits]\nmax_cpu = 50";
    assert_eq!(
        check(bad).unwrap_err(),
        [
            "k.toml:2:9: there is no group \"stuff\", so that only root may ask: `groupadd --system stuff`, or name another",
            "k.toml:4:13: there is no CPU 4-6 here: CPUs are 0-3",
            "k.toml:6:8: there is no cgroup \"vms.slice\" below /sys/fs/cgroup: name one that is there, or \"host\"",
            "k.toml:7:29: there is no cgroup \"web.service\" below /sys/fs/cgroup: start its service, or leave it out",
            "k.toml:10:9: no rule and no default gives a guest the domain \"b\": add a [[domains.rule]], or name one that is there (\"a\") (see line 9)",
            "k.toml:11:15: there is no NUMA node 2 here: nodes are 0-1",
            "k.toml:11:22: no rule and no default gives a guest the domain \"c\": add a [[domains.rule]], or name one that is there (\"a\") (see line 9)",
            "k.toml:13:11: max_cpu: a percentage is a text with its sign, not 50: write \"50%\""
        ]
    );
    assert_eq!(
        check("[balance]\npool = \"machine.slice\"").unwrap_err(),
        ["k.toml:2:8: the cgroup \"machine.slice\" has no limit: set its memory.max, or use pool = \"host\""]
    );
}

#[test]
fn each_kind_is_the_policy_of_that_name() {
    for kind in ["fixed", "ksmtuned", "score", "advisor", "profit"] {
        let file = "[policy.ksmtuned]\nfile = \"/nonexistent/ksmtuned.conf\"";
        let config = parse(&format!("[policy]\nkind = \"{kind}\"\n{file}")).unwrap();
        assert_eq!((config.policy().unwrap().name(), config.policy.kind.name()), (kind, kind));
    }
}

#[test]
fn the_packaged_file_says_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/ksmith.toml");
    assert_eq!(Config::load(Some(&path)).unwrap(), Config::default());
}

#[test]
fn numbers_may_be_written_as_people_write_them() {
    let config = parse("[policy.profit]\ngrowth_mib = 16\n[limits]\nmax_cpu = \"20 %\"").unwrap();
    assert_eq!(config.policy.profit.growth_mib, 16.0);
    assert_eq!(config.limits.max_cpu.part(), 0.2);
}

#[test]
fn an_amount_may_have_any_unit_of_its_measure() {
    let config = parse(
        "[policy.profit]\ngrowth_mib = \"1.5G\"\nfirst_probe_seconds = \"2min\"\nbusy_cpu_percent = \"12.5%\"\n\
         [history]\nmax_mib = \"1 GiB\"\nsamples_hours = \"2d\"\n[optin]\nworth_permille = \"10%\"\n\
         [[balance.rule]]\nname = \"a\"\nfloor_mib = \"512M\"\n[limits]\nmin_sleep_milliseconds = \"1s\"",
    );
    let config = config.unwrap();
    let profit = config.policy.profit;
    assert_eq!((profit.growth_mib, profit.first_probe_seconds, profit.busy_cpu_percent), (1536.0, 120.0, 12.5));
    assert_eq!((config.history.max_mib, config.history.samples_hours), (1024, 48));
    assert_eq!((config.optin.worth_permille, config.limits.min_sleep_milliseconds), (100, 1000));
    assert_eq!(config.balance.terms("a", None, true).floor_bytes, Some(512 << 20));
}

#[test]
fn passes_are_unlimited_only_in_one_declared_trust_domain() {
    let unlimited = "\n[optin]\npasses_per_hour = \"unlimited\"";
    for (domains, is_one) in [
        ("", false),
        // Programs of other users than these guests' are in no domain.
        ("[domains]\ndefault = \"node\"", false),
        ("[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"", false),
        ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"", true),
        ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"a\"\nuser = \"*\"", false),
        ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"a*\"", false),
        (
            "[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"\ncgroup = \"/a/*\"",
            false,
        ),
        (
            "[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"a\"\nname = \"a-*\"\n\
             [[domains.rule]]\ndomain = \"node\"\nuser = \"*\"",
            false,
        ),
        ("[domains]\nmode = \"one\"", false),
        ("[domains]\nmode = \"one\"\nadmit = \"a\"", true),
        ("[domains]\nmode = \"one\"\nadmit = \"a\"\nunswitchable = \"allow\"", false),
    ] {
        let read = parse(&format!("{domains}{unlimited}"));
        assert_eq!(read.is_ok(), is_one, "{domains}: {read:?}");
        if let Err(error) = read {
            assert!(error.contains("declare one trust domain"), "{error}");
        }
    }
    assert_eq!(parse("[optin]\npasses_per_hour = 6").unwrap().optin.passes_per_hour.number(), Some(6));
}

#[test]
fn guests_are_pruned_only_when_told_to() {
    assert_eq!(Config::default().guests.prune_limits(), None);
    let config = parse("[guests]\nprune = true\nprune_after_passes = 2\nprune_retry_seconds = 60").unwrap();
    let limits = config.guests.prune_limits().unwrap();
    assert_eq!((limits.after_passes, limits.retry.as_secs()), (2, 60));
    assert!(limits.split_saves_percent > 0.0);
    for wrong in ["prune_after_passes = 0", "prune_split_saves_percent = 101", "prune_split_saves_percent = -1"] {
        assert!(parse(&format!("[guests]\n{wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn labels_are_read_and_those_that_mean_something_else_are_refused() {
    let rule = |label: &str| format!("[[guests.label]]\nlabel = \"{label}\"\nvalue = \"store\"\nuser = \"alice\"");
    let config = parse(&rule("role")).unwrap();
    let mut guests = [Guest::plain("a", ProcessId { pid: 7, start_ticks: 1 })];
    (guests[0].user, guests[0].uid) = (Some("alice".to_owned()), Some(1000));
    config.assign_to(&mut guests);
    assert_eq!(guests[0].shown_labels().as_deref(), Some("role=store"));
    for (name, why) in [
        ("guest", "\"guest\" is a figure of each guest: choose another label"),
        ("name", "is a figure of each guest"),
        ("uuid", "is a figure of each guest"),
        ("kind", "is a figure of each guest"),
        ("domain", "is a figure of each guest"),
        ("rss", "is a figure of each guest"),
        ("saved_bytes", "is a figure of each guest"),
        ("pid", "\"pid\" is a label of ksmith's own metrics"),
        ("value", "is a label of ksmith's own metrics"),
        ("host", "is a label that Prometheus sets itself"),
        ("instance", "is a label that Prometheus sets itself"),
        ("job", "is a label that Prometheus sets itself"),
        ("le", "is a label that Prometheus sets itself"),
        ("guests", "is a column of tables, or a key of JSON"),
        ("time", "is a column of tables, or a key of JSON"),
        ("__x", "is not a name of a label"),
        ("_x", "is not a name of a label"),
        ("Role", "is not a name of a label"),
        ("", "is not a name of a label"),
    ] {
        let refused = parse(&rule(name)).unwrap_err();
        assert!(refused.contains(why), "{name}: {refused}");
    }
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let error = Config::load(Some(Path::new("/nonexistent/ksmith.toml"))).unwrap_err();
    assert!(error.to_string().starts_with("can't read the configuration /nonexistent/ksmith.toml"));
}
