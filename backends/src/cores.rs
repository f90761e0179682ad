//! The workers' core affinity: any core of the process but their caller's.
//!
//! A scheduler may wake a thread on its waker's core while another core is idle: a hypervisor's guest can take a halted virtual core for a
//! busy one. The two then share a core until the load is balanced, longer than most runs take.
//!
//! Never fails: where the system lacks or refuses affinity, its scheduler decides.

#[cfg(target_os = "linux")]
pub use linux::Cores;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::Cores;

#[cfg(target_os = "linux")]
mod linux {
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    /// The cores of a set of workers.
    pub struct Cores {
        /// The core that is the caller's.
        taken: AtomicUsize,
        /// The workers, each with the cores that it may compute on.
        workers: Mutex<Vec<(Pid, CpuSet)>>,
    }

    impl Default for Cores {
        fn default() -> Cores {
            Cores { taken: AtomicUsize::new(usize::MAX), workers: Mutex::default() }
        }
    }

    impl Cores {
        /// Makes the thread that calls one of the workers, for as long as it lives.
        pub fn enrol(&self) {
            let Ok(all) = sched_getaffinity(None) else { return };
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.push((gettid(), all));
            keep_off(self.taken.load(Ordering::Relaxed), None, &all);
        }

        /// Sends the workers off the core that the calling thread computes on.
        pub fn leave_to_caller(&self) {
            let own = sched_getcpu();
            if self.taken.swap(own, Ordering::Relaxed) == own {
                return;
            }
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            for (worker, all) in workers.iter() {
                keep_off(own, Some(*worker), all);
            }
        }
    }

    /// Lets a thread, or the one that calls, compute on all these cores but one, if that leaves any.
    fn keep_off(taken: usize, thread: Option<Pid>, all: &CpuSet) {
        let mut left = *all;
        if taken < CpuSet::MAX_CPU {
            left.unset(taken);
        }
        if left.count() > 0 {
            // A system that refuses chooses the core itself.
            let _ = sched_setaffinity(thread, &left);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Where the process has one core there is nothing to leave.
        #[test]
        fn a_worker_leaves_the_core_of_its_caller() {
            let all = sched_getaffinity(None).expect("known");
            let cores = Cores::default();
            cores.leave_to_caller();
            let taken = cores.taken.load(Ordering::Relaxed);
            assert!(all.is_set(taken));
            let seen = std::thread::scope(|s| {
                let worker = s.spawn(|| {
                    cores.enrol();
                    sched_getaffinity(None).expect("known")
                });
                worker.join().expect("enrolled")
            });
            assert_eq!(seen.is_set(taken), all.count() == 1);
            assert_eq!(seen.count(), (all.count() - 1).max(1));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    /// The cores of a set of workers.
    #[derive(Default)]
    pub struct Cores;

    impl Cores {
        /// Nothing.
        pub fn enrol(&self) {}

        /// Nothing.
        pub fn leave_to_caller(&self) {}
    }
}
