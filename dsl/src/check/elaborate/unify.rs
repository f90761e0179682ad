//! Unifies the axes and segments of a parameter with those of an argument.

use super::Bound;
use super::dims;
use crate::library::{Dim, Name};

/// Binds the names of `pattern` to parts of `own`; false if they do not fit (then nothing is certain).
pub(crate) fn bind(
    pattern: &[Dim],
    own: &[Dim],
    bound: &mut Bound,
    hint: &[(Name, usize)],
) -> bool {
    if dims::unknown(pattern, bound) >= 2 {
        let at = pattern.iter().enumerate().find_map(|(i, d)| match d {
            Dim::Axis(n) => hint.iter().find(|(h, _)| h == n).map(|(_, at)| (i, *at)),
            _ => None,
        });
        let Some((i, at)) = at.filter(|(_, at)| *at < own.len()) else { return false };
        return bind(&pattern[..i], &own[..at], bound, &[])
            && bind(&pattern[i..=i], &own[at..=at], bound, &[])
            && bind(&pattern[i + 1..], &own[at + 1..], bound, &[]);
    }
    let len = |d: &Dim, bound: &Bound| match d {
        Dim::Seg(s) => bound.get(s).map(<[Dim]>::len),
        _ => Some(1),
    };
    let fixed: usize = pattern.iter().filter_map(|d| len(d, bound)).sum();
    let Some(free) = own.len().checked_sub(fixed) else { return false };
    if dims::unknown(pattern, bound) == 0 && free > 0 {
        return false;
    }
    let mut at = 0;
    for d in pattern {
        let n = len(d, bound).unwrap_or(free);
        let part = &own[at..at + n];
        at += n;
        let name = match d {
            Dim::Axis(_) if matches!(part[0], Dim::Seg(_) | Dim::Splice(_)) => return false,
            Dim::Axis(n) | Dim::Seg(n) => n,
            Dim::Value(_) | Dim::Splice(_) => continue,
        };
        match bound.get(name) {
            // Extents with different names may still be equal: the type of the application decides.
            Some(b) if b.len() == part.len() => {}
            Some(_) => return false,
            None => bound.names.push((name.clone(), part.to_vec())),
        }
    }
    true
}
