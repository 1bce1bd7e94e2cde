use super::*;

fn found(name: &str, states: &[(&'static str, bool, BootState)]) -> FoundController {
    let state = |&(service, is_active, at_boot): &_| ServiceState { service, is_active, at_boot };
    FoundController {
        controller: row(name).unwrap(),
        pids: Vec::new(),
        profile: None,
        states: states.iter().map(state).collect(),
        files: Vec::new(),
        is_on: false,
    }
}

fn profile(names: &[&str], sections: &[(&str, &str)]) -> TunedProfile {
    TunedProfile {
        active: names.iter().map(ToString::to_string).collect(),
        options: sections.iter().map(|(section, option)| (section.to_string(), option.to_string())).collect(),
        is_automatic: false,
        is_post_loaded: false,
        directory: "/etc/tuned".to_owned(),
    }
}

const OPTIONS: [(&str, &str); 3] = [("sysfs", "/a"), ("sysfs", "/b"), ("vm", "c")];

#[test]
fn each_row_says_what_it_does_and_how_it_hands_over_both_ways() {
    for row in OTHER_CONTROLLERS {
        let found = FoundController {
            profile: Some(profile(&["mine"], &OPTIONS)),
            files: vec!["/etc/tmpfiles.d/ksm.conf".into()],
            ..found(row.name, &[])
        };
        let is_nothing = row.hand_over == HandOver::Nothing;
        assert!(row.does.len() > 40, "{}", row.name);
        assert_eq!(found.commands_over().is_empty(), is_nothing, "{}", row.name);
        assert_eq!(found.commands_back().is_empty(), is_nothing, "{}", row.name);
        assert!(row.settings.is_empty() == (row.conflict == ControllerConflict::InPlaceOfKsm), "{}", row.name);
        let by_services = matches!(row.hand_over, HandOver::Services | HandOver::Masks { .. });
        assert!(!by_services || !row.services.is_empty(), "{}", row.name);
    }
}

#[test]
fn handing_back_restores_what_was_enabled_and_what_ran() {
    use BootState::{Disabled, Enabled};
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
fn what_another_unit_wants_is_masked_and_unmasked() {
    use BootState::{Disabled, Enabled};
    let service = "mom-vdsm.service";
    for (is_active, at_boot, back) in [
        (true, Enabled, &["systemctl unmask mom-vdsm", "systemctl start mom-vdsm"][..]),
        (false, Enabled, &["systemctl unmask mom-vdsm"]),
        (true, Disabled, &["systemctl unmask mom-vdsm", "systemctl start mom-vdsm"]),
    ] {
        let found = found("momd", &[(service, is_active, at_boot)]);
        assert_eq!(found.commands_over(), ["systemctl mask --now mom-vdsm"]);
        assert_eq!(found.commands_back(), back, "{is_active} {at_boot:?}");
        assert!(found.is_handed_over_by_setup() && found.hand_over_note().is_some());
    }
}

#[test]
fn a_profile_of_tuned_is_replaced_by_one_that_leaves_ksm_alone() {
    let with = |profile| FoundController { profile: Some(profile), pids: vec![40], ..found(name::TUNED, &[]) };
    let of_tuned = with(profile(&["rt"], &OPTIONS));
    assert_eq!(of_tuned.to_string(), "tuned (pid 40) with the profile rt, which sets KSM");
    let made =
        "printf '[main]\\ninclude=rt\\n[sysfs]\\ndrop=/a,/b\\n[vm]\\ndrop=c\\n' > /etc/tuned/rt-ksmith/tuned.conf";
    let over = ["mkdir -p /etc/tuned/rt-ksmith", made, "tuned-adm profile rt-ksmith"];
    assert_eq!(of_tuned.commands_over(), over);
    assert_eq!(of_tuned.commands_back(), ["tuned-adm profile rt", "rm -r /etc/tuned/rt-ksmith"]);
    assert!(of_tuned.is_handed_over_by_setup() && of_tuned.hand_over_note().is_none());
    assert!(
        !FoundController { pids: Vec::new(), ..of_tuned }.is_handed_over_by_setup(),
        "tuned-adm asks the daemon"
    );
    // All that are active are included, and tuned chooses again where it had chosen.
    let several = TunedProfile {
        is_automatic: true,
        directory: "/etc/tuned/profiles".to_owned(),
        ..profile(&["base", "rt"], &[("sysfs", "/a%")])
    };
    let made = several.replacement().unwrap();
    assert_eq!(made.text, "[main]\ninclude=base,rt\n[sysfs]\ndrop=/a%\n");
    assert_eq!(made.directory, "/etc/tuned/profiles/base-rt-ksmith");
    let several = with(several);
    assert!(several.commands_over()[1].contains("drop=/a%%\\n"), "{:?}", several.commands_over());
    let back = ["tuned-adm auto_profile", "rm -r /etc/tuned/profiles/base-rt-ksmith"];
    assert_eq!(several.commands_back(), back);
}

#[test]
fn a_profile_that_can_not_be_replaced_is_left_to_a_person() {
    let post_loaded = TunedProfile { is_post_loaded: true, ..profile(&["rt"], &OPTIONS) };
    for profile in [profile(&["rt"], &[("script", "script"), ("vm", "c")]), post_loaded] {
        let found = FoundController { profile: Some(profile), pids: vec![40], ..found(name::TUNED, &[]) };
        assert!(!found.is_handed_over_by_setup() && found.hand_over_note().is_some());
        assert_eq!(found.commands_over()[1], "tuned-adm profile OTHER");
        assert_eq!(found.commands_back(), ["tuned-adm profile rt"]);
    }
}
