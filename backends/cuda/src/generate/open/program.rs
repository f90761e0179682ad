//! A kernel of a plan as a program of primitive operators whose extents may be open.

use crate::generate::kernel::{StoredValues, read_program};
use crate::generate::procedures;
use crate::launch::Place;
use mlc_backends::reference::code::cache::open_codes;
use mlc_backends::reference::code::compile::{Body, OpenCode, OpenVariable};
use mlc_backends::reference::code::{Int, Real};
use mlc_dsl::ir::{Attr, DType, Extent, Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::plan::Plan;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a kernel computes, at any extents.
pub struct OpenProgram {
    /// Primitive operators; its inputs are stored values.
    pub program: Program,
    /// Where the inputs are.
    pub inputs: Vec<Place>,
    /// The code of each node's results.
    pub codes: Vec<Vec<OpenCode>>,
    /// Which values go where, in the plan's order.
    pub outputs: Vec<(Value, Place)>,
}

/// A value as its reduction, if it is one: its variables.
pub type Over = Vec<usize>;

impl OpenProgram {
    /// The program of these values, which are to be stored at these places; `None` if no extent of it is open.
    ///
    /// # Errors
    /// Why its code has to be generated for each set of extents.
    pub fn new(
        plan: &Plan,
        library: &Library,
        stored: &StoredValues,
        inside: &dyn Fn(Value) -> bool,
        outputs: &[(Value, Place)],
    ) -> Result<Option<OpenProgram>, String> {
        let (program, inputs) =
            read_program(plan, library, stored, inside, outputs, &BTreeSet::new())
                .map_err(|e| e.to_string())?;
        if !program.nodes.iter().any(is_open) {
            return Ok(None);
        }
        let mut codes = Vec::with_capacity(program.nodes.len());
        for node in &program.nodes {
            codes.push(match &node.kind {
                NodeKind::Apply(call, attrs) => {
                    let callable = library.call(*call);
                    let name = &callable.name;
                    if matches!(callable.kind, CallKind::Extern(_)) || procedures::is_known(name) {
                        return Err(format!(
                            "`{name}` is a procedure, which is cut for its extents"
                        ));
                    }
                    if callable.recurrence.is_some() {
                        return Err(format!("the steps of `{name}` are cut for its extents"));
                    }
                    let args: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
                    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                    let codes = open_codes(callable, &attrs, &args);
                    codes.map_err(|e| format!("`{name}` needs the numbers of its extents: {e}"))?
                }
                NodeKind::Input(_) | NodeKind::Const(_) => vec![],
            });
        }
        let outputs = program.outputs.iter().zip(outputs).map(|((_, v), p)| (*v, p.1)).collect();
        Ok(Some(OpenProgram { program, inputs, codes, outputs }))
    }

    /// The code of a value, if an operator computes it.
    pub fn code(&self, v: Value) -> Option<&OpenCode> {
        self.codes[v.node.0 as usize].get(v.output as usize)
    }

    /// The input behind a value.
    pub fn input(&self, v: Value) -> Option<usize> {
        match self.program.node(v.node).kind {
            NodeKind::Input(i) => Some(i as usize),
            NodeKind::Const(_) | NodeKind::Apply(..) => None,
        }
    }

    /// The constant behind a value.
    pub fn constant(&self, v: Value) -> Option<&Tensor> {
        self.program.as_const(v)
    }

    /// The extents of a value.
    pub fn shape(&self, v: Value) -> &[Extent] {
        &self.program.ty(v).shape
    }

    /// The type of a value's elements.
    pub fn dtype(&self, v: Value) -> DType {
        self.program.ty(v).dtype
    }

    /// The symbols in its extents.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let types = self.program.nodes.iter().flat_map(|n| &n.types).flat_map(|t| &t.shape);
        let variables = self.codes.iter().flatten().flat_map(|c| &c.variables);
        let of_codes = variables.map(|v| match v {
            OpenVariable::Index(n) | OpenVariable::Number(n) => n,
        });
        types.chain(of_codes).flat_map(Extent::symbols).collect()
    }

    /// The values of all nodes.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        let of = |(i, n): (usize, &Node)| {
            let node = NodeId(i as u32);
            (0..n.types.len() as u32).map(move |output| Value { node, output })
        };
        self.program.nodes.iter().enumerate().flat_map(of)
    }

    /// The extents of the loops of a value, wherever in its code they are.
    pub fn loops(&self, v: Value) -> Vec<Extent> {
        let Some(code) = self.code(v) else { return vec![] };
        let own = code.variables.iter().enumerate().filter(|(s, _)| !code.axes.contains(s));
        own.filter_map(|(_, v)| match v {
            OpenVariable::Index(n) => Some(n.clone()),
            OpenVariable::Number(_) => None,
        })
        .collect()
    }

    /// Whether a value needs a loop over elements.
    pub fn reduces(&self, v: Value) -> bool {
        !self.loops(v).is_empty()
    }

    /// The variables of the reduction that a value is.
    pub fn reduction(&self, v: Value) -> Option<Over> {
        let over = match self.code(v).map(|c| &c.body)? {
            Body::Real(Real::Reduce(r)) => &r.over,
            Body::Int(_, Int::Reduce(r)) => &r.over,
            Body::Real(_) | Body::Int(..) => return None,
        };
        Some(over.iter().map(|o| o.0).collect())
    }
}

/// Whether a node has an extent that is not known, in its types or its attributes.
fn is_open(node: &Node) -> bool {
    let is_known = |n: &Extent| n.as_const().is_some();
    let attrs = match &node.kind {
        NodeKind::Apply(_, attrs) => &attrs[..],
        NodeKind::Input(_) | NodeKind::Const(_) => &[],
    };
    let are_known = attrs.iter().all(|a| match a {
        Attr::Int(n) => is_known(n),
        Attr::Ints(all) => all.iter().all(is_known),
        _ => true,
    });
    !are_known || node.types.iter().any(|t| t.known_shape().is_none())
}

/// The product of extents.
pub fn product(extents: &[Extent]) -> Extent {
    extents.iter().fold(Extent::from(1), |n, e| &n * e)
}
