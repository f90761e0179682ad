//! Operators that terms are made of, as their declarations have them.
//!
//! Knows no operator by name: which arguments one takes is read from its signature, how it is applied from its class.

use crate::names;
use mlc_dsl::expr::{AttrKind, BinaryOp, UnaryOp};
use mlc_dsl::ir::DType;
use mlc_dsl::library::{CallId, Callable, DTypePattern, Library, OpClass};
use std::fmt;

/// Kinds of attributes that terms have values for.
const KINDS: [AttrKind; 7] = [
    AttrKind::Axis,
    AttrKind::Axes,
    AttrKind::Perm,
    AttrKind::Bool,
    AttrKind::Int,
    AttrKind::Float,
    AttrKind::DType,
];

/// An operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// In the library.
    pub call: CallId,
    /// As declared.
    pub name: String,
    /// Numbers may stand among its arguments, and arguments without all axes.
    pub pointwise: bool,
    /// Swapping its two arguments is no other term.
    pub commutative: bool,
    /// Nor is grouping them otherwise.
    pub associative: bool,
    /// The names of its attributes.
    pub attrs: Vec<String>,
    /// The sign that stands for it.
    sign: Option<Sign>,
}

#[derive(Clone, Copy, Debug)]
enum Sign {
    Infix(&'static str),
    Prefix(&'static str),
}

/// An operator that cannot be asked for.
#[derive(Clone, Debug)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// The operators of these names.
///
/// # Errors
/// A name is that of no operator, or of one whose arguments are not enumerated.
pub fn named(
    library: &Library,
    names: &[String],
    types: &[DType],
) -> Result<Vec<Operator>, Unusable> {
    let mut out: Vec<Operator> = Vec::new();
    for name in names {
        let Some(call) = library.find(name) else {
            let known: Vec<&str> = library.calls.iter().map(|c| &*c.name).collect();
            let otherwise = "`mlc-rewrite list operators` and `list layers` name all";
            let hint = names::hint(name, &known, otherwise);
            return Err(Unusable(format!("there is no operator `{name}`{hint}")));
        };
        usable(library.call(call), types)?;
        if out.iter().all(|o| o.call != call) {
            out.push(Operator::of(library, call));
        }
    }
    Ok(out)
}

fn usable(call: &Callable, types: &[DType]) -> Result<(), Unusable> {
    let name = &call.name;
    let strange =
        |a: &&mlc_dsl::library::AttrParam| !KINDS.contains(&a.ty.kind) && a.default.is_none();
    if let Some(a) = call.attrs.iter().find(strange) {
        let kinds = KINDS.iter().map(|k| k.word()).collect::<Vec<_>>().join(", ");
        return Err(Unusable(format!(
            "operator `{name}` needs its attribute `{}`, {}, for which no values are enumerated\n\
             help: leave it out of --ops, or give the attribute a default; enumerated are {kinds}",
            a.name,
            a.ty.kind.wanted()
        )));
    }
    if call.outputs.len() != 1 || call.inputs.is_empty() {
        return Err(Unusable(format!(
            "operator `{name}` has {} operands and {} results; terms are of operators with one \
             result and some operand\nhelp: leave it out of --ops",
            call.inputs.len(),
            call.outputs.len()
        )));
    }
    let takes = |p: &DTypePattern| p.admits(DType::Bool) || types.iter().any(|t| p.admits(*t));
    if let Some(i) = call.inputs.iter().find(|i| !takes(&i.ty.dtype)) {
        let of = match &i.ty.dtype {
            DTypePattern::Fixed(d) => d.name().to_string(),
            DTypePattern::Var(v) => v.to_string(),
        };
        let given = types.iter().map(|t| t.name()).collect::<Vec<_>>().join(",");
        return Err(Unusable(format!(
            "operator `{name}` takes none of the types {given}: its operand `{}` is of `{of}`\n\
             help: name such a type in --types",
            i.name
        )));
    }
    Ok(())
}

impl Operator {
    fn of(library: &Library, call: CallId) -> Operator {
        let c = library.call(call);
        Operator {
            call,
            name: c.name.to_string(),
            pointwise: c.class == OpClass::Pointwise || is_pointwise_definition(c),
            commutative: c.commutative && c.inputs.len() == 2,
            associative: c.associative,
            attrs: c.attrs.iter().map(|a| a.name.to_string()).collect(),
            sign: sign(&c.name),
        }
    }

    /// An application in a text.
    pub fn text(&self, args: &[String], attrs: &[String]) -> String {
        match (self.sign, args) {
            (Some(Sign::Infix(sign)), [a, b]) if attrs.is_empty() => format!("({a} {sign} {b})"),
            (Some(Sign::Prefix(sign)), [a]) if attrs.is_empty() => format!("({sign}{a})"),
            _ => {
                let all: Vec<&str> = args.iter().chain(attrs).map(|a| bare(a)).collect();
                format!("{}({})", self.name, all.join(", "))
            }
        }
    }
}

/// A definition whose parameters and result all have the one segment.
fn is_pointwise_definition(c: &Callable) -> bool {
    let dims = c.outputs.first().map(|o| &o.1.dims);
    let single = |d: &Option<Vec<mlc_dsl::library::Dim>>| {
        matches!(d.as_deref(), Some([mlc_dsl::library::Dim::Seg(_)]))
    };
    c.class == OpClass::Other
        && c.wheres.is_empty()
        && dims.is_some_and(single)
        && c.inputs.iter().all(|i| Some(&i.ty.dims) == dims)
}

/// What the language writes for an operator.
fn sign(name: &str) -> Option<Sign> {
    let infix = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Mod,
        BinaryOp::Pow,
        BinaryOp::MatMul,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Eq,
        BinaryOp::Lt,
        BinaryOp::Le,
    ];
    let prefix = [(UnaryOp::Neg, "-"), (UnaryOp::Not, "not ")];
    let found = infix.iter().find(|op| op.operator().0 == name);
    let found = found.map(|op| Sign::Infix(op.sign()));
    let negation = prefix.iter().find(|(op, _)| op.operator() == name);
    found.or(negation.map(|(_, s)| Sign::Prefix(s)))
}

/// A term without the parentheses around it, if they are one pair.
pub fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth < 0 {
            return text;
        }
    }
    inner
}
