//! Canonical form of structural applications, which programs and e-graphs both rely on.
//!
//! - `broadcast` reads an operand without unit axes and adds at least one axis that is not a unit axis;
//!   inserting or dropping unit axes is a `reshape`. So a bias as `[c]`, `[c,1,1]` or `[1,c,1,1]`
//!   is one value.
//! - `reshape` never reads a `reshape`, and no structural operator is the identity.
//!
//! These operators belong to the notation itself; no other operator is known by name here.

use super::attr::Attr;
use super::dtype::DType;
use super::extent::Extent;
use super::ty::Type;
use crate::library::{CallId, Library};
use crate::typing::infer::TypeError;

/// The ids of the operators that the notation stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structural {
    /// `broadcast(x, map, shape)`.
    pub broadcast: Option<CallId>,
    /// `stretch(x, shape)`.
    pub stretch: Option<CallId>,
    /// `reshape(x, shape)`.
    pub reshape: Option<CallId>,
    /// `transpose(x, perm)`.
    pub transpose: Option<CallId>,
    /// `slice(x, start, size, step)`.
    pub slice: Option<CallId>,
    /// `cast(x, to)`.
    pub cast: Option<CallId>,
    /// `extents(values)`.
    pub extents: Option<CallId>,
    /// The operators of [`ARITHMETIC`], in that order.
    pub arithmetic: [Option<CallId>; ARITHMETIC.len()],
}

/// Operators that compute on elements what functions of one name, or a sign, compute on numbers.
pub const ARITHMETIC: [&str; 16] = [
    "add", "sub", "mul", "div", "modulo", "pow", "neg", "abs", "sqrt", "rsqrt", "recip", "exp",
    "log", "floor", "maximum", "minimum",
];

impl Structural {
    /// Looks the operators up.
    pub fn of(library: &Library) -> Structural {
        Structural {
            broadcast: library.find("broadcast"),
            stretch: library.find("stretch"),
            reshape: library.find("reshape"),
            transpose: library.find("transpose"),
            slice: library.find("slice"),
            cast: library.find("cast"),
            extents: library.find("extents"),
            arithmetic: ARITHMETIC.map(|name| library.find(name)),
        }
    }

    /// The operator of this name, if it is one of [`ARITHMETIC`].
    pub fn arithmetic(&self, name: &str) -> Option<CallId> {
        self.arithmetic[ARITHMETIC.iter().position(|n| *n == name)?]
    }
}

/// Where applications are put: a program under construction or an e-graph.
pub trait Sink {
    /// A value.
    type Value: Copy + PartialEq;

    /// The element type and extents of a value that was added before.
    fn ty(&self, v: Self::Value) -> Type;

    /// Adds an application as it stands; attributes are complete or take their defaults.
    fn raw(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Self::Value],
    ) -> Result<Vec<Self::Value>, TypeError>;

    /// A constant of rank 0, `v` rounded to `dtype`; an error where no more is taken.
    fn scalar(&mut self, dtype: DType, v: f64) -> Result<Self::Value, TypeError>;

    /// The operand of `v` and the attributes if `v` is (also) an application of `call`.
    fn peel(&self, v: Self::Value, call: CallId) -> Option<(Self::Value, Vec<Attr>)>;

    /// True if `v` is known as nothing but an application of `call`.
    fn is_only(&self, v: Self::Value, call: CallId) -> bool {
        self.peel(v, call).is_some()
    }
}

/// Adds an application in canonical form.
pub fn apply<S: Sink>(
    sink: &mut S,
    structural: Structural,
    call: CallId,
    attrs: &[Option<Attr>],
    args: &[S::Value],
) -> Result<Vec<S::Value>, TypeError> {
    let call = Some(call);
    let one = |v: Result<S::Value, TypeError>| v.map(|v| vec![v]);
    match (args, attrs) {
        ([x], [Some(shape)]) if call == structural.reshape => {
            if let Some(shape) = shape.as_extents() {
                return one(reshape(sink, structural, *x, shape));
            }
        }
        ([x], [Some(map), Some(shape)]) if call == structural.broadcast => {
            if let (Some(map), Some(shape)) = (map.as_i64s(), shape.as_extents())
                && map.len() == sink.ty(*x).rank()
                && map.iter().all(|&m| usize::try_from(m).is_ok_and(|m| m < shape.len()))
                && map.iter().zip(&sink.ty(*x).shape).all(|(&m, d)| shape[m as usize] == *d)
            {
                return one(broadcast(sink, structural, *x, &map, shape));
            }
        }
        ([x], [Some(perm)]) if call == structural.transpose => {
            let identity = |p: &[i64]| p.iter().enumerate().all(|(i, &p)| i as i64 == p);
            if perm.as_i64s().is_some_and(|p| p.len() == sink.ty(*x).rank() && identity(&p)) {
                return Ok(vec![*x]);
            }
        }
        ([x], [Some(start), Some(size), Some(step)]) if call == structural.slice => {
            let is = |a: &Attr, v: i64| a.as_extents().is_some_and(|e| e.iter().all(|e| e.is(v)));
            if is(start, 0) && is(step, 1) && size.as_extents() == Some(&sink.ty(*x).shape) {
                return Ok(vec![*x]);
            }
        }
        ([x], [Some(Attr::DType(to))]) if call == structural.cast && sink.ty(*x).dtype == *to => {
            return Ok(vec![*x]);
        }
        _ => {}
    }
    match call {
        Some(call) => sink.raw(call, attrs, args),
        None => Ok(vec![]),
    }
}

/// `x` under another shape of as many elements.
pub fn reshape<S: Sink>(
    sink: &mut S,
    structural: Structural,
    x: S::Value,
    shape: &[Extent],
) -> Result<S::Value, TypeError> {
    let Some(call) = structural.reshape else { return Ok(x) };
    if sink.ty(x).shape == shape {
        return Ok(x);
    }
    let mut source = x;
    // That the result is a reshape of what else `x` is must stay known.
    if let Some((inner, _)) = sink.peel(x, call)
        && sink.is_only(x, call)
    {
        if sink.ty(inner).shape == shape {
            return Ok(inner);
        }
        source = inner;
    }
    let attrs = [Some(Attr::Ints(shape.to_vec()))];
    Ok(sink.raw(call, &attrs, &[source])?[0])
}

/// `x` repeated along new axes; `map[i]` is the place of axis `i` of `x` in `shape`.
pub fn broadcast<S: Sink>(
    sink: &mut S,
    structural: Structural,
    x: S::Value,
    map: &[i64],
    shape: &[Extent],
) -> Result<S::Value, TypeError> {
    let own = sink.ty(x).shape;
    let place = |m: &i64| usize::try_from(*m).is_ok_and(|m| m < shape.len());
    let placed = map.len() == own.len() && map.iter().all(place) && map.is_sorted_by(|a, b| a < b);
    if let (false, Some(call)) = (placed, structural.broadcast) {
        // The declaration says what is wrong.
        let attrs = [Some(Attr::ints(map.to_vec())), Some(Attr::Ints(shape.to_vec()))];
        return Ok(sink.raw(call, &attrs, &[x])?[0]);
    }
    let kept: Vec<usize> = (0..own.len()).filter(|&i| !own[i].is(1)).collect();
    let covered = |axis: usize| kept.iter().any(|&i| map[i] == axis as i64);
    if (0..shape.len()).all(|axis| shape[axis].is(1) || covered(axis)) {
        return reshape(sink, structural, x, shape);
    }
    let Some(call) = structural.broadcast else { return Ok(x) };
    let bare: Vec<Extent> = kept.iter().map(|&i| own[i].clone()).collect();
    let mut operand = reshape(sink, structural, x, &bare)?;
    let mut map: Vec<i64> = kept.iter().map(|&i| map[i]).collect();
    if let Some((inner, attrs)) = sink.peel(operand, call)
        && let Some(first) = attrs.first().and_then(Attr::as_i64s)
    {
        // Broadcasting twice is broadcasting once.
        map = first.iter().map(|&m| map[m as usize]).collect();
        operand = inner;
    }
    let attrs = [Some(Attr::ints(map)), Some(Attr::Ints(shape.to_vec()))];
    Ok(sink.raw(call, &attrs, &[operand])?[0])
}
