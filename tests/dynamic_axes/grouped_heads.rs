//! Heads that share keys and values: what exporters repeat for each head is not repeated where it is computed with.

use mlc_dsl::ir::NodeKind;
use mlc_rewrite::{Model, Optimizer};

/// Attention over keys and values that are repeated for the heads of a group; `scores` is what follows the scaled products.
fn model(batch: &str, scores: &str) -> String {
    let repeated = |x: &str, e: usize| {
        format!(
            "reshape(broadcast({x}, map=[0, 1, 3, 4], shape=[{batch}, 3, 4, |t|, {e}]), shape=[{batch}, 12, |t|, {e}])"
        )
    };
    let (k, v) = (repeated("k", 16), repeated("v", 8));
    let b = batch.trim_matches('|');
    format!(
        "
def f(
  q: f32[{b}, 12, s, 16], k: f32[{b}, 3, t, 16], v: f32[{b}, 3, t, 8], m: f32[s, t], c: bool[s, t]
) -> f32[{b}, 12, s, 8]
  let keys = {k}
  let scores = 0.25 * (q @ transpose(keys, perm=[0, 1, 3, 2]))
  = softmax({scores}, axis=3) @ {v}
"
    )
}

#[test]
fn nothing_is_repeated_for_the_heads_of_a_group() {
    for batch in ["|b|", "1"] {
        let wide = |x: &str| format!("broadcast({x}, map=[2, 3], shape=[{batch}, 12, |s|, |t|])");
        let masked = format!("scores + {}", wide("m"));
        let select = format!("select({}, scores, -9.0)", wide("c"));
        for scores in ["scores", masked.as_str(), select.as_str()] {
            let text = model(batch, scores);
            let model = Model::from_rules(&text).unwrap_or_else(|e| panic!("{e:#}{text}"));
            let optimizer = Optimizer::new().extents("s", 1..=1).extents("t", 16..=1024);
            let done = optimizer.optimize(&model).expect("it is optimised");
            let program = &done.result().program;
            let nodes = program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..)));
            let shapes = nodes.flat_map(|n| &n.types).map(|t| &t.shape);
            let repeats = |shape: &Vec<mlc_dsl::ir::Extent>| {
                shape.len() == 5 && shape[2].is(4)
                    || shape.len() == 4
                        && shape[1].is(12)
                        && shape[3].symbols().is_empty()
                        && shape[2].symbols().iter().any(|s| &**s == "t")
            };
            let found: Vec<_> = shapes.filter(|s| repeats(s)).collect();
            assert!(found.is_empty(), "{found:?} of{text}{}", done.text());
        }
    }
}
