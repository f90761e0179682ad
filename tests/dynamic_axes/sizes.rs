//! Programs that are chosen for a range of extents.

use mlc_dsl::ir::{Node, NodeKind};
use mlc_rewrite::{Model, Optimizer};
use std::ops::RangeInclusive;

/// Two products, one after the other: better where there are few rows.
const OF_ROWS: &str = "
def f(x: f32[n, 256], a: f32[256, 256], b: f32[256, 256]) -> f32[n, 256]
  = (x @ a) @ b
";

/// The product of the weights first: better where there are many rows.
const OF_WEIGHTS: &str = "
def f(x: f32[n, 256], a: f32[256, 256], b: f32[256, 256]) -> f32[n, 256]
  = x @ (a @ b)
";

#[test]
fn a_program_is_the_best_for_the_extents_that_come() {
    let cases: [(&str, Option<RangeInclusive<u64>>, bool); 7] = [
        (OF_ROWS, None, false),
        (OF_ROWS, Some(1..=16), false),
        (OF_ROWS, Some(2048..=8192), true),
        // What gains at one end must not lose at the other.
        (OF_ROWS, Some(1..=8192), false),
        (OF_WEIGHTS, None, false),
        (OF_WEIGHTS, Some(2048..=8192), true),
        (OF_WEIGHTS, Some(1..=8192), true),
    ];
    for (text, range, of_weights) in cases {
        let model = Model::from_rules(text).expect("it is read");
        let optimizer = match &range {
            Some(range) => Optimizer::new().extents("n", range.clone()),
            None => Optimizer::new(),
        };
        let done = optimizer.optimize(&model).expect("it is optimised");
        let is_product = |n: &&Node| matches!(n.kind, NodeKind::Apply(..));
        let nodes = done.result().program.nodes.iter().filter(is_product);
        let found = nodes.flat_map(|n| &n.types).any(|t| t.shape == [256.into(), 256.into()]);
        assert_eq!(found, of_weights, "{range:?} of{text}{}", done.text());
        let sizes = &done.report().sizes;
        assert_eq!(sizes.len(), 3);
        for s in sizes {
            assert!(s.after <= s.before * 1.02, "{range:?} of{text}: {s:?}");
        }
    }
}

#[test]
fn a_range_names_an_open_axis() {
    let model = Model::from_rules(OF_ROWS).expect("it is read");
    let told = |symbol: &str, range: RangeInclusive<u64>| {
        let error = Optimizer::new().extents(symbol, range).optimize(&model).err();
        format!("{:#}", error.expect("it is refused"))
    };
    assert_eq!(
        told("m", 1..=2),
        "range of `m`: no input of the model has an open axis of this name\nhelp: open are n"
    );
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = told("n", 8..=2);
    assert_eq!(
        reversed,
        "range of `n`: it ends before it begins\nhelp: write the smaller extent first, as in `1..512`"
    );
}
