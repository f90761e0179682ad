//! The interface of two models: inputs and outputs matched by name. Refuses models whose interfaces differ, and says in
//! what; never guesses which input is meant.

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use mlc_dsl::ir::{Attr, Extent, Node, NodeKind, Program, Type};
use mlc_dsl::shown;
use std::collections::BTreeMap;

/// The programs of two models over the same inputs, with the same outputs, in the order of the first.
pub(super) struct Matched {
    pub programs: [Program; 2],
    /// What had to be assumed of extents.
    pub notes: Vec<String>,
}

/// What symbols of a program stand for in the other one.
type Renamed = BTreeMap<String, Extent>;

/// Matches the interfaces.
///
/// # Errors
/// A model is a text; they keep different nodes as they are; inputs or outputs differ.
pub(super) fn matched(a: &Model, b: &Model) -> Result<Matched, Error> {
    for (model, which) in [(a, "first"), (b, "second")] {
        if model.is_text() {
            let message = format!("the {which} model is a text of rules: two files are compared");
            let help = "`mlc-rewrite optimize TEXT -o FILE.onnx` writes it as ONNX";
            return Err(Error::new(ErrorKind::Model, message).with_help(help));
        }
    }
    kept_alike(a, b)?;
    let (p, q) = (&a.program, &b.program);
    let inputs = in_order("input", &names(&p.inputs), &names(&q.inputs))?;
    let outputs = in_order("output", &names(&p.outputs), &names(&q.outputs))?;
    let (mut of_a, mut of_b) = (Renamed::new(), Renamed::new());
    for ((name, ta), &at) in p.inputs.iter().zip(&inputs) {
        unify(name, (ta, &q.inputs[at].1), (&mut of_a, &mut of_b))?;
    }
    let notes = of_a
        .iter()
        .map(|(s, e)| (s, e, "first"))
        .chain(of_b.iter().filter(|(_, e)| e.as_const().is_some()).map(|(s, e)| (s, e, "second")));
    let notes = notes.map(|(s, e, which)| {
        format!("`{}` of the {which} model is taken to be {e}, as the other one has it", shown(s))
    });
    let notes = notes.collect();
    let first = renamed(p, &of_a);
    let mut second = renamed(q, &of_b);
    reorder(&mut second, &inputs, &outputs);
    for ((name, va), (_, vb)) in first.outputs.iter().zip(&second.outputs) {
        let (ta, tb) = (first.ty(*va), second.ty(*vb));
        let known = |t: &Type| t.known_shape();
        let differ = known(ta).zip(known(tb)).is_some_and(|(x, y)| x != y);
        if ta.dtype != tb.dtype || ta.rank() != tb.rank() || differ {
            return Err(other_type("output", name, ta, tb));
        }
    }
    Ok(Matched { programs: [first, second], notes })
}

fn names<T>(of: &[(String, T)]) -> Vec<&str> {
    of.iter().map(|(n, _)| n.as_str()).collect()
}

/// Nodes that are kept as they are must be the same: then equal operands give equal results.
fn kept_alike(a: &Model, b: &Model) -> Result<(), Error> {
    let kept = |m: &Model| m.info().map(|i| i.opaque.clone()).unwrap_or_default();
    let (of_a, of_b) = (kept(a), kept(b));
    let all = of_a.nodes.iter().map(|n| (n, &of_b)).chain(of_b.nodes.iter().map(|n| (n, &of_a)));
    for ((node, why), other) in all {
        let is_it = |(n, _): &&(mlc_onnx::RawNode, _)| {
            (&n.op_type, &n.domain, &n.inputs, &n.outputs, &n.attrs)
                == (&node.op_type, &node.domain, &node.inputs, &node.outputs, &node.attrs)
        };
        let constants = |n: &mlc_onnx::RawNode| {
            n.inputs.iter().all(|i| of_a.constants.get(i) == of_b.constants.get(i))
        };
        if !other.nodes.iter().any(|n| is_it(&n)) || !constants(node) {
            let message =
                format!("{why}; such a node is only compared with the same one in the other model");
            return Err(Error::new(ErrorKind::Model, message).with_help(
                "give the inputs that decide it, as in `--value NAME=NUMBERS`, or their extents with `--shape`",
            ));
        }
    }
    Ok(())
}

/// For each name of the first model where it is in the second.
fn in_order(what: &str, a: &[&str], b: &[&str]) -> Result<Vec<usize>, Error> {
    let alone = |of: &[&str], other: &[&str]| -> Vec<String> {
        of.iter().filter(|n| !other.contains(n)).map(|n| format!("`{}`", shown(n))).collect()
    };
    let (only_a, only_b) = (alone(a, b), alone(b, a));
    if only_a.is_empty() && only_b.is_empty() {
        return Ok(a.iter().filter_map(|n| b.iter().position(|m| m == n)).collect());
    }
    let list = |names: &[String]| if names.is_empty() { "none".into() } else { names.join(", ") };
    let message = format!(
        "the models have different {what}s: the first alone has {}, the second alone {}",
        list(&only_a),
        list(&only_b)
    );
    let help = format!("{what}s are matched by name: rename them in one of the files");
    Err(Error::new(ErrorKind::Model, message).at(format!("{what}s")).with_help(help))
}

/// Makes the type of an input of both models one: a symbol stands for what the other model has in its place.
fn unify(
    name: &str,
    (ta, tb): (&Type, &Type),
    (of_a, of_b): (&mut Renamed, &mut Renamed),
) -> Result<(), Error> {
    let differ = || other_type("input", name, ta, tb);
    if ta.dtype != tb.dtype || ta.rank() != tb.rank() {
        return Err(differ());
    }
    for (ea, eb) in ta.shape.iter().zip(&tb.shape) {
        let ea = ea.substitute(&|s| of_a.get(s).cloned());
        let eb = eb.substitute(&|s| of_b.get(s).cloned());
        match (symbol(&ea), symbol(&eb)) {
            _ if ea == eb && of_b.values().any(|e| *e == ea) => {}
            (_, Some(s)) => drop(of_b.insert(s, ea)),
            (Some(s), None) if eb.as_const().is_some() => drop(of_a.insert(s, eb)),
            _ if ea == eb => {}
            _ => return Err(differ()),
        }
    }
    Ok(())
}

/// The symbol that an extent is, by itself.
fn symbol(e: &Extent) -> Option<String> {
    let symbols = e.symbols();
    let first = symbols.first()?;
    (*e == Extent::sym(first)).then(|| first.to_string())
}

fn other_type(what: &str, name: &str, a: &Type, b: &Type) -> Error {
    let place = format!("{what} `{}`", shown(name));
    let message = format!("{place} is {a} in the first model and {b} in the second");
    let help = "give both the same extents with `--shape NAME=EXTENTS`";
    Error::new(ErrorKind::Model, message).at(place).with_help(help)
}

/// A program with other extents for some of its symbols.
fn renamed(p: &Program, by: &Renamed) -> Program {
    let mut out = p.clone();
    if by.is_empty() {
        return out;
    }
    let extent = |e: &Extent| e.substitute(&|s| by.get(s).cloned());
    let shape = |t: &mut Type| t.shape.iter_mut().for_each(|e| *e = extent(e));
    for node in &mut out.nodes {
        node.types.iter_mut().for_each(shape);
        if let NodeKind::Apply(_, attrs) = &mut node.kind {
            for attr in attrs {
                match attr {
                    Attr::Int(e) => *e = extent(e),
                    Attr::Ints(all) => all.iter_mut().for_each(|e| *e = extent(e)),
                    Attr::Float(_)
                    | Attr::Floats(_)
                    | Attr::Bool(_)
                    | Attr::Str(_)
                    | Attr::DType(_) => {}
                }
            }
        }
    }
    out.inputs.iter_mut().for_each(|(_, t)| shape(t));
    out
}

/// The same program with inputs and outputs in another order: the new ones are at these places of the old.
fn reorder(p: &mut Program, inputs: &[usize], outputs: &[usize]) {
    let mut new = vec![0u32; inputs.len()];
    for (now, &before) in inputs.iter().enumerate() {
        new[before] = now as u32;
    }
    let input = |node: &mut Node| {
        if let NodeKind::Input(i) = &mut node.kind {
            *i = new[*i as usize];
        }
    };
    p.nodes.iter_mut().for_each(input);
    p.inputs = inputs.iter().map(|&at| p.inputs[at].clone()).collect();
    p.outputs = outputs.iter().map(|&at| p.outputs[at].clone()).collect();
}
