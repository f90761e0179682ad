//! Instantiates terms: substitutes variables, computes attributes, and types everything.

use crate::diagnostics::span::Span;
use crate::eval::functions::Function;
use crate::eval::{Env, eval};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::ir::canon::{self, Sink, Structural};
use crate::ir::{Attr, DType, Extent, Type};
use crate::library::{CallId, CallKind, DTypePattern, Dim, Library};
use crate::typing::infer::{TypeError, infer, mismatch, resolve_dims, resolve_dtype};

use crate::term::{Term, TermId, TermKind, Terms};
use std::collections::HashMap;
use thiserror::Error;

/// Why a term has no instance.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BuildError {
    /// An application is ill-typed.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// An attribute or a scalar has no value.
    #[error("{0}")]
    Value(String),
    /// What went wrong with the term written there.
    #[error("{1}")]
    At(Span, Box<BuildError>),
}

impl BuildError {
    /// Where the term is written that has no instance.
    pub fn span(&self) -> Option<Span> {
        match self {
            BuildError::At(span, _) => Some(*span),
            BuildError::Type(_) | BuildError::Value(_) => None,
        }
    }

    /// True if two extents would have to be equal, as they may be for some values of their symbols.
    pub fn is_of_unequal_extents(&self) -> bool {
        match self {
            BuildError::At(_, e) => e.is_of_unequal_extents(),
            BuildError::Type(e) => e.unequal().is_some(),
            BuildError::Value(_) => false,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            BuildError::At(_, e) => e.help(),
            BuildError::Type(e) => e.help(),
            BuildError::Value(_) => "state the value, or pass it as an attribute".into(),
        }
    }
}

/// One member of the family that an `each` rule matched.
#[derive(Clone, Debug)]
pub struct Member<V> {
    /// The values of all variables, the family's and the shared ones.
    pub vars: Vec<V>,
    /// What names stand for in this member's match.
    pub env: Env,
    /// The shape of the member's left side.
    pub shape: Vec<Extent>,
}

/// Instantiates terms in a sink.
pub struct Instantiator<'t, S: Sink> {
    /// Where applications go.
    pub sink: &'t mut S,
    /// The operators of the notation.
    pub structural: Structural,
    /// What is instantiated; operands stand before what uses them.
    pub terms: &'t Terms,
    /// The family and which member is meant, in `each` rules.
    pub family: Option<(&'t [Member<S::Value>], usize)>,
    /// Refuse numbers that are finite, but not in their type: what a law computes must not overflow by itself.
    pub ranged: bool,
}

type Done<V> = HashMap<TermId, Vec<V>>;

impl<S: Sink> Instantiator<'_, S> {
    /// One value per root. `env` binds attributes and, from the variables' types, axes; it learns the
    /// names of computed axes.
    pub fn run(
        &mut self,
        roots: &[TermId],
        vars: &[S::Value],
        env: &mut Env,
    ) -> Result<Vec<S::Value>, BuildError> {
        let mut done: Done<S::Value> = HashMap::new();
        for &root in roots {
            self.one(root, vars, env, &mut done)?;
        }
        Ok(roots.iter().map(|r| done[r][0]).collect())
    }

    fn one(
        &mut self,
        root: TermId,
        vars: &[S::Value],
        env: &mut Env,
        done: &mut Done<S::Value>,
    ) -> Result<(), BuildError> {
        let terms = self.terms;
        let mut stack = vec![(root, false)];
        while let Some((t, ready)) = stack.pop() {
            if done.contains_key(&t) {
                continue;
            }
            let term = terms.get(t);
            let folds = matches!(term.kind, TermKind::EachFold(..));
            if !ready && !folds {
                stack.push((t, true));
                // The first argument is instantiated first: it may name axes for the others.
                stack.extend(term.args.iter().rev().map(|&a| (a, false)));
                continue;
            }
            let placed = |e: BuildError| match e {
                BuildError::At(..) => e,
                other => BuildError::At(term.span, Box::new(other)),
            };
            let values = self.term(term, vars, env, done).map_err(placed)?;
            if let (Some(dims), [v]) = (&term.dims, values.as_slice()) {
                let shape = self.sink.ty(*v).shape;
                bind_dims(dims, &shape, env);
            }
            done.insert(t, values);
        }
        Ok(())
    }

    fn term(
        &mut self,
        term: &Term,
        vars: &[S::Value],
        env: &Env,
        done: &Done<S::Value>,
    ) -> Result<Vec<S::Value>, BuildError> {
        let args = || term.args.iter().map(|a| done[a][0]).collect::<Vec<_>>();
        match &term.kind {
            TermKind::Var(i) => Ok(vec![vars[*i]]),
            TermKind::Scalar(e) => Ok(vec![self.scalar(e, &term.dtype, env)?]),
            TermKind::Apply(call, attrs) => self.apply(*call, attrs, &args(), env),
            TermKind::Output(i) => {
                let all = &done[&term.args[0]];
                let v = all.get(*i).ok_or_else(|| BuildError::Value("no such output".into()))?;
                Ok(vec![*v])
            }
            TermKind::EachFold(call, attrs) => self.fold(*call, attrs, term.args[0], env),
            TermKind::EachPart(axis) => Ok(vec![self.part(axis, args()[0], env)?]),
        }
    }

    fn scalar(
        &mut self,
        e: &Expr,
        dtype: &DTypePattern,
        env: &Env,
    ) -> Result<S::Value, BuildError> {
        let dtype = resolve_dtype(dtype, env).map_err(BuildError::Value)?;
        self.number(e, dtype, env)
    }

    /// A number as a tensor of rank 0: a constant where it is known, else computed at run time from
    /// the extents that it depends on.
    fn number(&mut self, e: &Expr, dtype: DType, env: &Env) -> Result<S::Value, BuildError> {
        match eval(e, env) {
            Ok(Attr::Int(n)) if n.as_const().is_none() => self.extent(n, dtype),
            Ok(v) => match v.as_f64() {
                Some(v) if !dtype.is_exact(v) => {
                    Err(BuildError::Value(format!("{v} is no {dtype}")))
                }
                Some(v) if self.ranged && dtype.overflows(v) => {
                    Err(BuildError::Value(format!("{v} overflows in {dtype}")))
                }
                Some(v) => Ok(self.sink.scalar(dtype, v)?),
                None => Err(BuildError::Value(format!("{v} is not a number"))),
            },
            Err(err) => {
                let unknown = || BuildError::Value(err.to_string());
                if !mentions_symbols(e, env) {
                    return Err(unknown());
                }
                if let Some(whole) = as_float(e) {
                    return self.number(whole, dtype, env);
                }
                let (name, parts) = arithmetic(e).ok_or_else(unknown)?;
                let call = self.structural.arithmetic(name).ok_or_else(unknown)?;
                let parts = parts.into_iter().map(|p| self.number(p, dtype, env));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                Ok(canon::apply(self.sink, self.structural, call, &[], &parts)?[0])
            }
        }
    }

    /// A symbolic extent as a tensor of rank 0.
    fn extent(&mut self, n: Extent, dtype: DType) -> Result<S::Value, BuildError> {
        let (Some(extents), Some(cast)) = (self.structural.extents, self.structural.cast) else {
            let reason =
                format!("`{n}` is not a known number, and `extents` and `cast` are not declared");
            return Err(BuildError::Value(reason));
        };
        let values = [Some(Attr::Ints(vec![n]))];
        let list = canon::apply(self.sink, self.structural, extents, &values, &[])?[0];
        let one = canon::reshape(self.sink, self.structural, list, &[])?;
        Ok(canon::apply(self.sink, self.structural, cast, &[Some(Attr::DType(dtype))], &[one])?[0])
    }

    fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Expr>],
        args: &[S::Value],
        env: &Env,
    ) -> Result<Vec<S::Value>, BuildError> {
        let attrs = eval_attrs(attrs, env)?;
        Ok(canon::apply(self.sink, self.structural, call, &attrs, args)?)
    }

    /// The members' instances of `arg`, folded from left to right.
    fn fold(
        &mut self,
        call: CallId,
        attrs: &[Option<Expr>],
        arg: TermId,
        env: &Env,
    ) -> Result<Vec<S::Value>, BuildError> {
        let Some((members, _)) = self.family else {
            return Err(BuildError::Value("a family has no single instance".into()));
        };
        let mut acc = None;
        for m in members {
            let mut own = m.env.clone();
            let v = self.run(&[arg], &m.vars, &mut own)?[0];
            acc = Some(match acc {
                None => v,
                Some(a) => self.apply(call, attrs, &[a, v], env)?[0],
            });
        }
        acc.map(|v| vec![v]).ok_or_else(|| BuildError::Value("the family has no members".into()))
    }

    /// The slice of `whole` that belongs to the current member.
    fn part(&mut self, axis: &Expr, whole: S::Value, env: &Env) -> Result<S::Value, BuildError> {
        let (Some((members, current)), Some(slice)) = (self.family, self.structural.slice) else {
            return Err(BuildError::Value("a family has no single instance".into()));
        };
        let axis = eval(axis, env).map_err(|e| BuildError::Value(e.to_string()))?;
        let axis = axis.as_i64().and_then(|a| usize::try_from(a).ok()).unwrap_or(usize::MAX);
        let shape = self.sink.ty(whole).shape;
        let extent = |m: &Member<S::Value>| m.shape.get(axis).cloned();
        let bad = || BuildError::Value("the part has no such axis".into());
        if axis >= shape.len() {
            return Err(bad());
        }
        let mut offset = Extent::from(0);
        for m in &members[..current] {
            offset = &offset + &extent(m).ok_or_else(bad)?;
        }
        let mut start = vec![Extent::from(0); shape.len()];
        start[axis] = offset;
        let step = vec![Extent::from(1); shape.len()];
        let mut size = shape;
        size[axis] = extent(&members[current]).ok_or_else(bad)?;
        let attrs = [start, size, step].map(|v| Some(Attr::Ints(v)));
        Ok(canon::apply(self.sink, self.structural, slice, &attrs, &[whole])?[0])
    }
}

/// Instantiates the body of a definition in a sink: one value per output.
pub fn expand<S: Sink>(
    sink: &mut S,
    structural: Structural,
    library: &Library,
    call: CallId,
    attrs: &[Option<Attr>],
    args: &[S::Value],
) -> Result<Vec<S::Value>, BuildError> {
    let callable = library.call(call);
    let CallKind::Def(body) = &callable.kind else {
        return Err(BuildError::Value(format!("`{}` is no definition", callable.name)));
    };
    let types: Vec<Type> = args.iter().map(|a| sink.ty(*a)).collect();
    let types: Vec<&Type> = types.iter().collect();
    let application = infer(callable, &types, attrs)?;
    let mut env = application.env;
    let values = Instantiator { sink, structural, terms: &body.terms, family: None, ranged: false }
        .run(&body.roots, args, &mut env)?;
    for (v, declared) in values.iter().zip(&application.types) {
        if let Some(reason) = mismatch(&sink.ty(*v), declared) {
            return Err(TypeError::Result { op: callable.name.clone(), reason }.into());
        }
    }
    Ok(values)
}

/// True if a name in `e` stands for an extent that is open.
fn mentions_symbols(e: &Expr, env: &Env) -> bool {
    e.any(&mut |e| {
        matches!(e.kind, ExprKind::Size(_) | ExprKind::Name(_))
            && match eval(e, env) {
                Ok(Attr::Int(n)) => n.as_const().is_none(),
                Ok(Attr::Ints(v)) => v.iter().any(|n| n.as_const().is_none()),
                Ok(
                    Attr::Float(_)
                    | Attr::Floats(_)
                    | Attr::Bool(_)
                    | Attr::Str(_)
                    | Attr::DType(_),
                )
                | Err(_) => false,
            }
    })
}

/// The integer in `float(n)`, which needs no operator: every number here is of the tensor's type.
fn as_float(e: &Expr) -> Option<&Expr> {
    match &e.kind {
        ExprKind::Call(Function::Float, args) => match args.as_slice() {
            [n] => Some(n),
            _ => None,
        },
        _ => None,
    }
}

/// A number taken apart into the name of an operator and its operands.
fn arithmetic(e: &Expr) -> Option<(&str, Vec<&Expr>)> {
    Some(match &e.kind {
        ExprKind::Unary(UnaryOp::Neg, a) => ("neg", vec![&**a]),
        ExprKind::Binary(op, a, b) => {
            let name = match op {
                BinaryOp::Add => "add",
                BinaryOp::Sub => "sub",
                BinaryOp::Mul => "mul",
                BinaryOp::Div => "div",
                BinaryOp::Mod => "modulo",
                BinaryOp::Pow => "pow",
                BinaryOp::MatMul
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Eq
                | BinaryOp::Ne
                | BinaryOp::Lt
                | BinaryOp::Le
                | BinaryOp::Gt
                | BinaryOp::Ge => return None,
            };
            (name, vec![&**a, &**b])
        }
        ExprKind::Call(f, args) => (f.name(), args.iter().collect()),
        _ => return None,
    })
}

/// The values of attribute expressions.
pub fn eval_attrs(attrs: &[Option<Expr>], env: &Env) -> Result<Vec<Option<Attr>>, BuildError> {
    let one = |e: &Expr| eval(e, env).map_err(|e| BuildError::Value(e.to_string()));
    attrs.iter().map(|a| a.as_ref().map(one).transpose()).collect()
}

/// Binds the names of computed dimensions that are still open to the extents found.
pub fn bind_dims(dims: &[Dim], shape: &[Extent], env: &mut Env) {
    if resolve_dims(dims, env).is_err() {
        // What does not fit was typed by the operator already; here names are only learnt.
        let mark = env.mark();
        if crate::typing::infer::unify_dims(dims, shape, env, &[]).is_err() {
            env.rollback(mark);
        }
    }
}
