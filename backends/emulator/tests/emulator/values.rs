//! The values of correct kernels.

use mlc_cuda_emulator::{EmulatorError, Unit};

use crate::{Buffer, compiles, launch};

const ADD: &str = "
KERNEL(256) f(GLOBAL(const float) x, GLOBAL(const float) y, GLOBAL(float) z) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1000) z[i] = x[i] + *(y + i);
}";

#[test]
fn vectors_are_added() {
    if !compiles() {
        return;
    }
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut x = Buffer::new(&numbers);
    let mut y = Buffer::new(&vec![0.5f32; 1000]);
    let mut z = Buffer::new(&vec![0f32; 1000]);
    // A unit begins with the prelude, all of which is the device's.
    let unit = [include_str!("../../../cuda/src/prelude.cuh"), ADD].concat();
    launch(&unit, [4, 1, 1], 256, &[x.region(), y.region(), z.region()]).unwrap();
    assert!(z.elements().iter().enumerate().all(|(i, &z)| z == i as f32 + 0.5));
}

#[test]
fn an_output_may_take_the_place_of_an_input() {
    if !compiles() {
        return;
    }
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let mut x = Buffer::new(&numbers);
    let region = x.region();
    launch(ADD, [4, 1, 1], 256, &[region, region, region]).unwrap();
    assert!(x.elements().iter().enumerate().all(|(i, &x)| x == 2.0 * i as f32));
}

#[test]
fn a_block_is_reduced_by_shuffles_and_shared_memory() {
    if !compiles() {
        return;
    }
    let source = "
        __device__ __forceinline__ float warp_sum(float v) {
            #pragma unroll
            for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
            return v;
        }
        KERNEL(256) f(GLOBAL(const float) x, GLOBAL(float) y) {
            SHARED(float, partial, 8);
            const int t = threadIdx.x, row = blockIdx.x;
            float sum = 0.0f;
            for (int i = t; i < 1000; i += 256) sum += x[row * 1000 + i];
            sum = warp_sum(sum);
            if (t % 32 == 0) partial[t / 32] = sum;
            __syncthreads();
            if (t < 32) {
                sum = t < 8 ? partial[t] : 0.0f;
                for (int d = 4; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d, 8);
                if (t == 0) y[row] = sum;
            }
        }";
    let numbers: Vec<f32> = (0..3000).map(|i| (i % 7) as f32).collect();
    let mut x = Buffer::new(&numbers);
    let mut y = Buffer::new(&[0f32; 3]);
    launch(source, [3, 1, 1], 256, &[x.region(), y.region()]).unwrap();
    let expected: Vec<f32> = numbers.chunks(1000).map(|row| row.iter().sum()).collect();
    assert_eq!(y.elements(), expected);
}

#[test]
fn a_warp_synchronises_its_own_shared_memory() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(64) f(GLOBAL(int) y) {
            SHARED(int, s, 64);
            const int t = threadIdx.x;
            s[t] = t;
            for (int d = 1; d < 32; d *= 2) {
                __syncwarp();
                const int v = s[t] + s[t ^ d];
                __syncwarp();
                s[t] = v;
            }
            y[t] = s[t];
        }";
    let mut y = Buffer::new(&[0i32; 64]);
    launch(source, [1, 1, 1], 64, &[y.region()]).unwrap();
    assert!(y.elements()[..32].iter().all(|&v| v == 496));
    assert!(y.elements()[32..].iter().all(|&v| v == 1520));
}

#[test]
fn lanes_exchange_values_and_votes() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(32) f(GLOBAL(long long) y) {
            const int t = threadIdx.x;
            y[t] = __shfl_sync(0xffffffffu, 1000000000000ll + t, 5);
            y[32 + t] = __shfl_up_sync(0xffffffffu, t, 3u, 8);
            y[64 + t] = (long long)__shfl_down_sync(0xffffffffu, 0.5 + t, 1);
            y[96 + t] = __ballot_sync(0xffffffffu, t % 3 == 0);
            y[128 + t] = __any_sync(0xffffffffu, t == 7) + 2 * __all_sync(0xffffffffu, t != 7);
            if (t < 16) y[160 + t] = (long long)__shfl_xor_sync(0xffffu, (float)t, 1);
            else y[160 + t] = -1;
        }";
    let mut y = Buffer::new(&[0i64; 192]);
    launch(source, [1, 1, 1], 32, &[y.region()]).unwrap();
    let y = y.elements();
    for t in 0..32 {
        assert_eq!(y[t], 1_000_000_000_005);
        assert_eq!(y[32 + t], if t % 8 < 3 { t } else { t - 3 } as i64);
        assert_eq!(y[64 + t], if t == 31 { 31 } else { t + 1 } as i64);
        assert_eq!(y[96 + t], (0..32).filter(|i| i % 3 == 0).map(|i| 1i64 << i).sum());
        assert_eq!(y[128 + t], 1);
        assert_eq!(y[160 + t], if t < 16 { t as i64 ^ 1 } else { -1 });
    }
}

#[test]
fn atomics_are_in_no_race() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(128) f(GLOBAL(const int) x, GLOBAL(int) counts, GLOBAL(unsigned long long) most, GLOBAL(float) sum) {
            SHARED(int, own, 4);
            const int t = threadIdx.x, i = blockIdx.x * 128 + t;
            if (t < 4) own[t] = 0;
            __syncthreads();
            atomicAdd(&own[x[i]], 1);
            atomicMax(most, (unsigned long long)i);
            atomicAdd(&sum[0], 1);
            unsigned long long seen = atomicCAS(most + 1, 0ull, 17ull);
            __syncthreads();
            if (t < 4) atomicAdd(counts + t, own[t]);
        }";
    let numbers: Vec<i32> = (0..512).map(|i| i * i % 4).collect();
    let mut x = Buffer::new(&numbers);
    let mut counts = Buffer::new(&[0i32; 4]);
    let mut most = Buffer::new(&[0u64; 2]);
    let mut sum = Buffer::new(&[0f32]);
    let regions = [x.region(), counts.region(), most.region(), sum.region()];
    launch(source, [4, 1, 1], 128, &regions).unwrap();
    assert_eq!(counts.elements(), [256, 256, 0, 0]);
    assert_eq!(most.elements(), [511, 17]);
    assert_eq!(sum.elements(), [512.0]);
}

#[test]
fn sixteen_bytes_are_accessed_at_once() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(32) f(GLOBAL(const float) x, GLOBAL(float) y, GLOBAL(const unsigned short) h, GLOBAL(unsigned short) k) {
            SHARED(float, s, 128);
            const int t = threadIdx.x;
            STORE4(s + 4 * t, LOAD4(x + 4 * t));
            __syncthreads();
            float4 v = LOAD4(s + 4 * (31 - t));
            STORE4(y + 4 * t, make_float4(v.w, v.z, v.y, v.x));
            if (t < 16) STORE16(k + 8 * t, LOAD16(h + 8 * (15 - t)));
        }";
    let numbers: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let halves: Vec<u16> = (0..128).collect();
    let (mut x, mut y) = (Buffer::new(&numbers), Buffer::new(&[0f32; 128]));
    let (mut h, mut k) = (Buffer::new(&halves), Buffer::new(&[0u16; 128]));
    let regions = [x.region(), y.region(), h.region(), k.region()];
    launch(source, [1, 1, 1], 32, &regions).unwrap();
    assert!(y.elements().iter().enumerate().all(|(i, &v)| v == 127.0 - i as f32));
    assert!(k.elements().iter().enumerate().all(|(i, &v)| usize::from(v) == (i ^ 0b111_1000)));
}

#[test]
fn functions_take_pointers_to_either_memory() {
    if !compiles() {
        return;
    }
    let source = "
        static __device__ __noinline__ int sum(GLOBAL(const int) p, int n) {
            int s = 0;
            while (n-- > 0) s += __ldg(p++);
            return s;
        }
        __device__ void fill(GLOBAL(int) p, int n, int v) { for (int i = 0; i < n; i++) p[i] = v; }
        KERNEL(2 * 2) f(GLOBAL(const int) x, GLOBAL(int) y) {
            SHARED(int, s, 4 * 4);
            const int t = threadIdx.x;
            fill(s + 4 * t, 4, t);
            __syncthreads();
            if (t == 9) __trap();
            y[t] = sum(t % 2 == 0 ? x : GLOBAL(const int)(s), 8) + (t < 2 ? s[15] : s[0]);
        }";
    let mut x = Buffer::new(&[1i32, 2, 3, 4, 5, 6, 7, 8]);
    let mut y = Buffer::new(&[0i32; 4]);
    launch(source, [1, 1, 1], 4, &[x.region(), y.region()]).unwrap();
    assert_eq!(y.elements(), [39, 7, 36, 4]);
}

#[test]
fn elements_behave_as_values_of_their_type() {
    if !compiles() {
        return;
    }
    let source = "
        KERNEL(1) f(GLOBAL(unsigned char) b, GLOBAL(signed char) c, GLOBAL(short) s, GLOBAL(bool) t, GLOBAL(double) d) {
            b[0] += 200;
            b[0] += b[0];
            c[0] = -3;
            c[1] = c[0]++;
            s[0] = s[1] = c[0] << 4;
            s[1] -= 1;
            s[2] = max(s[0], s[1]) + min(3, 4);
            t[0] = !t[1] && c[0];
            d[0] = t[0] ? d[1] : 0.0;
            d[2] = rsqrt(d[0]) + (int)d[1] + fmaf(2.0f, 3.0f, s[1]);
            GLOBAL(double) p = d + 3;
            *p++ = sqrt(d[1]);
            *p = isnan(d[0]) ? d[0] : d[1];
        }";
    let mut b = Buffer::new(&[0u8]);
    let mut c = Buffer::new(&[0i8; 2]);
    let mut s = Buffer::new(&[0i16; 3]);
    let mut t = Buffer::new(&[0u8; 2]);
    let mut d = Buffer::new(&[0f64, 4.0, 0.0, 0.0, 0.0]);
    let regions = [b.region(), c.region(), s.region(), t.region(), d.region()];
    launch(source, [1, 1, 1], 1, &regions).unwrap();
    assert_eq!(b.elements(), [144]);
    assert_eq!(c.elements(), [-2, -3]);
    assert_eq!(s.elements(), [-32, -33, -29]);
    assert_eq!(t.elements(), [1, 0]);
    assert_eq!(d.elements(), [4.0, 4.0, 0.5 + 4.0 - 27.0, 2.0, 4.0]);
}

#[test]
fn a_launch_with_a_defect_leaves_the_unit_usable() {
    if !compiles() {
        return;
    }
    let numbers = vec![1f32; 1000];
    let (mut x, mut y) = (Buffer::new(&numbers), Buffer::new(&numbers));
    let mut z = Buffer::new(&vec![0f32; 1000]);
    let regions = [x.region(), y.region(), z.region()];
    for _ in 0..3 {
        let short = [regions[0], regions[0], crate::Region { bytes: 40, ..regions[2] }];
        launch(ADD, [4, 1, 1], 256, &short).unwrap_err();
        launch(ADD, [4, 1, 1], 256, &regions).unwrap();
    }
    assert!(z.elements().iter().all(|&z| z == 2.0));
}

#[test]
fn what_cannot_be_compiled_or_found_says_so() {
    if !compiles() {
        return;
    }
    let Err(EmulatorError::Compile(log)) =
        Unit::compile("\nKERNEL(1) f() { undeclared(); }").map(drop)
    else {
        panic!("expected an error of the compiler");
    };
    assert!(log.contains("unit:2:") && log.contains("undeclared"), "{log}");
    let unit = Unit::compile(ADD).unwrap();
    // SAFETY: nothing is launched.
    let missing = unsafe { unit.launch("g", [1, 1, 1], 1, &[]) };
    assert_eq!(missing, Err(EmulatorError::UnknownFunction("g".into())));
}
