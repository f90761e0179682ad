//! Evaluates applications of constants with the reference interpreter.

use mlc_backends::BackendError;
use mlc_backends::reference::Reference;
use mlc_dsl::canon::Structural;
use mlc_dsl::ir::{Attr, DType, Tensor, Type};
use mlc_dsl::library::{CallId, Library};
use mlc_extract::resources;
use mlc_extract::work::Works;
use std::collections::HashMap;
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

/// Bytes of values that are kept at most.
const MOST: usize = 512 << 20;

/// What an application of constants is made of: which of their bytes, not what is in them.
#[derive(PartialEq, Eq, Hash)]
struct Application {
    call: CallId,
    attrs: Vec<Attr>,
    args: Vec<(DType, Vec<usize>, usize, usize)>,
}

/// Values of applications of constants, each computed once: of one model many programs are folded whose constants are the same.
#[derive(Default)]
pub struct Memo {
    /// Beside the operands, so that no others come to lie where they do.
    known: HashMap<Application, (Vec<Tensor>, Vec<Tensor>)>,
    bytes: usize,
}

impl Memo {
    /// The values of an application of constants, computed unless they are known.
    ///
    /// # Errors
    /// The operator has no value on them.
    pub fn values(
        &mut self,
        library: &Library,
        structural: Structural,
        call: CallId,
        attrs: &[Attr],
        args: &[&Tensor],
    ) -> Result<Vec<Tensor>, BackendError> {
        let place = |t: &&Tensor| {
            let bytes = t.bytes();
            (t.dtype(), t.shape().to_vec(), bytes.as_ptr().addr(), bytes.len())
        };
        let args_at = args.iter().map(place).collect();
        let what = Application { call, attrs: attrs.to_vec(), args: args_at };
        if let Some((_, made)) = self.known.get(&what) {
            return Ok(made.clone());
        }
        let made = values(library, structural, call, attrs, args)?;
        let bytes: usize = made.iter().map(|t| t.bytes().len()).sum();
        if self.bytes + bytes <= MOST {
            self.bytes += bytes;
            let operands = args.iter().copied().cloned().collect();
            self.known.insert(what, (operands, made.clone()));
        }
        Ok(made)
    }
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
