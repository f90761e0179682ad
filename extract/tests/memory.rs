//! Kernel order and buffer placement: against brute force on small graphs, and invariants of all of them.

use mlc_dsl::plan::arena::{self, Buffer};
use mlc_extract::resources::schedule::{Job, JobBuffer, Jobs, schedule};
use proptest::prelude::*;

/// Jobs that each write up to two buffers and read some of those before them; some buffers are kept, some jobs only wait.
fn jobs(most: usize) -> impl Strategy<Value = Jobs> {
    let job = (
        prop::collection::vec((1..40u64, prop::bool::weighted(0.15)), 0..=2),
        prop::collection::vec(any::<prop::sample::Index>(), 0..=3),
        prop::collection::vec(any::<prop::sample::Index>(), 0..=1),
    );
    prop::collection::vec(job, 1..=most).prop_map(|rows| {
        let mut out = Jobs::default();
        let mut writer: Vec<usize> = Vec::new();
        for (j, (writes, reads, waits)) in rows.into_iter().enumerate() {
            let mut job = Job::default();
            if !writer.is_empty() {
                job.reads = reads.iter().map(|i| i.index(writer.len())).collect();
                job.reads.sort_unstable();
                job.reads.dedup();
                job.after = job.reads.iter().map(|&c| writer[c]).collect();
            }
            if j > 0 {
                job.after.extend(waits.iter().map(|i| i.index(j)));
            }
            job.after.sort_unstable();
            job.after.dedup();
            for (bytes, kept) in writes {
                job.writes.push(out.cells.len());
                out.cells.push(JobBuffer { bytes: bytes * 64, kept });
                writer.push(j);
            }
            out.jobs.push(job);
        }
        out
    })
}

/// The least peak of all orders, by trying every one of them.
fn brute_force(jobs: &Jobs) -> u64 {
    fn walk(jobs: &Jobs, order: &mut Vec<usize>, best: &mut u64) {
        if order.len() == jobs.jobs.len() {
            *best = (*best).min(peak(jobs, order));
            return;
        }
        for j in 0..jobs.jobs.len() {
            if !order.contains(&j) && jobs.jobs[j].after.iter().all(|d| order.contains(d)) {
                order.push(j);
                walk(jobs, order, best);
                order.pop();
            }
        }
    }
    let mut best = u64::MAX;
    walk(jobs, &mut Vec::new(), &mut best);
    best
}

/// The most bytes alive at once, counted afresh before and after every job.
fn peak(jobs: &Jobs, order: &[usize]) -> u64 {
    let place = |j: usize| order.iter().position(|&k| k == j).expect("every job is in the order");
    let ends = |c: usize| {
        let uses = |j: &Job| j.reads.contains(&c) || j.writes.contains(&c);
        (0..jobs.jobs.len()).filter(|&j| uses(&jobs.jobs[j])).map(place).max()
    };
    let starts = |c: usize| (0..jobs.jobs.len()).find(|&j| jobs.jobs[j].writes.contains(&c));
    let alive = |at: usize| -> u64 {
        let is_alive = |c: usize| {
            let begun = starts(c).is_some_and(|j| place(j) <= at);
            begun && (jobs.cells[c].kept || ends(c).is_some_and(|e| e >= at))
        };
        (0..jobs.cells.len()).filter(|&c| is_alive(c)).map(|c| jobs.cells[c].bytes).sum()
    };
    (0..order.len()).map(alive).max().unwrap_or(0)
}

fn respects(jobs: &Jobs, order: &[usize]) -> bool {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted == (0..jobs.jobs.len()).collect::<Vec<_>>()
        && order
            .iter()
            .enumerate()
            .all(|(at, &j)| jobs.jobs[j].after.iter().all(|d| order[..at].contains(d)))
}

fn buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let buffer = (0..20usize, 0..8usize, 0..5000u64).prop_map(|(start, length, bytes)| Buffer {
        start,
        end: start + length,
        bytes,
    });
    prop::collection::vec(buffer, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn small_graphs_get_the_best_order(jobs in jobs(8)) {
        let found = schedule(&jobs);
        prop_assert!(respects(&jobs, &found.order), "{:?}", found.order);
        prop_assert_eq!(found.alive, peak(&jobs, &found.order));
        let best = brute_force(&jobs);
        prop_assert_eq!(found.alive, best);
        prop_assert!(found.least <= best, "{} is no bound of {best}", found.least);
    }

    #[test]
    fn large_graphs_get_an_order_no_worse(jobs in jobs(60)) {
        let given: Vec<usize> = (0..jobs.jobs.len()).collect();
        let found = schedule(&jobs);
        prop_assert!(respects(&jobs, &found.order), "{:?}", found.order);
        prop_assert_eq!(found.alive, peak(&jobs, &found.order));
        prop_assert!(found.alive <= peak(&jobs, &given));
        prop_assert!(found.least <= found.alive);
        prop_assert_eq!(&schedule(&jobs), &found);
    }

    #[test]
    fn live_buffers_do_not_overlap(buffers in buffers()) {
        let arena = arena::place(&buffers);
        apart(&buffers, &arena);
        prop_assert!(arena.bytes >= arena::alive(&buffers));
        prop_assert!(arena.bytes <= buffers.iter().map(Buffer::size).sum());
        prop_assert_eq!(arena::place(&buffers), arena);
    }
}

/// Jobs of one buffer each, with the jobs whose buffers they read.
fn chain(rows: &[(u64, &[usize])]) -> Jobs {
    let last = rows.len() - 1;
    Jobs {
        jobs: rows
            .iter()
            .enumerate()
            .map(|(j, (_, reads))| Job {
                after: reads.to_vec(),
                reads: reads.to_vec(),
                writes: vec![j],
            })
            .collect(),
        cells: rows
            .iter()
            .enumerate()
            .map(|(j, (bytes, _))| JobBuffer { bytes: bytes * 64, kept: j == last })
            .collect(),
    }
}

#[test]
fn a_branch_is_finished_before_the_next_begins() {
    // Two branches, each large inside and small in the end; side by side both large values are alive.
    let jobs = chain(&[(1, &[]), (10, &[0]), (10, &[0]), (1, &[1]), (1, &[2]), (1, &[3, 4])]);
    let found = schedule(&jobs);
    assert_eq!(peak(&jobs, &[0, 1, 2, 3, 4, 5]) / 64, 21);
    assert_eq!((found.alive / 64, found.least / 64), (12, 12), "{:?}", found.order);
}

#[test]
fn orders_that_are_best_stay() {
    let jobs = chain(&[(4, &[]), (4, &[0]), (4, &[1]), (4, &[2, 0])]);
    assert_eq!(schedule(&jobs).order, [0, 1, 2, 3]);
}

#[test]
fn deep_networks_of_branches_are_searched_piece_by_piece() {
    // A hundred blocks of four branches, each written breadth first.
    let mut rows: Vec<(u64, Vec<usize>)> = vec![(1, vec![])];
    for _ in 0..100 {
        let entry = rows.len() - 1;
        (0..4).for_each(|_| rows.push((10, vec![entry])));
        (0..4).for_each(|b| rows.push((1, vec![entry + 1 + b])));
        rows.push((1, (0..4).map(|b| entry + 5 + b).collect()));
    }
    let rows: Vec<(u64, &[usize])> = rows.iter().map(|(b, r)| (*b, r.as_slice())).collect();
    let jobs = chain(&rows);
    let found = schedule(&jobs);
    assert!(respects(&jobs, &found.order));
    assert_eq!((found.alive / 64, found.least / 64), (14, 14));
}

#[test]
fn a_placement_is_compact_where_the_first_fit_is_not() {
    let life = |start, end, blocks: u64| Buffer { start, end, bytes: blocks * 64 };
    // In order of time the third buffer finds a gap that is too small.
    let buffers = [life(0, 1, 2), life(1, 3, 3), life(2, 4, 4), life(4, 5, 5)];
    assert_eq!(arena::place(&buffers).bytes, arena::alive(&buffers));
}

/// Asserts that no two buffers overlap that are alive at one time, and that all lie in the block.
fn apart(buffers: &[Buffer], arena: &arena::Arena) {
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].bytes > 0).collect();
    order.sort_by_key(|&i| arena.offsets[i]);
    for (at, &i) in order.iter().enumerate() {
        let (a, end) = (&buffers[i], arena.offsets[i] + buffers[i].bytes);
        assert_eq!(arena.offsets[i] % arena::ALIGN, 0);
        assert!(end <= arena.bytes);
        for &j in order[at + 1..].iter().take_while(|&&j| arena.offsets[j] < end) {
            let b = &buffers[j];
            assert!(a.start > b.end || b.start > a.end, "{i} and {j}");
        }
    }
}

/// Long programs are placed in one sweep: no overlap, close to what is alive, and quickly.
#[test]
fn many_buffers_are_placed_in_one_sweep() {
    let mut state = 1u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let buffers: Vec<Buffer> = (0..20_000)
        .map(|start| Buffer {
            start,
            end: start + below(40) as usize,
            bytes: below(5) * below(1000),
        })
        .collect();
    let arena = arena::place(&buffers);
    apart(&buffers, &arena);
    assert!(arena.bytes < 2 * arena::alive(&buffers), "{} bytes", arena.bytes);
    let chain: Vec<Buffer> =
        (0..100_000).map(|start| Buffer { start, end: start + 1, bytes: 64 }).collect();
    assert_eq!(arena::place(&chain).bytes, 128);
}
