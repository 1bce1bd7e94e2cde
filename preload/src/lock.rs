//! A lock that nobody waits for.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicI32, Ordering};

use crate::process;

/// A value for one at a time. Who finds it taken goes on without: so a signal handler never waits for the thread that it
/// interrupted. The taker is noted by its memory: a child of a fork takes over what its parent's other thread held,
/// which the child has no such thread to let go; a child of vfork, which shares its parent's memory and threads, does not.
#[derive(Debug)]
pub struct Exclusive<T> {
    /// The memory ([`process::number`]) whose thread has it, or 0.
    taker: AtomicI32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a `Taken` only, of which there is one at a time in a memory.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// A free one.
    pub const fn new(value: T) -> Self {
        Self { taker: AtomicI32::new(0), value: UnsafeCell::new(value) }
    }

    /// The value, unless somebody who shares this memory has it.
    pub fn take(&self) -> Option<Taken<'_, T>> {
        let own = process::number();
        let before = self.taker.load(Ordering::Relaxed);
        if before == own {
            return None;
        }
        self.taker.compare_exchange(before, own, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Taken(self))
    }
}

/// A taken value. Given back on drop.
#[derive(Debug)]
pub struct Taken<'a, T>(&'a Exclusive<T>);

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is one Taken at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one Taken at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.0.taker.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::in_child;

    #[test]
    fn one_at_a_time_and_nobody_waits() {
        let lock = Exclusive::new(1);
        let mut taken = lock.take().unwrap();
        *taken += 1;
        assert!(lock.take().is_none());
        drop(taken);
        assert_eq!(*lock.take().unwrap(), 2);
    }

    #[test]
    fn what_a_parent_held_is_free_in_its_child() {
        let lock = Exclusive { taker: AtomicI32::new(1), value: UnsafeCell::new(7) };
        assert_eq!(*lock.take().unwrap(), 7);
    }

    #[test]
    fn a_child_takes_over_what_it_has_a_copy_of_and_not_what_it_shares() {
        process::prepare();
        let lock = Exclusive::new(1);
        let taken = lock.take().unwrap();
        assert!(in_child(true, &|| lock.take().is_none()));
        assert!(in_child(false, &|| lock.take().is_some()));
        drop(taken);
        assert!(in_child(true, &|| lock.take().is_some()));
    }
}
