//! Values of terms in the environments of a world, and what is the same of equal ones.
//!
//! The reference interpreter computes them. Equal keys are a reason to ask the verifier, and no more than that.

use super::worlds::{Style, World};
use mlc_backends::reference::{Array, Elements};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What the values of a term are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64, u64);

/// Keys of a term's values: of all environments, and of those of one style.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// In all environments.
    pub everywhere: Key,
    /// Where elements are finite, and of integers everywhere.
    pub finite: Key,
    /// Where elements are finite and attributes positive.
    pub scaled: Key,
    /// Where no element is below zero.
    pub nonnegative: Key,
    /// Where elements are positive and moderate.
    pub moderate: Key,
    /// No environment has a number in it, or all of it is empty.
    pub void: bool,
    /// What is finite where elements are, is one number: what is made of it tells little.
    pub flat: bool,
}

impl Keys {
    /// Of values, one for each environment.
    pub fn of(world: &World, values: &[Array]) -> Keys {
        let exact = !world.main.is_float();
        let key = |style: Option<Style>| {
            let wanted = |s: Style| style.is_none() || Some(s) == style;
            let mut hashers = (DefaultHasher::new(), DefaultHasher::new());
            1u8.hash(&mut hashers.1);
            // Types tell terms apart in every environment.
            for (e, v) in world.environments.iter().zip(values) {
                let codes = if wanted(e.style) { codes(v) } else { vec![] };
                for h in [&mut hashers.0, &mut hashers.1] {
                    (v.dtype() as u32, v.shape(), &codes).hash(h);
                }
            }
            Key(hashers.0.finish(), hashers.1.finish())
        };
        let numbers =
            world.environments.iter().zip(values).filter(|(e, _)| e.style != Style::Special);
        let has = |a: &Array| a.floats().is_none_or(|v| v.iter().any(|x| x.is_finite()));
        let everywhere = key(None);
        Keys {
            everywhere,
            finite: if exact { everywhere } else { key(Some(Style::Finite)) },
            scaled: key(Some(Style::Scaled)),
            nonnegative: key(Some(Style::Nonnegative)),
            moderate: key(Some(Style::Moderate)),
            flat: is_flat(&values[0]),
            void: !numbers.into_iter().any(|(_, v)| !v.is_empty() && has(v)),
        }
    }
}

/// True if all finite elements are one number.
fn is_flat(a: &Array) -> bool {
    let numbers = a.to_f64();
    let mut finite = numbers.iter().filter(|x| x.is_finite());
    finite.next().is_none_or(|first| finite.all(|x| x == first))
}

/// The elements, floats without the places in which roundings differ.
fn codes(a: &Array) -> Vec<u64> {
    match a.elements() {
        Elements::Int(v) => v.iter().map(|x| *x as u64).collect(),
        Elements::Float(v) => v.iter().map(|x| code(*x)).collect(),
    }
}

fn code(x: f64) -> u64 {
    if x.is_nan() {
        return u64::MAX;
    }
    if x.is_infinite() {
        return if x > 0.0 { u64::MAX - 1 } else { u64::MAX - 2 };
    }
    if x.abs() < 1e-9 {
        return 0;
    }
    // No number that is often met lies near where one step ends.
    let step = (x.abs().ln() * 1e8 + 0.377).floor() as i64;
    (step as u64) << 1 ^ u64::from(x < 0.0) ^ 1 << 62
}

/// An array of one number.
pub fn filled(like: &Array, dtype: mlc_dsl::ir::DType, number: f64) -> Option<Array> {
    let (shape, n) = (like.shape().to_vec(), like.len());
    if dtype.is_float() {
        return Array::from_f64(dtype, shape, vec![number; n]);
    }
    (number.fract() == 0.0).then(|| Array::from_i64(dtype, shape, vec![number as i64; n]))?
}
