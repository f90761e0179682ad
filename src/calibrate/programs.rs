//! Programs to time: for every kernel of a target, applications of the operators that it covers, at the sizes of networks.
//!
//! Generated from signatures, so a new kernel is timed without any code here; refers to no operator by name. The same
//! library and seed give the same programs.

use super::layers;
use crate::show;
use bytes::Bytes;
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{
    CallId, CallKind, Callable, DTypePattern, Epilogue, Input, Library, OpClass, TargetItem,
};
use mlc_dsl::random::Random;
use mlc_dsl::term::TermKind;
use mlc_extract::Size;
use mlc_extract::Work;
use mlc_extract::cost::target::{MEANING, POINTWISE, TargetPrices, VIEW};
use mlc_extract::kernels::selection::select_kernels_priced;
use mlc_fuzz::network_sizes::NetworkSizes;
use mlc_verify::random_inputs;
use std::collections::HashMap;
use std::fmt::Write;

/// Extents of networks: few are tiny, most are channels and tokens.
const EXTENTS: [i64; 44] = [
    1, 1, 2, 3, 4, 8, 10, 12, 12, 16, 16, 24, 32, 32, 48, 64, 64, 64, 77, 96, 96, 128, 128, 128,
    160, 192, 197, 256, 256, 256, 320, 384, 384, 512, 512, 576, 640, 768, 768, 1000, 1024, 1536,
    2048, 3072,
];

/// Most quick operations, slow operations, bytes and elements of one program.
const MOST: [f64; 4] = [2.5e9, 4e7, 6.4e7, 2e7];
/// The same for code made of meanings.
const MOST_MEANT: [f64; 4] = [2e7, 1e6, 1.6e7, 1e6];
/// Most weight of a pointwise operator that layers use.
const USES: usize = 12;
/// Longest chain of pointwise operators.
const CHAIN: usize = 6;
/// Draws per program of a layer, at most.
const TRIES: usize = 8;

/// A kernel and what may be applied to time it.
pub struct KernelFamily {
    /// The kernel's name.
    pub kernel: String,
    heads: Vec<CallId>,
    /// Pointwise operators may follow.
    tail: bool,
}

impl KernelFamily {
    /// True if pointwise operators may follow.
    pub fn takes_tail(&self) -> bool {
        self.tail
    }
}

/// How one program is made.
#[derive(Clone)]
struct Recipe {
    head: CallId,
    /// The head is its body.
    open: bool,
    types: Vec<Type>,
    attrs: Vec<Option<Attr>>,
    /// Which operands are constants.
    fixed: Vec<bool>,
    /// Which operands come through a change of axis order.
    turned: Vec<bool>,
    tail: Vec<Link>,
}

/// A pointwise operator that follows.
#[derive(Clone)]
struct Link {
    call: CallId,
    other: Option<Other>,
}

/// The second operand of a pointwise operator.
#[derive(Clone, Copy)]
enum Other {
    /// Another input.
    Input,
    /// A constant along one axis.
    Row(usize),
    /// A number.
    Number,
}

/// A program to time.
pub struct Point {
    /// The kernel that computes it.
    pub kernel: String,
    /// What it computes, in a line.
    pub signature: String,
    /// Its work.
    pub work: Work,
    recipe: Recipe,
}

/// Draws programs.
pub struct ProgramDraw<'a> {
    library: &'a Library,
    target: &'a TargetItem,
    /// What the target has, read once for all draws.
    prices: TargetPrices<'a>,
    shapes: NetworkSizes<'a>,
    /// Pointwise operators, each as often as layers use it.
    pointwise: Vec<CallId>,
    /// The view that changes the order of axes.
    turn: Option<CallId>,
    /// Elements of constants while nothing is computed yet.
    zeros: Bytes,
}

impl<'a> ProgramDraw<'a> {
    /// For a target's kernels.
    pub fn new(library: &'a Library, target: &'a TargetItem) -> ProgramDraw<'a> {
        let ids = || (0..library.calls.len()).map(|i| CallId(i as u32));
        let is_link = |c: &Callable| {
            let float = c.inputs.iter().all(|i| i.ty.dtype.admits(DType::F32));
            let count = (1..=2).contains(&c.inputs.len()) && c.outputs.len() == 1;
            c.class == OpClass::Pointwise && float && count && c.attrs.is_empty()
        };
        let mut uses: HashMap<CallId, usize> = HashMap::new();
        for c in &library.calls {
            let CallKind::Def(body) = &c.kind else { continue };
            for (_, t) in body.terms.iter() {
                if let TermKind::Apply(id, _) = &t.kind {
                    *uses.entry(*id).or_default() += 1;
                }
            }
        }
        let is_turn = |c: &Callable| {
            c.class == OpClass::View && c.attrs.len() == 1 && c.attrs[0].ty.kind == AttrKind::Perm
        };
        ProgramDraw {
            library,
            target,
            prices: TargetPrices::new(library, target, None),
            shapes: NetworkSizes::new(library),
            pointwise: ids()
                .filter(|&i| is_link(library.call(i)))
                .flat_map(|i| vec![i; (1 + uses.get(&i).copied().unwrap_or(0)).min(USES)])
                .collect(),
            turn: ids().find(|&i| is_turn(library.call(i))),
            zeros: Bytes::from(vec![0; MOST[2] as usize]),
        }
    }

    /// The kernels, in the order of the target's text, then those of every target.
    pub fn families(&self) -> Vec<KernelFamily> {
        let mut out: Vec<KernelFamily> = Vec::new();
        for k in &self.target.kernels {
            match out.iter_mut().find(|f| f.kernel == k.name) {
                Some(f) => f.heads.extend(&k.covers),
                None => out.push(KernelFamily {
                    kernel: k.name.clone(),
                    heads: k.covers.clone(),
                    tail: k.epilogue != Epilogue::None,
                }),
            }
        }
        let covered = |i: &CallId| self.target.kernels.iter().any(|k| k.covers.contains(i));
        let meant = |i: &CallId| {
            let c = self.library.call(*i);
            let primitive = matches!(c.kind, CallKind::Op(_)) && !c.inputs.is_empty();
            primitive && !matches!(c.class, OpClass::View | OpClass::Pointwise) && !covered(i)
        };
        let ids = (0..self.library.calls.len()).map(|i| CallId(i as u32));
        let mut add = |kernel: &str, heads: Vec<CallId>, tail| match out
            .iter_mut()
            .find(|f| f.kernel == kernel)
        {
            Some(f) => f.heads.extend(heads),
            None => out.push(KernelFamily { kernel: kernel.into(), heads, tail }),
        };
        add(POINTWISE, self.pointwise.clone(), true);
        add(VIEW, self.turn.into_iter().collect(), false);
        add(MEANING, ids.filter(meant).collect(), false);
        out
    }

    /// One program for a kernel, if what is drawn types, is of a fit size and is one kernel.
    pub fn point(&self, family: &KernelFamily, rng: &mut Random) -> Option<Point> {
        if family.heads.is_empty() {
            return None;
        }
        let head = rng.pick(&family.heads);
        let (types, attrs) = self.shapes.draw(head, &EXTENTS, rng)?;
        let most = if family.kernel == MEANING { MOST_MEANT } else { MOST };
        let usual = |(t, i): (&Type, &Input)| match &i.ty.dtype {
            // Of indices, not of numbers: those have other kernels.
            DTypePattern::Var(v) if v.starts_with('I') => t.dtype == DType::I64,
            DTypePattern::Var(_) => t.dtype == DType::F32,
            DTypePattern::Fixed(_) => true,
        };
        let inputs = &self.library.call(head).inputs;
        let at = Size::default();
        let whole: f64 = types.iter().map(|t| at.bytes(t)).sum();
        let large = types.iter().map(|t| at.elements(t)).fold(0.0, f64::max) > most[3];
        if large
            || whole > most[2]
            || !types.iter().zip(inputs).all(usual)
            || types.first().is_some_and(|t| t.elements().is(0))
        {
            return None;
        }
        let fixed = (0..types.len()).map(|i| i > 0 && rng.chance(0.75)).collect();
        let may_turn = self.turn.is_some() && Some(head) != self.turn && family.kernel != MEANING;
        let turned = types.iter().map(|t| may_turn && t.rank() >= 2 && rng.chance(0.08)).collect();
        let tail = vec![];
        let mut recipe = Recipe { head, open: false, types, attrs, fixed, turned, tail };
        if family.tail {
            recipe.tail = self.tail(&recipe, rng)?;
        }
        self.finish(recipe, &most).filter(|p| p.kernel == family.kernel)
    }

    /// Different programs of a layer, at most so many, each if it is of a fit size and one kernel.
    pub fn layer(&self, head: CallId, count: usize, rng: &mut Random) -> Vec<Point> {
        let call = self.library.call(head);
        let mut out: Vec<Point> = Vec::new();
        for _ in 0..TRIES * count {
            let Some(types) = layers::types(call, rng).filter(|_| out.len() < count) else { break };
            if types.iter().map(|t| Size::default().bytes(t)).sum::<f64>() > MOST[2] {
                continue;
            }
            let fixed = call.inputs.iter().map(|i| !layers::is_variable(&i.name)).collect();
            let turned = vec![false; types.len()];
            let (attrs, tail) = (vec![None; call.attrs.len()], vec![]);
            let recipe = Recipe { head, open: true, types, attrs, fixed, turned, tail };
            let point = self.finish(recipe, &MOST);
            let fresh = |p: &Point| out.iter().all(|o| o.signature != p.signature);
            if let Some(p) = point.filter(fresh) {
                out.push(p);
            }
        }
        out
    }

    /// A constant whose elements are irrelevant.
    fn hollow(&self, ty: &Type) -> Option<Tensor> {
        let shape = ty.known_shape().filter(|_| ty.dtype == DType::F32)?;
        let size = 4 * shape.iter().product::<usize>();
        let data = self.zeros.get(..size).map(|_| self.zeros.slice(..size))?;
        Tensor::new(ty.dtype, shape, data).ok()
    }

    fn finish(&self, recipe: Recipe, most: &[f64; 4]) -> Option<Point> {
        let draft = self.build(&recipe, &mut |t| self.hollow(t))?;
        let plan = select_kernels_priced(draft, self.library, &self.prices);
        let [kernel] = plan.kernels.as_slice() else { return None };
        let work = self.prices.works().kernel(&plan.program, kernel);
        let sizes =
            [work.flops, work.slow + 20.0 * work.rare, work.read + work.written, work.points];
        if sizes.iter().zip(most).any(|(s, m)| s > m) || work.launches == 0.0 {
            return None;
        }
        let all = (0..plan.program.nodes.len() as u32).map(NodeId);
        let mut signature = show::signature(&plan.program, all, self.library);
        let kinds: String = recipe.fixed.iter().map(|f| if *f { 'c' } else { 'x' }).collect();
        let _ = write!(signature, " / {kinds}");
        Some(Point { kernel: kernel.name.clone(), signature, work, recipe })
    }

    /// A chain of pointwise operators after the head.
    fn tail(&self, recipe: &Recipe, rng: &mut Random) -> Option<Vec<Link>> {
        let length = rng.pick(&[0, 0, 1, 1, 2, 2, 3, CHAIN]);
        let result = self.result(recipe)?;
        let link = |rng: &mut Random| {
            let call = rng.pick(&self.pointwise);
            let other = (self.library.call(call).inputs.len() == 2).then(|| {
                match rng.below(if result.rank() > 0 { 6 } else { 2 }) {
                    0 => Other::Input,
                    1 => Other::Number,
                    _ if rng.chance(0.5) => Other::Row(result.rank() - 1),
                    _ => Other::Row(rng.below(result.rank())),
                }
            });
            Link { call, other }
        };
        Some((0..length).map(|_| link(rng)).collect())
    }

    /// The type of the head's first result.
    fn result(&self, recipe: &Recipe) -> Option<Type> {
        let p = self.build(recipe, &mut |_| None)?;
        Some(p.ty(p.outputs[0].1).clone())
    }

    /// The program of a recipe. `fill` makes the constants; without them, operands are inputs.
    fn build(
        &self,
        recipe: &Recipe,
        fill: &mut dyn FnMut(&Type) -> Option<Tensor>,
    ) -> Option<Program> {
        let mut b = Builder::new(self.library);
        let mut names = 0;
        let mut leaf = |b: &mut Builder<'a>, ty: &Type, fixed: bool| {
            names += 1;
            match if fixed { fill(ty) } else { None } {
                Some(t) => b.constant(t),
                None => b.input(&format!("x{names}"), ty.clone()),
            }
        };
        let mut args = Vec::new();
        for (i, ty) in recipe.types.iter().enumerate() {
            let v = match self.turn.filter(|_| recipe.turned[i]) {
                Some(turn) => {
                    let (r, mut shape) = (ty.rank() as i64, ty.shape.clone());
                    shape.swap(ty.rank() - 2, ty.rank() - 1);
                    let v = leaf(&mut b, &Type::new(ty.dtype, shape), recipe.fixed[i]);
                    let perm = (0..r - 2).chain([r - 1, r - 2]);
                    *b.apply(turn, &[Some(Attr::ints(perm))], &[v]).ok()?.first()?
                }
                None => leaf(&mut b, ty, recipe.fixed[i]),
            };
            args.push(v);
        }
        let mut results = match &self.library.call(recipe.head).kind {
            CallKind::Def(_) if recipe.open => b.expand(recipe.head, &recipe.attrs, &args).ok()?,
            _ => b.apply(recipe.head, &recipe.attrs, &args).ok()?,
        };
        for link in &recipe.tail {
            let [at] = results.as_slice() else { return None };
            let ty = b.ty(*at).clone();
            let other = match link.other {
                None => None,
                Some(Other::Input) => Some(leaf(&mut b, &ty, false)),
                Some(Other::Row(axis)) => {
                    let row = Type::new(ty.dtype, vec![ty.shape[axis].clone()]);
                    let v = leaf(&mut b, &row, true);
                    Some(b.broadcast(v, &[axis as i64], &ty.shape).ok()?)
                }
                Some(Other::Number) => {
                    let v = b.constant(Tensor::from_f32(vec![], vec![0.75]));
                    Some(b.broadcast(v, &[], &ty.shape).ok()?)
                }
            };
            let args: Vec<Value> = [*at].into_iter().chain(other).collect();
            results = b.apply(link.call, &[], &args).ok()?;
            let same = results.first().is_some_and(|v| *b.ty(*v) == ty);
            if !same {
                return None;
            }
        }
        let outputs = results.into_iter().enumerate().map(|(i, v)| (format!("y{i}"), v)).collect();
        let program = b.finish(outputs);
        let applied = program.nodes.iter().any(|n| matches!(n.kind, NodeKind::Apply(..)));
        applied.then_some(program)
    }

    /// The program of a point with its constants, and inputs.
    pub fn program(&self, point: &Point, seed: u64) -> Option<(Program, Vec<Tensor>)> {
        let whole = |t: &Type| t.dtype == DType::F32;
        let mut fill = |t: &Type| if whole(t) { filled(t, seed) } else { None };
        let program = self.build(&point.recipe, &mut fill)?;
        let inputs = match program.inputs.iter().all(|(_, t)| whole(t)) {
            true => program.inputs.iter().map(|(_, t)| filled(t, seed ^ 1)).collect(),
            false => random_inputs::inputs(&program, self.library, seed),
        };
        Some((program, inputs?))
    }
}

/// Elements between 0.25 and 1.25: no function is slow or undefined there. The table repeats: making
/// them must not take longer than timing.
fn filled(ty: &Type, seed: u64) -> Option<Tensor> {
    let shape: Vec<usize> = ty
        .shape
        .iter()
        .map(|e: &Extent| usize::try_from(e.as_const()?).ok())
        .collect::<Option<_>>()?;
    let mut rng = Random::from_state(seed);
    let table: Vec<f32> = (0..4099).map(|_| 0.25 + rng.unit() as f32).collect();
    let n = shape.iter().product();
    Some(Tensor::from_f32(shape, table.iter().copied().cycle().take(n).collect()))
}
