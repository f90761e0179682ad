//! Small models of large things: results, windows and inputs that exceed any machine or take too long. Each is rejected
//! by name, or read, left unchecked with the reason, and run within the given memory. Nothing large is allocated.

use super::support::*;
use mlc_backends::{Backend, BackendError};
use mlc_cpu::Cpu;
use mlc_extract::resources::RunResources;
use mlc_rewrite::pipeline::options::Guard;
use mlc_rewrite::pipeline::{self, Options};
use mlc_verify::random_inputs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What becomes of a model.
enum Fate {
    /// It is not read; the message says so.
    Refused(&'static str),
    /// It is optimised, and not checked; the warning says so.
    Unchecked(&'static str),
    /// It is optimised and checked.
    Checked,
}
use Fate::{Checked, Refused, Unchecked};

/// Memory for runs and checks.
const MEMORY: u64 = 16 << 20;
/// Far beyond every memory, but a number.
const FAR: i64 = 1 << 40;

struct Case {
    name: &'static str,
    /// The f32 inputs `x0`, `x1`, ….
    inputs: Vec<Vec<RawDim>>,
    constants: Vec<(&'static str, Tensor)>,
    nodes: Vec<RawNode>,
    fate: Fate,
}

fn known(shape: &[u64]) -> Vec<RawDim> {
    shape.iter().map(|&d| RawDim::Known(d)).collect()
}

impl Case {
    fn of(name: &'static str, shapes: &[&[u64]], nodes: Vec<RawNode>, fate: Fate) -> Case {
        let inputs = shapes.iter().map(|s| known(s)).collect();
        Case { name, inputs, constants: vec![], nodes, fate }
    }

    fn with(mut self, name: &'static str, t: Tensor) -> Case {
        self.constants.push((name, t));
        self
    }

    fn model(&self) -> RawModel {
        let (mut raw, _) = model(17, &[], self.nodes.clone(), &["y"]);
        for (i, dims) in self.inputs.iter().enumerate() {
            let (name, dtype) = (format!("x{i}"), Some(DType::F32));
            raw.graph.inputs.push(RawValueInfo {
                name,
                dtype,
                dims: Some(dims.clone()),
                ..RawValueInfo::default()
            });
        }
        for (name, t) in &self.constants {
            raw.graph.initializers.insert(name.to_string(), t.clone());
        }
        raw
    }
}

/// One operator on one f32 input and some constants.
fn one(
    op: &'static str,
    shape: &[u64],
    constants: &[(&'static str, Tensor)],
    attrs: &[(&str, RawAttr)],
    fate: Fate,
) -> Case {
    let inputs: Vec<&str> = std::iter::once("x0").chain(constants.iter().map(|c| c.0)).collect();
    let case = Case::of(op, &[shape], vec![node(op, &inputs, &["y"], attrs)], fate);
    constants.iter().fold(case, |case, (n, t)| case.with(n, t.clone()))
}

fn results() -> Vec<Case> {
    let wide = |v: &[i64]| ints(&[v.len()], v);
    let range = |end: i64| {
        let case =
            Case::of("Range", &[], vec![node("Range", &["a", "b", "c"], &["y"], &[])], Checked);
        case.with("a", ints(&[], &[0])).with("b", ints(&[], &[end])).with("c", ints(&[], &[1]))
    };
    let filled = |n: i64, fate: Fate| {
        let nodes = vec![node("ConstantOfShape", &["s"], &["y"], &[])];
        Case::of("ConstantOfShape", &[], nodes, fate).with("s", wide(&[n]))
    };
    let hot = |depth: i64, fate: Fate| {
        let nodes = vec![
            node("Cast", &["x0"], &["i"], &[("to", int(7))]),
            node("OneHot", &["i", "d", "v"], &["y"], &[]),
        ];
        let case = Case::of("OneHot", &[&[4]], nodes, fate);
        case.with("d", ints(&[], &[depth])).with("v", floats(&[2], &[0.0, 1.0]))
    };
    let summed = |n: i64, fate: Fate| {
        let nodes = vec![
            node("ConstantOfShape", &["s"], &["c"], &[]),
            node("ReduceSum", &["c"], &["d"], &[("keepdims", int(0))]),
            node("Add", &["d", "x0"], &["y"], &[]),
        ];
        Case::of("ReduceSum", &[&[4]], nodes, fate).with("s", wide(&[n]))
    };
    const MANY: &str = "has more elements than 2^59";
    vec![
        one(
            "Expand",
            &[1, 1],
            &[("s", wide(&[FAR, 4]))],
            &[],
            Unchecked("(y): f32[1099511627776, 4] takes"),
        ),
        one("Expand", &[1, 1], &[("s", wide(&[1 << 31, 1 << 31]))], &[], Refused(MANY)),
        one("Expand", &[1, 1], &[("s", wide(&[i64::MAX, i64::MAX]))], &[], Refused(MANY)),
        one(
            "Expand",
            &[1, 1],
            &[("s", wide(&[1 << 14, 1 << 14]))],
            &[],
            Unchecked("takes 1.00 GiB"),
        ),
        one("Tile", &[4], &[("s", wide(&[FAR]))], &[], Unchecked("takes 16384.00 GiB")),
        one("Tile", &[4], &[("s", wide(&[1 << 62]))], &[], Refused(MANY)),
        one("Pad", &[4], &[("p", wide(&[0, 1 << 28]))], &[], Unchecked("operator `pad` (y)")),
        one("Pad", &[4], &[("p", wide(&[1 << 62, 1 << 62]))], &[], Refused("exceeds 64 bits")),
        one("Pad", &[4], &[("p", wide(&[i64::MAX, i64::MAX]))], &[], Refused("exceeds 64 bits")),
        Case { fate: Unchecked("i64[268435456] takes 2.00 GiB"), ..range(1 << 28) },
        Case { fate: Refused(MANY), ..range(1 << 61) },
        filled(1 << 28, Unchecked("takes 1.00 GiB")),
        filled(FAR, Unchecked("takes 4096.00 GiB")),
        filled(i64::MAX, Refused(MANY)),
        hot(1 << 27, Unchecked("takes")),
        hot(1 << 60, Refused(MANY)),
        summed(FAR, Unchecked("operations, more than")),
        one(
            "Relu",
            &[1 << 15, 1 << 15],
            &[],
            &[],
            Unchecked("operator `relu` (y): f32[32768, 32768] takes 4.00 GiB"),
        ),
        one("Relu", &[1 << 31, 1 << 31], &[], &[], Refused(MANY)),
        one("Relu", &[1 << 62, 1 << 62, 0], &[], &[], Refused(MANY)),
        Case::of(
            "MatMul",
            &[&[1 << 13, 1], &[1, 1 << 13]],
            vec![node("MatMul", &["x0", "x1"], &["y"], &[])],
            Unchecked("operator `matmul` (y): f32[8192, 8192] takes 256.0 MiB"),
        ),
        Case::of(
            "Mul",
            &[&[1 << 13, 1], &[1, 1 << 13]],
            vec![node("Mul", &["x0", "x1"], &["y"], &[])],
            Unchecked("operator `mul` (y): f32[8192, 8192] takes 256.0 MiB"),
        ),
        Case {
            name: "a symbol that is bound smaller",
            inputs: vec![vec![RawDim::Symbol("n".into()), RawDim::Known(1 << 19)]],
            constants: vec![],
            nodes: vec![node("Neg", &["x0"], &["y"], &[])],
            fate: Unchecked("more than 16.0 MiB"),
        },
    ]
}

/// Attributes of windows: kernel, strides, pads, dilations; 0 where one is left out.
fn window(k: i64, s: i64, p: i64, d: i64) -> Vec<(&'static str, RawAttr)> {
    let two = |name, v: i64| (v != 0).then(|| (name, list(&[v, v])));
    let pads = (p != 0).then(|| ("pads", list(&[p, p, p, p])));
    let all = [two("kernel_shape", k), two("strides", s), pads, two("dilations", d)];
    all.into_iter().flatten().collect()
}

fn windows() -> Vec<Case> {
    const MAX: i64 = i64::MAX;
    const WIDE: &str = "exceeds 64 bits";
    let mut out = Vec::new();
    let image: &[u64] = &[1, 1, 8, 8];
    let mut add = |op: &'static str, attrs: [i64; 4], fate: Fate| {
        let [k, s, p, d] = attrs;
        let weights: &[(&'static str, Tensor)] = &[("w", floats(&[1, 1, 3, 3], &[1.0; 9]))];
        let own = if op.starts_with("Conv") { weights } else { &[] };
        out.push(one(op, image, own, &window(k, s, p, d), fate));
    };
    add("MaxPool", [2, FAR, 0, 0], Checked);
    add("MaxPool", [2, MAX, 0, 0], Checked);
    add("MaxPool", [2, 0, 1 << 20, 0], Unchecked("operator `maxpool` (y)"));
    add("MaxPool", [1 << 20, 1 << 20, 1 << 19, 0], Unchecked("operations, more than"));
    add("MaxPool", [1 << 12, 1 << 12, 1 << 11, 0], Checked);
    add("MaxPool", [MAX, 0, 0, 0], Refused("needs `all("));
    add("MaxPool", [2, 0, MAX, 0], Refused(WIDE));
    add("MaxPool", [2, 0, 0, MAX], Refused("needs `all("));
    add("AveragePool", [2, FAR, 0, 0], Checked);
    add("AveragePool", [2, MAX, 0, 0], Checked);
    add("AveragePool", [1 << 20, 1 << 20, 1 << 19, 0], Unchecked("operations, more than"));
    add("AveragePool", [1 << 12, 1 << 12, 1 << 11, 0], Checked);
    add("AveragePool", [2, 0, MAX, 0], Refused(WIDE));
    add("Conv", [0, FAR, 0, 0], Checked);
    add("Conv", [0, MAX, 0, 0], Checked);
    add("Conv", [0, 0, 1 << 20, 0], Unchecked("operator `conv` (y)"));
    add("Conv", [0, 1 << 20, 1 << 20, 0], Checked);
    add("Conv", [0, FAR, FAR, FAR], Checked);
    add("Conv", [0, 1 << 10, 1 << 13, 1 << 13], Checked);
    add("Conv", [0, 0, 0, MAX], Refused(WIDE));
    add("Conv", [0, 0, MAX, 0], Refused(WIDE));
    add("ConvTranspose", [0, FAR, 0, 0], Refused("has more elements than 2^59"));
    add("ConvTranspose", [0, MAX, 0, 0], Refused(WIDE));
    add("ConvTranspose", [0, 1 << 12, 0, 0], Unchecked("operator `conv_transpose` (y)"));
    add("ConvTranspose", [0, 1 << 20, 1 << 20, 0], Unchecked("operator `conv_transpose` (y)"));
    add("ConvTranspose", [0, 0, 0, MAX], Refused(WIDE));
    out
}

fn options() -> Options {
    Options { guard: Guard { memory: Some(MEMORY), ..Guard::default() }, ..Options::default() }
}

/// Runs the program as read within the memory; a run that needs more says so.
fn run_within(program: &Program, library: &Arc<Library>) -> Result<(), String> {
    let cpu = library.target("cpu").expect("a target");
    let plan = pipeline::plan(program, library, cpu).map_err(|e| e.to_string())?;
    let needs = RunResources::of_plan(&plan, library, &random_inputs::symbols(program, library));
    if let Err(e) = needs.afford(MEMORY) {
        let told = mlc_rewrite::Error::from(e).to_string();
        let says = told.contains("16.0 MiB are available") && told.contains("help:");
        return if says { Ok(()) } else { Err(told) };
    }
    if needs.operations > 1e10 {
        return Ok(());
    }
    let inputs = random_inputs::inputs(program, library, 0).ok_or("no inputs")?;
    let compiled = Cpu::new(1).within(Some(MEMORY)).compile(&plan, library.clone());
    match compiled.and_then(|c| c.run(&inputs)) {
        Ok(_) | Err(BackendError::Memory { .. }) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// Reads, runs and optimises a model; what is not as expected.
fn held(case: &Case, library: &Arc<Library>) -> Result<(), String> {
    let program = match (import(case.model(), library), &case.fate) {
        (Ok(read), Unchecked(_) | Checked) => read.program,
        (Err(e), Refused(message)) if e.to_string().contains(message) => return Ok(()),
        (Ok(_), Refused(_)) => return Err("it is read".into()),
        (Err(e), _) => return Err(e.to_string()),
    };
    run_within(&program, library)?;
    let done = pipeline::optimize(program, library, &options()).map_err(|e| e.to_string())?;
    if done.report.kept_as_read.is_some() || !done.report.laws_turned_off.is_empty() {
        return Err(format!("{:?}", done.report.self_check));
    }
    let check = done.report.self_check.ok_or("no word of the check")?;
    match (check.not_checked, &case.fate) {
        (Some(why), Unchecked(expected)) if why.contains(expected) => Ok(()),
        (None, Checked) if check.sets.iter().any(|s| s.unused.is_none()) => Ok(()),
        (why, _) => Err(format!("not checked: {why:?}")),
    }
}

#[test]
fn large_things_are_refused_by_name_or_left_unchecked() {
    let library = library();
    let mut wrong = Vec::new();
    for (i, case) in results().into_iter().chain(windows()).enumerate() {
        let what = format!("case {i}, {}", case.name);
        match catch_unwind(AssertUnwindSafe(|| held(&case, library))) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => wrong.push(format!("{what}: {e}")),
            Err(_) => wrong.push(format!("{what}: a panic")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
