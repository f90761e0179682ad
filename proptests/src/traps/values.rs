//! Inputs that expose traps: ordinary numbers, ties, NaN, infinities, the ends of a type's range.

use super::text::Graph;
use mlc_dsl::ir::{DType, Program, Tensor, Type};
use mlc_dsl::random::Random;

/// What the elements of inputs are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Numbers around zero.
    Normal,
    /// Numbers of one sign.
    Positive,
    /// Numbers up to twelve.
    Wide,
    /// Whole numbers, zeros of both signs among them.
    Whole,
    /// Every element the same.
    Equal,
    /// NaN among ordinary numbers.
    Nan,
    /// NaN and infinities among ordinary numbers.
    Special,
    /// Large, small and denormal numbers, of which working types may lose some.
    Large,
    /// The ends of the range: working types overflow on the way, the reference interpreter does not.
    Extreme,
}

impl Draw {
    /// All of them.
    pub const ALL: [Draw; 9] = [
        Draw::Normal,
        Draw::Positive,
        Draw::Wide,
        Draw::Whole,
        Draw::Equal,
        Draw::Nan,
        Draw::Special,
        Draw::Large,
        Draw::Extreme,
    ];

    /// True if a kernel that works in the elements' own type must compute what the reference interpreter does.
    pub fn is_tame(self) -> bool {
        self != Draw::Large
    }

    /// True if a kernel that works in the elements' own type can be held to anything.
    pub fn fits_f32(self) -> bool {
        self != Draw::Extreme
    }

    /// True if no element is infinite.
    pub fn is_finite(self) -> bool {
        self != Draw::Special
    }
}

/// Values of the symbols: first equal, then different.
pub const SYMBOLS: [fn(usize) -> i64; 2] = [|_| 4, |i| [4, 6, 3, 5][i % 4]];

/// One tensor per input of the program; `None` where an extent has no value.
pub fn inputs(
    program: &Program,
    graph: &Graph,
    draw: Draw,
    symbols: fn(usize) -> i64,
) -> Option<Vec<Tensor>> {
    let mut names: Vec<String> = Vec::new();
    for s in program.inputs.iter().flat_map(|(_, t)| &t.shape).flat_map(|d| d.symbols()) {
        if !names.iter().any(|n| **n == *s) {
            names.push(s.to_string());
        }
    }
    let value = |s: &str| names.iter().position(|n| n == s).map(symbols);
    let mut random = Random::from_state(11 + draw as u64);
    program
        .inputs
        .iter()
        .map(|(name, ty)| {
            let shape: Option<Vec<usize>> = ty
                .shape
                .iter()
                .map(|d| d.eval(&value).and_then(|v| usize::try_from(v).ok()))
                .collect();
            Some(tensor(ty, shape?, graph.bounds.get(name).copied(), draw, &mut random))
        })
        .collect()
}

fn tensor(
    ty: &Type,
    shape: Vec<usize>,
    bounds: Option<(i64, i64)>,
    draw: Draw,
    random: &mut Random,
) -> Tensor {
    let n: usize = shape.iter().product();
    if ty.dtype.is_float() {
        let first = float(Draw::Normal, ty.dtype, random);
        let one = |_| if draw == Draw::Equal { first } else { float(draw, ty.dtype, random) };
        let values: Vec<f64> = (0..n).map(one).collect();
        return Tensor::from_f64(ty.dtype, shape, &values);
    }
    let values: Vec<i64> = (0..n).map(|_| integer(ty.dtype, bounds, draw, random)).collect();
    Tensor::from_i64(ty.dtype, shape, &values)
}

fn integer(dtype: DType, bounds: Option<(i64, i64)>, draw: Draw, random: &mut Random) -> i64 {
    let (low, high) = match (bounds, dtype.int_range()) {
        (Some(b), _) => b,
        (None, Some((low, high))) if draw == Draw::Extreme => {
            let ends = [low as i64, low as i64 + 1, high.min(i64::MAX as i128) as i64, 0, 1];
            return ends[random.below(5)];
        }
        (None, Some((low, _))) => (low.max(-7) as i64, 7),
        (None, None) => (0, 1),
    };
    low + random.below((high - low + 1) as usize) as i64
}

fn float(draw: Draw, dtype: DType, random: &mut Random) -> f64 {
    let of = |list: &[f64], random: &mut Random| random.pick(list);
    let special = random.unit();
    match draw {
        Draw::Nan if special < 0.15 => f64::NAN,
        Draw::Special if special < 0.25 => {
            of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY], random)
        }
        Draw::Extreme => {
            let top = if dtype == DType::F16 { 65504.0 } else { 3.4e38 };
            of(
                &[top, -top, top.sqrt(), -top.sqrt(), 1e-40, -1e-40, 1e-20, 0.0, -0.0, 100.0],
                random,
            )
        }
        Draw::Large => {
            let top = if dtype == DType::F16 { 100.0 } else { 1e9 };
            of(&[top, -top, 1e4, -1e4, 1e-40, -1e-40, 1e-9, 0.0, -0.0, 30.0], random)
        }
        Draw::Whole => of(&[-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0], random),
        Draw::Positive => 0.25 + 2.0 * random.unit(),
        Draw::Wide => 24.0 * random.unit() - 12.0,
        Draw::Normal | Draw::Equal | Draw::Nan | Draw::Special => 1.5 * random.normal(),
    }
}
