//! Damaged and random bytes as `.onnx` and as `.rules`: a clear error every time, no panic, no more
//! than 1 GiB.

use bytes::Bytes;
use mlc_dsl::check::library;
use mlc_rewrite::onnx::{import, parse_onnx};
use mlc_rewrite::samples::Random;
use mlc_rewrite::{pipeline, stdlib};

const CASES: usize = 10_000;
const MEMORY: u64 = 1 << 30;

/// One to four damages: bits flipped, bytes replaced, a part removed, repeated or cut off.
fn damage(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let n = out.len() as u64;
        if n == 0 {
            break;
        }
        let at = random.below(n) as usize;
        let end = (at + 1 + random.below(32) as usize).min(out.len());
        match random.below(6) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.bits() as u8,
            2 => drop(out.drain(at..end)),
            3 => {
                let part = out[at..end].to_vec();
                out.splice(at..at, part);
            }
            4 => out.truncate(at),
            _ => out[at..end].iter_mut().for_each(|b| *b = random.bits() as u8),
        }
    }
    out
}

fn within_memory() {
    if let Some(peak) = pipeline::peak_process_bytes() {
        assert!(peak < MEMORY, "{peak} bytes at most");
    }
}

/// The example model without its weights' bulk: every tensor keeps its first kilobyte at most, so
/// that damages meet structure rather than weights.
fn model() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/squeezenet1_1.onnx");
    let mut raw = mlc_rewrite::onnx::read_onnx(path).expect("the example reads");
    for t in raw.graph.initializers.values_mut() {
        if t.len() > 64 {
            let ty = t.dtype();
            *t = mlc_dsl::ir::Tensor::from_f64(ty, vec![4], &[0.5; 4]);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("small.onnx");
    mlc_rewrite::onnx::write_onnx(&raw, &out).expect("writes");
    std::fs::read(out).expect("reads")
}

#[test]
fn damaged_models_are_refused_clearly() {
    let shipped = stdlib::load_sound(&[]).expect("the shipped texts are sound");
    let original = model();
    let mut random = Random::new(1);
    let mut refused = 0;
    for case in 0..CASES {
        let bytes = match case % 10 {
            0 => (0..random.below(4096)).map(|_| random.bits() as u8).collect(),
            _ => damage(&original, &mut random),
        };
        match parse_onnx(Bytes::from(bytes), None) {
            Err(e) => {
                refused += 1;
                assert!(!e.to_string().trim().is_empty());
            }
            Ok(raw) => {
                if let Err(e) = import(raw, &shipped) {
                    refused += 1;
                    assert!(!e.to_string().trim().is_empty());
                }
            }
        }
    }
    assert!(refused > CASES / 2, "{refused} refused: the damages do not damage");
    within_memory();
}

#[test]
fn damaged_rules_are_diagnosed() {
    let texts: Vec<&str> = stdlib::TEXTS.iter().map(|(_, t)| *t).collect();
    let ops: Vec<(String, String)> = stdlib::TEXTS
        .iter()
        .filter(|(n, _)| n.starts_with("rules/ops"))
        .map(|(n, t)| (n.to_string(), t.to_string()))
        .collect();
    let mut random = Random::new(2);
    let mut diagnosed = 0;
    for case in 0..CASES {
        let bytes = match case % 10 {
            0 => (0..random.below(512)).map(|_| random.bits() as u8).collect(),
            _ => {
                // A window of a text keeps a case quick and the damage dense.
                let text = texts[random.below(texts.len() as u64) as usize].as_bytes();
                let from = random.below(text.len().max(1) as u64) as usize;
                damage(&text[from..(from + 1500).min(text.len())], &mut random)
            }
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Most cases stand alone; some meet the operators, so that elaboration is reached.
        let mut all = if case % 50 == 1 { ops.clone() } else { vec![] };
        all.push(("case.rules".into(), text));
        let (library, diags) = library(&all);
        diagnosed += usize::from(!diags.is_empty());
        if case % 100 == 1 {
            assert!(stdlib::rendered(&library, &diags, false).len() < 1 << 26);
        }
    }
    assert!(diagnosed > CASES / 2, "{diagnosed} diagnosed: the damages do not damage");
    within_memory();
}
