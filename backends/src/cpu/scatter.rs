//! Kernels that write to computed places: rows in their order, and the numbers of the elements that indices name.
//!
//! Rows are written one after another, because a later one may meet what an earlier one left.

use super::convert::by_size;
use super::launch::{Array, Context, Launch, LaunchSite};
use super::math;
use super::pointwise::{ElementSource, strided_copy};
use super::simd::simd;
use super::threads::SharedSlice;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::layout::{Layout, odometer};

/// Numbers that a task should at least have.
const GRAIN: usize = 1 << 14;

/// How a row meets what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    Replaces,
    Add,
    Mul,
    Max,
    Min,
}

struct Rows {
    meets: Meets,
    dtype: DType,
    x: ElementSource,
    places: Layout,
    u: Layout,
    /// Rows of the target.
    n: usize,
    /// Elements of a row.
    width: usize,
}

/// Prepares the writing of rows; attribute 0 says how they meet.
pub fn rows(site: &LaunchSite<'_>) -> Option<Box<dyn Launch>> {
    let [x, i, u] = site.args else { return None };
    let [(dtype, _)] = site.outputs else { return None };
    let Attr::Str(word) = site.attrs.first()? else { return None };
    let meets = match word.as_str() {
        "none" => Meets::Replaces,
        "add" => Meets::Add,
        "mul" => Meets::Mul,
        "max" => Meets::Max,
        "min" => Meets::Min,
        _ => return None,
    };
    let is_computed = matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
    if !(is_computed || meets == Meets::Replaces && !dtype.is_small()) || *dtype == DType::Str {
        return None;
    }
    let &[n, width] = x.layout.shape.as_slice() else { return None };
    if !u.layout.is_dense() || i.layout.rank() != 1 {
        return None;
    }
    let x = ElementSource::of(&x.layout)?;
    let [places, u] = [i, u].map(|a| a.layout.clone());
    Some(Box::new(Rows { meets, dtype: *dtype, x, places, u, n, width }))
}

impl Launch for Rows {
    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[Array<'_>],
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
            match (self.meets, self.dtype) {
                (Meets::Replaces, _) => to.copy_from_slice(from),
                (meets, DType::F32) => {
                    singles(meets, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from));
                }
                (meets, DType::F64) => doubles(meets, to, from),
                (meets, DType::I32) => {
                    let (add, mul) = (i32::wrapping_add, i32::wrapping_mul);
                    integers::<i32>(meets, to, from, add, mul);
                }
                (meets, _) => {
                    let (add, mul) = (i64::wrapping_add, i64::wrapping_mul);
                    integers::<i64>(meets, to, from, add, mul);
                }
            }
        }
        Ok(())
    }
}

simd! {
    fn singles(meets: Meets, to: &mut [f32], from: &[f32]) {
        let both = to.iter_mut().zip(from);
        match meets {
            Meets::Replaces => both.for_each(|(t, u)| *t = *u),
            Meets::Add => both.for_each(|(t, u)| *t += u),
            Meets::Mul => both.for_each(|(t, u)| *t *= u),
            Meets::Max => both.for_each(|(t, u)| *t = math::maximum(*t, *u)),
            Meets::Min => both.for_each(|(t, u)| *t = math::minimum(*t, *u)),
        }
    }
}

fn doubles(meets: Meets, to: &mut [u8], from: &[u8]) {
    let to: &mut [f64] = bytemuck::cast_slice_mut(to);
    let both = to.iter_mut().zip(bytemuck::cast_slice::<u8, f64>(from));
    match meets {
        Meets::Replaces => both.for_each(|(t, u)| *t = *u),
        Meets::Add => both.for_each(|(t, u)| *t += u),
        Meets::Mul => both.for_each(|(t, u)| *t *= u),
        Meets::Max => both.for_each(|(t, u)| *t = math::maximum_f64(*t, *u)),
        Meets::Min => both.for_each(|(t, u)| *t = math::minimum_f64(*t, *u)),
    }
}

fn integers<T: bytemuck::Pod + Ord>(
    meets: Meets,
    to: &mut [u8],
    from: &[u8],
    add: impl Fn(T, T) -> T,
    mul: impl Fn(T, T) -> T,
) {
    let to: &mut [T] = bytemuck::cast_slice_mut(to);
    let both = to.iter_mut().zip(bytemuck::cast_slice::<u8, T>(from));
    match meets {
        Meets::Replaces => both.for_each(|(t, u)| *t = *u),
        Meets::Add => both.for_each(|(t, u)| *t = add(*t, *u)),
        Meets::Mul => both.for_each(|(t, u)| *t = mul(*t, *u)),
        Meets::Max => both.for_each(|(t, u)| *t = (*t).max(*u)),
        Meets::Min => both.for_each(|(t, u)| *t = (*t).min(*u)),
    }
}

/// Numbers of elements in a tensor.
struct Numbers {
    index: Layout,
    /// The extent that negative indices count from.
    extent: i64,
    /// What one place further along the indexed axis adds.
    step: i64,
    /// What one place further along each axis of the index adds.
    own: Vec<isize>,
}

/// Prepares the numbers of elements; attribute 0 is the axis, attribute 1 the shape of the tensor that they are in.
pub fn numbers(site: &LaunchSite<'_>) -> Option<Box<dyn Launch>> {
    let [i] = site.args else { return None };
    let shape = site.sizes(1)?;
    let axis = usize::try_from(site.int(0)?).ok().filter(|a| *a < shape.len())?;
    if i.dtype != DType::I64 || i.layout.rank() != shape.len() {
        return None;
    }
    // Of a tensor without elements, too, every number is what the places say.
    let below = |a: usize| shape[a + 1..].iter().fold(1isize, |n, &d| n.wrapping_mul(d as isize));
    let mut own: Vec<isize> = (0..shape.len()).map(below).collect();
    let step = std::mem::replace(&mut own[axis], 0) as i64;
    Some(Box::new(Numbers { index: i.layout.clone(), extent: shape[axis] as i64, step, own }))
}

impl Launch for Numbers {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let index: &[i64] = inputs[0].typed();
        let out: &mut [i64] = bytemuck::cast_slice_mut(outputs[0]);
        let (shape, strides) = (&self.index.shape, &self.index.strides);
        let (Some((&width, outer)), Some((&next, lead)), Some((&own, own_lead))) =
            (shape.split_last(), strides.split_last(), self.own.split_last())
        else {
            return Err("a tensor has an axis that is indexed".into());
        };
        if out.is_empty() {
            return Ok(());
        }
        let lines: usize = outer.iter().product();
        let shared = SharedSlice::new(out);
        let tasks = cx.threads.tasks(lines * width, GRAIN).min(lines);
        cx.threads.each(tasks, |t| {
            let (first, last) = (lines * t / tasks, lines * (t + 1) / tasks);
            let mut line = 0;
            odometer(outer, [lead, own_lead], [self.index.offset, 0], |[at, base]| {
                if (first..last).contains(&line) {
                    // SAFETY: every line belongs to one task.
                    let out = unsafe { shared.part(line * width, width) };
                    self.line((index, at, next), (base, own), out);
                }
                line += 1;
            });
        });
        Ok(())
    }
}

impl Numbers {
    /// The numbers along the last axis of the index, whose elements lie from `at` on.
    fn line(
        &self,
        (index, at, next): (&[i64], usize, isize),
        (base, own): (usize, isize),
        out: &mut [i64],
    ) {
        let mut number = base as i64;
        let mut from = at as isize;
        for o in out {
            let i = index[from as usize];
            let i = if i < 0 { i.wrapping_add(self.extent) } else { i };
            *o = number.wrapping_add(i.wrapping_mul(self.step));
            number = number.wrapping_add(own as i64);
            from += next;
        }
    }
}
