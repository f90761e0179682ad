//! Plans as JSON: nodes, kernels, and constants by their numbers. What is read is typed and validated as if a stranger had written it.

use super::extents::{SavedAttr, SavedType};
use itertools::Itertools;
use mlc_dsl::ir::{ConstId, Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{self, Kernel, Plan};
use mlc_dsl::typing::infer::{infer, mismatch};
use serde::{Deserialize, Serialize};

/// A value: its node and which output.
type SavedValue = (u32, u32);

#[derive(Serialize, Deserialize)]
pub struct SavedPlan {
    inputs: Vec<(String, SavedType)>,
    nodes: Vec<SavedNode>,
    outputs: Vec<(String, SavedValue)>,
    kernels: Vec<SavedKernel>,
    /// Estimated seconds, by their bits.
    cost: u64,
}

#[derive(Serialize, Deserialize)]
struct SavedNode {
    kind: SavedKind,
    args: Vec<SavedValue>,
    types: Vec<SavedType>,
    origin: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedKind {
    Input(u32),
    Const(u32),
    Apply(String, Vec<SavedAttr>),
}

#[derive(Serialize, Deserialize)]
struct SavedKernel {
    name: String,
    nodes: Vec<u32>,
    anchors: Vec<u32>,
    prologue: Vec<u32>,
    epilogue: Vec<u32>,
    inputs: Vec<SavedValue>,
    outputs: Vec<SavedValue>,
}

fn value(v: &Value) -> SavedValue {
    (v.node.0, v.output)
}

fn values(all: &[Value]) -> Vec<SavedValue> {
    all.iter().map(value).collect()
}

fn read_value(&(node, output): &SavedValue) -> Value {
    Value { node: NodeId(node), output }
}

impl SavedPlan {
    pub fn of(plan: &Plan, library: &Library) -> SavedPlan {
        let program = &plan.program;
        let kind = |k: &NodeKind| match k {
            NodeKind::Input(i) => SavedKind::Input(*i),
            NodeKind::Const(c) => SavedKind::Const(c.0),
            NodeKind::Apply(call, attrs) => {
                let name = library.call(*call).name.to_string();
                SavedKind::Apply(name, attrs.iter().map(SavedAttr::from).collect())
            }
        };
        let node = |n: &Node| SavedNode {
            kind: kind(&n.kind),
            args: values(&n.args),
            types: n.types.iter().map(SavedType::from).collect(),
            origin: n.origin.clone(),
        };
        let ids = |all: &[NodeId]| all.iter().map(|n| n.0).collect();
        let kernel = |k: &Kernel| SavedKernel {
            name: k.name.clone(),
            nodes: ids(&k.nodes),
            anchors: ids(&k.anchors),
            prologue: ids(&k.prologue),
            epilogue: ids(&k.epilogue),
            inputs: values(&k.inputs),
            outputs: values(&k.outputs),
        };
        SavedPlan {
            inputs: program.inputs.iter().map(|(n, t)| (n.clone(), t.into())).collect(),
            nodes: program.nodes.iter().map(node).collect(),
            outputs: program.outputs.iter().map(|(n, v)| (n.clone(), value(v))).collect(),
            kernels: plan.kernels.iter().map(kernel).collect(),
            cost: plan.cost.to_bits(),
        }
    }

    /// The plan over these constants, or what is wrong with it.
    pub fn read(&self, constants: &[Tensor], library: &Library) -> Result<Plan, String> {
        let mut program = Program::default();
        for (name, ty) in &self.inputs {
            let ty = ty.read().filter(|t| t.shape.iter().all(|e| e.sign() != Some(-1)));
            let ty = ty.ok_or_else(|| format!("the type of input `{name}` is none"))?;
            program.inputs.push((name.clone(), ty));
        }
        let ids: Vec<ConstId> =
            constants.iter().map(|t| program.consts.intern(t.clone())).collect();
        if !ids.iter().map(|id| id.0).eq(0..constants.len() as u32) {
            return Err("two constants are equal".into());
        }
        for (i, saved) in self.nodes.iter().enumerate() {
            let node = saved.read(&program, library);
            program.push(node.map_err(|reason| format!("node {i}: {reason}"))?);
        }
        for (name, v) in &self.outputs {
            program.outputs.push((name.clone(), known(&program, v)?));
        }
        let kernels = self.kernels.iter().enumerate().map(|(i, k)| {
            k.read(&program).map_err(|reason| format!("kernel {i}, `{}`: {reason}", k.name))
        });
        let kernels = kernels.collect::<Result<Vec<Kernel>, String>>()?;
        // Memory is planned of kernels that can run.
        match plan::kernel_faults(&program, &kernels, library).first() {
            Some(fault) => Err(fault.to_string()),
            None => Ok(Plan::new(program, library, kernels, f64::from_bits(self.cost))),
        }
    }
}

/// The value, if there is one.
fn known(program: &Program, v: &SavedValue) -> Result<Value, String> {
    let value = read_value(v);
    let node = program.nodes.get(value.node.0 as usize);
    match node.is_some_and(|n| (value.output as usize) < n.types.len()) {
        true => Ok(value),
        false => Err(format!("there is no value {}.{}", v.0, v.1)),
    }
}

impl SavedNode {
    /// The node behind those of a program.
    fn read(&self, program: &Program, library: &Library) -> Result<Node, String> {
        let args: Vec<Value> =
            self.args.iter().map(|v| known(program, v)).collect::<Result<_, _>>()?;
        let types: Option<Vec<Type>> = self.types.iter().map(SavedType::read).collect();
        let types = types.ok_or("one of its types is none")?;
        let (kind, found) = match &self.kind {
            SavedKind::Input(i) => {
                let input = program.inputs.get(*i as usize).ok_or("there is no such input")?;
                (NodeKind::Input(*i), vec![input.1.clone()])
            }
            SavedKind::Const(c) => {
                if *c as usize >= program.consts.len() {
                    return Err("there is no such constant".into());
                }
                let t = program.consts.get(ConstId(*c));
                (NodeKind::Const(ConstId(*c)), vec![Type::known(t.dtype(), t.shape())])
            }
            SavedKind::Apply(name, attrs) => {
                let call = library.find(name).ok_or_else(|| format!("there is no `{name}`"))?;
                let attrs: Option<Vec<_>> = attrs.iter().map(SavedAttr::read).collect();
                let attrs = attrs.ok_or("one of its attributes is none")?;
                let given = attrs.iter().cloned().map(Some).collect_vec();
                let given_types = args.iter().map(|a| program.ty(*a)).collect_vec();
                let found = infer(library.call(call), &given_types, &given);
                let found = found.map_err(|e| e.to_string())?;
                if found.attrs != attrs {
                    return Err(format!("`{name}` has other attributes"));
                }
                (NodeKind::Apply(call, attrs), found.types)
            }
        };
        let leaf = !matches!(kind, NodeKind::Apply(..));
        if found.len() != types.len() || (leaf && (found != types || !args.is_empty())) {
            return Err("its results are others".into());
        }
        match found.iter().zip(&types).find_map(|(own, said)| mismatch(own, said)) {
            Some(reason) => Err(reason),
            None => Ok(Node { kind, args, types, origin: self.origin.clone() }),
        }
    }
}

impl SavedKernel {
    fn read(&self, program: &Program) -> Result<Kernel, String> {
        let ids = |all: &[u32]| {
            let id = |n: &u32| match program.nodes.get(*n as usize) {
                Some(Node { kind: NodeKind::Apply(..), .. }) => Ok(NodeId(*n)),
                _ => Err(format!("node {n} is no application of an operator")),
            };
            all.iter().map(id).collect::<Result<Vec<NodeId>, String>>()
        };
        let values = |all: &[SavedValue]| {
            all.iter().map(|v| known(program, v)).collect::<Result<Vec<Value>, String>>()
        };
        Ok(Kernel {
            name: self.name.clone(),
            nodes: ids(&self.nodes)?,
            anchors: ids(&self.anchors)?,
            prologue: ids(&self.prologue)?,
            epilogue: ids(&self.epilogue)?,
            inputs: values(&self.inputs)?,
            outputs: values(&self.outputs)?,
        })
    }
}
