//! Inlines definitions in a program.

use super::attr::Attr;
use super::program::{NodeId, NodeKind, Program, Value};
use super::ty::Type;
use crate::ir::build::{BuildError, Builder};
use crate::ir::canon::Sink;
use crate::library::{CallId, CallKind, Library};

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
        let named = |_: NodeId, call: CallId| is_definition(library, call) && opens(call);
        program = unfold_once(&program, library, Rebuild::AsWritten, &named).map_err(|(_, e)| e)?;
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

/// The body of a definition on arguments of these types, as a program of its own.
pub fn definition(
    library: &Library,
    call: CallId,
    attrs: &[Attr],
    args: &[&Type],
) -> Result<Program, BuildError> {
    let mut b = Builder::new(library);
    let args = args.iter().enumerate().map(|(i, t)| b.input(&i.to_string(), (*t).clone()));
    let args: Vec<Value> = args.collect();
    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    let roots = b.expand(call, &attrs, &args)?;
    Ok(b.finish(roots.iter().enumerate().map(|(i, r)| (i.to_string(), *r)).collect()))
}

/// How the other applications of a program are added when it is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// As they are.
    AsWritten,
    /// In canonical form.
    Canonical,
}

/// The program with the definitions that `opens` selects replaced by their bodies, one level deep. An error comes with
/// its node.
pub fn unfold_once(
    program: &Program,
    library: &Library,
    rebuild: Rebuild,
    opens: &dyn Fn(NodeId, CallId) -> bool,
) -> Result<Program, (NodeId, BuildError)> {
    Ok(unfold_once_mapped(program, library, rebuild, opens)?.0)
}

/// A program with definitions unfolded, and for each original node the nodes that replace it.
pub type Unfolded = (Program, Vec<Vec<NodeId>>);

/// The same with the mapping of nodes. A node that two nodes became belongs to the first, results excepted.
pub fn unfold_once_mapped(
    program: &Program,
    library: &Library,
    rebuild: Rebuild,
    opens: &dyn Fn(NodeId, CallId) -> bool,
) -> Result<Unfolded, (NodeId, BuildError)> {
    let mut b = Builder::new(library);
    let mut new: Vec<Vec<Value>> = Vec::with_capacity(program.nodes.len());
    let mut became: Vec<Vec<NodeId>> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let id = NodeId(i as u32);
        let before = b.program().nodes.len() as u32;
        b.set_origin(&node.origin);
        new.push(match &node.kind {
            NodeKind::Input(k) => {
                let (name, ty) = &program.inputs[*k as usize];
                vec![b.input(name, ty.clone())]
            }
            NodeKind::Const(c) => vec![b.constant(program.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let arg = |a: &Value| new[a.node.0 as usize][a.output as usize];
                let args: Vec<Value> = node.args.iter().map(arg).collect();
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                let made = match (opens(id, *call), rebuild) {
                    (true, _) => b.expand(*call, &attrs, &args),
                    (false, Rebuild::AsWritten) => {
                        b.raw(*call, &attrs, &args).map_err(BuildError::Type)
                    }
                    (false, Rebuild::Canonical) => {
                        b.apply(*call, &attrs, &args).map_err(BuildError::Type)
                    }
                };
                made.map_err(|e| (id, e))?
            }
        });
        let results = new[i].iter().map(|v| v.node).filter(|n| n.0 < before);
        became.push((before..b.program().nodes.len() as u32).map(NodeId).chain(results).collect());
    }
    let value = |v: &Value| new[v.node.0 as usize][v.output as usize];
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), value(v))).collect();
    let (program, left) = b.finish_by(outputs);
    let kept = |nodes: &Vec<NodeId>| nodes.iter().filter_map(|n| left[n.0 as usize]).collect();
    Ok((program, became.iter().map(kept).collect()))
}
