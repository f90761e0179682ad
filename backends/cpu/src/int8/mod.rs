//! Int8 kernels: GEMM and convolution with i32 accumulators and requantising epilogues, max pooling, and layout transposes.
//!
//! Micro-kernels multiply u8 by i8: an operand of the other signedness is shifted by 128 with its zero point. Zero points enter through row and
//! column sums, never element by element. Accumulators wrap, so results are those of the definition, bit for bit.

mod channels_last;
mod conv;
mod dot;
mod epilogue;
mod matmul;
mod pack;
mod pool;

use crate::runtime::weight_cache::{Pack, PackKey, WeightCache};
pub use channels_last::make as conv_channels_last;
pub use conv::make as conv;
pub use conv::transpose::{make_first as channels_first, make_last as channels_last};
#[cfg(target_arch = "x86_64")]
pub use dot::has_vnni;
pub use matmul::make as matmul;
use mlc_dsl::ir::Tensor;
pub use pack::PackedBytes;
pub use pool::{make as maxpool, make_channels_last as maxpool_channels_last};
use std::sync::Arc;

use super::runtime::kernel::{OperandSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::Layout;

/// Bytes of a block of columns: they stay in the second-level cache.
const BLOCK: usize = 768 << 10;
/// Most columns of such a block.
const WIDE: usize = 512;

/// Columns of a block for products of this depth.
fn block_columns(depth: usize) -> usize {
    (BLOCK / depth.max(1) / dot::COLUMNS * dot::COLUMNS).clamp(dot::COLUMNS, WIDE)
}

/// A shift by 128 between signed and unsigned bytes.
#[derive(Clone, Copy)]
struct SignShift {
    /// Bits to flip.
    flip: u8,
    /// What that adds.
    offset: i32,
}

/// The shift that makes bytes of a type unsigned or `signed`.
fn sign_shift(dtype: DType, signed: bool) -> Option<SignShift> {
    match (dtype, signed) {
        (DType::U8, false) | (DType::I8, true) => Some(SignShift { flip: 0, offset: 0 }),
        (DType::I8, false) => Some(SignShift { flip: 0x80, offset: 128 }),
        (DType::U8, true) => Some(SignShift { flip: 0x80, offset: -128 }),
        _ => None,
    }
}

/// The elements of a vector, or a number repeated, with `by` added.
fn vector(array: &TensorView<'_>, len: usize, by: i32) -> Vec<i32> {
    let (data, layout): (&[i32], &Layout) = (array.typed(), array.layout);
    let step = layout.strides.first().copied().unwrap_or(0);
    let at = |i: usize| (layout.offset as isize + i as isize * step) as usize;
    (0..len).map(|i| data[at(i)].wrapping_add(by)).collect()
}

/// Whether an operand holds zero points.
fn is_zero_point(operand: &OperandSpec, most: usize) -> bool {
    operand.dtype == DType::I32 && operand.layout.rank() <= most
}

impl WeightCache {
    /// The packed form of a matrix of bytes that begins at element `offset` of `constant`.
    pub fn bytes(
        &self,
        constant: &Tensor,
        offset: usize,
        strides: (isize, isize),
        sizes: (usize, usize),
        pack: &dyn Fn() -> PackedBytes,
    ) -> Arc<Pack<PackedBytes>> {
        let (row, col) = strides;
        let numbers = [offset as isize, row, col, sizes.0 as isize, sizes.1 as isize];
        self.get_or_pack(&[constant], PackKey::of(numbers), pack)
    }
}
