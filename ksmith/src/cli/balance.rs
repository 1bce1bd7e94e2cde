//! `ksmith balance`, `hold`, `give` and `take`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ksmith_core::units::Bytes;

use super::{CommandFailure, GlobalArgs, amounts, print};
use crate::exit;
use crate::show;
use crate::show::orders::HoldReply;
use ksmith_host::act::{KsmLock, StateDir};
use ksmith_host::guests::{GuestKind, GuestTracker};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::balance::{Balancer, HoldList, MemoryLedger, OrderError};
use ksmith_service::balance_service::resized;
use ksmith_service::config::Config;
use ksmith_service::control::{ClientError, ControlClient, HoldRequest, ResizeReply, ResizeRequest};

/// Show the pool that guests share, what each has and could do without, and the plan.
///
/// A running daemon reports what it last saw and decided, and has done lately; without one, or with --dry-run, ksmith
/// looks itself. This command takes and gives no memory: plans are carried out by `ksmith daemon` with `enabled = true`
/// under [balance] in the configuration. It changes nothing: a QEMU guest without balloon statistics shows none until a
/// daemon that balances, or give and take, switch them on. `least` is the least memory that a guest would be left now:
/// what it uses, and a reserve.
#[derive(Debug, Args)]
pub struct BalanceArgs {
    /// Look again and make a new plan, even if a daemon runs
    #[arg(long)]
    dry_run: bool,
}

/// Leave a guest's memory alone, whatever the policy wants.
///
/// It keeps what it has until it is released. `ksmith give`, `take` and `restore` still work on it. A reboot of the
/// host ends that; to hold a guest permanently, set `hold = true` in a [[balance.rule]].
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// The guest, by name, UUID, PID, kind:name or VMID
    guest: String,
    /// Balance it again
    #[arg(long)]
    release: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Give a guest back memory that was taken from it.
///
/// Up to what it was started with. The policy may take it again: see `ksmith hold`.
#[derive(Debug, Args)]
pub struct GiveArgs {
    #[command(flatten)]
    resize: ResizeArgs,
}

/// Take memory from a guest, and give it to the host.
///
/// Works in steps, each after asking the guest what it has available, and stops at what it uses and a reserve. `ksmith
/// restore` gives back what was taken, and so does a daemon that balances, when memory is plentiful.
#[derive(Debug, Args)]
pub struct TakeArgs {
    #[command(flatten)]
    resize: ResizeArgs,
}

/// A guest and an amount of memory.
#[derive(Debug, Args)]
struct ResizeArgs {
    /// The guest, by name, UUID, PID, kind:name or VMID
    guest: String,
    /// Amount of memory: 256M, 1.5G or 1048576
    #[arg(value_parser = amounts::size)]
    amount: u64,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Timeout for the answers of hypervisors and guests.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time between the two samples from which rates are computed.
const BETWEEN: Duration = Duration::from_millis(500);

/// Deadline of a resize: a guest gives gigabytes in small steps.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

impl BalanceArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        let config = global.load_config_to_read()?;
        let asked = if self.dry_run { None } else { daemon(&config)? };
        let report = match asked {
            Some(mut client) => client.balance()?,
            None => {
                let mut balancer =
                    observe_guests(&root, &config, MemoryLedger::open_to_read(&StateDir::from_root(&root))?)?;
                let impossible =
                    |why: ksmith_service::balance::PoolError| CommandFailure::impossible(why.to_string());
                balancer.pool().map_err(impossible)?;
                std::thread::sleep(BETWEEN);
                balancer.decide(PATIENCE).map_err(impossible)?;
                let mut report =
                    balancer.report().ok_or_else(|| CommandFailure::with_code(exit::FAILED, "nothing was seen"))?;
                // No daemon carries this plan out.
                report.is_enabled = false;
                report
            }
        };
        let page = || show::balance::text(&report, print::width());
        print::answer(global.json, || show::balance::json(&report), page)
    }
}

impl HoldArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let (root, config) = (require(global)?, global.load_config()?);
        let hold = HoldRequest { guest: self.guest.clone(), release: self.release, dry_run: self.dry_run };
        let message = match daemon(&config)? {
            Some(mut client) => client.hold(hold).map_err(refused)?,
            None if self.dry_run => {
                let balancer =
                    observe_guests(&root, &config, MemoryLedger::open_to_read(&StateDir::from_root(&root))?)?;
                balancer.plan_hold(&self.guest, !self.release).map_err(not_ordered)?
            }
            None => {
                let _lock = KsmLock::acquire(&StateDir::from_root(&root))?;
                let mut balancer =
                    observe_guests(&root, &config, MemoryLedger::open(&StateDir::from_root(&root))?)?;
                balancer.hold(&self.guest, !self.release).map_err(not_ordered)?
            }
        };
        if global.json {
            let (guest, message) = (self.guest.as_str(), message.as_str());
            print::json(&HoldReply { guest, held: !self.release, message, dry_run: self.dry_run })?;
        } else {
            print::line(message)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl GiveArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        self.resize.run(global, true)
    }
}

impl TakeArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        self.resize.run(global, false)
    }
}

impl ResizeArgs {
    fn run(&self, global: &GlobalArgs, gives: bool) -> anyhow::Result<ExitCode> {
        let (root, config) = (require(global)?, global.load_config()?);
        let Self { guest, amount: bytes, dry_run } = self;
        let wanted = ResizeRequest { guest: guest.clone(), give: gives, bytes: *bytes, dry_run: *dry_run };
        let answer = match daemon(&config)? {
            Some(mut client) => client.resize(wanted).map_err(refused)?,
            None if *dry_run => {
                let balancer =
                    observe_guests(&root, &config, MemoryLedger::open_to_read(&StateDir::from_root(&root))?)?;
                let planned = balancer.plan_order(guest, gives, *bytes).map_err(not_ordered)?;
                resized(planned, None)
            }
            None => {
                let _lock = KsmLock::acquire(&StateDir::from_root(&root))?;
                let ledger = MemoryLedger::open(&StateDir::from_root(&root))?;
                resize_here(&mut observe_guests(&root, &config, ledger)?, guest, gives, *bytes)?
            }
        };
        match global.json {
            true => print::json(&answer)?,
            false => print::line(tell_resize(&answer, gives, *dry_run))?,
        }
        Ok(if has_moved(&answer, *dry_run) { ExitCode::SUCCESS } else { exit::FAILED.into() })
    }
}

/// Returns true if the guest has another amount than before, or was only to be told the plan.
fn has_moved(answer: &ResizeReply, dry_run: bool) -> bool {
    dry_run || answer.given_bytes != answer.from_bytes
}

/// Returns a sentence on the outcome of a resize.
fn tell_resize(answer: &ResizeReply, gives: bool, dry_run: bool) -> String {
    let ResizeReply { guest, from_bytes, wanted_bytes, given_bytes } = answer;
    let [from, wanted, given] = [from_bytes, wanted_bytes, given_bytes].map(|bytes| Bytes::from(*bytes));
    if dry_run {
        let least = if gives { "" } else { ", and ends at the least that it needs (`ksmith balance` shows it)" };
        return format!("{guest}: would go from {from} to {wanted} in steps{least}");
    }
    let rest = match () {
        () if gives && from_bytes == wanted_bytes => "; it has all of its memory already",
        () if gives && given_bytes >= wanted_bytes || !gives && given_bytes <= wanted_bytes => "",
        () if gives => "; it takes no more for now",
        () => "; it has no more to spare (`ksmith balance` shows the least it needs)",
    };
    format!("{guest}: {from} -> {given}{rest}")
}

fn resize_here(balancer: &mut Balancer, guest: &str, gives: bool, bytes: u64) -> anyhow::Result<ResizeReply> {
    let ordered = balancer.order(guest, gives, bytes).map_err(not_ordered)?;
    let deadline = Instant::now() + LONG_PATIENCE;
    let answers = balancer.answers();
    let given_bytes = loop {
        if let Some(outcome) = balancer.order_outcome(&ordered.key, ordered.from_bytes) {
            break outcome
                .map_err(|why| CommandFailure::with_code(exit::FAILED, format!("{}: {why}", ordered.name)))?;
        }
        balancer.accept(answers.recv_deadline(deadline)?);
    };
    Ok(resized(ordered, Some(given_bytes)))
}

fn not_ordered(why: OrderError) -> CommandFailure {
    match why {
        OrderError::NotOne(why) => why.into(),
        OrderError::Refused(why) => CommandFailure::impossible(why),
    }
}

/// Returns a balancer that has observed all guests once.
fn observe_guests(root: &Root, config: &Config, ledger: MemoryLedger) -> anyhow::Result<Balancer> {
    let holds = HoldList::open(&StateDir::from_root(root))?;
    let mut guests = GuestTracker::new(root.clone(), config.guests.libvirt_uri.clone());
    let list = guests.list_unasked(&HostObserver::new(root.clone()).sample());
    let mut balancer = Balancer::new(root.clone(), config.balance.clone(), ledger, holds);
    let machines = list.guests.iter().filter(|guest| guest.kind != GuestKind::PROCESS);
    balancer.discover(machines.map(|guest| (guest, guests.target(guest))));
    balancer.poll_guests(PATIENCE);
    Ok(balancer)
}

/// Connects to the running daemon; `None` if there is none, or none that this user may ask.
fn daemon(config: &Config) -> Result<Option<ControlClient>, ClientError> {
    match ControlClient::connect(&config.daemon.control_socket) {
        Ok(client) => Ok(Some(client)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

fn refused(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Refused(why) => CommandFailure::impossible(why).into(),
        ClientError::NoGuest(why) => CommandFailure::with_code(exit::UNKNOWN_GUEST, why).into(),
        error => error.into(),
    }
}

/// Returns the host to act on, which needs no KSM.
fn require(global: &GlobalArgs) -> Result<Root, CommandFailure> {
    let root = global.live_root()?;
    if !rustix::process::geteuid().is_root() {
        return Err(CommandFailure::no_privilege("changing what guests have needs root: run it with sudo"));
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resize_that_changes_nothing_is_a_failure_with_its_reason() {
        let answer = |from_bytes, wanted_bytes, given_bytes| ResizeReply {
            guest: "db".to_owned(),
            from_bytes,
            wanted_bytes,
            given_bytes,
        };
        for (answer, gives, moved, said) in [
            (answer(64, 64, 64), true, false, "it has all of its memory already"),
            (answer(32, 64, 32), true, false, "it takes no more for now"),
            (answer(32, 64, 48), true, true, "it takes no more for now"),
            (answer(64, 32, 64), false, false, "it has no more to spare"),
            (answer(64, 32, 32), false, true, "64 B -> 32 B"),
        ] {
            assert_eq!(has_moved(&answer, false), moved, "{answer:?}");
            assert!(has_moved(&answer, true), "a plan changes nothing");
            let told = tell_resize(&answer, gives, false);
            assert!(told.starts_with("db: ") && told.contains(said), "{told}");
        }
    }
}
