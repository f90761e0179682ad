//! Arithmetic under CUDA's names: conversions of f16 against the crate `half`.

use half::f16;

use crate::{Buffer, compiles, launch};

#[test]
fn every_f16_becomes_the_same_float() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(256) f(GLOBAL(const unsigned short) h, GLOBAL(float) x) {
            const int i = blockIdx.x * 256 + threadIdx.x;
            x[i] = half_bits_to_float(h[i]);
        }";
    let patterns: Vec<u16> = (0..=u16::MAX).collect();
    let mut h = Buffer::new(&patterns);
    let mut x = Buffer::new(&vec![0f32; patterns.len()]);
    launch(source, [256, 1, 1], 256, &[h.region(), x.region()]).unwrap();
    for (&pattern, &x) in patterns.iter().zip(x.elements()) {
        let expected = f16::from_bits(pattern).to_f32();
        let same = if expected.is_nan() { x.is_nan() } else { x.to_bits() == expected.to_bits() };
        assert!(same, "{pattern:04x}: {x} instead of {expected}");
    }
}

#[test]
fn floats_round_to_f16_to_nearest_even() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(256) f(GLOBAL(const float) x, GLOBAL(unsigned short) h) {
            const long long i = (long long)blockIdx.x * 256 + threadIdx.x;
            h[i] = float_to_half_bits(x[i]);
        }";
    // Every f16, the middle between it and the next one away from zero, and the floats next to that.
    let around = |pattern: u16| {
        let value = f16::from_bits(pattern).to_f32();
        let next = f16::from_bits(pattern.wrapping_add(1)).to_f32();
        let next = if next.is_infinite() { 65536f32.copysign(next) } else { next };
        let middle = value + (next - value) / 2.0;
        let beside = |step: u32| f32::from_bits(middle.to_bits().wrapping_add(step));
        [value, middle, beside(1), beside(u32::MAX)]
    };
    let special = [f32::MAX, f32::MIN, 1e-45, -1e-45, f32::MIN_POSITIVE, f32::NAN, -0.0, 65520.0];
    let mut floats: Vec<f32> = (0..=u16::MAX).flat_map(around).chain(special).collect();
    floats.resize(floats.len().next_multiple_of(256), 1.0);
    let mut x = Buffer::new(&floats);
    let mut h = Buffer::new(&vec![0u16; floats.len()]);
    let blocks = (floats.len() / 256) as u32;
    launch(source, [blocks, 1, 1], 256, &[x.region(), h.region()]).unwrap();
    for (&x, &bits) in floats.iter().zip(h.elements()) {
        let expected = f16::from_f32(x);
        let same = if x.is_nan() { bits == 0x7fff } else { bits == expected.to_bits() };
        assert!(same, "{x}: {bits:04x} instead of {:04x}", expected.to_bits());
    }
}

#[test]
fn functions_have_the_names_that_cuda_gives_them() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(1) f(GLOBAL(float) x, GLOBAL(int) n) {
            x[0] = __expf(1.0f) - expf(1.0f);
            x[1] = __logf(4.0f) / log(2.0f);
            x[2] = fdividef(1.0f, 4.0f) + __fdividef(1.0f, 2.0f);
            x[3] = rsqrtf(4.0f) + rsqrt(16.0);
            x[4] = max(1.0f, __int_as_float(0x7fc00000));
            x[5] = min(2, 3u) + max(1.0, 2.0f) + fmaxf(1.0f, 0.0f);
            x[6] = tanhf(0.0f) + erff(0.0f) + __saturatef(7.0f);
            x[7] = __uint_as_float(__float_as_uint(-2.0f) & 0x7fffffffu);
            n[0] = __float_as_int(1.0f) == 0x3f800000;
            n[1] = isinf(__uint_as_float(0x7f800000u)) && !isfinite(x[7] / 0.0f) && isnan(0.0f / 0.0f);
            n[2] = __float2int_rn(2.5f) + __float2int_rz(-1e30f * 0.0f);
            n[3] = __popc(255u) + __clz(1) + __ffs(4);
            n[4] = (int)(__double_as_longlong(1.0) >> 52) + abs(-1) + (int)(sizeof(size_t) == 8);
            n[5] = __float2int_rz(1e30f);
        }";
    let mut x = Buffer::new(&[0f32; 8]);
    let mut n = Buffer::new(&[0i32; 6]);
    launch(source, [1, 1, 1], 1, &[x.region(), n.region()]).unwrap();
    assert_eq!(x.elements(), [0.0, 2.0, 0.75, 0.75, 1.0, 5.0, 1.0, 2.0]);
    assert_eq!(n.elements(), [1, 1, 2, 8 + 31 + 3, 1023 + 2, i32::MAX]);
}
