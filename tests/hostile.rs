//! Corrupted and random bytes as `.onnx` and as `.rules`: a clear error every time, no panic, no more
//! than 1 GiB.

use bytes::Bytes;
use mlc_dsl::check::library;
use mlc_dsl::random::Random;
use mlc_onnx::{import, parse_onnx};
use mlc_rewrite::{pipeline, stdlib};

const CASES: usize = 10_000;
const MEMORY: u64 = 1 << 30;

/// One to four damages: bits flipped, bytes replaced, a part removed, repeated or cut off.
fn damage(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let n = out.len();
        if n == 0 {
            break;
        }
        let at = random.below(n);
        let end = (at + 1 + random.below(32)).min(out.len());
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
    let mut raw = mlc_onnx::read_onnx(path).expect("the example reads");
    for t in raw.graph.initializers.values_mut() {
        if t.len() > 64 {
            let ty = t.dtype();
            *t = mlc_dsl::ir::Tensor::from_f64(ty, vec![4], &[0.5; 4]);
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("small.onnx");
    mlc_onnx::write_onnx(&raw, &out).expect("writes");
    std::fs::read(out).expect("reads")
}

#[test]
fn damaged_models_are_refused_clearly() {
    let shipped = stdlib::shipped();
    let original = model();
    let mut random = Random::from_state(1);
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
    let texts: Vec<&str> = stdlib::sources().iter().map(|s| &*s.text).collect();
    let ops = stdlib::sources().iter().filter(|s| s.name.starts_with("rules/ops"));
    let ops: Vec<(&str, &str)> = ops.map(|s| (&*s.name, &*s.text)).collect();
    let mut random = Random::from_state(2);
    let mut diagnosed = 0;
    for case in 0..CASES {
        let bytes = match case % 10 {
            0 => (0..random.below(512)).map(|_| random.bits() as u8).collect(),
            _ => {
                // A window of a text keeps a case quick and the damage dense.
                let text = random.pick(&texts).as_bytes();
                let from = random.below(text.len().max(1));
                damage(&text[from..(from + 1500).min(text.len())], &mut random)
            }
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Most cases stand alone; some meet the operators, so that elaboration is reached.
        let mut all = if case % 50 == 1 { ops.clone() } else { vec![] };
        all.push(("case.rules", &text));
        let (library, diags) = library(&all);
        diagnosed += usize::from(!diags.is_empty());
        if case % 100 == 1 {
            assert!(stdlib::rendered(&library, &diags, false).len() < 1 << 26);
        }
    }
    assert!(diagnosed > CASES / 2, "{diagnosed} diagnosed: the damages do not damage");
    within_memory();
}

/// Shipped texts whose name contains `which`, and one more, and what is said of that one.
fn read(which: &str, text: &str) -> (mlc_dsl::library::Library, Vec<mlc_dsl::diagnostics::Diag>) {
    let wanted = stdlib::sources().iter().filter(|s| s.name.contains(which));
    let mut texts: Vec<(&str, &str)> = wanted.map(|s| (&*s.name, &*s.text)).collect();
    texts.push(("own.rules", text));
    let (library, diags) = library(&texts);
    let own = library.sources.len() as u32 - 1;
    let diags = diags.into_iter().filter(|d| d.source == own).map(|d| d.diag).collect();
    (library, diags)
}

/// A body in which every part is made of the one before: `step` has it as `%`.
fn lets(count: usize, first: &str, step: &str, last: &str) -> String {
    let mut text = format!("  let a0 = {first}\n");
    for i in 1..count {
        let before = format!("a{}", i - 1);
        text += &format!("  let a{i} = {}\n", step.replace('%', &before));
    }
    text + &format!("  = {}\n", last.replace('%', &format!("a{}", count - 1)))
}

#[test]
fn texts_that_would_grow_without_end_are_refused() {
    let axes = |n: usize| (0..n).map(|i| format!("a{i}")).collect::<Vec<_>>().join(", ");
    let mut chain = "def f0(x: F[..s]) -> F[..s]\n  = exp(x)\n".to_string();
    for i in 1..1000 {
        chain += &format!("def f{i}(x: F[..s]) -> F[..s]\n  = f{}(x) + 1\n", i - 1);
    }
    let number = "def m(x: F[a]) -> F[a]\n";
    let cases = [
        ("R022", "def f(x: F[..s]) -> F[..s]\n  = f(x) + 1\n".to_string()),
        ("R023", chain),
        ("R016", format!("def f(x: F[{0}]) -> F[{0}]\n  = exp(x)\n", axes(40))),
        ("R016", format!("def f(x: F[{0}]) -> F[{0}]\n  = exp(x)\n", axes(500))),
        ("R016", format!("rule r\n  x + x => 2 * x\n  given x: F[{}]\n  error exact\n", axes(500))),
        ("R023", number.to_string() + &lets(5000, "1.5", "% + 1", "x * %")),
        ("R023", number.to_string() + &lets(40, "1.5", "% + %", "x * %")),
        ("R003", format!("{number}  = {}(x)\n", "n".repeat(1_000_000))),
        ("S018", "op def rule ".repeat(10_000)),
        ("S004", format!("{number}  = {}x{}\n", "exp(".repeat(5000), ")".repeat(5000))),
        ("S004", format!("{number}  = {}x\n", "-".repeat(5000))),
        (
            "S019",
            (0..20_000).map(|i| format!("def e{i}(x: F[a]) -> F[a]\n  = nope(x)\n")).collect(),
        ),
    ];
    for (code, text) in cases {
        let (_, diags) = read("/ops/", &text);
        let shown: String = text.chars().take(70).collect();
        let codes: Vec<&str> = diags.iter().map(|d| d.code.0).take(3).collect();
        let found = diags.iter().any(|d| d.code.0 == code)
            || code == "S018" && diags.iter().any(|d| d.code.0.starts_with('S'));
        assert!(found, "{code} is not found, but {codes:?}: {shown}");
        let drawn = mlc_dsl::diagnostics::render_first(&diags, "own.rules", &text, false);
        assert!(drawn.len() < 1 << 20, "{} bytes are drawn of {shown}", drawn.len());
    }
    within_memory();
}

#[test]
fn models_that_would_grow_without_end_are_refused_or_small() {
    let four = "def m(x: F[a], y: F[b], z: F[c], w: F[d]) -> F[a]\n";
    let many =
        |n: usize, f: &str| (0..n).map(|i| f.replace('%', &i.to_string())).collect::<Vec<_>>();
    let inputs = many(20, "x%: F[a%]").join(", ");
    let product = many(20, "(|a%| + 1)").join(" * ");
    let spliced = many(400, "..range(1048576)").join(", ");
    let f4 = "def m(x: f32[4]) -> f32[4]\n";
    let cases: [(&str, String); 8] = [
        // Numbers that depend on many symbols are computed when the program runs.
        ("", four.to_string() + &lets(7, "|a| + |b| + |c| + |d|", "% * %", "x * %")),
        ("", format!("def m({inputs}) -> F[a0]\n  = x0 * ({product})\n")),
        (
            "polynomial",
            format!(
                "def m({inputs}) -> F[k]\n  where k = {product}\n  = broadcast(sum(a0) x0, map=[], shape=[{product}])\n"
            ),
        ),
        (
            "entries",
            format!(
                "def m(x: f32[4]) -> f32[..b]\n  where b = [{spliced}]\n  = reshape(x, shape=[{spliced}])\n"
            ),
        ),
        (
            "entries",
            "def m(x: f32[4]) -> f32[4]\n  = x * total(range(1048576) * range(1048576))\n".into(),
        ),
        ("", f4.to_string() + &lets(8, "x + x", "% + %", "%")),
        ("", f4.to_string() + &lets(20, "x * x", "% * %", "%")),
        ("", f4.to_string() + &lets(12, "x", "maximum(%, exp(%))", "%")),
    ];
    for (refusal, text) in cases {
        let shown: String = text.chars().take(150).collect();
        let (library, diags) = read(if refusal.is_empty() { "" } else { "/ops/" }, &text);
        assert!(
            diags.iter().all(|d| d.severity != mlc_dsl::diagnostics::Severity::Error),
            "{diags:#?}"
        );
        let program = mlc_rewrite::model::rules_model::program(&library, "m");
        if !refusal.is_empty() {
            let e = program.expect_err(&shown).to_string();
            assert!(e.contains(refusal) && e.contains("own.rules:"), "{shown}\n{e}");
            assert!(e.len() < 40_000, "{} bytes for {shown}", e.len());
            continue;
        }
        let program = program.unwrap_or_else(|e| panic!("{shown}\n{e}"));
        assert!(program.nodes.len() < 2000, "{} nodes for {shown}", program.nodes.len());
        let laws: Vec<u32> = (0..library.laws.len() as u32).collect();
        let limits = mlc_explore::Limits::default();
        let explored = mlc_explore::explore(std::sync::Arc::new(library), program, &laws, &limits);
        assert!(!explored.profiles.is_empty(), "{shown}");
    }
    within_memory();
}
