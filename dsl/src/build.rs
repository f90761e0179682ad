//! Building programs: typed, canonical, with equal nodes shared.

use crate::canon::{self, Sink, Structural};
use crate::eval::Env;
use crate::infer::{TypeError, infer};
pub use crate::instantiate::BuildError;
use crate::instantiate::{self, Instantiator};
use crate::ir::{Attr, DType, Extent, Node, NodeId, NodeKind, Program, Tensor, Type, Value};
use crate::library::{CallId, Library};
use crate::term::{TermId, Terms};
use std::collections::HashMap;

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
        let structural = self.structural;
        Instantiator { sink: self, structural, terms, family: None }.run(roots, vars, env)
    }

    /// Instantiates the body of a definition.
    pub fn expand(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, BuildError> {
        let (library, structural) = (self.library, self.structural);
        instantiate::expand(self, structural, library, call, attrs, args)
    }

    /// Ends the program with these outputs.
    pub fn finish(mut self, outputs: Vec<(String, Value)>) -> Program {
        self.program.outputs = outputs;
        self.program.pruned()
    }
}

/// The body of a definition on arguments of these types, as a program of its own.
pub fn definition(
    library: &Library,
    call: CallId,
    attrs: &[Attr],
    args: &[&Type],
) -> Result<Program, BuildError> {
    let mut b = Builder::new(library);
    let args = args.iter().enumerate().map(|(i, t)| b.input(&i.to_string(), (*t).clone()));
    let args: Vec<Value> = args.collect();
    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    let roots = b.expand(call, &attrs, &args)?;
    Ok(b.finish(roots.iter().enumerate().map(|(i, r)| (i.to_string(), *r)).collect()))
}

/// How the applications of a program that is rebuilt are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// As they stand.
    Kept,
    /// In canonical form.
    Canonical,
}

/// The program with the definitions that `opens` names replaced by their bodies, once. What goes wrong is told with
/// the node.
pub fn unfold(
    program: &Program,
    library: &Library,
    rest: Rest,
    opens: &dyn Fn(NodeId, &Node) -> bool,
) -> Result<Program, (NodeId, BuildError)> {
    let mut b = Builder::new(library);
    let mut new: Vec<Vec<Value>> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let id = NodeId(i as u32);
        b.set_origin(&node.origin);
        new.push(match &node.kind {
            NodeKind::Input(k) => {
                let (name, ty) = &program.inputs[*k as usize];
                vec![b.input(name, ty.clone())]
            }
            NodeKind::Const(c) => vec![b.constant(program.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let arg = |a: &Value| new[a.node.0 as usize][a.output as usize];
                let args: Vec<Value> = node.args.iter().map(arg).collect();
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                let made = match (opens(id, node), rest) {
                    (true, _) => b.expand(*call, &attrs, &args),
                    (false, Rest::Kept) => b.raw(*call, &attrs, &args).map_err(BuildError::Type),
                    (false, Rest::Canonical) => {
                        b.apply(*call, &attrs, &args).map_err(BuildError::Type)
                    }
                };
                made.map_err(|e| (id, e))?
            }
        });
    }
    let value = |v: &Value| new[v.node.0 as usize][v.output as usize];
    let outputs = program.outputs.iter().map(|(n, v)| (n.clone(), value(v))).collect();
    Ok(b.finish(outputs))
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

    fn scalar(&mut self, dtype: DType, v: f64) -> Value {
        self.constant(Tensor::from_f64(dtype, vec![], &[v]))
    }

    fn peel(&self, v: Value, call: CallId) -> Option<(Value, Vec<Attr>)> {
        let node = self.program.node(v.node);
        match &node.kind {
            NodeKind::Apply(c, attrs) if *c == call => Some((node.args[0], attrs.clone())),
            _ => None,
        }
    }
}
