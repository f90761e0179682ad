//! ONNX's `Slice`: bounds that count from either end and are clamped to the axis, for every extent of the axis; and the bounds
//! that are written for a part that is known by its first index and its size.

use crate::eval::EvalError;
use crate::ir::Extent;
use crate::onnx::shapes::ceil_div;

/// Numbers so large that they mean the end of any axis.
const FAR: i64 = i32::MAX as i64;

/// The first index, of an axis of extent `n`; of a part without elements any index or `n`.
pub(crate) fn slice_start(n: &Extent, start: &Extent, step: &Extent) -> Result<Extent, EvalError> {
    Ok(first_index(n, start, direction(step)?).positive())
}

/// The number of elements.
pub(crate) fn slice_size(
    n: &Extent,
    start: &Extent,
    end: &Extent,
    step: &Extent,
) -> Result<Extent, EvalError> {
    let by = direction(step)?;
    if n.is(0) {
        return Ok(n.clone());
    }
    let first = first_index(n, start, by);
    let (low, high) = if by > 0 { (0, n.clone()) } else { (-1, n - &Extent::from(1)) };
    let end = bound(n, end, &Extent::from(low), &high);
    let distance = if by > 0 { &end - &first } else { &first - &end };
    Ok(ceil_div(&distance.positive(), &Extent::from(by.saturating_abs())))
}

/// `starts` that [`slice_start`] reads as `start`: a number where one does, else `start` itself.
pub(crate) fn printed_start(
    n: &Extent,
    start: &Extent,
    size: &Extent,
    step: &Extent,
) -> Result<Extent, EvalError> {
    printed(n, start, size, step).map(|(start, _)| start)
}

/// `ends` that with [`printed_start`] are read as `size` elements.
pub(crate) fn printed_end(
    n: &Extent,
    start: &Extent,
    size: &Extent,
    step: &Extent,
) -> Result<Extent, EvalError> {
    printed(n, start, size, step).map(|(_, end)| end)
}

fn printed(
    n: &Extent,
    start: &Extent,
    size: &Extent,
    step: &Extent,
) -> Result<(Extent, Extent), EvalError> {
    let by = direction(step)?;
    let end = start + &(size * step);
    if [n, start, size].iter().all(|e| e.as_const().is_some()) {
        // -1 would mean the last element.
        let end = if end.sign() == Some(-1) { Extent::from(i64::MIN + 1) } else { end };
        return Ok((start.clone(), end));
    }
    // Bounds beyond either end, the numbers that the extents are made of, and the extents themselves.
    let mut bounds: Vec<Extent> = [0, i64::MAX, i64::MIN + 1].map(Extent::from).to_vec();
    bounds.extend([start.clone(), end.clone()].into_iter().filter(|e| e.as_const().is_some()));
    for part in [start, &end, size].into_iter().flat_map(Extent::all_positive_parts) {
        let number = part.terms().iter().find(|(m, _)| m.is_empty()).map_or(0, |t| t.1);
        bounds.extend([number, number.wrapping_neg(), number - 1, 1 - number].map(Extent::from));
        bounds.extend([part.clone(), -&part, start + &part, start - &part]);
    }
    // What counts from the end is negative; nothing less than 0 would.
    let from_end = [start - n, &end - n].into_iter();
    bounds.extend(from_end.filter(|e| e.as_const().is_some_and(|v| v < 0)));
    // Elements that are asked for are there: an axis that is too short has no such part.
    let facts = match size.at_least(1) {
        true => {
            let last = &end - step;
            let behind = |i: &Extent| &(n - i) - &Extent::from(1);
            vec![behind(start), behind(&last), start.clone(), last]
        }
        false => vec![],
    };
    let same = |found: Extent, wanted: &Extent| {
        let difference = &found - wanted;
        found == *wanted
            || !facts.is_empty()
                && difference.at_least_where(0, &facts)
                && (-&difference).at_least_where(0, &facts)
    };
    let reads_start = |s: &&Extent| slice_start(n, s, step).is_ok_and(|found| same(found, start));
    let starts = bounds.iter().filter(reads_start).chain([start]);
    for s in starts {
        // Going backwards, ONNX Runtime takes what means the end of any axis for its front.
        let is_front = |e: &Extent| by < 0 && e.as_const().is_some_and(|v| v >= FAR);
        let reads_size = |e: &&Extent| {
            !is_front(e) && slice_size(n, s, e, step).is_ok_and(|found| same(found, size))
        };
        if let Some(e) = bounds.iter().find(reads_size) {
            return Ok((s.clone(), e.clone()));
        }
    }
    // Going backwards, an end before the front is negative: it is written from behind, as all of them are.
    let end = if by > 0 { end } else { &end - n };
    Ok((start.clone(), end))
}

fn direction(step: &Extent) -> Result<i64, EvalError> {
    match step.as_const() {
        Some(s) if s != 0 => Ok(s),
        _ => Err(EvalError::invalid(format!("{step} is no usable step"))),
    }
}

/// The index that a slice begins with; -1 where it goes backwards along an axis without elements.
fn first_index(n: &Extent, start: &Extent, by: i64) -> Extent {
    let high = if by > 0 { n.clone() } else { n - &Extent::from(1) };
    bound(n, start, &Extent::from(0), &high)
}

/// A bound clamped to `low..=high`; a negative one counts from the end.
fn bound(n: &Extent, bound: &Extent, low: &Extent, high: &Extent) -> Extent {
    match bound.as_const() {
        Some(b) if b >= FAR => return high.clone(),
        // A number cannot lie further before the front.
        Some(b) if b <= -FAR => return high.minimum(low),
        _ => {}
    }
    let clamp = |e: &Extent| e.maximum(low).minimum(high);
    let behind = -&(bound + &Extent::from(1));
    if bound.at_least(0) {
        return clamp(bound);
    }
    if behind.at_least(0) {
        return clamp(&(n + bound));
    }
    let (from_front, from_end) = (clamp(bound), clamp(&(n + bound)));
    let equal_where = |fact: &Extent| {
        let difference = &from_front - &from_end;
        let facts = std::slice::from_ref(fact);
        difference.at_least_where(0, facts) && (-&difference).at_least_where(0, facts)
    };
    if equal_where(&behind) {
        return from_front;
    }
    if equal_where(bound) {
        return from_end;
    }
    // One where the bound is negative, else zero.
    let negative = &(-bound).positive() - &behind.positive();
    &from_front + &(&negative * &(&from_end - &from_front))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [i64; 7] = [0, 2, 5, i64::MAX, -1, -3, i64::MIN + 1];

    /// Python's indices, which ONNX's are but for a start before the front of a slice that goes backwards.
    fn expected(n: i64, start: i64, end: i64, step: i64) -> Vec<i64> {
        let front = |b: i64| if b < 0 { b.saturating_add(n) } else { b };
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let (mut i, end) = (front(start).max(0).min(high), front(end).max(low).min(high));
        let mut indices = vec![];
        while n > 0 && (if step > 0 { i < end } else { i > end }) {
            indices.push(i);
            i += step;
        }
        indices
    }

    fn value(e: &Extent, n: i64) -> i64 {
        e.eval(&|_| Some(n)).expect("n is the only symbol")
    }

    /// What is read holds for every extent, and what is written for it is read as the same part.
    #[track_caller]
    fn check(n: &Extent, start: &Extent, end: &Extent, step: i64) {
        let by = Extent::from(step);
        let first = slice_start(n, start, &by).unwrap();
        let size = slice_size(n, start, end, &by).unwrap();
        let (from, to) = printed(n, &first, &size, &by).unwrap();
        for v in 0..12 {
            let of = |e: &Extent| value(e, v);
            let wanted = expected(of(n), of(start), of(end), step);
            let told =
                format!("[{start}:{end}:{step}] of {n} where it is {}: {first}, {size}", of(n));
            assert_eq!(of(&size), wanted.len() as i64, "{told}");
            assert!((0..=of(n)).contains(&of(&first)), "{told}");
            if let Some(at) = wanted.first() {
                assert_eq!(of(&first), *at, "{told}");
            }
            assert!(step > 0 || of(&to) < FAR, "{told}; written {from}:{to}");
            assert_eq!(
                expected(of(n), of(&from), of(&to), step),
                wanted,
                "{told}; written {from}:{to}"
            );
        }
    }

    #[test]
    fn known_bounds_hold_for_every_extent() {
        let n = Extent::sym("n");
        for of in [n.clone(), (&n - &Extent::from(2)).positive()] {
            for (start, end) in BOUNDS.iter().flat_map(|&s| BOUNDS.map(|e| (s, e))) {
                for step in [1, 3, -2] {
                    check(&of, &start.into(), &end.into(), step);
                }
            }
        }
    }

    #[test]
    fn computed_bounds_hold_for_every_extent() {
        let n = Extent::sym("n");
        let less = |v: i64| &n - &Extent::from(v);
        let bounds = [less(1), less(3), &Extent::from(1) - &n, Extent::from(2)];
        for (start, end) in bounds.iter().flat_map(|s| bounds.iter().map(move |e| (s, e))) {
            for step in [1, -2] {
                check(&n, start, end, step);
            }
        }
    }

    #[test]
    fn numbers_stay_numbers() {
        let n = Extent::sym("n");
        for (start, end, step) in [(0, 3, 1), (-3, FAR, 1), (2, -2, 1), (1, FAR, 2), (-1, -FAR, -1)]
        {
            let by = Extent::from(step);
            let first = slice_start(&n, &start.into(), &by).unwrap();
            let size = slice_size(&n, &start.into(), &end.into(), &by).unwrap();
            let (from, to) = printed(&n, &first, &size, &by).unwrap();
            assert!(from.as_const().is_some() && to.as_const().is_some(), "{from}:{to}");
        }
        let first = slice_start(&n, &(&n - &Extent::from(1)), &Extent::from(1)).unwrap();
        assert_eq!(first.to_string(), "max(n - 1, 0)");
    }

    /// Elements that an axis is known to have are named from its end by numbers.
    #[test]
    fn elements_that_are_there_count_from_the_end() {
        let n = Extent::sym("n");
        for (back, size) in [(1, 1), (3, 3), (3, 2), (3, 1)] {
            let start = &n - &Extent::from(back);
            let (from, to) = printed(&n, &start, &size.into(), &Extent::from(1)).unwrap();
            let told = format!("{size} from n - {back}: {from}:{to}");
            let (Some(from), Some(to)) = (from.as_const(), to.as_const()) else { panic!("{told}") };
            for v in back..12 {
                let wanted: Vec<i64> = (v - back..v - back + size).collect();
                assert_eq!(expected(v, from, to, 1), wanted, "{told} of {v}");
            }
        }
    }
}
