//! Dequantises blocks to f32: tiles for products, and whole tensors.

use super::formats::Format;
use super::panels::{BlockPanels, LANES};
use super::row_starts;
use crate::pointwise::convert::int_at;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::odometer;
use mlc_vector::simd;
use std::ops::Range;

simd! {
    /// Some lanes of the lines of a panel at some places, `width` elements apart. What fills up groups is zero, whatever their scales are.
    pub fn tile(w: &BlockPanels, panel: usize, places: &Range<usize>, lanes: (usize, usize), to: &mut [f32], width: usize) {
        let (lane, count) = lanes;
        if count == LANES && w.is_plain(places) {
            return w.lines(panel, places.clone(), |place, line| {
                to[(place - places.start) * width..][..LANES].copy_from_slice(line);
            });
        }
        w.lines(panel, places.clone(), |place, line| {
            let line = if w.number_at(place).is_some() { line } else { &[0.0; LANES] };
            to[(place - places.start) * width..][..count].copy_from_slice(&line[lane..lane + count]);
        });
    }
}

simd! {
    /// Products of a row, whose elements `at` says, with the numbers of a panel one by one.
    pub fn products(w: &BlockPanels, panel: usize, at: &dyn Fn(usize) -> f32, sums: &mut [f32; LANES]) {
        sums.fill(0.0);
        w.lines(panel, 0..w.depth, |place, line| {
            if let Some(k) = w.number_at(place) {
                let x = at(k);
                for (sum, n) in sums.iter_mut().zip(line) {
                    *sum = n.mul_add(x, *sum);
                }
            }
        });
    }
}

/// The numbers of a tensor of blocks.
struct Dequantize {
    format: &'static Format,
    starts: Vec<usize>,
    blocks: usize,
}

/// Prepares the numbers of blocks of a format, row by row.
pub fn make(spec: &KernelSpec<'_>, format: &'static Format) -> Option<Box<dyn Kernel>> {
    let [w] = spec.args else { return None };
    let starts = row_starts(&w.layout, format).filter(|_| w.dtype == DType::U8)?;
    let blocks = w.layout.shape[w.layout.rank() - 2];
    Some(Box::new(Dequantize { format, starts, blocks }))
}

impl Kernel for Dequantize {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let wide = self.blocks * self.format.numbers;
        cx.threads.chunks(out, wide, GRAIN, |first, part| {
            for (i, row) in part.chunks_exact_mut(wide).enumerate() {
                let start = self.starts[first / wide + i];
                self.format
                    .numbers_of(&inputs[0].bytes[start..][..self.blocks * self.format.bytes], row);
            }
        });
        Ok(())
    }
}

/// Some rows of a matrix of blocks.
struct GatherRows {
    format: &'static Format,
    starts: Vec<usize>,
    blocks: usize,
}

/// Prepares the numbers of the rows that an index names, negative ones counted from the end.
pub fn rows(spec: &KernelSpec<'_>, format: &'static Format) -> Option<Box<dyn Kernel>> {
    let [w, _] = spec.args else { return None };
    let starts = row_starts(&w.layout, format).filter(|_| w.layout.rank() == 3)?;
    Some(Box::new(GatherRows { format, starts, blocks: w.layout.shape[1] }))
}

impl Kernel for GatherRows {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (bytes, index, n) = (inputs[0].bytes, &inputs[1], self.starts.len() as i64);
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let mut rows = out.chunks_exact_mut((self.blocks * self.format.numbers).max(1));
        let (mut bad, strides) = (None, [index.layout.strides.as_slice()]);
        odometer(&index.layout.shape, strides, [index.layout.offset], |[at]| {
            let i = int_at(index.dtype, index.bytes, at);
            let counted = if i < 0 { i.wrapping_add(n) } else { i };
            match (rows.next(), (0..n).contains(&counted)) {
                (Some(row), true) => {
                    let bytes = &bytes[self.starts[counted as usize]..];
                    self.format.numbers_of(&bytes[..self.blocks * self.format.bytes], row);
                }
                (Some(_), false) => bad = bad.or(Some(i)),
                // Nothing is read for a result without elements.
                (None, _) => {}
            }
        });
        match bad {
            Some(i) => Err(format!("index {i} is outside an axis of {n} elements")),
            None => Ok(()),
        }
    }
}

/// Numbers of a task that is worth handing over.
const GRAIN: usize = 1 << 14;
