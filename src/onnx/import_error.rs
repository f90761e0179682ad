//! Errors of the import.

use super::raw::RawNode;
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
    pub(super) fn node(node: &RawNode, reason: impl Into<String>) -> ImportError {
        let help = "`onnx.checker.check_model` tells whether the model is valid; what is valid and not supported can \
                    be declared by an `onnx` item in a --rules file, or exported otherwise";
        ImportError::Node { node: node.label(), reason: reason.into(), help: help.into() }
    }

    /// What the user can do about it.
    pub fn help(&self) -> Option<&str> {
        let (ImportError::UnknownOperator { help, .. }
        | ImportError::Node { help, .. }
        | ImportError::Graph { help, .. }) = self;
        (!help.is_empty()).then_some(help)
    }
}
