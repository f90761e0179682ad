//! Reductions of index notation; a sum of products is a matrix product.

use super::{Axis, Item, Sources, WholeTensors};
use crate::expr::{BinaryOp, Expr, ExprKind, Monoid, Reduce};
use crate::ir::{Attr, Extent, Value};

impl<S: Sources> WholeTensors<'_, '_, S> {
    pub(super) fn reduce(&mut self, r: &Reduce) -> Option<Item> {
        let over = self.declare(&r.over)?;
        if r.monoid == Monoid::Sum
            && let [axis] = over[..]
            && let Some(product) = self.product(&r.body, axis)
        {
            return Some(product);
        }
        let item = self.expr(&r.body)?;
        let (v, own) = self.whole(item, self.dtype)?;
        let mut axes: Vec<Axis> = own.iter().chain(&over).copied().collect();
        axes.sort_unstable();
        axes.dedup();
        let v = self.spread(v, &own, &axes)?;
        let places = over.iter().map(|a| axes.iter().position(|b| a == b).unwrap_or(0) as i64);
        let mut places: Vec<i64> = places.collect();
        places.sort_unstable();
        let left: Vec<Axis> = axes.into_iter().filter(|a| !over.contains(a)).collect();
        if places.is_empty() {
            return Some(Item::Whole(v, left));
        }
        Some(Item::Whole(self.call(r.monoid.word(), &[("axes", Attr::ints(places))], &[v])?, left))
    }

    /// A sum of products along one axis as a matrix product, with what does not depend on the axis in front.
    fn product(&mut self, body: &Expr, axis: Axis) -> Option<Item> {
        let mut factors = vec![];
        factors_of(body, &mut factors);
        let mut inside: Option<Item> = None;
        let mut outside: Option<Item> = None;
        let mut pair: Vec<(Value, Vec<Axis>)> = vec![];
        for f in factors {
            let item = self.expr(f)?;
            match item {
                Item::Whole(v, axes) if axes.contains(&axis) && pair.len() < 2 => {
                    pair.push((v, axes));
                }
                Item::Whole(_, ref axes) if axes.contains(&axis) => {
                    inside = Some(match inside {
                        None => item,
                        Some(other) => self.apply("mul", vec![other, item])?,
                    });
                }
                item => {
                    outside = Some(match outside {
                        None => item,
                        Some(other) => self.apply("mul", vec![other, item])?,
                    });
                }
            }
        }
        let [mut a, b] = <[_; 2]>::try_from(pair).ok()?;
        if let Some(inside) = inside {
            let item = self.apply("mul", vec![Item::Whole(a.0, a.1), inside])?;
            a = self.whole(item, self.dtype)?;
        }
        let both: Vec<Axis> =
            a.1.iter().filter(|x| **x != axis && b.1.contains(x)).copied().collect();
        let only = |x: &[Axis]| -> Vec<Axis> {
            x.iter().filter(|x| **x != axis && !both.contains(x)).copied().collect()
        };
        let (rows, columns) = (only(&a.1), only(&b.1));
        let left = self.matrix(a.0, &a.1, &both, &[rows.as_slice(), &[axis]])?;
        let right = self.matrix(b.0, &b.1, &both, &[&[axis], columns.as_slice()])?;
        let v = self.call("matmul", &[], &[left, right])?;
        let axes = [both, rows, columns].concat();
        let shape = self.extents(&axes)?;
        let v = self.builder.reshape(v, &shape).ok()?;
        let mut order: Vec<usize> = (0..axes.len()).collect();
        order.sort_by_key(|&i| axes[i]);
        let v = self.transposed(v, &order)?;
        let product = Item::Whole(v, order.iter().map(|&i| axes[i]).collect());
        match outside {
            None => Some(product),
            Some(outside) => self.apply("mul", vec![outside, product]),
        }
    }

    /// A tensor with the axes of a batch, and two more for the axes of each side together.
    fn matrix(
        &mut self,
        v: Value,
        own: &[Axis],
        batch: &[Axis],
        sides: &[&[Axis]; 2],
    ) -> Option<Value> {
        let axes = [batch, sides[0], sides[1]].concat();
        let v = self.spread(v, own, &axes)?;
        let mut shape = self.extents(batch)?;
        for side in sides {
            let extents = self.extents(side)?;
            shape.push(extents.iter().fold(Extent::from(1), |n, e| &n * e));
        }
        self.builder.reshape(v, &shape).ok()
    }
}

fn factors_of<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &e.kind {
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            factors_of(a, out);
            factors_of(b, out);
        }
        _ => out.push(e),
    }
}
