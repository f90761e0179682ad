//! Attributes of terms, and numbers among tensors: literals, variables, and what is computed from those.
//!
//! They are expressions of the language, which its evaluator evaluates; nothing is computed here.

use super::worlds::{AttrVariable, DimName, World};
use mlc_dsl::eval::eval;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{AttrKind, BinaryOp, Expr, ExprKind, Name, UnaryOp};
use mlc_dsl::ir::{Attr, DType};

/// An expression over the attribute variables of a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// A literal, or the name of an axis.
    Literal(String, Attr),
    /// The attribute variable of that place.
    Var(usize),
    /// The position of an axis of the world, by its place; in a list if that is asked for.
    Position(usize, bool),
    /// `-a`.
    Minus(Box<Form>),
    /// `a ? b`.
    Binary(BinaryOp, Box<Form>, Box<Form>),
    /// A function of attributes.
    Call(Function, Vec<Form>),
}

/// An expression with its values.
#[derive(Clone, Debug)]
pub struct AttrExpr {
    /// What it is.
    pub form: Form,
    /// What its value is.
    pub kind: AttrKind,
    /// Literals and variables in it.
    pub size: usize,
    /// Attribute variables, one bit each.
    pub uses: u32,
    /// One for each environment; of axes there is none: they depend on the operand.
    pub values: Vec<Option<Attr>>,
}

/// Numbers that stand among tensors as literals.
pub const LITERALS: [f64; 7] = [0.0, 1.0, -1.0, 2.0, 0.5, f64::INFINITY, f64::NEG_INFINITY];

/// Expressions of a world: so many of the literals, variables, and what is computed from variables.
pub fn expressions(world: &World, literals: usize, types: &[DType]) -> Vec<AttrExpr> {
    let mut out: Vec<AttrExpr> = Vec::new();
    let mut add = |form: Form, kind| out.push(AttrExpr::of(world, form, kind));
    for v in LITERALS.into_iter().take(literals) {
        match v.fract() == 0.0 {
            true => add(Form::Literal(v.to_string(), Attr::int(v as i64)), AttrKind::Int),
            false => add(Form::Literal(v.to_string(), Attr::float(v)), AttrKind::Float),
        }
    }
    if literals > 0 {
        add(Form::Literal("[]".into(), Attr::ints([])), AttrKind::Axes);
    }
    for v in [false, true] {
        add(Form::Literal(v.to_string(), Attr::Bool(v)), AttrKind::Bool);
    }
    for t in types {
        add(Form::Literal(t.name().to_string(), Attr::DType(*t)), AttrKind::DType);
    }
    for (i, d) in world.dims.iter().enumerate() {
        if let DimName::Axis(_) = d {
            add(Form::Position(i, false), AttrKind::Axis);
            add(Form::Position(i, true), AttrKind::Axes);
        }
    }
    for (i, a) in world.attrs.iter().enumerate() {
        add(Form::Var(i), a.kind);
    }
    for kind in [AttrKind::Int, AttrKind::Float, AttrKind::Perm] {
        let vars: Vec<usize> =
            (0..world.attrs.len()).filter(|i| world.attrs[*i].kind == kind).collect();
        computed(kind, &vars).into_iter().for_each(|form| add(form, kind));
    }
    out
}

/// What is computed from variables of a kind.
fn computed(kind: AttrKind, vars: &[usize]) -> Vec<Form> {
    let var = |i: &usize| Form::Var(*i);
    let pairs =
        || vars.iter().flat_map(|a| vars.iter().filter(move |b| *b != a).map(move |b| (a, b)));
    let binary = |op| {
        move |(a, b): (&usize, &usize)| {
            Form::Binary(op, Box::new(Form::Var(*a)), Box::new(Form::Var(*b)))
        }
    };
    match kind {
        AttrKind::Perm => {
            let inverse = vars.iter().map(|v| Form::Call(Function::Inverse, vec![var(v)]));
            let both = pairs().map(|(a, b)| Form::Call(Function::Compose, vec![var(a), var(b)]));
            inverse.chain(both).collect()
        }
        AttrKind::Float | AttrKind::Int => {
            let minus = vars.iter().map(|v| Form::Minus(Box::new(var(v))));
            let ordered = || pairs().filter(|(a, b)| a < b);
            let quotients = pairs().filter(|_| kind == AttrKind::Float);
            minus
                .chain(ordered().map(binary(BinaryOp::Add)))
                .chain(ordered().map(binary(BinaryOp::Mul)))
                .chain(quotients.map(binary(BinaryOp::Div)))
                .chain(pairs().map(binary(BinaryOp::Sub)))
                .collect()
        }
        _ => vec![],
    }
}

impl AttrExpr {
    fn of(world: &World, form: Form, kind: AttrKind) -> AttrExpr {
        let expr = form.expr(&world.attrs);
        let value = |e: &super::worlds::Environment| eval(expr.as_ref()?, &e.env).ok();
        let values = world.environments.iter().map(value).collect();
        AttrExpr { kind, size: form.size(), uses: form.uses(), values, form }
    }

    /// True if it is given where such a kind is wanted.
    pub fn suits(&self, kind: AttrKind) -> bool {
        self.kind == kind || kind == AttrKind::Float && self.kind == AttrKind::Int
    }

    /// True of a number that may stand among tensors.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, AttrKind::Int | AttrKind::Float)
    }

    /// The number in an environment.
    pub fn number(&self, environment: usize) -> Option<f64> {
        self.values[environment].as_ref()?.as_f64()
    }
}

impl Form {
    fn size(&self) -> usize {
        match self {
            Form::Literal(..) | Form::Var(_) | Form::Position(..) => 1,
            Form::Minus(a) => 1 + a.size(),
            Form::Binary(_, a, b) => 1 + a.size() + b.size(),
            Form::Call(_, args) => args.iter().map(Form::size).sum::<usize>() + 1,
        }
    }

    fn uses(&self) -> u32 {
        match self {
            Form::Literal(..) | Form::Position(..) => 0,
            Form::Var(i) => 1 << i,
            Form::Minus(a) => a.uses(),
            Form::Binary(_, a, b) => a.uses() | b.uses(),
            Form::Call(_, args) => args.iter().fold(0, |all, a| all | a.uses()),
        }
    }

    /// As the evaluator reads it; `None` of positions.
    fn expr(&self, vars: &[AttrVariable]) -> Option<Expr> {
        let kind = match self {
            Form::Literal(_, Attr::Bool(b)) => ExprKind::Bool(*b),
            Form::Literal(_, Attr::DType(d)) => ExprKind::DType(*d),
            Form::Literal(_, Attr::Float(bits)) => ExprKind::Float(f64::from_bits(*bits)),
            Form::Literal(_, a @ Attr::Int(_)) => ExprKind::Int(a.as_i64()?),
            Form::Literal(..) => ExprKind::List(vec![]),
            Form::Var(i) => ExprKind::Name(Name::from(vars[*i].name.as_str())),
            Form::Position(..) => return None,
            Form::Minus(a) => ExprKind::Unary(UnaryOp::Neg, Box::new(a.expr(vars)?)),
            Form::Binary(op, a, b) => {
                ExprKind::Binary(*op, Box::new(a.expr(vars)?), Box::new(b.expr(vars)?))
            }
            Form::Call(f, args) => {
                ExprKind::Call(*f, args.iter().map(|a| a.expr(vars)).collect::<Option<_>>()?)
            }
        };
        Some(Expr::new(kind))
    }

    /// In a text, with these names of variables.
    pub fn text(&self, name: &dyn Fn(usize) -> String, dims: &[DimName]) -> String {
        match self {
            Form::Literal(t, _) => t.clone(),
            Form::Var(i) => name(*i),
            Form::Position(d, false) => dims[*d].text(),
            Form::Position(d, true) => format!("[{}]", dims[*d].text()),
            Form::Minus(a) => format!("(-{})", a.text(name, dims)),
            Form::Binary(op, a, b) => {
                let sign = op.sign();
                format!("({} {sign} {})", a.text(name, dims), b.text(name, dims))
            }
            Form::Call(f, args) => {
                let args: Vec<String> = args.iter().map(|a| a.text(name, dims)).collect();
                format!("{}({})", f.name(), args.join(", "))
            }
        }
    }

    /// The variables that stand by themselves: a law binds what its left side has so.
    pub fn bare(&self) -> Option<usize> {
        match self {
            Form::Var(i) => Some(*i),
            _ => None,
        }
    }

    /// Calls `f` on the variables in it, in the order of the text.
    pub fn each_var(&self, f: &mut dyn FnMut(usize)) {
        match self {
            Form::Literal(..) | Form::Position(..) => {}
            Form::Var(i) => f(*i),
            Form::Minus(a) => a.each_var(f),
            Form::Binary(_, a, b) => {
                a.each_var(f);
                b.each_var(f);
            }
            Form::Call(_, args) => args.iter().for_each(|a| a.each_var(f)),
        }
    }
}
