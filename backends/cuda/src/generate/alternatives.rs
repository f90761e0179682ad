//! What libraries may compute in place of the launches of a stage.

use super::emit::Emitter;
use super::kernel::{KernelProgram, known};
use super::product::convolutions::Convolved;
use super::product::matrices::Matrices;
use super::stages::{Shape, Stage};
use super::{Generator, bytes_of, take};
use crate::alternative::{Alternative, Copied, Work};
use crate::launch::{Argument, Launch, Place};
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, Value};
use std::collections::HashMap;

/// A stage of a kernel of the plan, and where its launches begin.
type At<'a> = (usize, &'a str, usize, usize);

/// What a library computes, and of what.
struct Found {
    work: Work,
    read: Vec<Value>,
    copied: Option<Copied>,
    /// The type of the result, and whether it is the stage's value.
    dtype: DType,
    is_whole: bool,
}

impl From<Matrices> for Found {
    fn from(m: Matrices) -> Found {
        Found {
            dtype: m.product.result.dtype,
            work: Work::Product(m.product),
            read: m.factors.into_iter().chain(m.added.into_iter().flatten()).collect(),
            copied: None,
            is_whole: m.is_whole,
        }
    }
}

impl From<Convolved> for Found {
    fn from(c: Convolved) -> Found {
        let is_as_stored = c.is_as_stored();
        Found {
            dtype: c.work.dtype,
            read: [c.image, c.weights].into_iter().chain(c.added.into_iter().flatten()).collect(),
            work: Work::Convolution(c.work),
            copied: (!is_as_stored).then_some(Copied { argument: 1, axes: c.axes }),
            is_whole: c.is_whole,
        }
    }
}

impl Generator<'_> {
    /// Notes what libraries may compute in place of the launches of a stage, those of a run from `before` on.
    pub(super) fn alternatives(
        &mut self,
        at: At<'_>,
        kernel: &KernelProgram,
        stage: &Stage,
        target: Place,
        places: &HashMap<Value, Place>,
        scratch: &mut u64,
    ) -> Result<(), BackendError> {
        let (Shape::Tiles(product) | Shape::Deep(product, _)) = stage.shape else { return Ok(()) };
        let emitter = || Emitter::of_stored(kernel, places.keys());
        let is_fixed = |v: Value| {
            let place = places.get(&v);
            place.is_some_and(|p| {
                matches!(p, Place::Constant(_) | Place::Turned(_) | Place::Kept(_))
            })
        };
        let matrices = Matrices::of(&mut emitter(), kernel, stage.value, product);
        let convolved = Convolved::of(&mut emitter(), kernel, stage.value, product, &is_fixed);
        let all = matrices.map(Found::from).into_iter().chain(convolved.map(Found::from));
        for found in all.collect::<Vec<_>>() {
            self.alternative(at, kernel, (stage.value, product), found, target, places, scratch)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn alternative(
        &mut self,
        (k, name, first, before): At<'_>,
        kernel: &KernelProgram,
        (value, product): (Value, Value),
        found: Found,
        target: Place,
        places: &HashMap<Value, Place>,
        scratch: &mut u64,
    ) -> Result<(), BackendError> {
        let shape = known(&kernel.program, product)?.1;
        let (place, rest): (Place, Option<Launch>) = match found.is_whole {
            true => (target, None),
            false => {
                let sums = (found.dtype, [vec![1], shape.clone()].concat());
                let place = Place::Arena(take(scratch, bytes_of(&sums))?);
                let stage = Stage { value, shape: Shape::Rest(product, sums, place) };
                (place, self.launch(k, name, kernel, &stage, (target, None), places, first)?)
            }
        };
        let mut arguments = vec![];
        for v in found.read {
            let ty = known(&kernel.program, v)?;
            let (place, bytes) = (places[&v], bytes_of(&ty));
            self.reads(place);
            arguments.push(Argument { place, bytes, dtype: ty.0, written: false });
        }
        let bytes = bytes_of(&(found.dtype, shape));
        arguments.push(Argument { place, bytes, dtype: found.dtype, written: true });
        let launches = before..self.out.each.len();
        if arguments.iter().all(|a| a.place.is_aligned()) && !launches.is_empty() {
            let Found { work, copied, .. } = found;
            self.out.alternatives.push(Alternative { launches, work, arguments, copied, rest });
        }
        Ok(())
    }
}
