//! Guided search: a search with fewer laws looks only where the search with all of them found something.
//!
//! What fewer laws derive, more laws derive, too: where these were, a pattern that did nothing at a class has nothing to do there without some of
//! them. Classes that the other search has not are searched as ever, unless a limit kept it from finding them. Never decides what a pattern matches.

use crate::graph::Graph;
use crate::graph::counterparts::{ClassTable, Counterparts};
use crate::graph::lower::Explored;
use crate::saturation::Stop;
use egg::Id;
use mlc_dsl::ir::{Node, Program};
use mlc_dsl::pattern::Compiled;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// A pattern, and the classes at which it matched and its conditions held.
pub(crate) type Accepted = (Arc<Compiled>, HashSet<Id>);

/// What a search found, for one of the same program with fewer laws.
pub struct Guide {
    source: Program,
    table: ClassTable,
    accepted: Vec<Accepted>,
    /// It ended before everything was found: what it has not is not searched either.
    is_limited: bool,
    /// Its rounds.
    rounds: u32,
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("patterns", &self.accepted.len()).finish_non_exhaustive()
    }
}

impl Guide {
    /// A guide by what was found.
    pub fn of(explored: &Explored) -> Guide {
        let graph = &explored.graph;
        let own = |(p, classes): &Accepted| {
            (p.clone(), classes.iter().map(|&c| graph.egg.find(c)).collect())
        };
        Guide {
            source: explored.source.clone(),
            table: ClassTable::of(graph),
            accepted: explored.accepted.iter().map(own).collect(),
            is_limited: explored.stop != Stop::Saturated,
            rounds: graph.round,
        }
    }

    /// True if it is of this program.
    pub(crate) fn is_of(&self, program: &Program) -> bool {
        let same =
            |(a, b): (&Node, &Node)| (&a.kind, &a.args, &a.types) == (&b.kind, &b.args, &b.types);
        let values = |p: &Program| p.outputs.iter().map(|(_, v)| *v).collect::<Vec<_>>();
        self.source.nodes.len() == program.nodes.len()
            && self.source.nodes.iter().zip(&program.nodes).all(same)
            && values(&self.source) == values(program)
            && self.source.consts.len() == program.consts.len()
            && self
                .source
                .consts
                .iter()
                .zip(program.consts.iter())
                .all(|(a, b)| a.same_storage(b) || a == b)
    }

    /// True if a limit ended the other search after so many rounds.
    pub(super) fn ended_by(&self, round: u32) -> bool {
        self.is_limited && round >= self.rounds
    }

    /// The classes at which a pattern did something; nothing if it was not among those of the search.
    pub(super) fn accepted(&self, pattern: &Arc<Compiled>) -> Option<HashSet<Id>> {
        let own = self.accepted.iter().find(|(p, _)| Arc::ptr_eq(p, pattern));
        own.map(|(_, classes)| classes.clone())
    }
}

/// What classes of an e-graph are in that of the guide, as far as they are there.
#[derive(Default)]
pub(super) struct GuidedClasses {
    of: HashMap<Id, Id>,
    /// Some class is not there, and to be searched.
    has_new: bool,
    /// Those that are not there are not to be searched.
    is_limited: bool,
}

impl GuidedClasses {
    pub(super) fn new(
        guide: &Guide,
        graph: &Graph,
        classes: &[Id],
        known: &mut Counterparts,
    ) -> GuidedClasses {
        let mut out = GuidedClasses { is_limited: guide.is_limited, ..GuidedClasses::default() };
        for &class in classes {
            match guide.table.class_of(graph, graph.facts(class).rep, known) {
                Some(there) => drop(out.of.insert(class, there)),
                None => out.has_new |= !guide.is_limited,
            }
        }
        out
    }

    /// True if a pattern that did something at these classes of the guide has nothing to do at this one.
    pub(super) fn is_fruitless(&self, accepted: &HashSet<Id>, class: Id) -> bool {
        self.of.get(&class).map_or(self.is_limited, |there| !accepted.contains(there))
    }

    /// The same for all classes.
    pub(super) fn is_fruitless_anywhere(&self, accepted: &HashSet<Id>) -> bool {
        !self.has_new && accepted.is_empty()
    }
}
