//! Splits regions that are too large to be read where the fewest kernels compute nodes on both sides.
//!
//! Every kernel stays in one region, so that savings still add up; a kernel that computes nodes on both sides goes where most of them
//! are.

use super::regions::{KernelLine, Region};
use std::collections::{BTreeSet, HashMap};

/// Kernels, before and after, of a region that is told as a whole.
const KERNELS: usize = 24;

/// Kernels of each plan that a part has at least, if the region has so many.
const LEAST: usize = 2;

/// The parts of a region; `order` are the places of nodes in the model.
pub(super) fn split(region: Region, order: &HashMap<&str, usize>) -> Vec<Region> {
    let mut open = vec![region];
    let mut out = Vec::new();
    while let Some(region) = open.pop() {
        match cut(&region, order) {
            Some(at) => {
                let (first, second) = halves(region, at, order);
                open.extend([second, first]);
            }
            None => out.push(region),
        }
    }
    out
}

/// The places of the nodes that a kernel computes, the first and the last.
fn span(line: &KernelLine, order: &HashMap<&str, usize>) -> Option<(usize, usize)> {
    let places = || line.nodes.iter().filter_map(|n| order.get(&**n).copied());
    places().min().zip(places().max())
}

/// The place before which the region is split; nothing if it is small, or cannot be split.
fn cut(region: &Region, order: &HashMap<&str, usize>) -> Option<usize> {
    let count = region.before.len() + region.after.len();
    if count <= KERNELS {
        return None;
    }
    let lines = region.before.iter().chain(&region.after);
    let spans: Vec<(usize, usize)> = lines.filter_map(|l| span(l, order)).collect();
    let places: BTreeSet<usize> =
        region.nodes.iter().filter_map(|n| order.get(&**n).copied()).collect();
    let cost = |&at: &usize| {
        let whole = |after: bool| {
            let lines = [&region.before, &region.after];
            let part = |l: &&KernelLine| side(l, at, order) == after;
            lines.iter().all(|l| {
                let has = l.iter().filter(part).count();
                has >= LEAST.min(l.len() / 2).max(usize::from(!l.is_empty()))
            })
        };
        let crossing = spans.iter().filter(|(a, b)| *a < at && at <= *b).count();
        let first = spans.iter().filter(|(a, b)| a + b < 2 * at).count();
        let uneven = (2 * first).abs_diff(count);
        (whole(false) && whole(true)).then_some((crossing, uneven, at))
    };
    places.iter().skip(1).filter_map(cost).min().map(|(.., at)| at)
}

/// True if most of what a kernel computes is at this place or behind it.
fn side(line: &KernelLine, at: usize, order: &HashMap<&str, usize>) -> bool {
    let places: Vec<usize> = line.nodes.iter().filter_map(|n| order.get(&**n).copied()).collect();
    2 * places.iter().filter(|p| **p >= at).count() > places.len()
}

fn halves(region: Region, at: usize, order: &HashMap<&str, usize>) -> (Region, Region) {
    let part = |after: bool| {
        let own = |l: &&KernelLine| side(l, at, order) == after;
        let (before, later): (Vec<KernelLine>, Vec<KernelLine>) = (
            region.before.iter().filter(own).cloned().collect(),
            region.after.iter().filter(own).cloned().collect(),
        );
        let behind = |n: &&String| order.get(&***n).is_some_and(|p| *p >= at) == after;
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
    use super::{KERNELS, split};
    use crate::explain::regions::{KernelLine, Region};
    use std::collections::HashMap;

    fn kernel(nodes: &[usize]) -> KernelLine {
        KernelLine {
            kernel: "k".into(),
            operators: vec!["o".into()],
            nodes: nodes.iter().map(|n| format!("n{n}")).collect(),
            seconds: 1.0,
        }
    }

    #[test]
    fn a_large_region_is_split_where_few_kernels_cross() {
        let names: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
        let order: HashMap<&str, usize> =
            names.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
        // Every kernel of the result crosses to the next node, but for one place.
        let after = (0..39).filter(|&n| n != 21).map(|n| kernel(&[n, n + 1])).collect();
        let region = Region {
            nodes: names.clone(),
            before: (0..40).map(|n| kernel(&[n])).collect(),
            after,
            saved: 2.0,
            ..Region::default()
        };
        let parts = split(region, &order);
        assert!(parts.iter().all(|p| p.before.len() + p.after.len() <= KERNELS));
        assert_eq!(parts.iter().map(|p| p.before.len()).sum::<usize>(), 40);
        assert_eq!(parts.iter().map(|p| p.after.len()).sum::<usize>(), 38);
        assert_eq!(parts.iter().map(|p| p.saved).sum::<f64>(), 2.0);
        let all: Vec<&String> = parts.iter().flat_map(|p| &p.nodes).collect();
        assert_eq!(all.len(), names.len(), "every node is in one part");
        assert!(parts.iter().any(|p| p.nodes.first().is_some_and(|n| n == "n22")));
    }

    #[test]
    fn a_small_region_stays() {
        let region = Region { nodes: vec!["n0".into()], before: vec![kernel(&[0])], ..Region::default() };
        assert_eq!(split(region, &HashMap::new()).len(), 1);
    }
}
