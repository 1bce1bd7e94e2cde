//! Folding one window: a part of one mapping.
//!
//! The states of a page, and what the program, a device and the folding thread may do in each:
//!
//! | state | the program | a device | the folding thread |
//! |---|---|---|---|
//! | free | reads and writes | writes to what is pinned | reads it: the first look |
//! | protected | reads; a write waits | writes to what was pinned before | reads it: the second look |
//! | taken out | any access waits | none: what is pinned can't be taken out | reads it: the last look |
//! | folded | reads zero; a write makes a new page | pins a new page | has discarded it |
//! | put back | as free | as free | is done with it |
//!
//! Pages are protected only where the kernel tells this process of no forks. Elsewhere what is written after the first look is seen
//! by the last one.
//!
//! * Only pages that the first look saw to be zero are protected or taken out, none between them. What the kernel writes to as a
//!   thread ends, it does not wait for: the word that pthread_join(3) waits for, and robust mutexes (`PF_EXITING` in
//!   `handle_userfault`, fs/userfaultfd.c). A page with such a word is not zero; and no such page comes into being meanwhile
//!   (`gate.rs`).
//! * No write is later than the last look: an access waits for a page that is not there, the kernel refuses to take out a page that
//!   is pinned (`move_present_ptes` in mm/userfaultfd.c), and no new pin is had on a page that is not there. A page that is not zero
//!   is put back.
//! * A page that another page table has, by fork or by KSM, can't be taken out.
//! * A child of a fork in between lacks what is taken out, and so reads zero there. If the page was written to at that moment the
//!   child is given what is put back: the fork waits until this thread has read of it. Where forks are not told, the second look
//!   comes after the protection, and so only a device can have written later.
//! * The kernel takes out nothing while a change of a mapping by another thread was not read, and none is read between the
//!   first look and the last page. Such a thread waits: unmapping has taken place, discarding has not.
//!
//! From the first look at a chunk to its end this thread takes no signal and no lock, and touches nothing but its own stack and
//! the scratch memory, which no folding thread takes pages from.

use super::Request;
use super::count::{Folded, Method, Stop};
use super::gate::{CHUNKS, WINDOWS};
use super::own::Own;
use super::resident::{Pagemap, Run};
use super::userfault::{Change, Span, Userfault};
use super::zero::{LINE, MOST_PAGES, Pages};
use crate::marks;
use crate::sys::{self, Errno};

/// Bytes that are protected at once at most: what an ordinary huge page has.
pub const CHUNK: usize = 2 << 20;

/// Bytes of a window. What is moved away is discarded at its end.
pub const WINDOW: usize = 32 << 20;

/// How closely a page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// One line of it, which shows most pages that are not zero.
    Lines,
    /// All of it.
    Whole,
}

/// How often the kernel is asked to take a page back, a tenth of a millisecond apart.
const PATIENCE: usize = 10_000;

/// Bytes that are copied at once where memory may go away.
const PIECE: usize = 256 << 10;

/// How memory is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// In its place: the caller has promised that it stays mapped.
    InPlace,
    /// By copies: other threads may unmap it.
    Copied,
}

/// One thread that folds.
#[derive(Debug)]
pub struct Folder {
    pagemap: Pagemap,
    own: Own,
    reads: Reads,
    /// Whether the caller promised that nothing writes.
    is_still: bool,
    takes_user_mode: bool,
    page: usize,
    /// Where pages are moved to, at the same offset from a boundary of huge pages as they come from; and after it the place
    /// for copies.
    scratch: usize,
    /// What was found.
    pub counts: Folded,
}

/// A part of a mapping that is folded, and the userfaultfd that is told of its changes.
#[derive(Debug)]
struct Window {
    span: Span,
    /// `None`: no page that may be zero was found yet.
    userfault: Option<Userfault>,
}

impl Folder {
    /// Makes one for this thread, with `SCRATCH` bytes of memory of its own from `scratch` on.
    pub fn new(reads: Reads, request: &Request, own: Own, scratch: usize) -> Result<Self, Errno> {
        let pagemap = Pagemap::open()?;
        let Request { is_still, is_without_io, .. } = *request;
        let (page, counts) = (marks::page(), Folded::default());
        Ok(Self { pagemap, own, reads, is_still, takes_user_mode: is_without_io, page, scratch, counts })
    }

    /// Folds a window, `WINDOW` bytes at most, which does not cross a multiple of that.
    ///
    /// # Errors
    /// The kernel refuses for good, so that other windows are of no use either.
    pub fn fold(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        let mut at = start;
        while let Some((first, last)) = self.own.part_of(at, end) {
            self.counts.own = self.counts.own.saturating_add(first.saturating_sub(at) as u64);
            self.fold_part(first, last)?;
            at = last;
        }
        self.counts.own = self.counts.own.saturating_add(end.saturating_sub(at) as u64);
        Ok(())
    }

    fn fold_part(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        let Some(gate) = WINDOWS.close() else {
            // Mappings are resized all the time.
            self.counts.changed = self.counts.changed.saturating_add(end.saturating_sub(start) as u64);
            return Ok(());
        };
        let mut window = Window { span: Span::between(start, end), userfault: None };
        let mut at = start;
        let mut result = Ok(());
        while at < end {
            let chunk_end = (at | CHUNK.wrapping_sub(1)).saturating_add(1).min(end);
            result = self.fold_chunk(&mut window, at, chunk_end);
            if result.is_err() {
                break;
            }
            at = chunk_end;
        }
        self.leave(window);
        drop(gate);
        let left = end.saturating_sub(at) as u64;
        match result {
            Ok(()) => Ok(()),
            Err(Stop::Changed) => {
                self.counts.changed = self.counts.changed.saturating_add(left);
                Ok(())
            }
            Err(Stop::Taken) => {
                self.counts.taken = self.counts.taken.saturating_add(left);
                Ok(())
            }
            Err(Stop::Failed(errno)) => Err(errno),
        }
    }

    fn fold_chunk(&mut self, window: &mut Window, start: usize, end: usize) -> Result<(), Stop> {
        let (resident, huge) = self.resident(start, end)?;
        self.counts.looked = self.counts.looked.saturating_add(self.bytes(&resident));
        let likely = self.look(start, &resident, Depth::Lines)?;
        if likely.count() == 0 {
            return Ok(());
        }
        if self.is_still {
            let zero = self.look(start, &likely, Depth::Whole)?;
            let zero = self.without_huge(zero, &resident, &huge);
            return self.discard(start, &zero);
        }
        self.enter(window)?;
        let Some(userfault) = &window.userfault else { return Err(Stop::Changed) };
        let Some(gate) = CHUNKS.close() else {
            // Threads begin all the time.
            let left = end.saturating_sub(start) as u64;
            self.counts.changed = self.counts.changed.saturating_add(left);
            return Ok(());
        };
        // A mapping that is younger than the watch of its window is watched before it is looked at, as each other.
        userfault.read_changes();
        userfault.watch(Span::between(start, end)).map_err(|_| Stop::Changed)?;
        let zero = self.look(start, &likely, Depth::Whole)?;
        let zero = self.without_huge(zero, &resident, &huge);
        if let (Some((first, _)), Some(last)) = (zero.run(0), zero.last()) {
            let address = |number: usize| start.saturating_add(number.saturating_mul(self.page));
            let span = Span::between(address(first), address(last.saturating_add(1)));
            let counts = self.fold_zero(userfault, span, start, &zero);
            let is_whole = release(userfault, span, &zero, (start, self.page));
            userfault.read_changes();
            self.counts.add(&counts?);
            is_whole?;
        }
        drop(gate);
        Ok(())
    }

    /// Which pages of a chunk are resident, and which of them are parts of huge pages.
    fn resident(&self, start: usize, end: usize) -> Result<(Pages, Pages), Stop> {
        let (mut resident, mut huge) = (Pages::NONE, Pages::NONE);
        let each = |run: Run| {
            let pages = Pages::between(
                run.start.saturating_sub(start) / self.page,
                run.end.saturating_sub(start) / self.page,
            );
            resident = resident.or(&pages);
            if run.is_huge {
                huge = huge.or(&pages);
            }
            true
        };
        self.pagemap.runs(start, end, each).map_err(|_| Stop::Changed)?;
        Ok((resident, huge))
    }

    /// The zero pages without those of huge pages, if most of the memory is in use: to split a huge page that is in use costs more
    /// than it gives back.
    fn without_huge(&mut self, zero: Pages, resident: &Pages, huge: &Pages) -> Pages {
        if huge.count() == 0 || zero.count().saturating_mul(2) > resident.count() {
            return zero;
        }
        self.counts.huge = self.counts.huge.saturating_add(self.bytes(&zero.and(huge)));
        zero.without(huge)
    }

    fn bytes(&self, pages: &Pages) -> u64 {
        pages.count().saturating_mul(self.page) as u64
    }

    /// Folds those of the pages that are zero still, in a window that is watched for changes.
    fn fold_zero(&self, userfault: &Userfault, span: Span, start: usize, zero: &Pages) -> Result<Folded, Stop> {
        let mut zero = *zero;
        if !userfault.tells_forks() {
            let mut from = 0_usize;
            while let Some((first, end)) = zero.run(from) {
                let address = |number: usize| start.saturating_add(number.saturating_mul(self.page));
                userfault.protect(Span::between(address(first), address(end))).map_err(|_| Stop::Changed)?;
                from = end;
            }
            zero = self.look(start, &zero, Depth::Whole)?;
        }
        userfault.watch_holes(span).map_err(|_| Stop::Changed)?;
        let (mut counts, taken) = self.take_out(userfault, start, &zero)?;
        let target = self.target_of(start);
        let at = |number: usize| {
            core::ptr::with_exposed_provenance(target.saturating_add(number.saturating_mul(self.page)))
        };
        let written = taken.without(&Pages::zero_of(&taken, self.page, &at));
        counts.folded = self.bytes(&taken).saturating_sub(self.bytes(&written));
        put_back(userfault, &written, start, target, self.page);
        Ok(counts)
    }

    /// Those of `pages` that are zero, or may be by the lines that are looked at.
    fn look(&self, start: usize, pages: &Pages, depth: Depth) -> Result<Pages, Stop> {
        let page = self.page;
        let read = |address: usize| core::ptr::with_exposed_provenance::<u64>(address);
        let copy = self.scratch.saturating_add(COPY);
        match (self.reads, depth) {
            (Reads::InPlace, _) => {
                let at = |number: usize| read(start.saturating_add(number.saturating_mul(page)));
                Ok(match depth {
                    Depth::Lines => Pages::likely_of(pages, page, &at),
                    Depth::Whole => Pages::zero_of(pages, page, &at),
                })
            }
            (Reads::Copied, Depth::Lines) => {
                let copied = copy_lines(pages, |number| start.saturating_add(number.saturating_mul(page)), copy);
                if copied != Ok(pages.count().saturating_mul(LINE)) {
                    return Err(Stop::Changed);
                }
                Ok(Pages::likely_of_lines(pages, read(copy)))
            }
            (Reads::Copied, Depth::Whole) => {
                let mut zero = Pages::NONE;
                let mut from = 0_usize;
                while let Some((first, end)) = pages.run(from) {
                    let end = end.min(first.saturating_add(PIECE / page));
                    let length = end.saturating_sub(first).saturating_mul(page);
                    let address = start.saturating_add(first.saturating_mul(page));
                    if sys::copy_own(&[sys::Place::of(address, length)], copy, length) != Ok(length) {
                        return Err(Stop::Changed);
                    }
                    let at = |number: usize| {
                        read(copy.saturating_add(number.saturating_sub(first).saturating_mul(page)))
                    };
                    zero = zero.or(&Pages::zero_of(&Pages::between(first, end), page, &at));
                    from = end;
                }
                Ok(zero)
            }
        }
    }

    /// Takes pages out of a watched chunk. Returns which were.
    fn take_out(&self, userfault: &Userfault, start: usize, zero: &Pages) -> Result<(Folded, Pages), Stop> {
        let page = self.page;
        let target = self.target_of(start);
        let mut counts = Folded::default();
        let mut taken = Pages::NONE;
        let mut from = 0_usize;
        while let Some((first, end)) = zero.run(from) {
            let offset = first.saturating_mul(page);
            let address = start.saturating_add(offset);
            let length = end.saturating_sub(first).saturating_mul(page);
            let (moved, why) = userfault.move_pages(address, target.saturating_add(offset), length);
            let next = first.saturating_add(moved / page);
            taken = taken.or(&Pages::between(first, next));
            // Which page is refused is seen when it is the first.
            from = match why {
                None => end,
                Some(_) if moved > 0 => next,
                Some(libc::EBUSY) => {
                    let reason = match self.pagemap.is_exclusive(address, page) {
                        Some(false) => &mut counts.shared,
                        _ => &mut counts.pinned,
                    };
                    *reason = reason.saturating_add(page as u64);
                    first.saturating_add(1)
                }
                // Another thread has discarded it, and had asked before the range was watched.
                Some(libc::ENOENT) => first.saturating_add(1),
                Some(libc::EINVAL) => {
                    counts.locked = counts.locked.saturating_add(length as u64);
                    end
                }
                // A change of the mapping waits, or has taken place; or there is no memory for a page table.
                Some(_) => {
                    counts.changed = counts.changed.saturating_add(length as u64);
                    break;
                }
            };
        }
        Ok((counts, taken))
    }

    /// Discards zero pages of memory that nothing writes to.
    fn discard(&mut self, start: usize, zero: &Pages) -> Result<(), Stop> {
        let page = self.page;
        let mut from = 0_usize;
        while let Some((first, end)) = zero.run(from) {
            let address = start.saturating_add(first.saturating_mul(page));
            let length = end.saturating_sub(first).saturating_mul(page);
            match sys::madvise(address, length, libc::MADV_DONTNEED) {
                Ok(()) => self.counts.folded = self.counts.folded.saturating_add(length as u64),
                Err(libc::EINVAL) => self.counts.locked = self.counts.locked.saturating_add(length as u64),
                Err(_) => return Err(Stop::Changed),
            }
            from = end;
        }
        Ok(())
    }

    /// Opens the userfaultfd of the window, at its first page that may be zero, and has it told of all changes of the mapping.
    fn enter(&self, window: &mut Window) -> Result<(), Stop> {
        if window.userfault.is_none() {
            let (userfault, _) = Userfault::open(self.takes_user_mode).map_err(Stop::Failed)?;
            let target = self.target();
            userfault.watch_target(Span::between(target, target.saturating_add(WINDOW))).map_err(Stop::Failed)?;
            userfault.watch(window.span).map_err(|errno| match errno {
                libc::EBUSY => Stop::Taken,
                libc::ENOMEM => Stop::Failed(libc::ENOMEM),
                _ => Stop::Changed,
            })?;
            window.userfault = Some(userfault);
        }
        Ok(())
    }

    /// Ends the window, and gives back what was taken out.
    fn leave(&self, window: Window) {
        let Some(userfault) = window.userfault else { return };
        let target = self.target();
        // The kernel goes through each page of a range that could have been protected. None is, and so it need not.
        let _ = userfault.watch_target(window.span);
        let _ = userfault.unwatch(window.span);
        let _ = userfault.unwatch(Span::between(target, target.saturating_add(WINDOW)));
        userfault.read_changes();
        let _ = sys::madvise(target, WINDOW, libc::MADV_DONTNEED);
        // Closing it ends whatever is left of it.
    }

    /// Where a page of the window goes to.
    fn target_of(&self, address: usize) -> usize {
        self.target().saturating_add(address % WINDOW)
    }

    /// The part of the scratch memory that begins at a boundary of windows.
    fn target(&self) -> usize {
        self.scratch.next_multiple_of(WINDOW)
    }
}

/// Where copies are made within the scratch memory: behind the place for pages, wherever that begins.
const COPY: usize = 2 * WINDOW;
/// Bytes of scratch memory of one thread.
pub const SCRATCH: usize = COPY + PIECE;

/// Copies the first line of each page. Returns how many bytes could be read.
fn copy_lines(pages: &Pages, address: impl Fn(usize) -> usize, to: usize) -> Result<usize, Errno> {
    let mut places = [const { sys::Place::of(0, LINE) }; MOST_PAGES];
    let mut free = places.iter_mut();
    pages.each(|number| {
        if let Some(place) = free.next() {
            *place = sys::Place::of(address(number), LINE);
        }
    });
    let left = free.len();
    let used = places.get(..MOST_PAGES.saturating_sub(left)).unwrap_or_default();
    sys::copy_own(used, to, used.len().saturating_mul(LINE))
}

/// Puts pages back that were written to at the last moment, wherever their memory is by now.
fn put_back(userfault: &Userfault, written: &Pages, start: usize, target: usize, page: usize) {
    let mut left = *written;
    while let Some((first, _)) = left.run(0) {
        put_one_back(userfault, &left, first, (start, target, page));
        left = left.without(&Pages::between(first, first.saturating_add(1)));
    }
}

/// Puts the page of this number back. `left` are those that are still to be put back.
fn put_one_back(userfault: &Userfault, left: &Pages, number: usize, (start, target, page): (usize, usize, usize)) {
    let place = |base: usize, number: usize| base.saturating_add(number.saturating_mul(page));
    let from = place(target, number);
    let mut home = place(start, number) as u64;
    // The last resort: it may be read as zero for a moment.
    let copy = |home: u64| {
        let home = home as usize;
        // By the kernel: another thread may unmap it.
        if let Ok(_) | Err(libc::EFAULT) = sys::copy_own(&[sys::Place::of(from, page)], home, page) {
            return;
        }
        let (from, to) =
            (core::ptr::with_exposed_provenance::<u8>(from), core::ptr::with_exposed_provenance_mut(home));
        // SAFETY: a page of the scratch memory, and one of the program's that is mapped and was zero a moment ago. Only where a filter
        // refuses the call above does this run, and there memory is folded in its place, which the caller promised stays mapped.
        unsafe { core::ptr::copy_nonoverlapping(from, to, page) };
    };
    for _ in 0..PATIENCE {
        match userfault.move_pages(from, home as usize, page).1 {
            // It is back; or its memory was unmapped.
            None | Some(libc::ENOENT | libc::EINVAL) => return,
            Some(libc::EEXIST) => return copy(home),
            // ksmd has merged it where it lies now.
            Some(libc::EBUSY) if userfault.copy_page(from, home as usize, page).is_ok() => return,
            _ => {}
        }
        match userfault.change() {
            // The child lacks all that is still to be put back. If it has ended it lacks nothing.
            Some(Change::Forked(child)) => {
                let mut next = 0_usize;
                while let Some((other, _)) = left.run(next) {
                    let to = if other == number { home as usize } else { place(start, other) };
                    let _ = child.give(place(target, other), to, page);
                    next = other.saturating_add(1);
                }
            }
            Some(Change::Moved { from: old, to, length }) if (old..old.saturating_add(length)).contains(&home) => {
                home = home.saturating_sub(old).saturating_add(to);
                // The rest of that memory may be used again. This page is there as soon as it can be.
                let moved = userfault.move_pages(from, home as usize, page).1;
                let _ = userfault.unwatch(Span { start: to, length });
                if moved.is_none() {
                    return;
                }
            }
            Some(Change::Moved { to, length, .. }) => {
                let _ = userfault.unwatch(Span { start: to, length });
            }
            // Its contents are not wanted any more.
            Some(Change::Gone(first, end)) if (first..end).contains(&home) => return,
            Some(Change::Gone(..)) => {}
            // Short of memory for a page table: the kernel makes some.
            None => sys::nap(100_000),
        }
    }
    let _ = userfault.unwatch(Span { start: home, length: page as u64 });
    copy(home);
}

/// Lets a span go that was watched for holes, and all that wait for it. Changes are still told.
///
/// # Errors
/// A part of it is another mapping by now. All other parts are let go for good.
fn release(userfault: &Userfault, span: Span, zero: &Pages, (start, page): (usize, usize)) -> Result<(), Stop> {
    let mut is_whole = true;
    if !userfault.tells_forks() {
        let mut from = 0_usize;
        while let Some((first, end)) = zero.run(from) {
            let address = |number: usize| start.saturating_add(number.saturating_mul(page));
            is_whole &= userfault.let_write(Span::between(address(first), address(end))).is_ok();
            from = end;
        }
    }
    is_whole &= userfault.watch(span).is_ok();
    if is_whole && userfault.wake(span).is_ok() {
        return Ok(());
    }
    let end = span.start.saturating_add(span.length);
    let mut at = span.start;
    while at < end {
        let length = (page as u64).min(end.saturating_sub(at));
        let _ = userfault.unwatch(Span { start: at, length });
        at = at.saturating_add(page as u64);
    }
    let _ = userfault.wake(span);
    Err(Stop::Changed)
}

/// How writers will be kept out in this process.
///
/// # Errors
/// There is no way: `EPERM` without the right to a userfaultfd, `ENOSYS` where the kernel can't move pages.
pub fn method(is_still: bool, takes_user_mode: bool) -> Result<Method, Errno> {
    match is_still {
        true => Ok(Method::Still),
        false => Userfault::open(takes_user_mode).map(|(_, method)| method),
    }
}

const _: () = assert!(CHUNK / 4096 <= MOST_PAGES && WINDOW.is_multiple_of(CHUNK));
