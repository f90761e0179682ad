//! Cuts work into tasks for a number of threads.
//!
//! The division of work never affects results: the result of a task depends on its index only.

use mlc_backends::workers;
pub use mlc_vector::SharedSlice;

/// How many threads a run takes: the one that calls, and others that help it.
pub struct Threads {
    count: usize,
}

impl Threads {
    /// `count` threads; 0 for one per core.
    pub fn new(count: usize) -> Threads {
        Threads { count: if count == 0 { workers::cores() } else { count } }
    }

    /// As many as the run takes that this thread computes in; outside of runs, one per core.
    pub fn of_run() -> Threads {
        Threads::new(workers::share())
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `f` as one run: what it computes in parallel takes so many threads in all.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        workers::enter(self.count, f)
    }

    /// Tasks that so much work is cut into, each of `grain` at least: where every thread has one, equally many for all.
    pub fn tasks(&self, work: usize, grain: usize) -> usize {
        let most = if self.count == 1 { 1 } else { self.count * 4 };
        match (work / grain.max(1)).clamp(1, most) {
            tasks if tasks > self.count => tasks / self.count * self.count,
            tasks => tasks,
        }
    }

    /// Calls `f` for every task, in any order.
    pub fn each(&self, tasks: usize, f: impl Fn(usize) + Sync) {
        workers::each(self.count, tasks, f);
    }

    /// Calls `f` with the index of its first element and each chunk of `data`, in any order. `grain` is the least useful
    /// number of elements per task, `align` what the chunk's length is a multiple of.
    pub fn chunks<T: Send>(
        &self,
        data: &mut [T],
        align: usize,
        grain: usize,
        f: impl Fn(usize, &mut [T]) + Sync,
    ) {
        if data.is_empty() {
            return;
        }
        let (align, len) = (align.max(1), data.len());
        let tasks = self.tasks(len, grain);
        let size = len.div_ceil(tasks).div_ceil(align).max(1) * align;
        let shared = SharedSlice::new(data);
        self.each(len.div_ceil(size), |i| {
            // SAFETY: every task has its own chunk.
            let chunk = unsafe { shared.part(i * size, size.min(len - i * size)) };
            f(i * size, chunk);
        });
    }
}
