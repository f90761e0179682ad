//! Gathers a row by indices, as lane permutations where the indices of a vector are close together.

use crate::simd::{VectorLevel, level};
use bytemuck::Pod;

/// Elements of a run that are worth a copy of their own, on average.
const LONG: usize = 8;

/// Places of the elements of a line.
pub struct LaneGather {
    indices: Vec<usize>,
    /// One past the largest place.
    reach: usize,
    plan: GatherPlan,
}

enum GatherPlan {
    /// Neighbours of the result that are neighbours in the source: place in the result, in the source, and number.
    Runs(Vec<[usize; 3]>),
    /// Where the elements of each vector of the result begin in the source, and the place of each behind that. A few vectors, the far ones,
    /// have indices that lie further from each other.
    Near { first: Vec<usize>, behind: Vec<u32>, lanes: usize, far: Vec<usize> },
    /// Anything else.
    Single,
}

impl LaneGather {
    /// The elements at these indices.
    pub fn new(indices: Vec<usize>) -> LaneGather {
        let reach = indices.iter().max().map_or(0, |&p| p + 1);
        let mut runs: Vec<[usize; 3]> = vec![];
        for (i, &p) in indices.iter().enumerate() {
            match runs.last_mut() {
                Some([to, from, n]) if *from + *n == p && *to + *n == i => *n += 1,
                _ => runs.push([i, p, 1]),
            }
        }
        let plan = match runs.len() * LONG <= indices.len() {
            true => GatherPlan::Runs(runs),
            false => LaneGather::near(&indices, reach).unwrap_or(GatherPlan::Single),
        };
        LaneGather { indices, reach, plan }
    }

    /// Elements of the line.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// True if the line has none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Vectors of indices that lie near each other, if most do. What a vector reads is within the reach.
    fn near(indices: &[usize], reach: usize) -> Option<GatherPlan> {
        let (lanes, seen) = match level() {
            VectorLevel::V4 => (16, 32),
            VectorLevel::V3 => (8, 8),
            VectorLevel::Neon => (4, 8),
            VectorLevel::Base => return None,
        };
        let last = reach.checked_sub(seen)?;
        let (mut first, mut behind, mut far) = (vec![], vec![], vec![]);
        let (vectors, _) = indices.split_at(indices.len() / lanes * lanes);
        for (i, vector) in vectors.chunks_exact(lanes).enumerate() {
            let start = vector.iter().min().copied().unwrap_or(0).min(last);
            first.push(start);
            let is_far = vector.iter().any(|p| p - start >= seen);
            behind.extend(vector.iter().map(|p| if is_far { 0 } else { (p - start) as u32 }));
            far.extend(is_far.then_some(i));
        }
        (far.len() * 2 < first.len()).then_some(GatherPlan::Near { first, behind, lanes, far })
    }

    /// Copies the elements of the line that begins with `from`.
    pub fn copy<T: Pod>(&self, from: &[T], to: &mut [T]) {
        let to = &mut to[..self.indices.len()];
        let from = &from[..self.reach];
        let done = match &self.plan {
            GatherPlan::Runs(runs) => {
                runs.iter().for_each(|&[at, p, n]| to[at..at + n].copy_from_slice(&from[p..p + n]));
                return;
            }
            GatherPlan::Near { first, behind, lanes, far }
                if size_of::<T>() == size_of::<f32>() =>
            {
                match (bytemuck::try_cast_slice(from), bytemuck::try_cast_slice_mut(to)) {
                    (Ok(from), Ok(to)) => {
                        vectors(from, first, behind, to);
                        for at in far.iter().map(|i| i * lanes) {
                            let indices = &self.indices[at..at + lanes];
                            to[at..].iter_mut().zip(indices).for_each(|(o, &p)| *o = from[p]);
                        }
                        first.len() * lanes
                    }
                    _ => 0,
                }
            }
            GatherPlan::Near { .. } | GatherPlan::Single => 0,
        };
        to[done..].iter_mut().zip(&self.indices[done..]).for_each(|(o, &p)| *o = from[p]);
    }
}

/// The vectors of a line; all that is read lies within `from`, as [`LaneGather::near`] sees to.
#[allow(unused_variables, reason = "not every architecture has such vectors")]
fn vectors(from: &[f32], first: &[usize], behind: &[u32], to: &mut [f32]) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level was detected on this machine.
        VectorLevel::V4 => unsafe { sixteen(from, first, behind, to) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        VectorLevel::V3 => unsafe { eight(from, first, behind, to) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: every machine has the level.
        VectorLevel::Neon => unsafe { four(from, first, behind, to) },
        _ => {}
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sixteen(from: &[f32], first: &[usize], behind: &[u32], to: &mut [f32]) {
    use std::arch::x86_64::*;
    let vectors = to.chunks_exact_mut(16).zip(first).zip(behind.chunks_exact(16));
    for ((to, &first), behind) in vectors {
        let (low, high) = (&from[first..][..16], &from[first + 16..][..16]);
        // SAFETY: slices of sixteen elements.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(low.as_ptr()), _mm512_loadu_ps(high.as_ptr()));
            let behind = _mm512_loadu_si512(behind.as_ptr().cast());
            _mm512_storeu_ps(to.as_mut_ptr(), _mm512_permutex2var_ps(a, behind, b));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn eight(from: &[f32], first: &[usize], behind: &[u32], to: &mut [f32]) {
    use std::arch::x86_64::*;
    let vectors = to.chunks_exact_mut(8).zip(first).zip(behind.chunks_exact(8));
    for ((to, &first), behind) in vectors {
        let from = &from[first..][..8];
        // SAFETY: slices of eight elements.
        unsafe {
            let behind = _mm256_loadu_si256(behind.as_ptr().cast());
            let x = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from.as_ptr()), behind);
            _mm256_storeu_ps(to.as_mut_ptr(), x);
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn four(from: &[f32], first: &[usize], behind: &[u32], to: &mut [f32]) {
    use std::arch::aarch64::*;
    let vectors = to.chunks_exact_mut(4).zip(first).zip(behind.chunks_exact(4));
    for ((to, &first), behind) in vectors {
        let from = &from[first..][..8];
        // SAFETY: slices of eight elements and of four.
        unsafe {
            // Element `i` is bytes `4 * i` to `4 * i + 3`.
            let bytes = vmulq_n_u32(vld1q_u32(behind.as_ptr()), 0x0404_0404);
            let bytes = vaddq_u32(bytes, vdupq_n_u32(0x0302_0100));
            let x = vld1q_u8_x2(from.as_ptr().cast());
            let x = vqtbl2q_u8(x, vreinterpretq_u8_u32(bytes));
            vst1q_f32(to.as_mut_ptr(), vreinterpretq_f32_u8(x));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_picks_its_elements() {
        let patterns: [&dyn Fn(usize) -> usize; 7] =
            [&|i| i, &|i| i / 2, &|i| i / 3, &|i| i * 2, &|i| i ^ 1, &|i| i * 37 % 101, &|_| 5];
        for n in [0, 1, 7, 8, 16, 17, 33, 64, 101] {
            for (k, pattern) in patterns.iter().enumerate() {
                let indices: Vec<usize> = (0..n).map(pattern).collect();
                let gather = LaneGather::new(indices.clone());
                let reach = indices.iter().max().map_or(0, |p| p + 1);
                let from: Vec<f32> = (0..reach).map(|i| i as f32).collect();
                let mut to = vec![-1.0; n];
                gather.copy(&from, &mut to);
                assert!(to.iter().zip(&indices).all(|(&o, &p)| o == p as f32), "{k} {n}");
                let from: Vec<u8> = (0..reach).map(|i| i as u8).collect();
                let mut to = vec![0; n];
                gather.copy(&from, &mut to);
                assert!(to.iter().zip(&indices).all(|(&o, &p)| o == p as u8), "{k} {n}");
            }
        }
    }
}
