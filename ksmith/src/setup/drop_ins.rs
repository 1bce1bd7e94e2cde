//! The drop-ins that only some hosts need, as packages bring them.

/// The directory of the service's drop-ins.
pub(super) const DIRECTORY: &str = "/etc/systemd/system/ksmith.service.d";

/// The configuration with each setting's default.
pub(super) const CONFIG: &str = include_str!("../../../packaging/ksmith.toml");

/// A drop-in by its file name and its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DropIn {
    /// Its file name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

pub(super) const GUESTS_OF_USERS: DropIn = DropIn {
    name: "guests-of-users.conf",
    text: include_str!("../../../packaging/systemd/options/guests-of-users.conf"),
};

pub(super) const ABSTRACT_SOCKETS: DropIn = DropIn {
    name: "abstract-sockets.conf",
    text: include_str!("../../../packaging/systemd/options/abstract-sockets.conf"),
};

pub(super) const CGROUPS: DropIn =
    DropIn { name: "cgroups.conf", text: include_str!("../../../packaging/systemd/options/cgroups.conf") };

pub(super) const FOLD: DropIn =
    DropIn { name: "fold.conf", text: include_str!("../../../packaging/systemd/options/fold.conf") };

pub(super) const KSMD_CPUS: DropIn =
    DropIn { name: "ksmd-cpus.conf", text: include_str!("../../../packaging/systemd/options/ksmd-cpus.conf") };
