//! Results as ONNX: a fixed sample of every family's spellings takes as few nodes as the layer can be written in.

use mlc_proptests::spellings::families;
use mlc_proptests::spellings::nodes::{self, Destination};
use mlc_proptests::{checked_options, sampled};

/// Spellings of each family, the reference among them.
const SAMPLE: usize = 4;

/// Nodes beyond the fewest that some spelling of a family takes: what is cheaper by price, and what is not found.
const BEYOND: &[(&str, &str, usize)] = &[
    // Both products of the gate are Gemm, of rows that have to become an image again.
    ("standard", "squeeze_excite", 1),
    ("onnxruntime", "squeeze_excite", 1),
    // The parts of the product are cut before their heads are: cheaper by price than cutting all heads at once.
    ("standard", "hand_attention_packed", 3),
    ("standard", "attention_packed", 2),
    ("standard", "hand_attention_stacked", 3),
    // An axis of one element goes and comes again: views are free by price.
    ("standard", "shifted_log_sum_exp", 2),
    ("onnxruntime", "shifted_log_sum_exp", 2),
    // Two products of pairs, spread over both of each, move fewer bytes than four of halves.
    ("onnxruntime", "rope_pairs", 1),
];

/// The same on both targets: the runtime takes two to ten times as long for the one node (`benches/operators.py`).
const SLOW_AS_ONE_NODE: &[(&str, usize)] = &[
    ("celu", 6),
    ("mish", 7),
    ("softplus", 6),
    ("prelu", 3),
    ("log_sigmoid", 6),
    ("group_norm", 3),
    ("l2_norm", 3),
    // Three of them keep an infinite maximum out of the shift.
    ("log_sum_exp", 10),
    ("careless_elu", 5),
    ("careless_prelu", 3),
    ("careless_softplus", 6),
    ("careless_mish", 7),
    ("careless_l2_norm", 3),
];

/// Checks every family on a target: no spelling takes more nodes than the fewest, and those of `BEYOND`.
#[track_caller]
fn smallest(target: &str, opset: i64) {
    let scratch = std::env::temp_dir().join(format!("nodes-{target}-{}.onnx", std::process::id()));
    let options = checked_options();
    let place = Destination { target, opset, folder: None };
    let mut wrong = Vec::new();
    for f in families() {
        let Some(expected) = nodes::smallest(f.name, target, opset) else {
            wrong.push(format!("{}: no count is known", f.name));
            continue;
        };
        let w = nodes::written(&f, sampled(SAMPLE), &scratch, &options, &place);
        wrong.extend(w.failed);
        let cheaper = BEYOND.iter().find(|(t, n, _)| *t == target && *n == f.name).map(|b| b.2);
        let slow = SLOW_AS_ONE_NODE.iter().find(|(n, _)| *n == f.name).map(|b| b.1);
        let allowed = expected + cheaper.or(slow).unwrap_or(0);
        match w.nodes.iter().max() {
            Some(&most) if most <= allowed => {}
            most => wrong.push(format!(
                "{}: {allowed} nodes suffice, {most:?} are written: {}",
                f.name, w.largest
            )),
        }
    }
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&scratch);
    assert!(wrong.is_empty(), "on {target}:\n{}", wrong.join("\n"));
}

#[test]
fn standard_operators_suffice() {
    smallest("standard", 22);
}

#[test]
fn operators_of_the_runtime_suffice() {
    smallest("onnxruntime", 22);
}
