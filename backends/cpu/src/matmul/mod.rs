//! The matrix product of the last two axes, over any batch axes and strides.
//!
//! f32 (and through [`super::half_precision`] the 16-bit floats) use the packed product, f64 the one of `ndarray`, integers loops
//! that wrap.

mod integers;

use super::gemm::SubMatrix;
use super::gemm::{
    GEMV_ROWS, GemmEpilogue, GemmSizes, Left, Matrix, PackedLeft, PackedRight, Product, Right, gemm,
};
use super::pointwise::convert::by_size;
use super::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use super::runtime::weight_cache::Pack;
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{coalesce, odometer};
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder, linalg::general_mat_mul};
use std::sync::Arc;

/// A batch of products: sizes, and where the operands of each begin.
struct MatMul {
    dtype: DType,
    sizes: GemmSizes,
    a: MatrixSide,
    b: MatrixSide,
    /// An operand that is the same constant in all products, packed.
    packed: Packed,
}

/// What is packed before the first run: at most one operand.
enum Packed {
    Left(Arc<Pack<PackedLeft>>),
    Right(Arc<Pack<PackedRight>>),
    Neither,
}

/// One operand: strides within a product, and the offset of each product of the batch.
struct MatrixSide {
    row: isize,
    col: isize,
    starts: Vec<usize>,
}

impl MatrixSide {
    /// The operand of product `i`.
    fn matrix<'d, T>(&self, data: &'d [T], i: usize) -> Matrix<'d, T> {
        Matrix { data, offset: self.starts[i], row: self.row, col: self.col }
    }
}

/// Prepares `a @ b`.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    // Integers of less than a byte wrap where a byte does not.
    let is_whole = |d: &DType| d.is_int() && !d.is_small();
    let has = |d: &DType| matches!(d, DType::F32 | DType::F64) || is_whole(d);
    let dtype = spec.same_dtype().filter(has)?;
    let [a, b] = spec.args else { return None };
    let (al, bl) = (&a.layout, &b.layout);
    let rank = al.rank();
    let (m, k) = (al.shape[rank - 2], al.shape[rank - 1]);
    let n = bl.shape[rank - 1];
    let batch = rank - 2;
    let merged = coalesce(&al.shape[..batch], &[&al.strides[..batch], &bl.strides[..batch]]);
    let (mut shape, mut sa, mut sb) =
        (merged.shape, merged.strides[0].clone(), merged.strides[1].clone());
    let (ar, ac) = (al.strides[rank - 2], al.strides[rank - 1]);
    let mut sizes = GemmSizes { m, n, k };
    // A batch axis over which `b` repeats and `a` walks on is more rows of one product.
    let mut row = ar;
    while let (Some(&d), Some(&s), Some(&0)) = (shape.last(), sa.last(), sb.last()) {
        if sizes.m != 1 && s != row * sizes.m as isize {
            break;
        }
        if sizes.m == 1 {
            row = s;
        }
        sizes.m *= d;
        shape.pop();
        sa.pop();
        sb.pop();
    }
    let mut starts = (vec![], vec![]);
    odometer(&shape, [&sa, &sb], [al.offset, bl.offset], |[x, y]| {
        starts.0.push(x);
        starts.1.push(y);
    });
    let (br, bc) = (bl.strides[rank - 2], bl.strides[rank - 1]);
    let once = |starts: &[usize]| match starts {
        [first, rest @ ..] if rest.iter().all(|s| s == first) => Some(*first),
        _ => None,
    };
    let packed = match (&a.constant, &b.constant, once(&starts.0), once(&starts.1)) {
        _ if dtype != DType::F32 || k * n * sizes.m == 0 => Packed::Neither,
        (_, Some(t), _, Some(offset)) => {
            Packed::Right(spec.weights.right(t, SubMatrix { offset, row: br, col: bc }, k, n))
        }
        (Some(t), None, Some(offset), _) if sizes.m > GEMV_ROWS => {
            Packed::Left(spec.weights.left(t, SubMatrix { offset, row, col: ac }, sizes.m, k))
        }
        _ => Packed::Neither,
    };
    let a = MatrixSide { row, col: ac, starts: starts.0 };
    let b = MatrixSide { row: br, col: bc, starts: starts.1 };
    Some(Box::new(MatMul { dtype, sizes, a, b, packed }))
}

impl Kernel for MatMul {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        match self.dtype {
            DType::F32 => {
                let out = bytemuck::cast_slice_mut(outputs[0]);
                self.floats(cx, inputs[0].typed(), inputs[1].typed(), out);
            }
            DType::F16 | DType::BF16 => return Err("a kernel for f32".into()),
            DType::F64 => {
                self.doubles(
                    inputs[0].typed(),
                    inputs[1].typed(),
                    bytemuck::cast_slice_mut(outputs[0]),
                );
            }
            _ => self.integers(cx, inputs, outputs[0]),
        }
        Ok(())
    }

    fn reads(&self, input: usize) -> bool {
        match self.packed {
            Packed::Left(_) => input != 0,
            Packed::Right(_) => input != 1,
            Packed::Neither => true,
        }
    }

    fn takes_epilogue(&self) -> bool {
        self.dtype == DType::F32
    }
}

impl MatMul {
    fn floats(&self, cx: &Context<'_>, a: &[f32], b: &[f32], out: &mut [f32]) {
        let size = self.sizes.m * self.sizes.n;
        let product = |i: usize| Product {
            left: match &self.packed {
                Packed::Left(p) => Left::Packed(p),
                Packed::Right(_) | Packed::Neither => Left::Plain(self.a.matrix(a, i)),
            },
            right: match &self.packed {
                Packed::Right(p) => Right::Packed(p),
                Packed::Left(_) | Packed::Neither => Right::Plain(self.b.matrix(b, i)),
            },
            at: i * size,
        };
        let count = self.a.starts.len();
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, self.sizes.m, self.sizes.n, &block);
        gemm(cx.threads, self.sizes, count, product, out, finish);
    }

    fn doubles(&self, a: &[f64], b: &[f64], out: &mut [f64]) {
        let GemmSizes { m, n, k } = self.sizes;
        // The buffer's contents are arbitrary, and a product over nothing is zero.
        if m * n * k == 0 {
            return out.fill(0.0);
        }
        for (i, out) in out.chunks_exact_mut(m * n).enumerate() {
            let views = (plain(a, &self.a, i, m, k), plain(b, &self.b, i, k, n));
            match (ArrayViewMut2::from_shape((m, n), &mut *out), views) {
                (Ok(mut c), (Some(a), Some(b))) => general_mat_mul(1.0, &a, &b, 0.0, &mut c),
                // An operand that is read backwards is no view of `ndarray`.
                _ => self.doubles_by_element(a, b, i, out),
            }
        }
    }

    /// Product `i`, element by element.
    fn doubles_by_element(&self, a: &[f64], b: &[f64], i: usize, out: &mut [f64]) {
        let (a, b) = (self.a.matrix(a, i), self.b.matrix(b, i));
        for (at, v) in out.iter_mut().enumerate() {
            let (r, c) = (at / self.sizes.n, at % self.sizes.n);
            let products = (0..self.sizes.k).map(|k| a.data[a.at(r, k)] * b.data[b.at(k, c)]);
            *v = products.fold(0.0, |sum, p| sum + p);
        }
    }

    fn integers(&self, cx: &Context<'_>, inputs: &[TensorView<'_>], out: &mut [u8]) {
        macro_rules! products {
            ($ty:ty) => {{
                let (a, b): (&[$ty], &[$ty]) = (inputs[0].typed(), inputs[1].typed());
                let out: &mut [$ty] = bytemuck::cast_slice_mut(out);
                let size = (self.sizes.m * self.sizes.n).max(1);
                for (i, out) in out.chunks_exact_mut(size).enumerate() {
                    let operands = [self.a.matrix(a, i), self.b.matrix(b, i)];
                    integers::product(cx.threads, self.sizes, operands, out);
                }
            }};
        }
        by_size!(self.dtype, products);
    }
}

/// Product `i` of a side as a matrix.
fn plain<'a>(
    data: &'a [f64],
    side: &MatrixSide,
    i: usize,
    rows: usize,
    cols: usize,
) -> Option<ArrayView2<'a, f64>> {
    let strides = (usize::try_from(side.row).ok()?, usize::try_from(side.col).ok()?);
    ArrayView2::from_shape((rows, cols).strides(strides), data.get(side.starts[i]..)?).ok()
}
