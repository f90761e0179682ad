//! GEMMs that a device's library may compute in place of generated code: plain data.

use mlc_dsl::ir::DType;
use std::fmt;

/// A batch of matrices in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// The type of its elements.
    pub dtype: DType,
    /// Leading dimension: elements from one line to the next; a line is contiguous.
    pub line: u64,
    /// Whether it is column-major: lines are columns, otherwise rows.
    pub by_column: bool,
    /// Batch stride: elements from one matrix to the next.
    pub apart: u64,
}

/// The activation of an epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// ReLU; NaN stays NaN.
    Relu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))` (Hendrycks and Gimpel 2016).
    GeluTanh,
}

/// Batched GEMM with an epilogue, `activation(left @ right + added + bias)`, as far as each is said; accumulated in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// Batch size.
    pub count: u64,
    /// Rows of the result.
    pub rows: u64,
    /// Columns of the result.
    pub columns: u64,
    /// Columns of the left factor.
    pub depth: u64,
    /// The left factor.
    pub left: Matrix,
    /// The right factor, of the same type.
    pub right: Matrix,
    /// The result, row-major.
    pub result: Matrix,
    /// Whether a residual with the layout and type of the result is added.
    pub is_added: bool,
    /// The type of the bias, which has an element for each column.
    pub bias: Option<DType>,
    /// The activation.
    pub activation: Option<Activation>,
    /// Whether `f32` factors may be rounded to the 11 bits of `tf32`.
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
    /// A key that tells products apart, in one line.
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
