//! The inverse DCT, chroma upsampling, and colour conversion.

use super::{Block, Component};

/// The sampling factors of an image (`all`, `rows`) and of a component.
pub(crate) struct SamplingFactors {
    pub all: usize,
    pub across: usize,
    pub rows: usize,
    pub down: usize,
}

/// The samples of a component.
pub(crate) struct Plane {
    pub samples: Vec<u8>,
    /// Samples from one row to the next.
    pub stride: usize,
    width: usize,
    height: usize,
}

impl Plane {
    /// The inverse transform of a component's coefficients.
    pub fn of(c: &Component, quantiser: &[u16; 64]) -> Plane {
        let stride = 8 * c.columns;
        let mut samples = vec![0; stride * 8 * c.rows];
        for (i, block) in c.blocks.iter().enumerate() {
            let values = transformed(block, quantiser);
            let corner = i / c.columns * 8 * stride + i % c.columns * 8;
            for (row, values) in values.chunks(8).enumerate() {
                samples[corner + row * stride..][..8].copy_from_slice(values);
            }
        }
        Plane { samples, stride, width: c.width, height: c.height }
    }

    /// The samples at the resolution of the image; `None` if that is no multiple of their own.
    pub fn upsampled(
        self,
        SamplingFactors { all, across, rows, down }: SamplingFactors,
    ) -> Option<Plane> {
        if all % across != 0 || rows % down != 0 {
            return None;
        }
        Some(match (all / across, rows / down) {
            (1, 1) => self,
            (2, 1) if self.width > 2 => self.wider(),
            (1, 2) => self.higher(),
            (2, 2) if self.width > 2 => self.doubled(),
            (h, v) => self.repeated(h, v),
        })
    }

    fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..][..self.width]
    }

    /// The row above or below another one; itself at the border.
    fn neighbour(&self, y: usize, below: bool) -> &[u8] {
        self.row(if below { (y + 1).min(self.height - 1) } else { y.saturating_sub(1) })
    }

    fn from_rows(rows: impl Iterator<Item = Vec<u8>>, width: usize, height: usize) -> Plane {
        Plane { samples: rows.flatten().collect(), stride: width, width, height }
    }

    /// Twice as many columns.
    fn wider(self) -> Plane {
        let wide = |y: usize| {
            let sums: Vec<u32> = self.row(y).iter().map(|&v| v.into()).collect();
            between(&sums, [1, 2], 2)
        };
        Plane::from_rows((0..self.height).map(wide), 2 * self.width, self.height)
    }

    /// Twice as many rows.
    fn higher(self) -> Plane {
        let row = |y: usize| {
            let (own, other) = (self.row(y / 2), self.neighbour(y / 2, y % 2 == 1));
            let bias = 1 + (y % 2) as u32;
            let mix = |(&a, &b): (&u8, &u8)| ((3 * u32::from(a) + u32::from(b) + bias) >> 2) as u8;
            own.iter().zip(other).map(mix).collect()
        };
        Plane::from_rows((0..2 * self.height).map(row), self.width, 2 * self.height)
    }

    /// Twice as many rows and columns.
    fn doubled(self) -> Plane {
        let row = |y: usize| {
            let (own, other) = (self.row(y / 2), self.neighbour(y / 2, y % 2 == 1));
            let sum = |(&a, &b): (&u8, &u8)| 3 * u32::from(a) + u32::from(b);
            let sums: Vec<u32> = own.iter().zip(other).map(sum).collect();
            between(&sums, [8, 7], 4)
        };
        Plane::from_rows((0..2 * self.height).map(row), 2 * self.width, 2 * self.height)
    }

    /// Every sample as often as that.
    fn repeated(self, h: usize, v: usize) -> Plane {
        let row = |y: usize| {
            let row = self.row(y / v).iter();
            row.flat_map(|&s| std::iter::repeat_n(s, h)).collect()
        };
        Plane::from_rows((0..v * self.height).map(row), h * self.width, v * self.height)
    }
}

/// Two samples for each, at a quarter and three quarters of the way between their neighbours' centres; `shift` bits are left out after
/// these numbers were added to the first and to the second.
fn between(v: &[u32], add: [u32; 2], shift: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * v.len());
    for i in 0..v.len() {
        let before = v[i.saturating_sub(1)];
        let after = v[(i + 1).min(v.len() - 1)];
        out.push(((3 * v[i] + before + add[0]) >> shift) as u8);
        out.push(((3 * v[i] + after + add[1]) >> shift) as u8);
    }
    out
}

/// `x` with as many bits of fraction as the constants of the transform.
const BITS: u32 = 13;

/// The eight values at a distance of one coordinate whose cosine transform these are, times the root of eight.
fn transform(v: [i32; 8]) -> [i32; 8] {
    let times = |a: i32, c: i32| a.wrapping_mul(c);
    let z = times(v[2].wrapping_add(v[6]), 4433);
    let (a2, a3) = (z.wrapping_sub(times(v[6], 15137)), z.wrapping_add(times(v[2], 6270)));
    let a0 = v[0].wrapping_add(v[4]) << BITS;
    let a1 = v[0].wrapping_sub(v[4]) << BITS;
    let even = [a0.wrapping_add(a3), a1.wrapping_add(a2), a1.wrapping_sub(a2), a0.wrapping_sub(a3)];
    let z5 = times(v[7].wrapping_add(v[3]).wrapping_add(v[5]).wrapping_add(v[1]), 9633);
    let z1 = times(v[7].wrapping_add(v[1]), -7373);
    let z2 = times(v[5].wrapping_add(v[3]), -20995);
    let z3 = times(v[7].wrapping_add(v[3]), -16069).wrapping_add(z5);
    let z4 = times(v[5].wrapping_add(v[1]), -3196).wrapping_add(z5);
    let odd = [
        times(v[1], 12299).wrapping_add(z1).wrapping_add(z4),
        times(v[3], 25172).wrapping_add(z2).wrapping_add(z3),
        times(v[5], 16819).wrapping_add(z2).wrapping_add(z4),
        times(v[7], 2446).wrapping_add(z1).wrapping_add(z3),
    ];
    std::array::from_fn(|i| match i {
        0..4 => even[i].wrapping_add(odd[i]),
        _ => even[7 - i].wrapping_sub(odd[7 - i]),
    })
}

/// The samples of a block: columns first, with two bits of fraction left, then rows.
fn transformed(block: &Block, quantiser: &[u16; 64]) -> [u8; 64] {
    let rounded = |v: i32, bits: u32| v.wrapping_add(1 << (bits - 1)) >> bits;
    let mut half = [0; 64];
    for x in 0..8 {
        let column = |y: usize| i32::from(block[8 * y + x]) * i32::from(quantiser[8 * y + x]);
        for (y, v) in transform(std::array::from_fn(column)).into_iter().enumerate() {
            half[8 * y + x] = rounded(v, BITS - 2);
        }
    }
    let mut out = [0; 64];
    for y in 0..8 {
        for (x, v) in transform(std::array::from_fn(|x| half[8 * y + x])).into_iter().enumerate() {
            out[8 * y + x] = (rounded(v, BITS + 5) + 128).clamp(0, 255) as u8;
        }
    }
    out
}

/// Red, green and blue of a luminance and two differences of colours, in sixteen bits of fraction.
pub(crate) fn rgb([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let shifted = |v: i32| (v + (1 << 15)) >> 16;
    let red = y + shifted(91881 * cr);
    let green = y + shifted(-22554 * cb - 46802 * cr);
    let blue = y + shifted(116_130 * cb);
    [red, green, blue].map(|v| v.clamp(0, 255) as u8)
}
