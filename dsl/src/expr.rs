//! Resolved expressions: attributes, extents, conditions and elements.
//!
//! The checker builds them from the syntax tree; everything after it reads these. Functions, reductions,
//! predicates and element types are enums, tensors in meanings are input numbers, indices are numbers of
//! index variables. A form that is not allowed in a place evaluates to nothing there.

use crate::diagnostics::span::Span;
use crate::eval::function::Function;
use crate::ir::{Attr, DType};
use crate::onnx::{Apply, NodeQuery};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A name: of an axis, a segment, an attribute, a variable.
pub type Name = Arc<str>;

/// An expression; `==` ignores where it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expr {
    /// What it is; operands are nested inside.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let Expr { kind, span: _ } = self;
        *kind == other.kind
    }
}

impl Eq for Expr {}

impl std::hash::Hash for Expr {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        std::mem::discriminant(&self.kind).hash(h);
        match &self.kind {
            ExprKind::Int(v) => v.hash(h),
            // Zeros of both signs are equal.
            ExprKind::Float(v) => (v + 0.0).to_bits().hash(h),
            ExprKind::Str(s) => s.hash(h),
            ExprKind::Name(n) | ExprKind::Size(n) | ExprKind::Type(_, n) => n.hash(h),
            ExprKind::Entry(n, _) | ExprKind::DTypeVar(n) => n.hash(h),
            ExprKind::Call(f, _) => f.hash(h),
            ExprKind::Binary(op, ..) => op.hash(h),
            _ => {}
        }
        self.parts().into_iter().for_each(|p| p.hash(h));
    }
}

/// The forms of expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ExprKind {
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A word.
    Str(String),
    /// A truth value.
    Bool(bool),
    /// An element type.
    DType(DType),
    /// An attribute, or an extent that a `where` names.
    Name(Name),
    /// The extent of an axis, or the extents of a segment.
    Size(Name),
    /// What the type of a tensor variable says; of a list it is the function of that name.
    Type(TypePart, Name),
    /// A list.
    List(Vec<Elem>),
    /// An entry of the list of that name.
    Entry(Name, Box<Expr>),
    /// `-a`, `not a`.
    Unary(UnaryOp, Box<Expr>),
    /// `a + b` and its like.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A function of attributes or, in a meaning, of elements.
    Call(Function, Vec<Expr>),
    /// `a if c else b`.
    If {
        /// A truth value; decides which of the two is evaluated.
        cond: Box<Expr>,
        /// The value where it holds.
        then: Box<Expr>,
        /// The value where it does not.
        otherwise: Box<Expr>,
    },
    /// What a clause of a law asks of a tensor.
    Test(Predicate, Vec<Expr>),
    /// A word among the hints of a law.
    Mark(Mark),
    /// In a meaning: the index variable of that number; of a segment, the list of its indices.
    Index(usize),
    /// In a meaning: the element type that a variable of the signature stands for.
    DTypeVar(Name),
    /// In a meaning: the lowest value of the type.
    Lowest,
    /// In a meaning: an element of an input.
    Read(Read),
    /// In a meaning: a reduction.
    Reduce(Reduce),
    /// In an `onnx` item: what is asked about the node.
    Ask(NodeQuery, Vec<Expr>),
    /// In an `onnx` item: a call of an operator or a function.
    Apply(Apply),
    /// In an `onnx` item: several values.
    Tuple(Vec<Expr>),
}

/// An element of an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    /// Position among the operator's tensor parameters, which its results follow in a recurrence.
    pub input: usize,
    /// An entry for each axis; splices stand for several.
    pub index: Vec<Elem>,
    /// The value outside the tensor.
    pub otherwise: Option<Box<Expr>>,
}

/// A reduction over axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// What joins the terms.
    pub monoid: Monoid,
    /// What it runs over.
    pub over: Vec<IndexVar>,
    /// A term.
    pub body: Box<Expr>,
}

/// An index variable of a meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexVar {
    /// Its number in the meaning.
    pub id: usize,
    /// Its name; in a reduction that of the axis or segment, too.
    pub name: Name,
    /// It runs over all axes of a segment.
    pub segment: bool,
}

/// What an operator's output is, element by element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meaning {
    /// The index variables of the output, in order.
    pub index: Vec<IndexVar>,
    /// The value at that index.
    pub value: Expr,
    /// How many index variables there are, those of reductions included.
    pub variables: usize,
}

/// An element of a list or an index: `e` or `..e`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Elem {
    /// One entry.
    One(Expr),
    /// All entries of a list.
    Splice(Expr),
}

impl Elem {
    /// The entry, or the list that is spliced in.
    pub fn expr(&self) -> &Expr {
        let (Elem::One(e) | Elem::Splice(e)) = self;
        e
    }

    /// The element with another expression.
    pub fn map(&self, f: &mut dyn FnMut(&Expr) -> Expr) -> Elem {
        match self {
            Elem::One(e) => Elem::One(f(e)),
            Elem::Splice(e) => Elem::Splice(f(e)),
        }
    }
}

/// What the type of a tensor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TypePart {
    /// The number of axes.
    Rank,
    /// The list of extents.
    Shape,
    /// What its elements are.
    DType,
}

impl TypePart {
    /// The one that a function yields.
    pub fn of(f: Function) -> Option<TypePart> {
        match f {
            Function::Rank => Some(TypePart::Rank),
            Function::Shape => Some(TypePart::Shape),
            Function::Dtype => Some(TypePart::DType),
            _ => None,
        }
    }

    /// The function that yields it.
    pub fn function(self) -> Function {
        match self {
            TypePart::Rank => Function::Rank,
            TypePart::Shape => Function::Shape,
            TypePart::DType => Function::Dtype,
        }
    }
}

/// Prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// `-a`.
    Neg,
    /// `not a`.
    Not,
}

/// Infix operators, loosest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// `a or b`.
    Or,
    /// `a and b`.
    And,
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`.
    Div,
    /// `a % b`.
    Mod,
    /// `a @ b`.
    MatMul,
    /// `a ^ b`.
    Pow,
}

impl UnaryOp {
    /// The operator that the sign stands for between tensors.
    pub fn operator(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Not => "logical_not",
        }
    }
}

impl BinaryOp {
    /// The operator that the sign stands for between tensors, and whether its operands change places. `!=` is the negation
    /// of what is given.
    pub fn operator(self) -> (&'static str, bool) {
        match self {
            BinaryOp::Add => ("add", false),
            BinaryOp::Sub => ("sub", false),
            BinaryOp::Mul => ("mul", false),
            BinaryOp::Div => ("div", false),
            BinaryOp::Mod => ("modulo", false),
            BinaryOp::Pow => ("pow", false),
            BinaryOp::MatMul => ("matmul", false),
            BinaryOp::And => ("logical_and", false),
            BinaryOp::Or => ("logical_or", false),
            BinaryOp::Eq | BinaryOp::Ne => ("equal", false),
            BinaryOp::Lt => ("less", false),
            BinaryOp::Le => ("less_equal", false),
            BinaryOp::Gt => ("less", true),
            BinaryOp::Ge => ("less_equal", true),
        }
    }
}

/// Defines an enum of words with their texts.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $word:literal $does:literal)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $(#[doc = $does] $variant,)*
        }

        impl $name {
            /// All of them with their words and one line of what they say.
            pub const ALL: &'static [($name, &'static str, &'static str)] =
                &[$(($name::$variant, $word, $does)),*];

            /// Its word in texts.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            /// The one of a word.
            pub fn named(word: &str) -> Option<$name> {
                $name::ALL.iter().find(|w| w.1 == word).map(|w| w.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// Reductions.
    Monoid {
        Sum "sum" "the sum"
        Prod "prod" "the product"
        Max "max" "the largest term"
        Min "min" "the smallest term"
        Mean "mean" "the sum over the number of terms"
        Any "any" "whether a term holds"
        All "all" "whether all terms hold"
    }
}

words! {
    /// Predicates of `if` and `when` clauses about tensors.
    Predicate {
        Const "const" "the tensor is fed by constants only"
        Uniform "uniform" "the tensor is a constant whose elements are all equal"
        Nonzero "nonzero" "no element of the constant is zero"
        Finite "finite" "every element of the constant is finite"
        Positive "positive" "every element of the constant is above zero"
        Nonnegative "nonnegative"
            "no element can be below zero or a negative zero, by how it is computed; any may be NaN"
        Within "within" "every element lies between two bounds, by how it is computed; any may be NaN"
    }
}

impl Predicate {
    /// The arguments that are tensors: all, but for the bounds of `within`; and those bounds.
    pub fn split(self, args: &[Expr]) -> (&[Expr], &[Expr]) {
        args.split_at(if self == Predicate::Within { args.len().min(1) } else { args.len() })
    }

    /// True if its answer may become known as a program is explored.
    pub fn is_learned(self) -> bool {
        matches!(self, Predicate::Nonnegative | Predicate::Within)
    }
}

words! {
    /// Words among the hints of a law.
    Mark {
        Normal "normal" "the law rewrites the patterns of all others, too"
        Numbered "numbered" "what it matches as a product with a number has no other spelling"
        Early "early" "the law takes part in a first search, too, whose result the search begins with"
        Layout "layout" "the law chooses a layout, or moves a change of layouts"
    }
}

words! {
    /// The kinds of attributes.
    AttrKind {
        Int "int" "an integer"
        Ints "ints" "a list of integers, one for each axis of a segment if it names one"
        Float "float" "a real number"
        Floats "floats" "a list of real numbers"
        Bool "bool" "a truth value"
        String "string" "a word"
        DType "dtype" "an element type"
        Axis "axis" "the position of an axis"
        Axes "axes" "distinct positions in a segment"
        Perm "perm" "a permutation of a segment"
        Shape "shape" "a list of extents"
    }
}

impl AttrKind {
    /// What a value is where one of this kind is wanted: an integral number is an integer.
    pub fn taken(self, a: Attr) -> Attr {
        match self {
            AttrKind::Int => a.as_integer().unwrap_or(a),
            _ => a,
        }
    }

    /// True of a value that is one of this kind.
    pub fn admits(self, a: &Attr) -> bool {
        match self {
            AttrKind::Int | AttrKind::Axis => matches!(a, Attr::Int(_)),
            AttrKind::Ints | AttrKind::Axes | AttrKind::Perm | AttrKind::Shape => {
                matches!(a, Attr::Ints(_))
            }
            AttrKind::Float => matches!(a, Attr::Float(_) | Attr::Int(_)),
            AttrKind::Floats => a.as_f64s().is_some(),
            AttrKind::Bool => matches!(a, Attr::Bool(_)),
            AttrKind::String => matches!(a, Attr::Str(_)),
            AttrKind::DType => matches!(a, Attr::DType(_)),
        }
    }

    /// What it is, in a few words.
    pub fn wanted(self) -> &'static str {
        match self {
            AttrKind::Ints => "a list of integers",
            _ => AttrKind::ALL.iter().find(|k| k.0 == self).map_or("", |k| k.2),
        }
    }

    /// True of lists of integers.
    pub fn is_ints(self) -> bool {
        matches!(self, AttrKind::Ints | AttrKind::Axes | AttrKind::Perm | AttrKind::Shape)
    }
}

/// Lowest and highest value of a range, both inclusive; either may be open.
pub type Bounds = (Option<Expr>, Option<Expr>);

/// `ints(s) in 0..4`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttrType {
    /// What it is.
    pub kind: AttrKind,
    /// The axis or segment that it speaks of.
    pub of: Option<Name>,
    /// What its values lie between; used for sampling and checked.
    pub range: Option<Bounds>,
    /// Where it stands.
    pub span: Span,
}

impl AttrType {
    /// The axis whose position this is, if it is one.
    pub fn axis(&self) -> Option<&Name> {
        self.of.as_ref().filter(|_| self.kind == AttrKind::Axis)
    }
}

/// A bound on a tensor's elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// `>=`, `>`, `<=` or `<`.
    pub op: BinaryOp,
    /// What each element is compared with.
    pub bound: Expr,
}

impl Expr {
    /// A generated expression, without a location.
    pub fn new(kind: ExprKind) -> Expr {
        Expr { kind, span: Span::default() }
    }

    /// A generated call of a function.
    pub fn call(f: Function, args: Vec<Expr>) -> Expr {
        Expr::new(ExprKind::Call(f, args))
    }

    /// The bare name that it is.
    pub fn as_name(&self) -> Option<&Name> {
        match &self.kind {
            ExprKind::Name(n) => Some(n),
            _ => None,
        }
    }

    /// The expressions that it is made of.
    pub fn parts(&self) -> Vec<&Expr> {
        fn elems(items: &[Elem]) -> Vec<&Expr> {
            items.iter().map(Elem::expr).collect()
        }
        match &self.kind {
            ExprKind::List(items) => elems(items),
            ExprKind::Unary(_, a) | ExprKind::Entry(_, a) => vec![a],
            ExprKind::Binary(_, a, b) => vec![a, b],
            ExprKind::Call(_, args) | ExprKind::Test(_, args) => args.iter().collect(),
            ExprKind::If { cond, then, otherwise } => vec![cond, then, otherwise],
            ExprKind::Read(r) => {
                let mut parts = elems(&r.index);
                parts.extend(r.otherwise.as_deref());
                parts
            }
            ExprKind::Reduce(r) => vec![&r.body],
            ExprKind::Ask(_, args) | ExprKind::Tuple(args) => args.iter().collect(),
            ExprKind::Apply(a) => a.args.iter().map(|a| &a.value).collect(),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::DType(_)
            | ExprKind::Name(_)
            | ExprKind::Size(_)
            | ExprKind::Type(..)
            | ExprKind::Mark(_)
            | ExprKind::Index(_)
            | ExprKind::DTypeVar(_)
            | ExprKind::Lowest => vec![],
        }
    }

    /// Calls `f` on the expression and all its parts.
    pub fn walk<'e>(&'e self, f: &mut dyn FnMut(&'e Expr)) {
        f(self);
        for part in self.parts() {
            part.walk(f);
        }
    }

    /// True if `f` holds of the expression or a part of it.
    pub fn any(&self, f: &mut dyn FnMut(&Expr) -> bool) -> bool {
        f(self) || self.parts().into_iter().any(|p| p.any(f))
    }

    /// The expression with every part of it, but not itself, replaced.
    pub fn map(&self, f: &mut dyn FnMut(&Expr) -> Expr) -> Expr {
        let kind = match &self.kind {
            ExprKind::List(items) => ExprKind::List(items.iter().map(|i| i.map(f)).collect()),
            ExprKind::Entry(n, a) => ExprKind::Entry(n.clone(), Box::new(f(a))),
            ExprKind::Unary(op, a) => ExprKind::Unary(*op, Box::new(f(a))),
            ExprKind::Binary(op, a, b) => {
                let a = Box::new(f(a));
                ExprKind::Binary(*op, a, Box::new(f(b)))
            }
            ExprKind::Call(g, args) => ExprKind::Call(*g, args.iter().map(f).collect()),
            ExprKind::Test(p, args) => ExprKind::Test(*p, args.iter().map(f).collect()),
            ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: Box::new(f(cond)),
                then: Box::new(f(then)),
                otherwise: Box::new(f(otherwise)),
            },
            ExprKind::Read(r) => ExprKind::Read(Read {
                input: r.input,
                index: r.index.iter().map(|i| i.map(f)).collect(),
                otherwise: r.otherwise.as_deref().map(|o| Box::new(f(o))),
            }),
            ExprKind::Reduce(r) => {
                ExprKind::Reduce(Reduce { body: Box::new(f(&r.body)), ..r.clone() })
            }
            ExprKind::Ask(q, args) => ExprKind::Ask(*q, args.iter().map(f).collect()),
            ExprKind::Apply(a) => ExprKind::Apply(a.map(f)),
            ExprKind::Tuple(args) => ExprKind::Tuple(args.iter().map(f).collect()),
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::DType(_)
            | ExprKind::Name(_)
            | ExprKind::Size(_)
            | ExprKind::Type(..)
            | ExprKind::Mark(_)
            | ExprKind::Index(_)
            | ExprKind::DTypeVar(_)
            | ExprKind::Lowest => self.kind.clone(),
        };
        Expr { kind, span: self.span }
    }

    /// The expression with names replaced where `f` gives an expression for them.
    pub fn substitute(&self, f: &dyn Fn(&str) -> Option<Expr>) -> Expr {
        match &self.kind {
            ExprKind::Name(n) => f(n).unwrap_or_else(|| self.clone()),
            _ => self.map(&mut |e| e.substitute(f)),
        }
    }

    /// True if an element is read.
    pub fn reads(&self) -> bool {
        self.any(&mut |e| matches!(e.kind, ExprKind::Read(_)))
    }

    /// True if it asks what may become known as a program is explored.
    pub fn is_learned(&self) -> bool {
        self.any(&mut |e| matches!(e.kind, ExprKind::Test(p, _) if p.is_learned()))
    }
}
