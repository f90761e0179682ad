//! Arrays made element by element in code that must be inlined.
//!
//! `std::array::from_fn` calls functions of the standard library that a compiler inlines within one unit of code generation alone: with
//! several of them for this crate a kernel called one for each vector.

use std::mem::MaybeUninit;

/// The values of `f` at 0, 1, and so on.
#[inline(always)]
pub fn array<T: Copy, const N: usize>(mut f: impl FnMut(usize) -> T) -> [T; N] {
    let mut out = [const { MaybeUninit::<T>::uninit() }; N];
    let mut i = 0;
    while i < N {
        out[i].write(f(i));
        i += 1;
    }
    // SAFETY: every element was written.
    unsafe { out.as_ptr().cast::<[T; N]>().read() }
}
