//! Inline tests of laws: `picks` is tested by cost, `never` by the search.

use mlc_rewrite::{lawtest, stdlib};
use std::sync::Arc;

/// What is wrong with the tests of a text's laws.
fn broken(text: &str) -> Vec<String> {
    let (library, diags) = stdlib::with(&[("case.rules", text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    let source = library.sources.len() as u32 - 1;
    let own = library.laws.iter().filter(|l| l.source.file == source);
    let names: Vec<String> = own.map(|l| l.name.to_string()).collect();
    let broken = lawtest::check(&Arc::new(library), Some(&names), "standard").expect("the target");
    broken.into_iter().map(|b| b.message).collect()
}

#[test]
fn the_thin_side_is_picked_where_it_is_thin() {
    let law = |sizes: &str| {
        broken(&format!(
            "rule regroup (a @ b) @ c <=> a @ (b @ c)
               given a: F[m, k], b: F[k, l], c: F[l, n] if |k| > 0, |l| > 0 error reorder
               picks a @ (b @ c) at {sizes}"
        ))
    };
    assert_eq!(law("m = 64, k = 64, l = 64, n = 1"), [""; 0]);
    let wrong = law("m = 1, k = 64, l = 64, n = 64");
    assert!(wrong[0].contains("on `standard` this side costs"), "{wrong:?}");
    let both = law("m = 0 - 1");
    assert!(both[0].contains("`m` is no extent"), "{both:?}");
}

#[test]
fn a_law_must_stay_silent_where_it_says_so() {
    let law = |never: &str| {
        broken(&format!(
            "rule merge
               each y = x @ a => each y = part(x @ concat(each a, axis=-1), axis=-1)
               given x: F[s, k], each a: F[k, m], b: F[k, n], u: F[s, k]
               error exact
               never {never}"
        ))
    };
    assert_eq!(law("y = x @ a, z = u @ b \"the left factors differ\""), [""; 0]);
    let fires = law("y = x @ a, z = x @ b, w = u \"it is wrong about that\"");
    assert_eq!(fires, ["the law fires where it never must: it is wrong about that"]);
}
