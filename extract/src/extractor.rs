//! The contract of extractors, and the greedy ones.
//!
//! No answer is ever more expensive than the incumbent, and the incumbent wins ties, so a caller
//! can chain extractors without comparing costs in between.

use thiserror::Error;

use crate::egraph_view::{ClassId, Cost, EGraphView, NodeId, number};
use crate::solver::anytime::bound;
use crate::solver::greedy::{NONE, Sharing, settle};
use crate::solver::local_search::Improver;
use crate::solver::node_choice::NodeChoice;
use crate::solver::pruned::Pruned;
use crate::solver::solution::{Solution, SolutionError};

/// Prices within this part of each other are equal: they differ by the order of summing alone.
const TIE: f64 = 1e-12;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExtractError {
    /// No acyclic choice of nodes computes a root.
    #[error("class {} is a root, but no acyclic choice of nodes computes it", u32::from(*root))]
    Uncomputable {
        /// The root that cannot be computed.
        root: ClassId,
    },
    /// The incumbent is no program of this view.
    #[error("the incumbent is not valid")]
    Incumbent(#[from] SolutionError),
}

/// A program, and what is known of all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Extraction {
    /// The cheapest program found.
    pub solution: Solution,
    /// What it costs.
    pub cost: Cost,
    /// No program costs less; the cost itself if that is proven to be least.
    pub lower_bound: Cost,
    /// Elementary steps spent on bounding and branching.
    pub steps: u64,
}

impl Extraction {
    /// The part of the cost that a better program might save: zero if there is none.
    #[must_use]
    pub fn gap(&self) -> f64 {
        let cost = self.cost.seconds();
        if self.proven() { 0.0 } else { (cost - self.lower_bound.seconds()) / cost }
    }

    /// Whether no program is cheaper, but for rounding.
    #[must_use]
    pub fn proven(&self) -> bool {
        self.lower_bound >= self.cost
    }
}

/// Asked now and then whether to stop; the only way for a clock to come in.
pub type Stop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Reads a cheap program out of an e-graph.
pub trait Extractor {
    /// A valid solution, never more expensive than the incumbent; the incumbent itself unless something is
    /// cheaper.
    ///
    /// # Errors
    /// A root cannot be computed, or the incumbent does not validate.
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError>;

    /// The same, with a lower bound on all programs, and stopped early if `stop` says so.
    ///
    /// An extractor that proves nothing itself gives a bound all the same, and does not ask.
    ///
    /// # Errors
    /// As [`extract`](Self::extract).
    fn search(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
        stop: Stop<'_>,
    ) -> Result<Extraction, ExtractError> {
        let _ = stop;
        bound(view, self.extract(view, incumbent)?)
    }
}

/// The cheapest tree of each class, bottom-up; shared work is charged to each user in full. The
/// fastest answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct GreedyTree;

impl Extractor for GreedyTree {
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError> {
        let trim = Pruned::new(view);
        let choice = settle(&trim, |_| false, Sharing::Tree);
        check(view, &choice, incumbent)?;
        Ok(better(view, finish(choice), incumbent))
    }
}

/// Greedy extraction over the DAG, then local improvement: shared work is paid once.
///
/// Starts from the cheapest trees, from trees whose shared parts are split among their users, and
/// from the incumbent; the best of them after single swaps is improved by bundles, pivots, forced
/// nodes and annealing. The optimum is found in 1,997 of 2,000 small random e-graphs and in 1,964 of
/// 2,000 dense ones (`tests/optimum.rs`), where trees find it in 1,949 and 954.
#[derive(Clone, Copy, Debug)]
pub struct GreedyDag {
    /// Elementary steps (a class entered, left or visited) that improvement may spend, over and
    /// above a few passes over the whole view; some 100 million to the second.
    pub steps: u64,
}

impl Default for GreedyDag {
    fn default() -> Self {
        Self { steps: 100_000_000 }
    }
}

impl Extractor for GreedyDag {
    fn extract(
        &self,
        view: &EGraphView,
        incumbent: Option<&Solution>,
    ) -> Result<Solution, ExtractError> {
        let trim = Pruned::new(view);
        let users: Vec<u32> =
            (0..trim.class_count()).map(|class| number(trim.users.get(class).len())).collect();
        let mut starts = vec![settle(&trim, |_| false, Sharing::Tree)];
        check(view, &starts[0], incumbent)?;
        starts.push(settle(&trim, |_| false, Sharing::Split(&users)));
        if let Some(incumbent) = incumbent {
            let choice =
                view.classes().map(|class| incumbent.choice(class).map_or(NONE, u32::from));
            starts.push(choice.collect());
        }
        let mut best: Option<NodeChoice<'_>> = None;
        for start in starts {
            let mut selection = NodeChoice::new(&trim, start);
            Improver::new(&mut selection, self.steps / 8).descend();
            if best.as_ref().is_none_or(|best| selection.total < best.total - best.total * TIE) {
                best = Some(selection);
            }
        }
        let mut choice = Vec::new();
        if let Some(mut selection) = best {
            let bundles = bundles(view, &trim);
            let mut improver = Improver::new(&mut selection, self.steps);
            while improver.try_bundles(&bundles) | improver.try_pivots() | improver.try_forcing()
                && !improver.spent()
            {
                improver.descend();
            }
            improver.wander();
            choice = selection.choice;
        }
        Ok(better(view, finish(choice), incumbent))
    }
}

/// The bundles whose nodes can all be computed.
fn bundles(view: &EGraphView, trim: &Pruned) -> Vec<Vec<u32>> {
    let usable = |node: &u32| {
        let children = trim.children.get(*node as usize);
        let own = trim.class_of[*node as usize];
        children.iter().all(|&child| child != own && !trim.nodes.get(child as usize).is_empty())
    };
    let numbers =
        view.bundles().iter().map(|bundle| bundle.iter().map(|&node| u32::from(node)).collect());
    numbers.filter(|bundle: &Vec<u32>| bundle.iter().all(usable)).collect()
}

fn check(
    view: &EGraphView,
    choice: &[u32],
    incumbent: Option<&Solution>,
) -> Result<(), ExtractError> {
    if let Some(&root) = view.roots().iter().find(|root| choice[root.index()] == NONE) {
        return Err(ExtractError::Uncomputable { root });
    }
    incumbent.map_or(Ok(()), |incumbent| Ok(incumbent.validate(view)?))
}

fn finish(choice: Vec<u32>) -> Solution {
    Solution::new(
        choice.into_iter().map(|node| (node != NONE).then(|| NodeId::new(node))).collect(),
    )
}

pub(crate) fn better(view: &EGraphView, found: Solution, incumbent: Option<&Solution>) -> Solution {
    match incumbent {
        Some(incumbent) => {
            let (new, old) = (found.dag_cost(view).seconds(), incumbent.dag_cost(view).seconds());
            if new < old - old * TIE { found } else { incumbent.clone() }
        }
        None => found,
    }
}
