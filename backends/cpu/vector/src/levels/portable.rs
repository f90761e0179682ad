//! Vectors on any machine: arrays that the compiler turns into what there is.

use crate::arrays::array;

/// Four elements, as many as the registers hold of machines without anything better.
type Vector = [f32; LANES];
const LANES: usize = 4;

crate::bodies::tiles::tiles!(, [1 2 3 4], [], []);
crate::bodies::functions::functions!();
crate::bodies::rows::rows!();
crate::bodies::fused_rows::fused_rows!();
crate::bodies::strided_rows::strided_rows!();
crate::bodies::norms::norms!();
crate::bodies::pools::pools!();
crate::bodies::planes::planes!();
crate::bodies::winograd::winograd!();
crate::bodies::peak::peak!();
crate::bodies::f16::half_floats!();
crate::bodies::window_rows::window_rows!();

#[inline(always)]
fn map_both(x: Vector, y: Vector, f: impl Fn(f32, f32) -> f32) -> Vector {
    array(|i| f(x[i], y[i]))
}

#[inline(always)]
fn zero() -> Vector {
    [0.0; LANES]
}

#[inline(always)]
fn splat(x: f32) -> Vector {
    [x; LANES]
}

#[inline(always)]
fn multiply_add(x: Vector, y: Vector, sum: Vector) -> Vector {
    array(|i| sum[i] + x[i] * y[i])
}

/// The elements with even index of both, one after the other.
#[inline(always)]
fn evens(x: Vector, y: Vector) -> Vector {
    array(|i| if 2 * i < LANES { x[2 * i] } else { y[2 * i - LANES] })
}

/// The elements with odd index of both, one after the other.
#[inline(always)]
fn odds(x: Vector, y: Vector) -> Vector {
    array(|i| if 2 * i < LANES { x[2 * i + 1] } else { y[2 * i + 1 - LANES] })
}

#[inline(always)]
fn add(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| x + y)
}

/// True if all elements are zeros.
#[inline(always)]
fn all_zero(x: Vector) -> bool {
    x.iter().all(|&x| x == 0.0)
}

#[inline(always)]
fn subtract(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| x - y)
}

#[inline(always)]
fn multiply(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| x * y)
}

/// The larger; `x` if it is NaN, or if both are zeros.
#[inline(always)]
fn larger(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| if y > x { y } else { x })
}

/// The smaller; `x` if it is NaN, or if both are zeros.
#[inline(always)]
fn smaller(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| if y < x { y } else { x })
}

/// The product and the sum, rounded once.
#[inline(always)]
fn fused(x: Vector, y: Vector, z: Vector) -> Vector {
    array(|i| x[i].mul_add(y[i], z[i]))
}

/// The elements of a table at the places that the lowest four bits count.
#[inline(always)]
fn lookup(table: &[f32; 16], places: Vector) -> Vector {
    array(|i| table[places[i].to_bits() as usize % 16])
}

#[inline(always)]
fn divide(x: Vector, y: Vector) -> Vector {
    map_both(x, y, |x, y| x / y)
}

/// Magnitudes of `x` with the signs of `sign`.
#[inline(always)]
fn with_sign(x: Vector, sign: Vector) -> Vector {
    map_both(x, sign, f32::copysign)
}

/// `a` where `x` is larger than `y`, else `b`.
#[inline(always)]
fn above(x: Vector, y: Vector, a: Vector, b: Vector) -> Vector {
    array(|i| if x[i] > y[i] { a[i] } else { b[i] })
}

/// `a` where the sign of `x` is set, else `b`.
#[inline(always)]
fn by_sign(x: Vector, a: Vector, b: Vector) -> Vector {
    array(|i| if x[i].is_sign_negative() { a[i] } else { b[i] })
}

/// The same as [`scale`].
#[inline(always)]
fn scale_down(x: Vector, power: Vector, biased: Vector) -> Vector {
    scale(x, power, biased)
}

/// `x` times two to the power of integers of at most 200.
#[inline(always)]
fn scale(x: Vector, power: Vector, _biased: Vector) -> Vector {
    map_both(x, power, |x, n| crate::math::scale(x, (n as i32).clamp(-200, 200)))
}

/// Element `c` of each group of `Q` elements, in all places of the group; `Q` divides the lanes.
#[inline(always)]
fn spread<const Q: usize>(x: Vector, c: usize) -> Vector {
    array(|lane| x[lane / Q * Q + c])
}

/// There is no portable hint.
#[inline(always)]
fn prefetch(_: *const f32) {}

/// The same.
#[inline(always)]
fn prefetch_later(_: *const f32) {}

/// There is no portable hint.
#[inline(always)]
fn prefetch_to_write(_: *const f32) {}

/// # Safety
/// A vector at `at` is valid for reads.
#[inline(always)]
unsafe fn load(at: *const f32) -> Vector {
    // SAFETY: as promised; an array of floats needs no more alignment than a float.
    unsafe { at.cast::<Vector>().read() }
}

/// # Safety
/// A vector at `at` is valid for writes.
#[inline(always)]
unsafe fn store(at: *mut f32, x: Vector) {
    // SAFETY: as promised.
    unsafe { at.cast::<Vector>().write(x) }
}

/// # Safety
/// A vector of f16 at `at` is valid for reads.
#[inline(always)]
unsafe fn load_f16(at: *const f16) -> Vector {
    // SAFETY: as promised; an array needs no more alignment than an element.
    unsafe { at.cast::<[f16; LANES]>().read() }.map(f16::to_f32)
}

/// # Safety
/// A vector of bf16 at `at` is valid for reads.
#[inline(always)]
unsafe fn load_bf16(at: *const bf16) -> Vector {
    // SAFETY: as above.
    unsafe { at.cast::<[bf16; LANES]>().read() }.map(bf16::to_f32)
}

/// # Safety
/// The elements that count of the vector at `at` are valid for reads.
#[inline(always)]
unsafe fn load_part(at: *const f32, part: VectorSpan) -> Vector {
    let mut x = zero();
    for (i, x) in x.iter_mut().enumerate().skip(part.skip).take(part.len) {
        // SAFETY: an element that counts.
        *x = unsafe { *at.wrapping_add(i) };
    }
    x
}

/// # Safety
/// The elements that count of the vector at `at` are valid for writes.
#[inline(always)]
unsafe fn store_part(at: *mut f32, part: VectorSpan, x: Vector) {
    for (i, x) in x.into_iter().enumerate().skip(part.skip).take(part.len) {
        // SAFETY: an element that counts.
        unsafe { *at.wrapping_add(i) = x };
    }
}
