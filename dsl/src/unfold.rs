//! Definitions in a program replaced by their bodies.

use crate::build::{BuildError, Builder};
use crate::canon::Sink;
use crate::ir::{Attr, NodeId, NodeKind, Program, Value};
use crate::library::{CallId, CallKind, Library};
use std::collections::HashMap;

/// Layers nested deeper than this stay closed: they are computed all the same.
const MOST_NESTED: usize = 32;

/// The same program with the body of every definition that `opens`, so that what it consists of is seen.
pub fn unfold(
    program: &Program,
    library: &Library,
    opens: &dyn Fn(CallId) -> bool,
) -> Result<Program, BuildError> {
    let mut program = program.clone();
    // Definitions end in primitives; one that opens into itself is no definition.
    for _ in 0..MOST_NESTED {
        if !is_open(&program, library, opens) {
            break;
        }
        program = once(&program, library, opens)?;
    }
    Ok(program)
}

/// True if a program applies a definition that `opens`.
pub fn is_open(program: &Program, library: &Library, opens: &dyn Fn(CallId) -> bool) -> bool {
    program.nodes.iter().any(|n| match n.kind {
        NodeKind::Apply(call, _) => is_definition(library, call) && opens(call),
        NodeKind::Input(_) | NodeKind::Const(_) => false,
    })
}

fn is_definition(library: &Library, call: CallId) -> bool {
    matches!(library.call(call).kind, CallKind::Def(_))
}

fn once(
    program: &Program,
    library: &Library,
    opens: &dyn Fn(CallId) -> bool,
) -> Result<Program, BuildError> {
    let mut b = Builder::new(library);
    let inputs: Vec<Value> = program.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
    let mut values: HashMap<Value, Value> = HashMap::new();
    for (i, node) in program.nodes.iter().enumerate() {
        b.set_origin(&node.origin);
        let made = match &node.kind {
            NodeKind::Input(k) => vec![inputs[*k as usize]],
            NodeKind::Const(c) => vec![b.constant(program.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let args: Vec<Value> = node.args.iter().map(|a| values[a]).collect();
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                match &library.call(*call).kind {
                    CallKind::Def(body) if opens(*call) => b.expand(*call, body, &attrs, &args)?,
                    _ => b.raw(*call, &attrs, &args)?,
                }
            }
        };
        let node = NodeId(i as u32);
        let named = made.into_iter().zip(0..).map(|(v, output)| (Value { node, output }, v));
        values.extend(named);
    }
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), values[v])).collect();
    Ok(b.finish(outputs))
}
