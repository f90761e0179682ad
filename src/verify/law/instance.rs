//! Instances: both sides of a law as one program with concrete extents.

use super::facts::LawFacts;
use super::sides::SideEvaluator;
use crate::sample::draft::SampleDraft;
use crate::sample::repair::Repair;
use mlc_dsl::expr::Expr;
use mlc_dsl::ir::{Attr, DType, NodeKind, Program, Tensor, Type};
use mlc_dsl::library::{DTypePattern, Name, TypePattern};
use mlc_dsl::random::Random;

/// Tensors of more elements are not sampled.
const MAX_ELEMENTS: i64 = 3000;

/// How the reason begins where a condition has no value.
pub(crate) const TOO_LARGE: &str = "the tensors grow too large for samples";
pub(crate) const UNDECIDED: &str = "cannot be decided:";

/// Both sides of a law as one program.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// What it was made from, attributes included.
    pub draft: SampleDraft,
    /// Inputs in order; outputs of the left side, then as many of the right.
    pub program: Program,
    /// The same with every float in f64, numbers of the law among them; the program itself where the
    /// law speaks of element types.
    pub truth: Program,
    /// Which variable each input is.
    pub vars: Vec<usize>,
    /// Outputs of one side.
    pub outputs: usize,
    /// Per variable: whether the law speaks of constants there, whose own rounding counts as given.
    pub given: Vec<bool>,
}

/// Why a draft has no instance.
#[derive(Clone, Debug)]
pub(crate) enum InstanceRefusal {
    /// The left side or a condition; with changes that may help, and the attributes they go with.
    Left(String, Vec<Repair>, Vec<(Name, Attr)>),
    /// Left side and conditions stand, but the right side has no instance; with changes that may help, and conditions of its
    /// operators that do not hold.
    Right(String, Vec<Repair>, Vec<(Name, Attr)>, Vec<Expr>),
    /// Both sides stand, with these different types.
    Types(Box<Instance>, usize),
}

/// Builds an instance; `wanted` tells per conjunct whether it must hold.
pub(crate) fn build(
    facts: &LawFacts,
    draft: &SampleDraft,
    wanted: &[bool],
    rng: &mut Random,
) -> Result<Instance, InstanceRefusal> {
    facts.drew(1);
    let no = |reason: String| InstanceRefusal::Left(reason, vec![], vec![]);
    let envs = (0..draft.members).map(|m| draft.env(facts, m)).collect::<Result<Vec<_>, _>>();
    let mut w =
        envs.and_then(|envs| SideEvaluator::start(facts, draft.clone(), envs)).map_err(no)?;
    let law = facts.law;
    w.wanted = wanted.to_vec();
    // What needs no term is mended before any is built.
    w.decided_conditions()?;
    let left = match w.side(&law.left, rng) {
        Ok(v) => v,
        Err(reason) => {
            let fixes = std::mem::take(&mut w.fixes);
            return Err(InstanceRefusal::Left(reason, fixes, w.draft.attrs));
        }
    };
    w.remaining(rng).map_err(no)?;
    w.conditions()?;
    w.fixes.clear();
    let right = match w.side(&law.right, rng) {
        Ok(v) => v,
        Err(reason) => {
            let fixes = std::mem::take(&mut w.fixes);
            return Err(InstanceRefusal::Right(reason, fixes, w.draft.attrs, w.guards));
        }
    };
    let (vars, outputs) = (w.input_vars(), left.len());
    let types: Vec<(Type, Type)> = left
        .iter()
        .zip(&right)
        .map(|((_, l), (_, r))| (w.builder.ty(*l).clone(), w.builder.ty(*r).clone()))
        .collect();
    let program = w.builder.finish(left.into_iter().chain(right).collect());
    let large = |t: &Type| t.elements().as_const().is_none_or(|n| n > MAX_ELEMENTS);
    if program.nodes.iter().any(|n| n.types.iter().any(large)) {
        return Err(no(TOO_LARGE.into()));
    }
    let casts = facts.typed
        || w.draft.attrs.iter().any(|(_, a)| matches!(a, Attr::DType(_)))
        || program.nodes.iter().any(|n| match &n.kind {
            NodeKind::Apply(_, attrs) => attrs.iter().any(|a| matches!(a, Attr::DType(_))),
            NodeKind::Input(_) | NodeKind::Const(_) => false,
        });
    let wide = match casts {
        true => None,
        false => in_f64(facts, &program, &w.numbers).or_else(|| widened(facts, &w.draft, rng)),
    };
    let truth = wide.unwrap_or_else(|| program.clone());
    let given = facts.given.clone();
    let instance = Instance { draft: w.draft, program, truth, vars, outputs, given };
    match types.iter().position(|(l, r)| l != r) {
        Some(i) => Err(InstanceRefusal::Types(Box::new(instance), i)),
        None => Ok(instance),
    }
}

/// The left side alone, of a draft whose right side has no instance.
pub(crate) fn left_alone(
    facts: &LawFacts,
    draft: &SampleDraft,
    rng: &mut Random,
) -> Option<Instance> {
    let envs = (0..draft.members).map(|m| draft.env(facts, m)).collect::<Result<Vec<_>, _>>();
    let mut w = SideEvaluator::start(facts, draft.clone(), envs.ok()?).ok()?;
    let left = w.side(&facts.law.left, rng).ok()?;
    let (vars, outputs) = (w.input_vars(), left.len());
    let program = w.builder.finish(left);
    let (truth, given) = (program.clone(), facts.given.clone());
    Some(Instance { draft: w.draft, program, truth, vars, outputs, given })
}

/// A program with every float in f64, where types are only handed on: numbers of the law take the places of the
/// constants that they were rounded to. `None` if two numbers are one constant there, or a type is stated.
fn in_f64(facts: &LawFacts, program: &Program, numbers: &[(DType, f64)]) -> Option<Program> {
    let stated = |ty: &TypePattern| matches!(ty.dtype, DTypePattern::Fixed(d) if d.is_float());
    if facts.law.vars.iter().any(|v| stated(&v.ty)) {
        return None;
    }
    let wide = |ty: &mut Type| {
        if ty.dtype.is_float() {
            ty.dtype = DType::F64;
        }
    };
    let mut out = Program {
        inputs: program.inputs.clone(),
        nodes: program.nodes.clone(),
        outputs: program.outputs.clone(),
        ..Program::default()
    };
    for node in &mut out.nodes {
        match &mut node.kind {
            NodeKind::Const(id) => {
                let t = program.consts.get(*id);
                let t = if t.dtype().is_float() { number(t, numbers)? } else { t.clone() };
                *id = out.consts.intern(t);
            }
            NodeKind::Apply(call, _) => {
                let c = facts.library.call(*call);
                let mut types =
                    c.inputs.iter().map(|i| &i.ty).chain(c.outputs.iter().map(|o| &o.1));
                if types.any(stated) {
                    return None;
                }
            }
            NodeKind::Input(_) => {}
        }
        node.types.iter_mut().for_each(wide);
    }
    out.inputs.iter_mut().for_each(|(_, ty)| wide(ty));
    Some(out)
}

/// The one number of the law that a constant was rounded from.
fn number(constant: &Tensor, numbers: &[(DType, f64)]) -> Option<Tensor> {
    let scalar = |dtype, v| Tensor::from_f64(dtype, vec![], &[v]);
    let same = |(dtype, v): &&(DType, f64)| {
        *dtype == constant.dtype()
            && constant.shape().is_empty()
            && scalar(*dtype, *v).get_f64(0).to_bits() == constant.get_f64(0).to_bits()
    };
    let mut from = numbers.iter().filter(same).map(|(_, v)| *v);
    let first = from.next()?;
    from.all(|v| v.to_bits() == first.to_bits()).then(|| scalar(DType::F64, first))
}

/// Both sides with every float in f64. Attributes are all bound: conditions need no second look.
fn widened(facts: &LawFacts, draft: &SampleDraft, rng: &mut Random) -> Option<Program> {
    let draft = draft.widened();
    let envs =
        (0..draft.members).map(|m| draft.env(facts, m)).collect::<Result<Vec<_>, _>>().ok()?;
    let mut w = SideEvaluator::start(facts, draft, envs).ok()?;
    let mut outputs = w.side(&facts.law.left, rng).ok()?;
    outputs.extend(w.side(&facts.law.right, rng).ok()?);
    Some(w.builder.finish(outputs))
}

/// The types of both sides, output by output, with a symbol for every extent of the draft; `None` if
/// a side cannot be typed so.
pub(crate) fn build_symbolic(facts: &LawFacts, draft: &SampleDraft) -> Option<Vec<(Type, Type)>> {
    let env = draft.symbolic_env(facts).ok()?;
    let mut w = SideEvaluator::start(facts, draft.clone(), vec![env]).ok()?;
    // Every attribute is bound: nothing is chosen.
    let mut rng = Random::of_name(0, "");
    let left = w.side(&facts.law.left, &mut rng).ok()?;
    // Where a condition waits for numbers the law does not fire on symbols anyway.
    w.wanted = vec![true; facts.conjuncts.len()];
    w.conditions().ok()?;
    let right = w.side(&facts.law.right, &mut rng).ok()?;
    let pairs = left.iter().zip(&right);
    Some(
        pairs
            .map(|((_, l), (_, r))| (w.builder.ty(*l).clone(), w.builder.ty(*r).clone()))
            .collect(),
    )
}
