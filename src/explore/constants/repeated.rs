//! Constants that are the same along some axes: one of the equal parts says it all.
//!
//! What is computed of a repeated constant may come out repeated, too, many times as large as what it is made of; a view of one part costs nothing.

use mlc_dsl::ir::{DType, Tensor};

/// Bytes below which a constant is kept as it is.
const LEAST: usize = 64 << 10;

/// One of the equal parts that a large tensor consists of, and where its axes are in the tensor; none if it does not repeat.
pub fn part(t: &Tensor) -> Option<(Tensor, Vec<i64>)> {
    let size = t.dtype().size();
    if t.dtype() == DType::Str || t.bytes().len() != t.len() * size || t.bytes().len() < LEAST {
        return None;
    }
    let mut bytes = t.bytes().clone();
    let (mut shape, mut axes) = (Vec::new(), Vec::new());
    // Bytes of a part behind the axis, and of the parts before it that are left.
    let mut inner = bytes.len();
    for (axis, &n) in t.shape().iter().enumerate() {
        let whole = inner;
        inner /= n;
        let repeats = n > 1
            && bytes.chunks_exact(whole).all(|block| {
                let (first, rest) = block.split_at(inner);
                rest.chunks_exact(inner).all(|part| part == first)
            });
        if repeats {
            let firsts = bytes.chunks_exact(whole).flat_map(|block| &block[..inner]);
            bytes = firsts.copied().collect::<Vec<u8>>().into();
        } else {
            shape.push(n);
            axes.push(axis as i64);
        }
    }
    let part = Tensor::new(t.dtype(), shape, bytes).ok()?;
    (axes.len() < t.shape().len()).then(|| (part.computed_from([t]), axes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_kept_once() {
        type Element = fn(usize, usize, usize) -> usize;
        let of = |shape: [usize; 3], f: Element| {
            let [a, b, c] = shape;
            let at = |i: usize| f(i / c / b, i / c % b, i % c) as f32;
            Tensor::from_f32(shape.to_vec(), (0..a * b * c).map(at).collect())
        };
        let shape = [8, 40, 64];
        let cases: [(Element, &[i64]); 5] = [
            (|_, j, k| 64 * j + k, &[1, 2]),
            (|i, _, k| 64 * i + k, &[0, 2]),
            (|i, j, _| 40 * i + j, &[0, 1]),
            (|_, j, _| j, &[1]),
            (|_, _, _| 3, &[]),
        ];
        for (f, axes) in cases {
            let (part, kept) = part(&of(shape, f)).expect("it repeats");
            assert_eq!(kept, axes);
            let extents: Vec<usize> = axes.iter().map(|&a| shape[a as usize]).collect();
            assert_eq!(part.shape(), extents);
            let index = |at: usize, axis: usize| {
                let behind = axes.iter().position(|&a| a as usize == axis)?;
                Some(at / extents[behind + 1..].iter().product::<usize>() % extents[behind])
            };
            for (at, v) in part.to_f64().into_iter().enumerate() {
                let [i, j, k] = [0, 1, 2].map(|axis| index(at, axis).unwrap_or(0));
                assert_eq!(v, f(i, j, k) as f64);
            }
        }
        assert!(part(&of(shape, |i, j, k| i + j + k)).is_none(), "no part is another");
        assert!(part(&of([2, 3, 4], |_, _, _| 0)).is_none(), "too small to matter");
    }
}
