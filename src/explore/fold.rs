//! Evaluation of constant applications by the judge.

use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::{Attr, Tensor, Type};
use mlc_dsl::library::{CallId, Library};
use mlc_extract::needs;
use mlc_extract::work::Works;
use std::sync::Arc;

/// Evaluates applications of constants.
pub struct Folder {
    library: Arc<Library>,
}

impl Folder {
    /// A folder over the operators of a library.
    pub fn new(library: Arc<Library>) -> Folder {
        Folder { library }
    }

    /// The value of an application, computed in f64 and rounded once; `None` if the judge refuses, or would be long.
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
        if !needs::folds(&works, &self.library, call, attrs, &types, result) {
            return None;
        }
        let args: Vec<Array> = args.iter().map(Array::from_tensor).collect();
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let results = Reference::default().apply(&self.library, call, &attrs, &args).ok()?;
        let result = results.first()?.to_tensor();
        (Some(result.shape().to_vec()) == ty.known_shape() && result.dtype() == ty.dtype)
            .then_some(result)
    }
}
