//! Bounds of symbols without which a model has no meaning.
//!
//! A table of 512 positions that is cut to the length of a sentence and added to the sentence has no sum for a longer one. Such
//! a model is read for what it has a meaning for: where the *fact* `512 - length` is at least 0, the cut table is as long as
//! the sentence. A fact is only taken that holds wherever the model has a meaning, so that nothing is narrowed.

use mlc_dsl::ir::{Attr, Extent};

/// An extent that is at least 0 wherever two extents are equal, and where it is they are: `512 - n` of `n` and `min(n, 512)`.
pub(crate) fn bound_to_be_equal(a: &Extent, b: &Extent) -> Option<Extent> {
    bounds(a, b).find(|fact| differ_otherwise(a, b, fact))
}

/// The same of two extents that broadcast: where they are not equal neither of them is 1.
pub(crate) fn bound_to_broadcast(a: &Extent, b: &Extent) -> Option<Extent> {
    let is_one = |e: &Extent, otherwise: &[Extent]| {
        let e = e.where_all(otherwise);
        !(e.at_least_where(2, otherwise) || (-&e).at_least_where(0, otherwise))
    };
    bounds(a, b).find(|fact| {
        let otherwise = [otherwise(fact)];
        differ_otherwise(a, b, fact) && ![a, b].iter().any(|e| is_one(e, &otherwise))
    })
}

/// What is at least 0 where a fact does not hold.
fn otherwise(fact: &Extent) -> Extent {
    &-fact - &Extent::from(1)
}

fn differ_otherwise(a: &Extent, b: &Extent, fact: &Extent) -> bool {
    let otherwise = [otherwise(fact)];
    let difference = (a - b).where_all(&otherwise);
    difference.at_least_where(1, &otherwise) || (-&difference).at_least_where(1, &otherwise)
}

/// Extents that make two others equal by being at least 0.
fn bounds<'a>(a: &'a Extent, b: &'a Extent) -> impl Iterator<Item = Extent> + 'a {
    let difference = a - b;
    let parts = difference.all_positive_parts().into_iter();
    parts
        .flat_map(|e| [-&e, e])
        .filter(move |fact| difference.where_all(std::slice::from_ref(fact)).is(0))
}

/// `fact >= 0` as a person would write it.
pub(crate) fn bound_text(fact: &Extent) -> String {
    let terms = fact.terms();
    let (less, more): (Vec<_>, Vec<_>) = terms.into_iter().partition(|(_, c)| *c < 0);
    let sum = |terms: Vec<(mlc_dsl::ir::Monomial, i64)>| Extent::from_terms(terms);
    format!("{} <= {}", -&sum(less), sum(more))
}

/// An attribute whose extents are what they are where all of `facts` are at least 0.
pub(crate) fn simplified(a: &Attr, facts: &[Extent]) -> Attr {
    match a {
        Attr::Int(e) => Attr::Int(e.where_all(facts)),
        Attr::Ints(list) => Attr::Ints(list.iter().map(|e| e.where_all(facts)).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_axis_bounds_the_whole_one() {
        let (n, t, most) = (Extent::sym("n"), Extent::sym("t"), Extent::from(512));
        let told = |fact: Option<Extent>| fact.map(|f| bound_text(&f));
        let cut = n.minimum(&most);
        assert_eq!(told(bound_to_broadcast(&cut, &n)).as_deref(), Some("n <= 512"));
        assert_eq!(told(bound_to_be_equal(&n, &cut)).as_deref(), Some("n <= 512"));
        let more = (&n - &most).positive();
        assert_eq!(told(bound_to_be_equal(&n, &(&more + &most))).as_deref(), Some("512 <= n"));
        let (end, begin) = ((&n + &t).minimum(&most), n.minimum(&most));
        assert_eq!(bound_to_broadcast(&(&end - &begin), &t), None, "t may be 0");
        assert_eq!(told(bound_to_broadcast(&end, &(&n + &t))).as_deref(), Some("t + n <= 512"));
        let first = n.minimum(&Extent::from(1));
        assert_eq!(bound_to_broadcast(&first, &n), None, "1 broadcasts");
        assert_eq!(told(bound_to_be_equal(&first, &n)).as_deref(), Some("n <= 1"));
    }
}
