//! Boxes and broadcasts under a reshape: which box of the operand a box of the result is, if it is one, and
//! how a broadcast of the result becomes one of the operand.
//!
//! The axes of both shapes form groups of equal products, which a reshape maps to each other one by one. Within a
//! group, a box is the image of a box if its elements are contiguous.

use crate::eval::EvalError;
use crate::ir::Extent;

/// First indices and extents, axis by axis.
type Part = Vec<(Extent, Extent)>;

/// The box of a tensor of shape `from` that its reshape to `to` shows as the box `start`, `size`.
pub(crate) fn before_reshape(
    from: &[Extent],
    to: &[Extent],
    start: &[Extent],
    size: &[Extent],
) -> Result<Part, EvalError> {
    let none = || EvalError::invalid("the box is none of the tensor before the reshape");
    if start.len() != to.len() || size.len() != to.len() {
        return Err(EvalError::invalid("the lists have different lengths"));
    }
    if from.iter().chain(to).chain(size).any(|d| d.is(0)) {
        return Err(EvalError::invalid("an empty tensor has no blocks of axes"));
    }
    let (mut out, mut i, mut j) = (Vec::new(), 0, 0);
    while i < from.len() || j < to.len() {
        let (i_end, j_end) = block(from, to, i, j).ok_or_else(none)?;
        let (f, t) = (&from[i..i_end], &to[j..j_end]);
        out.extend(in_block(f, t, &start[j..j_end], &size[j..j_end]).ok_or_else(none)?);
        (i, j) = (i_end, j_end);
    }
    Ok(out)
}

/// The ends of the smallest block that begins at these axes.
fn block(from: &[Extent], to: &[Extent], i: usize, j: usize) -> Option<(usize, usize)> {
    let mut whole = Extent::from(1);
    for i_end in i..=from.len() {
        if i_end > i {
            whole = &whole * &from[i_end - 1];
        }
        let mut part = Extent::from(1);
        for j_end in j..=to.len() {
            if j_end > j {
                part = &part * &to[j_end - 1];
            }
            if part == whole && !part.is_too_large() && (i_end > i || j_end > j) {
                return Some((i_end, j_end));
            }
        }
    }
    None
}

fn in_block(from: &[Extent], to: &[Extent], start: &[Extent], size: &[Extent]) -> Option<Part> {
    if size == to && start.iter().all(|s| s.is(0)) {
        return Some(from.iter().map(|d| (Extent::from(0), d.clone())).collect());
    }
    let (offset, count) = run(to, start, size)?;
    rows(from, &offset, &count)
}

/// The elements of a box as one run in row-major order: where it begins, how long it is.
fn run(shape: &[Extent], start: &[Extent], size: &[Extent]) -> Option<(Extent, Extent)> {
    let partial = |k: usize| !(start[k].is(0) && size[k] == shape[k]);
    let last = (0..shape.len()).rev().find(|&k| partial(k)).unwrap_or(0);
    if size[..last].iter().any(|n| !n.is(1)) {
        return None;
    }
    let mut offset = Extent::from(0);
    for (d, s) in shape.iter().zip(start) {
        offset = &(&offset * d) + s;
    }
    Some((offset, size.iter().fold(Extent::from(1), |a, n| &a * n)))
}

/// The box that a run of elements is, if it is one.
fn rows(shape: &[Extent], offset: &Extent, count: &Extent) -> Option<Part> {
    let known = |e: &Extent| e.as_const();
    if let Some(at) = only_wide(shape) {
        let mut out = vec![(Extent::from(0), Extent::from(1)); shape.len()];
        out[at] = (offset.clone(), count.clone());
        return Some(out);
    }
    let dims = shape.iter().map(known).collect::<Option<Vec<i64>>>()?;
    let (offset, count) = (known(offset)?, known(count)?);
    // From the last axis on, as long as whole rows are taken.
    let (mut first, mut left) = (offset, count);
    let mut out = vec![(0, 1); dims.len()];
    for (k, &d) in dims.iter().enumerate().rev() {
        let at = first % d;
        first /= d;
        if left % d == 0 && at == 0 && left > 1 {
            out[k] = (0, d);
            left /= d;
            continue;
        }
        if left > 1 && at + left > d {
            return None;
        }
        out[k] = (at, left);
        left = 1;
    }
    let pair = |(s, n): (i64, i64)| (Extent::from(s), Extent::from(n));
    (left == 1).then(|| out.into_iter().map(pair).collect())
}

/// The one axis that is no unit axis, if there is one only.
fn only_wide(shape: &[Extent]) -> Option<usize> {
    let mut wide = (0..shape.len()).filter(|&k| !shape[k].is(1));
    wide.next().filter(|_| wide.next().is_none())
}

/// A broadcast of a reshape from `from` to `to`, as places and shape of a broadcast before a reshape: axes of a
/// block that stand side by side become those that the block had before.
pub(crate) fn before_spread(
    from: &[Extent],
    to: &[Extent],
    map: &[Extent],
    shape: &[Extent],
) -> Result<(Vec<Extent>, Vec<Extent>), EvalError> {
    let none = || EvalError::invalid("the reshape is not one of blocks that stay together");
    let places: Vec<usize> = map
        .iter()
        .map(|p| p.as_const().and_then(|p| usize::try_from(p).ok()))
        .collect::<Option<_>>()
        .filter(|p: &Vec<usize>| p.len() == to.len() && p.iter().all(|&p| p < shape.len()))
        .ok_or_else(none)?;
    if from.iter().chain(shape).any(|d| d.is(0)) {
        return Err(EvalError::invalid("an empty tensor has no blocks of axes"));
    }
    // Where each axis of the result begins, as the axes that take its place; the rest of a block takes none.
    let mut instead: Vec<Option<&[Extent]>> = vec![None; shape.len()];
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let (i_end, j_end) = block(from, to, i, j).ok_or_else(none)?;
        let together = (j + 1..j_end).all(|k| places[k] == places[k - 1] + 1);
        if i == i_end || j == j_end || !together {
            return Err(none());
        }
        instead[places[j]] = Some(&from[i..i_end]);
        (j + 1..j_end).for_each(|k| instead[places[k]] = Some(&[]));
        (i, j) = (i_end, j_end);
    }
    let (mut spread, mut whole) = (Vec::new(), Vec::new());
    for (axes, d) in instead.into_iter().zip(shape) {
        match axes {
            Some(axes) => {
                spread.extend((0..axes.len()).map(|k| Extent::from(whole.len() + k)));
                whole.extend_from_slice(axes);
            }
            None => whole.push(d.clone()),
        }
    }
    Ok((spread, whole))
}

/// The tensor around a slice that is reshaped: the shape that the whole takes, and where the slice then begins, so
/// that slicing after the reshape yields the same. `whole` are the extents before, `start` and `size` the slice.
pub(crate) fn after_slice(
    whole: &[Extent],
    start: &[Extent],
    size: &[Extent],
    to: &[Extent],
) -> Result<(Vec<Extent>, Vec<Extent>), EvalError> {
    let none = || EvalError::invalid("the slice of the reshape is none of the whole");
    if start.len() != whole.len() || size.len() != whole.len() {
        return Err(EvalError::invalid("the lists have different lengths"));
    }
    if whole.iter().chain(size).any(|d| d.is(0)) {
        return Err(EvalError::invalid("an empty tensor has no blocks of axes"));
    }
    let (mut shape, mut begin) = (to.to_vec(), vec![Extent::from(0); to.len()]);
    let (mut i, mut j) = (0, 0);
    while i < size.len() || j < to.len() {
        let (i_end, j_end) = block(size, to, i, j).ok_or_else(none)?;
        let cut: Vec<usize> =
            (i..i_end).filter(|&k| size[k] != whole[k] || !start[k].is(0)).collect();
        match cut.as_slice() {
            [] => {}
            // A slice along the first axis of a block takes whole rows of it.
            [k] if *k == i && j < j_end => {
                let below =
                    |list: &[Extent]| list.iter().fold(Extent::from(1), |product, d| &product * d);
                let (inner, row) = (below(&size[i + 1..i_end]), below(&to[j + 1..j_end]));
                let scaled = |n: &Extent| (n * &inner).div_exact(&row).ok_or_else(none);
                (shape[j], begin[j]) = (scaled(&whole[i])?, scaled(&start[i])?);
            }
            _ => return Err(none()),
        }
        (i, j) = (i_end, j_end);
    }
    Ok((shape, begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(v: &[i64]) -> Vec<Extent> {
        v.iter().map(|&v| Extent::from(v)).collect()
    }

    fn boxed(from: &[i64], to: &[i64], start: &[i64], size: &[i64]) -> Option<Vec<(i64, i64)>> {
        let found = before_reshape(&list(from), &list(to), &list(start), &list(size)).ok()?;
        Some(found.iter().map(|(s, n)| (s.as_const().unwrap(), n.as_const().unwrap())).collect())
    }

    #[test]
    fn boxes_before_a_reshape() {
        // One of three parts of a split axis.
        let part = boxed(&[32, 768], &[2, 16, 3, 4, 64], &[0, 0, 1, 0, 0], &[2, 16, 1, 4, 64]);
        assert_eq!(part, Some(vec![(0, 32), (256, 256)]));
        // Axes that are kept.
        let kept = boxed(&[32, 768], &[2, 16, 768], &[0, 0, 256], &[2, 16, 256]);
        assert_eq!(kept, Some(vec![(0, 32), (256, 256)]));
        // Rows of a block, and one element of it.
        assert_eq!(boxed(&[4, 6], &[24], &[6], &[12]), Some(vec![(1, 2), (0, 6)]));
        assert_eq!(boxed(&[4, 6], &[24], &[8], &[1]), Some(vec![(1, 1), (2, 1)]));
        assert_eq!(boxed(&[4, 6], &[24], &[8], &[3]), Some(vec![(1, 1), (2, 3)]));
        // Unit axes on either side.
        assert_eq!(boxed(&[1, 6, 1], &[6], &[2], &[3]), Some(vec![(0, 1), (2, 3), (0, 1)]));
        assert_eq!(boxed(&[6], &[1, 6, 1], &[0, 2, 0], &[1, 3, 1]), Some(vec![(2, 3)]));
        assert_eq!(boxed(&[], &[1, 1], &[0, 0], &[1, 1]), Some(vec![]));
    }

    #[test]
    fn broadcasts_before_a_reshape() {
        let spread = |from: &[i64], to: &[i64], map: &[i64], shape: &[i64]| {
            let found = before_spread(&list(from), &list(to), &list(map), &list(shape)).ok()?;
            let known = |v: Vec<Extent>| v.iter().map(|v| v.as_const().unwrap()).collect();
            Some::<(Vec<i64>, Vec<i64>)>((known(found.0), known(found.1)))
        };
        // Joined axes are taken apart again, split ones joined; what is repeated stays where it is.
        let joined = spread(&[2, 3, 4, 5], &[2, 3, 20], &[0, 1, 3], &[2, 3, 7, 20]);
        assert_eq!(joined, Some((vec![0, 1, 3, 4], vec![2, 3, 7, 4, 5])));
        let split = spread(&[2, 20], &[2, 4, 5], &[1, 2, 3], &[7, 2, 4, 5]);
        assert_eq!(split, Some((vec![1, 2], vec![7, 2, 20])));
        // A block that is torn apart, and unit axes that belong to none.
        assert_eq!(spread(&[20], &[4, 5], &[0, 2], &[4, 7, 5]), None);
        assert_eq!(spread(&[1, 20], &[20], &[1], &[7, 20]), None);
    }

    #[test]
    fn reshapes_of_slices_are_slices_of_reshapes() {
        let around = |whole: &[i64], start: &[i64], size: &[i64], to: &[i64]| {
            let found = after_slice(&list(whole), &list(start), &list(size), &list(to)).ok()?;
            let known = |v: Vec<Extent>| v.iter().map(|v| v.as_const().unwrap()).collect();
            Some::<(Vec<i64>, Vec<i64>)>((known(found.0), known(found.1)))
        };
        let heads = around(&[32, 768], &[0, 256], &[32, 256], &[2, 16, 4, 64]);
        assert_eq!(heads, Some((vec![2, 16, 12, 64], vec![0, 0, 4, 0])));
        let joined = around(&[6, 4], &[2, 0], &[3, 4], &[12]);
        assert_eq!(joined, Some((vec![24], vec![8])));
        // Half a row more, and a slice of an inner axis that is joined with an outer one.
        assert_eq!(around(&[32, 800], &[0, 256], &[32, 256], &[2, 16, 4, 64]), None);
        assert_eq!(around(&[4, 6], &[0, 2], &[4, 3], &[12]), None);
    }

    #[test]
    fn what_is_no_box() {
        // Every second half of a row, and a run across rows.
        assert_eq!(boxed(&[12], &[3, 4], &[0, 2], &[3, 2]), None);
        assert_eq!(boxed(&[4, 6], &[24], &[4], &[6]), None);
        assert_eq!(boxed(&[0], &[0, 4], &[0, 0], &[0, 2]), None);
    }

    #[test]
    fn symbols_are_extents_like_others() {
        let (b, n) = (Extent::sym("b"), Extent::from(16));
        let from = [&b * &n, Extent::from(768)];
        let to = [b.clone(), n.clone(), Extent::from(3), Extent::from(256)];
        let start = list(&[0, 0, 2, 0]);
        let size = [b.clone(), n.clone(), Extent::from(1), Extent::from(256)];
        let found = before_reshape(&from, &to, &start, &size).unwrap();
        assert_eq!(found[0], (Extent::from(0), &b * &n));
        assert_eq!(found[1], (Extent::from(512), Extent::from(256)));
    }
}
