//! Evaluation of constant applications by the judge.

use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::{Attr, Tensor, Type};
use mlc_dsl::library::{CallId, Library};
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

    /// The value of an application, computed in f64 and rounded once; `None` if the judge refuses.
    pub fn evaluate(
        &self,
        call: CallId,
        attrs: &[Attr],
        ty: &Type,
        args: &[Tensor],
    ) -> Option<Tensor> {
        let args: Vec<Array> = args.iter().map(Array::from_tensor).collect();
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let results = Reference::default().apply(&self.library, call, &attrs, &args).ok()?;
        let result = results.first()?.to_tensor();
        (Some(result.shape().to_vec()) == ty.known_shape() && result.dtype() == ty.dtype)
            .then_some(result)
    }
}
