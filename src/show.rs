//! Programs as text, in the notation of the language.

use mlc_dsl::ir::{Attr, DType, Node, NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use std::fmt::Write;

/// A program as a `def`. Constants are shown by type, small ones by value, in comments.
pub fn program(p: &Program, library: &Library, name: &str) -> String {
    let mut out = String::new();
    let input = |(n, t): &(String, mlc_dsl::ir::Type)| format!("{}: {t}", identifier(n));
    let params: Vec<String> = p.inputs.iter().map(input).collect();
    let results: Vec<String> =
        p.outputs.iter().map(|(n, v)| format!("{}: {}", identifier(n), p.ty(*v))).collect();
    let _ = writeln!(out, "def {name}({})\n  -> {}", params.join(", "), results.join(", "));
    for (i, n) in p.nodes.iter().enumerate() {
        let id = NodeId(i as u32);
        match &n.kind {
            NodeKind::Input(_) => {}
            NodeKind::Const(c) => {
                let types = types(n);
                let t = p.consts.get(*c);
                let texts = || (0..t.len()).map(|i| t.get_str(i)).collect::<Vec<_>>();
                let value = match t.dtype() {
                    _ if t.len() > 8 => String::new(),
                    DType::Str => format!(" = {:?}", texts()),
                    _ => format!(" = {:?}", t.to_f64()),
                };
                let _ =
                    writeln!(out, "  // {} is a constant {types}{value}", value_name(p, at(id, 0)));
            }
            NodeKind::Apply(..) => {
                let _ = writeln!(out, "  {}", application(p, library, id));
            }
        }
    }
    let results: Vec<String> = p.outputs.iter().map(|(_, v)| value_name(p, *v)).collect();
    let result =
        if results.len() == 1 { results[0].clone() } else { format!("({})", results.join(", ")) };
    let _ = writeln!(out, "  = {result}");
    out
}

/// An application as a line; an empty one of a node that is none.
pub fn application(p: &Program, library: &Library, id: NodeId) -> String {
    let n = p.node(id);
    let NodeKind::Apply(call, attrs) = &n.kind else { return String::new() };
    let c = library.call(*call);
    let args = n.args.iter().map(|&a| value_name(p, a));
    let attrs = c.attrs.iter().zip(attrs).map(|(d, a)| format!("{}={}", d.name, attr(a)));
    let list: Vec<String> = args.chain(attrs).collect();
    let names: Vec<String> = (0..n.types.len() as u32).map(|k| value_name(p, at(id, k))).collect();
    let names = if names.len() == 1 { names[0].clone() } else { format!("({})", names.join(", ")) };
    let origin = if n.origin.is_empty() { String::new() } else { format!(", {}", n.origin) };
    format!("let {names} = {}({})  // {}{origin}", c.name, list.join(", "), types(n))
}

/// The types of a node's results.
fn types(n: &Node) -> String {
    let types: Vec<String> = n.types.iter().map(|t| t.to_string()).collect();
    types.join(", ")
}

/// Applications in a line: operators with the types and attributes that they are given.
pub fn signature(p: &Program, nodes: impl Iterator<Item = NodeId>, library: &Library) -> String {
    let mut out = String::new();
    for n in nodes.map(|id| p.node(id)) {
        let NodeKind::Apply(call, attrs) = &n.kind else { continue };
        let args = n.args.iter().map(|a| p.ty(*a).to_string());
        let list: Vec<String> = args.chain(attrs.iter().map(attr)).collect();
        let gap = if out.is_empty() { "" } else { "; " };
        let _ = write!(out, "{gap}{}({})", library.call(*call).name, list.join(", "));
    }
    out
}

fn at(node: NodeId, output: u32) -> Value {
    Value { node, output }
}

pub(crate) fn attr(a: &Attr) -> String {
    a.to_string()
}

/// The name of a value: that of the input, else `v` or `c` and the node's number.
pub fn value_name(p: &Program, v: Value) -> String {
    let node = p.node(v.node);
    match &node.kind {
        NodeKind::Input(i) => identifier(&p.inputs[*i as usize].0),
        NodeKind::Const(c) => format!("c{}", c.0),
        NodeKind::Apply(..) if node.types.len() > 1 => format!("v{}_{}", v.node.0, v.output),
        NodeKind::Apply(..) => format!("v{}", v.node.0),
    }
}

/// A model's name as an identifier of the language.
fn identifier(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if !out.starts_with(|c: char| c.is_ascii_alphabetic()) || mlc_dsl::syntax::is_reserved(&out) {
        out.insert_str(0, "x_");
    }
    out
}
