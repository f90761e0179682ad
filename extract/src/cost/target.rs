//! Operators on a target: which kernel computes each, how kernels can be shared, and what they cost.
//!
//! The same costs of kernels are used for e-graphs and for plans. Knows no operator by name, and decides what is cheap, never what is
//! equal.

use super::size::Size;
use super::{CostModel, Work};
use crate::cost::work::Works;
use crate::kernels::candidates::{OperatorNode, Role, VIEWS};
use crate::kernels::layout::Layout;
use mlc_dsl::eval::functions::moved_extents;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind};
use mlc_dsl::ir::{Atom, Attr, DType, Extent, Monomial, Type};
use mlc_dsl::library::{
    self, CallId, CallKind, Callable, Epilogue, Library, OpClass, TargetItem, TargetKernel,
};
use mlc_dsl::pointwise::is_pointwise;
use std::collections::{HashMap, HashSet};

/// The kernel name of views: layouts, not work.
pub const VIEW: &str = "view";
/// The kernel name of loops over pointwise operators, where the target's text has one.
pub const POINTWISE: &str = "pointwise";
/// The kernel name of operators that the target leaves to the reference interpreter.
pub const REFERENCE: &str = "reference";

/// The kernel name of operators whose code the target makes of their meanings.
pub const MEANING: &str = "meaning";

/// The kernel number of operators that the reference interpreter computes where the target has one.
const REST: u32 = 1;
/// The kernel number of operators that are a kernel of their own, and of definitions that run as their bodies.
const OWN: u32 = 2;
/// The kernel number of operators that have a meaning and no other kernel.
const MEANT: u32 = 3;

/// The part of a launch that decides between operators of equal cost.
const TIE: f64 = 1e-3;

/// Random perturbation of prices, for diversity: extraction under them yields another program of the e-graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Which factors.
    pub seed: u64,
    /// The most that a factor's logarithm may be.
    pub spread: f64,
}

impl Jitter {
    /// The factor of an operator.
    fn factor(self, operator: &str) -> f64 {
        let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3);
        let mixed = operator.bytes().fold(self.seed ^ 0xcbf2_9ce4_8422_2325, hash);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let unit = (mixed >> 11) as f64 / (1u64 << 53) as f64;
        (self.spread * (2.0 * unit - 1.0)).exp()
    }
}

/// The objective that prices stand for: time, or a surrogate that leads extraction to other programs of the e-graph.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Surrogate {
    /// Seconds.
    #[default]
    Time,
    /// Bytes of the constants that the result stores; they outweigh time.
    StoredBytes,
    /// Bytes that kernels write; they outweigh time.
    WrittenBytes,
    /// Squares of the bytes that kernels write: large results are avoided first.
    SquaredBytes,
    /// Time and bytes written, about as much of each.
    TimeAndTraffic,
    /// Time, where every operator counts as a launch of its own: few operators.
    OperatorCount,
}

/// Axes of an image, which a runtime may have a layout of its own for.
const IMAGE: usize = 4;

/// The bit of epilogues that take in any pointwise operator.
const ANY: u64 = 1;

/// The layout that a target's text says of a kernel.
fn layout(stated: library::Layout) -> Layout {
    match stated {
        library::Layout::Plain => Layout::Plain,
        library::Layout::Blocked => Layout::Blocked,
        library::Layout::Same => Layout::Same,
        library::Layout::Dense => Layout::Dense,
    }
}

/// The bit of a kernel's epilogue: one for all that take in any operator, one for each of the others.
fn bit(kernels: &[TargetKernel], at: usize) -> u64 {
    let named = |k: &&TargetKernel| matches!(k.epilogue, Epilogue::Of(_));
    match &kernels[at].epilogue {
        Epilogue::None => 0,
        Epilogue::Any => ANY,
        // No target's text has more of them than there are bits.
        Epilogue::Of(_) => ANY << (1 + kernels[..at].iter().filter(named).count()),
    }
}

/// Seconds that a stored byte counts for: more than a program takes for each.
const STORED_BYTE: f64 = 1e-3;

/// How a target computes one application: its kernel, its role in it, and its work.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// How it shares a kernel with others.
    pub role: Role,
    /// The kernel that computes it.
    pub kernel: u32,
    /// Memory layout of the images that the kernel reads and writes.
    pub layout: Layout,
    /// Its work, except bytes and the launch.
    pub work: Work,
}

impl Site {
    /// The node that computes a class from others in this way.
    pub fn entry(self, class: u32, args: Vec<u32>) -> OperatorNode {
        let Site { role, kernel, layout, work } = self;
        OperatorNode { class, args, role, kernel, layout, work, fixed: None }
    }
}

/// Kernels and prices of a target.
pub struct TargetPrices<'a> {
    library: &'a Library,
    model: CostModel,
    jitter: Option<Jitter>,
    surrogate: Surrogate,
    /// What fraction of its traffic a change of layout keeps.
    view: f64,
    /// Names of kernels, views and the rest first.
    kernels: Vec<String>,
    /// Seconds for each byte whose layout changes between kernels.
    relayout: f64,
    /// The kernel of an operator, and how it shares it.
    of: HashMap<CallId, (u32, Role, Layout)>,
    /// Some kernel takes in any pointwise operator.
    takes_any: bool,
    /// The epilogues that take in an operator, a bit for each; the first takes in all.
    follows: HashMap<CallId, u64>,
    /// The kernel of fused pointwise operators.
    pointwise: Option<u32>,
    /// The element types that each kernel takes; `None` for any.
    types: Vec<Option<Vec<DType>>>,
    /// Operators that may be chosen; `None` for all primitives and what the target's kernels cover.
    allowed: Option<HashSet<CallId>>,
    works: Works<'a>,
    by_element: Vec<bool>,
}

impl<'a> TargetPrices<'a> {
    /// Prices by a target's text. `allowed` are the operators that a result may have.
    pub fn new(
        library: &'a Library,
        target: &TargetItem,
        allowed: Option<HashSet<CallId>>,
    ) -> TargetPrices<'a> {
        let rest = if target.figures.contains_key("interpreter") { REFERENCE } else { "" };
        let meant = if target.figures.contains_key("meaning") { MEANING } else { rest };
        let mut kernels = [VIEW, rest, "", meant].map(str::to_string).to_vec();
        let (mut of, mut follows) = (HashMap::new(), HashMap::new());
        for (i, k) in target.kernels.iter().enumerate() {
            let epilogue = bit(&target.kernels, i);
            if let Epilogue::Of(operators) = &k.epilogue {
                operators.iter().for_each(|o| *follows.entry(*o).or_default() |= epilogue);
            }
            let role = match (epilogue, k.prologue) {
                (0, false) => Role::Alone,
                (epilogue, prologue) => Role::Anchor { epilogue, prologue },
            };
            of.extend(
                k.covers.iter().map(|c| (*c, (kernels.len() as u32, role, layout(k.layout)))),
            );
            kernels.push(k.name.clone());
        }
        let pointwise = target.pointwise.as_ref().map(|name| {
            kernels.push(name.clone());
            kernels.len() as u32 - 1
        });
        let types = kernels.iter().map(|k| Some(target.types.get(k)?.dtypes.clone())).collect();
        TargetPrices {
            library,
            model: CostModel::of(target),
            jitter: None,
            surrogate: Surrogate::Time,
            view: target.figures.get("view").copied().unwrap_or(0.1),
            relayout: target.figures.get("relayout").copied().unwrap_or(0.0),
            takes_any: target.kernels.iter().any(|k| k.epilogue == Epilogue::Any),
            kernels,
            of,
            follows,
            pointwise,
            types,
            allowed,
            works: Works::new(library),
            by_element: library.calls.iter().map(|c| is_pointwise(library, c)).collect(),
        }
    }

    /// The same with another cost model.
    #[must_use]
    pub fn with_model(self, model: CostModel) -> TargetPrices<'a> {
        TargetPrices { model, ..self }
    }

    /// The same with every operator's price perturbed by a factor of its own.
    #[must_use]
    pub fn jittered(self, jitter: Option<Jitter>) -> TargetPrices<'a> {
        TargetPrices { jitter, ..self }
    }

    /// The same at another size.
    #[must_use]
    pub fn at(self, size: Size) -> TargetPrices<'a> {
        TargetPrices { works: Works::at(self.library, size), ..self }
    }

    /// The same for a surrogate objective.
    #[must_use]
    pub fn with_surrogate(self, surrogate: Surrogate) -> TargetPrices<'a> {
        TargetPrices { surrogate, ..self }
    }

    /// Seconds charged for each byte of a constant that the result stores; `None` if storage is free.
    pub fn stored_byte(&self) -> Option<f64> {
        (self.surrogate == Surrogate::StoredBytes).then_some(STORED_BYTE)
    }

    /// True if the prices only correlate with the objective, so that their exact optimum is worth no proof.
    pub fn is_surrogate(&self) -> bool {
        matches!(
            self.surrogate,
            Surrogate::WrittenBytes | Surrogate::SquaredBytes | Surrogate::TimeAndTraffic
        )
    }

    /// Seconds for each byte whose layout changes between kernels.
    pub fn relayout(&self) -> f64 {
        self.relayout
    }

    /// Seconds of copying so many bytes into another order for a kernel.
    pub fn copied(&self, bytes: f64, dtype: DType) -> f64 {
        let launch = Work { launches: 1.0, ..Work::default() };
        self.model.roofline(dtype, &launch) + self.relayout * bytes
    }

    /// What kernels cost.
    pub fn model(&self) -> &CostModel {
        &self.model
    }

    /// What operators do.
    pub fn works(&self) -> &Works<'a> {
        &self.works
    }

    /// The name of a kernel; empty for an operator that is a kernel of its own.
    pub fn kernel_name(&self, kernel: u32) -> &str {
        &self.kernels[kernel as usize]
    }

    /// What an application is to kernels; `None` if the target does not have the operator.
    pub fn site(
        &self,
        id: CallId,
        attrs: &[Attr],
        args: &[&Type],
        results: &[Type],
    ) -> Option<Site> {
        let call = self.library.call(id);
        if !self.permits(id) {
            return None;
        }
        let mut work = self.works.of(id, attrs, args, results);
        work.launches = TIE * preference(self.works.size(), call, results);
        if self.surrogate == Surrogate::OperatorCount && call.class != OpClass::View {
            work.launches += 1.0;
        }
        if self.allowed.is_some() {
            work.launches += shape_nodes(call, attrs, args);
        }
        if let Some(jitter) = self.jitter {
            let factor = jitter.factor(&call.name);
            work = work.scaled(factor);
            work.launches += (factor - 1.0).max(0.0);
        }
        let by_element = self.by_element[id.0 as usize];
        let any = if by_element && self.takes_any { ANY } else { 0 };
        let follows = self.follows.get(&id).copied().unwrap_or(0) | any;
        let alone = match follows {
            0 => Role::Alone,
            _ => Role::Pointwise { loops: false, follows },
        };
        let plain = |role, kernel| (role, kernel, Layout::Plain);
        let native = self.of.get(&id);
        let (role, kernel, layout) = match native.filter(|k| self.takes(k.0, results)) {
            Some(&(kernel, Role::Alone, layout)) => (alone, kernel, layout),
            Some(&(kernel, role, layout)) => (role, kernel, layout),
            None if by_element => match self.pointwise {
                Some(kernel) if !self.takes(kernel, results) => {
                    plain(Role::Alone, self.rest(call, results))
                }
                Some(kernel) => {
                    (Role::Pointwise { loops: true, follows: follows | ANY }, kernel, Layout::Same)
                }
                None => plain(alone, OWN),
            },
            None if call.class == OpClass::View => plain(Role::Alone, VIEWS),
            None if native.is_some() && is_defined(call) => plain(Role::Alone, REST),
            None => plain(Role::Alone, self.rest(call, results)),
        };
        let is_image = results.iter().all(|t| t.rank() == IMAGE);
        let layout = if is_image || layout == Layout::Dense { layout } else { Layout::Plain };
        Some(Site { role, kernel, layout, work })
    }

    /// What an application is to kernels, whether or not the target has the operator.
    pub fn any_site(&self, id: CallId, attrs: &[Attr], args: &[&Type], results: &[Type]) -> Site {
        self.site(id, attrs, args, results).unwrap_or_else(|| {
            let work = self.works.of(id, attrs, args, results);
            let kernel = self.rest(self.library.call(id), results);
            Site { role: Role::Alone, kernel, layout: Layout::Plain, work }
        })
    }

    /// True for a kernel that takes the element type of an application: that of its first result.
    fn takes(&self, kernel: u32, results: &[Type]) -> bool {
        let own = |types: &Vec<DType>| results.first().is_none_or(|t| types.contains(&t.dtype));
        self.types[kernel as usize].as_ref().is_none_or(own)
    }

    /// Who computes what no kernel covers. Texts have no code.
    fn rest(&self, call: &Callable, results: &[Type]) -> u32 {
        let has_text = results.iter().any(|t| t.dtype == DType::Str);
        match &call.kind {
            CallKind::Def(_) => OWN,
            CallKind::Op(_) if !has_text => MEANT,
            CallKind::Op(_) | CallKind::Extern(_) => REST,
        }
    }

    /// True for operators that the reference interpreter may have to compute.
    ///
    /// Some that a target's text prices by themselves are among them: the name says who computes them.
    pub fn is_rest(&self, kernel: u32) -> bool {
        [REST, OWN, MEANT].contains(&kernel)
            || [REFERENCE, MEANING].contains(&self.kernel_name(kernel))
    }

    /// True for the loop over pointwise operators.
    pub fn is_loop(&self, kernel: u32) -> bool {
        self.pointwise == Some(kernel)
    }

    /// True for views.
    pub fn is_view(&self, kernel: u32) -> bool {
        kernel == VIEWS
    }

    /// Seconds of a kernel whose result has this element type.
    pub fn seconds(&self, kernel: u32, dtype: DType, work: &Work) -> f64 {
        let relaid = self.relayout * work.relaid;
        if kernel == VIEWS {
            let moved = Work {
                read: work.read * self.view,
                written: work.written * self.view,
                launches: work.launches * self.view,
                ..Work::default()
            };
            return self.model.roofline(dtype, &moved) + relaid;
        }
        let weight = match self.surrogate {
            Surrogate::Time | Surrogate::StoredBytes | Surrogate::OperatorCount => 0.0,
            Surrogate::WrittenBytes => 1e-6 * work.written,
            Surrogate::SquaredBytes => 1e-12 * work.written * work.written,
            Surrogate::TimeAndTraffic => 1e-9 * work.written,
        };
        let seconds = self.model.seconds(self.kernel_name(kernel), dtype, work);
        seconds + relaid + weight
    }

    /// Seconds of one application in a kernel of its own; `None` if the target does not have the operator.
    pub fn alone(
        &self,
        id: CallId,
        attrs: &[Attr],
        args: &[&Type],
        results: &[Type],
    ) -> Option<f64> {
        let Site { kernel, mut work, .. } = self.site(id, attrs, args, results)?;
        work.read = args.iter().map(|t| self.works.size().bytes(t)).sum();
        work.written = results.iter().map(|t| self.works.size().bytes(t)).sum();
        work.launches += 1.0;
        Some(self.seconds(kernel, results.first().map_or(DType::F32, |t| t.dtype), &work))
    }

    /// True if a program for the target may have the operator.
    pub fn permits(&self, id: CallId) -> bool {
        let call = self.library.call(id);
        match (&self.allowed, &call.kind) {
            (Some(set), _) => set.contains(&id),
            (None, CallKind::Op(_) | CallKind::Extern(_)) => true,
            (None, CallKind::Def(_)) => self.of.contains_key(&id) || self.by_element[id.0 as usize],
        }
    }
}

/// Nodes of a graph that compute the shape which a view is given: where more than one open extent moved, each is
/// computed, and they are put together.
fn shape_nodes(call: &Callable, attrs: &[Attr], args: &[&Type]) -> f64 {
    let (OpClass::View, [Attr::Ints(to)], [x]) = (call.class, attrs, args) else { return 0.0 };
    match moved_extents(&x.shape, to).as_slice() {
        [] | [_] => 0.0,
        all => all.iter().map(|e| extent_nodes(e)).sum::<f64>() + 1.0,
    }
}

/// Nodes that compute an extent from those of axes, each of which one node reads.
fn extent_nodes(e: &Extent) -> f64 {
    let of_atom = |(atom, power): &(Atom, u32)| {
        let own = match atom {
            Atom::Sym(_) => 1.0,
            // A remainder, a difference, and an exact quotient.
            Atom::Div(a, b) => extent_nodes(a) + extent_nodes(b) + 3.0,
            Atom::Mod(a, b) => extent_nodes(a) + extent_nodes(b) + 1.0,
            Atom::Positive(a) => extent_nodes(a) + 1.0,
            Atom::Common(all) => all.iter().map(extent_nodes).sum::<f64>() + 3.0,
        };
        own + f64::from(*power) - 1.0
    };
    let terms = e.terms();
    let of_term = |(monomial, factor): &(Monomial, i64)| {
        let factors = monomial.len() + usize::from(*factor != 1);
        monomial.iter().map(of_atom).sum::<f64>() + factors.saturating_sub(1) as f64
    };
    terms.iter().map(of_term).sum::<f64>() + terms.len().saturating_sub(1) as f64
}

/// True of an operator that has a body.
fn is_defined(call: &Callable) -> bool {
    matches!(call.kind, CallKind::Def(_))
}

/// Tie-breaker between operators of equal cost: axes that its loops run over, operands, and arithmetic
/// that is slower than sums and products, the more the larger the result.
fn preference(at: &Size, c: &Callable, results: &[Type]) -> f64 {
    let axes: usize = results.iter().map(|t| t.rank()).sum();
    let shown = axes as f64 + 0.01 * c.inputs.len() as f64;
    let CallKind::Op(meanings) = &c.kind else { return shown };
    let often = |t: &Type| (1.0 + at.elements(t)).ln() / 5.0;
    let each = meanings.iter().zip(results).map(|(m, t)| slowness(&m.value) * often(t));
    shown + 0.1 * each.sum::<f64>()
}

/// Scalar operators of an expression, slow ones counted several times.
fn slowness(e: &Expr) -> f64 {
    match &e.kind {
        ExprKind::Unary(_, a) => 0.5 + slowness(a),
        ExprKind::Binary(op, a, b) => {
            let own = match op {
                BinaryOp::Add | BinaryOp::Mul => 1.0,
                BinaryOp::Sub => 1.5,
                BinaryOp::Div => 4.0,
                // A logarithm and an exponential.
                BinaryOp::Pow => 8.0,
                _ => 1.0,
            };
            own + slowness(a) + slowness(b)
        }
        ExprKind::Call(_, args) => 2.0 + args.iter().map(slowness).sum::<f64>(),
        ExprKind::Reduce(r) => slowness(&r.body),
        ExprKind::If { cond, then, otherwise } => {
            slowness(cond) + slowness(then) + slowness(otherwise)
        }
        _ => 0.0,
    }
}
