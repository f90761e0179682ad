//! Resolved `onnx` items: how an ONNX operator is imported and exported.
//!
//! The expressions are positional, without named axes; the importer and the exporter interpret them at a node.

pub(crate) mod shapes;
mod slices;

use crate::eval::function::Function;
use crate::expr::{Expr, Name};
use crate::library::CallId;
use serde::{Deserialize, Serialize};

/// `onnx Name(inputs; attributes) since 13 until 17 in "domain" …`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Declaration {
    /// Inputs, then attributes.
    pub params: Vec<Param>,
    /// First opset.
    pub since: u32,
    /// Last opset, inclusive.
    pub until: Option<u32>,
    /// Operator domain; empty for the standard one.
    pub domain: String,
    /// A file that is written keeps such nodes as they are: runtimes recognise them and what is around them.
    pub opaque: bool,
    /// On which inputs the operator is defined: nothing else is written as it.
    pub conditions: Vec<Expr>,
    /// Shared parts: one name, or several that take apart a tuple.
    pub lets: Vec<(Vec<Name>, Expr)>,
    /// How it reads: the first applicable alternative.
    pub reads: Vec<Alternative>,
    /// How core terms print as this operator.
    pub prints: Vec<Print>,
}

/// An input or an attribute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Param {
    /// As ONNX's schema calls it.
    pub name: Name,
    /// What it is.
    pub kind: ParamKind,
    /// The value of an attribute that is left out.
    pub default: Option<Expr>,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParamKind {
    /// A tensor.
    Tensor {
        /// It may be absent.
        optional: bool,
        /// It takes all remaining inputs.
        variadic: bool,
    },
    /// An input that must be known at import, read as an attribute.
    ConstInput {
        /// What it is read as.
        kind: Kind,
        /// It may be absent.
        optional: bool,
    },
    /// An attribute.
    Attr(Kind),
}

/// The kinds of attributes in ONNX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// An integer.
    Int,
    /// A list of integers.
    Ints,
    /// A real number.
    Float,
    /// A list of real numbers.
    Floats,
    /// A truth value, written as an integer.
    Bool,
    /// A word.
    String,
    /// A list of words, read as one with commas.
    Strings,
    /// An element type, written as its number.
    DType,
    /// A tensor.
    Tensor,
}

impl Kind {
    /// All of them with their words.
    pub const ALL: [(Kind, &'static str); 9] = [
        (Kind::Int, "int"),
        (Kind::Ints, "ints"),
        (Kind::Float, "float"),
        (Kind::Floats, "floats"),
        (Kind::Bool, "bool"),
        (Kind::String, "string"),
        (Kind::Strings, "strings"),
        (Kind::DType, "dtype"),
        (Kind::Tensor, "tensor"),
    ];

    /// The one of a word.
    pub fn named(word: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|k| k.1 == word).map(|k| k.0)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Kind::ALL.iter().find(|k| k.0 == *self).map_or("", |k| k.1))
    }
}

/// One way of reading.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Alternative {
    /// What the node computes, over the names of the item.
    pub value: Expr,
    /// All must hold; none for the last resort.
    pub conditions: Vec<Expr>,
}

/// How a core term prints as an ONNX operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Print {
    /// The core term.
    pub pattern: Expr,
    /// Inputs of the ONNX node.
    pub inputs: Vec<Expr>,
    /// Attributes of the ONNX node.
    pub attrs: Vec<(Name, Expr)>,
    /// The place of the term among the results of the ONNX node.
    pub result: usize,
    /// The pattern's variables that are numbers.
    pub numbers: Vec<Name>,
    /// All must hold.
    pub conditions: Vec<Expr>,
}

/// A query about the node that is imported or exported, rather than a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeQuery {
    /// Whether an input or attribute is given.
    Present,
    /// Whether the elements of a tensor are known.
    Known,
    /// Whether a tensor is a constant.
    Constant,
    /// The number that a tensor of one element holds.
    Number,
    /// The integers that a tensor holds.
    Elements,
    /// How many inputs a list has.
    Count,
    /// How many outputs the node has.
    Results,
    /// Whether an output is used.
    Wanted,
    /// Whether an extent is not 0, nor one of a list. A model that is read says so: it would not run otherwise.
    Nonzero,
}

impl NodeQuery {
    /// All of them with their words.
    pub const ALL: [(NodeQuery, &'static str); 9] = [
        (NodeQuery::Present, "present"),
        (NodeQuery::Known, "known"),
        (NodeQuery::Constant, "constant"),
        (NodeQuery::Number, "number"),
        (NodeQuery::Elements, "elements"),
        (NodeQuery::Count, "count"),
        (NodeQuery::Results, "results"),
        (NodeQuery::Wanted, "wanted"),
        (NodeQuery::Nonzero, "nonzero"),
    ];

    /// The one of a word.
    pub fn named(word: &str) -> Option<NodeQuery> {
        NodeQuery::ALL.iter().find(|q| q.1 == word).map(|q| q.0)
    }
}

impl std::fmt::Display for NodeQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NodeQuery::ALL.iter().find(|q| q.0 == *self).map_or("", |q| q.1))
    }
}

/// A call whose arguments tell whether it is of tensors or of attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Apply {
    /// What is called.
    pub callee: Callee,
    /// In the order written.
    pub args: Vec<Arg>,
}

/// What is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Callee {
    /// `split(x, axis=a, sizes=s)`: consecutive slices along one axis.
    Split,
    /// `fold(op, xs, axis=a)`: a binary operator over all inputs, left to right. The operator is no argument.
    Fold(Name),
    /// `scalar(v, dtype)`: a number as a tensor.
    Scalar,
    /// `unsupported("…")`: a use that cannot be read.
    Unsupported,
    /// An operator, and the function on attributes of the same name.
    Operator(Name, Option<CallId>, Option<Function>),
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arg {
    /// `name =` before it.
    pub name: Option<Name>,
    /// What is passed.
    pub value: Expr,
}

impl Apply {
    /// The value of the argument of a name.
    pub fn named(&self, name: &str) -> Option<&Expr> {
        self.args.iter().find(|a| a.name.as_deref() == Some(name)).map(|a| &a.value)
    }

    /// The function on attributes that it may be.
    pub fn function(&self) -> Option<Function> {
        match &self.callee {
            Callee::Operator(_, _, f) => *f,
            Callee::Split | Callee::Fold(_) | Callee::Scalar | Callee::Unsupported => None,
        }
    }

    /// The call with other arguments.
    pub fn map(&self, f: &mut dyn FnMut(&Expr) -> Expr) -> Apply {
        let arg = |a: &Arg| Arg { name: a.name.clone(), value: f(&a.value) };
        Apply { callee: self.callee.clone(), args: self.args.iter().map(arg).collect() }
    }
}
