//! Products of matrices that a library of the device may compute in place of generated code: plain data.

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

/// `result = left @ right`, plus a vector along the rows if there is a bias; accumulated in `f32`.
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
    /// The type of the bias, which has an element for each column.
    pub bias: Option<DType>,
}

impl fmt::Display for MatrixProduct {
    /// All that tells products apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MatrixProduct { count, rows, columns, depth, left, right, result, bias } = self;
        write!(f, "{count} x [{rows}, {depth}] @ [{depth}, {columns}]")?;
        for (name, m) in [("left", left), ("right", right), ("result", result)] {
            let by = if m.by_column { "columns" } else { "rows" };
            write!(f, ", {name} {} by {by} of {} and {} apart", m.dtype, m.line, m.apart)?;
        }
        bias.map_or(Ok(()), |d| write!(f, ", plus {d}"))
    }
}
