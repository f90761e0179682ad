//! Splits regions that are too large to be read where the kernels that compute nodes on both sides take least.
//!
//! Every kernel stays in one region, so that savings still add up; a kernel that computes nodes on both sides goes where most of them
//! are. A region is split only where such kernels, and those that have no place, take next to nothing: otherwise what one part saves,
//! another would cost.

use super::regions::{KernelLine, Region};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Kernels, before and after, of a region that is told as a whole.
const KERNELS: usize = 24;

/// Kernels of each plan that a part has at least, if the region has so many.
const LEAST: usize = 2;

/// The part of a region's time that kernels on both sides may take.
const CROSSING: f64 = 0.02;

/// Nodes that belong together, and the seconds of the kernel that makes them.
pub(super) struct Span {
    pub nodes: Vec<String>,
    pub seconds: f64,
}

/// The places of nodes in the model.
#[derive(Default)]
pub(super) struct Order<'a> {
    pub places: HashMap<&'a str, usize>,
    /// Nodes that several kernels of a plan compute, such as a number that is repeated wherever it is read: they do not say where a
    /// kernel belongs that computes others, too.
    pub shared: HashSet<&'a str>,
}

impl Order<'_> {
    fn of(&self, node: &str) -> Option<usize> {
        self.places.get(node).copied()
    }

    /// The places of what a kernel computes.
    fn all_of(&self, nodes: &[String]) -> Vec<usize> {
        let own = nodes.iter().filter(|n| !self.shared.contains(n.as_str()));
        let own: Vec<usize> = own.filter_map(|n| self.of(n)).collect();
        match own.is_empty() {
            true => nodes.iter().filter_map(|n| self.of(n)).collect(),
            false => own,
        }
    }
}

/// The parts of a region, each with one of the nodes at which laws or other steps were `applied`.
pub(super) fn split(
    region: Region,
    spans: &[Span],
    applied: &BTreeSet<&str>,
    order: &Order<'_>,
) -> Vec<Region> {
    let placed = |s: &Span| {
        let places = order.all_of(&s.nodes);
        Some((*places.iter().min()?, *places.iter().max()?, s.seconds))
    };
    let spans: Vec<(usize, usize, f64)> = spans.iter().filter_map(placed).collect();
    let mut open = vec![region];
    let mut out = Vec::new();
    while let Some(region) = open.pop() {
        match cut(&region, &spans, applied, order) {
            Some(at) => {
                let (first, second) = halves(region, at, order);
                open.extend([second, first]);
            }
            None => out.push(region),
        }
    }
    out
}

/// The place before which the region is split; nothing if it is small, or cannot be split.
fn cut(
    region: &Region,
    spans: &[(usize, usize, f64)],
    applied: &BTreeSet<&str>,
    order: &Order<'_>,
) -> Option<usize> {
    let count = region.before.len() + region.after.len();
    if count <= KERNELS {
        return None;
    }
    let lines = || region.before.iter().chain(&region.after);
    let whole: f64 = lines().map(|l| l.seconds).sum();
    let is_placed = |l: &&KernelLine| l.nodes.iter().any(|n| order.of(n).is_some());
    let anywhere: f64 = lines().filter(|l| !is_placed(l)).map(|l| l.seconds).sum();
    let places: BTreeSet<usize> = region.nodes.iter().filter_map(|n| order.of(n)).collect();
    let cost = |&at: &usize| {
        let has_enough = |after: bool| {
            let is_here = |n: &&str| order.of(n).is_some_and(|p| (p >= at) == after);
            let own = region.nodes.iter().map(String::as_str).filter(is_here);
            if !own.clone().any(|n| applied.contains(n)) {
                return false;
            }
            [&region.before, &region.after].iter().all(|all| {
                let own = all.iter().filter(|l| side(l, at, order) == after).count();
                own >= LEAST.min(all.len() / 2)
            })
        };
        let crossing = spans.iter().filter(|(a, b, _)| *a < at && at <= *b);
        let crossing: f64 = crossing.map(|(.., s)| s).sum();
        let first = lines().filter(|l| !side(l, at, order)).count();
        let fits = crossing + anywhere <= CROSSING * whole && has_enough(false) && has_enough(true);
        fits.then_some((crossing, (2 * first).abs_diff(count), at))
    };
    let all = places.iter().skip(1).filter_map(cost);
    let best = all.min_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    best.map(|(.., at)| at)
}

/// True if most of what a kernel computes is at this place or behind it.
fn side(line: &KernelLine, at: usize, order: &Order<'_>) -> bool {
    let places = order.all_of(&line.nodes);
    2 * places.iter().filter(|p| **p >= at).count() > places.len()
}

fn halves(region: Region, at: usize, order: &Order<'_>) -> (Region, Region) {
    let part = |after: bool| {
        let own = |l: &&KernelLine| side(l, at, order) == after;
        let (before, later): (Vec<KernelLine>, Vec<KernelLine>) = (
            region.before.iter().filter(own).cloned().collect(),
            region.after.iter().filter(own).cloned().collect(),
        );
        let behind = |n: &&String| order.of(n).is_some_and(|p| p >= at) == after;
        let sum = |all: &[KernelLine]| all.iter().map(|l| l.seconds).sum::<f64>();
        Region {
            nodes: region.nodes.iter().filter(behind).cloned().collect(),
            saved: sum(&before) - sum(&later),
            before,
            after: later,
            ..Region::default()
        }
    };
    (part(false), part(true))
}

#[cfg(test)]
mod tests {
    use super::{KERNELS, Order, Span, split};
    use crate::explain::regions::{KernelLine, Region};
    use std::collections::BTreeSet;

    fn kernel(nodes: &[usize]) -> KernelLine {
        KernelLine {
            kernel: "k".into(),
            operators: vec!["o".into()],
            nodes: nodes.iter().map(|n| format!("n{n}")).collect(),
            seconds: 1.0,
        }
    }

    /// Forty nodes, of which every kernel of the result computes two that follow each other, but for these places.
    fn chain(gaps: &[usize]) -> (Region, Vec<Span>, Vec<String>) {
        let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let after = (0..39).filter(|n| !gaps.contains(n)).map(|n| kernel(&[n, n + 1]));
        let region = Region {
            nodes: names.clone(),
            before: (0..40).map(|n| kernel(&[n])).collect(),
            after: after.collect(),
            ..Region::default()
        };
        let lines = region.before.iter().chain(&region.after);
        let span = |l: &KernelLine| Span { nodes: l.nodes.clone(), seconds: l.seconds };
        let spans = lines.map(span).collect();
        (region, spans, names)
    }

    fn everywhere(names: &[String]) -> BTreeSet<&str> {
        names.iter().map(String::as_str).collect()
    }

    fn places(names: &[String]) -> Order<'_> {
        let places = names.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
        Order { places, ..Order::default() }
    }

    #[test]
    fn a_large_region_is_split_where_no_kernel_crosses() {
        let (region, spans, names) = chain(&[9, 21, 29]);
        let parts = split(region, &spans, &everywhere(&names), &places(&names));
        assert!(parts.iter().all(|p| p.before.len() + p.after.len() <= KERNELS));
        let firsts: Vec<&str> = parts.iter().map(|p| p.nodes[0].as_str()).collect();
        assert_eq!(firsts, ["n0", "n10", "n22", "n30"]);
        assert_eq!(parts.iter().map(|p| p.before.len()).sum::<usize>(), 40);
        assert_eq!(parts.iter().map(|p| p.after.len()).sum::<usize>(), 36);
        assert_eq!(parts.iter().map(|p| p.saved).sum::<f64>(), 4.0);
        assert_eq!(parts.iter().map(|p| p.nodes.len()).sum::<usize>(), names.len());
    }

    #[test]
    fn what_many_kernels_compute_ties_no_kernel_to_its_first_place() {
        let (mut region, _, names) = chain(&[9, 21, 29]);
        let number = names[0].clone();
        let lines = region.before.iter_mut().chain(&mut region.after);
        lines.for_each(|l| l.nodes.insert(0, number.clone()));
        // This one computes nothing else, as its value is made elsewhere again.
        region.before[1].nodes.pop();
        let lines = region.before.iter().chain(&region.after);
        let spans: Vec<Span> =
            lines.map(|l| Span { nodes: l.nodes.clone(), seconds: l.seconds }).collect();
        let order = Order { shared: [names[0].as_str()].into(), ..places(&names) };
        let parts = split(region, &spans, &everywhere(&names), &order);
        assert!(parts.iter().all(|p| p.before.len() + p.after.len() <= KERNELS));
        assert_eq!(parts.iter().map(|p| p.before.len()).sum::<usize>(), 40);
    }

    #[test]
    fn what_cannot_be_split_stays() {
        let (mut region, mut spans, names) = chain(&[]);
        // One kernel of the result computes all.
        let all: Vec<usize> = (0..40).collect();
        region.after = vec![kernel(&all)];
        spans.truncate(40);
        spans.push(Span { nodes: names.clone(), seconds: 1.0 });
        assert_eq!(split(region, &spans, &everywhere(&names), &places(&names)).len(), 1);
        let region = Region { before: vec![kernel(&[0])], ..Region::default() };
        assert_eq!(split(region, &[], &BTreeSet::new(), &Order::default()).len(), 1);
    }
}
