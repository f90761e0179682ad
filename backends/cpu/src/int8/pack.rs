//! Packs int8 operands for the micro-kernel: rows in whole groups of four bytes, columns with groups interleaved.

use super::dot::{COLUMNS, Columns, Rows};
use mlc_vector::simd;

/// Bytes of the depth in whole groups.
pub fn groups(depth: usize) -> usize {
    depth.div_ceil(4)
}

/// A strided matrix of bytes.
#[derive(Clone, Copy)]
pub struct ByteMatrix<'a> {
    pub data: &'a [u8],
    pub offset: usize,
    pub row: isize,
    pub col: isize,
}

impl ByteMatrix<'_> {
    fn at(&self, row: usize, col: usize) -> u8 {
        self.data
            [(self.offset as isize + row as isize * self.row + col as isize * self.col) as usize]
    }
}

/// An operand in packed form, with the sums of its rows, or columns, over the depth.
pub struct PackedBytes {
    /// Rows of bytes, or groups of four as words.
    words: Vec<u32>,
    pub sums: Vec<i32>,
    offsets: Vec<usize>,
    depth: usize,
}

impl PackedBytes {
    /// Rows of `depth` signed bytes after flipping `flip`, each padded with zeros.
    pub fn rows(m: &ByteMatrix<'_>, count: usize, depth: usize, flip: u8) -> PackedBytes {
        let groups = groups(depth);
        let mut words = vec![0u32; count * groups];
        let mut sums = vec![0i32; count];
        for (r, line) in words.chunks_exact_mut(groups.max(1)).enumerate().take(count) {
            for (k, byte) in
                bytemuck::cast_slice_mut::<u32, u8>(line)[..depth].iter_mut().enumerate()
            {
                *byte = m.at(r, k) ^ flip;
                sums[r] = sums[r].wrapping_add(*byte as i8 as i32);
            }
        }
        PackedBytes { words, sums, offsets: vec![], depth }
    }

    /// Columns of `depth` signed bytes after flipping `flip`: panels of [`COLUMNS`], each group by group.
    pub fn columns(m: &ByteMatrix<'_>, depth: usize, count: usize, flip: u8) -> PackedBytes {
        let groups = groups(depth);
        let panels = count.div_ceil(COLUMNS);
        let mut words = vec![0u32; panels * groups * COLUMNS];
        let mut sums = vec![0i32; panels * COLUMNS];
        let mut lines = [[0u8; COLUMNS]; 4];
        for (p, panel) in words.chunks_exact_mut((groups * COLUMNS).max(1)).enumerate().take(panels)
        {
            let first = p * COLUMNS;
            let wide = COLUMNS.min(count - first);
            for (g, group) in panel.chunks_exact_mut(COLUMNS).enumerate() {
                if m.row == 1 && 4 * g + 4 <= depth {
                    fours(m, 4 * g, first, flip, &mut group[..wide]);
                    add_fours(group, &mut sums[first..first + COLUMNS]);
                    continue;
                }
                for (t, line) in lines.iter_mut().enumerate() {
                    let k = 4 * g + t;
                    line.fill(0);
                    if k < depth {
                        copy_line(m, k, first, flip, &mut line[..wide]);
                    }
                }
                let [a, b, c, d] = &lines;
                weave(a, b, c, d, group);
                add_fours(group, &mut sums[first..first + COLUMNS]);
            }
        }
        PackedBytes { words, sums, offsets: (0..groups).map(|g| g * COLUMNS).collect(), depth }
    }

    /// The rows, as tiles read them.
    pub fn as_rows(&self) -> Rows<'_> {
        Rows { bytes: bytemuck::cast_slice(&self.words), stride: 4 * groups(self.depth) }
    }

    /// Panel `p`, as tiles read it.
    pub fn panel(&self, p: usize) -> Columns<'_> {
        let len = self.offsets.len() * COLUMNS;
        let reach = self.offsets.last().copied().unwrap_or(0);
        // Panels of no depth have no words, yet tiles ask for columns.
        const NOTHING: [u32; COLUMNS] = [0; COLUMNS];
        let groups = if len == 0 { &NOTHING[..] } else { &self.words[p * len..(p + 1) * len] };
        Columns { groups, offsets: &self.offsets, reach }
    }
}

/// Four neighbours of the depth from `k` on, for columns from `first` on.
fn fours(m: &ByteMatrix<'_>, k: usize, first: usize, flip: u8, to: &mut [u32]) {
    let flip = u32::from_le_bytes([flip; 4]);
    for (c, t) in to.iter_mut().enumerate() {
        let at = m.offset as isize + k as isize + (first + c) as isize * m.col;
        let at = at as usize;
        let four = [m.data[at], m.data[at + 1], m.data[at + 2], m.data[at + 3]];
        *t = u32::from_le_bytes(four) ^ flip;
    }
}

simd! {
    /// Adds up four signed bytes of each word.
    fn add_fours(group: &[u32], sums: &mut [i32]) {
        for (s, word) in sums.iter_mut().zip(group) {
            let four = word.to_le_bytes().map(|b| b as i8 as i32);
            *s = s.wrapping_add(four[0] + four[1] + four[2] + four[3]);
        }
    }
}

/// Part of row `k`.
fn copy_line(m: &ByteMatrix<'_>, k: usize, first: usize, flip: u8, to: &mut [u8]) {
    let start = m.offset as isize + k as isize * m.row + first as isize * m.col;
    if m.col == 1 {
        let from = &m.data[start as usize..][..to.len()];
        to.iter_mut().zip(from).for_each(|(t, &b)| *t = b ^ flip);
    } else {
        for (c, t) in to.iter_mut().enumerate() {
            *t = m.data[(start + c as isize * m.col) as usize] ^ flip;
        }
    }
}

simd! {
    /// Four lines of equal length as groups of four bytes.
    pub fn weave(a: &[u8], b: &[u8], c: &[u8], d: &[u8], to: &mut [u32]) {
        let n = to.len();
        let (a, b, c, d) = (&a[..n], &b[..n], &c[..n], &d[..n]);
        for i in 0..n {
            to[i] = a[i] as u32 | (b[i] as u32) << 8 | (c[i] as u32) << 16 | (d[i] as u32) << 24;
        }
    }
}

simd! {
    /// The sum of unsigned bytes.
    pub fn total(bytes: &[u8]) -> i32 {
        bytes.iter().fold(0i32, |s, &b| s.wrapping_add(b as i32))
    }
}
