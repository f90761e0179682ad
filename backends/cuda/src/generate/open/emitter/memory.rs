//! Elements of memory: where they are, loads and stores, and reads whose index may leave its axis.

use super::super::form::Form;
use super::super::program::product;
use super::{Known, OpenEmitter};
use crate::generate::emit::{BoundsCheck, ElementWriter, NodeScope, StatementWriter, checked};
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Read, Real};
use mlc_dsl::ir::{DType, Extent, Value};

impl OpenEmitter<'_> {
    /// The offset of an element in memory.
    pub fn offset(&self, v: Value, index: &[Form]) -> Form {
        let shape = self.kernel.shape(v);
        let strides = (0..shape.len()).map(|k| product(&shape[k + 1..]));
        let zero = Form::number(Extent::from(0));
        let mut all = index.iter().zip(strides).zip(shape).filter(|(_, n)| !n.is(1));
        let sum = all.try_fold(zero, |sum, ((i, stride), _)| sum.plus(i, &stride));
        sum.expect("the elements of a value are counted by an extent")
    }

    /// Loads an element from memory.
    pub(super) fn load(&mut self, v: Value, offset: &Form) -> String {
        self.read.insert(v);
        let key = Known::Load(v, offset.clone());
        if let Some(name) = self.scopes.name_of(&key) {
            return name;
        }
        let (kind, text) = (ScalarKind::of(self.kernel.dtype(v)), self.form(offset));
        let element = format!("{}[{text}]", self.stored[&v]);
        let text = spell::loaded(self.kernel.dtype(v), &element, kind == ScalarKind::Real(true));
        let name = self.local();
        self.line(format!("{} {name} = {text};", kind.name()));
        self.raw.insert(name.clone(), (self.kernel.dtype(v), element));
        self.scopes.remember(key, &name);
        name
    }

    /// Stores an element of the result.
    pub fn store(&mut self, v: Value, index: &[Form], text: &str) {
        let offset = self.offset(v, index);
        let place = self.form(&offset);
        let element = self.stored_element(self.kernel.dtype(v), text);
        self.line(format!("out[{place}] = {element};"));
    }

    /// A computed number as an element of memory: a float of 16 bits that was read there is not rounded again.
    pub fn stored_element(&self, dtype: DType, text: &str) -> String {
        match self.raw.get(text) {
            Some((of, element)) if dtype.is_half() && *of == dtype => element.clone(),
            _ => spell::element(dtype, text),
        }
    }

    /// The name of a value in memory, which the function reads.
    pub fn memory(&mut self, v: Value) -> String {
        self.read.insert(v);
        self.stored[&v].clone()
    }

    /// Where what is read lies in memory, through views, if it is there as it is and no index can leave its axis.
    pub fn memory_of<E>(&mut self, scope: NodeScope, read: &Read<E>) -> Option<(Value, Form)> {
        let of = self.source(scope, read.input);
        if read.otherwise.is_some() || self.kernel.constant(of).is_some() {
            return None;
        }
        let shape = self.kernel.shape(of).to_vec();
        let linear = read.linear.as_ref().and_then(|l| self.linear(l));
        let is_inside = linear.as_ref().is_some_and(|l| self.is_within(l, &product(&shape)));
        if self.stored.contains_key(&of)
            && let Some(offset) = linear.filter(|_| is_inside)
        {
            return Some((of, offset));
        }
        let mut index = vec![];
        for (i, n) in read.index.iter().zip(&shape) {
            index.push(self.linear(i).filter(|f| is_inside || self.is_within(f, n))?);
        }
        if self.stored.contains_key(&of) {
            return Some((of, self.offset(of, &index)));
        }
        let kernel = self.kernel;
        match &kernel.code(of)?.body {
            Body::Real(Real::Read(next)) => {
                self.part_of_code(of, &index, &[], |e, scope| e.memory_of(scope, next))
            }
            _ => None,
        }
    }

    /// The value that the node reads as its input of this number.
    pub fn source(&self, scope: NodeScope, input: usize) -> Value {
        self.kernel.program.node(scope.node.node).args[input]
    }

    /// A new variable of an axis whose position is computed.
    fn position(&mut self, text: &str, n: &Extent) -> Form {
        let (v, name) = self.variable(n);
        let kind = self.index;
        self.line(format!("{kind} {name} = ({kind}){text};"));
        Form::variable(v)
    }

    /// An element of an input, or something else where the index leaves it.
    pub(super) fn read_element<E>(
        &mut self,
        scope: NodeScope,
        read: &Read<E>,
        kind: &str,
        otherwise: &dyn Fn(&mut Self) -> Option<String>,
    ) -> String {
        let of = self.source(scope, read.input);
        let shape = self.kernel.shape(of).to_vec();
        let linear = read.linear.as_ref().and_then(|l| self.linear(l));
        let is_inside = linear.as_ref().is_some_and(|l| self.is_within(l, &product(&shape)));
        if let Some(offset) = linear.filter(|_| is_inside && self.stored.contains_key(&of)) {
            return self.load(of, &offset);
        }
        let (mut index, mut checks, mut whole) = (vec![], vec![], vec![]);
        for (axis, (i, n)) in read.index.iter().zip(&shape).enumerate() {
            let form = self.linear(i);
            let text = match &form {
                Some(form) => self.form(form),
                None => {
                    scope.remainders(self, i, &mut whole);
                    let text = scope.int(self, i);
                    let name = self.local();
                    self.line(format!("long long {name} = {text};"));
                    name
                }
            };
            if !is_inside && !form.as_ref().is_some_and(|f| self.is_within(f, n)) {
                let extent = self.number(n);
                checks.push(BoundsCheck { index: text.clone(), axis, extent });
            }
            index.push(form.ok_or(text));
        }
        // What is read only where this lies inside is not checked again.
        checks.retain(|c| !self.within.contains(&(c.index.clone(), c.extent.clone())));
        let element = |e: &mut Self| {
            let mut at = vec![];
            for (i, n) in index.iter().zip(&shape) {
                at.push(match i {
                    Ok(form) => form.clone(),
                    Err(text) => e.position(text, n),
                });
            }
            e.element(of, &at)
        };
        if checks.is_empty() && whole.is_empty() {
            return element(self);
        }
        if self.found.is_none() && read.otherwise.is_none() {
            self.faults = true;
        }
        let known = self.within.len();
        let inner = |e: &mut Self| {
            e.within.extend(checks.iter().map(|c| (c.index.clone(), c.extent.clone())));
            let name = element(e);
            e.within.truncate(known);
            name
        };
        let node = self.first_node + scope.node.node.0 as usize;
        checked(self, kind, node, &checks, &whole, inner, otherwise)
    }
}
