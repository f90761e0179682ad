//! The float64 reference interpreter.
//!
//! Runs a program node by node by evaluating what each operator *means*: floats in f64, integers
//! exactly and wrapped to their type. Nothing is rounded to a working type on the way, unless
//! a program says so (`cast`) or [`Precision::Rounded`] asks for it. A plan is run kernel by kernel.
//!
//! Slow and simple on purpose. The accelerations of [`Engine::Fast`] never change what is computed;
//! they only regroup the sums of large contractions. [`Engine::Plain`] does without them.

pub mod accelerated;
mod algebra;
mod apply;
mod array;
pub mod code;
mod exec;
pub mod externs;
mod inputs;
mod recurrence;
mod run;
pub mod scalar;

pub use algebra::{Algebra, Element, Lifted, lift};
pub use array::{Array, Elements, round_to, truncate, wrap};
pub use code::cache::CodeCache;
pub use externs::names as references;
pub use scalar::{Cmp, RealOp, function};

use crate::{Backend, BackendError, Executable};
use mlc_dsl::ir::{Attr, DType, Program, Tensor};
use mlc_dsl::library::{CallId, Library, OpClass};
use mlc_dsl::plan::{Fault, Plan};
use std::sync::Arc;

/// How exact intermediate floats are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Every float stays as f64 computes it.
    #[default]
    F64,
    /// The floats of every operator's result, also inside definitions, are rounded to its type: what
    /// working in that type costs at least.
    Rounded,
    /// They stay, but each that is computed is moved by up to four roundings of its type, at random by this seed: how far
    /// roundings on the way carry a result.
    Disturbed(u64),
}

/// Roundings at random, the same for equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Noise {
    /// Decides them.
    pub seed: u64,
    /// The type that numbers are rounded to.
    pub dtype: DType,
}

impl Noise {
    /// The number rounded, up to three halves of a last place away; itself if the type has it.
    pub fn rounded(self, v: f64) -> f64 {
        if round_to(self.dtype, v) == v || v.is_nan() {
            return v;
        }
        let part = 2.0 * array::unit(self.seed ^ v.to_bits()) - 1.0;
        round_to(self.dtype, v * (1.0 + 2.0 * self.dtype.unit_roundoff() * part))
    }
}

/// How meanings are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Rows at a time, and large contractions as matrix products.
    #[default]
    Fast,
    /// Element by element, exactly as written.
    Plain,
    /// The same, with every number that is computed on the way rounded up or down at random.
    Noisy(Noise),
}

/// The backend that interprets meanings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference {
    /// How exact intermediate floats are.
    pub precision: Precision,
    /// How meanings are evaluated.
    pub engine: Engine,
}

impl Reference {
    /// Runs a program; yields its outputs, in its order, without rounding them.
    pub fn run_values(
        &self,
        program: &Program,
        library: &Library,
        inputs: &[Tensor],
    ) -> Result<Vec<Array>, BackendError> {
        let arrays: Vec<Array> = inputs.iter().map(Array::from_tensor).collect();
        self.run_arrays(program, library, &arrays)
    }

    /// The same on inputs whose floats need not be representable in their type.
    pub fn run_arrays(
        &self,
        program: &Program,
        library: &Library,
        inputs: &[Array],
    ) -> Result<Vec<Array>, BackendError> {
        self.run_again(program, &CodeCache::new(library), inputs)
    }

    /// The same with what earlier runs have compiled.
    pub fn run_again(
        &self,
        program: &Program,
        codes: &CodeCache<'_>,
        inputs: &[Array],
    ) -> Result<Vec<Array>, BackendError> {
        run::program(self, program, codes, inputs)
    }

    /// Applies one operator; attributes that are `None` take their defaults.
    pub fn apply(
        &self,
        library: &Library,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Array],
    ) -> Result<Vec<Array>, BackendError> {
        apply::apply(self, &CodeCache::new(library), call, attrs, args).map_err(|reason| {
            BackendError::Operator { op: library.call(call).name.to_string(), reason }
        })
    }

    /// The same with what earlier applications have compiled.
    ///
    /// # Errors
    /// The application is ill-typed or has no value, in the words of a reason.
    pub fn apply_again(
        &self,
        codes: &CodeCache<'_>,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Array],
    ) -> Result<Vec<Array>, String> {
        apply::apply(self, codes, call, attrs, args)
    }

    /// The same on tensors, with results rounded to their types. Large ones of `f32` take no more memory than they are.
    pub fn apply_tensors(
        &self,
        library: &Library,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[&Tensor],
    ) -> Result<Vec<Tensor>, BackendError> {
        let codes = CodeCache::new(library);
        let found = match apply::on_singles(self, &codes, call, attrs, args) {
            Ok(None) => {
                let arrays: Vec<Array> = args.iter().map(|t| Array::from_tensor(t)).collect();
                let made = apply::apply(self, &codes, call, attrs, &arrays);
                made.map(|made| made.iter().map(Array::to_tensor).collect())
            }
            Ok(Some(made)) => Ok(made),
            Err(reason) => Err(reason),
        };
        let op = || library.call(call).name.to_string();
        found.map_err(|reason| BackendError::Operator { op: op(), reason })
    }

    fn rounded(&self, class: OpClass, a: Array) -> Array {
        match (self.precision, class) {
            (Precision::F64, _) => a,
            (Precision::Rounded, _) => a.rounded(),
            // What is only moved is not rounded.
            (Precision::Disturbed(_), OpClass::View | OpClass::Movement) => a,
            (Precision::Disturbed(seed), _) => a.disturbed(seed),
        }
    }
}

/// Runs a program with the default options; see [`Reference::run_values`].
pub fn run_values(
    program: &Program,
    library: &Library,
    inputs: &[Tensor],
) -> Result<Vec<Array>, BackendError> {
    Reference::default().run_values(program, library, inputs)
}

struct Loaded {
    reference: Reference,
    plan: Plan,
    library: Arc<Library>,
}

impl Executable for Loaded {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let inputs: Vec<Array> = inputs.iter().map(Array::from_tensor).collect();
        let values =
            run::plan(&self.reference, &self.plan, &CodeCache::new(&self.library), &inputs)?;
        Ok(values.iter().map(Array::to_tensor).collect())
    }
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    /// It computes what nodes mean, whatever their kernel is named.
    fn faults(&self, _: &Plan, _: &Library) -> Vec<Fault> {
        vec![]
    }

    fn prepare(
        &self,
        plan: &Plan,
        library: Arc<Library>,
    ) -> Result<Box<dyn Executable>, BackendError> {
        Ok(Box::new(Loaded { reference: *self, plan: plan.clone(), library }))
    }
}

/// The scalar of a type.
fn scalar(dtype: DType, value: f64) -> Array {
    Array::from_tensor(&Tensor::from_f64(dtype, vec![], &[value]))
}
