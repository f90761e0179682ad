//! GEMMs that a device's library may compute in place of generated code: plain data.

use mlc_dsl::ir::DType;
use std::fmt;

/// A matrix in memory, and as many others as there are products, each so many elements behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// The type of its elements.
    pub dtype: DType,
    /// Elements from the beginning of a line to that of the next; those of a line lie side by side.
    pub line: u64,
    /// Whether lines are columns; otherwise they are rows.
    pub by_column: bool,
    /// Elements from one matrix to the next.
    pub apart: u64,
}

/// What is done to each element of a result at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// The larger one of it and 0; NaN stays NaN.
    Relu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))` (Hendrycks and Gimpel 2016).
    GeluTanh,
}

/// `result = activation(left @ right + added + bias)`, as far as each is said; accumulated in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// How many products there are.
    pub count: u64,
    /// Rows and columns of the result.
    pub rows: u64,
    /// Columns of the result.
    pub columns: u64,
    /// Columns of the left factor.
    pub depth: u64,
    /// The left factor.
    pub left: Matrix,
    /// The right factor, of the same type.
    pub right: Matrix,
    /// The result, by row.
    pub result: Matrix,
    /// Whether a tensor is added that lies like the result and has its type.
    pub is_added: bool,
    /// The type of the bias, which has an element for each column.
    pub bias: Option<DType>,
    /// What follows.
    pub activation: Option<Activation>,
    /// Whether factors of 32 bits may be rounded to the 11 bits of `tf32`.
    pub in_tf32: bool,
}

impl Activation {
    fn name(self) -> &'static str {
        match self {
            Activation::Relu => "at least 0",
            Activation::GeluTanh => "gelu_tanh",
        }
    }
}

impl fmt::Display for MatrixProduct {
    /// All that tells products apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixProduct { count, rows, columns, depth, left, right, result, .. } = self;
        write!(f, "{count} x [{rows}, {depth}] @ [{depth}, {columns}]")?;
        for (name, m) in [("left", left), ("right", right), ("result", result)] {
            let by = if m.by_column { "columns" } else { "rows" };
            write!(f, ", {name} {} by {by} of {} and {} apart", m.dtype, m.line, m.apart)?;
        }
        if self.is_added {
            f.write_str(", plus a tensor")?;
        }
        self.bias.map_or(Ok(()), |d| write!(f, ", plus {d}"))?;
        self.activation.map_or(Ok(()), |a| write!(f, ", {}", a.name()))?;
        f.write_str(if self.in_tf32 { ", in tf32" } else { "" })
    }
}
