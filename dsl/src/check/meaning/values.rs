//! Kinds of values in a meaning: which can be combined, and the kinds that functions and reductions yield.

use super::MeaningChecker;
use crate::check::report::suggest;
use crate::diagnostics::Severity;
use crate::diagnostics::span::{Ident, Span};
use crate::eval::functions::Function;
use crate::expr::Monoid;
use crate::ir::DType;
use crate::library::DTypePattern;
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind};

/// Functions of one real element.
const REAL: [&str; 19] = [
    "exp", "log", "sqrt", "rsqrt", "recip", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "float",
];

/// Functions of one element that keep its type.
const SAME: [&str; 5] = ["abs", "floor", "ceil", "round", "sign"];

/// Functions of two elements.
const PAIRS: [&str; 9] = [
    "maximum",
    "minimum",
    "modulo",
    "remainder",
    "bit_and",
    "bit_or",
    "bit_xor",
    "shift_left",
    "shift_right",
];

/// Functions of lists of indices with the number of their arguments, and whether they yield one number.
const LISTS: [(&str, usize, bool); 19] = [
    ("permute", 2, false),
    ("compose", 2, false),
    ("pick", 2, false),
    ("unpermute", 2, false),
    ("drop", 2, false),
    ("weave", 3, false),
    ("reverse", 1, false),
    ("replace", 3, false),
    ("exact", 2, false),
    ("ravel", 2, true),
    ("unravel", 2, false),
    ("product", 1, true),
    ("total", 1, true),
    ("length", 1, true),
    ("rank", 1, true),
    ("entry", 2, true),
    ("at", 2, true),
    ("all", 1, true),
    ("any", 1, true),
];

/// What a value in a meaning is, as far as the text shows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueKind {
    /// An element of a tensor of this type.
    Elem(DTypePattern),
    /// An index, an extent or an integer attribute.
    Int,
    Real,
    Truth,
    List,
    DType,
    Word,
    /// Nothing can be said.
    Open,
}

impl MeaningChecker<'_> {
    pub(crate) fn condition(&mut self, e: &Expr) {
        let found = self.expr(e);
        let fits = match &found {
            ValueKind::Truth | ValueKind::Open => true,
            ValueKind::Elem(p) => is_bool(p),
            ValueKind::Int
            | ValueKind::Real
            | ValueKind::List
            | ValueKind::DType
            | ValueKind::Word => false,
        };
        if !fits {
            let help = "compare: `x[…] != 0`, `i < |n|`";
            self.say("R007", e.span, "a condition is a truth value".into(), help);
        }
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, span: Span) -> ValueKind {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                self.condition(a);
                self.condition(b);
                ValueKind::Truth
            }
            BinaryOp::MatMul => {
                let help = "write the sum: `sum(k) a[m, k] * b[k, n]`";
                self.say("R010", span, "`@` multiplies tensors, not elements".into(), help);
                ValueKind::Open
            }
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Mod
            | BinaryOp::Pow => {
                let (x, y) = (self.expr(a), self.expr(b));
                for (k, e) in [(&x, a), (&y, b)] {
                    self.number(k, e.span);
                }
                self.join(x, y, span)
            }
            BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge => {
                let (x, y) = (self.expr(a), self.expr(b));
                let lists = x == ValueKind::List || y == ValueKind::List;
                self.join(x, y, span);
                let whole = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
                if lists && !whole { ValueKind::Open } else { ValueKind::Truth }
            }
        }
    }

    /// Says so if a value is no number.
    pub(crate) fn number(&mut self, k: &ValueKind, span: Span) {
        let what = match k {
            ValueKind::Truth => "a truth value",
            ValueKind::Elem(p) if is_bool(p) => "a truth value",
            ValueKind::DType | ValueKind::Word => "a word",
            ValueKind::Elem(_)
            | ValueKind::Int
            | ValueKind::Real
            | ValueKind::List
            | ValueKind::Open => return,
        };
        let help = "`1 if … else 0` converts a truth value to a number";
        self.say("R007", span, format!("expected a number, found {what}"), help);
    }

    /// What two values make together.
    pub(crate) fn join(&mut self, a: ValueKind, b: ValueKind, span: Span) -> ValueKind {
        match (a, b) {
            (a, b) if a == b => a,
            (ValueKind::Open, _) | (_, ValueKind::Open) => ValueKind::Open,
            (ValueKind::List, ValueKind::Int) | (ValueKind::Int, ValueKind::List) => {
                ValueKind::List
            }
            (ValueKind::Elem(p), ValueKind::Elem(q)) => {
                if all_float(&p) && all_float(&q) || is_bool(&p) && is_bool(&q) {
                    return ValueKind::Open;
                }
                let names = (super::super::dtype_name(&p), super::super::dtype_name(&q));
                let message = format!("elements of {} and {} cannot be combined", names.0, names.1);
                self.say(
                    "R007",
                    span,
                    message,
                    "`cast(…, to)` converts one of them, e.g. `cast(x[..s], f32)`",
                );
                ValueKind::Open
            }
            (ValueKind::Elem(p), ValueKind::Int) | (ValueKind::Int, ValueKind::Elem(p))
                if !is_bool(&p) =>
            {
                ValueKind::Elem(p)
            }
            (ValueKind::Elem(p), ValueKind::Real) | (ValueKind::Real, ValueKind::Elem(p))
                if all_float(&p) =>
            {
                ValueKind::Elem(p)
            }
            (ValueKind::Elem(p), ValueKind::Real) | (ValueKind::Real, ValueKind::Elem(p))
                if !is_bool(&p) =>
            {
                ValueKind::Real
            }
            (ValueKind::Elem(p), ValueKind::Truth) | (ValueKind::Truth, ValueKind::Elem(p))
                if is_bool(&p) =>
            {
                ValueKind::Truth
            }
            (ValueKind::Int, ValueKind::Real) | (ValueKind::Real, ValueKind::Int) => {
                ValueKind::Real
            }
            (a, b) => {
                let message = format!("{} and {} cannot be combined", told(&a), told(&b));
                let help = "numbers combine with numbers, truth values with truth values, lists with lists and integers";
                self.say("R007", span, message, help);
                ValueKind::Open
            }
        }
    }

    pub(crate) fn reduce(&mut self, monoid: &Ident, axes: &[Elem], body: &Expr) -> ValueKind {
        if Monoid::named(&monoid.text).is_none() {
            let all: Vec<&str> = Monoid::ALL.iter().map(|m| m.1).collect();
            let help = format!("one of {}", all.join(", "));
            self.say("R003", monoid.span, format!("`{}` is no reduction", monoid.text), &help);
        }
        let outer = self.scope.len();
        for axis in axes {
            let (segment, e) = (matches!(axis, Elem::Splice(_)), axis.expr());
            let ExprKind::Name(n) = &e.kind else {
                self.say(
                    "R004",
                    e.span,
                    "a reduction runs over named axes".into(),
                    "e.g. `sum(k)` or `sum(..r)`",
                );
                continue;
            };
            match self.extent(n) {
                Some(Some(s)) if s != segment => {
                    let (is, write) =
                        if s { ("a segment", format!("..{n}")) } else { ("one axis", n.clone()) };
                    let message = format!("`{n}` is {is}");
                    self.say("R004", e.span, message, &format!("write `{}({write})`", monoid.text));
                }
                Some(_) => {}
                None => {
                    let message = format!("axis `{n}` of this reduction has no extent");
                    let help = format!("no parameter has it; give it with `where {n} = …`");
                    self.say("R004", e.span, message, &help);
                }
            }
            self.scope.push((n.clone(), segment));
        }
        let before = std::mem::take(&mut self.used);
        let found = self.expr(body);
        let own: Vec<String> = self.scope[outer..].iter().map(|s| s.0.clone()).collect();
        let idle: Vec<&String> = own.iter().filter(|n| !self.used.contains(*n)).collect();
        if let Some(n) = idle.first()
            && self.diags.is_empty()
        {
            let message = format!("index `{n}` of this reduction is not used in it");
            let help = format!("read an element at `{n}`, or leave it out of `{}(…)`", monoid.text);
            self.say("R024", monoid.span, message, &help);
            self.diags.iter_mut().for_each(|d| d.severity = Severity::Warning);
        }
        self.used.extend(before);
        self.scope.truncate(outer);
        match monoid.text.as_str() {
            "any" | "all" => {
                self.is_truth(&found, body.span);
                ValueKind::Truth
            }
            "mean" => ValueKind::Real,
            _ => {
                self.number(&found, body.span);
                found
            }
        }
    }

    fn is_truth(&mut self, k: &ValueKind, span: Span) {
        let fits = match k {
            ValueKind::Truth | ValueKind::Open => true,
            ValueKind::Elem(p) => is_bool(p),
            _ => false,
        };
        if !fits {
            self.say(
                "R007",
                span,
                "`any` and `all` join truth values".into(),
                "compare: `x[…] > 0`",
            );
        }
    }

    pub(crate) fn call(&mut self, callee: &Ident, args: &[Arg], span: Span) -> ValueKind {
        let name = callee.text.as_str();
        match (name, args) {
            ("rank", [_]) => return ValueKind::Int,
            ("shape", [_]) => return ValueKind::List,
            ("dtype", [_]) => return ValueKind::DType,
            _ => {}
        }
        let kinds: Vec<ValueKind> = args.iter().map(|a| self.expr(&a.value)).collect();
        let listed = LISTS.iter().find(|l| l.0 == name);
        let wanted = match name {
            "cast" => Some(2),
            "int" => Some(1),
            _ if REAL.contains(&name) || SAME.contains(&name) => Some(1),
            _ if PAIRS.contains(&name) => Some(2),
            _ => listed.map(|l| l.1),
        };
        let Some(wanted) = wanted else {
            if Function::of_attributes(name).is_some() {
                // Of attributes and extents alone.
                return ValueKind::Open;
            }
            let names = REAL.iter().chain(&SAME).chain(&PAIRS).copied();
            let help = suggest(name, names.chain(LISTS.iter().map(|l| l.0)).chain(["cast", "int"]))
                .unwrap_or_else(|| {
                    "a meaning applies functions of elements, not operators; the manual lists them"
                        .into()
                });
            self.say("R009", callee.span, format!("`{name}` is not a function of elements"), &help);
            return ValueKind::Open;
        };
        if args.len() != wanted {
            let message = format!(
                "`{name}` takes {}, {} given",
                super::super::counted(wanted, "argument"),
                args.len()
            );
            self.say(
                "R006",
                span,
                message,
                &format!("e.g. `{name}({})`", ["a", "b", "c"][..wanted.min(3)].join(", ")),
            );
            return ValueKind::Open;
        }
        match (name, kinds.as_slice()) {
            ("cast", [_, to]) => match (to, &args[1].value.kind) {
                (ValueKind::DType, ExprKind::Name(n)) => {
                    ValueKind::Elem(n.parse().map_or_else(
                        |()| DTypePattern::Var(n.as_str().into()),
                        DTypePattern::Fixed,
                    ))
                }
                (ValueKind::DType | ValueKind::Open, _) => ValueKind::Open,
                _ => {
                    let help = "e.g. `cast(x[..s], f32)`, or an attribute `to: dtype`";
                    self.say(
                        "R007",
                        args[1].value.span,
                        "`cast` takes an element type".into(),
                        help,
                    );
                    ValueKind::Open
                }
            },
            ("int", _) => ValueKind::Int,
            ("all" | "any", _) => ValueKind::Truth,
            _ if REAL.contains(&name) => {
                self.number(&kinds[0], args[0].value.span);
                match &kinds[0] {
                    ValueKind::Elem(p) if all_float(p) => ValueKind::Elem(p.clone()),
                    ValueKind::Open => ValueKind::Open,
                    _ => ValueKind::Real,
                }
            }
            (_, [a]) if SAME.contains(&name) => {
                self.number(a, args[0].value.span);
                a.clone()
            }
            (_, [a, b]) if PAIRS.contains(&name) => {
                self.number(a, args[0].value.span);
                self.number(b, args[1].value.span);
                self.join(a.clone(), b.clone(), span)
            }
            ("exact", [a, b]) if *a != ValueKind::List && *b != ValueKind::List => ValueKind::Int,
            _ => match listed {
                Some((_, _, true)) => ValueKind::Int,
                _ => ValueKind::List,
            },
        }
    }
}

pub(crate) fn is_var(p: &DTypePattern) -> bool {
    matches!(p, DTypePattern::Var(_))
}

/// True if every type of the pattern has real numbers.
pub(crate) fn all_float(p: &DTypePattern) -> bool {
    match p {
        DTypePattern::Fixed(d) => d.is_float(),
        DTypePattern::Var(v) => v.as_bytes().first() == Some(&b'F'),
    }
}

pub(crate) fn is_bool(p: &DTypePattern) -> bool {
    match p {
        DTypePattern::Fixed(d) => *d == DType::Bool,
        DTypePattern::Var(v) => v.as_bytes().first() == Some(&b'B'),
    }
}

fn told(k: &ValueKind) -> String {
    match k {
        ValueKind::Elem(p) => format!("elements of {}", super::super::dtype_name(p)),
        ValueKind::Int => "an integer".into(),
        ValueKind::Real => "a real number".into(),
        ValueKind::Truth => "a truth value".into(),
        ValueKind::List => "a list".into(),
        ValueKind::DType => "an element type".into(),
        ValueKind::Word => "a word".into(),
        ValueKind::Open => "this".into(),
    }
}
