//! What users may spend: CPU time on their behalf, and requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::job::Allowance;
use ksmith_core::units::Span;

/// Requests that come at once, and how long it takes until as many may come again.
const REQUESTS: f64 = 64.0;
const REQUESTS_PERIOD: Duration = Duration::from_secs(4);

const HOUR: Duration = Duration::from_secs(3600);

/// The accounts of all users. Root has no limits. Clones share the accounts.
#[derive(Debug, Clone)]
pub struct Budget {
    started: Instant,
    accounts: Arc<Mutex<Accounts>>,
}

#[derive(Debug)]
struct Accounts {
    cpu: Allowance,
    requests: Allowance,
}

impl Budget {
    /// So many CPU seconds for each user in an hour.
    pub fn new(cpu_seconds_per_hour: f64) -> Self {
        let cpu = Allowance::new(cpu_seconds_per_hour, HOUR);
        let requests = Allowance::new(REQUESTS, REQUESTS_PERIOD);
        Self { started: Instant::now(), accounts: Arc::new(Mutex::new(Accounts { cpu, requests })) }
    }

    /// Changes the limit.
    pub fn configure(&self, cpu_seconds_per_hour: f64) {
        self.with(|accounts, _| accounts.cpu.configure(cpu_seconds_per_hour, HOUR));
    }

    /// Counts a request.
    ///
    /// # Errors
    /// There were too many.
    pub fn request(&self, user: u32) -> Result<(), String> {
        let may = user == 0 || self.with(|accounts, now| accounts.requests.take(user, now, 1.0));
        may.then_some(()).ok_or_else(|| {
            format!(
                "user {user} has made over {REQUESTS} requests in {} s; wait a second",
                REQUESTS_PERIOD.as_secs()
            )
        })
    }

    /// CPU seconds that `user` has left. Root has all there are.
    pub fn left(&self, user: u32) -> f64 {
        if user == 0 { f64::INFINITY } else { self.with(|accounts, now| accounts.cpu.left(user, now)) }
    }

    /// Whether `user` has anything left.
    ///
    /// # Errors
    /// It has not; says when it will.
    pub fn check(&self, user: u32) -> Result<(), String> {
        if self.left(user) > 0.0 {
            return Ok(());
        }
        // A second's worth, so that a user that waits does not come back for a moment's.
        let wait = self
            .with(|accounts, now| accounts.cpu.wait(user, now, 1.0).or_else(|| accounts.cpu.wait(user, now, 0.0)));
        let when = wait.map_or_else(String::new, |wait| format!("; ask again in {}", Span(wait)));
        Err(format!(
            "user {user} has used up the CPU time that scans for it may take in an hour ([optin] cpu_seconds_per_hour){when}"
        ))
    }

    /// Takes what was spent.
    pub fn charge(&self, user: u32, cpu: Duration) {
        if user != 0 {
            self.with(|accounts, now| accounts.cpu.charge(user, now, cpu.as_secs_f64()));
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Accounts, Duration) -> T) -> T {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut accounts, self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_budget_is_told_when_to_come_back_and_root_has_no_limit() {
        let budget = Budget::new(60.0);
        budget.charge(7, Duration::from_secs(100));
        budget.charge(0, Duration::from_secs(100));
        let refusal = budget.check(7).unwrap_err();
        assert!(refusal.contains("ask again in") && refusal.contains("cpu_seconds_per_hour"), "{refusal}");
        assert_eq!((budget.check(0), budget.check(8)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_flood_of_requests_is_stopped() {
        let budget = Budget::new(60.0);
        let granted = (0..1000).filter(|_| budget.request(7).is_ok()).count();
        assert!((64..200).contains(&granted), "{granted}");
        assert!(budget.request(8).is_ok());
    }
}
