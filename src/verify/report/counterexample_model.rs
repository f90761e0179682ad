//! A counterexample as a model: both sides as the outputs of one definition, with its inputs.

use crate::compare::{BrokenPromise, Sample};
use mlc_backends::reference::Array;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::Library;
use std::fmt::Write;

/// A model that shows a counterexample.
#[derive(Clone, Debug)]
pub struct CounterexampleModel {
    /// The text, whose last definition yields both sides of the law.
    pub text: String,
    /// Its inputs: the law's variables, then its numbers.
    pub inputs: Vec<(String, Tensor)>,
}

/// The case of a sample on which a promise is broken. Where the sides differ as functions it computes in
/// f64, else in the sample's own types.
pub(crate) fn case(
    library: &Library,
    law: &str,
    sample: &Sample,
    broken: BrokenPromise,
) -> CounterexampleModel {
    let instance = &sample.instance;
    let program = match broken {
        BrokenPromise::Truth | BrokenPromise::Fails => &instance.truth,
        BrokenPromise::Types
        | BrokenPromise::Undefined
        | BrokenPromise::Bits
        | BrokenPromise::WorkingPrecision => &instance.program,
    };
    let mut inputs: Vec<(String, Tensor)> = Vec::new();
    for ((name, ty), t) in program.inputs.iter().zip(&sample.inputs) {
        let wide = match t.dtype() == ty.dtype {
            true => Some(t.clone()),
            false => {
                Array::from_f64(ty.dtype, t.shape().to_vec(), t.to_f64()).map(|a| a.to_tensor())
            }
        };
        inputs.extend(wide.map(|t| (name.clone(), t)));
    }
    let mut params: Vec<(String, String)> =
        program.inputs.iter().map(|(n, ty)| (n.clone(), ty.to_string())).collect();
    for (i, n) in program.nodes.iter().enumerate() {
        if let NodeKind::Const(c) = &n.kind {
            let name = name(program, Value { node: NodeId(i as u32), output: 0 });
            params.push((name.clone(), n.types[0].to_string()));
            inputs.push((name, program.consts.get(*c).clone()));
        }
    }
    if sample.inputs.is_empty() && !program.inputs.is_empty() {
        inputs.clear();
    }
    CounterexampleModel { text: text(library, law, program, &params, instance.outputs), inputs }
}

fn text(
    library: &Library,
    law: &str,
    program: &Program,
    params: &[(String, String)],
    outputs: usize,
) -> String {
    let mut out = format!("/// Both sides of the law `{law}` where they differ.\n");
    let word: String =
        law.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let params: Vec<String> = params.iter().map(|(n, ty)| format!("{n}: {ty}")).collect();
    let results = program.outputs.iter().enumerate().map(|(i, (_, v))| {
        let side = if i < outputs { "left" } else { "right" };
        let number = if outputs > 1 { (i % outputs + 1).to_string() } else { String::new() };
        format!("{side}{number}: {}", program.ty(*v))
    });
    let results: Vec<String> = results.collect();
    let _ = writeln!(out, "def case_{word}({}) -> {}", params.join(", "), results.join(", "));
    for (i, n) in program.nodes.iter().enumerate() {
        let NodeKind::Apply(call, attrs) = &n.kind else { continue };
        let c = library.call(*call);
        let args = n.args.iter().map(|a| name(program, *a));
        let attrs = c.attrs.iter().zip(attrs).map(|(p, a)| format!("{}={}", p.name, attr(a)));
        let list: Vec<String> = args.chain(attrs).collect();
        let own = |k: u32| name(program, Value { node: NodeId(i as u32), output: k });
        let names: Vec<String> = (0..n.types.len() as u32).map(own).collect();
        let names = match names.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        };
        let _ = writeln!(out, "  let {names} = {}({})", c.name, list.join(", "));
    }
    let roots: Vec<String> = program.outputs.iter().map(|(_, v)| name(program, *v)).collect();
    let _ = writeln!(out, "  = ({})", roots.join(", "));
    out
}

fn name(program: &Program, v: Value) -> String {
    let node = program.node(v.node);
    match &node.kind {
        NodeKind::Input(i) => program.inputs[*i as usize].0.clone(),
        NodeKind::Const(_) => format!("number_{}", v.node.0),
        NodeKind::Apply(..) if node.types.len() > 1 => format!("value_{}_{}", v.node.0, v.output),
        NodeKind::Apply(..) => format!("value_{}", v.node.0),
    }
}

/// An attribute as the language writes it.
fn attr(a: &Attr) -> String {
    let number = |v: f64| match v.is_nan() {
        true => "nan".to_string(),
        false => format!("{v:?}"),
    };
    match a {
        Attr::Float(b) => number(f64::from_bits(*b)),
        Attr::Floats(v) => {
            let list: Vec<String> = v.iter().map(|b| number(f64::from_bits(*b))).collect();
            format!("[{}]", list.join(", "))
        }
        Attr::Int(_) | Attr::Ints(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
            a.to_string()
        }
    }
}
