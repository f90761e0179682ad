//! Proves that the two values of a cone are equal: saturation of both together, until they are one.
//!
//! A constant that another tool has computed differs from ours in its last places. Such a one may be replaced by what
//! the other value is computed from, which the result says with how far they are apart.

use super::cone::Cone;
use crate::error::Error;
use crate::pipeline::active_laws;
use crate::pipeline::options::Options;
use crate::pipeline::target;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{Library, TargetItem};
use mlc_dsl::pattern::is_layout;
use mlc_explore::constants::folding::fold;
use mlc_explore::{Explored, Limits, ProofStep, Reason, Sides, Stop, explore_until_equal};
use std::collections::HashMap;
use std::sync::Arc;

/// Units of roundoff of its largest element by which a constant that was computed elsewhere may differ.
const ROUNDED: f64 = 64.0;

/// Limits of one proof, beside those of the user.
const NODES: usize = 6_000;
/// Rounds of a first try, which most proofs need, and of a second.
const ROUNDS: [u32; 2] = [5, 16];
const STEPS: u64 = 4_000_000;

/// A proof.
#[derive(Clone, Debug, Default)]
pub(in crate::explain) struct Proved {
    pub steps: Vec<Step>,
    /// Constants that were computed elsewhere: by how much they differ.
    pub rounded: Vec<Rounded>,
}

/// A step of a proof.
#[derive(Clone, Debug)]
pub(in crate::explain) struct Step {
    pub reason: Reason,
    /// What was there and what it equals, of steps that are small.
    pub sides: Option<Arc<Sides>>,
    /// Both as terms.
    pub text: (String, String),
}

/// Nodes of a side that is kept.
const SIDE: usize = 80;

/// A constant of one model, and what the other one computes in its place.
#[derive(Clone, Debug)]
pub(in crate::explain) struct Rounded {
    pub name: String,
    /// As a part of its largest element.
    pub difference: f64,
}

/// What proofs need.
pub(super) struct Prover<'a> {
    pub library: &'a Arc<Library>,
    pub options: &'a Options,
    target: TargetItem,
}

impl<'a> Prover<'a> {
    /// # Errors
    /// There is no such target.
    pub fn new(library: &'a Arc<Library>, options: &'a Options) -> Result<Prover<'a>, Error> {
        Ok(Prover { library, options, target: target(library, &options.target)? })
    }

    /// Why the two values are equal, if the laws say so within the limits.
    ///
    /// # Errors
    /// A law that must not fire is unknown.
    pub fn prove(&self, cone: &Cone) -> Result<Option<Proved>, Error> {
        for rounds in ROUNDS {
            let explored = self.explored(&cone.program, rounds)?;
            if let Some(steps) = steps(&explored, &cone.program) {
                return Ok(Some(Proved { steps, rounded: vec![] }));
            }
            let (program, rounded) = self.with_computed(cone, &explored);
            if !rounded.is_empty()
                && let Some(steps) = steps(&self.explored(&program, rounds)?, &program)
            {
                return Ok(Some(Proved { steps, rounded }));
            }
            if explored.stop != Stop::Rounds {
                break;
            }
        }
        Ok(None)
    }

    /// Saturation until the two outputs are one.
    fn explored(&self, program: &Program, rounds: u32) -> Result<Explored, Error> {
        let mut laws = active_laws(self.library, &self.target, self.options, program)?;
        laws.retain(|&l| !is_layout(&self.library.laws[l as usize]));
        let own = &self.options.limits;
        let limits = Limits {
            nodes: own.nodes.min(NODES),
            rounds: own.rounds.min(rounds),
            most: own.most.min(STEPS),
            ..own.clone()
        };
        let (library, goal) = (self.library.clone(), [goal(program)]);
        Ok(explore_until_equal(library, program.clone(), &laws, &limits, &goal))
    }

    /// The cone's program with constants of either value replaced by what the other one computes, where that is the same but for
    /// rounding.
    fn with_computed(&self, cone: &Cone, explored: &Explored) -> (Program, Vec<Rounded>) {
        let [of_a, of_b] = cone.own_constants();
        let mut known: HashMap<Type, Vec<(Program, Tensor)>> = HashMap::new();
        let mut replaced: HashMap<NodeId, Program> = HashMap::new();
        let mut rounded = Vec::new();
        for id in of_b.into_iter().chain(of_a) {
            let node = cone.program.node(id);
            let Some(constant) = cone.program.as_const(Value { node: id, output: 0 }) else {
                continue;
            };
            if !constant.dtype().is_float() || constant.unread().is_some() {
                continue;
            }
            let computed = known
                .entry(node.types[0].clone())
                .or_insert_with(|| self.evaluated(explored, &node.types[0]));
            // What is computed of the constant itself says nothing of it.
            let others = computed.iter().filter(|(p, _)| p.consts.iter().all(|t| t != constant));
            // Nor does what another replaced constant is computed from.
            let used = |p: &Program| {
                replaced.keys().any(|r| {
                    let gone = cone.program.as_const(Value { node: *r, output: 0 });
                    p.consts.iter().any(|t| Some(t) == gone)
                })
            };
            let near = others
                .filter(|(p, _)| !used(p))
                .filter_map(|(p, t)| Some((apart(t, constant)?, p)))
                .min_by(|x, y| x.0.total_cmp(&y.0));
            if let Some((difference, program)) = near {
                replaced.insert(id, program.clone());
                rounded.push(Rounded { name: called(constant, node), difference });
            }
        }
        (spliced(&cone.program, &replaced), rounded)
    }

    /// What the e-graph computes of constants alone, with its value.
    fn evaluated(&self, explored: &Explored, ty: &Type) -> Vec<(Program, Tensor)> {
        let value = |p: Program| {
            let folded = fold(&p, self.library).ok()?;
            let tensor = folded.as_const(folded.outputs[0].1)?.clone();
            Some((p, tensor))
        };
        explored.computed_constants(ty).into_iter().filter_map(value).collect()
    }
}

/// The two outputs of a cone's program.
fn goal(program: &Program) -> (Value, Value) {
    (program.outputs[0].1, program.outputs[1].1)
}

/// Why the two outputs are equal, if they are.
fn steps(explored: &Explored, program: &Program) -> Option<Vec<Step>> {
    let proof = explored.prove_equal(&[goal(program)])?;
    let is_small = |s: &Sides| s.left.nodes.len().max(s.right.nodes.len()) <= SIDE;
    let step = |s: &ProofStep| Step {
        reason: s.reason,
        sides: explored.sides(s).ok().filter(is_small).map(Arc::new),
        text: (explored.term(s.left), explored.term(s.right)),
    };
    Some(proof.steps.iter().map(step).collect())
}

/// What a constant is called.
pub(super) fn called(constant: &Tensor, node: &Node) -> String {
    constant.name().map_or_else(|| node.origin.clone(), str::to_string)
}

/// By how much two constants differ, as a part of the largest element; `None` if that is more than rounding.
fn apart(a: &Tensor, b: &Tensor) -> Option<f64> {
    if a.shape() != b.shape() {
        return None;
    }
    let (x, y) = (a.to_f64(), b.to_f64());
    let largest = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let allowed = ROUNDED * a.dtype().unit_roundoff() * largest;
    let mut worst = 0.0f64;
    for (x, y) in x.iter().zip(&y) {
        let off = if x == y || x.is_nan() && y.is_nan() { 0.0 } else { (x - y).abs() };
        if off.is_nan() || off > allowed {
            return None;
        }
        worst = worst.max(off);
    }
    Some(if worst == 0.0 { 0.0 } else { worst / largest })
}

/// A program with programs in the place of some of its constants.
fn spliced(program: &Program, replaced: &HashMap<NodeId, Program>) -> Program {
    let mut out = Program { inputs: program.inputs.clone(), ..Program::default() };
    let mut new: Vec<NodeId> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        new.push(match replaced.get(&NodeId(i as u32)) {
            Some(part) => {
                let mut inner = Vec::with_capacity(part.nodes.len());
                part.nodes.iter().for_each(|n| inner.push(copied(&mut out, part, n, &inner)));
                inner[part.outputs[0].1.node.0 as usize]
            }
            None => copied(&mut out, program, node, &new),
        });
    }
    let moved = |v: &Value| Value { node: new[v.node.0 as usize], ..*v };
    out.outputs = program.outputs.iter().map(|(n, v)| (n.clone(), moved(v))).collect();
    out
}

/// Adds a node of a program to another one, where `new` are the nodes before it.
pub(super) fn copied(out: &mut Program, from: &Program, node: &Node, new: &[NodeId]) -> NodeId {
    let mut node = node.clone();
    node.args.iter_mut().for_each(|a| a.node = new[a.node.0 as usize]);
    if let NodeKind::Const(c) = node.kind {
        node.kind = NodeKind::Const(out.consts.intern(from.consts.get(c).clone()));
    }
    out.push(node)
}
