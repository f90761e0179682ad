//! Slices of the arena, borrowed for one kernel: those that it writes, and everything between them.
//!
//! Never gives a byte both to a writer and to anyone else: a plan whose buffers overlap is an error, not a race.

/// A part of the block: where it begins, and its bytes.
pub type Part = (usize, usize);

/// A block with parts lent to a writer. Its lists are those of an earlier one, so that lending allocates nothing.
#[derive(Default)]
pub struct BorrowedBlock<'a> {
    /// The parts that are written, in the order in which they were asked for.
    pub written: Vec<&'a mut [u8]>,
    /// Ranges that are only read, in order.
    between: Vec<(usize, &'a [u8])>,
    /// The parts that are written, by where they begin.
    order: Vec<(Part, usize)>,
}

/// An empty list in the memory of another one.
pub fn recycled<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // Collected in place, as elements of one layout are.
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// The parts `written`, in their order, and the rest of the block. Nothing if two of them overlap or one lies outside.
pub fn borrow_block<'a>(
    block: &'a mut [u8],
    written: impl Iterator<Item = Part>,
    used: BorrowedBlock<'_>,
) -> Option<BorrowedBlock<'a>> {
    let mut lent = used.recycled();
    for (i, part) in written.enumerate() {
        lent.written.push(nothing());
        if part.1 > 0 {
            lent.order.push((part, i));
        }
    }
    lent.order.sort_unstable();
    let (mut rest, mut at) = (block, 0usize);
    for &((start, len), i) in &lent.order {
        let (before, tail) = rest.split_at_mut_checked(start.checked_sub(at)?)?;
        let (own, tail) = tail.split_at_mut_checked(len)?;
        lent.between.push((at, &*before));
        lent.written[i] = own;
        (rest, at) = (tail, start + len);
    }
    lent.between.push((at, &*rest));
    Some(lent)
}

/// No bytes, aligned for elements of every type.
pub fn nothing<'a>() -> &'a mut [u8] {
    bytemuck::cast_slice_mut::<u64, u8>(&mut [])
}

impl<'a> BorrowedBlock<'a> {
    /// The same lists without a block.
    pub fn recycled<'b>(self) -> BorrowedBlock<'b> {
        BorrowedBlock {
            written: recycled(self.written),
            between: recycled(self.between),
            order: recycled(self.order),
        }
    }

    /// A part that is only read.
    pub fn read(&self, part: Part) -> Option<&'a [u8]> {
        let (start, len) = part;
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
        let parts = [(6, 2), (2, 3), (0, 0)].into_iter();
        let mut rest = borrow_block(&mut block, parts, BorrowedBlock::default()).expect("apart");
        assert_eq!(rest.written, [&[6, 7][..], &[2, 3, 4], &[]]);
        assert_eq!(rest.read((0, 2)), Some(&[0, 1][..]));
        assert_eq!(rest.read((5, 1)), Some(&[5][..]));
        assert_eq!(rest.read((8, 2)), Some(&[8, 9][..]));
        assert_eq!(rest.read((3, 0)), Some(&[][..]));
        for written in [(1, 2), (2, 1), (4, 2), (7, 2), (9, 2)] {
            assert_eq!(rest.read(written), None, "{written:?}");
        }
        rest.written[0].fill(1);
        assert_eq!(block[6..8], [1, 1]);
    }

    #[test]
    fn parts_that_overlap_are_not_lent() {
        let mut block = [0u8; 8];
        let mut is_lent = |parts: &[Part]| {
            borrow_block(&mut block, parts.iter().copied(), BorrowedBlock::default()).is_some()
        };
        assert!(!is_lent(&[(0, 4), (3, 2)]));
        assert!(!is_lent(&[(6, 4)]));
        assert!(!is_lent(&[(9, 1)]));
        assert!(is_lent(&[(4, 4), (0, 4)]));
    }

    #[test]
    fn lists_stay_where_they_are() {
        let list: Vec<&[u8]> = Vec::with_capacity(5);
        let at = list.as_ptr() as usize;
        let other: Vec<&[u8]> = recycled(list);
        assert_eq!((other.as_ptr() as usize, other.capacity()), (at, 5));
    }
}
