//! Compares both sides of a law on one sample: do they agree in f64, and bit by bit if the law promises it?
//!
//! The tolerance depends on the conditioning of the sample: the error of each side when every operator is
//! rounded to its type says how much f64 values may differ. So cancellation raises no false alarm, and a
//! difference that would be visible in a working type is never excused.

pub(crate) mod rounding_error;
pub(crate) mod running_error;
mod working_precision;

use super::law::instance::Instance;
use super::sample::draft::RangePolicy;
use super::sample::values::ElementStyle;
use mlc_backends::BackendError;
use mlc_backends::reference::code::cache::TOO_LONG;
use mlc_backends::reference::{Array, CodeCache, Engine, Precision, Reference};
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_dsl::random::Random;
use working_precision::WorkingPrecision;

/// An instance with elements.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Both sides.
    pub instance: Instance,
    /// One tensor per input.
    pub inputs: Vec<Tensor>,
    /// What the elements look like.
    pub round: ElementStyle,
}

/// The outcome of one sample.
#[derive(Clone, Debug)]
pub(super) enum SampleOutcome {
    /// The left side itself has no value, e.g. an index is out of range.
    Void,
    /// A side takes more steps than a run may.
    TooLong,
    /// Both sides agree.
    Agree(Vec<SampleError>),
    /// They do not.
    Differ(Box<Mismatch>),
}

/// Error of each side in the working type, relative to the largest element.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleError {
    pub dtype: DType,
    /// Of a sample of ordinary elements, whose errors is compared by deciles.
    pub ordinary: bool,
    /// Of the left side.
    pub left: f64,
    /// Of the right side; the class' own bounds are deducted.
    pub right: f64,
    /// The right side overflows where the left does not.
    pub overflow: bool,
}

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenPromise {
    /// The sides' types differ.
    Types,
    /// The law fires on open extents, but the right side is not defined for all of them.
    Undefined,
    /// The right side fails at run time.
    Fails,
    /// The values differ in f64.
    Truth,
    /// The bits differ in the working type.
    Bits,
    /// In the working type a value changes its kind, or the error outgrows the left side's own.
    WorkingPrecision,
}

/// Where two sides differ.
#[derive(Clone, Debug)]
pub(super) struct Mismatch {
    /// Which promise is broken.
    pub broken: BrokenPromise,
    /// Index of the output.
    pub output: usize,
    /// The first differing element, in row-major order.
    pub at: Option<usize>,
    /// The left side's output.
    pub left: Option<Array>,
    /// The right side's.
    pub right: Option<Array>,
    /// A message where there are no values.
    pub message: String,
}

impl Mismatch {
    /// The two elements where the sides differ first.
    pub(super) fn change(&self) -> Option<(f64, f64)> {
        let element = |a: &Option<Array>| a.as_ref()?.to_f64().get(self.at?).copied();
        element(&self.left).zip(element(&self.right))
    }
}

fn reference(precision: Precision) -> Reference {
    Reference { precision, engine: Engine::Fast }
}

/// Compares both sides of a sample.
pub(super) fn compare(codes: &CodeCache<'_>, class: ErrorClass, sample: &Sample) -> SampleOutcome {
    let trial = compare_once(codes, class, sample);
    let SampleOutcome::Differ(m) = &trial else { return trial };
    if class == ErrorClass::Exact || m.broken == BrokenPromise::Fails {
        return trial;
    }
    // A difference that vanishes beside the sample is rounding at a pole or a step, no falsehood.
    let mut rng = Random::of_name(1, "beside");
    let persists = (0..3).any(|_| {
        matches!(compare_once(codes, class, &perturbed(sample, &mut rng)), SampleOutcome::Differ(_))
    });
    if persists { trial } else { SampleOutcome::Agree(vec![]) }
}

/// The sample with numbers in the place of NaN, if it has both NaN and infinities.
fn without_nan(sample: &Sample) -> Option<Sample> {
    if !has_nan(sample) || !has_infinity(sample) {
        return None;
    }
    let calm = |t: &Tensor| {
        if !t.dtype().is_float() {
            return t.clone();
        }
        let values = t.to_f64().into_iter().map(|v| if v.is_nan() { 0.75 } else { v });
        Tensor::from_f64(t.dtype(), t.shape().to_vec(), &values.collect::<Vec<_>>())
    };
    Some(Sample { inputs: sample.inputs.iter().map(calm).collect(), ..sample.clone() })
}

/// Per output and element: whether infinities meet on the left there (`inf - inf`, `0 * inf`), so that no
/// real function has a value. NaN among the inputs must neither hide nor feign it, so numbers stand in.
fn met(codes: &CodeCache<'_>, sample: &Sample, left: &[Array]) -> Vec<Vec<bool>> {
    if !has_infinity(sample) {
        return vec![vec![]; left.len()];
    }
    let undefined = |values: &[Array]| -> Vec<Vec<bool>> {
        let of = |a: &Array| a.floats().unwrap_or_default().iter().map(|v| v.is_nan()).collect();
        values.iter().map(of).collect()
    };
    let Some(calm) = without_nan(sample) else { return undefined(left) };
    let mut program = sample.instance.truth.clone();
    program.outputs.truncate(left.len());
    let values = arrays(&program, &calm)
        .and_then(|wide| reference(Precision::F64).run_again(&program, codes, &wide).ok());
    values.map_or_else(|| vec![vec![]; left.len()], |v| undefined(&v))
}

/// True if no element and no attribute is infinite or NaN.
pub(super) fn is_finite(sample: &Sample) -> bool {
    !has_nan(sample) && !has_infinity(sample)
}

fn has_nan(sample: &Sample) -> bool {
    sample.inputs.iter().any(|t| is_float_with(t, f64::is_nan))
}

/// True if an element or an attribute is infinite.
fn has_infinity(sample: &Sample) -> bool {
    let mut attrs = sample.instance.draft.attrs.iter().filter_map(|(_, a)| a.as_f64());
    sample.inputs.iter().any(|t| is_float_with(t, f64::is_infinite)) || attrs.any(f64::is_infinite)
}

fn perturbed(sample: &Sample, rng: &mut Random) -> Sample {
    let moved = |t: &Tensor, rng: &mut Random| {
        if !t.dtype().is_float() {
            return t.clone();
        }
        let step = t.dtype().unit_roundoff().max(1e-6) * 8.0;
        let splat = t.splat().is_some().then(|| 1.0 + step * rng.normal());
        let values: Vec<f64> = t
            .to_f64()
            .into_iter()
            .map(|v| v * splat.unwrap_or_else(|| 1.0 + step * rng.normal()))
            .collect();
        Tensor::from_f64(t.dtype(), t.shape().to_vec(), &values)
    };
    let inputs = sample.inputs.iter().map(|t| moved(t, rng)).collect();
    Sample { inputs, ..sample.clone() }
}

fn compare_once(codes: &CodeCache<'_>, class: ErrorClass, sample: &Sample) -> SampleOutcome {
    let Instance { program, truth, outputs, .. } = &sample.instance;
    let n = *outputs;
    let wide = match arrays(truth, sample) {
        Some(wide) => wide,
        None => return SampleOutcome::Void,
    };
    // Of f64 nothing is rounded away that another order of large sums would show.
    let double = program.nodes.iter().flat_map(|n| &n.types).any(|t| t.dtype == DType::F64);
    // Where sums are taken in another order, the bits of f64 tell, on elements that add up to no round number.
    let tells = matches!(
        sample.round,
        ElementStyle::Scattered
            | ElementStyle::Wide
            | ElementStyle::Offset
            | ElementStyle::Absorbing
    );
    let in_bits = class == ErrorClass::Exact && (tells || double);
    // Fast products take sums in an order of their own.
    let engine = |plain: bool| if plain { Engine::Plain } else { Engine::Fast };
    let wide_reference = Reference { precision: Precision::F64, engine: engine(in_bits) };
    let truth = match wide_reference.run_again(truth, codes, &wide) {
        Ok(values) => values,
        Err(e) => return failed(codes, sample, e.to_string()),
    };
    let rounded = Reference { precision: Precision::Rounded, engine: engine(in_bits || double) };
    let inputs: Vec<Array> = sample.inputs.iter().map(Array::from_tensor).collect();
    let rounded = rounded.run_again(program, codes, &inputs);
    let rounded = rounded.unwrap_or_default();
    let met = met(codes, sample, &truth[..n]);
    let precision = match class {
        ErrorClass::Exact => None,
        ErrorClass::Reorder | ErrorClass::Approx { .. } => {
            WorkingPrecision::of(codes.library(), class, sample)
        }
    };
    let mut errors = Vec::new();
    for i in 0..n {
        let (l, r) = (&truth[i], &truth[n + i]);
        let working = rounded.get(i).zip(rounded.get(n + i));
        let differ = |broken, at, left: &Array, right: &Array| {
            SampleOutcome::Differ(Box::new(Mismatch {
                broken,
                output: i,
                at: Some(at),
                left: Some(left.clone()),
                right: Some(right.clone()),
                message: String::new(),
            }))
        };
        if let (Some(l), Some(r)) = (l.ints(), r.ints()) {
            if let Some(at) = l.iter().zip(r).position(|(a, b)| a != b) {
                return differ(BrokenPromise::Truth, at, &truth[i], &truth[n + i]);
            }
            // Integers and truth values that rounded numbers decide.
            let bits = working.filter(|_| class == ErrorClass::Exact);
            if let Some((wl, wr)) = bits
                && let (Some(l), Some(r)) = (wl.ints(), wr.ints())
                && let Some(at) = l.iter().zip(r).position(|(a, b)| a != b)
            {
                return differ(BrokenPromise::Bits, at, wl, wr);
            }
            continue;
        }
        let strayed = working
            .zip(precision.as_ref())
            .and_then(|((wl, wr), j)| working_excess(j, i, l, wl, wr));
        let different = match class {
            ErrorClass::Exact if in_bits => first_bit(l, r),
            _ => first_difference(class, sample, l, r, &met[i], working),
        };
        if let Some(at) = different {
            // Where f64 itself overflows the working type says why.
            let finite = |a: &Array| a.floats().is_none_or(|v| v[at].is_finite());
            return match strayed {
                Some(mismatch) if finite(l) != finite(r) => SampleOutcome::Differ(mismatch),
                _ => differ(BrokenPromise::Truth, at, l, r),
            };
        }
        let Some((wl, wr)) = working else { continue };
        if class == ErrorClass::Exact {
            if let Some(at) = first_bit(wl, wr) {
                return differ(BrokenPromise::Bits, at, wl, wr);
            }
            continue;
        }
        if let Some(mismatch) = strayed {
            return SampleOutcome::Differ(mismatch);
        }
        if sample.round.ordinary() && sample.instance.draft.stray == RangePolicy::No {
            // Ranges are declared where samples beyond them are ill-conditioned.
            errors.extend(rounding_error_of(class, l, wl, wr));
        }
        let worst = precision.as_ref().and_then(WorkingPrecision::worst);
        errors.extend(worst.filter(|_| wl.dtype() != DType::F64).map(|(left, right)| {
            SampleError { dtype: wl.dtype(), ordinary: false, left, right, overflow: false }
        }));
    }
    SampleOutcome::Agree(errors)
}

/// Where an output breaks a promise in the working type.
fn working_excess(
    precision: &WorkingPrecision,
    output: usize,
    truth: &Array,
    left: &Array,
    right: &Array,
) -> Option<Box<Mismatch>> {
    let excess = precision.excess(output, truth.floats()?, left.floats()?, right.floats()?)?;
    Some(Box::new(Mismatch {
        broken: BrokenPromise::WorkingPrecision,
        output,
        at: Some(excess.at),
        left: Some(left.clone()),
        right: Some(right.clone()),
        message: excess.message,
    }))
}

/// Where the right side strays furthest from the truth in the working type.
pub(super) fn furthest(library: &Library, sample: &Sample, message: String) -> Mismatch {
    let Instance { program, truth, outputs, .. } = &sample.instance;
    let mut found = Mismatch {
        broken: BrokenPromise::Bits,
        output: 0,
        at: None,
        left: None,
        right: None,
        message,
    };
    let run = |p: Precision, program: &Program| {
        let inputs = arrays(program, sample)?;
        reference(p).run_arrays(program, library, &inputs).ok()
    };
    let (Some(exact), Some(rounded)) =
        (run(Precision::F64, truth), run(Precision::Rounded, program))
    else {
        return found;
    };
    let mut most = 0.0;
    for i in 0..*outputs {
        let (t, l, r) = (exact[i].to_f64(), rounded[i].to_f64(), rounded[outputs + i].to_f64());
        for at in 0..t.len().min(l.len()).min(r.len()) {
            let stray = (r[at] - t[at]).abs() - (l[at] - t[at]).abs();
            if stray > most {
                most = stray;
                (found.output, found.at) = (i, Some(at));
                found.left = Some(rounded[i].clone());
                found.right = Some(rounded[outputs + i].clone());
            }
        }
    }
    found
}

/// The inputs in the element types of a program.
pub(super) fn arrays(program: &Program, sample: &Sample) -> Option<Vec<Array>> {
    let inputs = program.inputs.iter().zip(&sample.inputs);
    let widened = inputs.map(|((_, ty), t)| match t.dtype() == ty.dtype {
        true => Some(Array::from_tensor(t)),
        false => Array::from_f64(ty.dtype, t.shape().to_vec(), t.to_f64()),
    });
    widened.collect()
}

/// What the left side is on a sample, in f64.
fn left_values(codes: &CodeCache<'_>, sample: &Sample) -> Result<Vec<Array>, BackendError> {
    let mut left: Program = sample.instance.program.clone();
    left.outputs.truncate(sample.instance.outputs);
    let inputs: Vec<Array> = sample.inputs.iter().map(Array::from_tensor).collect();
    reference(Precision::F64).run_again(&left, codes, &inputs)
}

/// True if some element of the left side is no finite number.
pub(super) fn has_pole(codes: &CodeCache<'_>, sample: &Sample) -> bool {
    let values = left_values(codes, sample).unwrap_or_default();
    values.iter().any(|a| a.to_f64().iter().any(|v| !v.is_finite()))
}

/// Which side failed: the left's failure voids the sample.
fn failed(codes: &CodeCache<'_>, sample: &Sample, message: String) -> SampleOutcome {
    if message.ends_with(TOO_LONG) {
        return SampleOutcome::TooLong;
    }
    match left_values(codes, sample) {
        Err(_) => SampleOutcome::Void,
        Ok(values) => SampleOutcome::Differ(Box::new(Mismatch {
            broken: BrokenPromise::Fails,
            output: 0,
            at: None,
            left: values.into_iter().next(),
            right: None,
            message,
        })),
    }
}

fn first_bit(l: &Array, r: &Array) -> Option<usize> {
    let (l, r) = (l.floats()?, r.floats()?);
    l.iter().zip(r).position(|(a, b)| !(a.is_nan() && b.is_nan()) && a.to_bits() != b.to_bits())
}

/// The largest finite entry.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|v| v.is_finite()).fold(0.0, f64::max)
}

fn first_difference(
    class: ErrorClass,
    sample: &Sample,
    left: &Array,
    right: &Array,
    met: &[bool],
    working: Option<(&Array, &Array)>,
) -> Option<usize> {
    let (l, r) = (left.floats()?, right.floats()?);
    let dtype = working.map_or(left.dtype(), |(l, _)| l.dtype());
    let working = working.and_then(|(a, b)| Some((a.floats()?, b.floats()?)));
    let scale = (2f64).powi(-24) / dtype.unit_roundoff().max(f64::MIN_POSITIVE);
    let stray = |i: usize| -> f64 {
        match working {
            Some((wl, wr)) => (wl[i] - l[i]).abs().max((wr[i] - r[i]).abs()),
            None => f64::NAN,
        }
    };
    let typical = 1e-3 * largest((0..l.len()).map(stray));
    let norm = largest(l.iter().chain(r).map(|v| v.abs()));
    // At a pole infinity and NaN are alike. Where none came in, the infinity of no elements, as their
    // maximum has it, is a value like others.
    let empty = sample.inputs.iter().any(Tensor::is_empty) && !has_infinity(sample);
    // Overflow on the way is the working type's, not the function's.
    let huge = |v: f64| v.is_finite() && v.abs() > 1e3;
    let lenient = match sample.round {
        _ if sample.instance.draft.attrs.iter().any(|(_, a)| a.as_f64().is_some_and(huge)) => true,
        ElementStyle::Huge
        | ElementStyle::Scaled
        | ElementStyle::Scattered
        | ElementStyle::Offset
        | ElementStyle::Saturated(_) => true,
        ElementStyle::Zeros => dtype == DType::F64,
        _ => false,
    };
    (0..l.len()).find(|&i| {
        let (a, b) = (l[i], r[i]);
        if !a.is_finite() || !b.is_finite() {
            return match class {
                ErrorClass::Exact => !(a.is_nan() && b.is_nan()) && a != b,
                ErrorClass::Reorder | ErrorClass::Approx { .. } => {
                    // Where infinities have met on the left, the right may yield the limit; what
                    // happened to another element excuses nothing.
                    let limit = met.get(i).copied().unwrap_or(false);
                    let lost = empty && a.is_infinite() && b.is_nan();
                    let promised = matches!(class, ErrorClass::Reorder) || a.is_finite();
                    let changes = promised && a.is_finite() != b.is_finite();
                    !lenient && !limit && (lost || changes)
                }
            };
        }
        if lenient && class != ErrorClass::Exact {
            return false; // Magnitudes further apart than f64 has digits decide nothing.
        }
        let e = stray(i);
        let size = a.abs().max(b.abs());
        let tolerance = if dtype == DType::F64 {
            1e-9 * norm + 1e-11
        } else if e.is_finite() {
            1e-3 * e.max(typical) * scale.max(1e-9) + 1e-11 * size + 1e-13
        } else if dtype == DType::F16 {
            return false; // It overflowed on the way and tells nothing about the condition.
        } else {
            1e-6 * norm
        };
        let allowed = match class {
            ErrorClass::Exact | ErrorClass::Reorder => 0.0,
            ErrorClass::Approx { abs, rel } => abs + rel * a.abs(),
        };
        (a - b).abs() > tolerance + allowed
    })
}

fn is_float_with(t: &Tensor, property: fn(f64) -> bool) -> bool {
    t.dtype().is_float() && t.to_f64().into_iter().any(property)
}

fn rounding_error_of(
    class: ErrorClass,
    truth: &Array,
    left: &Array,
    right: &Array,
) -> Option<SampleError> {
    let dtype = left.dtype();
    let (t, l, r) = (truth.floats()?, left.floats()?, right.floats()?);
    if dtype == DType::F64 {
        return None;
    }
    let norm = largest(t.iter().map(|v| v.abs()));
    if norm == 0.0 {
        return None;
    }
    let finite: Vec<usize> =
        (0..t.len()).filter(|&i| t[i].is_finite() && l[i].is_finite()).collect();
    let overflow = finite.iter().any(|&i| !r[i].is_finite());
    let bound = |i: usize| match class {
        ErrorClass::Exact | ErrorClass::Reorder => 0.0,
        ErrorClass::Approx { abs, rel } => abs + rel * t[i].abs(),
    };
    let error = |v: &[f64], slack: bool| {
        let each = finite
            .iter()
            .map(|&i| ((v[i] - t[i]).abs() - if slack { bound(i) } else { 0.0 }).max(0.0));
        largest(each) / norm
    };
    let (left, right) = (error(l, false), error(r, true));
    Some(SampleError { dtype, ordinary: true, left, right, overflow })
}
