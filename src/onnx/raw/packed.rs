//! Elements of fewer than 8 bits as files hold them: without gaps, the first in the lowest bits.

use bytes::Bytes;
use mlc_dsl::ir::{DType, Tensor};

/// True if files hold elements of this type in less than a byte each.
pub(crate) fn is_packed(dtype: DType) -> bool {
    dtype.bits() < 8
}

/// The elements of a tensor as files hold them.
pub(crate) fn stored(t: &Tensor) -> Bytes {
    match is_packed(t.dtype()) {
        true => pack(t.dtype(), t.bytes()),
        false => t.bytes().clone(),
    }
}

fn pack(dtype: DType, elements: &[u8]) -> Bytes {
    let bits = dtype.bits();
    let mut out = vec![0u8; (elements.len() * bits).div_ceil(8)];
    for (i, &e) in elements.iter().enumerate() {
        let (byte, shift) = (i * bits / 8, i * bits % 8);
        let both = u16::from(e & ((1 << bits) - 1)) << shift;
        out[byte] |= both as u8;
        if both > 0xff {
            out[byte + 1] |= (both >> 8) as u8;
        }
    }
    Bytes::from(out)
}

/// A byte for each of `count` elements.
///
/// # Errors
/// There are fewer or more bytes than hold them.
pub(crate) fn unpack(dtype: DType, packed: &[u8], count: usize) -> Result<Bytes, String> {
    let bits = dtype.bits();
    let wanted = (count as u128 * bits as u128).div_ceil(8);
    if packed.len() as u128 != wanted {
        let found = packed.len();
        return Err(format!("{count} elements of {dtype} are in {wanted} bytes, {found} given"));
    }
    let element = |i: usize| {
        let (byte, shift) = (i * bits / 8, i * bits % 8);
        let next = packed.get(byte + 1).copied().unwrap_or(0);
        let both = u16::from(packed[byte]) | u16::from(next) << 8;
        dtype.canonical((both >> shift) as u8)
    };
    Ok((0..count).map(element).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_is_in_the_lowest_bits() {
        let i4 = Tensor::from_i64(DType::I4, vec![3], &[1, -2, 7]);
        assert_eq!(stored(&i4)[..], [0xe1, 0x07]);
        let u2 = Tensor::from_i64(DType::U2, vec![5], &[0, 1, 2, 3, 1]);
        assert_eq!(stored(&u2)[..], [0b1110_0100, 1]);
        let codes = Bytes::from_static(&[1, 2, 3, 4, 0x3f]);
        let f6 = Tensor::new(DType::F6E2M3, vec![5], codes).expect("five codes");
        assert_eq!(stored(&f6)[..], [0x81, 0x30, 0x10, 0x3f]);
    }

    #[test]
    fn every_length_of_every_type_comes_back() {
        for dtype in DType::ALL.into_iter().filter(|d| is_packed(*d)) {
            for n in 0..19usize {
                let codes: Bytes = (0..n).map(|i| (i * 37 + 11) as u8).collect();
                let t = Tensor::new(dtype, vec![n], codes).expect("as long as its shape");
                let packed = stored(&t);
                assert_eq!(packed.len(), (n * dtype.bits()).div_ceil(8));
                assert_eq!(unpack(dtype, &packed, n).as_ref(), Ok(t.bytes()), "{dtype} {n}");
                let longer: Vec<u8> = packed.iter().copied().chain([0]).collect();
                assert!(unpack(dtype, &longer, n).is_err());
            }
        }
    }
}
