//! What a model declares of its inputs and outputs.

use super::Importer;
use super::error::ImportError;
use crate::raw::{RawDim, RawValueInfo};
use mlc_dsl::ir::{DType, Extent, Type, Value};
use mlc_dsl::typing::infer::{is_countable, too_many};
use mlc_dsl::{shown, told};

impl Importer<'_> {
    /// What an output is declared as it must be; symbols may stand for anything.
    pub(crate) fn declared(&mut self, o: &RawValueInfo, v: Value) -> Result<(), ImportError> {
        let ty = self.draft.builder.ty(v);
        let dims = o.dims.as_deref().unwrap_or(&[]);
        let other = |(d, e): (&RawDim, &Extent)| match (d, e.as_const()) {
            (RawDim::Known(d), Some(e)) => i64::try_from(*d) != Ok(e),
            _ => false,
        };
        let shape = o.containers.is_empty()
            && o.dims.is_some()
            && (dims.len() != ty.rank() || dims.iter().zip(&ty.shape).any(other));
        let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let place = format!("output `{}`", shown(&o.name));
        let declared = o.dtype.map_or("?", DType::name);
        let reason =
            format!("it is declared as {declared}[{}], and is computed as {ty}", dims.join(", "));
        if o.dtype.is_some_and(|d| d != ty.dtype) {
            let help =
                "declare what is computed (`onnx.shape_inference` finds it), or cast the value";
            return Err(ImportError::Graph { place, reason, help: help.into() });
        }
        // Runtimes take the shape that comes out, and so does this.
        if shape {
            self.notes.push(told(&format!("{place}: {reason}")));
        }
        Ok(())
    }

    /// The type of an input as it is declared.
    pub(crate) fn input_type(&mut self, input: &RawValueInfo) -> Result<Type, ImportError> {
        let wrong = |reason: &str, help: &str| ImportError::Graph {
            place: format!("input `{}`", shown(&input.name)),
            reason: reason.into(),
            help: help.into(),
        };
        if !input.containers.is_empty() {
            return Err(wrong(
                "it is a sequence, a map or an optional, whose number of elements is not known",
                "give the elements of a run by name: `NAME[0]`, `NAME[1]`, …; an optional tensor by its own name",
            ));
        }
        let dtype = input.dtype.ok_or_else(|| {
            wrong("it has no supported element type", "declare the type of the input in the model")
        })?;
        let dims = input.dims.as_ref().ok_or_else(|| {
            wrong(
                "its number of axes is unknown",
                "give its shape by `--shape NAME=EXTENTS`, or declare it in the model",
            )
        })?;
        let mut shape = Vec::with_capacity(dims.len());
        for (i, d) in dims.iter().enumerate() {
            let symbol = match d {
                RawDim::Known(n) => {
                    let n = i64::try_from(*n).map_err(|_| {
                        wrong("an extent is too large", "declare extents below 2^63")
                    })?;
                    shape.push(Extent::from(n));
                    continue;
                }
                RawDim::Symbol(s) => s.clone(),
                RawDim::Unknown => self.fresh_symbol(&input.name, i),
            };
            let mut extent = Extent::sym(&symbol);
            for need in self.draft.assumed() {
                let Some(from) = need.symbol() else { continue };
                extent = extent.substitute(&|s| (s == from).then(|| need.is.clone()));
            }
            shape.push(extent);
        }
        if !is_countable(&shape) {
            return Err(wrong(&too_many(&shape), "give the input a shape that a machine can hold"));
        }
        Ok(Type::new(dtype, shape))
    }
}
