//! `onnx` items that call others.

use super::super::support::*;
use mlc_dsl::library::Library;
use mlc_onnx::*;
use mlc_rewrite::stdlib;

/// The shipped texts and this one.
fn with_text(text: &str) -> Library {
    let (library, diags) = stdlib::with(&[("own.rules", text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    library
}

/// What a node `Own` of the domain `own` computes by these items.
fn read(
    text: &str,
    args: &[Arg],
    attrs: &[(&str, RawAttr)],
    n: usize,
) -> Result<Vec<Vec<f64>>, String> {
    let library = with_text(text);
    let (mut raw, feeds) = single(18, "Own", args, attrs, n);
    raw.graph.nodes[0].domain = "own".into();
    raw.opset_imports.insert("own".into(), 1);
    let read = import(raw, &library).map_err(|e| e.to_string())?;
    let values = run_values(&read.program, &library, &feeds).expect("runs");
    Ok(values.iter().map(|v| v.to_tensor().to_f64().to_vec()).collect())
}

fn x() -> Arg {
    In(floats(&[2], &[-1.0, 3.0]))
}

#[test]
fn an_item_reads_what_another_reads() {
    let of = |text: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[f64]| {
        let text = format!("/// One that calls others.\n{text}\n");
        assert_eq!(read(&text, args, attrs, 1).expect(&text), [expected.to_vec()], "{text}");
    };
    // The newest of its name in ONNX's domain, with its defaults, by place and by name.
    of("onnx Own(x) since 1 in \"own\"\n  = Clip(x, scalar(0, f32))", &[x()], &[], &[0.0, 3.0]);
    of(
        "onnx Own(x) since 1 in \"own\"\n  = Clip(x, high=scalar(2, f32))",
        &[x()],
        &[],
        &[-1.0, 2.0],
    );
    // What is left out here is left out there.
    let low = "onnx Own(x, low?; alpha: float) since 1 in \"own\"\n  = LeakyRelu(Clip(x, low), alpha=alpha)";
    of(low, &[x()], &[], &[-0.009999999776482582, 3.0]);
    of(low, &[x()], &[("alpha", RawAttr::Float(0.5))], &[-0.5, 3.0]);
    of(low, &[x(), In(floats(&[], &[1.0]))], &[], &[1.0, 3.0]);
    // Several results are taken apart; lists are passed on; numbers stand for inputs that are read as attributes.
    let two = "onnx Own(x) since 1 in \"own\"\n  let (y, s, z) = DynamicQuantizeLinear(x)\n  \
               = Sum(cast(y, to=f32), cast(z, to=f32))";
    of(two, &[x()], &[], &[64.0, 319.0]);
    of("onnx Own(xs...) since 1 in \"own\"\n  = Sum(xs)", &[x(), x()], &[], &[-2.0, 6.0]);
    of("onnx Own(x) since 1 in \"own\"\n  = Unsqueeze(x, [0])", &[x()], &[], &[-1.0, 3.0]);
    // One of the same name and domain is preferred, and an item never calls itself.
    let newer = "onnx Own(x) since 1 in \"own\"\n  = Relu(x)\n\n/// Another.\n\
                 onnx Relu(x) since 1 in \"own\"\n  = neg(Relu(x))";
    of(newer, &[x()], &[], &[0.0, -3.0]);
}

#[test]
fn results_are_asked_of_the_node() {
    let text = "/// One that calls another.\nonnx Own(x) -> y, z since 1 in \"own\"\n  = Parts(x)\n\n\
                /// What it calls.\nonnx Parts(x) -> y, z since 1 in \"parts\"\n  \
                = (x, neg(x)) if wanted(1)\n  | x + x\n";
    assert_eq!(read(text, &[x()], &[], 1).expect("reads"), [vec![-2.0, 6.0]]);
    assert_eq!(read(text, &[x()], &[], 2).expect("reads"), [vec![-1.0, 3.0], vec![1.0, -3.0]]);
}

#[test]
fn wrong_calls_are_told() {
    for (text, reason) in [
        (
            "onnx Own(x) since 1 in \"own\"\n  = Clip(lowest=x)",
            "`Clip` has no input or attribute `lowest`",
        ),
        ("onnx Own(x) since 1 in \"own\"\n  = Relu(x, x)", "`Relu` takes 1 inputs"),
        ("onnx Own(x) since 1 in \"own\"\n  = Relu()", "the input `x` is missing of `Relu`"),
        ("onnx Own(x) since 1 in \"own\"\n  = Relu(3)", "the input `x` takes a tensor of `Relu`"),
        ("onnx Own(x) since 1 in \"own\"\n  = Nothing(x)", "`Nothing`, which no text declares"),
        (
            "onnx Own(x) since 1 in \"own\"\n  = Other(x)\n\n/// A circle.\n\
             onnx Other(x) since 1 in \"own\"\n  = Own(x)",
            "in a circle",
        ),
        (
            "onnx Own(x) since 1 in \"own\"\n  = Other(Other(x)) + Other(Other(x))\n\n/// A circle.\n\
             onnx Other(x) since 1 in \"own\"\n  = Own(x) + Own(Own(x))",
            "in a circle",
        ),
    ] {
        let e = read(&format!("/// Wrong.\n{text}\n"), &[x()], &[], 1).expect_err(text);
        assert!(e.contains(reason), "{text}: {e}");
    }
}
