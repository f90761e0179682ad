//! Evaluates code for all elements of an output.

use super::accelerated::contract;
use super::accelerated::rows::{self, Axis, Rows};
use super::array::{Array, Elements, wrap};
use super::code::compile::{Body, MeaningCode};
use super::code::{Fault, InputElements, Machine, Slot, for_each};
use super::{Engine, Noise};
use crate::workers;
use std::sync::{Arc, Mutex, PoisonError};

/// Fewer elements are computed by one thread.
const PARALLEL: usize = 1 << 14;

/// The `n` elements of the output; [`Engine::Fast`] takes code that was accelerated, with its tables.
pub(super) fn run(
    code: &MeaningCode,
    tables: &[Elements],
    n: usize,
    args: &[Array],
    engine: Engine,
) -> Result<Elements, Fault> {
    let all = args.iter().map(Array::elements).chain(tables);
    let sources: Vec<InputElements> = all.map(elements).collect();
    evaluate(code, n, &sources, engine, None)
}

/// The elements as code reads them.
pub(super) fn elements(e: &Elements) -> InputElements<'_> {
    match e {
        Elements::Float(v) => InputElements::Float(v),
        Elements::Int(v) => InputElements::Int(v),
    }
}

/// The same on elements as code reads them; `at` one value of an index variable of the output, if there is one.
pub(super) fn evaluate(
    code: &MeaningCode,
    n: usize,
    sources: &[InputElements],
    engine: Engine,
    at: Option<(Slot, i64)>,
) -> Result<Elements, Fault> {
    match engine {
        Engine::Plain => plain(code, n, sources, None, at),
        Engine::Noisy(noise) => plain(code, n, sources, Some(noise), at),
        Engine::Fast => fast(code, n, sources, at),
    }
}

/// A machine whose variable has its one value.
fn machine<'a>(
    code: &MeaningCode,
    sources: &'a [InputElements<'a>],
    at: Option<(Slot, i64)>,
) -> Machine<'a> {
    let mut m = Machine::new(code.extents.len(), sources);
    if let Some((slot, value)) = at {
        m.slots[slot] = value;
    }
    m
}

/// The axes that are run through.
fn open_axes(code: &MeaningCode, at: Option<(Slot, i64)>) -> Vec<(Slot, i64)> {
    let is_open = |a: &(Slot, i64)| at.is_none_or(|(slot, _)| slot != a.0);
    code.axes.iter().copied().filter(is_open).collect()
}

/// Element by element, in row-major order.
fn plain(
    code: &MeaningCode,
    n: usize,
    sources: &[InputElements],
    noise: Option<Noise>,
    at: Option<(Slot, i64)>,
) -> Result<Elements, Fault> {
    let mut m = machine(code, sources, at);
    m.noise = noise;
    let axes = open_axes(code, at);
    let elements = match &code.body {
        Body::Real(body) => {
            let mut out = Vec::with_capacity(n);
            for_each(&axes, &mut m, |m| out.push(body.eval(m)));
            Elements::Float(Arc::new(out))
        }
        Body::Int(dtype, body) => {
            let mut out = Vec::with_capacity(n);
            for_each(&axes, &mut m, |m| out.push(wrap(*dtype, body.eval(m))));
            Elements::Int(Arc::new(out))
        }
    };
    m.verdict().map(|()| elements)
}

/// Rows at a time, and large sums of products as matrix products.
fn fast(
    code: &MeaningCode,
    n: usize,
    sources: &[InputElements],
    at: Option<(Slot, i64)>,
) -> Result<Elements, Fault> {
    if n == 0 {
        return Ok(match code.body {
            Body::Real(_) => Elements::Float(Arc::default()),
            Body::Int(..) => Elements::Int(Arc::default()),
        });
    }
    if at.is_none()
        && let Some(product) = contract::product(code, sources, n)
    {
        return product.map(|v| Elements::Float(Arc::new(v)));
    }
    Ok(match &code.body {
        Body::Real(body) => {
            let mut out = vec![0.0; n];
            all(body, code, sources, at, &mut out)?;
            Elements::Float(Arc::new(out))
        }
        Body::Int(dtype, body) => {
            let mut out = vec![0; n];
            all(body, code, sources, at, &mut out)?;
            out.iter_mut().for_each(|v| *v = wrap(*dtype, *v));
            Elements::Int(Arc::new(out))
        }
    })
}

/// The `n` elements of the output rounded to 32 bits, by accelerated code; `None` if they are no floats.
pub(super) fn singles(
    code: &MeaningCode,
    n: usize,
    sources: &[InputElements],
) -> Result<Option<Vec<f32>>, Fault> {
    let Body::Real(body) = &code.body else { return Ok(None) };
    if n == 0 {
        return Ok(Some(vec![]));
    }
    if let Some(product) = contract::product(code, sources, n) {
        return Ok(Some(product?.into_iter().map(|v| v as f32).collect()));
    }
    let mut out = vec![0.0; n];
    let axes = run_axes(body, code, None);
    let parts: Vec<Mutex<&mut [f32]>> = out.chunks_mut(PARALLEL).map(Mutex::new).collect();
    workers::try_each(parts.len(), |i| {
        let mut part = parts[i].lock().unwrap_or_else(PoisonError::into_inner);
        let mut wide = vec![0.0; part.len()];
        let mut m = machine(code, sources, None);
        rows::fill(body, &axes, &mut m, i * PARALLEL, &mut wide)?;
        part.iter_mut().zip(wide).for_each(|(to, v)| *to = v as f32);
        Ok(())
    })?;
    drop(parts);
    Ok(Some(out))
}

/// The axes that are run through, as few as the body allows.
fn run_axes(body: &impl Rows, code: &MeaningCode, at: Option<(Slot, i64)>) -> Vec<Axis> {
    let open = open_axes(code, at);
    let axes: Vec<Axis> = open.iter().map(|&(slot, len)| Axis { slot, start: 0, len }).collect();
    rows::merge(body, &axes)
}

/// Fills the output, in parallel if it is large.
fn all<B>(
    body: &B,
    code: &MeaningCode,
    sources: &[InputElements],
    at: Option<(Slot, i64)>,
    out: &mut [B::Item],
) -> Result<(), Fault>
where
    B: Rows + Sync,
    B::Item: Send,
{
    let axes = run_axes(body, code, at);
    let fill = |from: usize, out: &mut [B::Item]| {
        let mut m = machine(code, sources, at);
        rows::fill(body, &axes, &mut m, from, out)
    };
    if out.len() < PARALLEL {
        return fill(0, out);
    }
    let part = out.len().div_ceil(4 * workers::share()).max(PARALLEL / 8);
    let parts: Vec<Mutex<&mut [B::Item]>> = out.chunks_mut(part).map(Mutex::new).collect();
    workers::try_each(parts.len(), |i| {
        fill(i * part, &mut parts[i].lock().unwrap_or_else(PoisonError::into_inner))
    })
}
