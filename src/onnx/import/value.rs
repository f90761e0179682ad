//! What the names of a model stand for while it is imported: tensors, sequences of tensors, and optionals.
//!
//! Sequences and optionals exist only here. Their number of elements is known, so that a program holds the tensors alone.

use crate::raw::RawNode;
use mlc_dsl::ir::Value;
use mlc_dsl::shown;
use std::rc::Rc;

/// The value of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeValue {
    /// A tensor.
    Tensor(Value),
    /// Tensors in an order.
    Sequence(Rc<Vec<Value>>),
    /// A tensor or a sequence, or nothing.
    Optional(Option<Rc<NodeValue>>),
}

impl NodeValue {
    /// A sequence of these tensors.
    pub fn sequence(values: Vec<Value>) -> NodeValue {
        NodeValue::Sequence(Rc::new(values))
    }

    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<Value> {
        if let NodeValue::Tensor(v) = self { Some(*v) } else { None }
    }

    /// What messages call it.
    pub fn kind(&self) -> &'static str {
        match self {
            NodeValue::Tensor(_) => "a tensor",
            NodeValue::Sequence(_) => "a sequence",
            NodeValue::Optional(_) => "an optional",
        }
    }

    /// Names and tensors of its elements: `name` of a tensor, `name[0]`, `name[1]`, … of a sequence.
    pub fn elements(&self, name: &str) -> Vec<(String, Value)> {
        match self {
            NodeValue::Tensor(v) => vec![(name.to_string(), *v)],
            NodeValue::Sequence(all) => {
                all.iter().enumerate().map(|(i, &v)| (format!("{name}[{i}]"), v)).collect()
            }
            NodeValue::Optional(None) => vec![],
            NodeValue::Optional(Some(held)) => held.elements(name),
        }
    }
}

/// What a node is called in the program: its name, or its first result.
pub fn origin(node: &RawNode) -> &str {
    let first = || node.outputs.iter().find(|o| !o.is_empty());
    if node.name.is_empty() { first().unwrap_or(&node.name) } else { &node.name }
}

/// That a value is not what a node reads.
pub(crate) fn not(wanted: &str, name: &str, found: &NodeValue) -> String {
    format!("`{}` is {}, and must be {wanted}", shown(name), found.kind())
}
