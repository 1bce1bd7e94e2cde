use super::*;

fn found(name: &str, states: &[(&'static str, bool, AtBoot)]) -> FoundController {
    let state = |&(service, is_active, at_boot): &_| ServiceState { service, is_active, at_boot };
    FoundController {
        controller: row(name).unwrap(),
        pids: Vec::new(),
        profile: None,
        states: states.iter().map(state).collect(),
        is_on: false,
    }
}

fn profile(name: &str) -> Profile {
    let option = |section: &str, option: &str| (section.to_owned(), option.to_owned());
    let options = vec![option("script", "script"), option("sysfs", "/a"), option("sysfs", "/b"), option("vm", "c")];
    Profile { name: name.to_owned(), options }
}

#[test]
fn each_row_says_what_it_does_and_how_it_hands_over_both_ways() {
    for row in OTHER_CONTROLLERS {
        let found = FoundController { profile: Some(profile("mine")), ..found(row.name, &[]) };
        let is_nothing = row.hand_over == HandOver::Nothing;
        assert!(row.does.len() > 40, "{}", row.name);
        assert_eq!(found.commands_over().is_empty(), is_nothing, "{}", row.name);
        assert_eq!(found.commands_back().is_empty(), is_nothing, "{}", row.name);
        assert!(!found.commands_over().concat().contains("{profile}"), "{}", row.name);
        assert!(row.settings.is_empty() == (row.conflict == Conflict::InPlaceOfKsm), "{}", row.name);
        assert!(row.hand_over != HandOver::Services || !row.services.is_empty(), "{}", row.name);
    }
}

#[test]
fn handing_back_restores_what_was_enabled_and_what_ran() {
    use AtBoot::{Disabled, Enabled};
    for (is_active, at_boot, back) in [
        (true, Enabled, &["systemctl enable --now ksmtuned"][..]),
        (false, Enabled, &["systemctl enable ksmtuned"]),
        (true, Disabled, &["systemctl start ksmtuned"]),
        (false, Disabled, &[]),
    ] {
        let found = found("ksmtuned", &[("ksmtuned.service", is_active, at_boot)]);
        assert_eq!(found.commands_back(), back, "{is_active} {at_boot:?}");
        assert_eq!(found.commands_over(), ["systemctl disable --now ksmtuned"]);
        assert_eq!(found.matters(), is_active || at_boot == Enabled);
    }
}

#[test]
fn tuned_is_told_by_its_profile() {
    let found = FoundController { profile: Some(profile("rt")), pids: vec![40], ..found(name::TUNED, &[]) };
    assert_eq!(found.to_string(), "tuned (pid 40) with the profile rt, which sets KSM");
    let made =
        "printf '[main]\\ninclude=rt\\n[sysfs]\\ndrop=/a,/b\\n[vm]\\ndrop=c\\n' > /etc/tuned/rt-ksmith/tuned.conf";
    assert_eq!(found.commands_over()[1], made);
    assert_eq!(found.commands_over()[2], "tuned-adm profile rt-ksmith");
    assert_eq!(found.commands_back()[0], "tuned-adm profile rt");
}
