//! Slices of one block of memory, borrowed for one launch: those that it writes, and everything between them.
//!
//! Never gives a byte both to a writer and to anyone else: a plan whose buffers overlap is an error, not a race.

/// A part of the block: where it begins, and its bytes.
pub type Part = (usize, usize);

/// A block with parts lent to a writer.
pub struct Lent<'a> {
    /// Ranges that are only read, in order.
    between: Vec<(usize, &'a [u8])>,
}

/// The parts `written`, in their order, and the rest of the block. Nothing if two of them overlap or one lies outside.
pub fn lend<'a>(block: &'a mut [u8], written: &[Part]) -> Option<(Vec<&'a mut [u8]>, Lent<'a>)> {
    let mut order: Vec<usize> = (0..written.len()).filter(|&i| written[i].1 > 0).collect();
    order.sort_unstable_by_key(|&i| written[i]);
    let mut out: Vec<&'a mut [u8]> = written.iter().map(|_| nothing()).collect();
    let mut between = Vec::with_capacity(order.len() + 1);
    let (mut rest, mut at) = (block, 0usize);
    for i in order {
        let (start, len) = written[i];
        let (before, tail) = rest.split_at_mut_checked(start.checked_sub(at)?)?;
        let (own, tail) = tail.split_at_mut_checked(len)?;
        between.push((at, &*before));
        out[i] = own;
        (rest, at) = (tail, start + len);
    }
    between.push((at, &*rest));
    Some((out, Lent { between }))
}

/// No bytes, aligned for elements of every type.
fn nothing<'a>() -> &'a mut [u8] {
    bytemuck::cast_slice_mut::<u64, u8>(&mut [])
}

impl<'a> Lent<'a> {
    /// A part that is only read.
    pub fn read(&self, (start, len): Part) -> Option<&'a [u8]> {
        if len == 0 {
            return Some(nothing());
        }
        let i = self.between.partition_point(|b| b.0 <= start).checked_sub(1)?;
        let (at, bytes) = self.between[i];
        bytes.get(start - at..)?.get(..len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_apart_from_what_is_read() {
        let mut block: Vec<u8> = (0..10).collect();
        let (mut out, rest) = lend(&mut block, &[(6, 2), (2, 3), (0, 0)]).expect("apart");
        assert_eq!(out, [&[6, 7][..], &[2, 3, 4], &[]]);
        assert_eq!(rest.read((0, 2)), Some(&[0, 1][..]));
        assert_eq!(rest.read((5, 1)), Some(&[5][..]));
        assert_eq!(rest.read((8, 2)), Some(&[8, 9][..]));
        assert_eq!(rest.read((3, 0)), Some(&[][..]));
        for written in [(1, 2), (2, 1), (4, 2), (7, 2), (9, 2)] {
            assert_eq!(rest.read(written), None, "{written:?}");
        }
        out[0].fill(1);
        assert_eq!(block[6..8], [1, 1]);
    }

    #[test]
    fn parts_that_overlap_are_not_lent() {
        let mut block = [0u8; 8];
        assert!(lend(&mut block, &[(0, 4), (3, 2)]).is_none());
        assert!(lend(&mut block, &[(6, 4)]).is_none());
        assert!(lend(&mut block, &[(9, 1)]).is_none());
        assert!(lend(&mut block, &[(4, 4), (0, 4)]).is_some());
    }
}
