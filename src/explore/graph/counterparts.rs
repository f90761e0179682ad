//! The classes of one e-graph that compute what classes of another do: terms are looked up by what they are, as operators, attributes and
//! constants have other numbers in every graph.

use super::Graph;
use super::language::{AttrsId, ENode, Egg, Head, PerCopyId};
use crate::proof::log::LogId;
use egg::Id;
use mlc_dsl::ir::{Attr, ConstId, Consts};
use std::collections::HashMap;
use std::sync::Arc;

/// What finding a term of another e-graph takes.
pub(crate) struct ClassTable {
    egg: Egg,
    consts: Consts,
    attrs: HashMap<Arc<[Attr]>, AttrsId>,
    per_copy: HashMap<Arc<[ConstId]>, PerCopyId>,
}

/// Terms of the other e-graph that were looked up.
pub(crate) type Counterparts = HashMap<LogId, Option<Id>>;

impl ClassTable {
    pub(crate) fn of(graph: &Graph) -> ClassTable {
        ClassTable {
            egg: graph.egg.clone(),
            consts: graph.consts.clone(),
            attrs: graph.attrs_by_value.clone(),
            per_copy: graph.per_copy_by_value.clone(),
        }
    }

    /// The class of a term of another e-graph, if this one has it.
    pub(crate) fn class_of(
        &self,
        other: &Graph,
        term: LogId,
        known: &mut Counterparts,
    ) -> Option<Id> {
        if let Some(class) = known.get(&term) {
            return *class;
        }
        let (head, args) = other.log.get(term);
        let args: Option<Box<[Id]>> =
            args.iter().map(|&a| self.class_of(other, a, known)).collect();
        let node = args.and_then(|args| Some(ENode { head: self.head(other, head)?, args }));
        let class = node.and_then(|n| self.egg.lookup(n)).map(|c| self.egg.find(c));
        known.insert(term, class);
        class
    }

    /// The operator of another e-graph as it is called here.
    fn head(&self, other: &Graph, head: Head) -> Option<Head> {
        let own = |c: ConstId| self.consts.find(other.consts.get(c));
        Some(match head {
            Head::Input(_) | Head::Output(_) => head,
            Head::Const(c) => Head::Const(own(c)?),
            Head::PerCopyConstant(id) => {
                let all: Option<Vec<ConstId>> =
                    other.per_copy_values(id).iter().map(|&c| own(c)).collect();
                Head::PerCopyConstant(*self.per_copy.get(all?.as_slice())?)
            }
            Head::Apply(call, attrs) => Head::Apply(call, *self.attrs.get(other.attrs(attrs))?),
        })
    }
}
