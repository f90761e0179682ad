//! Elements that are texts: a number of UTF-32 code units each, filled up with zeros, as NumPy's type `U` has them.

use bytes::Bytes;
use mlc_dsl::ir::Tensor;

/// Bytes of a code unit.
pub(super) const UNIT: usize = 4;

/// Code units of the longest text, at least one.
pub(super) fn width(t: &Tensor) -> usize {
    (0..t.len()).map(|i| t.get_str(i).chars().count()).max().unwrap_or(0).max(1)
}

/// The texts of a tensor.
pub(super) fn written(t: &Tensor) -> Bytes {
    let bytes = UNIT * width(t);
    let mut out = Vec::with_capacity(t.len() * bytes);
    for i in 0..t.len() {
        let end = out.len() + bytes;
        out.extend(t.get_str(i).chars().flat_map(|c| u32::from(c).to_le_bytes()));
        out.resize(end, 0);
    }
    Bytes::from(out)
}

/// The texts of `size` bytes each; `None` if a code unit is no character.
pub(super) fn read(data: &[u8], size: usize, count: usize) -> Option<Vec<String>> {
    let text = |bytes: &[u8]| {
        let units = bytes.as_chunks::<UNIT>().0.iter().map(|&u| u32::from_le_bytes(u));
        let text: Option<String> = units.map(char::from_u32).collect();
        text.map(|t| t.trim_end_matches('\0').to_string())
    };
    match size {
        0 => Some(vec![String::new(); count]),
        _ => data.chunks_exact(size).map(text).collect(),
    }
}
