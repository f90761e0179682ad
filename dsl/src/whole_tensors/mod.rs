//! Meanings in index notation as operators on whole tensors.
//!
//! A subexpression becomes a tensor with one axis for each index that its value depends on; operands are broadcast to the
//! indices of their result. An index that is itself computed becomes a gather. What has no such form yields nothing; nothing
//! here decides what is equal, and no layer is known by name.

use crate::eval::function::Function;
use crate::eval::{Env, eval};
use crate::expr::{BinaryOp, Elem, Expr, ExprKind, IndexVar, Meaning, Read, UnaryOp};
use crate::ir::build::Builder;
use crate::ir::{Attr, DType, Extent, Tensor, Type, Value};
use std::collections::HashMap;

pub mod definitions;
mod numbered;
mod range;
mod reduce;

use range::range;

/// One axis of an index variable: a segment has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis {
    /// The number of the variable.
    pub variable: usize,
    /// Which axis of its segment.
    pub part: usize,
}

/// A subexpression.
#[derive(Clone, Debug)]
pub enum Item {
    /// A number that no index decides.
    Number(Attr),
    /// A tensor with an axis for each of these indices, in increasing order.
    Whole(Value, Vec<Axis>),
}

/// Where the elements come from that a meaning reads.
pub trait Sources {
    /// The tensor that a read is of, and the index of each of its axes. `None` if it has no such form.
    fn tensor(&mut self, read: &Read, builder: &mut Builder<'_>) -> Option<Source>;

    /// A variable that stands for one number here, as a tensor without axes.
    fn fixed(&mut self, variable: usize, builder: &mut Builder<'_>) -> Option<Value>;
}

/// What a read is of.
pub struct Source {
    /// The tensor.
    pub tensor: Value,
    /// An entry for each of its axes; splices stand for several.
    pub index: Vec<Elem>,
    /// Whether the value outside the tensor matters.
    pub bounded: Bounded,
}

/// Whether an index may lie outside of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// It lies within.
    Within,
    /// The read says what is there.
    AsRead,
}

/// Turns the meanings of one application into operators.
pub struct WholeTensors<'b, 'l, S> {
    /// Where they are added.
    pub builder: &'b mut Builder<'l>,
    /// What the names of the declaration stand for.
    pub env: &'b Env,
    /// What is read.
    pub sources: S,
    extents: HashMap<Axis, Extent>,
    dtype: DType,
}

impl<'b, 'l, S: Sources> WholeTensors<'b, 'l, S> {
    /// Nothing so far.
    pub fn new(builder: &'b mut Builder<'l>, env: &'b Env, sources: S) -> Self {
        WholeTensors { builder, env, sources, extents: HashMap::new(), dtype: DType::F32 }
    }

    /// The result of an equation of this type, with the axes of `index` in order.
    pub fn equation(&mut self, value: &Expr, index: &[IndexVar], ty: &Type) -> Option<Value> {
        let dtype = ty.dtype;
        self.dtype = dtype;
        let widths = widths(index, self.env, ty.rank())?;
        let mut axes = vec![];
        for (v, width) in index.iter().zip(widths) {
            for part in 0..width {
                let axis = Axis { variable: v.id, part };
                self.extents.insert(axis, ty.shape[axes.len()].clone());
                axes.push(axis);
            }
        }
        let item = self.expr(value)?;
        let (v, own) = self.whole(item, dtype)?;
        let v = self.cast(v, dtype)?;
        self.spread(v, &own, &axes)
    }

    /// The axes that a reduction is over.
    fn declare(&mut self, index: &[IndexVar]) -> Option<Vec<Axis>> {
        let mut axes = vec![];
        for v in index {
            let extents = match v.segment {
                true => self.env.seg(&v.name)?.to_vec(),
                false => vec![self.env.axis(&v.name)?.clone()],
            };
            for (part, extent) in extents.into_iter().enumerate() {
                let axis = Axis { variable: v.id, part };
                self.extents.insert(axis, extent);
                axes.push(axis);
            }
        }
        Some(axes)
    }

    fn extents(&self, axes: &[Axis]) -> Option<Vec<Extent>> {
        axes.iter().map(|a| self.extents.get(a).cloned()).collect()
    }

    /// A tensor with these axes, in this order, from one that has some of them.
    fn spread(&mut self, v: Value, own: &[Axis], axes: &[Axis]) -> Option<Value> {
        let places: Option<Vec<usize>> =
            own.iter().map(|a| axes.iter().position(|b| a == b)).collect();
        let places = places?;
        let mut order: Vec<usize> = (0..own.len()).collect();
        order.sort_by_key(|&i| places[i]);
        let v = self.transposed(v, &order)?;
        let map: Vec<i64> = order.iter().map(|&i| places[i] as i64).collect();
        let shape = self.extents(axes)?;
        self.builder.broadcast(v, &map, &shape).ok()
    }

    fn transposed(&mut self, v: Value, order: &[usize]) -> Option<Value> {
        if order.is_sorted() {
            return Some(v);
        }
        let perm = Attr::ints(order.iter().map(|&i| i as i64));
        self.call("transpose", &[("perm", perm)], &[v])
    }

    /// Applies an operator of the library by name.
    fn call(&mut self, name: &str, attrs: &[(&str, Attr)], args: &[Value]) -> Option<Value> {
        let id = self.builder.library.find(name)?;
        let call = self.builder.library.call(id);
        if call.inputs.len() != args.len() || call.outputs.len() != 1 {
            return None;
        }
        let given = |p: &crate::library::AttrParam| {
            attrs.iter().find(|(n, _)| *n == &*p.name).map(|(_, a)| a.clone())
        };
        let attrs: Vec<Option<Attr>> = call.attrs.iter().map(given).collect();
        self.builder.apply(id, &attrs, args).ok()?.first().copied()
    }

    fn cast(&mut self, v: Value, to: DType) -> Option<Value> {
        if self.builder.ty(v).dtype == to {
            return Some(v);
        }
        self.call("cast", &[("to", Attr::DType(to))], &[v])
    }

    fn number(&mut self, a: &Attr, dtype: DType) -> Option<Value> {
        let number = match a {
            Attr::Bool(b) => f64::from(u8::from(*b)),
            Attr::Int(e) => match e.as_const() {
                Some(n) => n as f64,
                None => {
                    let list = Attr::Ints(vec![e.clone()]);
                    let v = self.call("extents", &[("values", list)], &[])?;
                    let v = self.builder.reshape(v, &[]).ok()?;
                    return self.cast(v, dtype);
                }
            },
            a => a.as_f64()?,
        };
        Some(self.builder.constant(Tensor::from_f64(dtype, vec![], &[number])))
    }

    fn whole(&mut self, item: Item, dtype: DType) -> Option<(Value, Vec<Axis>)> {
        match item {
            Item::Number(a) => Some((self.number(&a, dtype)?, vec![])),
            Item::Whole(v, axes) => Some((v, axes)),
        }
    }

    fn dtype_of(&self, item: &Item) -> Option<DType> {
        match item {
            Item::Number(_) => None,
            Item::Whole(v, _) => Some(self.builder.ty(*v).dtype),
        }
    }

    /// Operands of one element type and with all indices, which some of them have.
    fn aligned(&mut self, items: Vec<Item>) -> Option<(Vec<Value>, Vec<Axis>)> {
        let types = items.iter().filter_map(|i| self.dtype_of(i));
        // An index among elements takes their type.
        let dtype = types.reduce(|a, b| if a == DType::I64 { b } else { a });
        let real = items.iter().any(|i| matches!(i, Item::Number(Attr::Float(_))));
        let dtype = match dtype {
            Some(DType::I64) if real => self.dtype,
            Some(dtype) => dtype,
            None => self.dtype,
        };
        let mut whole = vec![];
        let mut axes: Vec<Axis> = vec![];
        for item in items {
            let (v, own) = self.whole(item, dtype)?;
            axes.extend(&own);
            whole.push((self.cast(v, dtype)?, own));
        }
        axes.sort_unstable();
        axes.dedup();
        let spread = whole.into_iter().map(|(v, own)| self.spread(v, &own, &axes));
        Some((spread.collect::<Option<_>>()?, axes))
    }

    fn apply(&mut self, name: &str, items: Vec<Item>) -> Option<Item> {
        let (args, axes) = self.aligned(items)?;
        Some(Item::Whole(self.call(name, &[], &args)?, axes))
    }

    fn expr(&mut self, e: &Expr) -> Option<Item> {
        if let Ok(a) = eval(e, self.env) {
            return Some(Item::Number(a));
        }
        match &e.kind {
            ExprKind::Index(v) => self.index(*v),
            ExprKind::Unary(op, a) => {
                let a = self.expr(a)?;
                if let (UnaryOp::Not, Item::Number(Attr::Bool(b))) = (op, &a) {
                    return Some(Item::Number(Attr::Bool(!b)));
                }
                self.apply(op.operator(), vec![a])
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b),
            ExprKind::If { cond, then, otherwise } => match self.expr(cond)? {
                Item::Number(Attr::Bool(true)) => self.expr(then),
                Item::Number(Attr::Bool(false)) => self.expr(otherwise),
                Item::Number(_) => None,
                cond => {
                    let both = vec![self.expr(then)?, self.expr(otherwise)?];
                    self.select(cond, both)
                }
            },
            ExprKind::Call(f, args) => self.function(*f, args),
            ExprKind::Read(read) => self.read(read),
            ExprKind::Reduce(reduce) => self.reduce(reduce),
            _ => None,
        }
    }

    fn select(&mut self, cond: Item, both: Vec<Item>) -> Option<Item> {
        let Item::Whole(cond, own) = cond else { return None };
        let (values, mut axes) = self.aligned(both)?;
        let before = axes.clone();
        axes.extend(&own);
        axes.sort_unstable();
        axes.dedup();
        let mut args = vec![self.spread(cond, &own, &axes)?];
        for v in values {
            args.push(self.spread(v, &before, &axes)?);
        }
        Some(Item::Whole(self.call("select", &[], &args)?, axes))
    }

    /// An index as a number.
    fn index(&mut self, variable: usize) -> Option<Item> {
        if let Some(v) = self.sources.fixed(variable, self.builder) {
            return Some(Item::Whole(v, vec![]));
        }
        let axis = Axis { variable, part: 0 };
        let size = Attr::Int(self.extents.get(&axis)?.clone());
        let v = self.call("iota", &[("size", size), ("to", Attr::DType(DType::I64))], &[])?;
        Some(Item::Whole(v, vec![axis]))
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<Item> {
        let first = self.expr(a)?;
        // What decides alone needs no second operand, which may have no value then.
        match (op, &first) {
            (BinaryOp::And, Item::Number(Attr::Bool(false))) => return Some(first),
            (BinaryOp::Or, Item::Number(Attr::Bool(true))) => return Some(first),
            (BinaryOp::And | BinaryOp::Or, Item::Number(Attr::Bool(_))) => return self.expr(b),
            _ => {}
        }
        let second = self.expr(b)?;
        match (op, &second) {
            (BinaryOp::And, Item::Number(Attr::Bool(true))) => return Some(first),
            (BinaryOp::Or, Item::Number(Attr::Bool(false))) => return Some(first),
            (BinaryOp::And | BinaryOp::Or, Item::Number(Attr::Bool(_))) => return Some(second),
            (BinaryOp::MatMul, _) => return None,
            _ => {}
        }
        let is_index = !a.reads() && !b.reads();
        if op == BinaryOp::Div && is_index {
            // Indices are divided towards minus infinity.
            let rest = self.apply("modulo", vec![first.clone(), second.clone()])?;
            let whole = self.apply("sub", vec![first, rest])?;
            return self.apply("div", vec![whole, second]);
        }
        let (name, swapped) = op.operator();
        let operands = if swapped { vec![second, first] } else { vec![first, second] };
        let result = self.apply(name, operands)?;
        match op {
            BinaryOp::Ne => self.apply(UnaryOp::Not.operator(), vec![result]),
            _ => Some(result),
        }
    }

    fn function(&mut self, f: Function, args: &[Expr]) -> Option<Item> {
        let to = |w: &Self, e: &Expr| match &e.kind {
            ExprKind::DType(d) => Some(*d),
            ExprKind::DTypeVar(n) => w.env.dtype(n),
            _ => None,
        };
        let operands = args.iter().take(if f == Function::Cast { 1 } else { args.len() });
        let items: Vec<Item> = operands.map(|a| self.expr(a)).collect::<Option<_>>()?;
        let target = match (f, args) {
            (Function::Cast, [_, e]) => Some(to(self, e)?),
            (Function::Float, [_]) => Some(self.dtype),
            (Function::Int, [_]) => Some(DType::I64),
            _ => None,
        };
        match target {
            Some(target) => {
                let (v, axes) = self.whole(items.into_iter().next()?, target)?;
                Some(Item::Whole(self.cast(v, target)?, axes))
            }
            None => self.apply(f.name(), items),
        }
    }

    fn read(&mut self, read: &Read) -> Option<Item> {
        let Source { tensor, index, bounded } = self.sources.tensor(read, self.builder)?;
        let otherwise = read.otherwise.as_deref().filter(|_| bounded == Bounded::AsRead);
        let at = self.axes_of(&index)?;
        let shape = self.builder.ty(tensor).shape.clone();
        if at.len() != shape.len() {
            return None;
        }
        let mut v = tensor;
        let mut labels: Vec<Vec<Axis>> = vec![];
        let mut inside: Option<Item> = None;
        for (entry, extent) in at.into_iter().zip(&shape) {
            let place: usize = labels.iter().map(Vec::len).sum();
            let used = |axes: &[Axis]| labels.iter().flatten().any(|a| axes.contains(a));
            let axis = match entry {
                Entry::Axis(axis) => Some(axis),
                Entry::Computed(e) => match e.kind {
                    ExprKind::Index(variable) => Some(Axis { variable, part: 0 }),
                    _ => None,
                },
            };
            if let Some(axis) = axis
                && self.extents.get(&axis) == Some(extent)
                && !used(&[axis])
            {
                labels.push(vec![axis]);
                continue;
            }
            let Entry::Computed(e) = entry else { return None };
            if let Some((axis, from)) = self.shifted(e, extent)
                && !used(&[axis])
            {
                v = self.part(v, place, &from, &self.extents.get(&axis)?.clone())?;
                labels.push(vec![axis]);
                continue;
            }
            let item = self.expr(e)?;
            if let (Item::Number(a), None) = (&item, otherwise)
                && let Attr::Int(from) = a
            {
                v = self.one(v, place, from)?;
                labels.push(vec![]);
                continue;
            }
            let (i, own) = self.whole(item, DType::I64)?;
            if used(&own) {
                return self.read_by_number(tensor, &index, otherwise);
            }
            let i = self.bounded(e, i, &own, extent, otherwise.is_some(), &mut inside)?;
            if otherwise.is_some() {
                v = self.inhabited(v, place, &own)?;
            }
            v = self.call("gather", &[("axis", Attr::int(place as i64))], &[v, i])?;
            labels.push(own);
        }
        self.ordered(v, labels.concat(), inside, otherwise)
    }

    /// An index that lies within an axis; what it says where it does not is noted in `inside`, if that matters.
    fn bounded(
        &mut self,
        e: &Expr,
        i: Value,
        own: &[Axis],
        extent: &Extent,
        matters: bool,
        inside: &mut Option<Item>,
    ) -> Option<Value> {
        let is_within = range(e, &|e| self.bounds(e))
            .is_some_and(|(low, high)| low >= 0 && extent.as_const().is_some_and(|n| high < n));
        if is_within {
            return Some(i);
        }
        if matters {
            let fits = self.fits(i, own, extent)?;
            *inside = Some(match inside.take() {
                None => fits,
                Some(other) => self.apply("logical_and", vec![other, fits])?,
            });
        }
        self.clipped(i, own, extent)
    }

    /// A tensor with an element more along an axis that may be empty where the indices of these axes are not: an index that lies outside
    /// still finds something, which is not used.
    pub(super) fn inhabited(&mut self, v: Value, axis: usize, own: &[Axis]) -> Option<Value> {
        let shape = &self.builder.ty(v).shape;
        let follows = |a: &Axis| self.extents.get(a) == Some(&shape[axis]);
        if shape[axis].at_least(1) || own.iter().any(follows) {
            return Some(v);
        }
        let none = Attr::Ints(vec![Extent::from(0); shape.len()]);
        let mut high = vec![Extent::from(0); shape.len()];
        high[axis] = Extent::from(1);
        let zero = self.number(&Attr::int(0), self.builder.ty(v).dtype)?;
        self.call("pad", &[("low", none), ("high", Attr::Ints(high))], &[v, zero])
    }

    /// A tensor that was read, its axes in increasing order, with what is there outside.
    fn ordered(
        &mut self,
        v: Value,
        axes: Vec<Axis>,
        inside: Option<Item>,
        otherwise: Option<&Expr>,
    ) -> Option<Item> {
        let mut order: Vec<usize> = (0..axes.len()).collect();
        order.sort_by_key(|&i| axes[i]);
        let v = self.transposed(v, &order)?;
        let value = Item::Whole(v, order.iter().map(|&i| axes[i]).collect());
        match (inside, otherwise) {
            (Some(inside), Some(otherwise)) => {
                let otherwise = self.expr(otherwise)?;
                self.select(inside, vec![value, otherwise])
            }
            _ => Some(value),
        }
    }

    /// The bounds of an index variable, and of what no index decides.
    fn bounds(&self, e: &Expr) -> Option<(i64, i64)> {
        if let ExprKind::Index(variable) = e.kind {
            let extent = self.extents.get(&Axis { variable, part: 0 })?;
            return Some((0, extent.as_const()? - 1));
        }
        let n = eval(e, self.env).ok()?.as_i64()?;
        Some((n, n))
    }

    /// Whether an index lies within an axis.
    fn fits(&mut self, i: Value, own: &[Axis], extent: &Extent) -> Option<Item> {
        let i = Item::Whole(i, own.to_vec());
        let (zero, n) = (Item::Number(Attr::int(0)), Item::Number(Attr::Int(extent.clone())));
        let low = self.apply("less_equal", vec![zero, i.clone()])?;
        let high = self.apply("less", vec![i, n])?;
        self.apply("logical_and", vec![low, high])
    }

    /// The nearest index within an axis: what a read outside of it yields is not used.
    fn clipped(&mut self, i: Value, own: &[Axis], extent: &Extent) -> Option<Value> {
        let dtype = self.builder.ty(i).dtype;
        let last = Item::Number(Attr::Int(extent - &Extent::from(1)));
        let item = Item::Whole(i, own.to_vec());
        let item = self.apply("minimum", vec![item, last])?;
        let below = self.apply("less", vec![item.clone(), Item::Number(Attr::int(0))])?;
        let item = self.select(below, vec![Item::Number(Attr::int(0)), item])?;
        Some(self.whole(item, dtype)?.0)
    }

    /// The element at one place of an axis, which is dropped.
    fn one(&mut self, v: Value, axis: usize, at: &Extent) -> Option<Value> {
        let part = self.part(v, axis, at, &Extent::from(1))?;
        let mut shape = self.builder.ty(part).shape.clone();
        shape.remove(axis);
        self.builder.reshape(part, &shape).ok()
    }

    /// So many elements along an axis.
    fn part(&mut self, v: Value, axis: usize, from: &Extent, count: &Extent) -> Option<Value> {
        let mut size = self.builder.ty(v).shape.clone();
        let mut start = vec![Extent::from(0); size.len()];
        start[axis] = from.clone();
        size[axis] = count.clone();
        let step = Attr::Ints(vec![Extent::from(1); size.len()]);
        let attrs = [("start", Attr::Ints(start)), ("size", Attr::Ints(size)), ("step", step)];
        self.call("slice", &attrs, &[v])
    }

    /// The axis of an index and what is added to it, if the sum lies within an axis of this extent.
    fn shifted(&self, e: &Expr, extent: &Extent) -> Option<(Axis, Extent)> {
        let (variable, by) = match &e.kind {
            ExprKind::Index(variable) => (*variable, Extent::from(0)),
            ExprKind::Binary(BinaryOp::Add, a, b) => match (&a.kind, &b.kind) {
                (ExprKind::Index(variable), _) => (*variable, self.extent(b)?),
                (_, ExprKind::Index(variable)) => (*variable, self.extent(a)?),
                _ => return None,
            },
            _ => return None,
        };
        let axis = Axis { variable, part: 0 };
        let end = &by + self.extents.get(&axis)?;
        (by.at_least(0) && (extent - &end).at_least(0)).then_some((axis, by))
    }

    /// A number that no index decides.
    fn extent(&self, e: &Expr) -> Option<Extent> {
        match eval(e, self.env).ok()? {
            Attr::Int(e) => Some(e),
            _ => None,
        }
    }

    fn axes_of<'e>(&self, index: &'e [Elem]) -> Option<Vec<Entry<'e>>> {
        let mut out = vec![];
        for e in index {
            match e {
                Elem::One(e) => out.push(Entry::Computed(e)),
                Elem::Splice(e) => {
                    let ExprKind::Index(variable) = e.kind else { return None };
                    let parts = self.extents.keys().filter(|a| a.variable == variable).count();
                    out.extend((0..parts).map(|part| Entry::Axis(Axis { variable, part })));
                }
            }
        }
        Some(out)
    }
}

/// How many of a result's axes each of its index variables runs over. One segment may take what the others leave.
pub fn widths(index: &[IndexVar], env: &Env, rank: usize) -> Option<Vec<usize>> {
    let width = |v: &IndexVar| if v.segment { env.seg(&v.name).map(<[_]>::len) } else { Some(1) };
    let known: Vec<Option<usize>> = index.iter().map(width).collect();
    let rest = rank.checked_sub(known.iter().flatten().sum())?;
    let open = known.iter().filter(|w| w.is_none()).count();
    let fits = if open == 0 { rest == 0 } else { open == 1 };
    fits.then(|| known.into_iter().map(|w| w.unwrap_or(rest)).collect())
}

/// An entry of an index.
#[derive(Clone, Copy)]
enum Entry<'e> {
    Axis(Axis),
    Computed(&'e Expr),
}

/// The meaning of an operator that reads its arguments alone, as operators on whole tensors; one value per result.
pub fn whole(
    builder: &mut Builder<'_>,
    env: &Env,
    meanings: &[Meaning],
    args: &[Value],
    types: &[Type],
) -> Option<Vec<Value>> {
    let mut run = WholeTensors::new(builder, env, Arguments(args));
    let results = meanings.iter().zip(types);
    results.map(|(m, t)| run.equation(&m.value, &m.index, t)).collect()
}

/// Reads of arguments.
struct Arguments<'a>(&'a [Value]);

impl Sources for Arguments<'_> {
    fn tensor(&mut self, read: &Read, _: &mut Builder<'_>) -> Option<Source> {
        let bounded = Bounded::AsRead;
        Some(Source { tensor: *self.0.get(read.input)?, index: read.index.clone(), bounded })
    }

    fn fixed(&mut self, _: usize, _: &mut Builder<'_>) -> Option<Value> {
        None
    }
}
