//! A program read out of an e-graph: one node for each class that it needs.
//!
//! Cost and validity are computed from the view alone and trust no extractor; nothing here
//! recurses, so chains may be of any length.

use thiserror::Error;

use crate::egraph_view::{ClassId, Cost, EGraphView, NodeId};

/// Why a solution is no program of its view.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SolutionError {
    /// The solution was made for a view with another number of classes.
    #[error("the solution speaks of {found} classes, the view has {expected}")]
    OtherView {
        /// Classes of the view.
        expected: usize,
        /// Classes of the solution.
        found: usize,
    },
    /// A class that the program needs has no chosen node.
    #[error("class {} is needed but has no chosen node", u32::from(*class))]
    Unchosen {
        /// The class in question.
        class: ClassId,
    },
    /// The node chosen for a class is not one of its nodes.
    #[error("class {} has node {} chosen, which is not its own", u32::from(*class), u32::from(*node))]
    Foreign {
        /// The class in question.
        class: ClassId,
        /// The node chosen for it.
        node: NodeId,
    },
    /// A value would be computed from itself.
    #[error("class {} needs its own value", u32::from(*class))]
    Cycle {
        /// A class on the cycle.
        class: ClassId,
    },
}

/// A choice of at most one node for each class; classes that the roots do not reach may have one
/// too, at no price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    choice: Vec<Option<NodeId>>,
}

impl Solution {
    /// A solution with this choice, indexed by class.
    #[must_use]
    pub fn new(choice: Vec<Option<NodeId>>) -> Self {
        Self { choice }
    }

    /// The node chosen for a class, if any.
    #[must_use]
    pub fn choice(&self, class: ClassId) -> Option<NodeId> {
        self.choice.get(class.index()).copied().flatten()
    }

    /// What the program costs: each chosen node that the roots reach, once, summed in order of
    /// class.
    ///
    /// Means something only for a solution that [validates](Self::validate).
    #[must_use]
    pub fn dag_cost(&self, view: &EGraphView) -> Cost {
        let mut reached = vec![false; view.class_count()];
        let mut stack = view.roots().to_vec();
        while let Some(class) = stack.pop() {
            if !std::mem::replace(&mut reached[class.index()], true)
                && let Some(node) = self.choice(class)
            {
                stack.extend(view.children(node));
            }
        }
        let chosen = view
            .classes()
            .filter(|class| reached[class.index()])
            .filter_map(|class| self.choice(class));
        chosen.map(|node| view.cost(node)).sum()
    }

    /// Whether this is a program: every needed class has one of its own nodes, and none needs
    /// itself.
    ///
    /// # Errors
    /// The first thing found that is wrong.
    pub fn validate(&self, view: &EGraphView) -> Result<(), SolutionError> {
        self.topological(view).map(drop)
    }

    /// The chosen nodes that the roots reach, operands before users; roots and operands are
    /// followed in their order.
    ///
    /// # Errors
    /// The solution does not validate.
    pub fn topological(&self, view: &EGraphView) -> Result<Vec<NodeId>, SolutionError> {
        #[derive(Clone, Copy, PartialEq, Eq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        if self.choice.len() != view.class_count() {
            return Err(SolutionError::OtherView {
                expected: view.class_count(),
                found: self.choice.len(),
            });
        }
        let mut mark = vec![Mark::New; view.class_count()];
        let mut order = Vec::new();
        // Each open class with its node and the number of operands already followed.
        let mut open: Vec<(ClassId, NodeId, usize)> = Vec::new();
        for &root in view.roots() {
            let mut enter = Some(root);
            loop {
                if let Some(class) = enter.take() {
                    match mark[class.index()] {
                        Mark::Done => {}
                        Mark::Open => return Err(SolutionError::Cycle { class }),
                        Mark::New => {
                            let node =
                                self.choice(class).ok_or(SolutionError::Unchosen { class })?;
                            if node.index() >= view.node_count() || view.class_of(node) != class {
                                return Err(SolutionError::Foreign { class, node });
                            }
                            mark[class.index()] = Mark::Open;
                            open.push((class, node, 0));
                        }
                    }
                }
                let Some((class, node, followed)) = open.last_mut() else { break };
                if let Some(&child) = view.children(*node).get(*followed) {
                    *followed += 1;
                    enter = Some(child);
                } else {
                    mark[class.index()] = Mark::Done;
                    order.push(*node);
                    open.pop();
                }
            }
        }
        Ok(order)
    }
}
