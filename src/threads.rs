//! Work shared by threads, with results in the order of the tasks, whatever their number.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The results of `count` tasks.
pub fn map<T: Send>(threads: usize, count: usize, task: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let tasks = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        tasks.take_while(|i| *i < count).map(|i| (i, task(i))).collect::<Vec<_>>()
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, t)| t).collect()
}
