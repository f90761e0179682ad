//! Evaluates applications of constants with the reference interpreter.

use mlc_backends::BackendError;
use mlc_backends::reference::{Array, Reference};
use mlc_dsl::ir::canon::Structural;
use mlc_dsl::ir::{Attr, DType, Tensor, Type};
use mlc_dsl::library::{CallId, Library, OpClass};
use mlc_extract::cost::work::Works;
use mlc_extract::resources;
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

/// Identity of an application of constants: the addresses of their bytes, not the contents.
#[derive(PartialEq, Eq, Hash)]
struct ApplicationKey {
    call: CallId,
    attrs: Vec<Attr>,
    args: Vec<(DType, Vec<usize>, usize, usize)>,
}

/// Memo of applications of constants: many programs that are folded for one model share their constants.
#[derive(Default)]
pub struct ConstantMemo {
    /// With the operands, which keeps their addresses from being reused.
    known: HashMap<ApplicationKey, (Vec<Tensor>, Vec<Tensor>)>,
    bytes: usize,
}

impl ConstantMemo {
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
        let what = ApplicationKey { call, attrs: attrs.to_vec(), args: args_at };
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
pub struct ConstantFolder {
    library: Arc<Library>,
    structural: Structural,
}

impl ConstantFolder {
    /// A folder over the operators of a library.
    pub fn new(library: Arc<Library>) -> ConstantFolder {
        ConstantFolder { structural: Structural::of(&library), library }
    }

    /// The value of an application, computed in f64 and rounded once; `None` if the reference interpreter refuses, or would be long, or if its
    /// value hinges on the sign of a zero, or is a negative zero for an infinity: no law tells zeros of both signs apart, so they are one class,
    /// and so would be both infinities. Nor has it a value here if that is beyond its type: laws hold of the number, not of the infinity or the
    /// zero that it is rounded to, as `(x * a) * a = x * (a * a)` does.
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
        let is_meant =
            Some(result.shape().to_vec()) == ty.known_shape() && result.dtype() == ty.dtype;
        let is_plain = !loses_sign(&args, &result)
            && !self.hinges_on_zeros(call, attrs, &args, &result)
            && !self.is_beyond_type(call, attrs, &args, &result);
        (is_meant && is_plain).then_some(result)
    }

    /// Whether an element is infinite or zero only because its type has no number that is so large or small.
    fn is_beyond_type(
        &self,
        call: CallId,
        attrs: &[Attr],
        args: &[&Tensor],
        result: &Tensor,
    ) -> bool {
        let is_end = |v: f64| v.is_infinite() || v == 0.0;
        let may = result.dtype().is_float() && (0..result.len()).any(|i| is_end(result.get_f64(i)));
        // What is moved is as it was.
        let class = self.library.call(call).class;
        if !may || matches!(class, OpClass::View | OpClass::Movement) {
            return false;
        }
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let args: Vec<Array> = args.iter().map(|t| Array::from_tensor(t)).collect();
        let made = Reference::default().apply(&self.library, call, &attrs, &args);
        let Some(exact) = made.ok().and_then(|made| made.first().map(Array::to_f64)) else {
            return false;
        };
        let is_lost = |(i, v): (usize, f64)| is_end(result.get_f64(i)) && !is_end(v) && !v.is_nan();
        exact.into_iter().enumerate().any(is_lost)
    }

    /// Whether the result would be another one if the zeros of the operands had the other sign.
    fn hinges_on_zeros(
        &self,
        call: CallId,
        attrs: &[Attr],
        args: &[&Tensor],
        result: &Tensor,
    ) -> bool {
        // Else it is continuous there.
        let may = match result.dtype() {
            DType::Str => false,
            d if d.is_float() => result.to_f32().iter().any(|v| !v.is_finite()),
            _ => true,
        };
        if !may || !args.iter().any(|t| has_zeros(t)) {
            return false;
        }
        let other: Vec<Tensor> = args.iter().map(|t| with_other_zeros(t)).collect();
        let other: Vec<&Tensor> = other.iter().collect();
        let made = values(&self.library, self.structural, call, attrs, &other);
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        let is_same = |t: &Tensor| {
            t.shape() == result.shape()
                && (0..t.len()).all(|i| same(t.get_f64(i), result.get_f64(i)))
        };
        !made.is_ok_and(|made| made.first().is_some_and(is_same))
    }
}

/// Whether an infinity became a negative zero, as the reciprocal of the negative one does.
fn loses_sign(args: &[&Tensor], result: &Tensor) -> bool {
    let elements = |t: &Tensor| 0..if t.dtype().is_float() { t.len() } else { 0 };
    let is_lost = |v: f64| v == 0.0 && v.is_sign_negative();
    elements(result).any(|i| is_lost(result.get_f64(i)))
        && args.iter().any(|t| elements(t).any(|i| t.get_f64(i).is_infinite()))
}

fn has_zeros(t: &Tensor) -> bool {
    t.dtype().is_float() && (0..t.len()).any(|i| t.get_f64(i) == 0.0)
}

/// The same numbers with every zero of the other sign.
fn with_other_zeros(t: &Tensor) -> Tensor {
    if !has_zeros(t) {
        return t.clone();
    }
    let other = |v: f64| if v == 0.0 { -v } else { v };
    let all: Vec<f64> = t.to_f64().into_iter().map(other).collect();
    Tensor::from_f64(t.dtype(), t.shape().to_vec(), &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A difference that is 0 or NaN is any multiple of itself: where such numbers were multiplied with each other until they were
    /// infinite, it became NaN everywhere.
    #[test]
    fn what_is_beyond_its_type_has_no_value() {
        let text = "
            op mul(a: F[..s], b: F[..s]) -> y: F[..s]
              y[..s] = a[..s] * b[..s]
            op log(a: F[..s]) -> y: F[..s]
              y[..s] = log(a[..s])
            op flat(a: F[..s, n]) -> y: F[..s, n]
              y[..s, n] = a[..s, n]
        ";
        let (library, found) = mlc_dsl::check::library(&[("small.rules", text)]);
        assert!(found.is_empty(), "{found:?}");
        let library = Arc::new(library);
        let folder = ConstantFolder::new(library.clone());
        let of = |dtype, values: &[f64]| Tensor::from_f64(dtype, vec![values.len()], values);
        let value = |name: &str, args: &[Tensor]| {
            let call = library.find(name).expect("an operator");
            let ty = Type::known(args[0].dtype(), args[0].shape());
            folder.evaluate(call, &[], &ty, args).map(|t| t.to_f64())
        };
        let single = |values: &[f64]| of(DType::F32, values);
        let product = |a: &[f64], b: &[f64]| value("mul", &[single(a), single(b)]);
        assert_eq!(product(&[2.0, 0.0], &[3.0, 4.0]), Some(vec![6.0, 0.0]));
        assert_eq!(product(&[2.0, 1e30], &[3.0, 1e30]), None);
        assert_eq!(product(&[2.0, 1e-30], &[3.0, -1e-30]), None);
        let halves = [of(DType::F16, &[300.0]), of(DType::F16, &[300.0])];
        assert_eq!(value("mul", &halves), None);
        let infinite = f64::INFINITY;
        assert_eq!(product(&[infinite], &[2.0]), Some(vec![infinite]));
        assert_eq!(value("log", &[single(&[0.0])]), Some(vec![-infinite]));
        assert_eq!(value("flat", &[single(&[infinite, 0.0])]), Some(vec![infinite, 0.0]));
    }
}
