//! Evaluates applications of constants with the reference interpreter.

use mlc_backends::BackendError;
use mlc_backends::reference::Reference;
use mlc_dsl::canon::Structural;
use mlc_dsl::ir::{Attr, Tensor, Type};
use mlc_dsl::library::{CallId, Library};
use mlc_extract::resources;
use mlc_extract::work::Works;
use std::sync::Arc;

/// The values of an application of constants, each named after the largest of them. A reshape shares its operand's bytes.
///
/// # Errors
/// The operator has no value on them.
pub fn values(
    library: &Library,
    structural: Structural,
    call: CallId,
    attrs: &[Attr],
    args: &[&Tensor],
) -> Result<Vec<Tensor>, BackendError> {
    if let ([x], [shape]) = (args, attrs)
        && structural.reshape == Some(call)
        && let Some(shape) = shape.as_i64s()
        && shape.iter().product::<i64>() == x.len() as i64
    {
        return Ok(vec![x.reshaped(shape.iter().map(|&d| d as usize).collect())]);
    }
    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    let made = Reference::default().apply_tensors(library, call, &attrs, args)?;
    Ok(made.into_iter().map(|t| t.computed_from(args.iter().copied())).collect())
}

/// Evaluates applications of constants.
pub struct Folder {
    library: Arc<Library>,
    structural: Structural,
}

impl Folder {
    /// A folder over the operators of a library.
    pub fn new(library: Arc<Library>) -> Folder {
        Folder { structural: Structural::of(&library), library }
    }

    /// The value of an application, computed in f64 and rounded once; `None` if the reference interpreter refuses, or would be long.
    pub fn evaluate(
        &self,
        call: CallId,
        attrs: &[Attr],
        ty: &Type,
        args: &[Tensor],
    ) -> Option<Tensor> {
        let types: Vec<Type> = args.iter().map(|t| Type::known(t.dtype(), t.shape())).collect();
        let types: Vec<&Type> = types.iter().collect();
        let works = Works::new(&self.library);
        let result = std::slice::from_ref(ty);
        if !resources::folds(&works, &self.library, call, attrs, &types, result) {
            return None;
        }
        let args: Vec<&Tensor> = args.iter().collect();
        let results = values(&self.library, self.structural, call, attrs, &args).ok()?;
        let result = results.into_iter().next()?;
        (Some(result.shape().to_vec()) == ty.known_shape() && result.dtype() == ty.dtype)
            .then_some(result)
    }
}
