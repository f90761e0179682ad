//! The e-graph's language and analysis: the only types that egg works on.

use crate::proof::log::LogId;
use egg::{DidMerge, EGraph, Id, Language};
use mlc_dsl::ir::{ConstId, Type};
use mlc_dsl::library::CallId;
use std::sync::Arc;

/// Index of an interned attribute list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttrsId(pub u32);

/// Index of a per-copy constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PerCopyId(pub u32);

/// The operator of an e-node, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Head {
    /// The program's input of that index.
    Input(u32),
    /// A constant.
    Const(ConstId),
    /// A constant with a different value in each copy of a repeated block.
    PerCopyConstant(PerCopyId),
    /// An operator with its attributes.
    Apply(CallId, AttrsId),
    /// One output of an operator with several.
    Output(u32),
}

/// An e-node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ENode {
    /// What it is.
    pub head: Head,
    pub args: Box<[Id]>,
}

impl Language for ENode {
    type Discriminant = Head;

    fn discriminant(&self) -> Head {
        self.head
    }

    fn matches(&self, other: &Self) -> bool {
        self.head == other.head && self.args.len() == other.args.len()
    }

    fn children(&self) -> &[Id] {
        &self.args
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.args
    }
}

/// The value of a class that depends on constants only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstantValue {
    /// One value.
    Single(ConstId),
    /// One for each copy of a repeated block.
    PerCopy(PerCopyId),
}

/// What is known of a class: egg's analysis data.
#[derive(Clone, Debug)]
pub struct ClassFacts {
    /// One type per output of its nodes (one but for operators with several outputs).
    pub types: Arc<[Type]>,
    /// It depends on constants only.
    pub is_constant: bool,
    /// It is folded before the first run: it depends on constants only, and on no symbol.
    pub is_foldable: bool,
    /// Its value, if that has been computed.
    pub value: Option<ConstantValue>,
    /// The number that all its elements equal.
    pub uniform: Option<f64>,
    /// The oldest logged term of the class.
    pub rep: LogId,
}

/// The analysis. The graph computes the facts of a new node before it adds the node.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// Facts of the node that is being added.
    pub next: Option<ClassFacts>,
}

/// The e-graph.
pub type Egg = EGraph<ENode, Analysis>;

impl egg::Analysis<ENode> for Analysis {
    type Data = ClassFacts;

    fn make(egraph: &mut Egg, _node: &ENode, _id: Id) -> ClassFacts {
        // While a class is rebuilt no facts stand ready; merging keeps those it has.
        egraph.analysis.next.clone().unwrap_or(ClassFacts {
            types: Arc::from(Vec::new()),
            is_constant: false,
            is_foldable: false,
            value: None,
            uniform: None,
            rep: LogId(u32::MAX),
        })
    }

    fn merge(&mut self, a: &mut ClassFacts, b: ClassFacts) -> DidMerge {
        if a.types.is_empty() {
            a.types = b.types.clone();
        }
        // No fact of a class depends on facts of its arguments that could still change for the
        // better, so parents need no second look.
        a.is_constant |= b.is_constant;
        a.is_foldable |= b.is_foldable;
        a.value = a.value.or(b.value);
        a.uniform = a.uniform.or(b.uniform);
        a.rep = a.rep.min(b.rep);
        DidMerge(false, false)
    }
}
