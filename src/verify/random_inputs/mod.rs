//! Seeded random inputs for checks, with elements that are plausible for their use in the program.

mod extent_sets;
mod extents;
mod ranges;
mod relations;

pub use extent_sets::{ExtentSet, MOST_SETS, extent_sets};
pub use extents::{Symbols, fitting, nearby, symbols, unmet, usual_symbols};
pub use relations::{Relations, Trial, related, relations};

use mlc_dsl::ir::{DType, Extent, Program, Tensor, Type};
use mlc_dsl::library::Library;
use mlc_dsl::random::{NUMERALS, Random};
use ranges::ranges;
use std::collections::HashMap;

/// What the elements of inputs look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Standard normal.
    Ordinary,
    /// Of a thousand to ten thousand, either sign: exponentials overflow and vanish.
    Large,
    /// A mean of 1000 and a deviation of 1: what subtracts squares loses all digits.
    Offset,
    /// Zeros of both signs, ones and other repeated numbers among normal ones.
    Zeros,
    /// Small enough that squares vanish.
    Tiny,
    /// Magnitudes far apart whose squares are in range.
    Wide,
    /// Magnitudes over the whole range of the type.
    Range,
    /// Standard normal, with infinities of both signs and NaN at some places.
    NotFinite,
    /// Standard normal floats; integers that select nothing are of the whole range of their type.
    Integers,
    /// As the first, with other numbers: integers that select nothing are small ones of either sign.
    Others,
    /// Truth values that are all one or the other, integers from either end of their range.
    Ends,
}

impl Style {
    /// All styles, those that show most first.
    pub const ALL: [Style; 10] = [
        Style::Ordinary,
        Style::Large,
        Style::Offset,
        Style::Zeros,
        Style::Tiny,
        Style::Wide,
        Style::Range,
        Style::Integers,
        Style::Others,
        Style::Ends,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Style::Ordinary => "standard normal",
            Style::Large => "large values",
            Style::Offset => "large offset, small spread",
            Style::Zeros => "signed zeros and repeated values",
            Style::Tiny => "tiny values",
            Style::Wide => "magnitudes far apart",
            Style::Range => "the whole range of exponents",
            Style::NotFinite => "infinities and NaN",
            Style::Integers => "integers of the whole range",
            Style::Others => "other integers and truth values",
            Style::Ends => "ends of ranges",
        }
    }

    fn float(self, dtype: DType, random: &mut Random) -> f64 {
        let sign = |r: &mut Random| if r.below(2) == 0 { 1.0 } else { -1.0 };
        let power =
            |r: &mut Random, low: f64, high: f64| sign(r) * (low + (high - low) * r.unit()).exp2();
        // Least and largest exponents of normal numbers.
        let (least, most) = match dtype {
            DType::F16 => (-14.0, 15.0),
            DType::F64 => (-1022.0, 1023.0),
            _ => (-126.0, 127.0),
        };
        match self {
            Style::Ordinary | Style::Integers | Style::Others | Style::Ends => random.normal(),
            Style::NotFinite => match random.below(40) {
                0 => f64::INFINITY,
                1 => f64::NEG_INFINITY,
                2 => f64::NAN,
                _ => random.normal(),
            },
            Style::Large => sign(random) * 10f64.powf(3.0 + random.unit()),
            Style::Offset => 1000.0 + random.normal(),
            Style::Zeros => match random.below(6) {
                0 => 0.0,
                1 => -0.0,
                2 => sign(random),
                3 => sign(random) * 2.0,
                _ => random.normal(),
            },
            Style::Tiny => power(random, 0.75 * least, 0.55 * least),
            Style::Wide => power(random, 0.45 * least, 0.45 * most),
            Style::Range => power(random, least, most),
        }
    }
}

/// Inputs for a program. Integers that select elements lie within what they select from; other
/// integers are 0 or 1, as masks are.
pub fn inputs(program: &Program, library: &Library, seed: u64) -> Option<Vec<Tensor>> {
    styled(program, library, Style::Ordinary, seed, &symbols(program, library))
}

/// The styles in which the inputs of a program differ.
pub fn styles(program: &Program, library: &Library) -> Vec<Style> {
    let symbols = symbols(program, library);
    let selecting = ranges(program, library, &|e| e.eval(&|s| symbols.get(s).copied()));
    let has_floats = program.inputs.iter().any(|(_, t)| t.dtype.is_float());
    let is_free = |(i, (_, t)): (usize, &(String, Type))| {
        t.dtype.is_int() && !selecting.contains_key(&(i as u32))
    };
    let has_free = program.inputs.iter().enumerate().any(is_free);
    let differs = |s: &Style| match s {
        Style::Ordinary => true,
        Style::Integers => has_free,
        Style::Others | Style::Ends => !has_floats && !program.inputs.is_empty(),
        _ => has_floats,
    };
    let all = Style::ALL.into_iter().chain([Style::NotFinite]);
    all.filter(differs).collect()
}

/// Inputs of a style; symbols have the values given, or small ones of their own.
pub fn styled(
    program: &Program,
    library: &Library,
    style: Style,
    seed: u64,
    symbols: &HashMap<String, i64>,
) -> Option<Vec<Tensor>> {
    let known = |e: &Extent| e.eval(&|s| symbols.get(s).copied());
    let ranges = ranges(program, library, &known);
    let mut random = Random::from_state(if style == Style::Others { !seed } else { seed });
    let mut out = Vec::new();
    for (i, (_, ty)) in program.inputs.iter().enumerate() {
        let shape: Option<Vec<usize>> =
            ty.shape.iter().map(|e| known(e).and_then(|v| usize::try_from(v).ok())).collect();
        let shape = shape?;
        let n = shape.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).filter(|&n| n < 1 << 31)?;
        let range = ranges.get(&(i as u32)).copied();
        out.push(tensor(ty, shape, n, range, style, &mut random));
    }
    Some(out)
}

fn tensor(
    ty: &Type,
    shape: Vec<usize>,
    n: usize,
    range: Option<(i64, i64)>,
    style: Style,
    random: &mut Random,
) -> Tensor {
    match ty.dtype {
        DType::F32 => {
            let values = (0..n).map(|_| style.float(DType::F32, random) as f32).collect();
            Tensor::from_f32(shape, values)
        }
        d if d.is_float() => {
            let within = |v| d.small_float().map_or(v, |format| format.clamp(v));
            let values: Vec<f64> = (0..n).map(|_| within(style.float(d, random))).collect();
            Tensor::from_f64(d, shape, &values)
        }
        DType::Str => {
            let chosen = (0..n).map(|_| random.pick(NUMERALS));
            let texts = Tensor::from_strings(shape.clone(), chosen);
            texts.unwrap_or_else(|_| Tensor::from_i64(DType::Str, shape, &vec![0; n]))
        }
        d if style == Style::Integers && range.is_none() && d.is_int() => {
            let values: Vec<i64> = (0..n).map(|_| whole(d, random)).collect();
            Tensor::from_i64(d, shape, &values)
        }
        d => {
            // As masks are, if nothing else is known.
            let free = if style == Style::Others && d.is_int() { (-3, 3) } else { (0, 1) };
            let (low, high) = range.filter(|_| d.is_int()).unwrap_or(free);
            let (least, most) = d.int_range().unwrap_or((0, 1));
            let within = |v: i64| i128::from(v).clamp(least, most) as i64;
            let (low, high) = (within(low), within(high));
            let count = high.abs_diff(low).saturating_add(1);
            let one = if style == Style::Ends { random.below(2) } else { 0 };
            let mut value = || match (style, d.is_int()) {
                (Style::Ends, true) => random.pick(&[low, high]),
                (Style::Ends, false) => one as i64,
                _ => low.wrapping_add(random.below(count as usize) as i64),
            };
            let values: Vec<i64> = (0..n).map(|_| value()).collect();
            Tensor::from_i64(d, shape, &values)
        }
    }
}

/// An integer of any magnitude that its type holds.
fn whole(dtype: DType, random: &mut Random) -> i64 {
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let bits = random.below(8 * dtype.size());
    let v = (random.bits() >> 1 >> (63 - bits)) as i128;
    let v = if low < 0 && random.below(2) == 0 { -v } else { v };
    v.clamp(low, high).clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
