//! The checked library: every declaration with its names resolved.
//!
//! Built by [`crate::check`]; everything after the checker reads declarations only from here.

use crate::architecture::{Architecture, StoredType};
pub use crate::deferred::Deferred;
use crate::derived::Derived;
use crate::diagnostics::span::{Ident, SourceSpan, Span};
pub use crate::expr::Name;
use crate::expr::{AttrType, BinaryOp, Domain, Expr, ExprKind, Meaning};
use crate::ir::{DType, Program, Type};
use crate::onnx::Declaration;
use crate::recurrence::Recurrence;
use crate::term::{TermId, Terms};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of a callable (`op`, `def` or `extern`) in its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId(pub u32);

/// One dimension of a type pattern; equal ones are equal extents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dim {
    /// A named axis; the same name is the same extent.
    Axis(Name),
    /// A segment: any number of axes.
    Seg(Name),
    /// An extent computed from others; only in results, or a literal in parameters.
    Value(Expr),
    /// A computed list of extents; only in results.
    Splice(Expr),
}

/// The dtype of a type pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DTypePattern {
    /// `f32`.
    Fixed(DType),
    /// A capital: `F` floats, `I` integers, `N` numbers, `B` bool, `T` any; digits distinguish.
    Var(Name),
}

impl DTypePattern {
    /// True if `dtype` is in the family of the variable (`F1`, `N`, …) or is the fixed type. The small types belong to
    /// `T` alone, as `str` does: a law of floats computes without rounding between its operators, and not all have 0 and 1.
    pub fn admits(&self, dtype: DType) -> bool {
        match self {
            DTypePattern::Fixed(d) => *d == dtype,
            DTypePattern::Var(v) => match v.as_bytes().first() {
                Some(b'F') => dtype.is_float() && !dtype.is_small(),
                Some(b'I') => dtype.is_int() && !dtype.is_small(),
                Some(b'N') => (dtype.is_float() || dtype.is_int()) && !dtype.is_small(),
                Some(b'B') => dtype == DType::Bool,
                _ => true,
            },
        }
    }
}

/// The declared type of a parameter, a result or a law's variable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TypePattern {
    /// Element type.
    pub dtype: DTypePattern,
    /// Dimensions; `None` for any shape.
    pub dims: Option<Vec<Dim>>,
}

/// A tensor parameter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Input {
    /// As declared; unique within the signature.
    pub name: Name,
    /// Which element types and extents it takes.
    pub ty: TypePattern,
    /// A bound on its elements, e.g. `>= 0`.
    pub domain: Option<Domain>,
    /// Stands for all members of a family (in `each` rules only).
    pub each: bool,
}

/// An attribute parameter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttrParam {
    /// As declared; unique within the signature.
    pub name: Name,
    /// Its kind and sampling range.
    pub ty: AttrType,
    /// The value when a call leaves it out.
    pub default: Option<Expr>,
}

/// What computes a callable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CallKind {
    /// A primitive: one meaning per output, in their order.
    Op(Vec<Meaning>),
    /// A composition.
    Def(Body),
    /// A Rust reference of that name.
    Extern(String),
}

/// The body of a `def` or `fuse`: terms over the parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Body {
    /// All terms; variable `i` is input `i`.
    pub terms: Terms,
    /// One root per output.
    pub roots: Vec<TermId>,
}

/// An operator that programs apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Callable {
    /// Unique in the library.
    pub name: Name,
    /// The lines of its documentation.
    pub doc: Vec<String>,
    /// Tensor parameters.
    pub inputs: Vec<Input>,
    /// Attribute parameters.
    pub attrs: Vec<AttrParam>,
    /// Results, with their names (empty when unnamed).
    pub outputs: Vec<(Name, TypePattern)>,
    /// Extents and segments computed from others, in order.
    pub wheres: Vec<(Name, Expr)>,
    /// What must hold of a well-typed application.
    pub conditions: Vec<Expr>,
    /// What it computes.
    pub kind: CallKind,
    /// `f(a, b) = f(b, a)`.
    pub commutative: bool,
    /// `f(f(a, b), c) = f(a, f(b, c))`.
    pub associative: bool,
    /// `f(a, unit) = a`.
    pub unit: Option<f64>,
    /// What its meaning shows of its structure; `Other` for `def` and `extern`.
    pub class: OpClass,
    /// How its equations read its own results; `None` if they do not.
    pub recurrence: Option<Recurrence>,
    /// Which source text, and where in it.
    pub source: SourceSpan,
}

impl Callable {
    /// Whether numbers under it are added up or multiplied with each other: of an operator with a unit that is a sum or a
    /// product by its meaning. A unit alone does not say how numbers merge.
    pub fn arithmetic(&self) -> Option<BinaryOp> {
        self.unit?;
        let CallKind::Op(meanings) = &self.kind else { return None };
        match &meanings.first()?.value.kind {
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Mul), ..) => Some(*op),
            _ => None,
        }
    }

    /// True of a change of layout whose result has more elements than its operand, and not a few: folding constants
    /// leaves it in the program, for it costs nothing to read.
    pub fn enlarges(&self, args: &[&Type], results: &[Type]) -> bool {
        let count = |t: &Type| t.known_shape().map_or(0, |s| s.iter().product::<usize>());
        match (args, results) {
            ([arg], [result, ..]) => {
                self.class == OpClass::View && count(result) > count(arg).max(64)
            }
            _ => false,
        }
    }
}

/// What an operator's meaning shows of its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum OpClass {
    /// Each result element is a function of the arguments' elements at the same index.
    Pointwise,
    /// Each result element is one element of one argument, at an index that no element decides.
    View,
    /// Elements are moved, chosen or filled in, never computed with.
    Movement,
    /// A reduction (`sum`, `max`, …) of one argument, element by element.
    Reduction,
    /// A sum of products.
    Contraction,
    /// Anything else.
    Other,
}

/// One side of a law.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LawSide {
    /// The output's name; empty when there is one.
    pub name: Name,
    /// The family marker.
    pub each: bool,
    /// Root of the term.
    pub root: TermId,
}

/// Where a law comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LawOrigin {
    /// A `rule`, left to right.
    Rule,
    /// A two-way `rule`, right to left; its name ends in `.rev`.
    Reverse,
    /// A `def` or `fuse`: body to name.
    Fold,
    /// A `def`: name to body.
    Unfold,
}

/// The error class of a law.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum ErrorClass {
    /// Same bits.
    Exact,
    /// Same real function, differently rounded.
    Reorder,
    /// Another function, at most `abs + rel * |value|` away.
    Approx {
        /// Absolute bound.
        abs: f64,
        /// Relative bound.
        rel: f64,
    },
}

/// As a law declares it; bounds of zero are left out.
impl std::fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            ErrorClass::Exact => f.write_str("exact"),
            ErrorClass::Reorder => f.write_str("reorder"),
            ErrorClass::Approx { abs: 0.0, rel: 0.0 } => f.write_str("approx"),
            ErrorClass::Approx { abs, rel: 0.0 } => write!(f, "approx(abs={abs})"),
            ErrorClass::Approx { abs: 0.0, rel } => write!(f, "approx(rel={rel})"),
            ErrorClass::Approx { abs, rel } => write!(f, "approx(abs={abs}, rel={rel})"),
        }
    }
}

/// A directed, possibly conditional equation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Law {
    /// Unique in the library.
    pub name: Name,
    /// The lines of its documentation.
    pub doc: Vec<String>,
    /// Where it comes from.
    pub origin: LawOrigin,
    /// Tensor variables.
    pub vars: Vec<Input>,
    /// Attribute variables.
    pub attrs: Vec<AttrParam>,
    /// The terms of both sides, over `vars`.
    pub terms: Terms,
    /// What is matched: one side per output.
    pub left: Vec<LawSide>,
    /// What it equals: as many sides, in the same order.
    pub right: Vec<LawSide>,
    /// Without these the equation is false.
    pub conditions: Vec<Expr>,
    /// Without these it does not pay.
    pub hints: Vec<Expr>,
    /// Error class.
    pub error: ErrorClass,
    /// Inline tests.
    pub tests: Vec<LawTest>,
    /// The schema that it is an instance of.
    pub schema: Option<Schema>,
    /// Which source text, and where in it.
    pub source: SourceSpan,
}

impl Law {
    /// True if the name is that of the law, or of the schema that it is an instance of.
    pub fn answers_to(&self, name: &str) -> bool {
        *self.name == *name || self.schema.as_ref().is_some_and(|s| *s.name == *name)
    }

    /// The name of what declares it: a rule, a schema or a definition.
    pub fn declared_name(&self) -> &str {
        match &self.schema {
            Some(s) => &s.name,
            None => self.name.strip_suffix(".rev").unwrap_or(&self.name),
        }
    }
}

/// The schema of a law.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schema {
    /// As the rule in the text is called; each of its laws adds the operators to it.
    pub name: Name,
    /// The operators that the law speaks of in the places of the schema's variables.
    pub operators: Vec<CallId>,
    /// It asks nothing of its operators but that they be pointwise, so that whatever shows one of its laws shows all those of
    /// operators with the same parameters.
    pub parametric: bool,
}

/// An inline test of a law.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LawTest {
    /// Samples stay within bounds: elements of a variable, or an extent.
    Check {
        /// What is bounded.
        name: Name,
        /// Lowest value.
        low: Expr,
        /// Highest value, inclusive.
        high: Expr,
    },
    /// Of the law's sides this one costs least at these extents.
    Picks {
        /// The side, a term of the law.
        side: TermId,
        /// Extents by axis.
        at: Vec<(Name, Expr)>,
        /// Where it is written.
        span: Span,
    },
    /// The law must not fire on this graph.
    Never {
        /// Explored with all laws; the one under test must not have fired.
        graph: TestGraph,
        /// Why not.
        reason: String,
        /// Where it is written.
        span: Span,
    },
}

/// A graph that only a test speaks of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestGraph {
    /// Its tensor variables.
    pub vars: Vec<Input>,
    /// Over `vars`.
    pub terms: Terms,
    /// The values that the graph yields.
    pub roots: Vec<TermId>,
}

/// How an ONNX operator reads and prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OnnxItem {
    /// The ONNX operator's name.
    pub name: Name,
    /// The declaration.
    pub decl: Declaration,
    /// Which source text, and where in it.
    pub source: SourceSpan,
}

/// A fused composition and the kernels that offer it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FuseItem {
    /// Unique among `fuse` items.
    pub name: Name,
    /// Documentation.
    pub doc: Vec<String>,
    /// The call whose body it is.
    pub call: CallId,
    /// What its kernels compute: the call itself, or the one operator that the body applies under
    /// `pointwise`.
    pub covers: CallId,
    /// Its kernels go on with any pointwise operators.
    pub epilogue: bool,
    /// Its kernels compute pointwise operators on what they read.
    pub prologue: bool,
    /// Targets and kernel names.
    pub on: Vec<(Ident, String)>,
    /// Which source text, and where in it.
    pub source: SourceSpan,
}

/// A place to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetItem {
    /// Unique among targets; `--target` takes it.
    pub name: Name,
    /// Documentation.
    pub doc: Vec<String>,
    /// The target whose figures and kernels it has unless it states its own.
    pub extends: Option<Ident>,
    /// The devices that its figures describe, by words of their names.
    pub devices: Vec<String>,
    /// Which source text.
    pub source: u32,
    /// `flops`, `bytes`, `launch`, … as written.
    pub figures: BTreeMap<String, f64>,
    /// Native kernels.
    pub kernels: Vec<TargetKernel>,
    /// The kernel that runs pointwise operators of one shape in one loop, if there is one.
    pub pointwise: Option<String>,
    /// The element types that kernels of a name take; those of other names take any.
    pub types: BTreeMap<String, KernelTypes>,
}

/// The element types that the kernels of one name take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KernelTypes {
    /// As written.
    pub dtypes: Vec<DType>,
    /// Where they are stated.
    pub span: Span,
}

/// A native kernel of a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TargetKernel {
    /// Name in the backend's registry.
    pub name: String,
    /// The operators it computes.
    pub covers: Vec<CallId>,
    /// The pointwise operators that it also applies to its result.
    pub epilogue: Epilogue,
    /// It also applies pointwise operators to what it reads.
    pub prologue: bool,
    /// How images lie that it reads and writes.
    pub layout: Layout,
    /// Time as a multiple of the roofline.
    pub factor: f64,
    /// The same of work of these classes, of which the first that holds counts; see [`crate::check::CLASSES`].
    pub class_factors: Vec<(String, f64)>,
    /// Seconds for each unit of its work, in place of the roofline; see [`crate::check::WORK`].
    pub takes: Vec<(String, f64)>,
}

/// The pointwise operators that a kernel applies to its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Epilogue {
    /// None.
    #[default]
    None,
    /// All that there are.
    Any,
    /// These.
    Of(Vec<CallId>),
}

/// How a kernel takes its operands. Where a runtime has a layout of its own for images, values of four axes, such as blocks of channels, a kernel
/// may take and yield that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Row by row, as everything else.
    #[default]
    Plain,
    /// In the runtime's own layout.
    Blocked,
    /// In its own if all operands lie so, constants aside.
    Same,
    /// Row by row: a view in another order is copied first.
    Dense,
}

/// A source text of the library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// File name for messages.
    pub name: String,
    /// The whole file; spans are byte offsets into it.
    pub text: Arc<str>,
}

/// Every declaration of a set of `.rules` texts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Library {
    /// The texts, in reading order.
    pub sources: Vec<Source>,
    /// Operators.
    pub calls: Vec<Callable>,
    /// Laws, those of `def`s included.
    pub laws: Deferred<Law>,
    /// Fused compositions.
    pub fuses: Deferred<FuseItem>,
    /// ONNX operators.
    pub onnx: Deferred<OnnxItem>,
    /// Targets.
    pub targets: Vec<TargetItem>,
    /// How files of weights are read as models.
    pub architectures: Vec<Architecture>,
    /// What decodes the tensors of such files.
    pub stored: Vec<StoredType>,
    pub(crate) by_name: BTreeMap<Name, CallId>,
    /// Its laws and items as patterns.
    #[serde(skip)]
    pub(crate) patterns: Derived,
}

impl Library {
    /// The library as bytes, for the same build of this crate to read: there is no version, and nothing is compatible.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn to_bytes(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_stdvec(self)
    }

    /// What [`Library::to_bytes`] wrote. Whoever gives the bytes answers for them: nothing is checked again.
    ///
    /// # Errors
    /// The bytes are no library.
    pub fn from_bytes(bytes: &[u8]) -> Result<Library, postcard::Error> {
        postcard::from_bytes(bytes)
    }

    /// The operator of an id.
    pub fn call(&self, id: CallId) -> &Callable {
        &self.calls[id.0 as usize]
    }

    /// The operator of a name.
    pub fn find(&self, name: &str) -> Option<CallId> {
        self.by_name.get(name).copied()
    }

    /// True of a definition that an architecture consists of: one of a text that declares an architecture.
    pub fn is_part(&self, id: CallId) -> bool {
        let call = self.call(id);
        let of_text = self.architectures.iter().any(|a| a.source.file == call.source.file);
        of_text && matches!(call.kind, CallKind::Def(_))
    }

    /// The target of a name.
    pub fn target(&self, name: &str) -> Option<&TargetItem> {
        self.targets.iter().find(|t| &*t.name == name)
    }

    /// True if a target is another one, or extends it, perhaps by way of others.
    pub fn is_kind_of(&self, target: &str, base: &str) -> bool {
        let up = |t: &&TargetItem| self.target(&t.extends.as_ref()?.text);
        let lineage = std::iter::successors(self.target(target), up);
        // As many as there are: a target may extend itself.
        target == base || lineage.take(self.targets.len()).any(|t| &*t.name == base)
    }

    /// The target that describes a device of this name: of those that are of a kind, the one with the longest name of a
    /// device that occurs in it, word by word.
    pub fn target_of_device(&self, base: &str, device: &str) -> Option<&TargetItem> {
        let words = |s: &str| -> Vec<String> {
            let parts = s.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
            parts.map(str::to_lowercase).collect()
        };
        let device = words(device);
        let length = |t: &TargetItem| {
            let named = t.devices.iter().map(|d| words(d)).filter(|d| !d.is_empty());
            named.filter(|d| device.windows(d.len()).any(|w| w == d)).map(|d| d.len()).max()
        };
        let known = self.targets.iter().filter(|t| self.is_kind_of(&t.name, base));
        let known = known.filter_map(|t| Some((length(t)?, t)));
        // Of equal ones the first that is declared.
        known.rev().max_by_key(|(length, _)| *length).map(|(_, t)| t)
    }

    /// The name of an operator application in a program, for messages.
    pub fn node_name(&self, program: &Program, node: crate::ir::NodeId) -> String {
        use crate::ir::NodeKind;
        match &program.node(node).kind {
            NodeKind::Input(i) => program.inputs[*i as usize].0.clone(),
            NodeKind::Const(c) => format!("const{}", c.0),
            NodeKind::Apply(call, _) => self.call(*call).name.to_string(),
        }
    }

    /// True if a node of a program applies a view.
    pub fn is_view(&self, program: &Program, node: crate::ir::NodeId) -> bool {
        use crate::ir::NodeKind;
        match program.node(node).kind {
            NodeKind::Apply(call, _) => self.call(call).class == OpClass::View,
            NodeKind::Input(_) | NodeKind::Const(_) => false,
        }
    }
}
