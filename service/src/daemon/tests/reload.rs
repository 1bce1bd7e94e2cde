use ksmith_core::knobs::Knob;
use ksmith_core::sim::GuestPlan;

use super::HELD;
use crate::config::Config;
use crate::control::{ControlReply, ControlRequest};
use crate::daemon::DaemonMessage;
use crate::testing::DaemonScene;
use ksmith_core::decide::PolicyKind;
use ksmith_host::signals::Signal;

#[test]
fn a_new_configuration_is_taken_over_and_a_bad_one_is_not() {
    let mut scene = DaemonScene::new(HELD);
    scene.reload_at(5, &HELD.replace("321", "654"));
    scene.at(6, |world| assert_eq!(world.knob(Knob::PagesToScan), 654));
    scene.reload_at(10, &HELD.replace("321", "many"));
    // The next turn still goes by the old one.
    scene.at(15, |world| world.machine.write(Knob::PagesToScan, 100).unwrap());
    scene.at(30, |world| assert_eq!(world.knob(Knob::PagesToScan), 654));
    let file = scene.config_file();
    scene.at(35, move |_| std::fs::remove_file(file).unwrap());
    scene.send_at(36, DaemonMessage::Signal(Signal::Reload));
    scene.at(50, |world| assert_eq!(world.knob(Knob::PagesToScan), 654));
    let outcome = scene.run().unwrap();
    for said in [
        "configuration read again; policy fixed",
        "the new configuration is refused, the old one stays in force",
        "ksmith.toml:4:",
        "can't read the configuration",
    ] {
        assert_eq!(outcome.count(said), if said.starts_with("the new") { 2 } else { 1 }, "{said}: {}", outcome.log);
    }
}

#[test]
fn samples_have_the_losses_by_splits_that_this_host_was_measured_to_have() {
    let losses = |parts: [f64; 3]| format!("{HELD}[huge_pages]\nsplit_loss_cpus = {parts:?}\n");
    let mut scene = DaemonScene::new(&losses([0.01, 0.02, 0.5]));
    scene.at(4, |world| assert_eq!(<[f64; 3]>::from(world.split_losses), [0.01, 0.02, 0.5]));
    scene.reload_at(5, &losses([0.1, 0.2, 0.25]));
    scene.at(6, |world| assert_eq!(<[f64; 3]>::from(world.split_losses), [0.1, 0.2, 0.25]));
    scene.run().unwrap();
}

#[test]
fn the_policy_of_the_command_line_outlives_a_reload() {
    let mut scene = DaemonScene::new(HELD);
    scene.source.policy = PolicyKind::find("score");
    scene.reload_at(5, HELD);
    let (answers, _waiting) = scene.ask_at(6, ControlRequest::Status);
    let outcome = scene.run().unwrap();
    assert!(outcome.log.contains("configuration read again; policy score"), "{}", outcome.log);
    let ControlReply::Status(status) = answers.recv().unwrap() else { panic!("another answer") };
    assert_eq!(status.daemon.unwrap().policy, "score");
}

#[test]
fn a_reload_that_changes_no_policy_starts_nothing_over() {
    let mut scene = DaemonScene::new("");
    scene.world().machine.start(GuestPlan::new("one").equal(1, 4096));
    scene.world().machine.start(GuestPlan::new("two").equal(1, 4096));
    scene.at(59, |world| {
        assert_eq!(world.knob(Knob::Run), 0, "parked");
        world.told.push(world.machine.sample().ksm.full_scans.get().unwrap().to_string());
    });
    scene.reload_at(60, "");
    scene.reload_at(61, "[limits]\nmax_cpu = \"50%\"\n");
    scene.at(65, |world| {
        let passes = world.machine.sample().ksm.full_scans.get().unwrap().to_string();
        assert!(world.told.contains(&passes), "no pass since: {passes} of {:?}", world.told);
        assert_eq!(world.knob(Knob::Run), 0);
    });
    let outcome = scene.run().unwrap();
    assert_eq!(outcome.count("configuration read again; policy profit"), 2);
}

/// Returns the tables of the configuration, as its reader names them.
fn tables() -> Vec<String> {
    let message = toml::from_str::<Config>("[none]").unwrap_err().to_string();
    let (_, expected) = message.split_once("expected one of ").expect("the names of all tables");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn each_table_that_changes_is_applied_or_said_to_need_a_restart() {
    let tables = tables();
    assert!(tables.len() >= 12, "{tables:?}");
    for table in tables {
        let (key, is_applied) = match table.as_str() {
            "policy" => ("kind = \"off\"", true),
            "limits" => ("max_pages_to_scan = 5000", true),
            "domains" => ("remaining_mergeable_mib = 1", true),
            "daemon" => ("merge_across_nodes = true", false),
            "guests" => ("prune_retry_seconds = 60", true),
            "optin" => ("passes_per_hour = 3", true),
            "view" => ("group = \"others\"", false),
            "balance" => ("low_percent = 9.0", true),
            "history" => ("max_mib = 99", false),
            "sketch" => ("every_minutes = 99", false),
            "fold" => ("max_cpu_percent = 1.0", true),
            "huge_pages" => ("keep = false", true),
            "notify" => ("profit_minutes = 5", true),
            other => panic!("no key of [{other}] is tried: name one"),
        };
        let mut scene = DaemonScene::new("");
        let header = format!("[{table}]\n");
        let (file, old) = (scene.config_file(), scene.complete(""));
        let new = match old.contains(&header) {
            true => old.replace(&header, &format!("{header}{key}\n")),
            false => format!("{old}{header}{key}\n"),
        };
        scene.at(4, move |_| std::fs::write(file, new).unwrap());
        scene.send_at(5, DaemonMessage::Signal(Signal::Reload));
        scene.send_at(6, DaemonMessage::Signal(Signal::Reload));
        let outcome = scene.run().unwrap();
        let restart = format!("[{table}] has changed; that takes effect when the daemon is restarted");
        let expected = if is_applied { (1, 0) } else { (0, 1) };
        let found = (outcome.count(&format!("; applied: [{table}]\n")), outcome.count(&restart));
        assert_eq!(found, expected, "{table}: {}", outcome.log);
        assert_eq!(outcome.count("; applied: nothing"), if is_applied { 1 } else { 2 }, "{table}: {}", outcome.log);
    }
}

#[test]
fn what_takes_effect_at_a_restart_only_is_said() {
    let mut scene = DaemonScene::new(HELD);
    let (file, other) = (scene.config_file(), scene.complete(HELD).replace("/users", "/others"));
    let other = other.replace("/control\"", "/control2\"");
    scene.at(4, move |_| std::fs::write(file, other).unwrap());
    scene.send_at(5, DaemonMessage::Signal(Signal::Reload));
    let log = scene.run().unwrap().log;
    assert!(log.contains("[optin] has changed; its socket, group and worth take effect when"), "{log}");
    assert!(log.contains("[daemon] has changed; that takes effect when"), "{log}");
}

#[test]
fn domains_that_this_kernel_can_not_keep_apart_are_refused_at_the_start_and_later() {
    let one = "[domains]\nmode = \"one\"\nadmit = \"a\"\n";
    let mut scene = DaemonScene::new(one);
    scene.set_release("6.1.0-50-cloud-amd64");
    let why = scene.run().unwrap_err().to_string();
    assert!(why.contains("can't be kept on Linux 6.1") && why.contains("docs/how-to/domains.md"), "{why}");

    let mut scene = DaemonScene::new(HELD);
    scene.set_release("6.1.0-50-cloud-amd64");
    scene.reload_at(5, one);
    scene.at(10, |world| world.machine.write(Knob::PagesToScan, 100).unwrap());
    scene.at(30, |world| assert_eq!(world.knob(Knob::PagesToScan), 321, "the old configuration stays"));
    let outcome = scene.run().unwrap();
    assert_eq!(
        outcome.count("the old one stays in force: domains.mode = \"one\" can't be kept"),
        1,
        "{}",
        outcome.log
    );

    let mut scene = DaemonScene::new(one);
    scene.set_release("6.11.0");
    scene.at(5, |_| ());
    scene.run().unwrap();
}
