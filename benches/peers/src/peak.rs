//! The most operations of f32 that the machine does in a second: fused multiply-adds in registers, no memory.

use std::hint::black_box;
use std::time::Instant;

/// Independent sums: as many as hide the latency of a fused multiply-add in two units.
const SUMS: usize = 12;
/// Rounds of a measurement.
const ROUNDS: usize = 2_000_000;

/// The best of several measurements, on so many threads at once.
pub fn flops_per_second(threads: usize) -> f64 {
    (0..10).map(|_| once(threads)).fold(0.0, f64::max)
}

fn once(threads: usize) -> f64 {
    let began = Instant::now();
    let operations: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(best_level)).collect();
        all.into_iter().map(|t| t.join().unwrap_or(0)).sum()
    });
    operations as f64 / began.elapsed().as_secs_f64()
}

/// Runs the widest loop that the processor has, and yields its operations.
fn best_level() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature is there.
            return unsafe { wide_512() };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features are there.
            return unsafe { wide_256() };
        }
    }
    rounds::<4>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide_512() -> usize {
    use std::arch::x86_64::*;
    let (a, b) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
    let mut sums = [_mm512_set1_ps(1.0); SUMS];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            *s = _mm512_fmadd_ps(*s, a, b);
        }
    }
    black_box(sums);
    2 * 16 * SUMS * ROUNDS
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn wide_256() -> usize {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
    let mut sums = [_mm256_set1_ps(1.0); SUMS];
    for _ in 0..ROUNDS {
        for s in &mut sums {
            *s = _mm256_fmadd_ps(*s, a, b);
        }
    }
    black_box(sums);
    2 * 8 * SUMS * ROUNDS
}

/// Vectors of so many elements, as the compiler makes them.
fn rounds<const N: usize>() -> usize {
    let (a, b) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [[1.0f32; N]; SUMS];
    for _ in 0..ROUNDS {
        for s in sums.iter_mut().flatten() {
            *s = *s * a + b;
        }
    }
    black_box(sums);
    2 * N * SUMS * ROUNDS
}
