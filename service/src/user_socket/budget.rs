//! Budgets of users: CPU time on their behalf, passes, and requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::job::{UserAllowance, UserWindow};
use ksmith_core::units::TimeSpan;

use super::config::PassLimit;
use crate::socket::connections_for_delay;

/// Lines, and connections, that may come at once. As many may come again after [`RATE_PERIOD`].
const LINES: u32 = 64;
const CONNECTIONS: u32 = 256;
const RATE_PERIOD: Duration = Duration::from_secs(4);

const HOUR: Duration = Duration::from_secs(3600);

/// A refusal because a budget is used up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// The user has sent too many lines, or opened too many connections.
    #[error("user {user} has sent over {most} {what} in {period} s; wait a second", period = RATE_PERIOD.as_secs())]
    Rate {
        /// The user.
        user: u32,
        /// The number that may come at once.
        most: u32,
        /// The counted things: lines or connections.
        what: &'static str,
    },
    /// The user has fewer passes left.
    #[error("user {user} has no {count} passes left ([optin] passes_per_hour); \
        {}", .wait.map_or_else(|| "ask for fewer".to_owned(), ask_again))]
    Passes {
        /// The user.
        user: u32,
        /// The requested passes.
        count: u64,
        /// The time until they are there; `None` if there are never so many.
        wait: Option<Duration>,
    },
    /// The user has no CPU time left.
    #[error("user {user} has used up its CPU time for scans ([optin] \
        cpu_seconds_per_hour){}", .wait.map_or_else(String::new, |wait| format!("; {}", ask_again(wait))))]
    Cpu {
        /// The user.
        user: u32,
        /// The time until some is there; `None` if there never is.
        wait: Option<Duration>,
    },
}

fn ask_again(wait: Duration) -> String {
    format!("ask again in {}", TimeSpan(wait))
}

/// The budgets of all users. Root has no limits. Clones share the budgets.
#[derive(Debug, Clone)]
pub struct UserBudgets {
    started: Instant,
    accounts: Arc<Mutex<UserAccounts>>,
}

#[derive(Debug)]
struct UserAccounts {
    cpu: UserAllowance,
    /// Passes of each user; `None` without a limit.
    passes: Option<UserWindow>,
    lines: UserAllowance,
    connections: UserAllowance,
}

impl UserBudgets {
    /// Creates budgets of CPU seconds and passes for each user in an hour.
    pub fn new(cpu_seconds_per_hour: f64, passes_per_hour: PassLimit) -> Self {
        let accounts = UserAccounts {
            cpu: UserAllowance::new(cpu_seconds_per_hour, HOUR),
            passes: passes_per_hour.number().map(|most| UserWindow::new(most, HOUR)),
            lines: UserAllowance::new(LINES.into(), RATE_PERIOD),
            connections: UserAllowance::new(CONNECTIONS.into(), RATE_PERIOD),
        };
        Self { started: Instant::now(), accounts: Arc::new(Mutex::new(accounts)) }
    }

    /// Changes the limits.
    pub fn configure(&self, cpu_seconds_per_hour: f64, passes_per_hour: PassLimit) {
        self.with(|accounts, _| {
            accounts.cpu.configure(cpu_seconds_per_hour, HOUR);
            match (passes_per_hour.number(), &mut accounts.passes) {
                (Some(most), Some(passes)) => passes.configure(most),
                (number, passes) => *passes = number.map(|most| UserWindow::new(most, HOUR)),
            }
        });
    }

    /// Counts a line, whatever it says.
    ///
    /// # Errors
    /// There were too many.
    pub fn line(&self, user: u32) -> Result<(), BudgetError> {
        self.rate(user, LINES, "lines", |accounts| &mut accounts.lines)
    }

    /// Counts a connection.
    ///
    /// # Errors
    /// There were too many.
    pub fn connection(&self, user: u32) -> Result<(), BudgetError> {
        self.rate(user, CONNECTIONS, "connections", |accounts| &mut accounts.connections)
    }

    /// Counts more connections for a look at a user's process that held up the accept loop.
    pub fn charge_delay(&self, user: u32, delay: Duration) {
        let cost = connections_for_delay(delay, f64::from(CONNECTIONS) / RATE_PERIOD.as_secs_f64());
        if user != 0 && cost > 0.0 {
            self.with(|accounts, now| accounts.connections.charge(user, now, cost));
        }
    }

    fn rate(
        &self,
        user: u32,
        most: u32,
        what: &'static str,
        of: impl FnOnce(&mut UserAccounts) -> &mut UserAllowance,
    ) -> Result<(), BudgetError> {
        let may = user == 0 || self.with(|accounts, now| of(accounts).take_tokens(user, now, 1.0));
        may.then_some(()).ok_or(BudgetError::Rate { user, most, what })
    }

    /// Checks that `user` has so many passes left.
    ///
    /// # Errors
    /// It has not; says when it will.
    pub fn check_passes(&self, user: u32, count: u64) -> Result<(), BudgetError> {
        self.passes(user, count, |passes, now| passes.check(user, now, count))
    }

    /// Charges passes to `user`.
    ///
    /// # Errors
    /// As [`Self::check_passes`].
    pub fn take_passes(&self, user: u32, count: u64) -> Result<(), BudgetError> {
        self.passes(user, count, |passes, now| passes.take_count(user, now, count))
    }

    fn passes(
        &self,
        user: u32,
        count: u64,
        work: impl FnOnce(&mut UserWindow, Duration) -> Result<(), Option<Duration>>,
    ) -> Result<(), BudgetError> {
        if user == 0 {
            return Ok(());
        }
        let done = self.with(|accounts, now| accounts.passes.as_mut().map_or(Ok(()), |passes| work(passes, now)));
        done.map_err(|wait| BudgetError::Passes { user, count, wait })
    }

    /// Returns unused passes to `user`.
    pub fn give_back_passes(&self, user: u32, count: u64) {
        if user != 0 {
            self.with(|accounts, _| accounts.passes.iter_mut().for_each(|passes| passes.give_back(user, count)));
        }
    }

    /// Returns the CPU seconds that `user` has left, which have no end for root.
    pub fn left(&self, user: u32) -> f64 {
        if user == 0 { f64::INFINITY } else { self.with(|accounts, now| accounts.cpu.left(user, now)) }
    }

    /// Checks that `user` has CPU time left.
    ///
    /// # Errors
    /// It has not; says when it will.
    pub fn check(&self, user: u32) -> Result<(), BudgetError> {
        if self.left(user) > 0.0 {
            return Ok(());
        }
        // A second's worth, so that a user that waits does not come back for a moment's.
        let wait = self
            .with(|accounts, now| accounts.cpu.wait(user, now, 1.0).or_else(|| accounts.cpu.wait(user, now, 0.0)));
        Err(BudgetError::Cpu { user, wait })
    }

    /// Charges CPU time to `user`.
    pub fn charge(&self, user: u32, cpu: Duration) {
        if user != 0 {
            self.with(|accounts, now| accounts.cpu.charge(user, now, cpu.as_secs_f64()));
        }
    }

    /// Creates budgets for which no time passes.
    #[cfg(test)]
    pub fn standing_still(cpu_seconds_per_hour: f64) -> Self {
        let later = Instant::now() + HOUR;
        Self { started: later, ..Self::new(cpu_seconds_per_hour, PassLimit::Unlimited) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut UserAccounts, Duration) -> T) -> T {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut accounts, self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_budget_is_told_when_to_come_back_and_root_has_no_limit() {
        let budget = UserBudgets::new(60.0, PassLimit::Unlimited);
        budget.charge(7, Duration::from_secs(100));
        budget.charge(0, Duration::from_secs(100));
        let refusal = budget.check(7).unwrap_err().to_string();
        assert!(refusal.contains("ask again in") && refusal.contains("cpu_seconds_per_hour"), "{refusal}");
        assert_eq!((budget.check(0), budget.check(8)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_flood_of_requests_is_stopped() {
        let budget = UserBudgets::new(60.0, PassLimit::Unlimited);
        let granted = (0..1000).filter(|_| budget.line(7).is_ok()).count();
        assert!((64..200).contains(&granted), "{granted}");
        let granted = (0..5000).filter(|_| budget.connection(7).is_ok()).count();
        assert!((256..1000).contains(&granted), "{granted}");
        assert!(budget.line(8).is_ok() && budget.connection(8).is_ok());
        assert!((0..1000).all(|_| budget.line(0).is_ok() && budget.connection(0).is_ok()), "root has no limit");
    }

    #[test]
    fn passes_are_counted_for_each_user_and_come_back_if_none_was_made() {
        let budget = UserBudgets::new(60.0, PassLimit::Most(std::num::NonZeroU32::MIN.saturating_add(3)));
        assert!(budget.check_passes(7, 4).is_ok() && budget.check_passes(7, 4).is_ok(), "nothing is taken");
        assert_eq!(
            (budget.take_passes(7, 3), budget.take_passes(8, 4), budget.take_passes(0, 99)),
            (Ok(()), Ok(()), Ok(()))
        );
        let refusal = budget.take_passes(7, 2).unwrap_err().to_string();
        assert!(refusal.contains("passes_per_hour") && refusal.contains("ask again in"), "{refusal}");
        assert_eq!(budget.take_passes(8, 5), Err(BudgetError::Passes { user: 8, count: 5, wait: None }));
        budget.give_back_passes(7, 1);
        assert_eq!(budget.take_passes(7, 2), Ok(()));
        budget.configure(60.0, PassLimit::Unlimited);
        assert_eq!(budget.take_passes(7, 99), Ok(()));
    }
}
