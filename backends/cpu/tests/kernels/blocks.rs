//! Numbers in the blocks of ggml, held against a decoder that reads the bytes one number at a time.

use super::support::*;
use half::f16;
use mlc_backends::reference::{Precision, Reference};
use mlc_dsl::ir::{DType, Tensor};

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
