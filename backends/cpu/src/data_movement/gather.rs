//! Gathers of elements and slices by computed indices.

use super::axis_of;
use crate::pointwise::convert::{by_size, int_at};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, odometer};

/// Elements that a task should at least have.
const GRAIN: usize = 1 << 15;
/// Bytes of slices that are.
const SLICES: usize = 1 << 17;

struct Gather {
    dtype: DType,
    at: usize,
    /// Extent of the axis, elements (of slices, bytes) after it, indices.
    n: usize,
    inner: usize,
    count: usize,
    indices: Indices,
    /// Indices in all.
    held: usize,
}

/// What has an index of its own.
#[derive(Clone, Copy, PartialEq)]
enum Indices {
    /// Every place along the axis.
    Shared,
    /// Every slice of the result, after so many axes.
    Slices(usize),
    /// Every element of the result.
    Elements,
}

/// Prepares a gather of slices.
pub fn gather(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    gather_of(spec, Indices::Shared)
}

/// Prepares a gather of elements.
pub fn gather_elements(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [_, i] = spec.args else { return None };
    let axes = axis_of(spec)?.checked_add(1)?;
    let mut behind = i.layout.shape.iter().zip(&i.layout.strides).skip(axes);
    // An index that is repeated along the axes behind says which slices are copied.
    let repeats = axes < i.layout.rank() && behind.all(|(&d, &s)| d == 1 || s == 0);
    let indices = match repeats {
        true => Indices::Slices(axes),
        false => Indices::Elements,
    };
    gather_of(spec, indices)
}

fn gather_of(spec: &KernelSpec<'_>, indices: Indices) -> Option<Box<dyn Kernel>> {
    let [x, i] = spec.args else { return None };
    let axis = axis_of(spec)?;
    if !x.layout.is_dense() || axis >= x.layout.rank() {
        return None;
    }
    let n = x.layout.shape[axis];
    let inner: usize = x.layout.shape[axis + 1..].iter().product();
    let count = match indices {
        Indices::Shared => i.layout.len(),
        Indices::Slices(_) | Indices::Elements => i.layout.shape[axis],
    };
    // Slices are copied as bytes, wherever they lie.
    let (dtype, size) = match indices == Indices::Elements || inner == 1 {
        true => (x.dtype, 1),
        false => (DType::U8, x.dtype.size()),
    };
    let (at, inner) = (x.layout.offset * size, inner * size);
    let held = match indices {
        Indices::Slices(axes) => i.layout.shape[..axes].iter().product(),
        Indices::Shared | Indices::Elements => i.layout.len(),
    };
    Some(Box::new(Gather { dtype, at, n, inner, count, indices, held }))
}

impl Kernel for Gather {
    fn aligns(&self, input: usize) -> bool {
        input > 0 || self.dtype != DType::U8
    }

    fn scratch(&self) -> u64 {
        (self.held as u64).saturating_mul(8)
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let whole = &inputs[1];
        let first;
        let index = match self.indices {
            Indices::Slices(axes) => {
                let Layout { shape, strides, offset } = whole.layout;
                let (shape, strides) = (shape[..axes].into(), strides[..axes].into());
                first = Layout { shape, strides, offset: *offset };
                &TensorView { layout: &first, ..*whole }
            }
            Indices::Shared | Indices::Elements => whole,
        };
        with_scratch::<usize, 1, _>([self.held], |[places]| {
            self.take(cx, index, places, inputs, outputs)
        })
    }
}

impl Gather {
    /// Reads the index into `places`, and copies what it says.
    fn take(
        &self,
        cx: &Context<'_>,
        index: &TensorView<'_>,
        places: &mut [usize],
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let n = self.n as i64;
        let counted = |i: i64| if i < 0 { i.wrapping_add(n) } else { i };
        let bad = if index.dtype == DType::I64 && index.layout.is_dense() {
            let given = &index.typed::<i64>()[index.layout.offset..][..places.len()];
            places.iter_mut().zip(given).for_each(|(place, &i)| *place = counted(i) as usize);
            let inside = places.iter().fold(1, |all, &p| all & (p < self.n) as u32) == 1;
            let mut each = given.iter().copied();
            if inside { None } else { each.find(|&i| !(0..n).contains(&counted(i))) }
        } else {
            let mut next = places.iter_mut();
            let mut bad = None;
            let strides = [index.layout.strides.as_slice()];
            odometer(&index.layout.shape, strides, [index.layout.offset], |[p]| {
                let i = int_at(index.dtype, index.bytes, p);
                if !(0..n).contains(&counted(i)) {
                    bad.get_or_insert(i);
                }
                next.next().into_iter().for_each(|place| *place = counted(i) as usize);
            });
            bad
        };
        // Nothing is read for a result without elements.
        if let Some(i) = bad.filter(|_| !outputs[0].is_empty()) {
            return Err(format!("index {i} is outside an axis of {} elements", self.n));
        }
        if outputs[0].is_empty() {
            return Ok(());
        }
        macro_rules! go {
            ($t:ty) => {{
                let x: &[$t] = &inputs[0].typed()[self.at..];
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                self.fill(cx, x, places, out);
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }

    fn fill<T: bytemuck::Pod + Send + Sync>(
        &self,
        cx: &Context<'_>,
        x: &[T],
        places: &[usize],
        out: &mut [T],
    ) {
        let (n, inner, count) = (self.n, self.inner, self.count);
        if self.indices == Indices::Elements {
            let (from, to) = (n * inner, count * inner);
            let blocks = out.chunks_exact_mut(to).zip(places.chunks_exact(to));
            for ((out, places), x) in blocks.zip(x.chunks_exact(from)) {
                if inner == 1 {
                    out.iter_mut().zip(places).for_each(|(o, &i)| *o = x[i]);
                    continue;
                }
                let lines = out.chunks_exact_mut(inner).zip(places.chunks_exact(inner));
                for (out, places) in lines {
                    let line = out.iter_mut().zip(places).enumerate();
                    line.for_each(|(s, (o, &i))| *o = x[i * inner + s]);
                }
            }
            return;
        }
        let is_shared = self.indices == Indices::Shared;
        if inner == 1 && is_shared {
            cx.threads.chunks(out, count, GRAIN, |at, part| {
                let rows = part.chunks_exact_mut(count).zip(x[at / count * n..].chunks_exact(n));
                for (line, row) in rows {
                    line.iter_mut().zip(places).for_each(|(o, &i)| *o = row[i]);
                }
            });
            return;
        }
        cx.threads.chunks(out, inner, SLICES, |at, part| {
            for (line, slice) in part.chunks_exact_mut(inner.max(1)).zip(at / inner..) {
                let place = places[if is_shared { slice % count } else { slice }];
                let from = (slice / count * n + place) * inner;
                line.copy_from_slice(&x[from..from + inner]);
            }
        });
    }
}
