//! JPEG (ITU-T T.81), 8 bits: baseline and progressive, Huffman-coded.
//!
//! The standard leaves the rounding of the inverse transform and the interpolation of chroma open. Both are as ONNX's specification
//! refers to them: integers of 13 bits of fraction, and weights of 1/4 and 3/4 between neighbouring samples.
//! Corrupt input returns `None`, never panics; memory is bounded by the declared size, which is bounded.

mod bits;
mod samples;
mod scan;

use bits::HuffmanTable;
use samples::{Plane, SamplingFactors};

/// Coefficients of a block of eight rows and columns, in the order of rows.
type Block = [i16; 64];

/// Most rows and columns, and most samples of a component.
const SIDE: usize = 1 << 14;
const SAMPLES: usize = 1 << 26;

/// Where the coefficients of a block stand, by their order in the file.
const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// A component of the image.
struct Component {
    id: u8,
    /// Samples per unit of the image, across and down.
    across: usize,
    down: usize,
    quantiser: usize,
    /// Blocks in a row, and rows of blocks, of whole units.
    columns: usize,
    rows: usize,
    /// Samples of the image itself.
    width: usize,
    height: usize,
    blocks: Vec<Block>,
}

/// What the header of a frame says.
struct Frame {
    width: usize,
    height: usize,
    progressive: bool,
    /// Samples per unit of the components that have most.
    across: usize,
    down: usize,
    components: Vec<Component>,
}

/// An image: samples of one component, or red, green and blue.
pub(crate) struct Decoded {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
    pub samples: Vec<u8>,
}

/// The tables that a file has defined so far.
#[derive(Default)]
struct Tables {
    quantisers: [Option<[u16; 64]>; 4],
    dc: [Option<HuffmanTable>; 4],
    ac: [Option<HuffmanTable>; 4],
    /// Units between two restarts; 0 for none.
    interval: usize,
}

/// Decodes a file; `None` if it is damaged or of another kind.
pub(crate) fn decode(file: &[u8]) -> Option<Decoded> {
    let mut tables = Tables::default();
    let mut frame: Option<Frame> = None;
    let mut is_rgb = false;
    let mut rest = file.strip_prefix(&[0xff, 0xd8])?;
    loop {
        let marker;
        (marker, rest) = next_marker(rest)?;
        if marker == 0xd9 {
            break;
        }
        let length = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
        let segment = rest.get(2..length)?;
        rest = &rest[length..];
        match marker {
            0xc0..=0xc2 if frame.is_none() => frame = Some(read_frame(segment, marker == 0xc2)?),
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => return None,
            0xc4 => read_huffman(segment, &mut tables)?,
            0xdb => read_quantisers(segment, &mut tables)?,
            0xdd => tables.interval = usize::from(u16::from_be_bytes(segment.try_into().ok()?)),
            // Adobe's segment says whether colours are transformed.
            0xee if segment.starts_with(b"Adobe") => is_rgb = segment.get(11) == Some(&0),
            0xda => {
                let consumed = scan::read(frame.as_mut()?, &tables, segment, rest)?;
                rest = &rest[consumed..];
            }
            _ => {}
        }
        if rest.is_empty() {
            break;
        }
    }
    finish(frame?, &tables, is_rgb)
}

/// The marker that comes next, and what follows it.
fn next_marker(mut bytes: &[u8]) -> Option<(u8, &[u8])> {
    loop {
        let at = bytes.iter().position(|&b| b == 0xff)?;
        bytes = &bytes[at..];
        match *bytes.get(1)? {
            // Filling, an escaped byte or a restart.
            0xff => bytes = &bytes[1..],
            0 | 1 | 0xd0..=0xd7 => bytes = &bytes[2..],
            marker => return Some((marker, &bytes[2..])),
        }
    }
}

fn read_frame(s: &[u8], progressive: bool) -> Option<Frame> {
    let &[8, h1, h0, w1, w0, count, ref parts @ ..] = s else { return None };
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    let (height, width) = (usize::from(height), usize::from(width));
    let sides = 1..=SIDE;
    let sound = sides.contains(&height) && sides.contains(&width) && width * height <= SAMPLES;
    if !sound || !matches!(count, 1 | 3) || parts.len() != 3 * usize::from(count) {
        return None;
    }
    let factors = |p: &[u8]| (usize::from(p[1] >> 4), usize::from(p[1] & 15));
    let all: Vec<(usize, usize)> = parts.chunks(3).map(factors).collect();
    if all.iter().any(|f| !(1..=4).contains(&f.0) || !(1..=4).contains(&f.1)) {
        return None;
    }
    let across = all.iter().map(|f| f.0).max()?;
    let down = all.iter().map(|f| f.1).max()?;
    let units = (width.div_ceil(8 * across), height.div_ceil(8 * down));
    let component = |(p, (h, v)): (&[u8], (usize, usize))| {
        let (columns, rows) = (units.0 * h, units.1 * v);
        Component {
            id: p[0],
            across: h,
            down: v,
            quantiser: usize::from(p[2] & 3),
            columns,
            rows,
            width: (width * h).div_ceil(across),
            height: (height * v).div_ceil(down),
            blocks: vec![[0; 64]; columns * rows],
        }
    };
    let components = parts.chunks(3).zip(all).map(component).collect();
    Some(Frame { width, height, progressive, across, down, components })
}

fn read_huffman(mut s: &[u8], tables: &mut Tables) -> Option<()> {
    while let Some((&class, after)) = s.split_first() {
        let counts: &[u8; 16] = after.get(..16)?.try_into().ok()?;
        let total = counts.iter().map(|&n| usize::from(n)).sum::<usize>();
        let values = after.get(16..16 + total)?;
        let table = Some(HuffmanTable::new(counts, values)?);
        let place = usize::from(class & 3);
        match class >> 4 {
            0 => tables.dc[place] = table,
            1 => tables.ac[place] = table,
            _ => return None,
        }
        s = &after[16 + total..];
    }
    Some(())
}

fn read_quantisers(mut s: &[u8], tables: &mut Tables) -> Option<()> {
    while let Some((&head, after)) = s.split_first() {
        let size = if head >> 4 == 0 { 1 } else { 2 };
        let stored = after.get(..64 * size)?;
        let mut table = [0; 64];
        for (i, v) in stored.chunks(size).enumerate() {
            table[ZIGZAG[i]] = v.iter().fold(0, |n, &b| n << 8 | u16::from(b));
        }
        tables.quantisers[usize::from(head & 3)] = Some(table);
        s = &after[64 * size..];
    }
    Some(())
}

fn finish(frame: Frame, tables: &Tables, is_rgb: bool) -> Option<Decoded> {
    let (width, height) = (frame.width, frame.height);
    let mut planes = vec![];
    for c in &frame.components {
        let quantiser = tables.quantisers[c.quantiser].as_ref()?;
        let (all, rows) = (frame.across, frame.down);
        let factors = SamplingFactors { all, across: c.across, rows, down: c.down };
        planes.push(Plane::of(c, quantiser).upsampled(factors)?);
    }
    let at = |p: &Plane, i: usize| p.samples[i / width * p.stride + i % width];
    let count = width * height;
    let samples = match planes.as_slice() {
        [gray] => (0..count).map(|i| at(gray, i)).collect(),
        [a, b, c] => {
            let pixel = |i: usize| {
                let v = [at(a, i), at(b, i), at(c, i)];
                if is_rgb { v } else { samples::rgb(v) }
            };
            (0..count).flat_map(pixel).collect()
        }
        _ => return None,
    };
    Some(Decoded { width, height, channels: planes.len(), samples })
}
