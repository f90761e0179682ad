//! Detects the vector instructions of this machine, and compiles functions once per level.
//!
//! Detection happens once. A body is written without intrinsics and left to the compiler's vectoriser;
//! nothing here may change what a body computes.

use std::sync::OnceLock;

/// A set of vector instructions.
#[allow(dead_code, reason = "a machine has those of its architecture")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VectorLevel {
    /// What the compiler makes of arrays on any machine.
    Base,
    /// NEON.
    Neon,
    /// AVX2 with fused multiply-add and conversions of f16, which every processor with both has.
    V3,
    /// AVX-512 (F, BW, DQ, VL).
    V4,
}

/// Names the highest level to use, for tests of the others: `portable` or `avx2`, otherwise what there is.
const HIGHEST: &str = "MLC_VECTORS";

/// The level of this machine.
#[inline]
pub fn level() -> VectorLevel {
    static LEVEL: OnceLock<VectorLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var(HIGHEST).as_deref() {
        Ok("portable") => VectorLevel::Base,
        Ok("avx2") => detect().min(VectorLevel::V3),
        _ => detect(),
    })
}

#[cfg(target_arch = "x86_64")]
fn detect() -> VectorLevel {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let v4 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (v3, v4) {
        (true, true) => VectorLevel::V4,
        (true, false) => VectorLevel::V3,
        (false, _) => VectorLevel::Base,
    }
}

/// Whether AVX-512 is double-pumped, executed in two halves: Zen 4 (AMD's family 19h).
#[cfg(target_arch = "x86_64")]
pub fn is_double_pumped() -> bool {
    use std::arch::x86_64::__cpuid;
    let vendor = __cpuid(0);
    let signature = __cpuid(1).eax;
    // "Combine the family and the extended family", AMD64 Architecture Programmer's Manual, volume 3, appendix E.
    let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    name.as_flattened() == b"AuthenticAMD" && family == 0x19
}

/// Whether vectors are executed in two halves: not on this architecture.
#[cfg(not(target_arch = "x86_64"))]
pub fn is_double_pumped() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> VectorLevel {
    if cfg!(target_arch = "aarch64") { VectorLevel::Neon } else { VectorLevel::Base }
}

/// Fetches what lies `ahead` elements after the first one into the caches, if the machine is told how.
#[inline(always)]
pub fn prefetch<T>(from: &[T], ahead: usize) {
    let at = from.as_ptr().wrapping_add(ahead);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every machine of this architecture has the instruction, which accesses nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every machine of this architecture has the instruction, which accesses nothing.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags));
    }
    let _ = at;
}

/// Defines a function compiled for every [`VectorLevel`] and dispatched at run time.
///
/// [`VectorLevel`]: crate::simd::VectorLevel
#[macro_export]
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$T:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$T: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$T: $bound>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn v4 $(<$T: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn v3 $(<$T: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: the level was detected on this machine.
                    $crate::simd::VectorLevel::V4 => return unsafe { v4($($arg),*) },
                    // SAFETY: the level was detected on this machine.
                    $crate::simd::VectorLevel::V3 => return unsafe { v3($($arg),*) },
                    _ => {}
                }
            }
            body($($arg),*)
        }
    };
}
/// All elements joined, in `LANES` sums side by side (a power of two).
#[inline(always)]
pub fn fold<const LANES: usize>(
    x: &[f32],
    init: f32,
    f: impl Fn(f32, f32) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut acc = [init; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for c in chunks {
        for (a, &v) in acc.iter_mut().zip(c) {
            *a = f(*a, v);
        }
    }
    // A loop of unknown length below `LANES` would go element by element.
    let (eights, rest) = rest.as_chunks::<8>();
    for (acc, c) in acc.as_chunks_mut::<8>().0.iter_mut().zip(eights) {
        for (a, &v) in acc.iter_mut().zip(c) {
            *a = f(*a, v);
        }
    }
    for (a, &v) in acc.iter_mut().zip(rest) {
        *a = f(*a, v);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            acc[i] = join(acc[i], acc[i + half]);
        }
        half /= 2;
    }
    acc[0]
}
