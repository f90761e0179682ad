//! Errors of the import.

use super::extent_equations::BroadcastMisfit;
use crate::raw::{RawDim, RawNode, RawValueInfo};
use mlc_dsl::told;
use thiserror::Error;

/// Why a model was not imported.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ImportError {
    /// No declaration reads this operator.
    #[error("{}: the operator {} is not known at operator set {opset}", told(node), told(operator))]
    UnknownOperator {
        /// Where in the graph, by name or number.
        node: String,
        /// Domain and name.
        operator: String,
        /// The version the model asks for.
        opset: i64,
        /// What to do.
        help: String,
    },
    /// A declaration does not cover what the node asks for.
    #[error("{}: {}", told(node), told(reason))]
    Node {
        /// Where in the graph, by name or number.
        node: String,
        /// What is wrong or not supported.
        reason: String,
        /// What to do.
        help: String,
    },
    /// A node can only be read once the values of inputs are known: they decide its shape or axes.
    #[error("{}: {}", told(node), told(reason))]
    Undecided {
        /// Where in the graph, by name or number.
        node: String,
        /// What must be known.
        reason: String,
        /// What the model calls the first value that must be known; `None` if it has no name there.
        value: Option<String>,
        /// The inputs of the graph that it is computed from, in the order of the graph.
        inputs: Vec<String>,
        /// What to do.
        help: String,
    },
    /// A loop of a known number of repetitions has too many to be written out.
    #[error("{}: {}", told(node), told(reason))]
    TooLong {
        /// Where in the graph, by name or number.
        node: String,
        /// How many nodes it would be.
        reason: String,
        /// What to do.
        help: String,
    },
    /// An input or output of the graph has no usable type.
    #[error("{}: {}", told(place), told(reason))]
    Graph {
        /// The input or output.
        place: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        help: String,
    },
}

impl ImportError {
    /// What an operator's declaration does not cover.
    pub(crate) fn node(node: &RawNode, reason: impl Into<String>) -> ImportError {
        let help = "`onnx.checker.check_model` tells whether the model is valid; what is valid and not supported can \
                    be declared by an `onnx` item in a --rules file, or exported otherwise";
        ImportError::Node { node: node.label(), reason: reason.into(), help: help.into() }
    }

    /// The same error of a node that needs a value which these inputs decide.
    pub(crate) fn undecided(self, value: Option<String>, inputs: Vec<String>) -> ImportError {
        match self {
            ImportError::Node { node, reason, .. } => {
                let named = |n: &String| format!("`{}`", told(n));
                let names: Vec<String> = inputs.iter().map(named).collect();
                let of = match &value {
                    Some(value) if inputs.contains(value) => "its value".to_string(),
                    Some(value) => format!("the value of {}", named(value)),
                    None => "a value that it computes first".to_string(),
                };
                let help = match names.is_empty() {
                    true => format!("what is read depends on {of}: `run` computes that first"),
                    false => format!(
                        "what is read depends on the value of {}: give it with `--value NAME=NUMBERS`, or with `--inputs` of \
                         `run`; the model is then read for that value",
                        names.join(", ")
                    ),
                };
                let reason = match &value {
                    Some(value) if !inputs.contains(value) => {
                        format!("{reason}; `{}` decides it", told(value))
                    }
                    _ => reason,
                };
                ImportError::Undecided { node, reason, value, inputs, help }
            }
            other => other,
        }
    }

    /// The same error with the number that a symbol of the model's inputs has to be, if that is what is wrong.
    pub(crate) fn fitting(
        mut self,
        misfit: Option<&BroadcastMisfit>,
        inputs: &[RawValueInfo],
    ) -> Self {
        let names = |d: &RawDim, symbol: &str| matches!(d, RawDim::Symbol(s) if s == symbol);
        let declares =
            |i: &RawValueInfo, symbol: &str| i.dims.iter().flatten().any(|d| names(d, symbol));
        if let (ImportError::Node { reason, help, .. }, Some(m)) = (&mut self, misfit)
            && reason.ends_with(&m.reason)
            && inputs.iter().any(|i| declares(i, &m.symbol))
        {
            let (symbol, number) = (told(&m.symbol), &m.number);
            *help = format!(
                "the model leaves `{symbol}` open and keeps the number that it was exported with: `--bind {symbol}={number}` \
                 reads it for that extent, as `run` does for inputs of that shape; an export with a dynamic axis does without"
            );
        }
        self
    }

    /// The same error of a node that asks for an extent which the shapes of a run decide.
    pub(crate) fn of_shapes(self) -> ImportError {
        match self {
            ImportError::Node { node, reason, .. } => ImportError::Undecided {
                node,
                reason,
                value: None,
                inputs: vec![],
                help: "give the extent with `--bind NAME=NUMBER`; `run` takes that of its inputs"
                    .into(),
            },
            other => other,
        }
    }

    /// The same error of a node whose operands have extents that only a run computes.
    pub(crate) fn data_dependent(self) -> ImportError {
        match self {
            ImportError::Node { node, reason, .. } => ImportError::Undecided {
                node,
                reason: format!("{reason}; a run decides it"),
                value: None,
                inputs: vec![],
                help: "`run` computes first what decides it".into(),
            },
            other => other,
        }
    }

    /// What the user can do about it.
    pub fn help(&self) -> Option<&str> {
        let (ImportError::UnknownOperator { help, .. }
        | ImportError::Node { help, .. }
        | ImportError::Undecided { help, .. }
        | ImportError::TooLong { help, .. }
        | ImportError::Graph { help, .. }) = self;
        (!help.is_empty()).then_some(help)
    }
}
