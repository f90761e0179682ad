//! Programs around left sides of given laws: computed, shared, repeated and constant operands, left sides in one another, several
//! outputs, and near misses, among random operators.

use crate::generate::{Generator, Session};
use crate::near_miss::near_miss;
use crate::primitive::without_spare_inputs;
use crate::signature::ExtentPool;
use mlc_dsl::ir::canon::Sink;
use mlc_dsl::ir::{Extent, NodeKind, Program, Type, Value};
use mlc_dsl::library::{CallId, OpClass};
use mlc_dsl::random::Random;
use std::collections::HashMap;

/// Draws a program whose outputs are a left side from a seed: its conditions met, or one of them broken.
pub(crate) type DrawLeft<'a> = dyn Fn(u64, bool) -> Result<Program, String> + 'a;

/// A program around left sides of one law.
#[derive(Clone, Debug)]
pub(crate) struct AimedProgram {
    /// The program.
    pub program: Program,
    /// Left sides in it that the law admits.
    pub built: usize,
    /// What nearly is one.
    pub near: usize,
    /// Why a left side could not be drawn.
    pub refused: Option<String>,
}

/// Values of more elements are not built on.
const ELEMENTS: i64 = 3_000;
const RANK: usize = 6;

/// Operators that are tried for an operand of a type.
const TRIES: usize = 8;

impl Generator<'_> {
    /// The program of a seed around left sides of a law of the library.
    pub(crate) fn aimed(&self, law: usize, draw: &DrawLeft<'_>, seed: u64) -> AimedProgram {
        let mut rng = Random::of_name(seed, "aimed");
        let mut s = Session::new(self, ExtentPool::choose(&mut rng));
        let mut out =
            AimedProgram { program: Program::default(), built: 0, near: 0, refused: None };
        // Every third program is one left side and nothing else.
        let alone = rng.chance(0.3);
        for _ in 0..if alone { 0 } else { rng.below(4) } {
            s.any(&mut rng);
        }
        let mut roots: Vec<Value> = Vec::new();
        let sides = if alone { 1 } else { 1 + rng.below(3) };
        for k in 0..sides {
            let known = s.pool.len();
            match if k == 0 { rng.below(6) } else { rng.below(10) } {
                // The variables stand for what is there: nested, shared and repeated operands.
                0..=1 if s.left_side(law, &mut rng).is_some() => out.built += 1,
                0..=5 => match draw(rng.bits(), false) {
                    Ok(left) => out.built += usize::from(s.embed(&left, alone, &mut rng)),
                    Err(why) => out.refused = Some(why),
                },
                6..=7 => {
                    if let Ok(left) = draw(rng.bits(), true) {
                        out.near += usize::from(s.embed(&left, alone, &mut rng));
                    }
                }
                _ => {
                    let left = draw(rng.bits(), false).ok();
                    let near = left.and_then(|l| near_miss(&l, s.b.library, &mut rng));
                    out.near += near.map_or(0, |n| usize::from(s.embed(&n, alone, &mut rng)));
                }
            }
            roots.extend(&s.pool[known..]);
        }
        for _ in 0..if alone { 0 } else { rng.below(3) } {
            s.any(&mut rng);
        }
        out.program = s.finish_around(&roots, &mut rng);
        out
    }
}

impl Session<'_, '_> {
    /// Adds a program, whose inputs become values of their types: known ones, computed, repeated, constant or new. True if its outputs
    /// are values now.
    fn embed(&mut self, part: &Program, fresh: bool, rng: &mut Random) -> bool {
        let large =
            |t: &Type| t.elements().as_const().is_none_or(|n| n > ELEMENTS) || t.rank() > RANK;
        if part.nodes.iter().flat_map(|n| &n.types).any(large) {
            return false;
        }
        let plain = fresh || rng.chance(0.3);
        let mut operands: Vec<Value> = Vec::new();
        for (_, ty) in &part.inputs {
            let v = match plain {
                true => self.new_input(ty),
                false => self.operand(ty, &operands, rng),
            };
            operands.push(v);
        }
        let mut made: HashMap<Value, Value> = HashMap::new();
        for (id, n) in part.nodes.iter().enumerate() {
            let node = mlc_dsl::ir::NodeId(id as u32);
            let args: Vec<Value> = n.args.iter().map(|a| made[a]).collect();
            let values = match &n.kind {
                NodeKind::Input(i) => vec![operands[*i as usize]],
                NodeKind::Const(c) => vec![self.b.constant(part.consts.get(*c).clone())],
                NodeKind::Apply(call, attrs) => {
                    let attrs = crate::generate::given(attrs);
                    let Ok(values) = self.b.raw(*call, &attrs, &args) else { return false };
                    values
                }
            };
            let outputs = values.into_iter().enumerate();
            made.extend(outputs.map(|(i, v)| (Value { node, output: i as u32 }, v)));
        }
        self.pool.extend(part.outputs.iter().map(|(_, v)| made[v]));
        true
    }

    /// A value of a type for a variable of a left side, beside those of the variables before it.
    fn operand(&mut self, ty: &Type, others: &[Value], rng: &mut Random) -> Value {
        let same = |all: &[Value], s: &Session<'_, '_>| -> Vec<Value> {
            all.iter().copied().filter(|v| s.b.ty(*v) == ty).collect()
        };
        let found = match rng.below(10) {
            0..=2 => pick(&same(&self.pool, self), rng),
            3 => pick(&same(others, self), rng),
            4 => self.constant(ty, rng),
            5..=6 => self.computed(ty, rng),
            7 => self.repeated(ty, rng),
            _ => None,
        };
        found.unwrap_or_else(|| self.new_input(ty))
    }

    fn new_input(&mut self, ty: &Type) -> Value {
        self.inputs += 1;
        let v = self.b.input(&format!("x{}", self.inputs), ty.clone());
        self.pool.push(v);
        v
    }

    /// A pointwise operator of one new tensor.
    fn computed(&mut self, ty: &Type, rng: &mut Random) -> Option<Value> {
        let library = self.b.library;
        let fits = |i: &usize| {
            let c = &library.calls[*i];
            c.class == OpClass::Pointwise && c.inputs.len() == 1 && c.attrs.is_empty()
        };
        let unary: Vec<usize> = (0..library.calls.len()).filter(fits).collect();
        if unary.is_empty() {
            return None;
        }
        let of = self.new_input(ty);
        (0..TRIES).find_map(|_| {
            let call = CallId(rng.pick(&unary) as u32);
            let v = *self.b.apply(call, &[], &[of]).ok()?.first()?;
            (self.b.ty(v) == ty).then_some(v)
        })
    }

    /// A new tensor of some of the axes, repeated along the others.
    fn repeated(&mut self, ty: &Type, rng: &mut Random) -> Option<Value> {
        let kept: Vec<i64> = (0..ty.rank() as i64).filter(|_| rng.chance(0.5)).collect();
        let shape: Vec<Extent> = kept.iter().map(|&i| ty.shape[i as usize].clone()).collect();
        let of = self.new_input(&Type::new(ty.dtype, shape));
        self.b.broadcast(of, &kept, &ty.shape).ok()
    }

    /// The program of these values, as far as they are computed, and of others that nothing reads; now and then of one inside, too.
    fn finish_around(self, roots: &[Value], rng: &mut Random) -> Program {
        let program = self.b.program();
        let applied = |v: &Value| matches!(program.node(v.node).kind, NodeKind::Apply(..));
        let mut read = vec![false; program.nodes.len()];
        for n in &program.nodes {
            n.args.iter().for_each(|a| read[a.node.0 as usize] = true);
        }
        let is_read = |v: &Value| read[v.node.0 as usize];
        let mut outputs: Vec<Value> = roots
            .iter()
            .copied()
            .filter(|v| applied(v) && (!is_read(v) || rng.chance(0.3)))
            .collect();
        let mut others: Vec<Value> =
            self.pool.iter().copied().filter(|v| applied(v) && !is_read(v)).collect();
        rng.shuffle(&mut others);
        others.truncate(3);
        outputs.append(&mut others);
        outputs.sort();
        outputs.dedup();
        if outputs.is_empty() {
            return self.finish(rng);
        }
        rng.shuffle(&mut outputs);
        let named = outputs.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)).collect();
        without_spare_inputs(&self.b.finish(named))
    }
}

fn pick(values: &[Value], rng: &mut Random) -> Option<Value> {
    (!values.is_empty()).then(|| rng.pick(values))
}
