//! One guest of the balancer.

use std::time::Duration;

use ksmith_core::balance::{BalanceConfig, GuestTerms, GuestView, ReportedFigures};
use ksmith_core::guest::{Guest, GuestKind, NamedGuest};

use ksmith_host::fair_pool::RequestAccount;
use ksmith_host::hypervisor::proxmox;
use ksmith_host::root::Root;

use super::first_poll::FirstPoll;
use super::worker::ActuatorWorker;
use super::{ActuatorAbilities, ActuatorFigures};

/// A guest that may be balanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BalanceCandidate {
    pub key: String,
    pub name: String,
    pub kind: GuestKind,
    /// True if Proxmox VE started it.
    pub is_of_proxmox: bool,
    /// Its VMID, if Proxmox VE started it.
    pub vmid: Option<u32>,
    pub uuid: Option<String>,
    /// True if name and UUID are verified.
    pub is_verified: bool,
    /// The one user that it runs as: its name and its number.
    pub user: Option<String>,
    pub uid: Option<u32>,
    pub pid: Option<u32>,
    /// Memory that it was started with, by its command line: the guest itself may not answer.
    pub whole_bytes: u64,
    pub resident_bytes: u64,
    pub merged_bytes: u64,
    pub folded_bytes: u64,
}

impl BalanceCandidate {
    pub(super) fn from_guest(guest: &Guest) -> Self {
        Self {
            key: guest.id().to_string(),
            name: guest.name.clone(),
            kind: guest.kind,
            is_of_proxmox: guest.manager.as_deref() == Some(proxmox::MANAGER),
            vmid: guest.number.filter(|_| guest.manager.as_deref() == Some(proxmox::MANAGER)),
            uuid: guest.uuid.clone(),
            is_verified: guest.is_verified,
            user: guest.only_user().map(str::to_owned),
            uid: guest.uid,
            pid: Some(guest.id().pid()),
            whole_bytes: guest.memory_bytes.unwrap_or(guest.figures.known_rss_bytes()),
            resident_bytes: guest.figures.known_rss_bytes(),
            merged_bytes: guest.figures.merged_bytes,
            folded_bytes: 0,
        }
    }

    pub(super) fn from_cgroup(path: &str) -> Self {
        let path = path.trim_start_matches("/sys/fs/cgroup").trim_matches('/');
        Self {
            key: format!("cgroup:{path}"),
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            kind: GuestKind::new("container"),
            is_of_proxmox: false,
            vmid: None,
            uuid: None,
            is_verified: true,
            user: None,
            uid: None,
            pid: None,
            whole_bytes: 0,
            resident_bytes: 0,
            merged_bytes: 0,
            folded_bytes: 0,
        }
    }

    /// Returns the path, if it is a cgroup from the configuration.
    pub(super) fn cgroup(&self) -> Option<&str> {
        self.key.strip_prefix("cgroup:")
    }

    /// Returns the names under which the list of held guests may have it. The first is the one that is written: a
    /// verified guest with a UUID stays held when it is started again.
    pub(super) fn names_in_holds(&self) -> impl Iterator<Item = String> + use<> {
        let uuid = self.uuid.clone().filter(|_| self.is_verified);
        uuid.into_iter().chain([self.key.clone()])
    }

    /// Returns the terms that the configuration has for it.
    pub(super) fn terms(&self, config: &BalanceConfig) -> GuestTerms {
        config.terms(&self.name, self.uuid.as_deref(), self.is_verified)
    }

    /// Returns the account to which requests to the guest are charged.
    pub(super) fn accountable(&self, root: &Root) -> RequestAccount {
        // A cgroup of the configuration has no process.
        RequestAccount::of_guest(root, self.pid.unwrap_or(0), self.uid, self.is_verified)
    }

    /// Returns true if the guest is left to Proxmox VE, which balances its guests itself. Then it is not even polled.
    pub(super) fn is_left_to_proxmox(&self, config: &BalanceConfig) -> bool {
        self.is_of_proxmox && !config.proxmox
    }

    /// Returns true if a policy may act on the guest's own figures.
    pub(super) fn is_trusted(&self, config: &BalanceConfig) -> bool {
        self.is_verified || config.has_user(self.user.as_deref())
    }

    /// Returns the view, with all actions barred unless the guest is trusted. An unverified guest may report any
    /// figures: how much memory it needs, and that it gave some. So a policy leaves it alone, unless the operator
    /// trusts its user.
    pub(super) fn held_to_trust(&self, config: &BalanceConfig, view: GuestView) -> GuestView {
        if self.is_trusted(config) {
            return view;
        }
        let why = || "it is not verified, and its user is not in [balance] users".to_owned();
        GuestView { can_take: false, can_give: false, trouble: view.trouble.or_else(|| Some(why())), ..view }
    }
}

impl NamedGuest for BalanceCandidate {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &str {
        self.kind.word()
    }

    fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    fn pid(&self) -> Option<u32> {
        self.pid
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn number(&self) -> Option<(&str, u32)> {
        Some((proxmox::MANAGER, self.vmid?))
    }

    fn is_verified(&self) -> bool {
        self.is_verified
    }
}

/// Returns true if guests of this kind are balanced without being named: they have a balloon or the like.
pub(super) fn is_machine(kind: GuestKind) -> bool {
    ksmith_host::hypervisor::find_by_kind(kind).is_machine()
}

/// The amount that the operator wants a guest to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResizeOrder {
    pub gives: bool,
    pub wanted_bytes: u64,
}

impl ResizeOrder {
    /// Returns true if a change from one amount to another is in the wanted direction.
    pub(super) fn moves(self, from: u64, to: u64) -> bool {
        if self.gives { to > from } else { to < from }
    }
}

/// A resize under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingResize {
    pub since: Duration,
    /// True if it takes memory.
    pub takes: bool,
}

/// One guest with its thread.
#[derive(Debug)]
pub(super) struct PoolMember {
    pub number: u64,
    pub candidate: BalanceCandidate,
    pub worker: Option<ActuatorWorker>,
    /// The last answer.
    pub known: Option<(ActuatorFigures, ActuatorAbilities)>,
    /// Error of the last look, if it failed.
    pub error: Option<String>,
    /// True while a look is under way.
    pub looking: bool,
    /// The resize under way.
    pub resizing: Option<PendingResize>,
    /// The operator's order.
    pub ordered: Option<ResizeOrder>,
    /// The first poll, until the guest has answered or its time is over.
    pub first_poll: Option<FirstPoll>,
}

impl PoolMember {
    pub(super) fn is_busy(&self) -> bool {
        self.looking || self.resizing.is_some()
    }

    /// Returns the guest as a policy sees it. `backoff` is the reason for leaving it alone in any case.
    pub(super) fn view(
        &self,
        terms: GuestTerms,
        is_held: bool,
        backoff: Option<String>,
        now: Duration,
    ) -> GuestView {
        let candidate = &self.candidate;
        let look = self.known.as_ref().map_or_else(
            || ActuatorFigures {
                given_bytes: candidate.whole_bytes,
                whole_bytes: candidate.whole_bytes,
                resident_bytes: candidate.resident_bytes,
                inside: ReportedFigures::default(),
            },
            |(look, _)| *look,
        );
        let silent = self.looking.then(|| "it does not answer".to_owned());
        let abilities = self.known.as_ref().map(|(_, abilities)| abilities);
        let free = !self.is_busy() && self.ordered.is_none() && self.error.is_none();
        GuestView {
            key: candidate.key.clone(),
            name: candidate.name.clone(),
            class: terms.class,
            given_bytes: look.given_bytes,
            whole_bytes: look.whole_bytes,
            resident_bytes: look.resident_bytes,
            inside: look.inside,
            floor_bytes: terms.floor_bytes.unwrap_or(0),
            ceiling_bytes: terms.ceiling_bytes.unwrap_or(look.whole_bytes),
            step_bytes: abilities.map_or(1 << 20, |it| it.step_bytes),
            can_take: free && abilities.is_some_and(|it| it.can_take),
            can_give: free && abilities.is_some_and(|it| it.can_give),
            held: is_held || terms.is_held,
            merged_bytes: candidate.merged_bytes,
            giving_for: self.resizing.filter(|it| it.takes).map(|it| now.saturating_sub(it.since)),
            trouble: silent.or_else(|| self.error.clone()).or(backoff),
        }
    }
}
