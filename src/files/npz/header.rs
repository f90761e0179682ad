//! The header of a NumPy array: a Python dictionary of type, memory order and shape.
//!
//! Parses only as much Python as such a dictionary needs, and validates every number.

use super::{DAMAGED, DType, HEADER, Tensor, Wrong, text, wrong};
use bytes::Bytes;
use std::io::Read;

/// How each file begins.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// Most axes that NumPy knows.
const RANK: usize = 64;

/// What a header declares.
pub(super) struct Header {
    dtype: DType,
    /// Bytes of an element in the file.
    size: usize,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// The header of `t` as NumPy writes it: the elements begin at a multiple of 64.
pub(super) fn write(t: &Tensor) -> Vec<u8> {
    let descr = match t.dtype() {
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
        // NumPy has no such types: their codes are written.
        DType::I4 | DType::I2 => "|i1",
        DType::Str => &format!("<U{}", text::width(t)),
        _ => "|u1",
    };
    let shape: Vec<String> = t.shape().iter().map(usize::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = shape.join(", ");
    let dict =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}{comma}), }}");
    // Version 2 differs in a longer length, which thousands of axes would need.
    let long = dict.len() > 60_000;
    let before = MAGIC.len() + if long { 6 } else { 4 };
    let total = (before + dict.len() + 1).next_multiple_of(64);
    let mut out = Vec::with_capacity(total);
    out.extend(MAGIC);
    out.extend([if long { 2 } else { 1 }, 0]);
    let length = total - before;
    match long {
        true => out.extend((length as u32).to_le_bytes()),
        false => out.extend((length as u16).to_le_bytes()),
    }
    out.extend(dict.bytes());
    out.resize(total - 1, b' ');
    out.push(b'\n');
    out
}

impl Header {
    /// Reads a header and leaves `from` at the elements.
    pub(super) fn read(mut from: impl Read) -> Result<Header, Wrong> {
        let damaged = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => wrong("the header is cut off", DAMAGED),
            _ => wrong(e, DAMAGED),
        };
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(damaged)?;
        if !start.starts_with(MAGIC) {
            return Err(wrong("it does not begin as a NumPy array does", DAMAGED));
        }
        let mut length = [0; 4];
        match start[6] {
            1 => from.read_exact(&mut length[..2]).map_err(damaged)?,
            2 | 3 => from.read_exact(&mut length).map_err(damaged)?,
            v => return Err(wrong(format!("format version {v} is unknown"), DAMAGED)),
        }
        let length = u64::from(u32::from_le_bytes(length));
        if length > HEADER {
            return Err(wrong(format!("a header of {length} bytes is too long"), DAMAGED));
        }
        let mut text = Vec::new();
        from.take(length).read_to_end(&mut text).map_err(damaged)?;
        if (text.len() as u64) < length {
            return Err(wrong("the header is cut off", DAMAGED));
        }
        // Latin-1 in the first versions: a byte beyond ASCII is in no word that is understood here.
        parse(&String::from_utf8_lossy(&text))
    }

    /// The bytes of all elements.
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.size
    }

    /// The tensor with these elements, brought into our order.
    pub(super) fn tensor(self, data: Bytes) -> Result<Tensor, Wrong> {
        let size = self.size;
        let mut data = data;
        let unit = if self.dtype == DType::Str { text::UNIT } else { size };
        if self.big_endian && unit > 1 {
            let mut swapped = data.to_vec();
            swapped.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
            data = Bytes::from(swapped);
        }
        if self.dtype == DType::Bool && data.iter().any(|&b| b > 1) {
            data = data.iter().map(|&b| u8::from(b != 0)).collect();
        }
        if self.fortran && self.shape.iter().filter(|&&d| d != 1).count() > 1 {
            data = row_major(&data, &self.shape, size);
        }
        if self.dtype == DType::Str {
            let count = self.shape.iter().product();
            let texts = text::read(&data, size, count)
                .ok_or_else(|| wrong("an element is no text", DAMAGED))?;
            return Tensor::from_strings(self.shape, texts).map_err(|e| wrong(e, DAMAGED));
        }
        Tensor::new(self.dtype, self.shape, data).map_err(|e| wrong(e, DAMAGED))
    }
}

/// Column-major elements of `size` bytes in row-major order.
fn row_major(data: &Bytes, shape: &[usize], size: usize) -> Bytes {
    let mut out = Vec::with_capacity(data.len());
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for &d in shape {
        strides.push(stride);
        stride *= d;
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    Bytes::from(out)
}

/// The dictionary of a header.
fn parse(text: &str) -> Result<Header, Wrong> {
    let mut p = Parser { rest: text };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let unclear = || wrong(format!("the header `{}` is not understood", text.trim()), DAMAGED);
    p.expect('{').ok_or_else(unclear)?;
    while p.expect('}').is_none() {
        let key = p.string().ok_or_else(unclear)?;
        p.expect(':').ok_or_else(unclear)?;
        let new = match key {
            "descr" if p.expect('[').is_some() => {
                let help = "save each field as an array of its own";
                return Err(wrong("the array has a structured type", help));
            }
            "descr" => descr.replace(p.string().ok_or_else(unclear)?).is_none(),
            "fortran_order" => fortran.replace(p.boolean().ok_or_else(unclear)?).is_none(),
            "shape" => shape.replace(p.tuple().ok_or_else(unclear)?).is_none(),
            _ => false,
        };
        if !new {
            return Err(unclear());
        }
        if p.expect(',').is_none() {
            p.expect('}').ok_or_else(unclear)?;
            break;
        }
    }
    let (Some(descr), Some(fortran), Some(shape), "") = (descr, fortran, shape, p.rest.trim())
    else {
        return Err(unclear());
    };
    let (big_endian, dtype, size) = element(descr)?;
    let mut nonzero = shape.iter().filter(|&&d| d != 0);
    let bytes = nonzero.try_fold(size.max(8), |n, &d| n.checked_mul(d));
    if bytes.is_none_or(|n| n > isize::MAX as usize) || shape.len() > RANK {
        let reason = "the declared shape has more elements than can be addressed, or over 64 axes";
        return Err(wrong(reason, DAMAGED));
    }
    Ok(Header { dtype, size, big_endian, fortran, shape })
}

/// Byte order, type and bytes of a description as `<f4`.
fn element(descr: &str) -> Result<(bool, DType, usize), Wrong> {
    let (big, code) = match descr.split_at_checked(1) {
        Some((">", code)) => (true, code),
        Some(("<" | "|" | "=", code)) => (false, code),
        _ => (false, descr),
    };
    if let Some(width) = code.strip_prefix('U').and_then(|w| w.parse::<usize>().ok()) {
        let size = width
            .checked_mul(text::UNIT)
            .ok_or_else(|| wrong("its texts are too long", DAMAGED))?;
        return Ok((big, DType::Str, size));
    }
    let dtype = match code {
        "f2" => DType::F16,
        "V2" => DType::BF16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" => DType::Bool,
        _ => {
            let help = "convert the array with `astype` to a float, integer or bool type, or texts to `str`";
            return Err(wrong(format!("element type `{descr}` is not supported"), help));
        }
    };
    Ok((big, dtype, dtype.size()))
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn expect(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Some(value);
            }
        }
        None
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        let mut out = Vec::new();
        self.expect('(')?;
        while self.expect(')').is_none() {
            self.rest = self.rest.trim_start();
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            out.push(digits.parse().ok()?);
            // Python 2 marks long integers.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if self.expect(',').is_none() {
                self.expect(')')?;
                break;
            }
        }
        Some(out)
    }
}
