//! Binds the names of an operator's signature to the axes of its operands.

use super::super::condition::Condition;
use super::super::integer::Int;
use super::super::item::Item;
use super::super::list::{AxisKind, List, Outcome, Part, Stuck, small, unsupported};
use super::Evaluation;
use mlc_dsl::library::{AttrParam, Dim, Name, TypePattern};
use std::collections::HashMap;

impl Evaluation<'_> {
    /// Binds the names of a parameter's type to the extents of an argument.
    pub(super) fn bind(
        &mut self,
        ty: &TypePattern,
        shape: &List,
        attrs: &[AttrParam],
        names: &mut HashMap<Name, Item>,
    ) -> Outcome<()> {
        let Some(dims) = &ty.dims else { return unsupported("a parameter takes any shape") };
        let mut first = 0;
        let mut last = shape.0.len();
        let mut dims: &[Dim] = dims;
        // From the front up to the first segment whose length is open, then from the back.
        loop {
            match dims {
                [] if first == last => return Ok(()),
                [] => return unsupported("an operand has more axes than its parameter"),
                [Dim::Seg(n), rest @ ..] => match names.get(n) {
                    Some(known) => {
                        let known = known.clone().list()?;
                        let end = first + known.0.len();
                        if end > last {
                            return self.misaligned(&List(shape.0[first..last].to_vec()), &known);
                        }
                        self.same(&List(shape.0[first..end].to_vec()), &known)?;
                        (first, dims) = (end, rest);
                    }
                    None => break,
                },
                [dim, rest @ ..] => {
                    self.bind_one(dim, shape, first, last, false, names)?;
                    (first, dims) = (first + 1, rest);
                }
            }
        }
        loop {
            match dims {
                [Dim::Seg(n)] => {
                    let own = List(shape.0[first..last].to_vec());
                    names.insert(n.clone(), Item::List(own));
                    return Ok(());
                }
                [rest @ .., Dim::Seg(n)] => match names.get(n) {
                    Some(known) => {
                        let known = known.clone().list()?;
                        let Some(start) = last.checked_sub(known.0.len()).filter(|s| *s >= first)
                        else {
                            return self.misaligned(&List(shape.0[first..last].to_vec()), &known);
                        };
                        self.same(&List(shape.0[start..last].to_vec()), &known)?;
                        (last, dims) = (start, rest);
                    }
                    None => break,
                },
                [rest @ .., dim] => {
                    self.bind_one(dim, shape, first, last, true, names)?;
                    (last, dims) = (last - 1, rest);
                }
                [] => return unsupported("an operand has fewer axes than its parameter"),
            }
        }
        // Two segments around an axis whose position is an attribute.
        let [Dim::Seg(before), Dim::Axis(axis), Dim::Seg(after)] = dims else {
            return unsupported("the axes of an operand cannot be told apart");
        };
        let position = attrs.iter().find(|a| a.ty.axis() == Some(axis));
        let Some(Item::Int(position)) = position.and_then(|a| names.get(&a.name)).cloned() else {
            return unsupported("the position of an axis is not given");
        };
        let own = List(shape.0[first..last].to_vec());
        let at = own.at(&position)?;
        let Some(Part::One(extent)) = own.0.get(at) else {
            return self.single(&own, at, true);
        };
        names.insert(before.clone(), Item::List(List(own.0[..at].to_vec())));
        names.insert(axis.clone(), Item::Int(extent.clone()));
        names.insert(after.clone(), Item::List(List(own.0[at + 1..].to_vec())));
        Ok(())
    }

    /// Binds the dimension at one end of what is left of a shape.
    pub(super) fn bind_one(
        &mut self,
        dim: &Dim,
        shape: &List,
        first: usize,
        last: usize,
        back: bool,
        names: &mut HashMap<Name, Item>,
    ) -> Outcome<()> {
        if first == last {
            return unsupported("an operand has fewer axes than its parameter");
        }
        let at = if back { last - 1 } else { first };
        let Part::One(extent) = &shape.0[at] else { return self.single(shape, at, !back) };
        match dim {
            Dim::Axis(n) => match names.get(n).cloned() {
                Some(known) => {
                    let known = known.int(&mut self.values)?;
                    self.equal(extent, &known)
                }
                None => {
                    names.insert(n.clone(), Item::Int(extent.clone()));
                    Ok(())
                }
            },
            Dim::Value(e) => {
                let known = self.expr(0, Some(names), e)?.int(&mut self.values)?;
                self.equal(extent, &known)
            }
            Dim::Seg(_) | Dim::Splice(_) => unsupported("a list in the place of an axis"),
        }
    }

    /// An axis of a segment has to be told apart from the others.
    pub(super) fn single<T>(&self, shape: &List, at: usize, front: bool) -> Outcome<T> {
        match shape.0.get(at) {
            Some(Part::Each(space, _)) if space.path.is_empty() => {
                let kinds = match front {
                    true => vec![AxisKind::One, AxisKind::Each(None)],
                    false => vec![AxisKind::Each(None), AxisKind::One],
                };
                Err(Stuck::Axes(space.base.clone(), kinds))
            }
            _ => unsupported("an axis of a permuted segment is named"),
        }
    }

    pub(super) fn misaligned<T>(&self, own: &List, known: &List) -> Outcome<T> {
        own.aligned(known)?;
        unsupported("an operand has fewer axes than its parameter")
    }

    /// Two lists of extents that a type says are the same.
    pub(crate) fn same(&mut self, a: &List, b: &List) -> Outcome<()> {
        a.aligned(b)?;
        a.0.iter().zip(&b.0).try_for_each(|(a, b)| match a {
            Part::One(_) => self.equal(a.entry(), b.entry()),
            Part::Each(space, _) => {
                let difference = small(a.entry().plus(-1, b.entry()))?;
                let same = Condition::Every(space.clone(), Box::new(Condition::Zero(difference)));
                self.equalities(&same)?;
                self.values.knowledge.learn(&same);
                Ok(())
            }
        })
    }

    pub(super) fn equal(&mut self, a: &Int, b: &Int) -> Outcome<()> {
        let same = Condition::Zero(small(a.plus(-1, b))?);
        if a != b {
            self.equalities(&same)?;
            self.values.knowledge.learn(&same);
        }
        Ok(())
    }
}
