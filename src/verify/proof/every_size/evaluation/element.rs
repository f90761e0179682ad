//! Elements of tensors at an index, as meanings say.

use super::super::condition::Condition;
use super::super::integer::{Atom, Int};
use super::super::item::Item;
use super::super::list::{List, Outcome, Part, small, unsupported};
use super::super::value::{Bound, Factor, Value};
use super::{Application, Evaluation, Frame, Scope, Tensor};
use mlc_dsl::expr::{Expr, ExprKind, IndexVar, Meaning, Reduce};
use mlc_dsl::library::CallKind;
use mlc_dsl::term::TermKind;

/// Operators in operators at most.
const DEPTH: usize = 200;

impl Evaluation<'_> {
    /// The element of a tensor at an index.
    pub(crate) fn element(&mut self, t: Tensor, index: &List) -> Outcome<Value> {
        self.nesting += 1;
        let out = match self.nesting > DEPTH {
            true => unsupported("its operators nest too deep"),
            false => self.element_within(t, index),
        };
        self.nesting -= 1;
        out
    }

    fn element_within(&mut self, t: Tensor, index: &List) -> Outcome<Value> {
        self.step()?;
        let (t, output) = self.resolved(t)?;
        let (scope, id) = match t {
            Tensor::Var(i) => return Ok(self.values.of(Factor::Read(i, index.clone()))),
            Tensor::Term(scope, id) => (scope, id),
        };
        let terms = self.scopes[scope].terms;
        if let TermKind::Scalar(e) = &terms.get(id).kind {
            let item = self.expr(scope, None, e)?;
            return item.value(&mut self.values);
        }
        let of = self.application(scope, id)?;
        let library = self.library;
        let c = library.call(of.call);
        match &c.kind {
            CallKind::Op(_) if c.recurrence.is_some() => {
                unsupported(format!("`{}` is a recurrence", c.name))
            }
            CallKind::Op(meanings) => self.meaning(&of, &meanings[output], output, index),
            CallKind::Def(body) if body.roots.is_empty() => {
                unsupported(format!("`{}` has no body", c.name))
            }
            CallKind::Def(body) => {
                let scope = match self.bodies.get(&(scope, id)) {
                    Some(known) => *known,
                    None => {
                        let inputs = of.args.clone();
                        let names = Some(of.names.clone());
                        self.scopes.push(Scope { terms: &body.terms, inputs, names });
                        self.bodies.insert((scope, id), self.scopes.len() - 1);
                        self.scopes.len() - 1
                    }
                };
                self.element(Tensor::Term(scope, body.roots[output]), index)
            }
            CallKind::Extern(_) => unsupported(format!("`{}` is a procedure", c.name)),
        }
    }

    pub(super) fn meaning(
        &mut self,
        of: &Application,
        meaning: &Meaning,
        output: usize,
        index: &List,
    ) -> Outcome<Value> {
        let mut indices: Vec<Option<Item>> = vec![None; meaning.variables];
        let mut first = 0;
        for (var, dim) in meaning.index.iter().zip(&of.outputs[output]) {
            let end = first + dim.0.len();
            if end > index.0.len() {
                return unsupported("an index has fewer entries than axes");
            }
            let own = List(index.0[first..end].to_vec());
            own.aligned(dim)?;
            indices[var.id] = Some(match (var.segment, own.0.as_slice()) {
                (false, [Part::One(i)]) => Item::Int(i.clone()),
                _ => Item::List(own),
            });
            first = end;
        }
        let mut frame = Frame { of, indices };
        self.meant(&mut frame, &meaning.value)?.value(&mut self.values)
    }

    /// An expression of a meaning.
    pub(super) fn meant(&mut self, frame: &mut Frame<'_>, e: &Expr) -> Outcome<Item> {
        match &e.kind {
            ExprKind::Index(i) => match &frame.indices[*i] {
                Some(item) => Ok(item.clone()),
                None => unsupported("an index has no value"),
            },
            ExprKind::Read(read) => {
                let index = self.spliced(&read.index, &mut |s, e| s.meant(frame, e))?;
                let Some(arg) = frame.of.args.get(read.input).copied() else {
                    return unsupported("it reads its own results");
                };
                let Some(otherwise) = &read.otherwise else {
                    return self.element(arg, &index).map(Item::Value);
                };
                let inside = self.within(arg, &index)?;
                let outside = self.meant(frame, otherwise)?.value(&mut self.values)?;
                self.cases(inside, |s| s.element(arg, &index), |_| Ok(outside)).map(Item::Value)
            }
            ExprKind::Reduce(r) => self.reduction(frame, r).map(Item::Value),
            ExprKind::Lowest => Ok(Item::Value(self.values.of(Factor::Lowest))),
            ExprKind::DTypeVar(n) => Ok(Item::TypeVar(n.clone())),
            ExprKind::Name(n) | ExprKind::Size(n) => {
                let names = &frame.of.names;
                self.name(0, Some(names), n)
            }
            ExprKind::If { cond, then, otherwise } => {
                let cond = self.meant(frame, cond)?;
                match cond {
                    Item::Truth(c) => {
                        if let Some(known) = self.values.decided(c.clone())? {
                            return self.meant(frame, if known { then } else { otherwise });
                        }
                        let known = self.values.knowledge.clone();
                        self.values.knowledge.learn(&c);
                        let a = self.meant(frame, then);
                        self.values.knowledge = known.clone();
                        self.values.knowledge.learn(&c.clone().negated());
                        let b = self.meant(frame, otherwise);
                        self.values.knowledge = known;
                        let (a, b) = (a?.value(&mut self.values)?, b?.value(&mut self.values)?);
                        self.values.chosen(c, &a, &b).map(Item::Value)
                    }
                    cond => {
                        let c = cond.value(&mut self.values)?;
                        let a = self.meant(frame, then)?.value(&mut self.values)?;
                        let b = self.meant(frame, otherwise)?.value(&mut self.values)?;
                        self.values.choice(&c, &a, &b).map(Item::Value)
                    }
                }
            }
            ExprKind::Unary(op, a) => {
                let a = self.meant(frame, a)?;
                self.unary(*op, a)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.meant(frame, a)?, self.meant(frame, b)?);
                self.binary(*op, a, b)
            }
            ExprKind::Call(f, args) => {
                let args =
                    args.iter().map(|a| self.meant(frame, a)).collect::<Outcome<Vec<_>>>()?;
                self.call(*f, args)
            }
            ExprKind::List(elems) => {
                Ok(Item::List(self.spliced(elems, &mut |s, e| s.meant(frame, e))?))
            }
            ExprKind::Entry(n, at) => {
                let list = self.name(0, Some(&frame.of.names), n)?.list()?;
                let at = self.meant(frame, at)?.int(&mut self.values)?;
                Ok(Item::Int(list.entry(&at)?))
            }
            _ => self.expr(0, Some(&frame.of.names), e),
        }
    }

    /// Whether an index lies within a tensor.
    pub(super) fn within(&mut self, arg: Tensor, index: &List) -> Outcome<Condition> {
        let shape = self.shape(arg)?;
        index.aligned(&shape)?;
        let mut out = Condition::Known(true);
        for (i, n) in index.0.iter().zip(&shape.0) {
            let last =
                small(n.entry().plus(-1, i.entry()).and_then(|d| d.plus(-1, &Int::from(1))))?;
            let both = Condition::AtLeastZero(i.entry().clone()).and(Condition::AtLeastZero(last));
            out = out.and(both.at(i.space()));
        }
        Ok(out)
    }

    /// One value where a condition holds, another one where not.
    pub(super) fn cases(
        &mut self,
        c: Condition,
        then: impl FnOnce(&mut Self) -> Outcome<Value>,
        otherwise: impl FnOnce(&mut Self) -> Outcome<Value>,
    ) -> Outcome<Value> {
        match self.values.decided(c.clone())? {
            Some(true) => return then(self),
            Some(false) => return otherwise(self),
            None => {}
        }
        let known = self.values.knowledge.clone();
        self.values.knowledge.learn(&c);
        let a = then(self);
        self.values.knowledge = known.clone();
        self.values.knowledge.learn(&c.clone().negated());
        let b = otherwise(self);
        self.values.knowledge = known;
        self.values.chosen(c, &a?, &b?)
    }

    pub(super) fn reduction(&mut self, frame: &mut Frame<'_>, r: &Reduce) -> Outcome<Value> {
        let mut bounds = Vec::new();
        for IndexVar { id, name, segment } in &r.over {
            let extents = self.name(0, Some(&frame.of.names), name)?;
            let extents = match extents {
                Item::Int(n) if !segment => List(vec![Part::One(n)]),
                other => other.list()?,
            };
            let mut indices = Vec::new();
            for part in &extents.0 {
                let index = self.values.index();
                let space = part.space().cloned();
                bounds.push(Bound { index, range: part.entry().clone(), space });
                indices.push(part.with(Int::from(Atom::Index(index))));
            }
            frame.indices[*id] = Some(match (segment, indices.as_slice()) {
                (false, [Part::One(i)]) => Item::Int(i.clone()),
                _ => Item::List(List(indices)),
            });
        }
        let (known, open) = (self.values.knowledge.clone(), self.values.open.len());
        for b in &bounds {
            self.values.learn_range(b);
            self.values.open.push(b.index);
        }
        let body = self.meant(frame, &r.body).and_then(|b| b.value(&mut self.values));
        self.values.knowledge = known;
        self.values.open.truncate(open);
        self.values.reduce(r.monoid, &bounds, &body?)
    }
}
