//! Evaluates recurrences: at each step the results along its axis, in order; then the other results.
//!
//! A step reads what earlier ones have written, so steps are never evaluated out of order or at the same time.

use super::array::{Array, Elements};
use super::code::compile::{Body, MeaningCode};
use super::code::{Fault, InputElements, Slot};
use super::{Engine, exec};
use mlc_dsl::ir::DType;
use std::sync::Arc;

/// A result and what of it is computed so far.
pub(super) struct Unfinished<'a> {
    code: &'a MeaningCode,
    dtype: DType,
    elements: Elements,
}

impl<'a> Unfinished<'a> {
    /// A result of `n` elements, none of which is computed.
    pub(super) fn new(code: &'a MeaningCode, dtype: DType, n: usize) -> Unfinished<'a> {
        let elements = match code.body {
            Body::Real(_) => Elements::Float(Arc::new(vec![0.0; n])),
            Body::Int(..) => Elements::Int(Arc::new(vec![0; n])),
        };
        Unfinished { code, dtype, elements }
    }

    /// How many steps there are; `None` if the result takes part in none.
    fn steps(&self) -> Option<i64> {
        let step = self.code.step?;
        self.code.axes.iter().find(|a| a.0 == step).map(|a| a.1)
    }

    fn len(&self) -> usize {
        match &self.elements {
            Elements::Float(v) => v.len(),
            Elements::Int(v) => v.len(),
        }
    }

    /// Writes the elements of a step to their places.
    fn write(&mut self, step: Slot, at: i64, of: &Elements) {
        let axes = &self.code.axes;
        let Some(position) = axes.iter().position(|a| a.0 == step) else { return };
        let count = |axes: &[(Slot, i64)]| axes.iter().map(|a| a.1 as usize).product::<usize>();
        let run = count(&axes[position + 1..]);
        let (stride, from) = (run * axes[position].1 as usize, run * at as usize);
        fn copy<T: Copy>(to: &mut [T], of: &[T], [run, stride, from]: [usize; 3]) {
            if run > 0 {
                let rows = to.chunks_mut(stride).zip(of.chunks(run));
                rows.for_each(|(to, of)| to[from..from + run].copy_from_slice(of));
            }
        }
        let places = [run, stride, from];
        match (&mut self.elements, of) {
            (Elements::Float(to), Elements::Float(of)) => {
                copy(&mut Arc::make_mut(to)[..], of, places)
            }
            (Elements::Int(to), Elements::Int(of)) => copy(&mut Arc::make_mut(to)[..], of, places),
            (Elements::Float(_), Elements::Int(_)) | (Elements::Int(_), Elements::Float(_)) => {}
        }
    }
}

/// The elements of all results; `settle` rounds what a step computes.
pub(super) fn run(
    mut results: Vec<Unfinished<'_>>,
    args: &[Array],
    backwards: bool,
    engine: Engine,
    settle: &dyn Fn(Array) -> Array,
) -> Result<Vec<Elements>, Fault> {
    let steps = results.iter().filter_map(Unfinished::steps).max().unwrap_or(0);
    for k in 0..steps {
        let at = if backwards { steps - 1 - k } else { k };
        for i in 0..results.len() {
            let Some(step) = results[i].code.step else { continue };
            let n = results[i].len() / steps as usize;
            let (code, sources) = (results[i].code, sources(args, &results));
            let elements = exec::evaluate(code, n, &sources, engine, Some((step, at)))?;
            let elements = settled(elements, results[i].dtype, settle);
            results[i].write(step, at, &elements);
        }
    }
    for i in 0..results.len() {
        let (code, n) = (results[i].code, results[i].len());
        if code.step.is_some() {
            continue;
        }
        results[i].elements = exec::evaluate(code, n, &sources(args, &results), engine, None)?;
    }
    Ok(results.into_iter().map(|r| r.elements).collect())
}

/// What the equations read: the arguments, then the results.
fn sources<'a>(args: &'a [Array], results: &'a [Unfinished<'_>]) -> Vec<InputElements<'a>> {
    let args = args.iter().map(Array::elements);
    args.chain(results.iter().map(|r| &r.elements)).map(exec::elements).collect()
}

/// The elements as the working precision leaves them.
fn settled(e: Elements, dtype: DType, settle: &dyn Fn(Array) -> Array) -> Elements {
    match e {
        Elements::Float(v) => {
            let n = v.len();
            match Array::from_f64(dtype, vec![n], Arc::unwrap_or_clone(v)) {
                Some(a) => settle(a).elements().clone(),
                None => Elements::Float(Arc::default()),
            }
        }
        ints @ Elements::Int(_) => ints,
    }
}
