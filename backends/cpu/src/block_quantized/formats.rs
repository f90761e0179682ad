//! Unpacks ggml's block formats to rows of packed numbers.

use super::panels::{BlockPanels, Form, Offset, Row};
use half::f16;

/// A format: the bytes of a block and its numbers, how they are packed, and what packs the groups of one block.
pub struct Format {
    pub bytes: usize,
    pub numbers: usize,
    pub form: Form,
    unpack: fn(&[u8], Row<'_>),
}

const NARROW: Form = Form { wide: false, group: 32, half: true, offset: Offset::Same(8.0) };
const WIDE: Form = Form { wide: true, group: 32, half: true, offset: Offset::None };
const SINGLE: Offset = Offset::Single;

pub static Q4_0: Format = Format { bytes: 18, numbers: 32, form: NARROW, unpack: q4_0 };
pub static Q4_1: Format =
    Format { bytes: 20, numbers: 32, form: Form { offset: Offset::Half, ..NARROW }, unpack: q4_1 };
pub static Q5_0: Format = Format { bytes: 22, numbers: 32, form: WIDE, unpack: q5_0 };
pub static Q5_1: Format =
    Format { bytes: 24, numbers: 32, form: Form { offset: Offset::Half, ..WIDE }, unpack: q5_1 };
pub static Q8_0: Format = Format { bytes: 34, numbers: 32, form: WIDE, unpack: q8_0 };
pub static Q4_K: Format = Format {
    bytes: 144,
    numbers: 256,
    form: Form { half: false, offset: SINGLE, ..NARROW },
    unpack: q4_k,
};
pub static Q5_K: Format = Format {
    bytes: 176,
    numbers: 256,
    form: Form { half: false, offset: SINGLE, ..WIDE },
    unpack: q5_k,
};
pub static Q6_K: Format = Format {
    bytes: 210,
    numbers: 256,
    form: Form { half: false, group: 16, ..WIDE },
    unpack: q6_k,
};

impl Format {
    /// `rows` rows of blocks, the first byte of each where `start` says.
    pub fn pack(
        &self,
        bytes: &[u8],
        rows: usize,
        blocks: usize,
        start: impl Fn(usize) -> usize,
    ) -> BlockPanels {
        let groups = self.numbers / self.form.group;
        let numbers = blocks * self.numbers;
        let fill = |row: usize, to: Row<'_>| {
            let row = match blocks {
                0 => &[],
                _ => &bytes[start(row)..][..blocks * self.bytes],
            };
            let blocks = row.chunks_exact(self.bytes);
            let numbers = to.numbers.chunks_exact_mut(self.numbers);
            let groups =
                to.scales.chunks_exact_mut(groups).zip(to.offsets.chunks_exact_mut(groups));
            for ((block, numbers), (scales, offsets)) in blocks.zip(numbers).zip(groups) {
                (self.unpack)(block, Row { numbers, scales, offsets });
            }
        };
        let pack = |form| BlockPanels::new(form, rows, numbers, numbers, None, fill);
        let packed = pack(self.form);
        match packed.finite || !self.form.half {
            true => packed,
            false => pack(self.form.single()),
        }
    }
}

impl Format {
    /// The real numbers of some blocks.
    pub fn numbers_of(&self, bytes: &[u8], out: &mut [f32]) {
        let form = self.form;
        let (mut numbers, mut scales, mut offsets) = ([0u8; 256], [0f32; 16], [0f32; 16]);
        let groups = self.numbers / form.group;
        let (numbers, scales, offsets) =
            (&mut numbers[..self.numbers], &mut scales[..groups], &mut offsets[..groups]);
        for (block, out) in bytes.chunks_exact(self.bytes).zip(out.chunks_exact_mut(self.numbers)) {
            numbers.fill(0);
            (self.unpack)(block, Row { numbers, scales, offsets });
            let groups = numbers.chunks_exact(form.group).zip(out.chunks_exact_mut(form.group));
            for ((numbers, out), (&by, &offset)) in groups.zip(scales.iter().zip(&*offsets)) {
                for (out, &n) in out.iter_mut().zip(numbers) {
                    let n = if form.wide { f32::from(n as i8) } else { f32::from(n) };
                    *out = match form.offset {
                        Offset::None => n * by,
                        Offset::Same(less) => (n - less) * by,
                        Offset::Bytes | Offset::Less => (n - offset) * by,
                        Offset::Half | Offset::Single => n * by + offset,
                    };
                }
            }
        }
    }
}

fn real(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// The low nibbles of bytes, and then the high ones.
fn nibbles(bytes: &[u8], to: &mut [u8]) {
    let (low, high) = to.split_at_mut(bytes.len());
    for ((low, high), b) in low.iter_mut().zip(high).zip(bytes) {
        (*low, *high) = (b & 15, b >> 4);
    }
}

fn q4_0(b: &[u8], to: Row<'_>) {
    to.scales[0] = real(b, 0);
    nibbles(&b[2..], to.numbers);
}

fn q4_1(b: &[u8], to: Row<'_>) {
    (to.scales[0], to.offsets[0]) = (real(b, 0), real(b, 2));
    nibbles(&b[4..], to.numbers);
}

/// Numbers of five bits less `less`: the uppermost bits, one after the other, stand before the others.
fn fives(b: &[u8], less: u8, numbers: &mut [u8]) {
    let (bits, rest) = b.split_at(4);
    nibbles(rest, numbers);
    for (i, n) in numbers.iter_mut().enumerate() {
        *n = (*n | (bits[i / 8] >> (i % 8) & 1) << 4).wrapping_sub(less);
    }
}

fn q5_0(b: &[u8], to: Row<'_>) {
    to.scales[0] = real(b, 0);
    fives(&b[2..], 16, to.numbers);
}

fn q5_1(b: &[u8], to: Row<'_>) {
    (to.scales[0], to.offsets[0]) = (real(b, 0), real(b, 2));
    fives(&b[4..], 0, to.numbers);
}

fn q8_0(b: &[u8], to: Row<'_>) {
    to.scales[0] = real(b, 0);
    to.numbers.copy_from_slice(&b[2..]);
}

/// The scales and offsets of eight groups, of six bits each in twelve bytes.
fn sixes(b: &[u8], scales: &mut [f32], offsets: &mut [f32]) {
    let (by, less, s) = (real(b, 0), real(b, 2), &b[4..16]);
    for (j, (scale, offset)) in scales.iter_mut().zip(offsets).enumerate() {
        let (n, m) = match j {
            0..4 => (s[j] & 63, s[j + 4] & 63),
            _ => (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4),
        };
        (*scale, *offset) = (by * f32::from(n), -less * f32::from(m));
    }
}

fn q4_k(b: &[u8], to: Row<'_>) {
    sixes(b, to.scales, to.offsets);
    for (bytes, to) in b[16..].chunks_exact(32).zip(to.numbers.chunks_exact_mut(64)) {
        nibbles(bytes, to);
    }
}

fn q5_k(b: &[u8], to: Row<'_>) {
    sixes(b, to.scales, to.offsets);
    let (bits, rest) = b[16..].split_at(32);
    for (bytes, to) in rest.chunks_exact(32).zip(to.numbers.chunks_exact_mut(64)) {
        nibbles(bytes, to);
    }
    for (i, n) in to.numbers.iter_mut().enumerate() {
        *n |= (bits[i % 32] >> (i / 32) & 1) << 4;
    }
}

fn q6_k(b: &[u8], to: Row<'_>) {
    let (low, high) = (&b[..128], &b[128..192]);
    for (scale, &s) in to.scales.iter_mut().zip(&b[192..208]) {
        *scale = real(b, 208) * f32::from(s as i8);
    }
    let halves_of = low.chunks_exact(64).zip(to.numbers.chunks_exact_mut(128));
    for ((bytes, to), high) in halves_of.zip(high.chunks_exact(32)) {
        nibbles(bytes, to);
        for (i, n) in to.iter_mut().enumerate() {
            *n = (*n | (high[i % 32] >> (i / 32 * 2) & 3) << 4).wrapping_sub(32);
        }
    }
}
