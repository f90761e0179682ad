//! Generates small valid programs from the declarations of a library.
//!
//! Applies operators, expands definitions and instantiates left sides of laws, so that laws have
//! something to match. Refers to no operator by name; ill-typed attempts are repeated.

use crate::signature::{CallDraft, ExtentPool, Signature, Words, family};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, Extent, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Library, OpClass};
use mlc_dsl::random::Random;

/// How large programs are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Fewest operators that are asked for.
    pub least: usize,
    /// Most nodes.
    pub most: usize,
}

impl Default for Size {
    fn default() -> Size {
        Size { least: 3, most: 25 }
    }
}

/// Most elements of one value.
const ELEMENTS: i64 = 2_000;
/// Tries for one application.
const TRIES: usize = 12;

/// Draws programs.
pub struct Generator<'a> {
    library: &'a Library,
    menu: Vec<(CallId, usize)>,
    laws: Vec<usize>,
    words: Words,
    size: Size,
}

impl<'a> Generator<'a> {
    /// A generator over all declarations.
    pub fn new(library: &'a Library) -> Generator<'a> {
        let weight = |i: usize| match (&library.calls[i].kind, library.calls[i].class) {
            (CallKind::Extern(_), _) => 1,
            (CallKind::Def(_), _) => 4,
            (CallKind::Op(_), OpClass::Pointwise) => 8,
            (CallKind::Op(_), OpClass::View | OpClass::Reduction) => 22,
            (CallKind::Op(_), OpClass::Contraction) => 30,
            (CallKind::Op(_), OpClass::Movement) => 8,
            (CallKind::Op(_), OpClass::Other) => 4,
        };
        let menu = (0..library.calls.len()).map(|i| (CallId(i as u32), weight(i))).collect();
        let plain = |i: &usize| {
            let l = &library.laws[*i];
            !l.left.iter().any(|s| s.each) && !l.vars.iter().any(|v| v.each) && !l.vars.is_empty()
        };
        let laws = (0..library.laws.len()).filter(plain).collect();
        Generator { library, menu, laws, words: words(library), size: Size::default() }
    }

    /// The same with programs of another size.
    pub fn sized(self, size: Size) -> Generator<'a> {
        Generator { size, ..self }
    }

    /// The program of a seed.
    pub fn program(&self, seed: u64) -> Program {
        let mut rng = Random::new(seed);
        let extents = ExtentPool::choose(&mut rng);
        let mut s = Session::new(self, extents);
        let wanted = self.size.least + rng.below(self.size.most.saturating_sub(self.size.least));
        let mut failures = 0;
        while s.operators() < wanted && failures < 40 {
            let before = s.b.program().nodes.len();
            let made = match rng.below(10) {
                0..=2 => s.law(&mut rng),
                3..=5 => s.chain(&mut rng),
                _ => s.any(&mut rng),
            };
            if made.is_none() || s.b.program().nodes.len() == before {
                failures += 1;
            }
            if s.b.program().nodes.len() > self.size.most * 3 {
                break;
            }
        }
        s.finish(&mut rng)
    }

    /// A program that applies one operator once; `None` if no application types.
    pub fn single(&self, call: CallId, seed: u64) -> Option<Program> {
        let mut rng = Random::new(seed);
        let mut s = Session::new(self, ExtentPool::choose(&mut rng));
        s.fresh = true;
        s.apply(call, &mut rng)?;
        let node = s.b.program().nodes.iter().any(|n| matches!(n.kind, NodeKind::Apply(..)));
        node.then(|| s.finish(&mut rng))
    }
}

/// One program under construction.
pub(crate) struct Session<'g, 'a> {
    g: &'g Generator<'a>,
    pub b: Builder<'a>,
    /// Values to draw arguments from.
    pub pool: Vec<Value>,
    extents: ExtentPool,
    /// Inputs so far.
    pub inputs: usize,
    /// Every argument is an input.
    fresh: bool,
}

impl<'g, 'a> Session<'g, 'a> {
    pub fn new(g: &'g Generator<'a>, extents: ExtentPool) -> Session<'g, 'a> {
        let b = Builder::new(g.library);
        Session { g, b, pool: Vec::new(), extents, inputs: 0, fresh: false }
    }

    fn operators(&self) -> usize {
        let nodes = self.b.program().nodes.iter();
        nodes.filter(|n| matches!(n.kind, NodeKind::Apply(..))).count()
    }

    /// Any operator, by weight.
    pub fn any(&mut self, rng: &mut Random) -> Option<()> {
        let total: usize = self.g.menu.iter().map(|m| m.1).sum();
        let mut at = rng.below(total);
        let call = self.g.menu.iter().find(|m| {
            let here = at < m.1;
            at = at.saturating_sub(m.1);
            here
        })?;
        self.apply(call.0, rng)
    }

    /// A few pointwise operators, reductions and views.
    fn chain(&mut self, rng: &mut Random) -> Option<()> {
        let class = rng.pick(&[
            OpClass::Pointwise,
            OpClass::Pointwise,
            OpClass::Pointwise,
            OpClass::Reduction,
            OpClass::View,
        ]);
        let library = self.g.library;
        let fitting: Vec<CallId> = (0..library.calls.len())
            .filter(|&i| library.calls[i].class == class)
            .map(|i| CallId(i as u32))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        for _ in 0..1 + rng.below(3) {
            self.apply(rng.pick(&fitting), rng);
        }
        Some(())
    }

    /// Applies an operator to drawn arguments, or expands it.
    fn apply(&mut self, call: CallId, rng: &mut Random) -> Option<()> {
        let library = self.g.library;
        let callable = library.call(call);
        for _ in 0..TRIES {
            let Some((draft, args)) = self.arguments(Signature::from(callable), rng) else {
                continue;
            };
            let made = match &callable.kind {
                CallKind::Def(_) if !self.fresh && rng.chance(0.5) => {
                    self.b.expand(call, &draft.attrs, &args).ok()
                }
                _ => self.b.apply(call, &draft.attrs, &args).ok(),
            };
            if let Some(values) = made {
                return self.keep(values);
            }
        }
        None
    }

    /// The left side of any law, its conditions met or not.
    fn law(&mut self, rng: &mut Random) -> Option<()> {
        if self.g.laws.is_empty() {
            return None;
        }
        let law = rng.pick(&self.g.laws);
        self.left_side(law, rng)
    }

    /// The left side of a law, its conditions met or not; none of a family.
    pub fn left_side(&mut self, law: usize, rng: &mut Random) -> Option<()> {
        if !self.g.laws.contains(&law) {
            return None;
        }
        let law = &self.g.library.laws[law];
        for _ in 0..TRIES {
            let Some((mut draft, args)) = self.arguments(Signature::from(law), rng) else {
                continue;
            };
            let roots: Vec<_> = law.left.iter().map(|s| s.root).collect();
            if let Ok(values) = self.b.instantiate(&law.terms, &roots, &args, &mut draft.env) {
                return self.keep(values);
            }
        }
        None
    }

    /// Adds results to the pool unless they are too large.
    fn keep(&mut self, values: Vec<Value>) -> Option<()> {
        let small = |v: &Value| {
            let elements = self.b.ty(*v).elements().as_const();
            elements.is_some_and(|n| n <= ELEMENTS) && self.b.ty(*v).rank() <= 6
        };
        if !values.iter().all(small) {
            return None;
        }
        self.pool.extend(values);
        Some(())
    }

    /// Arguments and attributes that fit a signature.
    fn arguments<'s>(
        &mut self,
        sig: Signature<'s>,
        rng: &mut Random,
    ) -> Option<(CallDraft<'s>, Vec<Value>)> {
        let mut draft = CallDraft::new(sig);
        let mut args: Vec<Option<Value>> = vec![None; sig.inputs.len()];
        let mut order: Vec<usize> = (0..sig.inputs.len()).collect();
        if rng.chance(0.5) {
            rng.shuffle(&mut order);
        }
        let mut first = true;
        for &i in &order {
            if self.fresh || self.pool.is_empty() || !rng.chance(if first { 0.9 } else { 0.45 }) {
                continue;
            }
            for _ in 0..4 {
                let v = self.draw(rng);
                if draft.accept(i, &self.b.ty(v).clone(), rng) {
                    args[i] = Some(v);
                    first = false;
                    break;
                }
            }
        }
        draft.close(&self.extents, rng);
        // Types first: inputs are added only for what fits as a whole.
        let mut types = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            let ty = match arg {
                Some(v) => self.b.ty(*v).clone(),
                None => draft.wanted(i, &self.extents, rng)?,
            };
            if ty.elements().as_const().is_none_or(|n| n > ELEMENTS) || ty.rank() > 6 {
                return None;
            }
            draft.env.bind_tensor(&sig.inputs[i].name, ty.clone());
            types.push(ty);
        }
        draft.attributes(&self.g.words, rng)?;
        let args = args.into_iter().zip(types);
        let args = args.map(|(v, ty)| v.unwrap_or_else(|| self.provide(&ty, rng))).collect();
        Some((draft, args))
    }

    /// A known value, late ones more often.
    fn draw(&self, rng: &mut Random) -> Value {
        let n = self.pool.len();
        let near = rng.below(3.min(n));
        if rng.chance(0.6) { self.pool[n - 1 - near] } else { self.pool[rng.below(n)] }
    }

    /// A value of a type: a known one, one that is repeated, a constant or a new input.
    fn provide(&mut self, ty: &Type, rng: &mut Random) -> Value {
        if !self.fresh {
            let same: Vec<Value> =
                self.pool.iter().copied().filter(|&v| self.b.ty(v) == ty).collect();
            if !same.is_empty() && rng.chance(0.5) {
                return rng.pick(&same);
            }
            if ty.rank() > 0 && rng.chance(0.35) {
                let parts: Vec<(Value, Vec<i64>)> =
                    self.pool.iter().filter_map(|&v| Some((v, embed(self.b.ty(v), ty)?))).collect();
                if !parts.is_empty() {
                    let (v, map) = rng.pick(&parts);
                    if let Ok(v) = self.b.broadcast(v, &map, &ty.shape) {
                        return v;
                    }
                }
            }
            if rng.chance(0.4)
                && let Some(v) = self.constant(ty, rng)
            {
                return v;
            }
        }
        self.inputs += 1;
        let v = self.b.input(&format!("x{}", self.inputs), ty.clone());
        self.pool.push(v);
        v
    }

    pub fn constant(&mut self, ty: &Type, rng: &mut Random) -> Option<Value> {
        let shape = ty.known_shape()?;
        let n = shape.iter().product();
        let numbers: &[f64] = if ty.dtype.is_float() {
            &[0.5, 1.0, 2.0, -1.0, 0.0, 3.0, 1e-5, 0.1, 0.75, -2.0]
        } else {
            &[0.0, 1.0, 2.0, 1.0]
        };
        if rng.chance(0.5) {
            let scalar = self.b.constant(Tensor::from_f64(ty.dtype, vec![], &[rng.pick(numbers)]));
            return self.b.broadcast(scalar, &[], &ty.shape).ok();
        }
        let values: Vec<f64> = (0..n)
            .map(|_| if ty.dtype.is_float() { rng.normal() } else { rng.pick(numbers) })
            .collect();
        // A row of weights, repeated, or the whole.
        Some(self.b.constant(Tensor::from_f64(ty.dtype, shape, &values)))
    }

    /// The values that nothing reads, and sometimes one more, are the outputs.
    pub fn finish(mut self, rng: &mut Random) -> Program {
        if self.pool.is_empty() {
            let dtype = family("F", rng);
            let v = self.provide(&Type::new(dtype, vec![Extent::from(2)]), rng);
            self.pool.push(v);
        }
        let program = self.b.program();
        let mut read = vec![false; program.nodes.len()];
        for n in &program.nodes {
            n.args.iter().for_each(|a| read[a.node.0 as usize] = true);
        }
        let applied = |v: &Value| matches!(program.node(v.node).kind, NodeKind::Apply(..));
        let mut outputs: Vec<Value> = self.pool.iter().copied().filter(applied).collect();
        outputs.sort();
        outputs.dedup();
        let inner: Vec<Value> =
            outputs.iter().copied().filter(|v| read[v.node.0 as usize]).collect();
        outputs.retain(|v| !read[v.node.0 as usize]);
        rng.shuffle(&mut outputs);
        outputs.truncate(3);
        if !inner.is_empty() && (outputs.is_empty() || rng.chance(0.25)) {
            outputs.push(rng.pick(&inner));
        }
        if outputs.is_empty() {
            outputs.push(self.pool[0]);
        }
        let named = outputs.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)).collect();
        crate::primitive::without_spare_inputs(&self.b.finish(named))
    }
}

/// Where the axes of `from` lie among those of `to`, in order, if they do.
fn embed(from: &Type, to: &Type) -> Option<Vec<i64>> {
    if from.dtype != to.dtype || from.rank() >= to.rank() {
        return None;
    }
    let mut map = Vec::new();
    let mut end = to.rank();
    for d in from.shape.iter().rev() {
        let at = (0..end).rev().find(|&i| to.shape[i] == *d)?;
        map.push(at as i64);
        end = at;
    }
    map.reverse();
    Some(map)
}

/// The words that texts compare attributes with or give them as defaults.
pub(crate) fn words(library: &Library) -> Words {
    let mut out = Words::new();
    for s in &library.sources {
        for (at, _) in s.text.match_indices("= \"") {
            let name = s.text[..at].trim_end_matches(['=', ' ']);
            let start = name.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &name[start.map_or(0, |s| s + 1)..];
            let rest = &s.text[at + 3..];
            let Some(end) = rest.find('"') else { continue };
            let list = out.entry(name.to_string()).or_default();
            if !list.iter().any(|w| w == &rest[..end]) {
                list.push(rest[..end].to_string());
            }
        }
    }
    out
}

/// The attributes of an application as the builder takes them.
pub(crate) fn given(attrs: &[Attr]) -> Vec<Option<Attr>> {
    attrs.iter().cloned().map(Some).collect()
}
