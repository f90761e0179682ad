//! Memory layout of a tensor: shape, strides, offset.
//!
//! Views (transpose, broadcast, slice, most reshapes) are new layouts over the same elements. All extents here are known.

pub(crate) mod reshape_boxes;
pub mod strided_views;

use smallvec::{SmallVec, smallvec};

/// A number for each axis, without memory of its own for the usual ranks.
pub type PerAxis<T> = SmallVec<[T; 6]>;

/// Strides and offset in elements; element `i` lies at `offset + Σ i·strides`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Extents.
    pub shape: PerAxis<usize>,
    /// One stride per axis; 0 repeats, negative runs backwards.
    pub strides: PerAxis<isize>,
    /// Where element 0 lies.
    pub offset: usize,
}

/// Row-major strides of a shape.
pub fn dense_strides(shape: &[usize]) -> PerAxis<isize> {
    let mut strides = smallvec![0; shape.len()];
    let mut step = 1isize;
    for (s, &d) in strides.iter_mut().zip(shape).rev() {
        *s = step;
        step *= d.max(1) as isize;
    }
    strides
}

impl Layout {
    /// Row-major without gaps.
    pub fn dense(shape: &[usize]) -> Layout {
        Layout { shape: PerAxis::from_slice(shape), strides: dense_strides(shape), offset: 0 }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// True if the elements lie in row-major order without gaps.
    pub fn is_dense(&self) -> bool {
        let mut step = 1isize;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d != 1 && s != step {
                return self.is_empty();
            }
            step *= d as isize;
        }
        true
    }

    /// True if the elements lie so from the beginning of the memory on.
    pub fn is_whole(&self) -> bool {
        self.is_dense() && self.offset == 0
    }

    /// Axis `i` of the result is axis `perm[i]`.
    pub fn transpose(&self, perm: &[usize]) -> Option<Layout> {
        let mut seen = vec![false; self.rank()];
        for &p in perm {
            if std::mem::replace(seen.get_mut(p)?, true) {
                return None;
            }
        }
        (perm.len() == self.rank()).then(|| Layout {
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
            offset: self.offset,
        })
    }

    /// Axis `i` is axis `map[i]` of the result; the others repeat.
    pub fn broadcast(&self, map: &[usize], shape: &[usize]) -> Option<Layout> {
        let mut strides = smallvec![0; shape.len()];
        if map.len() != self.rank() || !map.windows(2).all(|w| w[0] < w[1]) {
            return None;
        }
        for (i, &m) in map.iter().enumerate() {
            if *shape.get(m)? != self.shape[i] {
                return None;
            }
            strides[m] = self.strides[i];
        }
        Some(Layout { shape: PerAxis::from_slice(shape), strides, offset: self.offset })
    }

    /// Axes of one element repeated.
    pub fn stretch(&self, shape: &[usize]) -> Option<Layout> {
        let fits = |(&d, &n): (&usize, &usize)| d == n || d == 1;
        if shape.len() != self.rank() || !self.shape.iter().zip(shape).all(fits) {
            return None;
        }
        let steps = self.strides.iter().zip(self.shape.iter().zip(shape));
        let strides = steps.map(|(&s, (d, n))| if d == n { s } else { 0 }).collect();
        Some(Layout { shape: PerAxis::from_slice(shape), strides, offset: self.offset })
    }

    /// Every `step`-th element from `start`, `size` of them, along every axis.
    pub fn slice(&self, start: &[i64], size: &[i64], step: &[i64]) -> Option<Layout> {
        let rank = self.rank();
        if start.len() != rank || size.len() != rank || step.len() != rank {
            return None;
        }
        let mut out = Layout { shape: smallvec![], strides: smallvec![], offset: self.offset };
        let empty = size.contains(&0);
        for i in 0..rank {
            let (d, n) = (self.shape[i] as i64, size[i]);
            let last = start[i].checked_add(n.checked_sub(1)?.checked_mul(step[i])?)?;
            let inside = (0..d).contains(&start[i]) && (0..d).contains(&last);
            if n < 0 || (n > 0 && !inside) {
                return None;
            }
            out.shape.push(n as usize);
            out.strides.push(self.strides[i].checked_mul(step[i] as isize)?);
            if !empty {
                out.offset = out.offset.checked_add_signed(self.strides[i] * start[i] as isize)?;
            }
        }
        Some(out)
    }

    /// The same elements in row-major order under another shape, if strides can say so.
    pub fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if shape.iter().product::<usize>() != self.len() {
            return None;
        }
        if self.is_empty() {
            return Some(Layout { offset: self.offset, ..Layout::dense(shape) });
        }
        let merged = coalesce(&self.shape, &[&self.strides]);
        let mut old = merged.shape.iter().zip(&merged.strides[0]).rev();
        let mut current: Option<(usize, isize)> = old.next().map(|(&d, &s)| (d, s));
        let mut strides = smallvec![0isize; shape.len()];
        for (i, &d) in shape.iter().enumerate().rev() {
            if d == 1 {
                continue;
            }
            // The axis being split is used up: go on with the next outer one.
            if current.is_none_or(|(left, _)| left == 1) {
                current = old.next().map(|(&d, &s)| (d, s));
            }
            let (left, stride) = current?;
            if left % d != 0 {
                return None;
            }
            strides[i] = stride;
            current = Some((left / d, stride * d as isize));
        }
        Some(Layout { shape: PerAxis::from_slice(shape), strides, offset: self.offset })
    }
}

/// A shape with several sets of strides over it, with as few axes as all of them allow.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Extents, none of them 1.
    pub shape: PerAxis<usize>,
    /// Strides per operand.
    pub strides: Vec<PerAxis<isize>>,
}

impl Merged {
    /// The offset of element `i` in row-major order, for the first operand.
    pub fn offset(&self, i: usize) -> isize {
        let (mut rest, mut at) = (i, 0);
        for (&d, &s) in self.shape.iter().zip(&self.strides[0]).rev() {
            at += (rest % d) as isize * s;
            rest /= d;
        }
        at
    }
}

/// Drops unit axes and merges neighbouring axes that every operand walks in one stride.
pub fn coalesce(shape: &[usize], strides: &[&[isize]]) -> Merged {
    let mut out = Merged { shape: smallvec![], strides: vec![smallvec![]; strides.len()] };
    for (i, &d) in shape.iter().enumerate() {
        if d == 1 {
            continue;
        }
        let joins = !out.shape.is_empty()
            && strides
                .iter()
                .zip(&out.strides)
                .all(|(s, o)| o.last().is_some_and(|&outer| outer == s[i] * d as isize));
        if joins {
            *out.shape.last_mut().expect("not empty") *= d;
            for (o, s) in out.strides.iter_mut().zip(strides) {
                *o.last_mut().expect("not empty") = s[i];
            }
        } else {
            out.shape.push(d);
            for (o, s) in out.strides.iter_mut().zip(strides) {
                o.push(s[i]);
            }
        }
    }
    out
}

/// Calls `f` with the offsets of each operand for every index of `shape`, in row-major order.
pub fn odometer<const N: usize>(
    shape: &[usize],
    strides: [&[isize]; N],
    start: [usize; N],
    mut f: impl FnMut([usize; N]),
) {
    if shape.contains(&0) {
        return;
    }
    // Kernels call this for single elements: it allocates only for uncommonly many axes.
    let (mut few, mut many) = ([0usize; 8], Vec::new());
    let index: &mut [usize] = match few.get_mut(..shape.len()) {
        Some(few) => few,
        None => {
            many.resize(shape.len(), 0);
            &mut many
        }
    };
    let mut at = start.map(|s| s as isize);
    loop {
        f(at.map(|a| a as usize));
        let mut axis = shape.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            for (a, s) in at.iter_mut().zip(&strides) {
                *a += s[axis];
            }
            if index[axis] < shape[axis] {
                break;
            }
            for (a, s) in at.iter_mut().zip(&strides) {
                *a -= s[axis] * shape[axis] as isize;
            }
            index[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(l: &Layout) -> Vec<usize> {
        let mut out = vec![];
        odometer(&l.shape, [&l.strides], [l.offset], |[i]| out.push(i));
        out
    }

    #[test]
    fn views_reach_the_right_elements() {
        let x = Layout::dense(&[2, 3]);
        assert_eq!(offsets(&x.transpose(&[1, 0]).unwrap()), [0, 3, 1, 4, 2, 5]);
        assert_eq!(offsets(&x.slice(&[1, 2], &[2, 2], &[-1, -2]).unwrap()), [5, 3, 2, 0]);
        assert!(x.slice(&[0, 0], &[2, 4], &[1, 1]).is_none());
        assert!(x.slice(&[2, 0], &[0, 3], &[1, 1]).is_some());
        let b = Layout::dense(&[3]).broadcast(&[1], &[2, 3]).unwrap();
        assert_eq!(offsets(&b), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn reshape_keeps_strides_where_it_can() {
        let x = Layout::dense(&[4, 6]);
        assert_eq!(x.reshape(&[2, 2, 3, 2]).unwrap().strides[..], [12, 6, 2, 1]);
        let t = x.transpose(&[1, 0]).unwrap();
        assert!(t.reshape(&[24]).is_none());
        assert_eq!(t.reshape(&[3, 2, 1, 4]).unwrap().strides[..], [2, 1, 0, 6]);
        let b = Layout::dense(&[]).broadcast(&[], &[2, 3]).unwrap();
        assert_eq!(b.reshape(&[6]).unwrap().strides[..], [0]);
        assert!(Layout::dense(&[0, 3]).reshape(&[5, 0]).is_some());
    }
}
