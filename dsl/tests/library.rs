//! The shipped operators make a library without a single diagnostic.

use mlc_dsl::check::library;
use mlc_dsl::library::{Epilogue, OpClass};
use mlc_dsl::pattern::{Root, export_patterns};
use std::path::Path;

fn texts(folder: &Path, out: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for p in entries {
        if p.is_dir() {
            texts(&p, out);
        } else if p.extension().is_some_and(|e| e == "rules") {
            out.push((p.display().to_string(), std::fs::read_to_string(&p).unwrap()));
        }
    }
}

fn shipped(folder: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules").join(folder), &mut out);
    out
}

#[test]
fn operators_are_sound_and_classified() {
    let (lib, diags) = library(&shipped("ops"));
    for d in &diags {
        let s = &lib.sources[d.source as usize];
        let one = std::slice::from_ref(&d.diag);
        eprintln!("{}", mlc_dsl::diagnostics::render(one, &s.name, &s.text, false));
    }
    assert!(diags.is_empty());
    let class = |n: &str| lib.call(lib.find(n).unwrap()).class;
    for (name, expected) in [
        ("add", OpClass::Pointwise),
        ("select", OpClass::Pointwise),
        ("cast", OpClass::Pointwise),
        ("transpose", OpClass::View),
        ("reshape", OpClass::View),
        ("broadcast", OpClass::View),
        ("slice", OpClass::View),
        ("concat", OpClass::Movement),
        ("pad", OpClass::Movement),
        ("gather", OpClass::Movement),
        ("sum", OpClass::Reduction),
        ("max", OpClass::Reduction),
        ("matmul", OpClass::Contraction),
        ("conv", OpClass::Contraction),
        ("conv_transpose", OpClass::Contraction),
    ] {
        assert_eq!(class(name), expected, "{name}");
    }
}

#[test]
fn a_target_has_what_it_does_not_state_from_the_one_it_extends() {
    let mut all = shipped("ops");
    let text = "
        target third extends second
          kernel \"own\" covers exp
        target second extends first
          launch = 2e-6
          kernel \"sum\" covers add epilogue neg, abs
          kernel \"fused\" of f64
        target first
          launch = 1e-6
          flops = 1e9
          kernel \"sum\" covers add, mul
          kernel \"other\" covers exp, tanh of f32, i8
          kernel \"fused\" of f32
        fuse scaled(x: F[..s], k: F[..s]) -> F[..s]
          = tanh(x * k)
          on first(\"fused\")
    ";
    all.push(("targets.rules".into(), text.into()));
    let (lib, diags) = library(&all);
    assert!(diags.is_empty(), "{diags:?}");
    let names = |calls: &[mlc_dsl::library::CallId]| -> Vec<String> {
        calls.iter().map(|c| lib.call(*c).name.to_string()).collect()
    };
    let shown = |target: &str| -> Vec<String> {
        let t = lib.target(target).unwrap();
        let kernel = |k: &mlc_dsl::library::TargetKernel| {
            let after = match &k.epilogue {
                Epilogue::None => String::new(),
                Epilogue::Any => " any".into(),
                Epilogue::Of(calls) => format!(" then {}", names(calls).join(" ")),
            };
            format!("{}: {}{after}", k.name, names(&k.covers).join(" "))
        };
        t.kernels.iter().map(kernel).collect()
    };
    let first = ["sum: add mul", "other: exp tanh", "fused: scaled"];
    assert_eq!(shown("first"), first);
    assert_eq!(
        shown("second"),
        ["sum: add then neg abs", "sum: mul", "other: exp tanh", "fused: scaled"]
    );
    assert_eq!(
        shown("third"),
        ["own: exp", "sum: add then neg abs", "sum: mul", "other: tanh", "fused: scaled"]
    );
    let types = |target: &str| -> Vec<String> {
        let all = lib.target(target).unwrap().types.iter();
        all.map(|(k, t)| format!("{k}: {:?}", t.dtypes)).collect()
    };
    assert_eq!(types("first"), ["fused: [F32]", "other: [F32, I8]"]);
    for target in ["second", "third"] {
        assert_eq!(types(target), ["fused: [F64]", "other: [F32, I8]"], "{target}");
    }
    let figure = |target: &str, name: &str| lib.target(target).unwrap().figures[name];
    assert_eq!((figure("third", "launch"), figure("third", "flops")), (2e-6, 1e9));
}

#[test]
fn a_device_is_described_by_the_target_whose_words_its_name_has() {
    let text = "
        target base
          flops = 1e9
        target small extends base on \"L4\"
        target large extends small on \"RTX 4090\", \"A100\"
          flops_f16 = 4e9
        target larger extends base on \"A100\", \"A100 80GB\"
        target other on \"L4\", \"Xe\"
        target own extends own on \"L4\"
    ";
    let (lib, diags) = library(&[("targets.rules", text)]);
    assert_eq!(diags.len(), 1, "`own` extends itself: {diags:?}");
    for (device, target) in [
        ("NVIDIA L4", Some("small")),
        ("NVIDIA L40S", None),
        ("NVIDIA GeForce RTX 4090", Some("large")),
        ("nvidia a100-sxm4-40gb", Some("large")),
        ("NVIDIA A100-SXM4-80GB", Some("large")),
        ("NVIDIA A100 80GB PCIe", Some("larger")),
        ("Xe", None),
        ("", None),
    ] {
        let found = lib.target_of_device("base", device).map(|t| t.name.to_string());
        assert_eq!(found.as_deref(), target, "{device}");
    }
    for (target, base, is) in [
        ("large", "base", true),
        ("base", "base", true),
        ("base", "large", false),
        ("own", "base", false),
        ("none", "base", false),
    ] {
        assert_eq!(lib.is_kind_of(target, base), is, "{target}, {base}");
    }
    assert_eq!(lib.target("large").unwrap().figures["flops_f16"], 4e9);
    let text = "target t\n  flops_f99 = 1\n  launch_f32 = 1\n";
    let (_, diags) = library(&[("targets.rules", text)]);
    assert_eq!(diags.len(), 2, "{diags:?}");
}

/// Devices that are sold under these names have figures of their own.
#[test]
fn shipped_targets_describe_devices() {
    let mut all = shipped("ops");
    for folder in ["layers", "extern", "fuse", "targets"] {
        all.extend(shipped(folder));
    }
    let (lib, _) = library(&all);
    for (device, target) in [
        ("NVIDIA A100-SXM4-80GB", "cuda_a100"),
        ("NVIDIA H100 80GB HBM3", "cuda_h100"),
        ("NVIDIA H200", "cuda_h200"),
        ("NVIDIA L4", "cuda_l4"),
        ("NVIDIA GeForce RTX 4090", "cuda_rtx4090"),
    ] {
        let found = lib.target_of_device("cuda", device).map(|t| &*t.name);
        assert_eq!(found, Some(target), "{device}");
        let (own, plain) = (lib.target(target).unwrap(), lib.target("cuda").unwrap());
        assert_eq!(own.kernels.len(), plain.kernels.len(), "{target}");
        let figure = |name: &str| own.figures[name];
        assert!(figure("flops_f16") > figure("flops") && figure("slow") < figure("flops"));
        assert_eq!(figure("launch"), plain.figures["launch"], "{target}");
    }
}

#[test]
fn onnx_items_are_patterns_of_what_they_are_written_for() {
    let mut all = shipped("ops");
    let text = "
        /// A sum of many.
        onnx Total(xs...) since 1
          = fold(add, xs)
        /// Part of a chain only: not read backwards.
        onnx Mean(xs...) since 1
          = neg(fold(add, xs))
        /// A scaled sum, named along the way.
        onnx Scaled(a, b; alpha = 1.0) since 1
          let s = a + b
          = s if alpha == 1
          | alpha * s
          prints 2 * (a - b) as Scaled(a, b; alpha = 2)
        /// Parts of one.
        onnx Parts(x; axis = 0, sizes: ints) since 1
          = split(x, axis=axis, sizes=sizes)
        /// What is asked of a node cannot be asked when one is written.
        onnx Asking(x; axis = 0) since 1
          = x + results()
    ";
    all.push(("own.rules".into(), text.into()));
    let (lib, _) = library(&all);
    let found: Vec<String> = export_patterns(&lib)
        .iter()
        .map(|p| {
            let root = match &p.root {
                Root::Term(..) => "term",
                Root::Chain(..) => "chain",
                Root::Parts(..) => "parts",
            };
            let vars = p.vars.join(" ");
            let how = if p.print.is_some() { "prints" } else { "reads" };
            let call = &lib.call(p.root.call()).name;
            let fixed = p.fixed.len();
            format!("{} {how} {root} {call} {} [{vars}] {fixed}", lib.onnx[p.item].name, p.size)
        })
        .collect();
    assert_eq!(
        found,
        [
            "Total reads chain add 1 [] 0",
            "Scaled prints term mul 2 [a b] 0",
            "Scaled reads term add 1 [a b] 1",
            "Scaled reads term mul 2 [a b] 0",
            "Parts reads parts slice 2 [] 0",
        ]
    );
    assert!(std::ptr::eq(export_patterns(&lib), export_patterns(&lib)), "they are made once");
}
