//! Why a model does not become a program.

use thiserror::Error;

/// Why a model was not imported.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ImportError {
    /// No declaration reads this operator.
    #[error("{node}: the operator {operator} is not known at operator set {opset}")]
    UnknownOperator {
        /// The node.
        node: String,
        /// Domain and name.
        operator: String,
        /// The version the model asks for.
        opset: i64,
        /// What to do.
        help: String,
    },
    /// A declaration does not cover what the node asks for.
    #[error("{node}: {reason}")]
    Node {
        /// The node.
        node: String,
        /// What is wrong or not supported.
        reason: String,
        /// What to do.
        help: String,
    },
    /// An input or output of the graph has no usable type.
    #[error("{place}: {reason}")]
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
    /// What the user can do about it.
    pub fn help(&self) -> Option<&str> {
        let (ImportError::UnknownOperator { help, .. }
        | ImportError::Node { help, .. }
        | ImportError::Graph { help, .. }) = self;
        (!help.is_empty()).then_some(help)
    }
}
