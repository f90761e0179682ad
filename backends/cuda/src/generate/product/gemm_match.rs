//! Recognises contractions that are GEMMs as libraries take them: both factors in memory, each in contiguous rows or columns.

use super::super::emit::{Emitter, offset_of};
use super::super::kernel::KernelProgram;
use super::epilogue::Epilogue;
use super::strided_read::in_memory;
use super::{Product, Term, size};
use crate::matrix_product::{Matrix, MatrixProduct};
use mlc_backends::reference::code::{Affine, Real, Slot};
use mlc_dsl::ir::{DType, Value};

/// Least multiplications for which a library is asked.
const LEAST: i64 = 1 << 20;

/// A GEMM of a kernel, and the values that it reads.
pub struct GemmMatch {
    pub product: MatrixProduct,
    pub factors: [Value; 2],
    /// The residual and the bias.
    pub added: [Option<Value>; 2],
    /// Whether the stage's value is the result; otherwise the sums are, in `f32`.
    pub is_whole: bool,
}

/// The value in memory that a float of a value's code reads wherever it is read, and the offset.
fn always_in_memory(e: &mut Emitter<'_>, of: Value, r: &Real) -> Option<(Value, Affine)> {
    let found = in_memory(e, of, r)?;
    found.inside.is_empty().then_some((found.value, found.offset))
}

/// Elements from one place along axes to the next, if that is the same number everywhere; 0 for one place.
fn apart(offset: &Affine, axes: &[(Slot, i64)]) -> Option<i64> {
    let mut found: Option<(i64, i64)> = None;
    for &(slot, n) in axes.iter().rev().filter(|a| a.1 != 1) {
        let own = offset.factor(slot);
        match found {
            None => found = Some((own, n)),
            Some((first, before)) if own == first * before => found = Some((first, before * n)),
            Some(_) => return None,
        }
    }
    Some(found.map_or(0, |f| f.0))
}

/// A factor or a result with these rows and columns as a matrix.
fn matrix(dtype: DType, offset: &Affine, axes: [&[(Slot, i64)]; 3]) -> Option<Matrix> {
    let known = |slot: Slot| axes.iter().any(|a| a.iter().any(|x| x.0 == slot));
    if offset.constant != 0 || !offset.terms.iter().all(|t| known(t.0)) {
        return None;
    }
    let [batch, rows, columns] = axes;
    let [between, down, across] =
        [apart(offset, batch)?, apart(offset, rows)?, apart(offset, columns)?];
    // Elements of a line lie side by side, and lines do not overlap.
    let (line, by_column, length) = match (down, across) {
        (down, 1) => (down, false, size(columns)),
        (1, across) => (across, true, size(rows)),
        _ => return None,
    };
    let fits = line >= length && between >= 0;
    fits.then_some(Matrix { dtype, line: line as u64, by_column, apart: between as u64 })
}

impl GemmMatch {
    /// The stage of `v`, a product and its epilogue, as a GEMM.
    pub fn recognise(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        product: Value,
    ) -> Option<GemmMatch> {
        let p = Product::recognise(e, kernel, product)?;
        let (rows, columns, depth) = (size(&p.rows), size(&p.columns), size(&p.deep));
        let work =
            [size(&p.batch), rows, columns, depth].iter().fold(1i64, |n, d| n.saturating_mul(*d));
        if work < LEAST || [rows, columns, depth].iter().any(|n| *n < 2 || *n > i64::from(i32::MAX))
        {
            return None;
        }
        let [Term::Real(left), Term::Real(right)] = &p.factors else { return None };
        let left = always_in_memory(e, product, left)?;
        let right = always_in_memory(e, product, right)?;
        let type_of = |v: Value| kernel.program.ty(v).dtype;
        let (own, dtype) = (type_of(product), type_of(left.0));
        let same =
            dtype == type_of(right.0) && matches!(dtype, DType::F16 | DType::BF16 | DType::F32);
        if !same || !(own == dtype || own == DType::F32) {
            return None;
        }
        let result = offset_of(&p.shape, &p.index)?;
        let of_left = matrix(dtype, &left.1, [&p.batch, &p.rows, &p.deep])?;
        let of_right = matrix(dtype, &right.1, [&p.batch, &p.deep, &p.columns])?;
        let follows = Epilogue::recognise(e, kernel, v, &p, &|offset: &Affine| {
            let only = offset.terms.iter().all(|t| p.columns.iter().any(|c| c.0 == t.0));
            only && apart(offset, &p.columns) == Some(1)
        });
        let follows = follows.filter(|_| type_of(v) == own);
        let out = if follows.is_some() { own } else { DType::F32 };
        let of_result = matrix(out, &result, [&p.batch, &p.rows, &p.columns])?;
        let is_apart = p.batch.iter().all(|a| a.1 == 1) || of_result.apart > 0;
        if of_result.by_column || !is_apart {
            return None;
        }
        let is_whole = follows.is_some();
        let Epilogue { added, bias, activation, .. } = follows.unwrap_or_default();
        let product = MatrixProduct {
            count: size(&p.batch) as u64,
            rows: rows as u64,
            columns: columns as u64,
            depth: depth as u64,
            left: of_left,
            right: of_right,
            result: of_result,
            is_added: added.is_some(),
            bias: bias.map(type_of),
            activation,
            in_tf32: dtype == DType::F32 && kernel.tuning.tf32,
        };
        Some(GemmMatch { product, factors: [left.0, right.0], added: [added, bias], is_whole })
    }
}
