//! Settings under a lease: ksmd's own sleep is a day, and it is woken as often as was decided.

use std::time::Duration;

use super::{LeaseTerms, ScanRate, is_leased, next_value};
use crate::kernel::Ksm;
use crate::knobs::{Knob, KnobChange, KnobSettings};
use crate::reading::Reading;
use crate::sample::BoundaryPause;

/// The port of the lease: KSM's files, and what wakes ksmd while a lease is in force. The live kernel and the simulated
/// one have one each.
///
/// Every write of a setting that [`ends_lease`] ends the lease in force.
pub trait KsmdWaker {
    /// The reason why a setting can't be read or written, or why ksmd can't be woken.
    type Error;

    /// True if settings may be leased: what is written is undone at the end.
    fn may_lease(&self) -> bool;

    /// The value of a setting. `None` where this kernel lacks it.
    ///
    /// # Errors
    /// It can't be read.
    fn get(&self, knob: Knob) -> Result<Option<u64>, Self::Error>;

    /// Brings one setting about. `None` if it has that value already or this kernel lacks it.
    ///
    /// # Errors
    /// It can't be written.
    fn set(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, Self::Error>;

    /// Brings settings about as they are, in the order of [`KnobSettings::writes`].
    fn apply(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<Self::Error>);

    /// True if there is a ksmd that can be woken.
    fn can_wake(&mut self) -> bool;

    /// Begins to wake ksmd. `sleep_millisecs` has the value `value`.
    ///
    /// # Errors
    /// Nothing can wake it.
    fn begin_lease(&mut self, rate: ScanRate, value: u64) -> Result<(), Self::Error>;

    /// Calls `act` with the lease in force and the time. `None` if none is.
    fn with_lease<T>(&mut self, act: impl FnOnce(&mut LeaseTerms, Duration) -> T) -> Option<T>;

    /// Waits until ksmd sleeps, so that `run` can be written. A write to it waits for the end of the batch.
    ///
    /// # Errors
    /// ksmd takes too long.
    fn await_sleep(&mut self, run: u64) -> Result<(), Self::Error>;

    /// Brings `knobs` about, under a lease where ksmd could use more than 1 % of a CPU.
    ///
    /// At no moment in between is ksmd free to use more: a lease begins before a batch grows, and ends after it has
    /// shrunk.
    fn apply_leased(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<Self::Error>) {
        let Some(rate) = rate_with(self, knobs) else { return self.apply(knobs) };
        let (mut changes, mut plain) = (Vec::new(), knobs.clone());
        if rate.needs_lease() {
            match ensure_lease(self, rate) {
                Ok(change) => changes.extend(change),
                Err(error) => return (changes, vec![error]),
            }
            if leased_rate(self).is_some() {
                plain.remove(Knob::SleepMillisecs);
                set_pages(&mut plain, &rate, rate.parts().pages);
            }
        } else {
            if leased_rate(self).is_some() {
                plain.set(Knob::SleepMillisecs, rate.sleep_ms);
                set_pages(&mut plain, &rate, rate.pages_to_scan);
            }
            // The sleep is short again only after ksmd was stopped.
            if let Some(stop) = knobs.get(Knob::Run).filter(|run| *run != 1) {
                match stop_ksmd(self, stop) {
                    Ok(change) => changes.extend(change),
                    Err(error) => return (changes, vec![error]),
                }
            }
        }
        let (more, errors) = self.apply(&plain);
        changes.extend(more);
        self.with_lease(|lease, now| {
            lease.set_rate(rate, now);
            lease.hold(Duration::ZERO, now);
        });
        (changes, errors)
    }

    /// Holds the lease until the next turn is due and a little longer, and has ksmd rest once it has completed
    /// `rest_after` passes. The lease begins or ends here where another program has changed the settings.
    ///
    /// # Errors
    /// A setting can't be read or written.
    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Result<(), Self::Error> {
        let Some(rate) = rate_with(self, &KnobSettings::none()) else { return Ok(()) };
        let was_leased = leased_rate(self).is_some();
        if rate.needs_lease() {
            ensure_lease(self, rate)?;
            if leased_rate(self).is_some() && !rate.is_advised {
                self.set(Knob::PagesToScan, rate.parts().pages)?;
            }
        } else if was_leased {
            if !rate.is_advised {
                self.set(Knob::PagesToScan, rate.pages_to_scan)?;
            }
            self.set(Knob::SleepMillisecs, rate.sleep_ms)?;
        }
        self.with_lease(|lease, now| {
            lease.set_rate(rate, now);
            lease.hold(until_next, now);
            lease.rest_after(rest_after, now);
        });
        Ok(())
    }

    /// The state of ksmd's rest at the end of a pass.
    fn rest(&mut self) -> BoundaryPause {
        self.with_lease(|lease, _| lease.rest()).unwrap_or_default()
    }

    /// Puts the batch and the sleep that were decided on in the place of those that the lease has written.
    fn show_decided(&mut self, ksm: &mut Ksm) {
        let Some(rate) = leased_rate(self) else { return };
        let (sleep_ms, pages) = rate.decided(ksm.sleep_millisecs.get(), ksm.pages_to_scan.get());
        if let Some(sleep_ms) = sleep_ms {
            ksm.sleep_millisecs = Reading::Value(sleep_ms);
        }
        if let Some(pages) = pages {
            ksm.pages_to_scan = Reading::Value(pages);
        }
    }
}

/// The rate that was decided on, of the lease in force.
fn leased_rate<W: KsmdWaker + ?Sized>(waker: &mut W) -> Option<ScanRate> {
    waker.with_lease(|lease, _| lease.rate())
}

/// The rate of ksmd once `knobs` are brought about. `None` where settings may not be leased or a file is missing.
fn rate_with<W: KsmdWaker + ?Sized>(waker: &mut W, knobs: &KnobSettings) -> Option<ScanRate> {
    if !waker.may_lease() {
        return None;
    }
    let leased = leased_rate(waker);
    let now = |knob| waker.get(knob).ok().flatten();
    let (sleep_ms, pages) = (now(Knob::SleepMillisecs), now(Knob::PagesToScan));
    let (sleep_ms, pages) = leased.map_or((sleep_ms, pages), |rate| rate.decided(sleep_ms, pages));
    Some(ScanRate {
        runs: knobs.get(Knob::Run).or_else(|| now(Knob::Run))? == 1,
        is_advised: knobs.get(Knob::AdvisorMode).or_else(|| now(Knob::AdvisorMode)) == Some(1),
        pages_to_scan: knobs.get(Knob::PagesToScan).or(pages)?,
        sleep_ms: knobs.get(Knob::SleepMillisecs).or(sleep_ms)?,
    })
}

/// Begins a lease unless one is in force, where ksmd can be woken.
fn ensure_lease<W: KsmdWaker + ?Sized>(waker: &mut W, rate: ScanRate) -> Result<Option<KnobChange>, W::Error> {
    let now = waker.get(Knob::SleepMillisecs)?.unwrap_or(0);
    let is_whole = waker.with_lease(|lease, _| !lease.is_broken()).unwrap_or(false);
    if is_whole && is_leased(now) || !waker.can_wake() {
        return Ok(None);
    }
    let value = next_value(now);
    let change = waker.set(Knob::SleepMillisecs, value)?;
    waker.begin_lease(rate, value)?;
    Ok(change)
}

/// Stops ksmd: it is woken no more, and `run` is written once it sleeps.
fn stop_ksmd<W: KsmdWaker + ?Sized>(waker: &mut W, run: u64) -> Result<Option<KnobChange>, W::Error> {
    waker.with_lease(LeaseTerms::suspend);
    waker.await_sleep(run)?;
    waker.set(Knob::Run, run)
}

/// True if writing this setting ends the lease in force: ksmd has another sleep then, or is stopped.
pub fn ends_lease(knob: Knob, value: u64) -> bool {
    knob == Knob::SleepMillisecs || knob == Knob::Run && value != 1
}

/// Sets the batch, unless the kernel's advisor does.
fn set_pages(knobs: &mut KnobSettings, rate: &ScanRate, pages: u64) {
    if !rate.is_advised {
        knobs.set(Knob::PagesToScan, pages);
    }
}
