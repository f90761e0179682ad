//! Elements of the sample tensors.

use crate::compare::running_error::limits;
use crate::law::facts::ElementRule;
use mlc_dsl::ir::{DType, Tensor, strings};
use mlc_dsl::random::{NUMERALS, Random};

/// From this extent on an axis is longer than the narrowest integers count.
pub(crate) const LONG: i64 = 100;

/// What the elements of a sample look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementStyle {
    /// Small integers, zero among them.
    Integers,
    /// Normally distributed.
    Normal,
    /// Of magnitudes far apart.
    Wide,
    /// Powers of two with a sign.
    Powers,
    /// Mostly 0, 1 and -1.
    Units,
    /// Normally distributed, with NaN among them.
    Nan,
    /// Normally distributed, with infinities among them.
    Infinite,
    /// Normally distributed, with minus infinities among them, as masks have.
    Masked,
    /// Zeros of both signs, the smallest numbers, and a few others.
    Zeros,
    /// At the ends of the type's range.
    Huge,
    /// Mostly NaN: for what empty sums hide.
    Missing,
    /// Mostly infinities of both signs: for what empty sums hide.
    Endless,
    /// Zero, one, infinities and the numbers that the law names, every choice for every tensor in turn.
    Met,
    /// Each tensor has a magnitude of its own, from the whole range of exponents.
    Scaled,
    /// Each element has.
    Scattered,
    /// A small spread around a large number that the tensors share, but for a sign.
    Offset,
    /// Each tensor lies around a number of its own at which functions saturate or exponentials overflow, the first one around the
    /// number that has its turn.
    Saturated(u8),
    /// Small ones among large ones that cancel: of the small, a sum keeps those that come last.
    Absorbing,
}

/// Magnitudes at which functions saturate that the first tensor has in turn, each with both signs.
pub(crate) const SATURATED: u8 = 6;

/// What the tensors of one sample share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedDraw {
    /// Where they lie: a binary exponent, or a share of the type's exponents.
    offset: f64,
    whole: bool,
    /// How far apart they lie, as a share of the roundoff's digits.
    spread: f64,
    /// The elements of a tensor have one sign.
    signed: bool,
    /// The first choice of numbers that meet.
    turn: usize,
}

/// What a tensor has in samples where numbers meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LawNumbers<'a> {
    /// The numbers that the law names, and those of its attributes.
    pub numbers: &'a [f64],
    /// The place of the tensor among the law's.
    pub place: usize,
}

/// How the elements of one tensor are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementDraw<'a> {
    /// What they look like.
    pub style: ElementStyle,
    /// What they share with the sample's other tensors.
    pub shared: SharedDraw,
    /// The numbers that the law names.
    pub named: LawNumbers<'a>,
}

impl SharedDraw {
    /// Draws what the tensors of one sample share.
    pub(crate) fn draw(rng: &mut Random) -> SharedDraw {
        let whole = rng.chance(0.5);
        let offset = rng.unit() * if whole { 0.7 } else { 12.0 };
        let spread = 0.3 + 0.4 * rng.unit();
        SharedDraw { offset, whole, spread, signed: rng.chance(0.5), turn: rng.below(1 << 20) }
    }
}

impl ElementStyle {
    /// After so many samples the rounds begin again.
    pub(crate) const COUNT: usize = 22;

    /// The round of sample `i`.
    pub(crate) fn of(i: usize) -> ElementStyle {
        const ORDER: [ElementStyle; ElementStyle::COUNT] = [
            ElementStyle::Normal,
            ElementStyle::Integers,
            ElementStyle::Scaled,
            ElementStyle::Nan,
            ElementStyle::Scaled,
            ElementStyle::Wide,
            ElementStyle::Zeros,
            ElementStyle::Offset,
            ElementStyle::Normal,
            ElementStyle::Powers,
            ElementStyle::Scaled,
            ElementStyle::Infinite,
            ElementStyle::Units,
            ElementStyle::Scaled,
            ElementStyle::Huge,
            ElementStyle::Offset,
            ElementStyle::Masked,
            ElementStyle::Scattered,
            ElementStyle::Offset,
            ElementStyle::Wide,
            ElementStyle::Met,
            ElementStyle::Met,
        ];
        ORDER[i % ORDER.len()]
    }

    /// The round of the `i`-th sample without elements along an axis.
    pub(crate) fn of_empty(i: usize) -> ElementStyle {
        [ElementStyle::Missing, ElementStyle::Endless, ElementStyle::Missing, ElementStyle::Normal]
            [i % 4]
    }

    /// The same among rounds that are not finite.
    pub(crate) fn unbounded(i: usize) -> ElementStyle {
        [ElementStyle::Nan, ElementStyle::Masked, ElementStyle::Infinite][i % 3]
    }

    /// True if all floats are finite and of moderate size.
    pub(crate) fn ordinary(self) -> bool {
        match self {
            ElementStyle::Nan | ElementStyle::Infinite | ElementStyle::Masked => false,
            ElementStyle::Missing | ElementStyle::Endless | ElementStyle::Met => false,
            ElementStyle::Zeros | ElementStyle::Huge => false,
            ElementStyle::Scaled | ElementStyle::Scattered | ElementStyle::Offset => false,
            ElementStyle::Saturated(_) | ElementStyle::Absorbing => false,
            ElementStyle::Integers
            | ElementStyle::Normal
            | ElementStyle::Wide
            | ElementStyle::Powers
            | ElementStyle::Units => true,
        }
    }
}

/// A tensor in a style. Integers stay in `-index..index` if an index is expected.
pub(crate) fn tensor(
    dtype: DType,
    shape: &[usize],
    draw: &ElementDraw<'_>,
    rule: &ElementRule,
    index: Option<i64>,
    rng: &mut Random,
) -> Tensor {
    let ElementDraw { style: round, shared, named } = *draw;
    let n: usize = shape.iter().product();
    let counts = dtype.is_float() || (dtype.is_int() && index.is_none());
    if round == ElementStyle::Met && counts {
        return met(dtype, shape, draw, rule, rng);
    }
    if dtype.is_float() && round == ElementStyle::Absorbing && !rule.uniform {
        let values = absorbing(dtype, n, rng).into_iter();
        let values: Vec<f64> = values.map(|v| fit_float(dtype, v, rule, rng)).collect();
        return Tensor::from_f64(dtype, shape.to_vec(), &values);
    }
    if dtype.is_float() {
        let (center, spread) = match round {
            ElementStyle::Saturated(turn) if named.place == 0 => {
                (saturation(dtype, turn, rng), 1.0)
            }
            _ => place(dtype, round, shared, rng),
        };
        let sign = if rng.chance(0.5) { -1.0 } else { 1.0 };
        let one = |rng: &mut Random| {
            let v = match round {
                ElementStyle::Scaled if shared.signed => {
                    sign * spread * rng.normal().abs().min(2.0)
                }
                ElementStyle::Scaled | ElementStyle::Offset | ElementStyle::Saturated(_) => {
                    center + spread * rng.normal().clamp(-2.0, 2.0)
                }
                ElementStyle::Scattered => {
                    scale(dtype, rng) * rng.pick(&[1.0, -1.0]) * (1.0 + rng.unit())
                }
                _ => float(dtype, round, rng),
            };
            fit_float(dtype, v, rule, rng)
        };
        let values: Vec<f64> =
            if rule.uniform { vec![one(rng); n] } else { (0..n).map(|_| one(rng)).collect() };
        return Tensor::from_f64(dtype, shape.to_vec(), &values);
    }
    // Of truth values often nearly all are one.
    let dense = rng.pick(&[0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.9, 0.0, 0.1]);
    let one = |rng: &mut Random| fit_int(int(dtype, round, index, dense, rng), dtype, rule, rng);
    let values: Vec<i64> =
        if rule.uniform { vec![one(rng); n] } else { (0..n).map(|_| one(rng)).collect() };
    Tensor::from_i64(dtype, shape.to_vec(), &values)
}

/// A tensor of a sample where numbers meet: its elements count the choices, those of each further tensor more slowly.
fn met(
    dtype: DType,
    shape: &[usize],
    draw: &ElementDraw<'_>,
    rule: &ElementRule,
    rng: &mut Random,
) -> Tensor {
    let ElementDraw { shared, named, .. } = draw;
    let n: usize = shape.iter().product();
    let choices = choices(dtype, named.numbers, rng);
    let period = choices.len().saturating_pow(named.place as u32);
    let chosen = |i: usize| {
        let i = if rule.uniform { 0 } else { i };
        choices[(shared.turn + i) / period % choices.len()]
    };
    if dtype.is_float() {
        let one = |i| fit_float(dtype, chosen(i), rule, rng);
        let mut values: Vec<f64> = (0..n).map(one).collect();
        if let (true, Some(&v)) = (rule.uniform, values.first()) {
            values.fill(v);
        }
        return Tensor::from_f64(dtype, shape.to_vec(), &values);
    }
    let values: Vec<i64> = (0..n).map(|i| fit_int(chosen(i) as i64, dtype, rule, rng)).collect();
    Tensor::from_i64(dtype, shape.to_vec(), &values)
}

/// Numbers at which functions turn; of integers the law's own have neighbours.
fn choices(dtype: DType, numbers: &[f64], rng: &mut Random) -> Vec<f64> {
    let Some((low, high)) = dtype.int_range() else {
        let zero = if rng.chance(0.5) { 0.0 } else { -0.0 };
        let own = numbers.iter().map(|&v| round(dtype, v));
        return [zero, f64::INFINITY, f64::NEG_INFINITY, 1.0, -2.0]
            .into_iter()
            .chain(own)
            .collect();
    };
    let (low, high) = (low as f64, high as f64);
    let own = numbers.iter().flat_map(|v| [v - 1.0, *v, v + 1.0]);
    let own = own.filter(|v| low < *v && *v < high);
    [0.0, 1.0, -1.0, low, high].into_iter().chain(own).collect()
}

/// A magnitude: half of them moderate, where exponentials end, the others from the whole range.
fn scale(dtype: DType, rng: &mut Random) -> f64 {
    let (largest, normal, _) = limits(dtype);
    let (low, high) = if rng.chance(0.5) {
        // Up to twice what an exponential may be given.
        (-10.0, largest.ln().log2() + 1.0)
    } else {
        (normal.log2() + 1.0, largest.log2() - 2.0)
    };
    (low + (high - low) * rng.unit()).exp2()
}

/// Where a tensor of a round lies, and how far its elements spread.
fn place(dtype: DType, round: ElementStyle, shared: SharedDraw, rng: &mut Random) -> (f64, f64) {
    match round {
        ElementStyle::Scaled => (0.0, scale(dtype, rng)),
        ElementStyle::Saturated(_) => {
            (saturation(dtype, rng.below(2 * usize::from(SATURATED)) as u8, rng), 1.0)
        }
        ElementStyle::Offset => {
            let exponents = if shared.whole { limits(dtype).0.log2() } else { 1.0 };
            let center = (shared.offset * exponents).exp2() * rng.pick(&[1.0, 1.0, 1.0, -1.0]);
            (center, center.abs() * dtype.unit_roundoff().powf(shared.spread))
        }
        _ => (0.0, 1.0),
    }
}

/// A number of the magnitude and sign that have this turn: from half of where 1 + exp(-x) rounds to 1 to beyond where exp(x)
/// overflows.
fn saturation(dtype: DType, turn: u8, rng: &mut Random) -> f64 {
    let low = (0.5 * dtype.unit_roundoff().ln()).abs().log2();
    let high = (1.5 * limits(dtype).0.ln()).log2();
    let share = (f64::from(turn / 2 % SATURATED) + rng.unit()) / f64::from(SATURATED);
    let sign = if turn.is_multiple_of(2) { -1.0 } else { 1.0 };
    sign * (low + (high - low) * share).exp2()
}

/// Small numbers among an even number of large ones of alternating signs, too far apart for the digits of f64, in which sums are taken.
fn absorbing(dtype: DType, n: usize, rng: &mut Random) -> Vec<f64> {
    let mut places: Vec<usize> = (0..n).collect();
    rng.shuffle(&mut places);
    places.truncate((n / 3).max(2) / 2 * 2);
    places.sort_unstable();
    let mut values: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
    let mut large = limits(dtype).0.log2().min(60.0).exp2();
    for at in places {
        values[at] = large;
        large = -large;
    }
    values
}

fn float(dtype: DType, round: ElementStyle, rng: &mut Random) -> f64 {
    let (largest, _, smallest) = limits(dtype);
    let sign = if rng.chance(0.5) { -1.0 } else { 1.0 };
    match round {
        ElementStyle::Integers => rng.between(-4, 4) as f64,
        ElementStyle::Normal => rng.normal(),
        ElementStyle::Wide => sign * (2f64).powf(rng.unit() * 10.0 - 5.0),
        ElementStyle::Powers => sign * (2f64).powi(rng.between(-3, 3) as i32),
        ElementStyle::Units => rng.pick(&[0.0, 0.0, 1.0, 1.0, -1.0, 2.0, 0.5]),
        ElementStyle::Nan | ElementStyle::Infinite | ElementStyle::Masked => {
            match (rng.below(8), round) {
                (0 | 1, ElementStyle::Nan) => f64::NAN,
                (0, ElementStyle::Infinite) => sign * f64::INFINITY,
                (0 | 1, ElementStyle::Masked) => f64::NEG_INFINITY,
                (2, _) => sign * 0.0,
                _ => rng.normal(),
            }
        }
        ElementStyle::Missing if rng.chance(0.75) => f64::NAN,
        ElementStyle::Endless if rng.chance(0.75) => sign * f64::INFINITY,
        ElementStyle::Missing | ElementStyle::Endless => rng.normal(),
        ElementStyle::Zeros => match rng.below(6) {
            0 | 1 => 0.0,
            2 | 3 => -0.0,
            4 => sign * smallest * rng.between(1, 3) as f64,
            _ => rng.between(-2, 2) as f64,
        },
        ElementStyle::Huge => match rng.below(6) {
            0 => sign * largest,
            1 => sign * largest / 2.0,
            2 => sign * largest.sqrt() * 3.0,
            3 => sign / largest.sqrt(),
            // Several of them overflow alike.
            4 => sign * largest * (1.0 - 0.375 * rng.unit()),
            _ => rng.normal(),
        },
        ElementStyle::Scaled
        | ElementStyle::Scattered
        | ElementStyle::Offset
        | ElementStyle::Met => rng.normal(),
        ElementStyle::Saturated(_) | ElementStyle::Absorbing => rng.normal(),
    }
}

fn fit_float(dtype: DType, v: f64, rule: &ElementRule, rng: &mut Random) -> f64 {
    let v = fit_bounds(dtype, v, rule, rng);
    // A bound may be the zero that is excluded.
    if rule.nonzero && round(dtype, v) == 0.0 {
        rule.high.map_or(1.0, |h| if h > 0.0 { h.min(1.0) } else { -1.0 })
    } else {
        v
    }
}

fn fit_bounds(dtype: DType, v: f64, rule: &ElementRule, rng: &mut Random) -> f64 {
    let bounded = rule.low.is_some() || rule.high.is_some();
    // What is too small for the type is zero.
    let mut v = round(dtype, v);
    if v.is_nan() && rule.missing && !rule.number && !rule.finite {
        return v;
    }
    if (rule.finite && !v.is_finite()) || ((bounded || rule.number) && v.is_nan()) {
        v = rng.normal();
    }
    if rule.nonzero && v == 0.0 {
        v = 1.0;
    }
    if rule.unsigned && v == 0.0 {
        v = 0.0;
    }
    let inside = |v: f64| {
        let above = rule.low.is_none_or(|l| v > l || (v == l && !rule.open));
        above && rule.high.is_none_or(|h| v < h || (v == h && !rule.open))
    };
    if inside(v) {
        return v;
    }
    // What holds within a bound may fail at it.
    if let Some(bound) = rule.low.or(rule.high).filter(|b| !rule.open && b.is_finite())
        && rng.chance(0.1)
        && inside(bound)
    {
        return bound;
    }
    match (rule.low, rule.high) {
        (Some(l), Some(h)) => {
            let inner = 0.001 + 0.998 * rng.unit();
            l + (h - l) * if rule.open { inner } else { rng.pick(&[0.0, 1.0, inner, inner]) }
        }
        (Some(l), None) => {
            let far = l + (v - l).abs();
            if inside(far) { far } else { l + 1.0 }
        }
        (None, Some(h)) => {
            let far = h - (v - h).abs();
            if inside(far) { far } else { h - 1.0 }
        }
        (None, None) => v,
    }
}

fn round(dtype: DType, v: f64) -> f64 {
    mlc_backends::reference::round_to(dtype, v)
}

fn int(dtype: DType, round: ElementStyle, index: Option<i64>, dense: f64, rng: &mut Random) -> i64 {
    if dtype == DType::Bool {
        return i64::from(rng.chance(dense));
    }
    if dtype == DType::Str {
        return strings::number_of(rng.pick(NUMERALS)).unwrap_or_default() as i64;
    }
    if let Some(n) = index {
        let n = n.max(1);
        // What narrows an index shows at the end of a long axis.
        if n >= LONG && rng.chance(0.5) {
            return n - 1;
        }
        let low = if rng.chance(0.3) { -n } else { 0 };
        return rng.between(low, n - 1);
    }
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let (low, high) = (low.max(i64::MIN.into()) as i64, high.min(i64::MAX.into()) as i64);
    match round {
        ElementStyle::Integers | ElementStyle::Zeros => rng.between(-4, 4),
        ElementStyle::Units => rng.between(-1, 1),
        ElementStyle::Powers => 1 << rng.below(7),
        ElementStyle::Normal
        | ElementStyle::Scaled
        | ElementStyle::Scattered
        | ElementStyle::Offset => rng.between(0, 9),
        ElementStyle::Saturated(_) | ElementStyle::Absorbing => rng.between(0, 9),
        ElementStyle::Wide => rng.between(-100, 100),
        ElementStyle::Nan
        | ElementStyle::Infinite
        | ElementStyle::Masked
        | ElementStyle::Huge
        | ElementStyle::Missing
        | ElementStyle::Endless
        | ElementStyle::Met => rng.pick(&[low, high, low.wrapping_add(1), high / 2, 0, 1, -1, 3]),
    }
}

fn fit_int(v: i64, dtype: DType, rule: &ElementRule, rng: &mut Random) -> i64 {
    let mut v = mlc_backends::reference::wrap(dtype, v);
    let open = i64::from(rule.open);
    let low = rule.low.map(|l| (l.ceil() as i64).saturating_add(open));
    let high = rule.high.map(|h| (h.floor() as i64).saturating_sub(open));
    let beyond = low.is_some_and(|l| v < l) || high.is_some_and(|h| v > h);
    if beyond {
        v = match (low, high) {
            (Some(l), Some(h)) if l < h => match rng.below(6) {
                0 | 1 => l,
                2 => h,
                3 => l.saturating_add(rng.between(0, 7)).min(h),
                4 => h.saturating_sub(rng.between(0, 7)).max(l),
                _ => rng.between(l, h),
            },
            (Some(l), None) => l.saturating_add(rng.between(0, 7)),
            (None, Some(h)) => h.saturating_sub(rng.between(0, 7)),
            (Some(l), Some(_)) => l,
            (None, None) => v,
        };
    }
    if rule.nonzero && v == 0 {
        v = if high.is_none_or(|h| h >= 1) { 1 } else { -1 };
    }
    mlc_backends::reference::wrap(dtype, v)
}
