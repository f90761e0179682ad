//! The process-wide thread pool, started on first use. Sessions have no threads of their own, so several at once never oversubscribe the
//! cores.
//!
//! Never decides how work is divided, nor what a task computes: results do not depend on who computes them.
//!
//! A parallel region is open while its caller computes it. A helper starts with its own range of tasks, the same in every region, so that its
//! cache is warm, and then steals from the other ranges. A forked process starts its own threads. Between regions a worker spins briefly before
//! it sleeps: waking costs more than most regions. A region's caller keeps its core to itself (`cores.rs`).

use crate::cores::Cores;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread waits awake: a worker for another region, a caller for those who still help.
const AWAKE: Duration = Duration::from_micros(200);

/// Ranges that the tasks of a region are cut into at most.
const RANGES: usize = 32;

/// Those of this process; null before work is first shared. Never freed: workers live as long as their process.
static SHARED: AtomicPtr<Workers> = AtomicPtr::new(std::ptr::null_mut());

/// Those of this process.
fn shared() -> &'static Workers {
    // SAFETY: what is not null was leaked below.
    match unsafe { SHARED.load(Ordering::Acquire).as_ref() } {
        Some(workers) => workers,
        None => first(),
    }
}

/// The child of a fork starts workers of its own.
extern "C" fn forget() {
    SHARED.store(std::ptr::null_mut(), Ordering::Release);
}

#[cold]
fn first() -> &'static Workers {
    static FORKS: Once = Once::new();
    // Work that the fork interrupts in the parent does not go on in the child, so nobody there holds the parent's set.
    FORKS.call_once(|| crate::forks::in_child(forget));
    let new = Box::into_raw(Box::new(Workers::new(cores())));
    let null = std::ptr::null_mut();
    match SHARED.compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was made above, and is not freed any more.
        Ok(_) => unsafe { &*new },
        Err(_) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            shared()
        }
    }
}

thread_local! {
    /// How many threads the work of this thread may take, itself included; `None` outside of a run.
    static SHARE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// One thread per core.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    *CORES
}

/// How many threads the work of this thread may take, itself included.
pub fn share() -> usize {
    SHARE.get().unwrap_or_else(cores)
}

/// Calls `f` as a run of `threads` threads: until it returns, this thread counts as one that is at work.
pub fn enter<R>(threads: usize, f: impl FnOnce() -> R) -> R {
    shared().enter(threads, f)
}

/// Calls `f` for every task, in any order, on this thread and on those that help.
pub fn each(threads: usize, tasks: usize, f: impl Fn(usize) + Sync) {
    shared().each(threads, tasks, &f);
}

/// The same on as many threads as this one may take, for tasks that can fail: the error of the first of those that do.
pub fn try_each<E: Send>(tasks: usize, f: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
    let failed: Mutex<Option<(usize, E)>> = Mutex::new(None);
    let lock = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let first = AtomicUsize::new(usize::MAX);
    each(share(), tasks, |i| {
        if i < first.load(Ordering::Relaxed)
            && let Err(e) = f(i)
        {
            let mut failed = lock();
            if failed.as_ref().is_none_or(|(known, _)| i < *known) {
                *failed = Some((i, e));
                first.store(i, Ordering::Relaxed);
            }
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, e)) => Err(e),
        None => Ok(()),
    }
}

/// What a region calls with the number of each task.
type Task<'a> = &'a (dyn Fn(usize) + Sync + 'a);

/// A set of workers.
pub struct Workers {
    /// Most threads at work at once, callers among them.
    cores: usize,
    /// Threads at work: in a run, or helping.
    busy: AtomicUsize,
    /// Regions opened so far: what a worker that waits awake watches.
    opened: AtomicUsize,
    state: Mutex<State>,
    /// Where the workers compute.
    places: Cores,
    /// A region was opened.
    wake: Condvar,
    /// The last helper has left a region whose caller sleeps.
    left: Condvar,
}

#[derive(Default)]
struct State {
    open: Vec<Region>,
    /// Progress of closed regions, for the next ones.
    spare: Vec<Arc<Progress>>,
    started: usize,
    /// Workers that wait awake.
    awake: usize,
    /// Workers that sleep.
    asleep: usize,
}

/// How a region is divided.
#[derive(Clone, Copy)]
struct RegionExtents {
    tasks: usize,
    ranges: usize,
    /// How many workers may help.
    seats: usize,
    /// What each participant's own regions may take.
    share: usize,
}

/// An open region.
#[derive(Clone)]
struct Region {
    /// Valid while the region is open or somebody is inside.
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    ranges: usize,
    /// How many more may help.
    seats: usize,
    /// What each participant's own regions may take.
    share: usize,
    progress: Arc<Progress>,
}

// SAFETY: the task is `Sync`, and its caller does not return before all who hold a region have left it.
unsafe impl Send for Region {}

/// A counter that shares its cache line with nothing.
#[derive(Default)]
#[repr(align(64))]
struct Next(AtomicUsize);

/// How far a region is.
#[derive(Default)]
struct Progress {
    /// The next task of each range.
    next: [Next; RANGES],
    /// Helpers inside.
    inside: AtomicUsize,
    /// The caller sleeps until nobody is inside.
    asleep: AtomicBool,
    /// What a helper's task panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Region {
    fn range(&self, range: usize) -> std::ops::Range<usize> {
        let edge = |i: usize| (self.tasks as u128 * i as u128 / self.ranges as u128) as usize;
        edge(range)..edge(range + 1)
    }

    /// Starts from the first task again. Nobody else knows the progress yet.
    fn begin(&self) {
        for (r, next) in self.progress.next.iter().enumerate().take(self.ranges) {
            next.0.store(self.range(r).start, Ordering::Relaxed);
        }
    }

    fn has_tasks(&self) -> bool {
        let mut ranges = 0..self.ranges;
        ranges.any(|r| self.progress.next[r].0.load(Ordering::Relaxed) < self.range(r).end)
    }

    /// Calls the task for what nobody has taken yet, own range first, as long as `goes_on`.
    fn compute(&self, own: usize, task: Task<'_>, goes_on: impl Fn() -> bool) {
        for r in (0..self.ranges).map(|i| (own + i) % self.ranges) {
            let end = self.range(r).end;
            let next = &self.progress.next[r].0;
            while next.load(Ordering::Relaxed) < end {
                if !goes_on() {
                    return;
                }
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= end {
                    break;
                }
                task(i);
            }
        }
    }
}

impl Workers {
    fn new(cores: usize) -> Workers {
        Workers {
            cores,
            busy: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            state: Mutex::default(),
            places: Cores::default(),
            wake: Condvar::new(),
            left: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter<R>(&self, threads: usize, f: impl FnOnce() -> R) -> R {
        struct Leave<'a>(&'a Workers, Option<usize>);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                SHARE.set(self.1);
                if self.1.is_none() {
                    self.0.busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        let outer = SHARE.get();
        SHARE.set(Some(outer.map_or(threads, |share| share.min(threads)).max(1)));
        if outer.is_none() {
            self.busy.fetch_add(1, Ordering::Relaxed);
        }
        let _leave = Leave(self, outer);
        f()
    }

    fn each(&'static self, threads: usize, tasks: usize, task: Task<'_>) {
        if tasks < 2 || threads < 2 || self.cores < 2 {
            return (0..tasks).for_each(task);
        }
        self.enter(threads, || {
            let share = SHARE.get().unwrap_or(1);
            let ranges = share.min(tasks);
            let free = self.cores.saturating_sub(self.busy.load(Ordering::Relaxed));
            match (ranges - 1).min(free) {
                0 => (0..tasks).for_each(task),
                seats => {
                    let share = share / ranges;
                    let extents = RegionExtents { tasks, ranges: ranges.min(RANGES), seats, share };
                    self.region(extents, task);
                }
            }
        });
    }

    /// Computes a region with up to `seats` helpers.
    fn region(&'static self, extents: RegionExtents, task: Task<'_>) {
        struct Close<'a>(&'a Workers, &'a Region, Option<usize>);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                SHARE.set(self.2);
                self.0.close(self.1);
            }
        }
        // SAFETY: only the lifetime changes. `Close` ends the region, and waits for who is inside, before the task is gone.
        let task_of_region = unsafe {
            std::mem::transmute::<Task<'_>, Task<'static>>(task) as *const (dyn Fn(usize) + Sync)
        };
        let region = self.open(extents, task_of_region);
        let progress = region.progress.clone();
        {
            let _close = Close(self, &region, SHARE.replace(Some(extents.share)));
            region.compute(0, task, || true);
        }
        let panicked = progress.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.state().spare.push(progress);
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Makes a region known to the workers, and sees to it that enough of them are awake.
    fn open(
        &'static self,
        RegionExtents { tasks, ranges, seats, share }: RegionExtents,
        task: *const (dyn Fn(usize) + Sync),
    ) -> Region {
        let mut state = self.state();
        let progress = state.spare.pop().unwrap_or_default();
        let region = Region { task, tasks, ranges, seats, share, progress };
        region.begin();
        state.open.push(region.clone());
        // Of several callers the first has its core for itself: workers that were sent to and fro would help nobody.
        if state.open.len() == 1 {
            self.places.leave_to_caller();
        }
        self.opened.fetch_add(1, Ordering::Release);
        let wanted = seats.saturating_sub(state.awake);
        let woken = wanted.min(state.asleep);
        // Who is at work elsewhere joins the next region.
        let missing = (wanted - woken).min((self.cores - 1).saturating_sub(state.started));
        let started = state.started;
        state.started += missing;
        drop(state);
        (0..woken).for_each(|_| self.wake.notify_one());
        for number in started..started + missing {
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            // Where no thread can be started the caller computes everything itself, and no other is tried.
            drop(thread.spawn(move || self.work(number)));
        }
        region
    }

    /// Ends a region: lets nobody in, and waits for those inside.
    fn close(&self, region: &Region) {
        let progress = &region.progress;
        let mut state = self.state();
        state.open.retain(|r| !Arc::ptr_eq(&r.progress, progress));
        drop(state);
        let is_empty = || progress.inside.load(Ordering::SeqCst) == 0;
        if wait_awake(is_empty) {
            return;
        }
        progress.asleep.store(true, Ordering::SeqCst);
        let mut state = self.state();
        while !is_empty() {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        progress.asleep.store(false, Ordering::SeqCst);
    }

    /// A worker's life.
    fn work(&self, number: usize) {
        let mut awake = false;
        self.places.enrol();
        loop {
            let opened = self.opened.load(Ordering::Acquire);
            match self.join(&mut awake) {
                Some(region) => self.help(number, region),
                None => {
                    if !wait_awake(|| self.opened.load(Ordering::Relaxed) != opened) {
                        self.sleep(opened);
                        awake = false;
                    }
                }
            }
        }
    }

    /// A region with work and a seat, if another thread may be at work; else the worker counts as `awake`.
    fn join(&self, awake: &mut bool) -> Option<Region> {
        let mut state = self.state();
        let is_free = self.busy.load(Ordering::Relaxed) < self.cores;
        let mut open = state.open.iter_mut();
        let found = open.find(|r| is_free && r.seats > 0 && r.has_tasks()).map(|r| {
            r.seats -= 1;
            r.progress.inside.fetch_add(1, Ordering::Relaxed);
            self.busy.fetch_add(1, Ordering::Relaxed);
            r.clone()
        });
        match (found.is_some(), *awake) {
            (true, true) => state.awake -= 1,
            (false, false) => state.awake += 1,
            (true, false) | (false, true) => {}
        }
        *awake = found.is_none();
        found
    }

    fn help(&self, number: usize, region: Region) {
        SHARE.set(Some(region.share));
        // SAFETY: the worker is inside the region, so its caller waits.
        let task = unsafe { &*region.task };
        let goes_on = || self.busy.load(Ordering::Relaxed) <= self.cores;
        let own = 1 + number % (region.ranges - 1).max(1);
        let done = catch_unwind(AssertUnwindSafe(|| region.compute(own, task, goes_on)));
        SHARE.set(None);
        let progress = &region.progress;
        if let Err(panic) = done {
            *progress.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let last = progress.inside.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && progress.asleep.load(Ordering::SeqCst) {
            drop(self.state());
            self.left.notify_all();
        }
    }

    /// Sleeps until there is another region than the first `opened`.
    fn sleep(&self, opened: usize) {
        let mut state = self.state();
        state.awake -= 1;
        state.asleep += 1;
        while self.opened.load(Ordering::Relaxed) == opened {
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep -= 1;
    }
}

/// Waits for a moment; true as soon as `is_over`.
fn wait_awake(is_over: impl Fn() -> bool) -> bool {
    let mut began = None;
    loop {
        for _ in 0..64 {
            if is_over() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.get_or_insert_with(Instant::now).elapsed() > AWAKE {
            return is_over();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread::ThreadId;

    fn of(cores: usize) -> &'static Workers {
        Box::leak(Box::new(Workers::new(cores)))
    }

    fn counted(tasks: usize) -> Vec<AtomicUsize> {
        (0..tasks).map(|_| AtomicUsize::new(0)).collect()
    }

    fn all_once(counts: &[AtomicUsize]) -> bool {
        counts.iter().all(|c| c.load(Ordering::Relaxed) == 1)
    }

    #[test]
    fn every_task_is_computed_once() {
        for cores in [1, 2, 4] {
            let workers = of(cores);
            for threads in [1, 2, 3, 8, 100] {
                for tasks in [0, 1, 2, 7, 64, 1000] {
                    let counts = counted(tasks);
                    workers.each(threads, tasks, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(all_once(&counts), "{cores} cores, {threads} threads, {tasks} tasks");
                }
            }
            let state = workers.state();
            assert!(state.started < cores, "a worker for each other core at most");
            assert!(state.open.is_empty());
        }
    }

    #[test]
    fn threads_that_nothing_needs_are_not_started() {
        let workers = of(4);
        workers.enter(8, || workers.each(8, 1, &|_| ()));
        workers.enter(1, || workers.each(8, 100, &|_| ()));
        assert_eq!(workers.state().started, 0);
        workers.each(2, 100, &|_| ());
        assert_eq!(workers.state().started, 1);
    }

    /// Tasks that wait for each other: each needs a thread of its own.
    fn together(workers: &'static Workers, threads: usize) {
        let met = AtomicUsize::new(0);
        workers.each(threads, threads, &|_| {
            met.fetch_add(1, Ordering::SeqCst);
            while met.load(Ordering::SeqCst) < threads {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn as_many_threads_as_are_asked_for_work_at_once() {
        let workers = of(4);
        (0..50).for_each(|i| together(workers, 2 + i % 3));
        assert_eq!(workers.busy.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn regions_inside_tasks_share_what_the_run_takes() {
        let workers = of(8);
        let counts = counted(40);
        let seen: Mutex<HashSet<ThreadId>> = Mutex::default();
        workers.each(2, 2, &|outer| {
            assert_eq!(share(), 1);
            workers.each(2, 20, &|inner| {
                seen.lock().expect("sound").insert(std::thread::current().id());
                counts[outer * 20 + inner].fetch_add(1, Ordering::Relaxed);
            });
        });
        assert!(all_once(&counts));
        assert!(seen.lock().expect("sound").len() <= 2);
        workers.each(8, 2, &|_| {
            assert_eq!(share(), 4);
            together(workers, 2);
        });
    }

    #[test]
    fn runs_at_once_take_no_more_threads_than_cores() {
        let workers = of(2);
        let gate = std::sync::Barrier::new(2);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    workers.enter(2, || {
                        gate.wait();
                        let own = std::thread::current().id();
                        workers.each(2, 100, &|_| assert_eq!(std::thread::current().id(), own));
                        gate.wait();
                    });
                });
            }
        });
        assert_eq!(workers.state().started, 0);
        together(workers, 2);
    }

    #[test]
    fn a_panic_of_a_task_reaches_the_caller_after_all_others_are_done() {
        let workers = of(3);
        for bad in [0, 1, 99] {
            let done = catch_unwind(AssertUnwindSafe(|| {
                workers.each(3, 100, &|i| assert_ne!(i, bad, "this one"));
            }));
            let panic = done.expect_err("a task panics");
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.contains("this one"), "{message}");
            together(workers, 3);
            assert!(workers.state().open.is_empty());
        }
    }

    #[test]
    fn the_first_of_several_errors_counts() {
        for _ in 0..20 {
            assert_eq!(try_each(100, |i| if i % 30 == 29 { Err(i) } else { Ok(()) }), Err(29));
        }
        assert_eq!(try_each(100, |_| Ok::<(), ()>(())), Ok(()));
    }
}
