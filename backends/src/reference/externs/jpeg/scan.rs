//! Decodes the coefficients of a scan: some components, a spectral band, and a bit range (successive approximation).

use super::bits::{Bits, HuffmanTable};
use super::{Block, Frame, Tables, ZIGZAG};

/// A component of a scan, by its place in the frame, with its codes.
struct Part<'t> {
    component: usize,
    dc: Option<&'t HuffmanTable>,
    ac: Option<&'t HuffmanTable>,
}

/// Which frequencies a scan has, and which bits of them.
struct Band {
    first: usize,
    last: usize,
    /// Bits that earlier scans have left out; 0 in the first scan of these frequencies.
    high: u32,
    /// Bits that this scan leaves out.
    low: u32,
}

/// What is carried from block to block.
struct State {
    bits_before: Vec<i32>,
    /// Blocks that have no more coefficients of this band.
    blank: u32,
}

/// Reads a scan into the frame; the number of bytes that it takes.
pub(crate) fn read(frame: &mut Frame, tables: &Tables, head: &[u8], data: &[u8]) -> Option<usize> {
    let (&count, head) = head.split_first()?;
    let count = usize::from(count);
    let mut parts = vec![];
    for entry in head.get(..2 * count)?.chunks(2) {
        let component = frame.components.iter().position(|c| c.id == entry[0])?;
        let dc = tables.dc[usize::from(entry[1] >> 4 & 3)].as_ref();
        let ac = tables.ac[usize::from(entry[1] & 3)].as_ref();
        parts.push(Part { component, dc, ac });
    }
    let &[first, last, bits] = head.get(2 * count..2 * count + 3)? else { return None };
    let band = match frame.progressive {
        true => Band {
            first: first.into(),
            last: last.into(),
            high: u32::from(bits >> 4),
            low: u32::from(bits & 15),
        },
        false => Band { first: 0, last: 63, high: 0, low: 0 },
    };
    let sound = band.first <= band.last && band.last < 64 && band.low < 14;
    if !sound || parts.is_empty() || band.first > 0 && parts.len() > 1 {
        return None;
    }
    let mut bits = Bits::new(data);
    let mut state = State { bits_before: vec![0; frame.components.len()], blank: 0 };
    for (n, unit) in units(frame, &parts).into_iter().enumerate() {
        if tables.interval > 0 && n > 0 && n % tables.interval == 0 {
            if !bits.restart() {
                break;
            }
            state.bits_before.fill(0);
            state.blank = 0;
        }
        for (part, at) in unit {
            let block = &mut frame.components[parts[part].component].blocks[at];
            read_block(block, &parts[part], &band, frame.progressive, &mut bits, &mut state)?;
        }
        if bits.is_exhausted() {
            break;
        }
    }
    Some(bits.consumed())
}

/// The blocks of each unit of a scan: the part of the scan, and the place in its component.
fn units(frame: &Frame, parts: &[Part<'_>]) -> Vec<Vec<(usize, usize)>> {
    if let [only] = parts {
        let c = &frame.components[only.component];
        let (columns, rows) = (c.width.div_ceil(8), c.height.div_ceil(8));
        let place = |i: usize| vec![(0, i / columns * c.columns + i % columns)];
        return (0..columns * rows).map(place).collect();
    }
    let columns = frame.width.div_ceil(8 * frame.across);
    let rows = frame.height.div_ceil(8 * frame.down);
    let unit = |i: usize| {
        let (row, column) = (i / columns, i % columns);
        let of = |(k, part): (usize, &Part<'_>)| {
            let c = &frame.components[part.component];
            let (across, down, stride) = (c.across, c.down, c.columns);
            let at =
                move |j: usize| (row * down + j / across) * stride + column * across + j % across;
            (0..across * down).map(move |j| (k, at(j)))
        };
        parts.iter().enumerate().flat_map(of).collect()
    };
    (0..columns * rows).map(unit).collect()
}

fn read_block(
    block: &mut Block,
    part: &Part<'_>,
    band: &Band,
    progressive: bool,
    bits: &mut Bits<'_>,
    state: &mut State,
) -> Option<()> {
    if band.first == 0 {
        if band.high > 0 {
            block[0] |= (bits.bit() << band.low) as i16;
        } else {
            let size = bits.word(part.dc?)?;
            let before = &mut state.bits_before[part.component];
            *before = before.wrapping_add(bits.number(u32::from(size.min(16))));
            block[0] = (*before << band.low) as i16;
        }
    }
    match (band.last, band.high) {
        (0, _) => Some(()),
        (_, 0) => first_bits(block, part.ac?, band, progressive, bits, state),
        _ => more_bits(block, part.ac?, band, bits, state),
    }
}

/// Coefficients that no earlier scan has.
fn first_bits(
    block: &mut Block,
    code: &HuffmanTable,
    band: &Band,
    progressive: bool,
    bits: &mut Bits<'_>,
    state: &mut State,
) -> Option<()> {
    if state.blank > 0 {
        state.blank -= 1;
        return Some(());
    }
    let mut k = band.first.max(1);
    while k <= band.last {
        let word = bits.word(code)?;
        let (zeros, size) = (usize::from(word >> 4), u32::from(word & 15));
        match (zeros, size) {
            (15, 0) => k += 16,
            (n, 0) => {
                if progressive && n > 0 {
                    state.blank = (1 << n) + bits.bits(n as u32) - 1;
                }
                break;
            }
            _ => {
                k += zeros;
                let place = *ZIGZAG.get(k)?;
                block[place] = (bits.number(size) << band.low) as i16;
                k += 1;
            }
        }
    }
    Some(())
}

/// One more bit of coefficients, and those that were zero before.
fn more_bits(
    block: &mut Block,
    code: &HuffmanTable,
    band: &Band,
    bits: &mut Bits<'_>,
    state: &mut State,
) -> Option<()> {
    let one = 1i16 << band.low;
    let refine = |c: &mut i16, bits: &mut Bits<'_>| {
        if bits.bit() == 1 && *c & one == 0 {
            *c = c.wrapping_add(if *c > 0 { one } else { -one });
        }
    };
    let mut k = band.first.max(1);
    if state.blank == 0 {
        while k <= band.last {
            let word = bits.word(code)?;
            let (mut zeros, size) = (usize::from(word >> 4), word & 15);
            let mut fresh = 0;
            match (zeros, size) {
                (15, 0) => {}
                (n, 0) => {
                    state.blank = (1 << n) + bits.bits(n as u32);
                    break;
                }
                _ => fresh = if bits.bit() == 1 { one } else { -one },
            }
            while k <= band.last {
                let c = &mut block[ZIGZAG[k]];
                k += 1;
                if *c != 0 {
                    refine(c, bits);
                } else if zeros == 0 {
                    *c = fresh;
                    break;
                } else {
                    zeros -= 1;
                }
            }
        }
    }
    if state.blank > 0 {
        for place in &ZIGZAG[k..=band.last] {
            if block[*place] != 0 {
                refine(&mut block[*place], bits);
            }
        }
        state.blank -= 1;
    }
    Some(())
}
