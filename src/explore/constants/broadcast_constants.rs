//! Broadcast constants: a constant that repeats along some axes is stored once and viewed.
//!
//! Folding may enlarge a repeated constant many times; a view of one period costs nothing.

use mlc_dsl::ir::{DType, Tensor};

/// Bytes below which a constant is kept as it is.
const LEAST: usize = 64 << 10;

/// One period of a large tensor, and where its axes are in the tensor; `None` if the tensor does not repeat.
pub fn one_period(t: &Tensor) -> Option<(Tensor, Vec<i64>)> {
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
            let (part, kept) = one_period(&of(shape, f)).expect("it repeats");
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
        assert!(one_period(&of(shape, |i, j, k| i + j + k)).is_none(), "no part is another");
        assert!(one_period(&of([2, 3, 4], |_, _, _| 0)).is_none(), "too small to matter");
    }
}
