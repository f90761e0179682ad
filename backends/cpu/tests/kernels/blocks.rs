//! Numbers in the blocks of ggml, held against a decoder that reads the bytes one number at a time.

use super::support::*;
use half::f16;
use mlc_backends::reference::{Precision, Reference};
use mlc_dsl::ir::{Attr, DType, Tensor, Value};

/// A format: its name, the bytes of a block, its numbers, where it has numbers of 16 bits, and what number `i` of a block is.
pub struct Format {
    pub name: &'static str,
    pub bytes: usize,
    pub numbers: usize,
    pub scales: &'static [usize],
    decode: fn(&[u8], usize) -> f32,
}

pub const FORMATS: [Format; 8] = [
    Format { name: "q4_0", bytes: 18, numbers: 32, scales: &[0], decode: q4_0 },
    Format { name: "q4_1", bytes: 20, numbers: 32, scales: &[0, 2], decode: q4_1 },
    Format { name: "q5_0", bytes: 22, numbers: 32, scales: &[0], decode: q5_0 },
    Format { name: "q5_1", bytes: 24, numbers: 32, scales: &[0, 2], decode: q5_1 },
    Format { name: "q8_0", bytes: 34, numbers: 32, scales: &[0], decode: q8_0 },
    Format { name: "q4_k", bytes: 144, numbers: 256, scales: &[0, 2], decode: q4_k },
    Format { name: "q5_k", bytes: 176, numbers: 256, scales: &[0, 2], decode: q5_k },
    Format { name: "q6_k", bytes: 210, numbers: 256, scales: &[208], decode: q6_k },
];

fn real(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// The half of byte `i % 16` that number `i` of 32 has.
fn half_of(q: &[u8], i: usize) -> u8 {
    if i < 16 { q[i] & 15 } else { q[i - 16] >> 4 }
}

fn fifth(h: &[u8], i: usize) -> u8 {
    (h[i / 8] >> (i % 8) & 1) << 4
}

fn q4_0(b: &[u8], i: usize) -> f32 {
    (f32::from(half_of(&b[2..], i)) - 8.0) * real(b, 0)
}

fn q4_1(b: &[u8], i: usize) -> f32 {
    f32::from(half_of(&b[4..], i)) * real(b, 0) + real(b, 2)
}

fn q5_0(b: &[u8], i: usize) -> f32 {
    (f32::from(half_of(&b[6..], i) | fifth(&b[2..], i)) - 16.0) * real(b, 0)
}

fn q5_1(b: &[u8], i: usize) -> f32 {
    f32::from(half_of(&b[8..], i) | fifth(&b[4..], i)) * real(b, 0) + real(b, 2)
}

fn q8_0(b: &[u8], i: usize) -> f32 {
    f32::from(b[2 + i] as i8) * real(b, 0)
}

/// Factor and least number of group `j`.
fn six_bits(s: &[u8], j: usize) -> (f32, f32) {
    let (factor, least) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
    };
    (f32::from(factor), f32::from(least))
}

fn k_block(b: &[u8], i: usize, number: u8) -> f32 {
    let (factor, least) = six_bits(&b[4..16], i / 32);
    real(b, 0) * factor * f32::from(number) - real(b, 2) * least
}

/// The half of a byte of 128 that number `i` of 256 has: 32 lower ones, then 32 upper ones.
fn half_of_k(q: &[u8], i: usize) -> u8 {
    q[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15
}

fn q4_k(b: &[u8], i: usize) -> f32 {
    k_block(b, i, half_of_k(&b[16..], i))
}

fn q5_k(b: &[u8], i: usize) -> f32 {
    k_block(b, i, half_of_k(&b[48..], i) | (b[16 + i % 32] >> (i / 32) & 1) << 4)
}

fn q6_k(b: &[u8], i: usize) -> f32 {
    let (part, group, l) = (i / 128, i / 32 % 4, i % 32);
    let low = b[part * 64 + group % 2 * 32 + l] >> (group / 2 * 4) & 15;
    let high = b[128 + part * 32 + l] >> (group * 2) & 3;
    let number = f32::from(low | high << 4) - 32.0;
    real(b, 208) * f32::from(b[192 + i / 16] as i8) * number
}

impl Format {
    /// Bytes of `rows` rows of `blocks` blocks: anything, with scales of a moderate size or, every so often, of any kind at all.
    pub fn draw(&self, c: &mut Case<'_>, rows: usize, blocks: usize, any: bool) -> Tensor {
        let n = rows * blocks * self.bytes;
        let drawn = c.tensor(DType::F32, &[n]).to_f64();
        let mut bytes: Vec<u8> = drawn.iter().map(|v| ((v + 2.0) * 63.99) as u8).collect();
        for (i, block) in bytes.chunks_mut(self.bytes).enumerate() {
            for (j, &at) in self.scales.iter().enumerate() {
                const KINDS: [u16; 8] = [0x7C00, 0xFC00, 0x7E01, 1, 0x83FF, 0x8000, 0, 0x7BFF];
                if any && i % 3 == 0 {
                    let kind = KINDS[(i / 3 + j) % KINDS.len()];
                    block[at..at + 2].copy_from_slice(&kind.to_le_bytes());
                } else if !any {
                    let scale = f16::from_f32(f32::from(block[at]) / 2048.0 - 0.05);
                    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
        Tensor::new(DType::U8, vec![rows, blocks, self.bytes], bytes.into()).expect("as many bytes")
    }

    /// The numbers of such bytes.
    pub fn decoded(&self, bytes: &[u8]) -> Vec<f64> {
        let numbers = |block| (0..self.numbers).map(move |i| f64::from((self.decode)(block, i)));
        bytes.chunks(self.bytes).flat_map(numbers).collect()
    }
}

/// What the definition says of these bytes is what the decoder says.
#[track_caller]
fn check_definition(name: &str, bytes: Tensor, wanted: &[f64], shape: &[usize], by: f64) {
    let library = library();
    let mut case = Case::new(&library);
    let w = case.given(bytes);
    let y = case.apply(name, &[], &[w]);
    let (program, inputs) = case.finish(&[y]);
    let reference = Reference { precision: Precision::F64, ..Reference::default() };
    let results = reference.run_values(&program, &library, &inputs).expect("runs");
    assert_eq!(results[0].shape(), shape, "{name}");
    for (i, (got, wanted)) in results[0].to_f64().into_iter().zip(wanted).enumerate() {
        let same = got == *wanted || got.is_nan() && wanted.is_nan();
        let near = (got - wanted).abs() <= by * wanted.abs();
        assert!(same || near, "{name}: number {i} is {got}, bytes say {wanted}");
    }
}

#[test]
fn definitions_are_what_files_mean() {
    for format in &FORMATS {
        for (rows, blocks, any) in [(3, 4, false), (5, 24, true), (1, 1, true), (0, 2, false)] {
            let library = library();
            let bytes = format.draw(&mut Case::new(&library), rows, blocks, any);
            let wanted = format.decoded(bytes.bytes());
            // The products are exact, and one sum is rounded.
            let shape = [rows, blocks * format.numbers];
            check_definition(format.name, bytes, &wanted, &shape, 1e-6);
        }
    }
}

#[test]
fn all_numbers_of_16_bits() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let wanted: Vec<f64> = (0..=u16::MAX).map(|i| f16::from_bits(i).to_f64()).collect();
    let bytes = Tensor::new(DType::U8, vec![1 << 16, 2], bytes.into()).expect("as many bytes");
    check_definition("f16_of_bytes", bytes, &wanted, &[1 << 16], 0.0);
}

#[test]
fn blocks_are_decoded() {
    for format in &FORMATS {
        for (rows, blocks, any) in [(3, 2, false), (5, 24, true), (0, 2, false)] {
            for constant in [false, true] {
                check(format.name, Tolerance(0.0, 1e-6), |c| {
                    let bytes = format.draw(c, rows, blocks, any);
                    let w = if constant { c.builder.constant(bytes) } else { c.given(bytes) };
                    vec![c.apply(format.name, &[], &[w])]
                });
            }
        }
    }
}

/// Rows on both sides of what is computed together, and of what is computed from packed words; columns on both sides of a panel.
const SIZES: [(usize, usize, usize); 10] = [
    (1, 1, 1),
    (1, 16, 3),
    (1, 50, 2),
    (2, 33, 1),
    (3, 15, 2),
    (4, 32, 5),
    (5, 17, 1),
    (8, 48, 2),
    (9, 70, 3),
    (33, 40, 1),
];

/// What sums of so many products with numbers of such a size may be off by.
fn room(k: usize, numbers: &[f64]) -> Tolerance {
    let largest = numbers.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    Tolerance(2e-7 * k as f64 * largest, 0.0)
}

#[test]
fn products_with_blocks() {
    for (f, format) in FORMATS.iter().enumerate() {
        for (i, (m, n, blocks)) in SIZES.into_iter().enumerate() {
            let k = blocks * format.numbers;
            let library = library();
            let bytes = format.draw(&mut Case::new(&library), n, blocks, false);
            let room = room(k, &format.decoded(bytes.bytes()));
            check(&format!("{} {m} x {k} x {n}", format.name), room, |c| {
                let x = c.input(DType::F32, &[m, k]);
                let w = match (i + f) % 3 {
                    0 => c.given(bytes),
                    _ => c.builder.constant(bytes),
                };
                let y = c.apply(&format!("{}_product", format.name), &[], &[x, w]);
                // What follows is computed on each part of the sums.
                let bias = c.constant(DType::F32, &[n]);
                let bias = c.broadcast(bias, &[1], &[m, n]);
                let last = c.apply("add", &[], &[y, bias]);
                if i % 2 == 0 { vec![y] } else { vec![last] }
            });
        }
    }
}

/// Numbers of which none is near the middle between two multiples of a group's scale: halves of 127 parts of the largest are no multiples of 2^-8.
fn far_from_ties(c: &mut Case<'_>, shape: &[usize]) -> Value {
    let drawn = c.tensor(DType::F32, shape).to_f64();
    let drawn: Vec<f64> = drawn.iter().map(|v| (v * 256.0).round() / 256.0).collect();
    c.given(Tensor::from_f64(DType::F32, shape.to_vec(), &drawn))
}

#[test]
fn products_of_rounded_rows_with_blocks() {
    for (f, format) in FORMATS.iter().enumerate() {
        for (i, (m, n, blocks)) in SIZES.into_iter().enumerate() {
            let k = blocks * format.numbers;
            let library = library();
            let bytes = format.draw(&mut Case::new(&library), n, blocks, false);
            let room = room(k, &format.decoded(bytes.bytes()));
            check(&format!("{} {m} x {k} x {n}", format.name), room, |c| {
                let x = far_from_ties(c, &[m, k]);
                let w = match (i + f) % 3 {
                    0 => c.given(bytes),
                    _ => c.builder.constant(bytes),
                };
                let y = c.apply(&format!("{}_rounded_product", format.name), &[], &[x, w]);
                let bias = c.constant(DType::F32, &[n]);
                let bias = c.broadcast(bias, &[1], &[m, n]);
                let last = c.apply("add", &[], &[y, bias]);
                if i % 2 == 0 { vec![y] } else { vec![last] }
            });
        }
    }
}

#[test]
fn products_of_rounded_rows_with_numbers_of_few_bits() {
    let sizes = [
        (1, 33, 2, 32, 64),
        (1, 16, 3, 16, 41),
        (2, 7, 1, 64, 50),
        (3, 9, 7, 4, 26),
        (9, 40, 3, 256, 700),
        (40, 24, 2, 128, 200),
        (0, 5, 1, 16, 16),
        (2, 5, 0, 16, 0),
    ];
    for bits in [2u32, 4, 8] {
        for (i, (m, n, b, block, k)) in sizes.into_iter().enumerate() {
            let kind = i + bits as usize;
            let room = Tolerance(4e-7 * k as f64 * f64::from((1u32 << bits) + 2), 0.0);
            check(&format!("{bits} bits {m} x {k} x {n}"), room, |c| {
                let w = numbers_of_few_bits(c, [n, b, block], bits);
                let w = if kind % 4 == 3 { c.given(w) } else { c.builder.constant(w) };
                let x = far_from_ties(c, &[m, k]);
                let s = c.constant(DType::F32, &[n, b]);
                let z = zeros(c, kind % 4, bits, &[n, b]);
                let attrs = [("bits", Attr::int(i64::from(bits)))];
                vec![c.apply("n_bits_rounded_product", &attrs, &[x, w, s, z])]
            });
        }
    }
}

#[test]
fn rounded_rows_that_are_not_finite_or_zero() {
    for m in [1, 5] {
        check_special(&format!("{m} rows"), |c| {
            let (n, k) = (37, 96);
            let bytes = FORMATS[1].draw(c, n, 3, m == 5);
            let mut values = c.tensor(DType::F32, &[m, k]).to_f64();
            values.iter_mut().for_each(|v| *v = (*v * 256.0).round() / 256.0);
            values[..32].fill(0.0);
            for (r, special) in [f64::INFINITY, f64::NAN, f64::NEG_INFINITY].into_iter().enumerate()
            {
                if let Some(v) = values.get_mut((r + 1) * k + 40) {
                    *v = special;
                }
            }
            let x = c.given(Tensor::from_f64(DType::F32, vec![m, k], &values));
            let w = c.builder.constant(bytes);
            c.apply("q4_1_rounded_product", &[], &[x, w])
        });
    }
}

/// What a product with constant blocks is of some rows.
fn product_of_rows(op: &str, rows: &Tensor, bytes: &Tensor) -> Tensor {
    let library = library();
    let mut c = Case::new(&library);
    let (x, w) = (c.given(rows.clone()), c.builder.constant(bytes.clone()));
    let y = c.apply(op, &[], &[x, w]);
    let (program, inputs) = c.finish(&[y]);
    run(&program, &inputs, 1).expect("runs").remove(0)
}

#[test]
fn a_row_has_the_same_bits_alone() {
    for (format, kind) in FORMATS.iter().flat_map(|f| ["", "_rounded"].map(|kind| (f, kind))) {
        let (library, op) = (library(), format!("{}{kind}_product", format.name));
        let mut c = Case::new(&library);
        let (k, n) = (3 * format.numbers, 21);
        let bytes = format.draw(&mut c, n, 3, false);
        let rows = c.tensor(DType::F32, &[7, k]);
        let all = product_of_rows(&op, &rows, &bytes);
        for (r, row) in rows.bytes().chunks(4 * k).enumerate() {
            let row = Tensor::new(DType::F32, vec![1, k], row.to_vec().into()).expect("a row");
            let alone = product_of_rows(&op, &row, &bytes);
            assert_eq!(alone.bytes()[..], all.bytes()[4 * r * n..][..4 * n], "{op}: row {r}");
        }
    }
}

#[test]
fn products_of_several_axes_that_lie_elsewhere() {
    for m in [2, 7] {
        check("transposed rows", Tolerance(1e-4, 0.0), |c| {
            let bytes = FORMATS[1].draw(c, 20, 2, false);
            let (x, w) = (c.input(DType::F32, &[3, 64, m]), c.builder.constant(bytes));
            let turn = [("perm", Attr::ints([0, 2, 1]))];
            let x = c.apply("transpose", &turn, &[x]);
            vec![c.apply("q4_1_product", &[], &[x, w])]
        });
    }
    for (m, n, blocks) in [(0, 5, 1), (3, 0, 2), (2, 3, 0), (1, 0, 1)] {
        check("nothing", Tolerance(0.0, 0.0), |c| {
            let bytes = FORMATS[0].draw(c, n, blocks, false);
            let (x, w) = (c.input(DType::F32, &[m, blocks * 32]), c.builder.constant(bytes));
            vec![c.apply("q4_0_product", &[], &[x, w])]
        });
    }
    check("numbers of 16 bits", Tolerance(0.01, 0.01), |c| {
        let bytes = FORMATS[4].draw(c, 20, 2, false);
        let (x, w) = (c.input(DType::F32, &[2, 64]), c.builder.constant(bytes));
        let (half, single) = ([("to", Attr::DType(DType::F16))], [("to", Attr::DType(DType::F32))]);
        let x = c.apply("cast", &half, &[x]);
        let x = c.apply("cast", &single, &[x]);
        vec![c.apply("q8_0_product", &[], &[x, w])]
    });
}

/// Holds one result against the definition: what is infinite there is, and what is no number.
#[track_caller]
fn check_special(name: &str, make: impl FnOnce(&mut Case<'_>) -> Value) {
    let library = library();
    let mut c = Case::new(&library);
    let y = make(&mut c);
    let (program, inputs) = c.finish(&[y]);
    let reference = Reference { precision: Precision::F64, ..Reference::default() };
    let wanted = reference.run_values(&program, &library, &inputs).expect("runs");
    let got = run(&program, &inputs, 1).expect("runs");
    let (got, wanted) = (got[0].to_f64(), wanted[0].to_f64());
    let largest = wanted.iter().filter(|v| v.is_finite()).fold(1.0f64, |m, v| m.max(v.abs()));
    for (i, (got, wanted)) in got.into_iter().zip(wanted).enumerate() {
        let near = (got - wanted).abs() <= 1e-5 * largest;
        let same = near || got == wanted || got.is_nan() && wanted.is_nan();
        assert!(same, "{name}: element {i} is {got}, not {wanted}");
    }
}

/// Rows of which some have elements that are not finite.
fn special_rows(c: &mut Case<'_>, m: usize, k: usize) -> Value {
    let mut values = c.tensor(DType::F32, &[m, k]).to_f64();
    for (r, row) in values.chunks_mut(k).enumerate().skip(1) {
        let kinds = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0];
        row[r * 5 % k] = kinds[r % 4];
        row[r * 7 % k] = kinds[r / 4 % 4];
    }
    c.given(Tensor::from_f64(DType::F32, vec![m, k], &values))
}

#[test]
fn scales_and_factors_that_are_not_finite() {
    for format in &FORMATS {
        for m in [1, 3, 7, 10] {
            for special in [false, true] {
                check_special(&format!("{} {m} {special}", format.name), |c| {
                    let (n, blocks) = (37, 3);
                    let bytes = format.draw(c, n, blocks, m % 2 == 1);
                    let k = blocks * format.numbers;
                    let x = match special {
                        true => special_rows(c, m, k),
                        false => c.input(DType::F32, &[m, k]),
                    };
                    let w = c.builder.constant(bytes);
                    c.apply(&format!("{}_product", format.name), &[], &[x, w])
                });
            }
        }
    }
}

#[test]
fn scales_and_zero_points_of_few_bits_that_are_not_finite() {
    for (bits, m, k) in [(2u32, 1, 64), (4, 1, 41), (4, 3, 64), (4, 7, 41), (8, 1, 50), (8, 12, 41)]
    {
        for kind in 0..4 {
            check_special(&format!("{bits} bits {m} x {k}, kind {kind}"), |c| {
                let (n, b) = (21, 4);
                let w = numbers_of_few_bits(c, [n, b, 16], bits);
                let mut special = |every: usize| {
                    let mut values = c.tensor(DType::F32, &[n, b]).to_f64();
                    for (i, v) in values.iter_mut().enumerate().filter(|(i, _)| i % every == 0) {
                        *v = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0][i / every % 4];
                    }
                    Tensor::from_f64(DType::F32, vec![n, b], &values)
                };
                let (s, other) = (special(3), special(5));
                let z = match kind {
                    3 => c.builder.constant(other),
                    kind => zeros(c, kind, bits, &[n, b]),
                };
                let x = match kind % 2 {
                    0 => special_rows(c, m, k),
                    _ => c.input(DType::F32, &[m, k]),
                };
                let (w, s) = (c.builder.constant(w), c.builder.constant(s));
                let attrs = [("bits", Attr::int(i64::from(bits)))];
                c.apply("n_bits_product", &attrs, &[x, w, s, z])
            });
        }
    }
}

/// The bytes of a matrix of numbers of few bits: rows, blocks of a row, numbers of a block.
fn numbers_of_few_bits(c: &mut Case<'_>, [n, b, block]: [usize; 3], bits: u32) -> Tensor {
    let shape = vec![n, b, block * bits as usize / 8];
    let drawn = c.tensor(DType::F32, &[shape.iter().product()]).to_f64();
    let bytes: Vec<u8> = drawn.iter().map(|v| ((v + 2.0) * 63.99) as u8).collect();
    Tensor::new(DType::U8, shape, bytes.into()).expect("as many bytes")
}

/// Zero points of blocks: the usual one for all, whole numbers, or any.
fn zeros(c: &mut Case<'_>, kind: usize, bits: u32, shape: &[usize; 2]) -> Value {
    let len = shape[0] * shape[1];
    let most = f64::from(1u32 << bits);
    let values: Vec<f64> = (0..len)
        .map(|i| match kind {
            0 => most / 2.0,
            1 => (i * 7 % 256) as f64 % most,
            2 => (i % 5) as f64 * 1.25 - 2.0,
            _ => 3.0,
        })
        .collect();
    c.builder.constant(Tensor::from_f64(DType::F32, shape.to_vec(), &values))
}

#[test]
fn products_with_numbers_of_few_bits() {
    let sizes = [
        (1, 33, 2, 32, 64),
        (1, 16, 3, 16, 41),
        (2, 7, 1, 64, 50),
        (4, 20, 4, 32, 128),
        (9, 40, 3, 16, 45),
        (40, 24, 2, 128, 200),
    ];
    for bits in [2u32, 4, 8] {
        for (i, (m, n, b, block, k)) in sizes.into_iter().enumerate() {
            for grouped in [false, true] {
                let kind = i + bits as usize + usize::from(grouped);
                let room = Tolerance(4e-7 * k as f64 * f64::from((1u32 << bits) + 2), 0.0);
                check(&format!("{bits} bits {m} x {k} x {n} {grouped}"), room, |c| {
                    let w = numbers_of_few_bits(c, [n, b, block], bits);
                    let w = if kind % 4 == 3 { c.given(w) } else { c.builder.constant(w) };
                    let x = c.input(DType::F32, &[m, k]);
                    let s = c.constant(DType::F32, &[n, b]);
                    let z = zeros(c, kind % 4, bits, &[n, b]);
                    let attrs = [("bits", Attr::int(i64::from(bits)))];
                    if !grouped {
                        return vec![c.apply("n_bits_product", &attrs, &[x, w, s, z])];
                    }
                    // Negative ones count from the end, and one group has more numbers than a block.
                    let (b, of) = (b as i64, |i: usize| (i * i % 7) as i64 % b as i64);
                    let groups: Vec<i64> =
                        (0..k).map(|i| of(i) - b * i64::from(i % 5 == 0)).collect();
                    let g = c.builder.constant(Tensor::from_i64(DType::I32, vec![k], &groups));
                    vec![c.apply("n_bits_product_by_groups", &attrs, &[x, w, s, z, g])]
                });
            }
        }
    }
}

#[test]
fn rows_that_an_index_names() {
    for format in &FORMATS {
        check(format.name, Tolerance(0.0, 1e-6), |c| {
            let bytes = format.draw(c, 7, 2, true);
            let w = c.builder.constant(bytes);
            let i = Tensor::from_i64(DType::I64, vec![2, 3], &[0, 6, -1, -7, 3, 3]);
            let i = c.given(i);
            vec![c.apply(&format!("{}_rows", format.name), &[], &[w, i])]
        });
    }
}
