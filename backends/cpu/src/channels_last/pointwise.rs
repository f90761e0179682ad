//! Pointwise convolutions over many channels as GEMM. Direct tiles would have rows at multiples of a page, which alias in the first-level
//! cache, and would read all filters again.

use super::conv::BLOCK;
use super::windows::Windows;
use crate::gemm::SubMatrix;
use crate::gemm::{GemmEpilogue, GemmSizes, Left, PackedRight, Product, Right, gemm};
use crate::runtime::kernel::{Context, Kernel, TensorView};
use crate::runtime::weight_cache::{Pack, WeightCache};
use mlc_dsl::ir::Tensor;
use std::sync::Arc;

/// A pointwise convolution with constant filters.
pub struct PointwiseConv {
    windows: Windows,
    sizes: GemmSizes,
    filters: Arc<Pack<PackedRight>>,
}

/// Least output channels for which packing the positions does not matter.
const WIDE: usize = 64;

/// Whether GEMM is cheaper than direct tiles of `rows` positions.
pub fn pays(windows: &Windows, o: usize, q: usize, rows: usize) -> bool {
    windows.is_straight() && o >= WIDE && q * rows > BLOCK
}

impl PointwiseConv {
    /// A convolution of `q` to `o` channels. Its filters begin at element `at` of a constant.
    pub fn new(
        windows: Windows,
        o: usize,
        q: usize,
        constant: &Tensor,
        at: usize,
        weights: &WeightCache,
    ) -> PointwiseConv {
        let turned = SubMatrix { offset: at, row: 1, col: q as isize };
        let filters = weights.right(constant, turned, q, o);
        let sizes = GemmSizes { m: windows.len(), n: o, k: q };
        PointwiseConv { windows, sizes, filters }
    }
}

impl Kernel for PointwiseConv {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let GemmSizes { m, n, .. } = self.sizes;
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, m, n, &block);
        let positions = self.windows.matrix(x);
        let product = |_| Product {
            left: Left::Plain(positions),
            right: Right::Packed(&self.filters),
            at: 0,
        };
        gemm(cx.threads, self.sizes, 1, product, out, finish);
        Ok(())
    }

    fn reads(&self, input: usize) -> bool {
        input != 1
    }

    fn takes_epilogue(&self) -> bool {
        true
    }
}
