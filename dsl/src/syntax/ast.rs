//! The syntax tree of `.rules` texts.
//!
//! One [`Expr`] represents tensors, attributes, index expressions and conditions; the checker decides which
//! forms are allowed where. Spans are byte ranges of one source text.

pub use crate::diagnostics::span::{Ident, Span};
pub use crate::expr::{BinaryOp, UnaryOp};
use serde::{Deserialize, Serialize};

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// The plain comments before the `//!` comment, line by line without marker and one blank; empty
    /// when there is no such comment (they then belong to the first item).
    pub header: Vec<String>,
    /// The lines of the leading `//!` comment, without the marker and one following blank.
    pub doc: Vec<String>,
    /// Items in the order of the text.
    pub items: Vec<Item>,
    /// The plain comments after the last item.
    pub trailer: Vec<String>,
}

/// A documented, named item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The plain comments above and inside it, line by line without marker and one blank; the
    /// canonical form puts all of them above its `///` comment.
    pub comments: Vec<String>,
    /// The lines of its `///` comment, without the marker and one following blank.
    pub doc: Vec<String>,
    /// What other items refer to it by.
    pub name: Ident,
    /// The whole item without its comment.
    pub span: Span,
    /// What it is.
    pub kind: ItemKind,
}

/// The kinds of items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ItemKind {
    /// A primitive with a meaning in index notation.
    Op(Op),
    /// A name for a composition.
    Def(Def),
    /// An equation.
    Rule(Rule),
    /// A composition that a kernel computes.
    Fuse(Fuse),
    /// A primitive with a Rust reference.
    Extern(Extern),
    /// An ONNX operator.
    Onnx(Onnx),
    /// A place to run.
    Target(Target),
    /// How files of weights are read as models.
    Architecture(Architecture),
}

/// Parameters in parentheses: tensors, then attributes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Param {
    /// Written with `each` (only in the `given` of a rule that has an `each` side).
    pub each: bool,
    /// What the item refers to it by.
    pub name: Ident,
    /// Written with `...` in the `given` of a schema: one variable for every operand that it stands for.
    pub pack: bool,
    /// Tensor or attribute, with its type.
    pub kind: ParamKind,
    /// The value it has when a call leaves it out (attributes), after `=`.
    pub default: Option<Expr>,
    /// The whole parameter.
    pub span: Span,
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ParamKind {
    /// `x: F[..b, n]`; `x?: F[n]` may be absent (only in `onnx` items).
    Tensor {
        /// Element type and named axes.
        ty: TensorType,
        /// Written with `?`.
        optional: bool,
        /// `xs...: T[..a]` takes all remaining inputs (only in `onnx` items).
        variadic: bool,
    },
    /// `const s: ints`: an ONNX input that must be known at import, read as an attribute (only in
    /// `onnx` items); `const s?: ints` may be absent.
    ConstInput {
        /// The attribute type it is read as.
        ty: AttrType,
        /// Written with `?`.
        optional: bool,
    },
    /// `axis: int = -1`; the type may be left out when a default shows it (then `None`).
    Attr(Option<AttrType>),
}

/// `F[..b, n]`, or `F` alone for a tensor of any shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TensorType {
    /// A dtype (`f32`) or a dtype variable: a capital, optionally with digits (`F`, `T1`).
    pub dtype: Ident,
    /// The axes; `None` when no brackets are written.
    pub dims: Option<Vec<Elem>>,
    /// `>= 0` after the type: the domain of the elements.
    pub domain: Option<Domain>,
    /// Where it stands.
    pub span: Span,
}

/// A bound on a tensor's elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// `>=`, `>`, `<=` or `<`.
    pub op: BinaryOp,
    /// What each element is compared with.
    pub bound: Expr,
}

/// `ints(s) in 0..4`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttrType {
    /// `int`, `ints`, `float`, `floats`, `bool`, `string`, `dtype`, `axis`, `axes`, `perm`, `shape`.
    pub name: Ident,
    /// The name in parentheses: `ints(s)` has one entry per axis of segment `s`; `axis(n)` is the
    /// position of axis `n`; `axes(a)` are distinct positions in `a`; `perm(a)` permutes `a`.
    pub of: Option<Ident>,
    /// `in low..high`, both inclusive; either may be left out; used for sampling and checked.
    pub range: Option<(Option<Expr>, Option<Expr>)>,
    /// Where it stands.
    pub span: Span,
}

/// An element of a list, a shape or an index: `e` or `..e`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Elem {
    /// One entry.
    One(Expr),
    /// All entries of a list (for a shape: a segment of axes).
    Splice(Expr),
}

impl Elem {
    /// The entry, or the list that is spliced in.
    pub fn expr(&self) -> &Expr {
        let (Elem::One(e) | Elem::Splice(e)) = self;
        e
    }
}

/// `op name(params) -> y: F[..b] traits where… if… meaning…`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Parameters.
    pub params: Vec<Param>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// `commutative`, `associative`, `unit 0`.
    pub traits: Vec<OpTrait>,
    /// `where t = …`.
    pub wheres: Vec<Binding>,
    /// `if …, …`.
    pub conditions: Vec<Expr>,
    /// One equation per output.
    pub meanings: Vec<Meaning>,
    /// `of gguf 3`: the stored tensors that it decodes.
    pub stored: Vec<StoredType>,
}

/// `of format number`: a type of tensors in files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredType {
    /// The format of the files.
    pub format: Ident,
    /// The type's number there.
    pub number: i64,
}

/// `architecture name(options) of format "name", … steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// Options, attributes with defaults.
    pub params: Vec<Param>,
    /// The format of the files.
    pub format: Ident,
    /// What such files call it.
    pub names: Vec<String>,
    /// What is computed, in this order.
    pub steps: Vec<Steps>,
}

/// `let a = …`, or `each i in n let a = …, b = …`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// The name of the count and how often the steps are repeated.
    pub each: Option<(Ident, Expr)>,
    /// One without `each`.
    pub steps: Vec<Step>,
}

/// `names = value` or `"output" = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What is named.
    pub target: StepTarget,
    /// What it stands for.
    pub value: Expr,
}

/// What a step of an architecture names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StepTarget {
    /// Names for the steps that follow: one, or several in parentheses that take apart a tuple.
    Names(Vec<Ident>),
    /// An output of the model.
    Output(String),
}

/// `y: F[..b]` after an arrow; the name may be left out when there is one output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Absent where there is one output and nothing refers to it.
    pub name: Option<Ident>,
    /// Element type and named axes.
    pub ty: TensorType,
}

/// An algebraic property of an operator of two arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OpTrait {
    /// `f(a, b) = f(b, a)`.
    Commutative,
    /// `f(f(a, b), c) = f(a, f(b, c))`, as real functions.
    Associative,
    /// `f(a, unit) = a`.
    Unit(Expr),
}

/// `name = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// One name, or several in parentheses that take apart a tuple.
    pub names: Vec<Ident>,
    /// What the name stands for.
    pub value: Expr,
}

/// `y[..b, n] = value`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meaning {
    /// The result that it defines.
    pub output: Ident,
    /// Its index variables, each named after its axis.
    pub index: Vec<Elem>,
    /// The value at that index.
    pub value: Expr,
}

/// `def name(params) -> F[..b] where… let… = body if…`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Def {
    /// Parameters.
    pub params: Vec<Param>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// `where t = …`: extents.
    pub wheres: Vec<Binding>,
    /// `let e = …`: shared parts of the body.
    pub lets: Vec<Binding>,
    /// What the definition stands for.
    pub body: Expr,
    /// `if …, …`.
    pub conditions: Vec<Expr>,
    /// `of gguf 3`: the stored tensors that it decodes.
    pub stored: Vec<StoredType>,
}

/// `rule name lhs => rhs clauses`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Left sides; more than one when the law has several outputs.
    pub left: Vec<Side>,
    /// `<=>` rather than `=>`.
    pub both_ways: bool,
    /// Right sides, matched to the left by name (or by position when nameless).
    pub right: Vec<Side>,
    /// `given x: F[..b], p: ints`.
    pub given: Vec<Param>,
    /// `where t = …`: shared parts of the right side; read as terms.
    pub wheres: Vec<Binding>,
    /// `if …, …`: without these the equation is false.
    pub conditions: Vec<Expr>,
    /// `when …, …`: without these it is true but does not pay.
    pub hints: Vec<Expr>,
    /// `error exact | reorder | approx(abs=…, rel=…)`.
    pub error: Option<ErrorClause>,
    /// `check`, `picks`, `never`.
    pub tests: Vec<RuleTest>,
}

/// `y = expr`, `each y = expr`, `(y, z) = expr` or `expr`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Written with `each`: stands for all matches that agree in everything not marked `each`.
    pub each: bool,
    /// The names; none when the side is a bare expression.
    pub names: Vec<Ident>,
    /// The term on this side.
    pub value: Expr,
}

/// An error class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ErrorClause {
    /// Same bits.
    Exact,
    /// Same real function, differently rounded.
    Reorder,
    /// Another function within bounds.
    Approx {
        /// Absolute bound.
        abs: Option<f64>,
        /// Relative bound.
        rel: Option<f64>,
    },
}

/// An inline test of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RuleTest {
    /// `check x in -8..8`, `check n = 5`: restricts the samples.
    Check {
        /// What is restricted: an element range of a tensor, or an extent.
        name: Ident,
        /// Low and high (equal for `=`).
        low: Expr,
        /// High, inclusive.
        high: Expr,
    },
    /// `picks side at m=64, n=1`: extraction chooses this side at these extents.
    Picks {
        /// The side that must be the cheaper one.
        side: Expr,
        /// Extents.
        at: Vec<(Ident, Expr)>,
    },
    /// `never y = …, z = … "reason"`: the rule must not fire on this.
    Never {
        /// One for each output of the graph.
        sides: Vec<Side>,
        /// Why not.
        reason: String,
    },
}

/// `fuse name(params) -> F[..b] = body on cpu("gemm") when… error…`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fuse {
    /// Parameters.
    pub params: Vec<Param>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// Computed extents and attributes.
    pub wheres: Vec<Binding>,
    /// Shared parts of the body.
    pub lets: Vec<Binding>,
    /// The body; `pointwise(e)` stands for `e` under any chain of pointwise operators.
    pub body: Expr,
    /// Targets and kernel names.
    pub on: Vec<(Ident, String)>,
    /// Truth.
    pub conditions: Vec<Expr>,
    /// Taste.
    pub hints: Vec<Expr>,
    /// Error class.
    pub error: Option<ErrorClause>,
}

/// `extern name(params) -> outputs if… reference "name"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extern {
    /// Parameters.
    pub params: Vec<Param>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// `where t = …`: extents.
    pub wheres: Vec<Binding>,
    /// `if …, …`.
    pub conditions: Vec<Expr>,
    /// Name of the Rust reference.
    pub reference: String,
}

/// `onnx Name(inputs; attributes) since 13 until 17 in "domain" …`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Onnx {
    /// Inputs, then attributes (after `;`).
    pub params: Vec<Param>,
    /// `-> a, b`: names of outputs when there are several.
    pub outputs: Vec<Ident>,
    /// First opset.
    pub since: u32,
    /// Last opset, inclusive.
    pub until: Option<u32>,
    /// Operator domain; empty for the standard one.
    pub domain: String,
    /// `opaque`: a file that is written keeps such nodes as they are.
    pub opaque: bool,
    /// `if cond`: on what the operator is defined.
    pub conditions: Vec<Expr>,
    /// `let n = …`: shared parts.
    pub lets: Vec<Binding>,
    /// `= expr if cond | expr if cond`: how it reads, first applicable alternative.
    pub reads: Vec<Alternative>,
    /// `prints pattern as Name(…) given … if …`: how core terms print as this operator.
    pub prints: Vec<Print>,
}

/// One alternative of an `onnx` item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What the operator computes.
    pub value: Expr,
    /// All must hold; none for the last resort.
    pub conditions: Vec<Expr>,
}

/// How a core term prints as an ONNX operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Print {
    /// The core term.
    pub pattern: Expr,
    /// `as Name(a, b; k = v)`: inputs and attributes of the ONNX node.
    pub inputs: Vec<Expr>,
    /// Attributes of the ONNX node.
    pub attrs: Vec<(Ident, Expr)>,
    /// `-> name`: the result of the ONNX node that the term is; the first one if it is not given.
    pub result: Option<Ident>,
    /// Types of the pattern's variables.
    pub given: Vec<Param>,
    /// All must hold.
    pub conditions: Vec<Expr>,
}

/// `target name extends base on "device"`, then `key = value …` and kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// `extends base`: the target whose figures and kernels it has unless it states its own.
    pub extends: Option<Ident>,
    /// `on "name", …`: the devices that its figures describe, by words of their names.
    pub devices: Vec<String>,
    /// `key = value` entries such as `flops = 1e11`.
    pub entries: Vec<(Ident, Expr)>,
    /// `kernel "name" covers expr`: ops this target computes natively.
    pub kernels: Vec<Kernel>,
}

/// `kernel "gemm" covers matmul, conv of f32 epilogue`, or `kernel "gemm" of f32` where only `fuse` items say what it covers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name in the backend's registry.
    pub name: String,
    /// The operators it computes.
    pub covers: Vec<Ident>,
    /// `of f32, f16`: the element types that kernels of this name take; any if none is named.
    pub types: Vec<Ident>,
    /// It also applies a chain of pointwise operators to its result: of these, or of any if none is named.
    pub epilogue: Option<Vec<Ident>>,
    /// `in layout`: how its operands and its result lie in memory.
    pub layout: Option<Ident>,
    /// `cost factor`: time as a multiple of the roofline.
    pub cost: Option<Expr>,
    /// `cost factor, class = factor`: of classes of its work.
    pub class_costs: Vec<(Ident, Expr)>,
    /// `takes flops = 7e-12, launches = 2e-6`: seconds for each unit of its work.
    pub takes: Vec<(Ident, Expr)>,
}

/// An expression.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expr {
    /// What it is; operands are nested inside.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

/// The forms of expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ExprKind {
    /// `3`.
    Int(i64),
    /// `0.5`, `1e-5`.
    Float(f64),
    /// `"none"`.
    Str(String),
    /// `true`, `false`.
    Bool(bool),
    /// A variable, an axis, or one of `inf`, `nan`, `pi`.
    Name(String),
    /// `|n|`: the extent of an axis; `|s|` of a segment: the list of its extents.
    Size(String),
    /// `[a, ..b]`.
    List(Vec<Elem>),
    /// `(a, b)`.
    Tuple(Vec<Expr>),
    /// `-a`, `not a`.
    Unary(UnaryOp, Box<Expr>),
    /// `a + b` and its like.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `f(a, b, axis=1)`.
    Call {
        /// What is called.
        callee: Ident,
        /// Arguments; those with a name are attributes.
        args: Vec<Arg>,
    },
    /// `a[..h, m, k]`, `a[i - 1] else 0`: element access in meanings; reordering of axes in terms.
    Index {
        /// What is indexed.
        base: Ident,
        /// An entry for each axis; splices stand for several.
        index: Vec<Elem>,
        /// The value outside the tensor.
        otherwise: Option<Box<Expr>>,
    },
    /// `f(a)[..h, m, k]`: reordering of the axes of a term that has no name.
    Axes {
        /// Whose axes these are.
        of: Box<Expr>,
        /// An entry for each axis; splices stand for several.
        index: Vec<Elem>,
    },
    /// `sum(k, ..s) body`.
    Reduce {
        /// `sum`, `prod`, `max`, `min`, `mean`, `any`, `all`.
        monoid: Ident,
        /// Axes (`One(Name)`) and segments (`Splice(Name)`).
        axes: Vec<Elem>,
        /// What is reduced: a product-level expression.
        body: Box<Expr>,
    },
    /// `a if c else b`.
    If {
        /// Decides which of the two is meant.
        cond: Box<Expr>,
        /// The value where it holds.
        then: Box<Expr>,
        /// The value where it does not.
        otherwise: Box<Expr>,
    },
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arg {
    /// `name =` before it.
    pub name: Option<Ident>,
    /// Written with `each` (only in the right side of an `each` rule).
    pub each: bool,
    /// Written with `...` (only in a schema): one argument for every member of the pack that it mentions.
    pub pack: bool,
    /// What is passed.
    pub value: Expr,
}
