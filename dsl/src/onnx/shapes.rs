//! Shape functions with ONNX's conventions: clamped slices, automatic padding, reshape targets with
//! 0 and -1. Lists and extents in, lists and extents out.

use crate::eval::function::Function as F;
use crate::eval::{EvalError, Val};
use crate::ir::{Attr, DType, Extent, may_equal};
use crate::onnx::slices::{printed_end, printed_start, slice_size, slice_start};
use std::collections::{HashMap, HashSet};

/// Applies a function; `None` if there is none of this name with so many arguments.
pub(crate) fn apply(f: F, vals: &[Val]) -> Option<Result<Val, EvalError>> {
    let l = |i: usize| vals[i].clone().ints();
    let ints = |v: Result<Vec<Extent>, EvalError>| v.map(|v| Val::Attr(Attr::Ints(v)));
    Some(match (f, vals.len()) {
        (F::IsFloat, 1) => match &vals[0] {
            Val::Attr(Attr::DType(d)) => Ok(Val::Truth(Some(DType::is_float(*d)))),
            _ => Err(EvalError::invalid("`is_float` takes an element type")),
        },
        (F::IsKnown, 1) => vals[0].clone().int().map(|n| Val::Truth(Some(n.as_const().is_some()))),
        (F::Without, 2) => ints((|| {
            let v = vals[1].clone().int()?;
            let list = l(0)?;
            match list.iter().find(|e| **e != v && may_equal(e, &v)) {
                Some(e) => Err(EvalError::Symbolic(format!("whether {e} is {v} is open"))),
                None => Ok(list.into_iter().filter(|e| *e != v).collect()),
            }
        })()),
        (F::ReplaceAll, 3) => ints((|| replace_all(l(0)?, &l(1)?, &l(2)?))()),
        (F::NormalList, 2) => ints((|| {
            let rank = vals[1].clone().int()?;
            let turn = |a: Extent| if a.sign() == Some(-1) { &a + &rank } else { a };
            Ok(l(0)?.into_iter().map(turn).collect())
        })()),
        (F::Strides, 1) => ints(l(0).map(|shape| {
            let mut out = vec![Extent::from(1); shape.len()];
            for i in (1..shape.len()).rev() {
                out[i - 1] = &out[i] * &shape[i];
            }
            out
        })),
        (F::UnitAxes, 2) => ints((|| unit_axes(&l(0)?, &l(1)?))()),
        (F::ReshapeSpec, 2) => ints((|| reshape_spec(&l(0)?, l(1)?))()),
        (F::ReshapeRest, 2) => (|| Ok(Val::Attr(Attr::Int(reshape_rest(&l(0)?, &l(1)?)))))(),
        (F::ReshapeNonzero, 2) => ints((|| Ok(reshape_nonzero(&l(0)?, &l(1)?)))()),
        (F::FlattenAxis, 2) => (|| Ok(Val::Attr(Attr::int(flatten_axis(&l(0)?, &l(1)?)?))))(),
        (F::ExpandSpec, 2) => ints((|| Ok(expand_spec(&l(0)?, l(1)?)))()),
        (F::SliceStart, 3) => {
            ints((|| entries(&[l(0)?, l(1)?, l(2)?], |e| slice_start(&e[0], &e[1], &e[2])))())
        }
        (F::SliceSize, 4) => ints((|| {
            entries(&[l(0)?, l(1)?, l(2)?, l(3)?], |e| slice_size(&e[0], &e[1], &e[2], &e[3]))
        })()),
        (F::SliceStarts, 4) => ints((|| {
            entries(&[l(0)?, l(1)?, l(2)?, l(3)?], |e| printed_start(&e[0], &e[1], &e[2], &e[3]))
        })()),
        (F::SliceEnds, 4) => ints((|| {
            entries(&[l(0)?, l(1)?, l(2)?, l(3)?], |e| printed_end(&e[0], &e[1], &e[2], &e[3]))
        })()),
        (F::ChangedAxes, 3) => ints((|| {
            let (shape, start, size) = (l(0)?, l(1)?, l(2)?);
            let part = |i: &usize| {
                !start.get(*i).is_some_and(|s| s.is(0)) || size.get(*i) != shape.get(*i)
            };
            Ok((0..shape.len()).filter(part).map(Extent::from).collect())
        })()),
        (F::SamePads, 3) => ints((|| {
            entries(&[l(0)?, l(1)?, l(2)?], |e| {
                let steps = &ceil_div(&e[0], &e[2]) - &Extent::from(1);
                Ok((&(&(&steps * &e[2]) + &e[1]) - &e[0]).maximum(&Extent::from(0)))
            })
        })()),
        (F::CeilPads, 5) => ints((|| {
            entries(&[l(0)?, l(1)?, l(2)?, l(3)?, l(4)?], |e| {
                ceil_pads(&e[0], &e[1], &e[2], &e[3], &e[4])
            })
        })()),
        (F::Labels, 3) => ints((|| {
            let Val::Attr(Attr::Str(equation)) = &vals[0] else {
                return Err(EvalError::invalid("`labels` takes an equation"));
            };
            let ranks: Option<Vec<i64>> = l(2)?.iter().map(Extent::as_const).collect();
            let i = vals[1].clone().int()?.as_const().and_then(|i| usize::try_from(i).ok());
            match (i, ranks) {
                (Some(i), Some(ranks)) => labels(equation, i, &ranks),
                _ => Err(EvalError::invalid("`labels` takes known numbers")),
            }
        })()),
        (F::WordPlaces, 2) => ints(match vals {
            [Val::Attr(Attr::Str(words)), Val::Attr(Attr::Str(known))] => {
                let place = |w: &str| known.split(',').position(|k| k == w);
                let place = |w| place(w).map_or(Extent::from(-1), Extent::from);
                Ok(words.split(',').map(place).collect())
            }
            _ => Err(EvalError::invalid("`word_places` takes words")),
        }),
        (F::Common, 2) => ints((|| {
            let (a, b) = (l(0)?, l(1)?);
            Ok(a.into_iter().filter(|e| b.contains(e)).collect())
        })()),
        (F::Except, 2..) => ints((|| {
            let others = (1..vals.len()).map(l).collect::<Result<Vec<_>, _>>()?;
            let others: HashSet<Extent> = others.into_iter().flatten().collect();
            Ok(l(0)?.into_iter().filter(|e| !others.contains(e)).collect())
        })()),
        (F::Places, 2) => ints((|| {
            let mut first = HashMap::new();
            for (i, e) in l(0)?.into_iter().enumerate() {
                first.entry(e).or_insert(i);
            }
            let place = |e: &Extent| first.get(e).copied().map(Extent::from);
            let places: Option<Vec<Extent>> = l(1)?.iter().map(place).collect();
            places.ok_or_else(|| EvalError::invalid("the list lacks an entry"))
        })()),
        (F::BoxStart | F::BoxSize, 4) => ints((|| {
            let part =
                crate::layout::reshape_boxes::before_reshape(&l(0)?, &l(1)?, &l(2)?, &l(3)?)?;
            let wanted = |(s, n)| if f == F::BoxStart { s } else { n };
            Ok(part.into_iter().map(wanted).collect())
        })()),
        (F::SpreadMap | F::SpreadShape, 4) => ints((|| {
            let (map, shape) =
                crate::layout::reshape_boxes::before_spread(&l(0)?, &l(1)?, &l(2)?, &l(3)?)?;
            Ok(if f == F::SpreadMap { map } else { shape })
        })()),
        (F::IsSpread, 4) => (|| {
            let found = crate::layout::reshape_boxes::before_spread(&l(0)?, &l(1)?, &l(2)?, &l(3)?);
            Ok(Val::Truth(Some(found.is_ok())))
        })(),
        (F::AroundShape | F::AroundStart, 4) => ints((|| {
            let (shape, start) =
                crate::layout::reshape_boxes::after_slice(&l(0)?, &l(1)?, &l(2)?, &l(3)?)?;
            Ok(if f == F::AroundShape { shape } else { start })
        })()),
        (F::IsAround, 4) => (|| {
            let found = crate::layout::reshape_boxes::after_slice(&l(0)?, &l(1)?, &l(2)?, &l(3)?);
            Ok(Val::Truth(Some(found.is_ok())))
        })(),
        (F::IsBox, 4) => (|| {
            let part = crate::layout::reshape_boxes::before_reshape(&l(0)?, &l(1)?, &l(2)?, &l(3)?);
            Ok(Val::Truth(Some(part.is_ok())))
        })(),
        (F::ExactQuotient, 2) => ints((|| {
            entries(&[l(0)?, l(1)?], |e| {
                let q = e[0].div_exact(&e[1]);
                q.ok_or_else(|| EvalError::invalid(format!("{} is no multiple of {}", e[0], e[1])))
            })
        })()),
        _ => return None,
    })
}

/// `f` of the entries of lists of equal length.
fn entries(
    lists: &[Vec<Extent>],
    f: impl Fn(&[Extent]) -> Result<Extent, EvalError>,
) -> Result<Vec<Extent>, EvalError> {
    let n = lists.first().map_or(0, Vec::len);
    if lists.iter().any(|l| l.len() != n) {
        return Err(EvalError::invalid("the lists have different lengths"));
    }
    (0..n)
        .map(|i| {
            let entry: Vec<Extent> = lists.iter().map(|l| l[i].clone()).collect();
            f(&entry)
        })
        .collect()
}

/// The quotient rounded up.
pub(crate) fn ceil_div(a: &Extent, b: &Extent) -> Extent {
    if let (Some(x), Some(y)) = (a.as_const(), b.as_const().filter(|&y| y > 0)) {
        return Extent::from(x.div_euclid(y) + i64::from(x.rem_euclid(y) != 0));
    }
    (&(a + b) - &Extent::from(1)).floor_div(b)
}

fn replace_all(
    mut list: Vec<Extent>,
    at: &[Extent],
    values: &[Extent],
) -> Result<Vec<Extent>, EvalError> {
    if at.len() != values.len() {
        return Err(EvalError::invalid("there are not as many positions as values"));
    }
    let rank = list.len() as i64;
    for (p, v) in at.iter().zip(values) {
        let p = p.as_const().map(|p| if p < 0 { p + rank } else { p });
        let slot = p.and_then(|p| usize::try_from(p).ok()).and_then(|p| list.get_mut(p));
        *slot.ok_or_else(|| EvalError::invalid("a position is out of range"))? = v.clone();
    }
    Ok(list)
}

fn unit_axes(from: &[Extent], to: &[Extent]) -> Result<Vec<Extent>, EvalError> {
    let mut rest = from.iter().peekable();
    let mut out = Vec::new();
    // A 1 that both have is taken for the same axis as long as enough entries are left.
    let mut spare = to.len().saturating_sub(from.len());
    for (i, d) in to.iter().enumerate() {
        if rest.peek() == Some(&d) && !(d.is(1) && spare > 0) {
            rest.next();
        } else if d.is(1) && spare > 0 {
            spare -= 1;
            out.push(Extent::from(i));
        } else {
            return Err(EvalError::invalid("the shapes differ in more than unit axes"));
        }
    }
    match rest.next() {
        None => Ok(out),
        Some(_) => Err(EvalError::invalid("the shapes differ in more than unit axes")),
    }
}

fn reshape_spec(from: &[Extent], to: Vec<Extent>) -> Result<Vec<Extent>, EvalError> {
    let symbolic = |e: &Extent| e.as_const().is_none();
    if !to.iter().any(symbolic) {
        return Ok(to);
    }
    let copied = |(i, e): (usize, &Extent)| from.get(i) == Some(e);
    let mut left = to.iter().enumerate().filter(|(i, e)| symbolic(e) && !copied((*i, e)));
    let last = left.next().map(|(i, _)| i);
    if left.next().is_some() {
        return Err(EvalError::invalid("two extents would have to be found out"));
    }
    // With a symbol that is not copied, -1 stands there; the others are copied or known.
    let mut out = to;
    for (i, e) in out.iter_mut().enumerate() {
        if Some(i) == last {
            *e = Extent::from(-1);
        } else if symbolic(e) {
            *e = Extent::from(0);
        }
    }
    Ok(out)
}

fn reshape_rest(from: &[Extent], spec: &[Extent]) -> Extent {
    let one = Extent::from(1);
    if !spec.iter().any(|e| e.is(-1)) {
        return one;
    }
    let others = spec.iter().enumerate().filter(|(_, e)| !e.is(-1));
    others.fold(one, |all, (i, e)| &all * if e.is(0) { from.get(i).unwrap_or(e) } else { e })
}

/// What must not be 0, lest a computed extent of a target be a 0 that copies another one: it is that extent, or what remains of it without
/// the one that it would copy.
fn reshape_nonzero(from: &[Extent], to: &[Extent]) -> Vec<Extent> {
    let computed = to.iter().enumerate().filter(|(_, e)| e.as_const().is_none());
    let factor = |(i, e): (usize, &Extent)| {
        let Some(copied) = from.get(i) else { return Some(e.clone()) };
        let is_zero_too = copied.div_exact(e).is_some();
        (!is_zero_too).then(|| e.div_exact(copied).unwrap_or_else(|| e.clone()))
    };
    computed.filter_map(factor).collect()
}

fn flatten_axis(from: &[Extent], to: &[Extent]) -> Result<i64, EvalError> {
    let product = |part: &[Extent]| part.iter().fold(Extent::from(1), |all, e| &all * e);
    let cuts = |a: &usize| match to {
        [rows, columns] => product(&from[..*a]) == *rows && product(&from[*a..]) == *columns,
        _ => false,
    };
    let axis = (0..=from.len()).find(cuts);
    axis.map(|a| a as i64).ok_or_else(|| EvalError::invalid("it is no matrix of the same tensor"))
}

fn expand_spec(from: &[Extent], to: Vec<Extent>) -> Vec<Extent> {
    let missing = to.len().saturating_sub(from.len());
    let has = |i: usize, e: &Extent| i.checked_sub(missing).and_then(|i| from.get(i)) == Some(e);
    to.into_iter()
        .enumerate()
        .map(|(i, e)| if e.as_const().is_none() && has(i, &e) { Extent::from(1) } else { e })
        .collect()
}

/// Operand `i` of an einsum; the result comes after the last operand. Every axis of an operand has a
/// label; the axes of `...` are numbered from the right, so that they align as in NumPy.
fn labels(equation: &str, i: usize, ranks: &[i64]) -> Result<Vec<Extent>, EvalError> {
    let bad = |reason: &str| EvalError::invalid(format!("the equation `{equation}`: {reason}"));
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (text.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != ranks.len() {
        return Err(bad("it has another number of operands than the node"));
    }
    let mut dots = 0;
    for (term, rank) in terms.iter().zip(ranks) {
        let named = term.chars().filter(|c| *c != '.').count() as i64;
        let free = rank - named;
        if free < 0 || free > 0 && !term.contains("...") {
            return Err(bad("an operand has another number of axes than labels"));
        }
        dots = dots.max(free);
    }
    let expand = |term: &str, dots: i64| -> Result<Vec<Extent>, EvalError> {
        let (before, after, dots) = match term.split_once("...") {
            Some((b, a)) => (b, a, dots),
            None => (term, "", 0),
        };
        if before.contains('.') || after.contains('.') {
            return Err(bad("`...` may occur only once in an operand"));
        }
        let code = |c: char| Extent::from(i64::from(u32::from(c)));
        let middle = (1..=dots).rev().map(|d| Extent::from(-d));
        Ok(before.chars().map(code).chain(middle).chain(after.chars().map(code)).collect())
    };
    if let (Some(term), Some(rank)) = (terms.get(i), ranks.get(i)) {
        let named = term.chars().filter(|c| *c != '.').count() as i64;
        return expand(term, rank - named);
    }
    match right {
        Some(term) => {
            let out = expand(term, dots)?;
            match (1..out.len()).any(|i| out[..i].contains(&out[i])) {
                true => Err(bad("a label occurs twice in the result")),
                false => Ok(out),
            }
        }
        None => {
            // Labels that stand once, in alphabetical order, after those of `...`.
            let once = |c: &char| left.chars().filter(|d| d == c).count() == 1;
            let mut named: Vec<char> =
                left.chars().filter(|c| c.is_alphabetic()).filter(once).collect();
            named.sort_unstable();
            expand(&("...".chars().chain(named).collect::<String>()), dots)
        }
    }
}

fn ceil_pads(
    size: &Extent,
    low: &Extent,
    high: &Extent,
    reach: &Extent,
    stride: &Extent,
) -> Result<Extent, EvalError> {
    let one = Extent::from(1);
    let inside = size + low;
    // No window begins behind the elements and the padding before them.
    let count = (&ceil_div(&(&(&inside + high) - reach), stride) + &one)
        .minimum(&ceil_div(&inside, stride));
    let beyond = &(&(&(&count - &one) * stride) + reach) - &inside;
    Ok(if beyond.as_const().is_some() { beyond.maximum(&Extent::from(0)) } else { beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(v: &[i64]) -> Val {
        Val::Attr(Attr::ints(v.iter().copied()))
    }

    #[track_caller]
    fn check(f: F, args: &[&[i64]], expected: &[i64]) {
        let vals: Vec<Val> = args.iter().map(|a| list(a)).collect();
        assert_eq!(apply(f, &vals), Some(Ok(list(expected))), "{f}{args:?}");
    }

    #[test]
    fn slices_are_clamped() {
        const END: i64 = i64::MAX;
        check(F::SliceStart, &[&[10, 10, 10], &[-3, 12, 4], &[1, 1, -1]], &[7, 10, 4]);
        check(
            F::SliceSize,
            &[&[10; 5], &[-3, 2, 0, 9, 8], &[END, -2, 99, -END, 2], &[1, 2, 1, -1, -2]],
            &[3, 3, 10, 10, 3],
        );
        check(
            F::SliceSize,
            &[&[0; 4], &[-END, 1, -1, END], &[END, END, -END, -1], &[1, 2, -1, -2]],
            &[0; 4],
        );
        let (size, start, count, step) = (&[10, 10][..], &[9, 2][..], &[10, 3][..], &[-1, 2][..]);
        check(F::SliceStarts, &[size, start, count, step], &[9, 2]);
        check(F::SliceEnds, &[size, start, count, step], &[i64::MIN + 1, 8]);
        check(F::ChangedAxes, &[&[4, 5, 6], &[0, 1, 0], &[4, 4, 5]], &[1, 2]);
    }

    #[test]
    fn windows_end_where_onnx_says() {
        check(F::SamePads, &[&[5, 6], &[3, 3], &[2, 2]], &[2, 1]);
        check(F::CeilPads, &[&[111, 4], &[0, 0], &[0, 0], &[3, 2], &[2, 2]], &[0, 0]);
        check(F::CeilPads, &[&[112], &[0], &[0], &[3], &[2]], &[1]);
    }

    #[test]
    fn unit_axes_are_found() {
        check(F::UnitAxes, &[&[3, 4], &[1, 3, 1, 4]], &[0, 2]);
        check(F::UnitAxes, &[&[1, 4], &[1, 1, 4]], &[0]);
        assert!(apply(F::UnitAxes, &[list(&[3, 4]), list(&[4, 1, 3])]).is_some_and(|r| r.is_err()));
    }

    #[test]
    fn equations_have_labels() {
        let check = |equation: &str, i: i64, ranks: &[i64], expected: &[i64]| {
            let args =
                [Val::Attr(Attr::Str(equation.into())), Val::Attr(Attr::int(i)), list(ranks)];
            assert_eq!(apply(F::Labels, &args), Some(Ok(list(expected))), "{equation}");
        };
        let (a, b, c) = (97, 98, 99);
        check("ab,bc->ac", 1, &[2, 2], &[b, c]);
        check("ab,bc", 2, &[2, 2], &[a, c]);
        check("...a, b... -> ...ab", 2, &[3, 2], &[-2, -1, a, b]);
        check("...a,b...->...ab", 1, &[3, 2], &[b, -1]);
        check("aa->a", 0, &[2], &[a, a]);
    }

    #[test]
    fn words_have_places() {
        let args = ["b,c,a", "a,b"].map(|w| Val::Attr(Attr::Str(w.into())));
        assert_eq!(apply(F::WordPlaces, &args), Some(Ok(list(&[1, -1, 0]))));
    }

    #[test]
    fn targets_use_copies_and_the_rest() {
        let (b, s) = (Extent::sym("b"), Extent::sym("s"));
        let lists = |v: &[Extent]| Val::Attr(Attr::Ints(v.to_vec()));
        let from = lists(&[b.clone(), s.clone(), Extent::from(768)]);
        let to = lists(&[b, s, Extent::from(12), Extent::from(64)]);
        assert_eq!(apply(F::ReshapeSpec, &[from.clone(), to]), Some(Ok(list(&[0, 0, 12, 64]))));
        let apart = lists(&[Extent::sym("u"), Extent::sym("v")]);
        assert!(apply(F::ReshapeSpec, &[from.clone(), apart]).is_some_and(|r| r.is_err()));
        let rest = |spec: &[i64]| apply(F::ReshapeRest, &[from.clone(), list(spec)]);
        let extent = |e: Extent| Some(Ok(Val::Attr(Attr::Int(e))));
        assert_eq!(rest(&[0, -1, 12]), extent(&Extent::sym("b") * &Extent::from(12)));
        assert_eq!(rest(&[0, 0, 12, 64]), extent(Extent::from(1)));
        let nonzero =
            |from: &[Extent], to: &[Extent]| apply(F::ReshapeNonzero, &[lists(from), lists(to)]);
        let [b, s, u] = ["b", "s", "u"].map(Extent::sym);
        let (rows, four) = (&b * &s, Extent::from(4));
        for (from, to, expected) in [
            // 0 rows: either the 0 is that of the operand, or there is no step to make rows of.
            (
                vec![b.clone(), s.clone(), four.clone()],
                vec![rows.clone(), four.clone()],
                vec![s.clone()],
            ),
            (vec![rows, four.clone()], vec![b.clone(), s.clone(), four], vec![s.clone()]),
            (vec![b.clone(), s.clone()], vec![b.clone(), s.clone()], vec![]),
            (vec![b.clone()], vec![s.clone(), u.clone()], vec![s.clone(), u]),
            (vec![b], vec![Extent::from(-1), Extent::from(0)], vec![]),
        ] {
            assert_eq!(nonzero(&from, &to), Some(Ok(lists(&expected))), "{from:?} to {to:?}");
        }
        let flat = |to: &[Extent]| apply(F::FlattenAxis, &[from.clone(), lists(to)]);
        let (rows, columns) = (&Extent::sym("b") * &Extent::sym("s"), Extent::from(768));
        assert_eq!(flat(&[rows.clone(), columns]), Some(Ok(Val::Attr(Attr::int(2)))));
        assert!(flat(&[rows, Extent::sym("b")]).is_some_and(|r| r.is_err()));
    }
}
