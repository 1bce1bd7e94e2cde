//! A try-lock, which never waits.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicI32, Ordering};

use crate::process;

/// A value for one thread at a time. A thread that finds it locked continues without it, so that a signal handler never
/// waits for the thread that it interrupted.
///
/// The lock records the memory of its owner. A child of fork takes over a lock that another thread of its parent
/// held, because the child has no such thread to release it. A child of vfork shares memory and threads and does
/// not.
#[derive(Debug)]
pub struct TryLock<T> {
    /// The memory ([`process::number`]) of the owning thread, or 0.
    taker: AtomicI32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `TryLockGuard`, and a memory has at most one at a time.
unsafe impl<T: Send> Sync for TryLock<T> {}

impl<T> TryLock<T> {
    /// Creates an unlocked value.
    pub const fn new(value: T) -> Self {
        Self { taker: AtomicI32::new(0), value: UnsafeCell::new(value) }
    }

    /// Locks the value. `None` if a thread that shares this memory holds the lock.
    pub fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        let own = process::number();
        let before = self.taker.load(Ordering::Relaxed);
        if before == own {
            return None;
        }
        self.taker.compare_exchange(before, own, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(TryLockGuard(self))
    }
}

/// A lock guard, which releases the value on drop.
#[derive(Debug)]
pub struct TryLockGuard<'a, T>(&'a TryLock<T>);

impl<T> Deref for TryLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: at most one Taken exists at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for TryLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: at most one Taken exists at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    fn drop(&mut self) {
        self.0.taker.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::in_child;

    #[test]
    fn a_taken_value_is_refused_without_waiting() {
        let lock = TryLock::new(1);
        let mut taken = lock.try_lock().unwrap();
        *taken += 1;
        assert!(lock.try_lock().is_none());
        drop(taken);
        assert_eq!(*lock.try_lock().unwrap(), 2);
    }

    #[test]
    fn what_a_parent_held_is_free_in_its_child() {
        let lock = TryLock { taker: AtomicI32::new(1), value: UnsafeCell::new(7) };
        assert_eq!(*lock.try_lock().unwrap(), 7);
    }

    #[test]
    fn a_child_takes_over_what_it_has_a_copy_of_and_not_what_it_shares() {
        process::prepare();
        let lock = TryLock::new(1);
        let taken = lock.try_lock().unwrap();
        assert!(in_child(true, &|| lock.try_lock().is_none()));
        assert!(in_child(false, &|| lock.try_lock().is_some()));
        drop(taken);
        assert!(in_child(true, &|| lock.try_lock().is_some()));
    }
}
