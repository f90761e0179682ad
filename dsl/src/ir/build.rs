//! Builds programs: typed, canonical, with common subexpressions shared.

use super::attr::Attr;
use super::dtype::DType;
use super::extent::Extent;
use super::program::{Node, NodeId, NodeKind, Program, Value};
use super::tensor::Tensor;
use super::ty::Type;
use crate::eval::Env;
use crate::ir::canon::{self, Sink, Structural};
use crate::library::{CallId, Library};
use crate::term::{TermId, Terms};
use crate::typing::infer::{TypeError, infer};
pub use crate::typing::instantiate::BuildError;
use crate::typing::instantiate::{self, Instantiator};
use std::collections::HashMap;

/// A program under construction.
pub struct Builder<'a> {
    /// Where the operators that are applied are declared; every application is typed by it.
    pub library: &'a Library,
    program: Program,
    structural: Structural,
    known: HashMap<(NodeKind, Vec<Value>), NodeId>,
    origin: String,
    groups: Vec<Vec<NodeId>>,
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
            groups: Vec::new(),
        }
    }

    /// The operators of the notation.
    pub fn structural(&self) -> Structural {
        self.structural
    }

    /// The name, for messages, of nodes that are added from now on.
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
        Instantiator { sink: self, structural, terms, family: None, ranged: false }
            .run(roots, vars, env)
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
    pub fn finish(self, outputs: Vec<(String, Value)>) -> Program {
        self.finish_grouped(outputs).0
    }

    /// Notes that one kernel was chosen to compute these nodes together, as far as they are applications.
    pub fn group(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let mut nodes: Vec<NodeId> = nodes.filter(|n| self.program.is_applied(*n)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if !nodes.is_empty() {
            self.groups.push(nodes);
        }
    }

    /// The program of the given outputs, and the groups of nodes that it has whole.
    pub fn finish_grouped(mut self, outputs: Vec<(String, Value)>) -> (Program, Vec<Vec<NodeId>>) {
        let groups = std::mem::take(&mut self.groups);
        let (program, left) = self.finish_by(outputs);
        let whole = |group: &Vec<NodeId>| group.iter().map(|n| left[n.0 as usize]).collect();
        (program, groups.iter().filter_map(whole).collect())
    }

    /// The program of the given outputs, and the new id of each node that it has.
    pub fn finish_by(mut self, outputs: Vec<(String, Value)>) -> (Program, Vec<Option<NodeId>>) {
        self.program.outputs = outputs;
        self.program.pruned_by()
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

    fn scalar(&mut self, dtype: DType, v: f64) -> Result<Value, TypeError> {
        Ok(self.constant(Tensor::from_f64(dtype, vec![], &[v])))
    }

    fn peel(&self, v: Value, call: CallId) -> Option<(Value, Vec<Attr>)> {
        let node = self.program.node(v.node);
        match &node.kind {
            NodeKind::Apply(c, attrs) if *c == call => Some((node.args[0], attrs.clone())),
            _ => None,
        }
    }
}
