//! Orders jobs so that the fewest bytes are alive at once.
//!
//! A job that all others precede or follow splits the problem; between such jobs the sets of finished jobs are
//! searched in order of their peak so far, as in Dijkstra's algorithm with the maximum in place of the sum. The search
//! is bounded by a number of sets; if that is reached, the best known order is kept, and the search still yields a lower bound for
//! every order. Knows bytes and dependencies, nothing of what jobs compute.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// A job: what it waits for, what it reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Jobs that precede it; all have smaller numbers.
    pub after: Vec<usize>,
    /// Buffers that it needs.
    pub reads: Vec<usize>,
    /// Buffers that it fills.
    pub writes: Vec<usize>,
}

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobBuffer {
    /// Size in bytes; alive from the first job that needs it to the last.
    pub bytes: u64,
    /// It is never given up.
    pub kept: bool,
}

/// Jobs in some order that respects what they wait for, and their buffers.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// What is to be ordered; jobs refer to each other by index.
    pub jobs: Vec<Job>,
    /// What jobs read and write, by index.
    pub cells: Vec<JobBuffer>,
}

/// An order of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The jobs by number.
    pub order: Vec<usize>,
    /// The most bytes alive at once.
    pub alive: u64,
    /// No order has fewer.
    pub least: u64,
}

/// Words that all searches together may look at: for a set of jobs done, one a job, and its size for each that may come next.
const WORK: usize = 4_000_000;

/// More jobs than this are left in the order they have.
const MOST: usize = 8192;

/// The best order found; the given one unless another has fewer bytes alive.
pub fn schedule(jobs: &Jobs) -> Schedule {
    let given: Vec<usize> = (0..jobs.jobs.len()).collect();
    let before = jobs.profile(&given);
    let local = jobs.least();
    let peak = before.iter().copied().max().unwrap_or(0);
    if peak <= local || given.len() > MOST {
        return Schedule { order: given, alive: peak, least: local.min(peak) };
    }
    let segments = jobs.segments();
    let most = |s: &(usize, usize)| before[s.0..s.1].iter().copied().max().unwrap_or(0);
    let mut by_peak: Vec<(usize, usize)> = segments.clone();
    by_peak.sort_by_key(|s| (Reverse(most(s)), s.0));
    let mut order = given;
    let (mut alive, mut least, mut left) = (0, local, WORK);
    for segment in by_peak {
        // A segment that stays below what another one needs is left alone.
        if most(&segment) <= alive {
            alive = alive.max(most(&segment));
            continue;
        }
        let mut part = JobRange::new(jobs, segment.0, segment.1);
        let found = part.best(&mut left, local.max(alive));
        order[segment.0..segment.1].copy_from_slice(&found.order);
        alive = alive.max(found.alive);
        least = least.max(found.least);
    }
    Schedule { order, alive, least: least.min(alive) }
}

impl Jobs {
    /// Jobs that need each buffer, those that fill it included.
    fn users(&self) -> Vec<Vec<usize>> {
        let mut users = vec![Vec::new(); self.cells.len()];
        for (j, job) in self.jobs.iter().enumerate() {
            for &c in job.reads.iter().chain(&job.writes) {
                if users[c].last() != Some(&j) {
                    users[c].push(j);
                }
            }
        }
        users
    }

    fn bytes(&self, cells: &[usize]) -> u64 {
        cells.iter().fold(0, |n, &c| n.saturating_add(self.cells[c].bytes))
    }

    /// The bytes alive during each job of an order.
    pub fn profile(&self, order: &[usize]) -> Vec<u64> {
        let mut left: Vec<usize> = self.users().iter().map(Vec::len).collect();
        let mut alive = 0u64;
        let mut out = Vec::with_capacity(order.len());
        for &j in order {
            alive = alive.saturating_add(self.bytes(&self.jobs[j].writes));
            out.push(alive);
            for c in distinct(&self.jobs[j]) {
                left[c] -= 1;
                if left[c] == 0 && !self.cells[c].kept {
                    alive = alive.saturating_sub(self.cells[c].bytes);
                }
            }
        }
        out
    }

    /// What every order needs: at each job all it reads and writes, in the end all that is kept.
    pub fn least(&self) -> u64 {
        let at = |j: &Job| self.bytes(&distinct(j));
        let kept = (0..self.cells.len()).filter(|&c| self.cells[c].kept).collect::<Vec<_>>();
        self.jobs.iter().map(at).max().unwrap_or(0).max(self.bytes(&kept))
    }

    /// Ranges of jobs, each of which comes before the next in every order.
    fn segments(&self) -> Vec<(usize, usize)> {
        let n = self.jobs.len();
        let words = n.div_ceil(64);
        let mut before = vec![0u64; n * words];
        // For each job, how many of the later ones wait for it, and for how many it waits itself.
        let mut waiting = vec![0usize; n];
        let mut count = vec![0usize; n];
        for (j, job) in self.jobs.iter().enumerate() {
            let (done, rest) = before.split_at_mut(j * words);
            let row = &mut rest[..words];
            for &d in &job.after {
                row.iter_mut().zip(&done[d * words..][..words]).for_each(|(a, b)| *a |= b);
                row[d / 64] |= 1 << (d % 64);
            }
            for (d, w) in waiting.iter_mut().enumerate().take(j) {
                if row[d / 64] >> (d % 64) & 1 == 1 {
                    *w += 1;
                    count[j] += 1;
                }
            }
        }
        let mut out = Vec::new();
        let mut start = 0;
        for j in 0..n {
            if count[j] == j && waiting[j] == n - 1 - j {
                out.push((start, j + 1));
                start = j + 1;
            }
        }
        if start < n {
            out.push((start, n));
        }
        out
    }
}

/// The buffers that a job needs, each once.
fn distinct(job: &Job) -> Vec<usize> {
    let mut seen = HashSet::new();
    job.reads.iter().chain(&job.writes).copied().filter(|c| seen.insert(*c)).collect()
}

/// A range of jobs between two cuts.
struct JobRange {
    start: usize,
    count: usize,
    /// Jobs of the part that each job waits for, counted from the part's first.
    after: Vec<Vec<usize>>,
    /// The buffers that each job needs and that die within the part, each once, counted from the part's first.
    cells: Vec<Vec<usize>>,
    /// Bytes of these buffers.
    bytes: Vec<u64>,
    /// Bytes that each job adds.
    adds: Vec<u64>,
    /// Bytes alive when the part begins.
    entry: u64,
}

/// A set of jobs done.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Box<[u64]>);

impl Done {
    fn has(&self, j: usize) -> bool {
        self.0[j / 64] >> (j % 64) & 1 == 1
    }

    fn with(&self, j: usize) -> Done {
        let mut out = self.clone();
        out.0[j / 64] |= 1 << (j % 64);
        out
    }
}

/// What is known of a set of jobs done.
struct State {
    done: Done,
    alive: u64,
    peak: u64,
    /// The state before and the job that leads here.
    from: Option<(usize, usize)>,
}

impl JobRange {
    fn new(jobs: &Jobs, start: usize, end: usize) -> JobRange {
        let count = end - start;
        let inside = |j: usize| (start..end).contains(&j);
        let mut cells = vec![Vec::new(); count];
        let (mut bytes, mut entry) = (Vec::new(), 0u64);
        for (c, users) in jobs.users().iter().enumerate() {
            let (Some(&first), Some(&last)) = (users.first(), users.last()) else { continue };
            let cell = jobs.cells[c];
            if first < start && (last >= start || cell.kept) {
                entry = entry.saturating_add(cell.bytes);
            }
            if !cell.kept && inside(last) {
                users
                    .iter()
                    .filter(|&&j| inside(j))
                    .for_each(|&j| cells[j - start].push(bytes.len()));
                bytes.push(cell.bytes);
            }
        }
        let after = |j: usize| {
            let deps = jobs.jobs[j].after.iter();
            deps.filter(|&&d| inside(d)).map(|d| d - start).collect()
        };
        JobRange {
            start,
            count,
            after: (start..end).map(after).collect(),
            cells,
            bytes,
            adds: (start..end).map(|j| jobs.bytes(&jobs.jobs[j].writes)).collect(),
            entry,
        }
    }

    /// The best order of the part. What lies at or below `enough` need not be bettered.
    fn best(&mut self, left: &mut usize, enough: u64) -> Schedule {
        let given: Vec<usize> = (0..self.count).collect();
        let mut best = (self.peak(&given), given);
        for rule in [JobChoice::Net, JobChoice::Peak, JobChoice::Deep] {
            let order = self.listed(rule);
            let peak = self.peak(&order);
            if peak < best.0 {
                best = (peak, order);
            }
        }
        let (better, least) = match best.0 > enough {
            true => self.search(left, best.0, enough),
            false => (None, 0),
        };
        let (alive, order) = better.unwrap_or(best);
        let order = order.into_iter().map(|j| j + self.start).collect();
        Schedule { order, alive, least: least.min(alive) }
    }

    fn peak(&self, order: &[usize]) -> u64 {
        let mut users = self.users(&self.nothing());
        let (mut alive, mut peak) = (self.entry, self.entry);
        for &j in order {
            peak = peak.max(alive.saturating_add(self.adds[j]));
            alive = alive.saturating_add(self.adds[j]).saturating_sub(self.freed(&users, j));
            self.cells[j].iter().for_each(|&c| users[c] -= 1);
        }
        peak
    }

    fn nothing(&self) -> Done {
        Done(vec![0; self.count.div_ceil(64)].into())
    }

    fn ready(&self, done: &Done) -> Vec<usize> {
        let free = |j: &usize| !done.has(*j) && self.after[*j].iter().all(|&d| done.has(d));
        (0..self.count).filter(free).collect()
    }

    /// How many jobs still need each buffer.
    fn users(&self, done: &Done) -> Vec<usize> {
        let mut users = vec![0; self.bytes.len()];
        let left = (0..self.count).filter(|&j| !done.has(j));
        left.flat_map(|j| &self.cells[j]).for_each(|&c| users[c] += 1);
        users
    }

    /// The bytes that are no longer needed once job `j` is done, too.
    fn freed(&self, users: &[usize], j: usize) -> u64 {
        let dies = self.cells[j].iter().filter(|&&c| users[c] == 1);
        dies.fold(0, |n, &c| n.saturating_add(self.bytes[c]))
    }

    /// One job after another by a rule.
    fn listed(&self, rule: JobChoice) -> Vec<usize> {
        let mut missing: Vec<usize> = self.after.iter().map(|a| distinct_count(a)).collect();
        let mut next: Vec<Vec<usize>> = vec![vec![]; self.count];
        for (j, list) in self.after.iter().enumerate() {
            let mut seen = HashSet::new();
            list.iter().filter(|d| seen.insert(**d)).for_each(|&d| next[d].push(j));
        }
        let mut ready: Vec<usize> = (0..self.count).filter(|&j| missing[j] == 0).collect();
        let mut since = vec![0usize; self.count];
        let mut users = self.users(&self.nothing());
        let mut order = Vec::with_capacity(self.count);
        while !ready.is_empty() {
            let key = |j: usize| {
                let (adds, freed) = (self.adds[j] as i128, self.freed(&users, j) as i128);
                match rule {
                    JobChoice::Net => (adds - freed, adds, j),
                    JobChoice::Peak => (adds, adds - freed, j),
                    JobChoice::Deep => (-(since[j] as i128), adds - freed, j),
                }
            };
            let at = (0..ready.len()).min_by_key(|&i| key(ready[i])).unwrap_or(0);
            let j = ready.swap_remove(at);
            order.push(j);
            self.cells[j].iter().for_each(|&c| users[c] -= 1);
            for &n in &next[j] {
                missing[n] -= 1;
                if missing[n] == 0 {
                    since[n] = order.len();
                    ready.push(n);
                }
            }
        }
        order
    }

    /// An order with a peak below `bar`, the least or one that is `enough`; and what every order needs.
    fn search(&self, left: &mut usize, bar: u64, enough: u64) -> (Option<(u64, Vec<usize>)>, u64) {
        let mut states =
            vec![State { done: self.nothing(), alive: self.entry, peak: self.entry, from: None }];
        let mut known: HashMap<Done, u64> = HashMap::new();
        let mut heap =
            BinaryHeap::from([(Reverse(self.entry.max(enough)), 0usize, Reverse(0usize))]);
        // What is enough for this part says nothing of other orders.
        let shown = |bound: u64| if bound > enough { bound } else { 0 };
        while let Some((Reverse(bound), depth, Reverse(at))) = heap.pop() {
            if depth == self.count {
                return (Some((states[at].peak, self.trace(&states, at))), shown(bound));
            }
            if *left == 0 {
                return (None, shown(bound));
            }
            let (done, alive, peak) = (states[at].done.clone(), states[at].alive, states[at].peak);
            if known.get(&done).is_some_and(|&p| p < bound) {
                continue;
            }
            let users = self.users(&done);
            let moves: Vec<(usize, u64, u64)> = self
                .ready(&done)
                .into_iter()
                .map(|j| {
                    let during = alive.saturating_add(self.adds[j]);
                    (j, during, during.saturating_sub(self.freed(&users, j)))
                })
                .collect();
            // A job that needs no more than was needed before, and leaves no more alive, may come at once.
            let free = moves.iter().position(|m| m.1 <= bound && m.2 <= alive);
            let moves = match free {
                Some(i) => &moves[i..=i],
                None => &moves[..],
            };
            *left = left.saturating_sub(self.count + moves.len() * done.0.len());
            for &(j, during, after) in moves {
                let peak = peak.max(during);
                if peak >= bar {
                    continue;
                }
                let next = done.with(j);
                if known.get(&next).is_some_and(|&p| p <= peak.max(enough)) {
                    continue;
                }
                known.insert(next.clone(), peak.max(enough));
                states.push(State { done: next, alive: after, peak, from: Some((at, j)) });
                heap.push((Reverse(peak.max(enough)), depth + 1, Reverse(states.len() - 1)));
            }
        }
        // Nothing below the bar is left.
        (None, bar)
    }

    fn trace(&self, states: &[State], mut at: usize) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.count);
        while let Some((before, j)) = states[at].from {
            order.push(j);
            at = before;
        }
        order.reverse();
        order
    }
}

fn distinct_count(list: &[usize]) -> usize {
    list.iter().collect::<HashSet<_>>().len()
}

/// Which ready job comes next.
#[derive(Clone, Copy)]
enum JobChoice {
    /// The one that leaves the fewest bytes.
    Net,
    /// The one that needs the fewest bytes.
    Peak,
    /// The one that became ready last.
    Deep,
}
