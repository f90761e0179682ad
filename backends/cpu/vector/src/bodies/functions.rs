//! Elementary functions of vectors, bitwise those of [`crate::math`], and the epilogue steps that need them.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// Functions that every level has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// The exponential.
    Exp,
    /// The logistic function.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
}

/// Vectors of the largest tile: fourteen rows of two.
pub const LARGEST: usize = 28;

/// Vectors of a line that are taken through steps at once.
pub const LINE: usize = 8;

/// The function of every element of `from`, which is as long as `to`.
pub fn map(f: Function, to: &mut [f32], from: &[f32]) {
    assert_eq!(to.len(), from.len(), "a result per element");
    at_level!(map(f, to, from))
}

/// Defines `map` and `finish` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! functions {
    ($(#[$feature:meta])*) => {
        use crate::math::{ERF, Places, ROUND, TANH};
        use crate::bodies::functions::{Function, LARGEST, LINE};

        /// Vectors whose functions are computed side by side: each is a long chain of operations.
        const ABREAST: usize = 4;

        /// For each of several vectors: their chains of operations run side by side.
        macro_rules! all {
            ($i:ident, $x:expr) => {{
                let mut out = [zero(); N];
                for $i in 0..N {
                    out[$i] = $x;
                }
                out
            }};
        }

        $(#[$feature])*
        #[inline]
        fn exp<const N: usize>(x: [Vector; N]) -> [Vector; N] {
            let x = all!(i, larger(smaller(x[i], splat(89.0)), splat(-104.0)));
            // Twice the bias of exponents is added.
            let (r, j, t) = powers(x, splat(12_582_912.0 + 254.0));
            all!(i, scale(r[i], j[i], t[i]))
        }

        /// The same of numbers of at most 40.
        $(#[$feature])*
        #[inline]
        fn exp_of_small<const N: usize>(x: [Vector; N]) -> [Vector; N] {
            let x = all!(i, larger(x[i], splat(-104.0)));
            // The bias of exponents is added, and 63.
            let (r, j, t) = powers(x, splat(12_582_912.0 + 190.0));
            all!(i, scale_down(r[i], j[i], t[i]))
        }

        /// Exponentials as numbers near one and the powers of two that they are times: these integers, and again in the low bits of what rounds to
        /// them, with what `round` adds.
        $(#[$feature])*
        #[inline]
        fn powers<const N: usize>(x: [Vector; N], round: Vector) -> ([Vector; N], [Vector; N], [Vector; N]) {
            let t = all!(i, fused(x[i], splat(std::f32::consts::LOG2_E), round));
            let j = all!(i, subtract(t[i], round));
            let f = all!(i, fused(j[i], splat(-6.931_457_52e-1), x[i]));
            let f = all!(i, fused(j[i], splat(-1.428_606_77e-6), f[i]));
            let r = all!(i, fused(splat(1.378_059_39e-3), f[i], splat(8.373_124_52e-3)));
            let r = all!(i, fused(r[i], f[i], splat(4.166_953_64e-2)));
            let r = all!(i, fused(r[i], f[i], splat(1.666_647_20e-1)));
            let r = all!(i, fused(r[i], f[i], splat(4.999_998_51e-1)));
            let r = all!(i, fused(r[i], f[i], splat(1.0)));
            (all!(i, fused(r[i], f[i], splat(1.0))), j, t)
        }

        $(#[$feature])*
        #[inline]
        fn sigmoid<const N: usize>(x: [Vector; N]) -> [Vector; N] {
            let e = exp_of_small(all!(i, with_sign(x[i], splat(-0.0))));
            let over = all!(i, by_sign(x[i], e[i], splat(1.0)));
            all!(i, divide(over[i], add(splat(1.0), e[i])))
        }

        /// An odd function by its polynomials.
        $(#[$feature])*
        #[inline]
        fn odd<const N: usize, const P: usize>(p: &Places<P>, x: [Vector; N]) -> [Vector; N] {
            let t = all!(i, smaller(with_sign(x[i], zero()), splat(p.end)));
            let places = all!(i, fused(t[i], splat(p.steps), splat(ROUND)));
            let f = all!(i, fused(subtract(places[i], splat(ROUND)), splat(-p.step), t[i]));
            let mut r = all!(i, lookup(&p.coefficients[P - 1], places[i]));
            for coefficients in p.coefficients[..P - 1].iter().rev() {
                r = all!(i, fused(r[i], f[i], lookup(coefficients, places[i])));
            }
            all!(i, with_sign(r[i], x[i]))
        }

        $(#[$feature])*
        #[inline]
        fn tanh<const N: usize>(x: [Vector; N]) -> [Vector; N] {
            odd(&TANH, x)
        }

        $(#[$feature])*
        #[inline]
        fn erf<const N: usize>(x: [Vector; N]) -> [Vector; N] {
            odd(&ERF, x)
        }

        /// The function of every element.
        ///
        /// # Safety
        /// On a machine of this level; both are equally long.
        $(#[$feature])*
        pub unsafe fn map(f: Function, to: &mut [f32], from: &[f32]) {
            macro_rules! each {
                ($f:ident) => {{
                    let mut at = 0;
                    while at + ABREAST * LANES <= from.len() {
                        let mut x = [zero(); ABREAST];
                        for i in 0..ABREAST {
                            // SAFETY: these vectors are inside.
                            x[i] = unsafe { load(from.as_ptr().add(at + i * LANES)) };
                        }
                        let x = $f(x);
                        for i in 0..ABREAST {
                            // SAFETY: as above.
                            unsafe { store(to.as_mut_ptr().add(at + i * LANES), x[i]) };
                        }
                        at += ABREAST * LANES;
                    }
                    while at < from.len() {
                        let part = VectorSpan { at, column: at, skip: 0, len: LANES.min(from.len() - at) };
                        // SAFETY: the part is inside both.
                        unsafe {
                            let [x] = $f([read(from.as_ptr().add(at), part)]);
                            write(to.as_mut_ptr().add(at), part, x);
                        }
                        at += LANES;
                    }
                }};
            }
            match f {
                Function::Exp => each!(exp),
                Function::Sigmoid => each!(sigmoid),
                Function::Tanh => each!(tanh),
                Function::Erf => each!(erf),
            }
        }

        /// Adds what is there to the sums of a tile, row by row, if the target says so, takes them through its steps and writes them. The first row is
        /// row `row` of the operands.
        ///
        /// # Safety
        /// On a machine of this level. The parts of all rows lie inside the result and are not aliased, and the operands cover them.
        $(#[$feature])*
        #[inline(never)]
        unsafe fn finish(tile: &mut [Vector], t: &TileOutput<'_>, parts: &[VectorSpan], row: usize) {
            if t.add {
                for (r, line) in tile.chunks_exact_mut(parts.len()).enumerate() {
                    for (x, part) in line.iter_mut().zip(parts) {
                        // SAFETY: as promised.
                        *x = add(unsafe { read(t.out.add(part.at + r * t.stride), *part) }, *x);
                    }
                }
            }
            // SAFETY: as promised.
            unsafe { through(t.epilogue.steps(), tile, parts, t.stride, row) };
            for (r, line) in tile.chunks_exact(parts.len()).enumerate() {
                for (x, part) in line.iter().zip(parts) {
                    // SAFETY: as promised.
                    unsafe { write(t.out.add(part.at + r * t.stride), *part, *x) };
                }
            }
        }

        /// Takes the elements from `first.at` on of each of some rows, as many as `first` has, through the steps. Rows are `stride` elements apart; the
        /// first is row 0 of the operands.
        ///
        /// # Safety
        /// As [`finish`].
        $(#[$feature])*
        pub unsafe fn finish_rows(steps: &[EpilogueStep<'_>], out: *mut f32, first: VectorSpan, rows: usize, stride: usize) {
            for row in (0..rows).step_by(LINE) {
                let rows = (rows - row).min(LINE);
                let mut done = 0;
                while done < first.len {
                    let count = (first.len - done).div_ceil(LANES).min(LINE).min(LARGEST / rows);
                    let mut parts = [VectorSpan::default(); LINE];
                    let mut tile = [zero(); LARGEST];
                    for part in &mut parts[..count] {
                        let (at, column) = (first.at + row * stride + done, first.column + done);
                        *part = VectorSpan { at, column, skip: 0, len: (first.len - done).min(LANES) };
                        done += LANES;
                    }
                    let (parts, tile) = (&parts[..count], &mut tile[..rows * count]);
                    for (r, line) in tile.chunks_exact_mut(count).enumerate() {
                        for (x, part) in line.iter_mut().zip(parts) {
                            // SAFETY: as promised.
                            *x = unsafe { read(out.add(part.at + r * stride), *part) };
                        }
                    }
                    // SAFETY: as promised.
                    unsafe { through(steps, tile, parts, stride, row) };
                    for (r, line) in tile.chunks_exact(count).enumerate() {
                        for (x, part) in line.iter().zip(parts) {
                            // SAFETY: as promised.
                            unsafe { write(out.add(part.at + r * stride), *part, *x) };
                        }
                    }
                }
            }
        }

        /// Takes the vectors of a tile, row by row, through the steps, one step after the other: what a step needs is decided once for all of
        /// them, and their functions run side by side. Rows are `stride` elements apart.
        ///
        /// # Safety
        /// On a machine of this level; the operands cover the parts of all rows.
        $(#[$feature])*
        unsafe fn through(steps: &[EpilogueStep<'_>], tile: &mut [Vector], parts: &[VectorSpan], stride: usize, row: usize) {
            let wide = parts.len();
            let mut kept = [const { [const { MaybeUninit::<Vector>::uninit() }; LARGEST] }; 2];
            macro_rules! with {
                ($f:ident, $operand:expr) => {
                    match $operand {
                        Operand::Row(d) => {
                            for (r, line) in tile.chunks_exact_mut(wide).enumerate() {
                                // SAFETY: the operand covers the rows.
                                let y = splat(unsafe { *d.as_ptr().add(row + r) });
                                line.iter_mut().for_each(|x| *x = $f(*x, y));
                            }
                        }
                        Operand::Column(d) => {
                            for (v, part) in parts.iter().enumerate() {
                                // SAFETY: the operand covers the columns.
                                let y = unsafe { read(d.as_ptr().add(part.column), *part) };
                                tile[v..].iter_mut().step_by(wide).for_each(|x| *x = $f(*x, y));
                            }
                        }
                        Operand::Dense(d) => {
                            for (r, line) in tile.chunks_exact_mut(wide).enumerate() {
                                for (x, part) in line.iter_mut().zip(parts) {
                                    // SAFETY: the operand covers the parts.
                                    let y = unsafe { read(d.as_ptr().add(part.at + r * stride), *part) };
                                    *x = $f(*x, y);
                                }
                            }
                        }
                        Operand::Number(v) => {
                            let y = splat(v);
                            tile.iter_mut().for_each(|x| *x = $f(*x, y));
                        }
                        Operand::Saved(slot) => {
                            for (x, y) in tile.iter_mut().zip(&kept[slot.index()]) {
                                // SAFETY: what is taken from a slot was kept there before.
                                *x = $f(*x, unsafe { y.assume_init() });
                            }
                        }
                    }
                };
            }
            // A few vectors at a time, which stay in registers.
            macro_rules! each {
                (|$x:ident| $y:expr) => {{
                    macro_rules! group {
                        ($n:literal, $group:expr) => {{
                            const N: usize = $n;
                            let $x: [Vector; N] = $group;
                            $y
                        }};
                    }
                    let (groups, rest) = tile.as_chunks_mut::<ABREAST>();
                    for x in groups {
                        *x = group!(4, *x);
                    }
                    match rest {
                        [a, b, c] => [*a, *b, *c] = group!(3, [*a, *b, *c]),
                        [a, b] => [*a, *b] = group!(2, [*a, *b]),
                        [a] => [*a] = group!(1, [*a]),
                        _ => {}
                    }
                }};
            }
            macro_rules! gate {
                ($f:ident) => {
                    each!(|x| {
                        let y = $f(x);
                        all!(i, multiply(y[i], x[i]))
                    })
                };
            }
            macro_rules! curve {
                ($f:ident, $c:ident) => {{
                    let (shift, outer) = (splat($c.shift), splat($c.outer));
                    macro_rules! scaled {
                        ($scale:ident, $by:expr) => {{
                            let by = splat($by);
                            each!(|x| {
                                let y = $f(all!(i, $scale(x[i], by)));
                                all!(i, multiply(add(y[i], shift), multiply(x[i], outer)))
                            })
                        }};
                    }
                    match $c.inner {
                        Scale::Times(by) => scaled!(multiply, by),
                        Scale::Over(by) => scaled!(divide, by),
                    }
                }};
            }
            for step in steps {
                match *step {
                    EpilogueStep::Add(operand) => with!(add, operand),
                    EpilogueStep::Sub(operand) => with!(subtract, operand),
                    EpilogueStep::Mul(operand) => with!(multiply, operand),
                    EpilogueStep::Div(operand) => with!(divide, operand),
                    EpilogueStep::Max(v) => tile.iter_mut().for_each(|x| *x = positive_larger(*x, splat(v))),
                    EpilogueStep::Min(v) => tile.iter_mut().for_each(|x| *x = smaller(*x, splat(v))),
                    EpilogueStep::Save(slot) => {
                        for (x, to) in tile.iter().zip(&mut kept[slot.index()]) {
                            to.write(*x);
                        }
                    }
                    EpilogueStep::Restore(slot) => {
                        for (x, from) in tile.iter_mut().zip(&kept[slot.index()]) {
                            // SAFETY: what is taken from a slot was kept there before.
                            *x = unsafe { from.assume_init() };
                        }
                    }
                    EpilogueStep::Map(Function::Exp) => each!(|x| exp(x)),
                    EpilogueStep::Map(Function::Sigmoid) => each!(|x| sigmoid(x)),
                    EpilogueStep::Map(Function::Tanh) => each!(|x| tanh(x)),
                    EpilogueStep::Map(Function::Erf) => each!(|x| erf(x)),
                    EpilogueStep::SelfGate(Function::Exp) => gate!(exp),
                    EpilogueStep::SelfGate(Function::Sigmoid) => gate!(sigmoid),
                    EpilogueStep::SelfGate(Function::Tanh) => gate!(tanh),
                    EpilogueStep::SelfGate(Function::Erf) => gate!(erf),
                    EpilogueStep::ScaledGate(c) => match c.function {
                        Function::Exp => curve!(exp, c),
                        Function::Sigmoid => curve!(sigmoid, c),
                        Function::Tanh => curve!(tanh, c),
                        Function::Erf => curve!(erf, c),
                    },
                    EpilogueStep::ClampedGate(ramp) => {
                        tile.iter_mut().for_each(|x| *x = multiply(held(ramp, *x), *x));
                    }
                }
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math;

    /// A function of a level: `map`.
    type Map = unsafe fn(Function, &mut [f32], &[f32]);

    fn levels() -> Vec<(&'static str, Map)> {
        let mut levels: Vec<(&'static str, Map)> = vec![("portable", crate::levels::portable::map)];
        #[cfg(target_arch = "x86_64")]
        {
            if level() >= VectorLevel::V3 {
                levels.push(("avx2", crate::levels::avx2::map));
            }
            if level() >= VectorLevel::V4 {
                levels.push(("avx512", crate::levels::avx512::map));
            }
        }
        #[cfg(target_arch = "aarch64")]
        levels.push(("neon", crate::levels::neon::map));
        levels
    }

    #[test]
    fn every_level_has_the_bits_of_scalar_functions() {
        let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, -1e-45];
        // An odd number of elements: the last ones are a part of a vector.
        let from: Vec<f32> =
            special.into_iter().chain((0..=u32::MAX).step_by(9973).map(f32::from_bits)).collect();
        for (name, map) in levels() {
            for (f, scalar) in [
                (Function::Exp, math::exp as fn(f32) -> f32),
                (Function::Sigmoid, math::sigmoid),
                (Function::Tanh, math::tanh),
                (Function::Erf, math::erf),
            ] {
                let mut to = vec![0.0; from.len()];
                // SAFETY: the machine has the level, and both are equally long.
                unsafe { map(f, &mut to, &from) };
                for (&x, &y) in from.iter().zip(&to) {
                    let want = scalar(x);
                    let same = y.to_bits() == want.to_bits() || (y.is_nan() && want.is_nan());
                    assert!(same, "{name}, {f:?} of {x:e}: {y:e} instead of {want:e}");
                }
            }
        }
    }
}
