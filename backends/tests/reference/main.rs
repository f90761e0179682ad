//! The reference interpreter: operators against hand-computed results, its engines against each other, programs,
//! references.

mod engines;
mod operators;
mod programs;
mod recurrences;
mod references;

use mlc_backends::reference::{Array, Engine, Precision, Reference};
use mlc_dsl::check;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{CallId, Library};
use std::path::Path;
use std::sync::OnceLock;

const F32: DType = DType::F32;
const I32: DType = DType::I32;
const I64: DType = DType::I64;
const BOOL: DType = DType::Bool;

/// The operators of `rules/ops` and `rules/extern`, recurrent layers, and what the tests add to them.
fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules");
        let mut paths: Vec<_> = ["ops", "extern"]
            .into_iter()
            .flat_map(|dir| std::fs::read_dir(rules.join(dir)).expect("a folder of rules"))
            .map(|e| e.expect("a readable folder").path())
            .collect();
        paths.push(rules.join("layers/recurrent.rules"));
        paths.sort();
        let mut texts: Vec<(String, String)> = paths
            .iter()
            .map(|p| (p.display().to_string(), std::fs::read_to_string(p).expect("a text")))
            .collect();
        texts.push(("extra".into(), EXTRA.into()));
        let (library, diags) = check::library(&texts);
        assert!(diags.is_empty(), "{diags:#?}");
        library
    })
}

const EXTRA: &str = r#"
/// Sum of three things that differ in what they depend on.
op outer(a: F[m, k], b: F[n, k]) -> y: F[n, m]
  y[n, m] = sum(k) b[n, k] * a[m, k]

/// Softmax along the last axis.
def softmax(x: F[..p, n]) -> F[..p, n]
  let e = exp(x - max(n) x)
  = e / sum(n) e

/// Two results.
op divide(a: I[..s], b: I[..s]) -> q: I[..s], r: I[..s]
  q[..s] = a[..s] / b[..s]
  r[..s] = remainder(a[..s], b[..s])

/// Whether all or any elements of a row are true.
op every(x: bool[..s, n]) -> y: bool[..s]
  y[..s] = all(n) x[..s, n]

/// The same for one.
op some(x: bool[..s, n]) -> y: bool[..s]
  y[..s] = any(n) x[..s, n]

/// A tenth.
def tenth(x: F[..s]) -> F[..s]
  = x * 0.1

/// At most so much.
def at_most(x: N[..s], most: float) -> N[..s]
  = minimum(x, most)

/// No such thing.
extern nothing(x: F[s]) -> y: F[s]
  reference "nothing"
"#;

fn reference(engine: Engine) -> Reference {
    Reference { engine, precision: Precision::F64 }
}

fn array(dtype: DType, shape: &[usize], values: &[f64]) -> Array {
    let array = if dtype.is_float() {
        Array::from_f64(dtype, shape.to_vec(), values.to_vec())
    } else {
        Array::from_i64(dtype, shape.to_vec(), values.iter().map(|&v| v as i64).collect())
    };
    array.expect("as many values as the shape says")
}

fn f32s(shape: &[usize], values: &[f64]) -> Array {
    array(F32, shape, values)
}

/// `(7 i + 5) mod 11 − 5` and its like: small integers without a pattern.
fn ramp(shape: &[usize], factor: usize, offset: usize, modulus: usize) -> Array {
    let n = shape.iter().product();
    let value = |i: usize| ((i * factor + offset) % modulus) as f64 - (modulus / 2) as f64;
    f32s(shape, &(0..n).map(value).collect::<Vec<_>>())
}

fn ints(v: &[i64]) -> Attr {
    Attr::ints(v.iter().copied())
}

/// Applies an operator with attributes by name.
fn apply(
    engine: Engine,
    op: &str,
    attrs: &[(&str, Attr)],
    args: &[Array],
) -> Result<Vec<Array>, String> {
    let (call, values) = application(op, attrs);
    reference(engine).apply(library(), call, &values, args).map_err(|e| e.to_string())
}

/// An operator and its attributes in the declared order.
fn application(op: &str, attrs: &[(&str, Attr)]) -> (CallId, Vec<Option<Attr>>) {
    let call = library().find(op).unwrap_or_else(|| panic!("there is no `{op}`"));
    let declared = &library().call(call).attrs;
    for (name, _) in attrs {
        assert!(declared.iter().any(|a| *a.name == **name), "`{op}` has no attribute `{name}`");
    }
    let value = |name: &str| attrs.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
    (call, declared.iter().map(|p| value(&p.name)).collect())
}

/// The first result, the same from both engines.
#[track_caller]
fn result(op: &str, attrs: &[(&str, Attr)], args: &[Array]) -> Array {
    let [plain, fast] = [Engine::Plain, Engine::Fast].map(|engine| {
        let mut results = apply(engine, op, attrs, args).unwrap_or_else(|e| panic!("{op}: {e}"));
        results.swap_remove(0)
    });
    assert_eq!((plain.dtype(), plain.shape()), (fast.dtype(), fast.shape()), "{op}");
    for (a, b) in plain.to_f64().iter().zip(fast.to_f64()) {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{op}: {a} and {b}");
    }
    plain
}

/// The first result has this shape and these elements, floats to 1e-14.
#[track_caller]
fn check(op: &str, attrs: &[(&str, Attr)], args: &[Array], shape: &[usize], expect: &[f64]) {
    let found = result(op, attrs, args);
    assert_eq!(found.shape(), shape, "{op}");
    close(op, &found.to_f64(), expect, 1e-14);
}

#[track_caller]
fn close(what: &str, found: &[f64], expect: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expect.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expect).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= tolerance * (1.0 + b.abs());
        assert!(same || near, "{what}, element {i}: {a} instead of {b}");
    }
}

/// The application fails in both engines with a message that contains `part`.
#[track_caller]
fn fails(op: &str, attrs: &[(&str, Attr)], args: &[Array], part: &str) {
    for engine in [Engine::Plain, Engine::Fast] {
        let message = apply(engine, op, attrs, args).expect_err(op);
        assert!(message.contains(part), "{op}: {message:?} does not contain {part:?}");
    }
}
