//! Results as ONNX: a fixed sample of every family's spellings takes as few nodes as the layer can be written in.

use mlc_proptests::checked_options;
use mlc_proptests::spellings::families;
use mlc_proptests::spellings::nodes::{self, Place};

/// Spellings of each family, the reference among them.
const SAMPLE: usize = 4;

/// Checks every family on a target; no result may take more nodes than the table says.
#[track_caller]
fn smallest(target: &str, opset: i64) {
    let scratch = std::env::temp_dir().join(format!("nodes-{target}-{}.onnx", std::process::id()));
    let options = checked_options();
    let place = Place { target, opset, folder: None };
    let mut wrong = Vec::new();
    for f in families() {
        let Some(expected) = nodes::smallest(f.name, target, opset) else {
            wrong.push(format!("{}: no count is known", f.name));
            continue;
        };
        let w = nodes::written(&f, SAMPLE, &scratch, &options, &place);
        wrong.extend(w.failed);
        let most = w.nodes.iter().max().copied();
        if most != Some(expected) {
            wrong.push(format!("{expected} nodes suffice, {most:?} are written: {}", w.largest));
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
