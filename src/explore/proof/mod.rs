//! Proofs: why two logged terms are equal, found from the log alone.
//!
//! A congruence closure that keeps a proof forest (Nieuwenhuis and Oliveras, 2005), built over the
//! logged terms and equations. It shares no code with the e-graph that found the equations, so a proof
//! that it yields is a check of what egg did.

mod attribution;
mod introductions;
pub(crate) mod log;
mod replay;
mod sides;

use super::graph::language::Head;
use log::{Equation, LogId, ProofLog, Reason};
use std::collections::{BTreeSet, HashMap};

pub use sides::Sides;

/// One equation that a proof rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProofStep {
    /// Index among the asserted equations: earlier ones never rest on later ones.
    pub step: usize,
    /// Why it holds.
    pub reason: Reason,
    /// One side.
    pub left: LogId,
    /// The other side.
    pub right: LogId,
    /// The round that found it.
    pub round: u32,
}

/// The equations that make two terms equal, in the order they were found.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Each equation once.
    pub steps: Vec<ProofStep>,
}

/// Why an edge of the forest holds.
#[derive(Clone, Copy, Debug)]
enum Edge {
    /// The asserted equation of that index.
    Equation(usize),
    /// Both ends are the same operator on arguments that are equal.
    Congruence,
}

pub struct CongruenceClosure<'a> {
    log: &'a ProofLog,
    /// Union-find with path halving.
    parent: Vec<u32>,
    members: Vec<Vec<u32>>,
    /// Terms that have a member of the class among their arguments.
    uses: Vec<Vec<u32>>,
    /// The proof forest: each term's neighbour towards the root of its tree.
    forest: Vec<Option<(u32, Edge)>>,
    table: HashMap<(Head, Vec<u32>), u32>,
}

impl<'a> CongruenceClosure<'a> {
    /// Closes all asserted equations under congruence.
    pub fn new(log: &'a ProofLog) -> CongruenceClosure<'a> {
        CongruenceClosure::of_first(log, log.steps().len())
    }

    /// Closes the first asserted equations under congruence.
    pub fn of_first(log: &'a ProofLog, steps: usize) -> CongruenceClosure<'a> {
        CongruenceClosure::of(log, steps, &|_| true)
    }

    /// Closes the asserted equations that pass under congruence.
    pub fn with(log: &'a ProofLog, passes: &dyn Fn(&Equation) -> bool) -> CongruenceClosure<'a> {
        CongruenceClosure::of(log, log.steps().len(), passes)
    }

    fn of(
        log: &'a ProofLog,
        steps: usize,
        passes: &dyn Fn(&Equation) -> bool,
    ) -> CongruenceClosure<'a> {
        let n = log.len();
        let mut c = CongruenceClosure {
            log,
            parent: (0..n as u32).collect(),
            members: (0..n as u32).map(|i| vec![i]).collect(),
            uses: vec![Vec::new(); n],
            forest: vec![None; n],
            table: HashMap::new(),
        };
        for i in 0..n as u32 {
            for a in log.get(LogId(i)).1 {
                c.uses[a.0 as usize].push(i);
            }
            c.enter(i);
        }
        for (i, s) in log.steps().iter().enumerate().take(steps).filter(|(_, s)| passes(s)) {
            c.merge(s.left.0, s.right.0, Edge::Equation(i));
        }
        c
    }

    fn find(&mut self, mut i: u32) -> u32 {
        while self.parent[i as usize] != i {
            let up = self.parent[self.parent[i as usize] as usize];
            self.parent[i as usize] = up;
            i = up;
        }
        i
    }

    fn signature(&mut self, i: u32) -> (Head, Vec<u32>) {
        let (head, args) = self.log.get(LogId(i));
        (head, args.iter().map(|a| self.find(a.0)).collect())
    }

    /// Enters a term into the table; what it collides with is congruent to it.
    fn enter(&mut self, i: u32) -> Option<u32> {
        let key = self.signature(i);
        match self.table.get(&key) {
            Some(&j) if j != i => Some(j),
            _ => {
                self.table.insert(key, i);
                None
            }
        }
    }

    fn merge(&mut self, a: u32, b: u32, edge: Edge) {
        let mut work = vec![(a, b, edge)];
        while let Some((a, b, edge)) = work.pop() {
            let (ra, rb) = (self.find(a), self.find(b));
            if ra == rb {
                continue;
            }
            // The smaller class is hung under the larger one, and its proof tree is rerooted.
            let (a, b, ra, rb) =
                if self.members[ra as usize].len() <= self.members[rb as usize].len() {
                    (a, b, ra, rb)
                } else {
                    (b, a, rb, ra)
                };
            self.reroot(a);
            self.forest[a as usize] = Some((b, edge));
            self.parent[ra as usize] = rb;
            let moved = std::mem::take(&mut self.members[ra as usize]);
            self.members[rb as usize].extend(moved);
            let uses = std::mem::take(&mut self.uses[ra as usize]);
            for &u in &uses {
                if let Some(j) = self.enter(u) {
                    work.push((u, j, Edge::Congruence));
                }
            }
            self.uses[rb as usize].extend(uses);
        }
    }

    /// Turns the edges on the path from `i` to the root of its tree around.
    fn reroot(&mut self, i: u32) {
        let mut at = i;
        let mut previous: Option<(u32, Edge)> = None;
        loop {
            let next = self.forest[at as usize];
            self.forest[at as usize] = previous;
            let Some((up, edge)) = next else { break };
            previous = Some((at, edge));
            at = up;
        }
    }

    /// Why each of these pairs is equal; `None` if the log does not make them equal.
    pub fn prove_all(&mut self, pairs: &[(LogId, LogId)]) -> Option<Proof> {
        let mut steps: BTreeSet<usize> = BTreeSet::new();
        let mut done: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut work: Vec<(u32, u32)> = pairs.iter().map(|(a, b)| (a.0, b.0)).collect();
        while let Some((a, b)) = work.pop() {
            if a == b || !done.insert((a.min(b), a.max(b))) {
                continue;
            }
            if self.find(a) != self.find(b) {
                return None;
            }
            for (x, y, edge) in self.path(a, b) {
                match edge {
                    Edge::Equation(i) => drop(steps.insert(i)),
                    Edge::Congruence => {
                        let (xs, ys) = (self.log.get(LogId(x)).1, self.log.get(LogId(y)).1);
                        work.extend(xs.iter().zip(ys).map(|(x, y)| (x.0, y.0)));
                    }
                }
            }
        }
        Some(Proof { steps: steps.into_iter().map(|i| self.step(i)).collect() })
    }

    fn step(&self, i: usize) -> ProofStep {
        let s = &self.log.steps()[i];
        ProofStep { step: i, reason: s.reason, left: s.left, right: s.right, round: s.round }
    }

    /// The equations among the first ones on values that a term may be computed from: what a law matched there
    /// can rest on these alone.
    pub fn beneath(&mut self, term: LogId, first: usize) -> Proof {
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        let mut work = vec![self.find(term.0)];
        while let Some(class) = work.pop() {
            if !seen.insert(class) {
                continue;
            }
            for m in self.members[class as usize].clone() {
                for a in self.log.get(LogId(m)).1 {
                    work.push(self.find(a.0));
                }
            }
        }
        let steps = (0..first).filter(|&i| {
            let left = self.log.steps()[i].left.0;
            seen.contains(&self.find(left))
        });
        let steps: Vec<usize> = steps.collect();
        Proof { steps: steps.into_iter().map(|i| self.step(i)).collect() }
    }

    /// The edges between two terms of one tree.
    fn path(&self, a: u32, b: u32) -> Vec<(u32, u32, Edge)> {
        let ups = |mut i: u32| {
            let mut out = vec![i];
            while let Some((up, _)) = self.forest[i as usize] {
                out.push(up);
                i = up;
            }
            out
        };
        let (from_a, from_b) = (ups(a), ups(b));
        let on_b: HashMap<u32, ()> = from_b.iter().map(|&i| (i, ())).collect();
        let meet = from_a.iter().copied().find(|i| on_b.contains_key(i));
        let mut out = Vec::new();
        for list in [&from_a, &from_b] {
            for &i in list {
                if Some(i) == meet {
                    break;
                }
                if let Some((up, edge)) = self.forest[i as usize] {
                    out.push((i, up, edge));
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::log::Equation;
    use super::*;

    /// f(a), f(b), g(f(a)), …: equations between leaves reach what is built on them.
    #[test]
    fn congruence_is_explained_by_the_equations_below_it() {
        let mut log = ProofLog::default();
        let leaf = |log: &mut ProofLog, i| log.term(Head::Input(i), Box::new([]));
        let (a, b, c) = (leaf(&mut log, 0), leaf(&mut log, 1), leaf(&mut log, 2));
        let f = |log: &mut ProofLog, x| log.term(Head::Output(0), Box::new([x]));
        let (fa, fc) = (f(&mut log, a), f(&mut log, c));
        let (ffa, ffc) = (f(&mut log, fa), f(&mut log, fc));
        for (left, right) in [(a, b), (b, c)] {
            log.assert(Equation { reason: Reason::Definition, left, right, round: 1 });
        }
        let mut closure = CongruenceClosure::new(&log);
        let proof = closure.prove_all(&[(ffa, ffc)]).expect("equal");
        assert_eq!(proof.steps.iter().map(|s| s.step).collect::<Vec<_>>(), [0, 1]);
        assert!(closure.prove_all(&[(ffa, a)]).is_none());
        let beneath = CongruenceClosure::of_first(&log, 1).beneath(ffa, 1);
        assert_eq!(beneath.steps.iter().map(|s| s.step).collect::<Vec<_>>(), [0]);
        assert!(CongruenceClosure::of_first(&log, 1).beneath(ffc, 1).steps.is_empty());
    }
}
