//! Row-major numbers and indices: a reshape joins neighbouring axes and parts them again, and leaves others alone.

use super::evaluation::expression::product;
use super::integer::{Argument, Atom, Int};
use super::list::{List, Outcome, Part, small};

/// The row-major number of an index.
pub(super) fn raveled(index: &List, shape: &List) -> Outcome<Int> {
    index.aligned(shape)?;
    let parts = index.0.iter().zip(&shape.0).filter(|(_, n)| !is_one(n));
    let (index, shape): (Vec<Part>, Vec<Part>) = parts.map(|(i, n)| (i.clone(), n.clone())).unzip();
    if let Some(number) = index.first().and_then(unraveled_from)
        && unraveled(&number, &List(shape.clone()))?.0 == index
    {
        return Ok(number);
    }
    Ok(match index.as_slice() {
        [] => Int::from(0),
        [Part::One(i)] => i.clone(),
        _ => {
            let both = [index, shape].map(|l| Argument::List(List(l)));
            Int::from(Atom::Of("ravel", both.to_vec()))
        }
    })
}

/// The index of a row-major number.
pub(super) fn unraveled(number: &Int, shape: &List) -> Outcome<List> {
    // Axes of one element have the index zero, and are put back at the end.
    let long: Vec<Part> = shape.0.iter().filter(|n| !is_one(n)).cloned().collect();
    let known = match number.atom() {
        Some(Atom::Of("ravel", args)) => match args.as_slice() {
            [Argument::List(index), Argument::List(from)] => regrouped(&index.0, &from.0, &long)?,
            _ => None,
        },
        _ => None,
    };
    let known = known.unwrap_or_else(|| parted(number, &long));
    let mut known = known.into_iter();
    let entries = shape.0.iter().map(|n| match is_one(n) {
        true => n.with(Int::from(0)),
        false => known.next().unwrap_or_else(|| n.with(Int::from(0))),
    });
    Ok(List(entries.collect()))
}

fn is_one(extent: &Part) -> bool {
    extent.entry().number() == Some(1)
}

/// The number that an entry was parted from.
fn unraveled_from(entry: &Part) -> Option<Int> {
    match entry.entry().atom() {
        Some(Atom::Of("unravel", args)) => match args.as_slice() {
            [_, Argument::Int(number), _] => Some(number.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The entries that a number is parted into.
fn parted(number: &Int, shape: &[Part]) -> Vec<Part> {
    if let [Part::One(_)] = shape {
        return vec![Part::One(number.clone())];
    }
    let entry = |(i, p): (usize, &Part)| {
        let place = Argument::Int(Int::from(i as i64));
        let shape = Argument::List(List(shape.to_vec()));
        p.with(Int::from(Atom::Of("unravel", vec![place, Argument::Int(number.clone()), shape])))
    };
    shape.iter().enumerate().map(entry).collect()
}

/// The index into one shape of what an index into another one names, from the last axis on: equal axes have equal entries, neighbours
/// are joined or parted where their products are equal; nothing if they are not.
fn regrouped(index: &[Part], from: &[Part], to: &[Part]) -> Outcome<Option<Vec<Part>>> {
    let (mut i, mut j) = (from.len(), to.len());
    let mut out: Vec<Part> = Vec::new();
    while i > 0 && j > 0 {
        if from[i - 1] == to[j - 1] {
            out.push(index[i - 1].clone());
            (i, j) = (i - 1, j - 1);
            continue;
        }
        let Some((a, b)) = equal_products(&from[..i], &to[..j])? else { return Ok(None) };
        let joined = raveled(&List(index[a..i].to_vec()), &List(from[a..i].to_vec()))?;
        let parts = unraveled_apart(&joined, &to[b..j])?;
        out.extend(parts.into_iter().rev());
        (i, j) = (a, b);
    }
    out.reverse();
    Ok((i == 0 && j == 0).then_some(out))
}

/// The entries of a number that no regrouping parts further.
fn unraveled_apart(number: &Int, to: &[Part]) -> Outcome<Vec<Part>> {
    let whole = match number.atom() {
        Some(Atom::Of("ravel", args)) => match args.as_slice() {
            [Argument::List(index), Argument::List(from)] if from.0 == to => Some(index.0.clone()),
            _ => None,
        },
        _ => None,
    };
    Ok(whole.unwrap_or_else(|| parted(number, to)))
}

/// Where the shortest ends of two shapes with equal products begin.
fn equal_products(from: &[Part], to: &[Part]) -> Outcome<Option<(usize, usize)>> {
    for a in (0..from.len()).rev() {
        let left = product(&List(from[a..].to_vec()))?;
        for b in (0..to.len()).rev() {
            if small(left.plus(-1, &product(&List(to[b..].to_vec()))?))?.number() == Some(0) {
                return Ok(Some((a, b)));
            }
        }
    }
    Ok(None)
}
