//! Elements for the inputs of generated programs.

use mlc_dsl::ir::{DType, Program, Tensor, Type};
use mlc_dsl::random::{NUMERALS, Random};

/// What elements are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Style {
    /// Standard normal floats, integers 0 to 2.
    Normal,
    /// Positive floats around one: no cancellation, no domain error.
    Positive,
    /// Small whole numbers.
    Whole,
    /// Zeros of both signs among normal numbers.
    Zeros,
    /// NaN and infinities among normal numbers.
    Special,
    /// NaN alone among normal numbers: where no infinities meet, nothing excuses another value.
    Missing,
    /// Numbers at the ends of their type's range.
    Extreme,
}

impl Style {
    /// Those of random programs.
    pub const ALL: [Style; 5] =
        [Style::Normal, Style::Positive, Style::Whole, Style::Zeros, Style::Special];

    /// Those in which the sides of one law are held against each other.
    pub const OF_LAWS: [Style; 6] =
        [Style::Normal, Style::Whole, Style::Zeros, Style::Missing, Style::Extreme, Style::Special];

    /// True if every float is finite.
    pub fn is_finite(self) -> bool {
        !matches!(self, Style::Special | Style::Missing)
    }
}

/// One tensor per input. `None` if an extent is not known.
pub fn inputs(program: &Program, style: Style, seed: u64) -> Option<Vec<Tensor>> {
    let mut rng = Random::new(seed);
    program.inputs.iter().map(|(_, t)| tensor(t, style, &mut rng)).collect()
}

/// The same inputs with every integer zero: programs that select elements then run.
pub fn tame(inputs: &[Tensor]) -> Vec<Tensor> {
    let zero = |t: &Tensor| match t.dtype().is_int() {
        true => Tensor::from_i64(t.dtype(), t.shape().to_vec(), &vec![0; t.len()]),
        false => t.clone(),
    };
    inputs.iter().map(zero).collect()
}

fn tensor(ty: &Type, style: Style, rng: &mut Random) -> Option<Tensor> {
    let shape = ty.known_shape()?;
    let n: usize = shape.iter().product();
    if ty.dtype.is_float() {
        let values: Vec<f64> = (0..n).map(|_| float(ty.dtype, style, rng)).collect();
        return Some(Tensor::from_f64(ty.dtype, shape, &values));
    }
    if ty.dtype == DType::Str {
        return Tensor::from_strings(shape, (0..n).map(|_| rng.pick(NUMERALS))).ok();
    }
    if let (Style::Extreme, Some((low, high))) = (style, ty.dtype.int_range()) {
        let (low, high) = (low.max(i64::MIN.into()) as i64, high.min(i64::MAX.into()) as i64);
        let ends = [low, high, low + 1, high - 1, high / 2, 0, 1, 2, 3].map(|v| v.clamp(low, high));
        let values: Vec<i64> = (0..n).map(|_| rng.pick(&ends)).collect();
        return Some(Tensor::from_i64(ty.dtype, shape, &values));
    }
    let top = if ty.dtype == DType::Bool { 1 } else { 2 };
    let low = if ty.dtype.int_range().is_some_and(|r| r.0 < 0) && rng.chance(0.3) { -1 } else { 0 };
    let values: Vec<i64> = (0..n).map(|_| rng.between(low, top)).collect();
    Some(Tensor::from_i64(ty.dtype, shape, &values))
}

fn float(dtype: DType, style: Style, rng: &mut Random) -> f64 {
    match style {
        Style::Normal => rng.normal(),
        Style::Positive => 0.5 + rng.unit(),
        Style::Whole => rng.between(-3, 3) as f64,
        Style::Zeros if rng.chance(0.4) => rng.pick(&[0.0, -0.0]),
        Style::Special if rng.chance(0.15) => {
            rng.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
        }
        Style::Missing if rng.chance(0.3) => f64::NAN,
        Style::Extreme if rng.chance(0.3) => {
            let (least, most) = match dtype {
                DType::F16 => (6e-8, 65504.0),
                DType::F64 => (f64::from_bits(1), f64::MAX),
                _ => (f64::from(f32::from_bits(1)), f64::from(f32::MAX)),
            };
            rng.pick(&[most, -most, most / 2.0, least, -least])
        }
        Style::Zeros | Style::Special | Style::Missing | Style::Extreme => rng.normal(),
    }
}
