//! Scatters of rows to computed indices, and the flat indices of elements.
//!
//! Rows are written in order, because a later one may combine with an earlier one.

use crate::pointwise::convert::by_size;
use crate::pointwise::{ElementSource, strided_copy};
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use bytemuck::Pod;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::layout::Layout;
use mlc_vector::math;
use mlc_vector::simd;

/// Numbers that a task should at least have.
const GRAIN: usize = 1 << 14;

/// How a row reduction what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScatterReduction {
    Replace,
    Add,
    Mul,
    Max,
    Min,
}

struct Rows {
    reduction: ScatterReduction,
    dtype: DType,
    x: ElementSource,
    places: Layout,
    u: Layout,
    /// Rows of the target.
    n: usize,
    /// Elements of a row.
    width: usize,
}

/// Prepares the writing of rows; attribute 0 says how they combine.
pub fn rows(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, i, u] = spec.args else { return None };
    let [(dtype, _)] = spec.outputs else { return None };
    let Attr::Str(word) = spec.attrs.first()? else { return None };
    let reduction = match word.as_str() {
        "none" => ScatterReduction::Replace,
        "add" => ScatterReduction::Add,
        "mul" => ScatterReduction::Mul,
        "max" => ScatterReduction::Max,
        "min" => ScatterReduction::Min,
        _ => return None,
    };
    let is_computed = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
    if !(is_computed || reduction == ScatterReduction::Replace && !dtype.is_small())
        || *dtype == DType::Str
    {
        return None;
    }
    let &[n, width] = x.layout.shape.as_slice() else { return None };
    if !u.layout.is_dense() || i.layout.rank() != 1 {
        return None;
    }
    let x = ElementSource::of(&x.layout)?;
    let [places, u] = [i, u].map(|a| a.layout.clone());
    Some(Box::new(Rows { reduction, dtype: *dtype, x, places, u, n, width }))
}

impl Kernel for Rows {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let [x, i, u] = inputs else { return Err("three operands are written".into()) };
        let size = self.dtype.size();
        macro_rules! copy {
            ($t:ty) => {
                strided_copy::<$t>(&self.x, x.typed(), 0, bytemuck::cast_slice_mut(outputs[0]))
            };
        }
        by_size!(self.dtype, copy);
        let places = i.typed::<i64>();
        for m in 0..self.places.shape[0] {
            let at = self.places.offset as isize + m as isize * self.places.strides[0];
            let place = places[at as usize];
            let row = usize::try_from(place).ok().filter(|p| *p < self.n);
            let row = row.ok_or_else(|| format!("the place {place} is not below {}", self.n))?;
            let to = &mut outputs[0][row * self.width * size..][..self.width * size];
            let from = &u.bytes[(self.u.offset + m * self.width) * size..][..self.width * size];
            let reduction = self.reduction;
            match self.dtype {
                _ if reduction == ScatterReduction::Replace => to.copy_from_slice(from),
                DType::F32 => singles(reduction, to, from),
                DType::F64 => doubles(reduction, to, from),
                DType::I32 => {
                    combine(
                        reduction,
                        to,
                        from,
                        i32::wrapping_add,
                        i32::wrapping_mul,
                        i32::max,
                        i32::min,
                    );
                }
                _ => combine(
                    reduction,
                    to,
                    from,
                    i64::wrapping_add,
                    i64::wrapping_mul,
                    i64::max,
                    i64::min,
                ),
            }
        }
        Ok(())
    }
}

/// Combines a row of the target with one that is scattered to it.
#[inline(always)]
fn combine<T: Pod>(
    reduction: ScatterReduction,
    to: &mut [u8],
    from: &[u8],
    add: impl Fn(T, T) -> T,
    mul: impl Fn(T, T) -> T,
    max: impl Fn(T, T) -> T,
    min: impl Fn(T, T) -> T,
) {
    let to: &mut [T] = bytemuck::cast_slice_mut(to);
    let both = to.iter_mut().zip(bytemuck::cast_slice::<u8, T>(from));
    match reduction {
        ScatterReduction::Replace => both.for_each(|(t, u)| *t = *u),
        ScatterReduction::Add => both.for_each(|(t, u)| *t = add(*t, *u)),
        ScatterReduction::Mul => both.for_each(|(t, u)| *t = mul(*t, *u)),
        ScatterReduction::Max => both.for_each(|(t, u)| *t = max(*t, *u)),
        ScatterReduction::Min => both.for_each(|(t, u)| *t = min(*t, *u)),
    }
}

simd! {
    fn singles(reduction: ScatterReduction, to: &mut [u8], from: &[u8]) {
        combine::<f32>(reduction, to, from, |t, u| t + u, |t, u| t * u, math::maximum, math::minimum);
    }
}

fn doubles(reduction: ScatterReduction, to: &mut [u8], from: &[u8]) {
    combine::<f64>(
        reduction,
        to,
        from,
        |t, u| t + u,
        |t, u| t * u,
        math::maximum_f64,
        math::minimum_f64,
    );
}

/// Numbers of elements in a tensor.
struct Numbers {
    index: ElementSource,
    /// Extents of the index.
    shape: Vec<usize>,
    /// The extent that negative indices count from.
    extent: i64,
    /// What one place further along the indexed axis adds.
    step: i64,
    /// What one place further along each axis of the index adds.
    own: Vec<i64>,
}

/// Prepares the numbers of elements; attribute 0 is the axis, attribute 1 the shape of the tensor that they are in.
pub fn numbers(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [i] = spec.args else { return None };
    let extents = spec.sizes(1)?;
    let axis = usize::try_from(spec.int(0)?).ok().filter(|a| *a < extents.len())?;
    if i.dtype != DType::I64 || i.layout.rank() != extents.len() {
        return None;
    }
    // Of a tensor without elements, too, every number is what the places say.
    let below = |a: usize| extents[a + 1..].iter().fold(1i64, |n, &d| n.wrapping_mul(d as i64));
    let mut own: Vec<i64> = (0..extents.len()).map(below).collect();
    let step = std::mem::replace(&mut own[axis], 0);
    let (index, shape) = (ElementSource::of(&i.layout)?, i.layout.shape.to_vec());
    Some(Box::new(Numbers { index, shape, extent: extents[axis] as i64, step, own }))
}

impl Kernel for Numbers {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let index: &[i64] = inputs[0].typed();
        let out: &mut [i64] = bytemuck::cast_slice_mut(outputs[0]);
        let width = self.shape.last().copied().unwrap_or(1).max(1);
        cx.threads.chunks(out, width, GRAIN, |at, part| {
            strided_copy(&self.index, index, at, part);
            for (i, line) in part.chunks_exact_mut(width).enumerate() {
                self.line(at / width + i, line);
            }
        });
        Ok(())
    }
}

impl Numbers {
    /// The numbers along the last axis of the index, line `line` of it, in place of the indices.
    fn line(&self, mut line: usize, out: &mut [i64]) {
        let (last, lead) = (self.shape.len() - 1, &self.shape[..self.shape.len() - 1]);
        let mut number = 0i64;
        for (&extent, own) in lead.iter().zip(&self.own).rev() {
            number = number.wrapping_add(own.wrapping_mul((line % extent) as i64));
            line /= extent;
        }
        for o in out {
            let i = if *o < 0 { o.wrapping_add(self.extent) } else { *o };
            *o = number.wrapping_add(i.wrapping_mul(self.step));
            number = number.wrapping_add(self.own[last]);
        }
    }
}
