//! Rust references of operators whose result sizes depend on data: unique rows and non-max suppression.

use super::super::array::{Array, Elements};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::strings::text_of;
use mlc_dsl::ir::{Attr, DType, Type};
use std::cmp::Ordering;

/// The distinct rows of `x[n, m]`: the place of the first row of each kind, the kind of every row, and how many rows are of
/// each kind. Kinds are numbered in lexicographic order if `sorted`, else in the order of their first rows. NaN is equal
/// to itself and larger than any number. What is beyond the last kind is zero.
pub(crate) fn distinct_rows(
    env: &Env,
    args: &[Array],
    types: &[Type],
) -> Result<Vec<Array>, String> {
    let ([x], [first, ..]) = (args, types) else { return Err("one argument is expected".into()) };
    let &[n, m] = x.shape() else { return Err("the argument has two axes".into()) };
    let order = |i: usize, j: usize| {
        let differ = (0..m).map(|k| compare(x, i * m + k, j * m + k));
        differ.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut rows: Vec<usize> = (0..n).collect();
    // A stable sort: the first row of each kind comes first.
    rows.sort_by(|&i, &j| order(i, j));
    let mut kinds: Vec<Vec<usize>> = vec![];
    for row in rows {
        match kinds.last_mut() {
            Some(kind) if order(kind[0], row).is_eq() => kind.push(row),
            _ => kinds.push(vec![row]),
        }
    }
    if matches!(env.attr("sorted"), Some(Attr::Bool(false))) {
        kinds.sort_by_key(|kind| kind[0]);
    }
    let (mut places, mut of_row, mut counts) = (vec![0; n], vec![0; n], vec![0; n]);
    for (k, kind) in kinds.iter().enumerate() {
        places[k] = kind[0] as i64;
        counts[k] = kind.len() as i64;
        kind.iter().for_each(|&row| of_row[row] = k as i64);
    }
    let made = [places, of_row, counts].map(|v| Array::from_i64(first.dtype, vec![n], v));
    made.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| "there are too many rows".into())
}

fn compare(x: &Array, i: usize, j: usize) -> Ordering {
    match x.elements() {
        Elements::Float(v) => {
            v[i].partial_cmp(&v[j]).unwrap_or_else(|| v[i].is_nan().cmp(&v[j].is_nan()))
        }
        Elements::Int(v) if x.dtype() == DType::Str => {
            text_of(v[i] as u64).cmp(&text_of(v[j] as u64))
        }
        Elements::Int(v) if x.dtype() == DType::U64 => (v[i] as u64).cmp(&(v[j] as u64)),
        Elements::Int(v) => v[i].cmp(&v[j]),
    }
}

/// Corners of a box, the lower one first.
#[derive(Clone, Copy)]
pub struct Corners {
    /// The smaller coordinate along each axis.
    pub low: [f64; 2],
    /// The larger coordinate along each axis.
    pub high: [f64; 2],
}

impl Corners {
    /// Four numbers: two opposite corners, or the centre and the extents.
    pub fn of(v: &[f64], centered: bool) -> Corners {
        let [a, b, c, d] = [v[0], v[1], v[2], v[3]];
        let (one, other) = match centered {
            true => ([a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]),
            false => ([a, b], [c, d]),
        };
        let axis = |f: fn(f64, f64) -> f64| [f(one[0], other[0]), f(one[1], other[1])];
        Corners { low: axis(f64::min), high: axis(f64::max) }
    }

    fn area(&self) -> f64 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// The part of the two boxes' union that is their intersection; zero if they do not meet.
    pub fn overlap(&self, other: &Corners) -> f64 {
        let extent =
            |k: usize| (self.high[k].min(other.high[k]) - self.low[k].max(other.low[k])).max(0.0);
        let common = extent(0) * extent(1);
        let union = self.area() + other.area() - common;
        if common > 0.0 && union > 0.0 { common / union } else { 0.0 }
    }
}

/// Greedy non-maximum suppression of `boxes[b, n, 4]` for every row of `scores[b, c, n]`: in descending order of the scores
/// above `floor`, equal ones in their order, a box is chosen unless it overlaps a chosen one by more than `most_overlap`, up
/// to `most` boxes. Places of the chosen boxes in that order, then -1.
pub(crate) fn suppress_overlapping(
    env: &Env,
    args: &[Array],
    types: &[Type],
) -> Result<Vec<Array>, String> {
    let ([boxes, scores, most, overlap, floor], [t]) = (args, types) else {
        return Err("five arguments yield one result".into());
    };
    let (&[b, c, n], Elements::Float(corners)) = (scores.shape(), boxes.elements()) else {
        return Err("the scores have three axes, and boxes are real".into());
    };
    let (Elements::Float(of_boxes), Elements::Int(most)) = (scores.elements(), most.elements())
    else {
        return Err("scores are real, and the number of boxes is whole".into());
    };
    let (Elements::Float(overlap), Elements::Float(floor)) = (overlap.elements(), floor.elements())
    else {
        return Err("the limits are real".into());
    };
    let most = most.first().map_or(0, |&m| usize::try_from(m).unwrap_or(0)).min(n);
    let (overlap, floor) = (overlap.first().copied(), floor.first().copied());
    let (overlap, floor) = (overlap.unwrap_or(0.0), floor.unwrap_or(f64::NEG_INFINITY));
    let centered = matches!(env.attr("centered"), Some(Attr::Bool(true)));
    let mut places = vec![-1i64; b * c * n];
    for batch in 0..b {
        let all: Vec<Corners> = corners[batch * n * 4..][..n * 4]
            .chunks_exact(4)
            .map(|v| Corners::of(v, centered))
            .collect();
        for class in 0..c {
            let at = (batch * c + class) * n;
            let scores = &of_boxes[at..][..n];
            let mut order: Vec<usize> = (0..n).filter(|&i| scores[i] > floor).collect();
            order.sort_by(|&i, &j| scores[j].partial_cmp(&scores[i]).unwrap_or(Ordering::Equal));
            let mut chosen: Vec<usize> = vec![];
            for i in order {
                if chosen.len() == most {
                    break;
                }
                if chosen.iter().all(|&k| all[k].overlap(&all[i]) <= overlap) {
                    chosen.push(i);
                }
            }
            places[at..].iter_mut().zip(&chosen).for_each(|(place, &i)| *place = i as i64);
        }
    }
    let y = Array::from_i64(t.dtype, vec![b, c, n], places);
    Ok(vec![y.ok_or("there are too many boxes")?])
}
