//! Building programs: typed, canonical, with equal nodes shared.

use crate::canon::{self, Sink, Structural};
use crate::eval::{Env, eval};
use crate::infer::{TypeError, infer, resolve_dims};
use crate::ir::{Attr, Extent, Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use crate::library::{Body, CallId, DTypePattern, Library};
use crate::term::{TermId, TermKind, Terms};
use std::collections::HashMap;
use thiserror::Error;

/// Why a term has no instance.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BuildError {
    /// An application is ill-typed.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// An attribute or a scalar has no value.
    #[error("{0}")]
    Value(String),
}

/// A program under construction.
pub struct Builder<'a> {
    /// The declarations.
    pub library: &'a Library,
    program: Program,
    structural: Structural,
    known: HashMap<(NodeKind, Vec<Value>), NodeId>,
    origin: String,
}

impl<'a> Builder<'a> {
    /// An empty program.
    pub fn new(library: &'a Library) -> Builder<'a> {
        Builder {
            library,
            program: Program::default(),
            structural: Structural::of(library),
            known: HashMap::new(),
            origin: String::new(),
        }
    }

    /// The operators of the notation.
    pub fn structural(&self) -> Structural {
        self.structural
    }

    /// The name that nodes added from now on bear for messages.
    pub fn set_origin(&mut self, origin: &str) {
        self.origin = origin.to_string();
    }

    /// The program so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        self.program.ty(v)
    }

    /// Adds an input.
    pub fn input(&mut self, name: &str, ty: Type) -> Value {
        let index = self.program.inputs.len() as u32;
        self.program.inputs.push((name.to_string(), ty.clone()));
        self.node(NodeKind::Input(index), vec![], vec![ty])
    }

    /// Adds a constant.
    pub fn constant(&mut self, tensor: Tensor) -> Value {
        let ty = Type::known(tensor.dtype(), tensor.shape());
        let id = self.program.consts.intern(tensor);
        self.node(NodeKind::Const(id), vec![], vec![ty])
    }

    fn node(&mut self, kind: NodeKind, args: Vec<Value>, types: Vec<Type>) -> Value {
        let key = (kind.clone(), args.clone());
        let node = match self.known.get(&key) {
            Some(&id) => id,
            None => {
                let origin = self.origin.clone();
                let id = self.program.push(Node { kind, args, types, origin });
                self.known.insert(key, id);
                id
            }
        };
        Value { node, output: 0 }
    }

    /// Applies an operator, in canonical form. Attributes that are `None` take their defaults.
    pub fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, TypeError> {
        let structural = self.structural;
        canon::apply(self, structural, call, attrs, args)
    }

    /// `x` under another shape.
    pub fn reshape(&mut self, x: Value, shape: &[Extent]) -> Result<Value, TypeError> {
        let structural = self.structural;
        canon::reshape(self, structural, x, shape)
    }

    /// `x` with its axis `i` at `map[i]` of a result of the given shape.
    pub fn broadcast(
        &mut self,
        x: Value,
        map: &[i64],
        shape: &[Extent],
    ) -> Result<Value, TypeError> {
        let structural = self.structural;
        canon::broadcast(self, structural, x, map, shape)
    }

    /// Instantiates terms over values of their variables; `env` binds attributes and, from the
    /// variables' types, axes. Yields one value per root.
    pub fn instantiate(
        &mut self,
        terms: &Terms,
        roots: &[TermId],
        vars: &[Value],
        env: &mut Env,
    ) -> Result<Vec<Value>, BuildError> {
        let mut done: HashMap<TermId, Vec<Value>> = HashMap::new();
        for &root in roots {
            self.instantiate_one(terms, root, vars, env, &mut done)?;
        }
        Ok(roots.iter().map(|r| done[r][0]).collect())
    }

    fn instantiate_one(
        &mut self,
        terms: &Terms,
        root: TermId,
        vars: &[Value],
        env: &mut Env,
        done: &mut HashMap<TermId, Vec<Value>>,
    ) -> Result<(), BuildError> {
        let mut stack = vec![(root, false)];
        while let Some((t, ready)) = stack.pop() {
            if done.contains_key(&t) {
                continue;
            }
            let term = terms.get(t);
            if !ready {
                stack.push((t, true));
                // The first argument is instantiated first: it may name axes for the others.
                stack.extend(term.args.iter().rev().map(|&a| (a, false)));
                continue;
            }
            let args: Vec<Value> = term.args.iter().map(|a| done[a][0]).collect();
            let values = match &term.kind {
                TermKind::Var(i) => vec![vars[*i]],
                TermKind::Scalar(e) => {
                    let v = eval(e, env).map_err(|e| BuildError::Value(e.to_string()))?;
                    let v = v.as_f64().ok_or_else(|| {
                        BuildError::Value(format!("{v} is not a known number"))
                    })?;
                    let dtype = match &term.dtype {
                        DTypePattern::Fixed(d) => *d,
                        DTypePattern::Var(n) => env.dtype(n).ok_or_else(|| {
                            BuildError::Value(format!("element type `{n}` is not bound"))
                        })?,
                    };
                    vec![self.constant(Tensor::from_f64(dtype, vec![], &[v]))]
                }
                TermKind::Apply(call, attrs) => {
                    let attrs = eval_attrs(attrs, env)?;
                    self.apply(*call, &attrs, &args)?
                }
                TermKind::Output(i) => {
                    let whole = done[&term.args[0]][0];
                    vec![Value { node: whole.node, output: *i as u32 }]
                }
                TermKind::EachFold(..) | TermKind::EachPart(_) => {
                    return Err(BuildError::Value("a family has no single instance".into()));
                }
            };
            if let (Some(dims), [v]) = (&term.dims, values.as_slice()) {
                let shape = self.ty(*v).shape.clone();
                bind_dims(dims, &shape, env);
            }
            done.insert(t, values);
        }
        Ok(())
    }

    /// Instantiates the body of a definition.
    pub fn expand(
        &mut self,
        call: CallId,
        body: &Body,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, BuildError> {
        let library = self.library;
        let types: Vec<Type> = args.iter().map(|&a| self.ty(a).clone()).collect();
        let types: Vec<&Type> = types.iter().collect();
        let mut env = infer(library.call(call), &types, attrs)?.env;
        self.instantiate(&body.terms, &body.roots, args, &mut env)
    }

    /// Ends the program with these outputs.
    pub fn finish(mut self, outputs: Vec<(String, Value)>) -> Program {
        self.program.outputs = outputs;
        self.program.pruned()
    }
}

/// The values of attribute expressions.
pub fn eval_attrs(
    attrs: &[Option<crate::syntax::ast::Expr>],
    env: &Env,
) -> Result<Vec<Option<Attr>>, BuildError> {
    attrs
        .iter()
        .map(|a| match a {
            Some(e) => eval(e, env).map(Some).map_err(|e| BuildError::Value(e.to_string())),
            None => Ok(None),
        })
        .collect()
}

/// Binds the names of computed dimensions that are still open to the extents found.
pub fn bind_dims(dims: &[crate::library::Dim], shape: &[Extent], env: &mut Env) {
    if resolve_dims(dims, env).is_err() {
        // What does not fit was typed by the operator already; here names are only learnt.
        let mark = env.mark();
        if crate::infer::unify_dims(dims, shape, env, &[]).is_err() {
            env.rollback(mark);
        }
    }
}

impl Sink for Builder<'_> {
    type Value = Value;

    fn ty(&self, v: Value) -> Type {
        self.program.ty(v).clone()
    }

    fn raw(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, TypeError> {
        let types: Vec<&Type> = args.iter().map(|&a| self.program.ty(a)).collect();
        let app = infer(self.library.call(call), &types, attrs)?;
        let outputs = app.types.len() as u32;
        let v = self.node(NodeKind::Apply(call, app.attrs), args.to_vec(), app.types);
        Ok((0..outputs).map(|output| Value { output, ..v }).collect())
    }

    fn peel(&self, v: Value, call: CallId) -> Option<(Value, Vec<Attr>)> {
        let node = self.program.node(v.node);
        match &node.kind {
            NodeKind::Apply(c, attrs) if *c == call => Some((node.args[0], attrs.clone())),
            _ => None,
        }
    }
}
