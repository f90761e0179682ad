//! Warpgroup instructions (`wgmma`): the descriptors of matrices in shared memory, and the fences that they need.

use half::{bf16, f16};

use crate::{Buffer, Unit, compiles, launch};

const FUNCTIONS: &str = concat!(
    include_str!("../../../cuda/src/functions.cuh"),
    include_str!("../../../cuda/src/warpgroups.cuh")
);

fn numbers(count: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as f32 % 9.0 - 4.0
    };
    (0..count).map(|_| next()).collect()
}

/// How a matrix of lines of 16 steps lies in shared memory: the byte of an element by its line and its step, what its descriptor says besides its
/// beginning, and whether it is turned. All from the tables of the PTX ISA.
struct Layout {
    place: &'static str,
    descriptor: u64,
    turned: u32,
}

/// Bytes of leading and of stride offsets, and the mode.
fn described(leading: u64, stride: u64, mode: u64) -> u64 {
    ((leading / 16) << 16) | ((stride / 16) << 32) | (mode << 62)
}

/// Matrices whose steps lie side by side, in rows of 16 bytes without swizzling, or of 32, 64 or 128 bytes with it; then those whose lines do.
fn layouts() -> [Layout; 8] {
    let layout = |turned, place, descriptor| Layout { place, descriptor, turned };
    [
        // Eight lines of eight steps are 128 bytes; a gap behind those of both halves of the depth.
        layout(0, "l / 8 * 272 + k / 8 * 128 + l % 8 * 16 + k % 8 * 2", described(128, 272, 0)),
        layout(0, "l * 32 + ((k / 8) ^ (l / 4 % 2)) * 16 + k % 8 * 2", described(16, 256, 3)),
        layout(0, "l * 64 + ((k / 8) ^ (l / 2 % 4)) * 16 + k % 8 * 2", described(16, 512, 2)),
        layout(0, "l * 128 + ((k / 8) ^ (l % 8)) * 16 + k % 8 * 2", described(16, 1024, 1)),
        layout(1, "l / 8 * 272 + k / 8 * 128 + k % 8 * 16 + l % 8 * 2", described(128, 272, 0)),
        layout(
            1,
            "l / 16 * 512 + k * 32 + ((l / 8 % 2) ^ (k / 4 % 2)) * 16 + l % 8 * 2",
            described(512, 256, 3),
        ),
        layout(
            1,
            "l / 32 * 1024 + k * 64 + ((l / 8 % 4) ^ (k / 2 % 4)) * 16 + l % 8 * 2",
            described(1024, 512, 2),
        ),
        layout(
            1,
            "l / 64 * 2048 + k * 128 + ((l / 8 % 8) ^ (k % 8)) * 16 + l % 8 * 2",
            described(2048, 1024, 1),
        ),
    ]
}

/// A kernel that puts both matrices into shared memory and multiplies them; `then` is what follows the product.
fn kernel(function: &str, [left, right]: [&Layout; 2], then: &str) -> String {
    let (a, b) = (left.descriptor, right.descriptor);
    let (turned_a, turned_b) = (left.turned, right.turned);
    let (place_a, place_b) = (left.place, right.place);
    format!(
        "{FUNCTIONS}
         KERNEL(128) f(GLOBAL(const unsigned short) a, GLOBAL(const unsigned short) b, GLOBAL(float) d) {{
             LARGE_SHARED(unsigned short, tiles, 16384);
             auto right = tiles + 8192;
             SUMS(sum, 64);
             const int t = threadIdx.x, group = t / 32 * 16 + t % 32 / 4, within = t % 4;
             for (int at = t; at < 64 * 16; at += 128) {{
                 const int l = at / 16, k = at % 16;
                 tiles[({place_a}) / 2] = a[at];
             }}
             for (int at = t; at < 128 * 16; at += 128) {{
                 const int l = at / 16, k = at % 16;
                 right[({place_b}) / 2] = b[at];
             }}
             const word to_a = shared_address(tiles) / 16 | {a}ull, to_b = shared_address(right) / 16 | {b}ull;
             {then_all}
             for (int i = 0; i < 64; i++) d[(group + i / 2 % 2 * 8) * 128 + i / 4 * 8 + within * 2 + i % 2] = sum[i];
         }}",
        then_all = then.replace("PRODUCT", &format!("{function}<{turned_a}, {turned_b}>(sum, to_a, to_b)")),
    )
}

/// What a product needs.
const RIGHT: &str = "fence_shared();
    __syncthreads();
    begin_products(sum);
    PRODUCT;
    PRODUCT;
    end_products();
    wait_products<0>(sum);";

fn multiplied(
    function: &str,
    layouts: [&Layout; 2],
    then: &str,
    encode: fn(f32) -> u16,
) -> Result<(), String> {
    let (a, b) = (numbers(64 * 16, 1), numbers(128 * 16, 2));
    let encoded = |x: &[f32]| Buffer::new(&x.iter().map(|&x| encode(x)).collect::<Vec<u16>>());
    let (mut of_a, mut of_b, mut d) = (encoded(&a), encoded(&b), Buffer::new(&[0f32; 64 * 128]));
    let regions = [of_a.region(), of_b.region(), d.region()];
    let done = launch(&kernel(function, layouts, then), [1, 1, 1], 128, &regions);
    done.map_err(|e| e.to_string())?;
    for row in 0..64 {
        for column in 0..128 {
            let product: f32 = (0..16).map(|k| a[row * 16 + k] * b[column * 16 + k]).sum();
            let found = d.elements()[row * 128 + column];
            if found != 2.0 * product {
                return Err(format!("row {row}, column {column}: {found}"));
            }
        }
    }
    Ok(())
}

fn half(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

#[test]
fn factors_lie_as_their_descriptors_say() {
    if !compiles() {
        return;
    }
    let all = layouts();
    for (i, left) in all.iter().enumerate() {
        let right = &all[(i * 3 + 1) % all.len()];
        multiplied("wgmma_f16", [left, right], RIGHT, half).unwrap_or_else(|e| panic!("{i}: {e}"));
        multiplied("wgmma_f16", [right, left], RIGHT, half).unwrap_or_else(|e| panic!("{i}: {e}"));
        let bits = |x: f32| bf16::from_f32(x).to_bits();
        multiplied("wgmma_bf16", [left, left], RIGHT, bits).unwrap_or_else(|e| panic!("{i}: {e}"));
    }
}

/// What a device is asked for, too.
#[test]
fn factors_lie_as_generated_code_has_them() {
    if !compiles() {
        return;
    }
    let source = [FUNCTIONS, include_str!("../../../cuda/tests/warpgroups.cu")].concat();
    let unit = Unit::compile(&source).unwrap();
    let (a, b) = (numbers(64 * 64, 1), numbers(128 * 64, 2));
    let encoded = |x: &[f32]| Buffer::new(&x.iter().map(|&x| half(x)).collect::<Vec<u16>>());
    for name in ["product_00", "product_01", "product_10", "product_11"] {
        let (mut of_a, mut of_b, mut d) =
            (encoded(&a), encoded(&b), Buffer::new(&[0f32; 64 * 128]));
        let regions = [of_a.region(), of_b.region(), d.region()];
        // SAFETY: the regions are buffers of this test, and the kernels keep to the contract.
        unsafe { unit.launch(name, [1, 1, 1], 128, &regions) }.unwrap();
        for (at, found) in d.elements().iter().enumerate() {
            let (row, column) = (at / 128, at % 128);
            let product: f32 = (0..64).map(|k| a[row * 64 + k] * b[column * 64 + k]).sum();
            assert_eq!(*found, product, "{name}, row {row}, column {column}");
        }
    }
}

#[test]
fn a_wrong_descriptor_yields_wrong_sums() {
    if !compiles() {
        return;
    }
    let right = &layouts()[3];
    for (leading, stride, mode) in [(16, 512, 1), (16, 2048, 1), (16, 1024, 2), (16, 1024, 0)] {
        let descriptor = described(leading, stride, mode);
        let wrong = Layout { place: right.place, descriptor, turned: 0 };
        let error = multiplied("wgmma_f16", [&wrong, right], RIGHT, half).unwrap_err();
        let seen = ["row ", "which the block has not written"];
        assert!(seen.iter().any(|s| error.contains(s)), "{error}");
    }
    let strange = Layout { place: right.place, descriptor: right.descriptor | 1 << 46, turned: 0 };
    let error = multiplied("wgmma_f16", [&strange, right], RIGHT, half).unwrap_err();
    assert!(error.contains("bits of a descriptor are set that mean nothing"), "{error}");
}

#[test]
fn what_is_not_in_order_is_an_error() {
    if !compiles() {
        return;
    }
    let layout = &layouts()[3];
    for (then, wanted) in [
        (
            RIGHT.replace("wait_products<0>(sum);", ""),
            "accesses the sum 0 of products that are not waited for",
        ),
        (
            RIGHT.replace("wait_products<0>", "wait_products<1>"),
            "accesses the sum 0 of products that are not waited for",
        ),
        (
            RIGHT.replace("end_products();", ""),
            "accesses the sum 0 of products that are not waited for",
        ),
        (RIGHT.replace("begin_products(sum);", ""), "sums were written with no fence since"),
        (RIGHT.replace("fence_shared();", ""), "has written with no fence before the barrier"),
        (RIGHT.replace("__syncthreads();", ""), "race: reads shared array tiles"),
        (
            RIGHT.replace(
                "fence_shared();\n    __syncthreads();",
                "__syncthreads(); fence_shared();",
            ),
            "has written with no fence before the barrier",
        ),
        (
            RIGHT.replace(
                "wait_products",
                "__syncthreads(); if (t == 0) tiles[0] = 0; wait_products",
            ),
            "writes shared array tiles at index 0, which a product reads that is not waited for",
        ),
        (
            RIGHT.replace("wait_products<0>(sum);", "wait_products<0>(sum); tiles[t] = 0;"),
            "race: writes shared array tiles",
        ),
        (
            RIGHT.replacen("PRODUCT;", "if (t < 32) PRODUCT;", 1),
            "the warps of a warpgroup multiply different matrices",
        ),
        (RIGHT.replacen("PRODUCT;", "if (t % 2) PRODUCT;", 1), "divergence"),
    ] {
        let error = multiplied("wgmma_f16", [layout, layout], &then, half).unwrap_err();
        assert!(error.contains(wanted), "{error}\n{then}");
    }
}
