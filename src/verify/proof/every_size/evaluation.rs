//! Evaluates terms of a law at some index: what each element is, as operators' meanings say, for tensors of any shape.

use super::condition::Condition;
use super::integer::{Argument, Atom, Int};
use super::item::{Item, paired};
use super::list::{AxisKind, List, Outcome, Part, Space, Stuck, small, unsupported};
use super::order::Order;
use super::reshape;
use super::value::{Bound, Factor, Value, Values, add, complement, negative};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{
    AttrKind, BinaryOp, Elem, Expr, ExprKind, IndexVar, Meaning, Predicate, Reduce, TypePart,
    UnaryOp,
};
use mlc_dsl::ir::DType;
use mlc_dsl::library::{
    AttrParam, CallId, CallKind, Callable, DTypePattern, Dim, Input, Law, Library, Name,
    TypePattern,
};
use mlc_dsl::term::{TermId, TermKind, Terms};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Elements that are evaluated for one law at most.
const MOST_STEPS: usize = 4_000;

/// Axes of a segment at most that a condition counts.
const MOST_AXES: i64 = 4;

/// What is known of a law's axes and attributes before its sides are evaluated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Segments and lists whose axes are told apart.
    pub axes: BTreeMap<Name, Vec<AxisKind>>,
    /// Extents and attributes that are other integers.
    pub equal: BTreeMap<Atom, Int>,
    /// Cases.
    pub cases: Vec<Condition>,
}

/// Where a term stands: the law, or the body of a definition.
struct Scope<'l> {
    terms: &'l Terms,
    inputs: Vec<Tensor>,
    /// Attributes and extents by name; the law's own are looked up in it.
    names: Option<HashMap<Name, Item>>,
}

/// A tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tensor {
    /// A variable of the law.
    Var(usize),
    /// A term of a scope.
    Term(usize, TermId),
}

/// An application: its names, and the axes of each output.
struct Application {
    call: CallId,
    names: HashMap<Name, Item>,
    args: Vec<Tensor>,
    /// Per output and dimension of its type.
    outputs: Vec<Vec<List>>,
}

pub(crate) struct Evaluation<'l> {
    library: &'l Library,
    law: &'l Law,
    known: Known,
    pub values: Values,
    /// What conditions say of values.
    order: Order,
    /// Variables whose elements lie between two values, strictly above the first if so.
    bounds: Vec<(usize, Option<Value>, Option<Value>, bool)>,
    scopes: Vec<Scope<'l>>,
    applications: HashMap<(usize, TermId), Rc<Application>>,
    bodies: HashMap<(usize, TermId), usize>,
    /// Names of a scope's axes that are those of a term's result.
    results: HashMap<(usize, Name), Item>,
    steps: usize,
}

/// What a meaning is evaluated with.
struct Frame<'a> {
    of: &'a Application,
    indices: Vec<Option<Item>>,
}

impl<'l> Evaluation<'l> {
    pub(crate) fn new(
        library: &'l Library,
        law: &'l Law,
        known: Known,
        real: bool,
    ) -> Evaluation<'l> {
        let is_bool = |v: &Input| matches!(v.ty.dtype, DTypePattern::Fixed(DType::Bool));
        let truths = law.vars.iter().enumerate().filter(|(_, v)| is_bool(v)).map(|(i, _)| i);
        let values = Values { real, truths: truths.collect(), ..Values::default() };
        let inputs = (0..law.vars.len()).map(Tensor::Var).collect();
        let scopes = vec![Scope { terms: &law.terms, inputs, names: None }];
        Evaluation {
            library,
            law,
            known,
            values,
            order: Order::default(),
            bounds: Vec::new(),
            scopes,
            applications: HashMap::new(),
            bodies: HashMap::new(),
            results: HashMap::new(),
            steps: 0,
        }
    }

    /// Learns what the law's types and conditions say, and its cases.
    pub(crate) fn learn(&mut self) -> Outcome<()> {
        for v in &self.law.vars {
            for dim in v.ty.dims.iter().flatten() {
                let extents = match dim {
                    Dim::Axis(n) => List(vec![Part::One(self.size(n))]),
                    Dim::Seg(n) => self.segment(n)?,
                    Dim::Value(_) | Dim::Splice(_) => continue,
                };
                self.at_least_zero(&extents);
            }
        }
        for a in &self.law.attrs {
            if a.ty.kind == AttrKind::Shape {
                let shape = self.list_attribute(&a.name)?;
                self.at_least_zero(&shape);
            }
        }
        let law = self.law;
        self.learn_conditions(0, None, &law.conditions)?;
        for c in self.known.cases.clone() {
            self.equalities(&c)?;
            self.values.knowledge.learn(&c);
        }
        Ok(())
    }

    /// Learns conditions; what is not followed is not known.
    fn learn_conditions(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        conditions: &[Expr],
    ) -> Outcome<()> {
        for e in conditions {
            if let ExprKind::Test(p, args) = &e.kind {
                self.learn_predicate(*p, args);
                continue;
            }
            match self.expr(scope, names, e) {
                Ok(Item::Truth(c)) => {
                    self.equalities(&c)?;
                    self.values.knowledge.learn(&c);
                }
                Ok(item) => self.learn_order(item),
                Err(Stuck::Unsupported(_) | Stuck::Cases(_)) => {}
                // Lists with different axes are not equal, which only an equation excludes.
                Err(Stuck::Axes(..)) if !is_equation(e) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Learns between what the elements of variables lie.
    fn learn_predicate(&mut self, predicate: Predicate, args: &[Expr]) {
        let (tensors, bounds) = predicate.split(args);
        let bounds: Vec<Option<Value>> = match predicate {
            Predicate::Nonnegative | Predicate::Positive => vec![Some(Value::new()), None],
            Predicate::Within => {
                let value =
                    |e: &Expr| self.expr(0, None, e).and_then(|i| i.value(&mut self.values));
                bounds.iter().map(value).map(Result::ok).collect()
            }
            _ => return,
        };
        for name in tensors.iter().filter_map(Expr::as_name) {
            let var = self.law.vars.iter().position(|v| v.name == *name);
            let (Some(var), [low, high]) = (var, bounds.as_slice()) else { continue };
            let strict = predicate == Predicate::Positive;
            self.bounds.push((var, low.clone(), high.clone(), strict));
        }
    }

    /// What is known of the order of all values that were met.
    pub(crate) fn known_order(&mut self) -> Order {
        let mut order = self.order.clone();
        for (var, low, high, strict) in self.bounds.clone() {
            for read in self.values.reads(var) {
                if let Some(low) = &low {
                    order.learn(add(&read, &negative(low)), strict);
                }
                if let Some(high) = &high {
                    order.learn(add(high, &negative(&read)), false);
                }
            }
        }
        order
    }

    /// Learns a comparison of values.
    fn learn_order(&mut self, item: Item) {
        let Item::Value(v) = item else { return };
        let Some((factors, 1)) = v.first_key_value().filter(|_| v.len() == 1) else { return };
        let [factor] = factors.as_slice() else { return };
        match self.values.get(*factor).clone() {
            Factor::Less(a, b) => self.order.learn(add(&b, &negative(&a)), true),
            Factor::AtMost(a, b) => self.order.learn(add(&b, &negative(&a)), false),
            Factor::Equal(a, b) => self.order.learn_zero(add(&a, &negative(&b))),
            _ => {}
        }
    }

    /// True of cases that do not occur.
    pub(crate) fn is_void(&self) -> bool {
        self.values.knowledge.is_contradiction()
    }

    fn at_least_zero(&mut self, extents: &List) {
        for part in &extents.0 {
            let least = Condition::AtLeastZero(part.entry().clone());
            let least = match part {
                Part::One(_) => least,
                Part::Each(space, _) => Condition::Every(space.clone(), Box::new(least)),
            };
            self.values.knowledge.learn(&least);
        }
    }

    /// An extent or attribute that a condition makes another integer is that.
    fn equalities(&self, c: &Condition) -> Outcome<()> {
        match c {
            Condition::All(cs) => cs.iter().try_for_each(|c| self.equalities(c)),
            // What holds of some axes of a segment says nothing of the others.
            Condition::Every(space, c) if space.subset().1.is_empty() => self.equalities(c),
            Condition::Zero(i) => {
                if let Some((segment, kinds)) = same_axes(i) {
                    return Err(Stuck::Axes(segment, kinds));
                }
                let alone = i.0.iter().find_map(|(m, c)| match m.as_slice() {
                    [a @ (Atom::Attr(_) | Atom::Size(_))] if c.abs() == 1 => Some((a.clone(), *c)),
                    _ => None,
                });
                let Some((atom, c)) = alone else { return Ok(()) };
                let rest = small(i.plus(-c, &Int::from(atom.clone())))?;
                let value = small(Int::default().plus(-c, &rest))?;
                match value.mentions(&atom) || self.known.equal.contains_key(&atom) {
                    true => Ok(()),
                    false => Err(Stuck::Equal(atom, value)),
                }
            }
            _ => Ok(()),
        }
    }

    fn atom(&self, a: Atom) -> Int {
        self.known.equal.get(&a).cloned().unwrap_or_else(|| Int::from(a))
    }

    fn size(&self, axis: &Name) -> Int {
        self.atom(Atom::Size(axis.clone()))
    }

    /// The extents of a segment.
    fn segment(&self, name: &Name) -> Outcome<List> {
        self.expanded(name, &Space::segment(name), &|n| Atom::Size(n))
    }

    /// A list with an entry for each axis of a segment or list, those that are told apart one by one.
    fn expanded(&self, name: &Name, space: &Space, entry: &dyn Fn(Name) -> Atom) -> Outcome<List> {
        let Some(kinds) = self.kinds(name) else {
            return Ok(List::each(space.clone(), self.atom(entry(name.clone()))));
        };
        let mut out = Vec::new();
        for (i, kind) in kinds.into_iter().enumerate() {
            let part: Name = Name::from(format!("{name}.{i}"));
            match kind {
                AxisKind::One => out.push(Part::One(self.atom(entry(part)))),
                AxisKind::Each(Some(other)) => {
                    out.push(Part::Each(other, self.atom(entry(part))));
                }
                AxisKind::Each(None) => {
                    let space = Space { base: part.clone(), ..space.clone() };
                    out.extend(self.expanded(&part, &space, entry)?.0);
                }
            }
        }
        Ok(List(out))
    }

    /// What the axes of a list are, if they are told apart: those of another list as far as they are known.
    fn kinds(&self, name: &Name) -> Option<Vec<AxisKind>> {
        let kinds = self.known.axes.get(name)?;
        let known = |kind: &AxisKind| match kind {
            AxisKind::Each(Some(space)) if space.path.is_empty() => {
                let inner = self.kinds(&space.base)?;
                let segment = |(i, kind): (usize, AxisKind)| match kind {
                    AxisKind::Each(None) => {
                        let base = Name::from(format!("{}.{i}", space.base));
                        AxisKind::Each(Some(Space { base, ..space.clone() }))
                    }
                    kind => kind,
                };
                Some(inner.into_iter().enumerate().map(segment).collect::<Vec<_>>())
            }
            _ => None,
        };
        Some(kinds.iter().flat_map(|k| known(k).unwrap_or_else(|| vec![k.clone()])).collect())
    }

    /// A list attribute of the law.
    fn list_attribute(&self, name: &Name) -> Outcome<List> {
        let own = self.law.attrs.iter().find(|a| a.name == *name);
        match own.and_then(|a| a.ty.of.as_ref().filter(|_| a.ty.kind == AttrKind::Ints)) {
            Some(segment) => {
                let entry = |part: Name| Atom::Attr(Name::from(format!("{name}@{part}")));
                self.expanded(segment, &Space::segment(segment), &entry)
            }
            None => self.expanded(name, &Space::loose(name), &|n| Atom::Attr(n)),
        }
    }

    /// What a name of the law stands for.
    fn law_name(&mut self, name: &Name) -> Outcome<Item> {
        if let Some(a) = self.law.attrs.iter().find(|a| a.name == *name) {
            return Ok(match a.ty.kind {
                AttrKind::Int | AttrKind::Axis => Item::Int(self.atom(Atom::Attr(name.clone()))),
                AttrKind::Bool => Item::Truth(Condition::Attr(name.clone())),
                AttrKind::Float => Item::Value(self.values.of(Factor::Real(name.clone()))),
                AttrKind::DType => Item::TypeVar(name.clone()),
                kind if kind.is_ints() => Item::List(self.list_attribute(name)?),
                _ => return unsupported(format!("`{name}` is {}", a.ty.kind)),
            });
        }
        let bound = |d: &&Dim| matches!(d, Dim::Axis(n) | Dim::Seg(n) if n == name);
        let dims = self.law.vars.iter().flat_map(|v| v.ty.dims.iter().flatten());
        match dims.clone().find(bound) {
            Some(Dim::Axis(_)) => Ok(Item::Int(self.size(name))),
            Some(_) => Ok(Item::List(self.segment(name)?)),
            None => unsupported(format!("`{name}` is not known")),
        }
    }

    fn step(&mut self) -> Outcome<()> {
        self.steps += 1;
        if self.steps > MOST_STEPS { unsupported("it takes too many steps") } else { Ok(()) }
    }

    /// The extents of a tensor.
    pub(crate) fn shape(&mut self, t: Tensor) -> Outcome<List> {
        match self.resolved(t)? {
            (Tensor::Var(i), _) => {
                let Some(dims) = &self.law.vars[i].ty.dims else {
                    return unsupported("a variable has any shape");
                };
                self.dims(0, None, dims).map(|d| List(d.into_iter().flat_map(|l| l.0).collect()))
            }
            (Tensor::Term(scope, id), output) => {
                if let TermKind::Scalar(_) = self.scopes[scope].terms.get(id).kind {
                    return Ok(List::default());
                }
                let of = self.application(scope, id)?;
                let shape = List(of.outputs[output].iter().flat_map(|l| l.0.clone()).collect());
                if let Tensor::Term(scope, id) = t {
                    self.name_axes(scope, id, &shape)?;
                }
                Ok(shape)
            }
        }
    }

    /// Binds the names that a term gives to axes of its result.
    fn name_axes(&mut self, scope: usize, id: TermId, shape: &List) -> Outcome<()> {
        let term = self.scopes[scope].terms.get(id);
        let Some(dims) = &term.dims else { return Ok(()) };
        let mut names = HashMap::new();
        let mut new = Vec::new();
        for dim in dims {
            let (Dim::Axis(n) | Dim::Seg(n)) = dim else { continue };
            match self.name(scope, None, n) {
                Ok(item) => drop(names.insert(n.clone(), item)),
                Err(Stuck::Unsupported(_)) => new.push(n.clone()),
                Err(other) => return Err(other),
            }
        }
        if new.is_empty() || dims.iter().any(|d| matches!(d, Dim::Splice(_))) {
            return Ok(());
        }
        // A computed extent is what it is.
        let ty = TypePattern { dtype: term.dtype.clone(), dims: Some(dims.clone()) };
        self.bind(&ty, shape, &[], &mut names)?;
        for n in new {
            if let Some(item) = names.remove(&n) {
                self.results.insert((scope, n), item);
            }
        }
        Ok(())
    }

    /// The variable or application behind a term, and which of its outputs.
    fn resolved(&mut self, t: Tensor) -> Outcome<(Tensor, usize)> {
        let Tensor::Term(scope, id) = t else { return Ok((t, 0)) };
        let term = self.scopes[scope].terms.get(id);
        match &term.kind {
            TermKind::Var(i) => {
                let input = self.scopes[scope].inputs[*i];
                if scope == 0 { Ok((input, 0)) } else { self.resolved(input) }
            }
            TermKind::Output(n) => Ok((self.resolved(Tensor::Term(scope, term.args[0]))?.0, *n)),
            TermKind::Scalar(_) | TermKind::Apply(..) => Ok((t, 0)),
            TermKind::EachFold(..) | TermKind::EachPart(_) => unsupported("it is of a family"),
        }
    }

    /// The lists that dimensions stand for.
    fn dims(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        dims: &[Dim],
    ) -> Outcome<Vec<List>> {
        let mut out = Vec::new();
        for dim in dims {
            let item = match dim {
                Dim::Axis(n) | Dim::Seg(n) => self.name(scope, names, n)?,
                Dim::Value(e) | Dim::Splice(e) => self.expr(scope, names, e)?,
            };
            out.push(match item {
                Item::Int(i) => List(vec![Part::One(i)]),
                item => item.list()?,
            });
        }
        Ok(out)
    }

    fn name(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        name: &Name,
    ) -> Outcome<Item> {
        if let Some(names) = names {
            return match names.get(name) {
                Some(item) => Ok(item.clone()),
                None => unsupported(format!("`{name}` is not known")),
            };
        }
        if let Some(known) = self.results.get(&(scope, name.clone())) {
            return Ok(known.clone());
        }
        match &self.scopes[scope].names {
            None => self.law_name(name),
            Some(names) => match names.get(name) {
                Some(item) => Ok(item.clone()),
                None => unsupported(format!("`{name}` is not known")),
            },
        }
    }

    /// The application of a term.
    fn application(&mut self, scope: usize, id: TermId) -> Outcome<Rc<Application>> {
        if let Some(known) = self.applications.get(&(scope, id)) {
            return Ok(known.clone());
        }
        self.step()?;
        let term = self.scopes[scope].terms.get(id);
        let TermKind::Apply(call, attrs) = &term.kind else { return unsupported("no application") };
        let args: Vec<Tensor> = term.args.iter().map(|a| Tensor::Term(scope, *a)).collect();
        let library = self.library;
        let c = library.call(*call);
        // Attributes may name axes of operands.
        for arg in &args {
            self.shape(*arg)?;
        }
        let mut names: HashMap<Name, Item> = HashMap::new();
        for (param, given) in c.attrs.iter().zip(attrs) {
            let item = match (given, &param.default) {
                (Some(e), _) => self.expr(scope, None, e)?,
                (None, Some(e)) => self.expr(scope, Some(&names), e)?,
                (None, None) => return unsupported("an attribute is not given"),
            };
            names.insert(param.name.clone(), item);
        }
        for (input, arg) in c.inputs.iter().zip(&args) {
            let shape = self.shape(*arg)?;
            self.bind(&input.ty, &shape, &c.attrs, &mut names)?;
        }
        // What is computed from extents may need what conditions say of ranks.
        self.learn_conditions(scope, Some(&names), &c.conditions)?;
        for (name, e) in &c.wheres {
            let item = self.expr(scope, Some(&names), e)?;
            names.insert(name.clone(), item);
        }
        self.learn_conditions(scope, Some(&names), &c.conditions)?;
        let mut outputs = Vec::new();
        for (_, ty) in &c.outputs {
            outputs.push(self.output_dims(c, ty, &args, &names, scope)?);
        }
        let made = Rc::new(Application { call: *call, names, args, outputs });
        self.applications.insert((scope, id), made.clone());
        Ok(made)
    }

    fn output_dims(
        &mut self,
        c: &Callable,
        ty: &TypePattern,
        args: &[Tensor],
        names: &HashMap<Name, Item>,
        scope: usize,
    ) -> Outcome<Vec<List>> {
        match &ty.dims {
            Some(dims) => self.dims(scope, Some(names), dims),
            None => unsupported(format!("the shape of `{}` of {} operands", c.name, args.len())),
        }
    }

    /// Binds the names of a parameter's type to the extents of an argument.
    fn bind(
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
    fn bind_one(
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
    fn single<T>(&self, shape: &List, at: usize, front: bool) -> Outcome<T> {
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

    fn misaligned<T>(&self, own: &List, known: &List) -> Outcome<T> {
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

    fn equal(&mut self, a: &Int, b: &Int) -> Outcome<()> {
        let same = Condition::Zero(small(a.plus(-1, b))?);
        if a != b {
            self.equalities(&same)?;
            self.values.knowledge.learn(&same);
        }
        Ok(())
    }

    /// The element of a tensor at an index.
    pub(crate) fn element(&mut self, t: Tensor, index: &List) -> Outcome<Value> {
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

    fn meaning(
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
    fn meant(&mut self, frame: &mut Frame<'_>, e: &Expr) -> Outcome<Item> {
        match &e.kind {
            ExprKind::Index(i) => match &frame.indices[*i] {
                Some(item) => Ok(item.clone()),
                None => unsupported("an index has no value"),
            },
            ExprKind::Read(read) => {
                let mut index = Vec::new();
                for elem in &read.index {
                    match elem {
                        Elem::One(e) => {
                            let i = self.meant(frame, e)?.int(&mut self.values)?;
                            index.push(Part::One(i));
                        }
                        Elem::Splice(e) => index.extend(self.meant(frame, e)?.list()?.0),
                    }
                }
                let index = List(index);
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
                let mut out = Vec::new();
                for elem in elems {
                    match elem {
                        Elem::One(e) => {
                            let i = self.meant(frame, e)?.int(&mut self.values)?;
                            out.push(Part::One(i));
                        }
                        Elem::Splice(e) => out.extend(self.meant(frame, e)?.list()?.0),
                    }
                }
                Ok(Item::List(List(out)))
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
    fn within(&mut self, arg: Tensor, index: &List) -> Outcome<Condition> {
        let shape = self.shape(arg)?;
        index.aligned(&shape)?;
        let mut out = Condition::Known(true);
        for (i, n) in index.0.iter().zip(&shape.0) {
            let last =
                small(n.entry().plus(-1, i.entry()).and_then(|d| d.plus(-1, &Int::from(1))))?;
            let both = Condition::AtLeastZero(i.entry().clone()).and(Condition::AtLeastZero(last));
            out = out.and(match i {
                Part::One(_) => both,
                Part::Each(space, _) => Condition::Every(space.clone(), Box::new(both)),
            });
        }
        Ok(out)
    }

    /// One value where a condition holds, another one where not.
    fn cases(
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

    fn reduction(&mut self, frame: &mut Frame<'_>, r: &Reduce) -> Outcome<Value> {
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
                let space = match part {
                    Part::One(_) => None,
                    Part::Each(space, _) => Some(space.clone()),
                };
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

    /// An expression of attributes, in the names given or else those of a scope.
    fn expr(
        &mut self,
        scope: usize,
        names: Option<&HashMap<Name, Item>>,
        e: &Expr,
    ) -> Outcome<Item> {
        let list = |s: &mut Self, elems: &[Elem]| -> Outcome<List> {
            let mut out = Vec::new();
            for elem in elems {
                match elem {
                    Elem::One(e) => {
                        let i = s.expr(scope, names, e)?.int(&mut s.values)?;
                        out.push(Part::One(i));
                    }
                    Elem::Splice(e) => out.extend(s.expr(scope, names, e)?.list()?.0),
                }
            }
            Ok(List(out))
        };
        Ok(match &e.kind {
            ExprKind::Int(v) => Item::Int(Int::from(*v)),
            ExprKind::Float(v) => Item::Value(self.values.number(*v)),
            ExprKind::Bool(b) => Item::Truth(Condition::Known(*b)),
            ExprKind::DType(d) => Item::DType(*d),
            ExprKind::Name(n) | ExprKind::Size(n) => return self.name(scope, names, n),
            ExprKind::DTypeVar(n) => Item::TypeVar(n.clone()),
            ExprKind::Type(TypePart::DType, n) => Item::TypeVar(n.clone()),
            ExprKind::List(elems) => Item::List(list(self, elems)?),
            ExprKind::Entry(n, at) => {
                let l = self.name(scope, names, n)?.list()?;
                let at = self.expr(scope, names, at)?.int(&mut self.values)?;
                Item::Int(l.entry(&at)?)
            }
            ExprKind::Unary(op, a) => {
                let a = self.expr(scope, names, a)?;
                return self.unary(*op, a);
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(scope, names, a)?, self.expr(scope, names, b)?);
                return self.binary(*op, a, b);
            }
            ExprKind::Call(f, args) => {
                let args =
                    args.iter().map(|a| self.expr(scope, names, a)).collect::<Outcome<Vec<_>>>()?;
                return self.call(*f, args);
            }
            ExprKind::If { cond, then, otherwise } => {
                let c = self.expr(scope, names, cond)?.truth()?;
                match self.values.decided(c)? {
                    Some(true) => return self.expr(scope, names, then),
                    Some(false) => return self.expr(scope, names, otherwise),
                    None => return unsupported("an attribute depends on a condition"),
                }
            }
            _ => return unsupported("an expression is not followed"),
        })
    }

    fn unary(&mut self, op: UnaryOp, a: Item) -> Outcome<Item> {
        Ok(match (op, a) {
            (UnaryOp::Neg, Item::Int(i)) => Item::Int(small(Int::default().plus(-1, &i))?),
            (UnaryOp::Neg, Item::List(l)) => {
                let entries =
                    l.0.iter().map(|p| Ok(p.with(small(Int::default().plus(-1, p.entry()))?)));
                Item::List(List(entries.collect::<Outcome<_>>()?))
            }
            (UnaryOp::Neg, a) => Item::Value(negative(&a.value(&mut self.values)?)),
            (UnaryOp::Not, Item::Truth(c)) => Item::Truth(c.negated()),
            (UnaryOp::Not, Item::Truths(cs)) => {
                Item::Truths(cs.into_iter().map(|(s, c)| (s, c.negated())).collect())
            }
            (UnaryOp::Not, a) => Item::Value(complement(&a.value(&mut self.values)?)),
        })
    }

    fn binary(&mut self, op: BinaryOp, a: Item, b: Item) -> Outcome<Item> {
        use BinaryOp::{Add, And, Div, Eq, Ge, Gt, Le, Lt, MatMul, Mod, Mul, Ne, Or, Pow, Sub};
        let is_list = |i: &Item| matches!(i, Item::List(_) | Item::Fill(..));
        match op {
            And | Or => self.joined(op, a, b),
            Eq | Ne | Lt | Le | Gt | Ge => match (a, b) {
                (Item::DType(a), Item::DType(b)) => {
                    let same = if op == Ne { a != b } else { a == b };
                    Ok(Item::Truth(Condition::Known(same)))
                }
                (Item::Int(a), Item::Int(b)) => Ok(Item::Truth(compared(op, &a, &b)?)),
                (a, b) if is_list(&a) || is_list(&b) => {
                    let whole = is_list(&a) && is_list(&b) && matches!(op, Eq | Ne);
                    let (a, b) = paired(a, b)?;
                    let one = |(a, b): (&Part, &Part)| {
                        let space = match a {
                            Part::One(_) => None,
                            Part::Each(space, _) => Some(space.clone()),
                        };
                        Ok((space, compared(if whole { Eq } else { op }, a.entry(), b.entry())?))
                    };
                    let each: Vec<_> = a.0.iter().zip(&b.0).map(one).collect::<Outcome<_>>()?;
                    Ok(match (whole, op) {
                        (true, Eq) => Item::Truth(every(each)),
                        (true, _) => Item::Truth(every(each).negated()),
                        (false, _) => Item::Truths(each),
                    })
                }
                (Item::Truth(a), Item::Truth(b)) if matches!(op, Eq | Ne) => {
                    let both = a.clone().and(b.clone()).or(a.negated().and(b.negated()));
                    Ok(Item::Truth(if op == Eq { both } else { both.negated() }))
                }
                (a, b) => {
                    let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                    self.comparison(op, a, b)
                }
            },
            Add | Sub | Mul | Div | Mod if is_list(&a) || is_list(&b) => {
                let (a, b) = paired(a, b)?;
                let f = &mut |a: &Int, b: &Int| arithmetic(op, a, b);
                Ok(Item::List(a.zip(&b, f)?))
            }
            Add | Sub | Mul | Div | Mod => match (a, b) {
                (Item::Int(a), Item::Int(b)) => Ok(Item::Int(arithmetic(op, &a, &b)?)),
                (a, b) => {
                    let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                    Ok(Item::Value(match op {
                        Add => add(&a, &b),
                        Sub => add(&a, &negative(&b)),
                        Mul => self.values.times(&a, &b)?,
                        Div => self.values.quotient(&a, &b)?,
                        _ => self.values.function(Function::Modulo, vec![a, b])?,
                    }))
                }
            },
            Pow => {
                let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                Ok(Item::Value(self.values.power(&a, &b)?))
            }
            MatMul => unsupported("a product of matrices within a meaning"),
        }
    }

    fn joined(&mut self, op: BinaryOp, a: Item, b: Item) -> Outcome<Item> {
        let one = |a: Condition, b: Condition| match op {
            BinaryOp::And => a.and(b),
            _ => a.or(b),
        };
        Ok(match (a, b) {
            (Item::Truth(a), Item::Truth(b)) => Item::Truth(one(a, b)),
            (Item::Truths(a), Item::Truths(b)) if a.len() == b.len() => {
                Item::Truths(a.into_iter().zip(b).map(|((s, a), (_, b))| (s, one(a, b))).collect())
            }
            (Item::Truths(cs), Item::Truth(c)) | (Item::Truth(c), Item::Truths(cs)) => {
                Item::Truths(cs.into_iter().map(|(s, a)| (s, one(a, c.clone()))).collect())
            }
            (a, b) => {
                let (a, b) = (a.value(&mut self.values)?, b.value(&mut self.values)?);
                Item::Value(match op {
                    BinaryOp::And => self.values.times(&a, &b)?,
                    _ => self.values.either(&a, &b)?,
                })
            }
        })
    }

    fn comparison(&mut self, op: BinaryOp, a: Value, b: Value) -> Outcome<Item> {
        if self.values.is_integer(&a) && self.values.is_integer(&b) {
            let (a, b) = (self.values.as_integer(&a)?, self.values.as_integer(&b)?);
            return Ok(Item::Truth(compared(op, &a, &b)?));
        }
        let truths = self.values.is_truth(&a) && self.values.is_truth(&b);
        Ok(Item::Value(match op {
            // Of truth values: both, or neither.
            BinaryOp::Eq | BinaryOp::Ne if truths => {
                let either = self.values.either(&a, &b)?;
                let both = self.values.times(&a, &b)?;
                let differ = add(&either, &negative(&both));
                if op == BinaryOp::Ne { differ } else { complement(&differ) }
            }
            BinaryOp::Eq => self.values.equal(a, b),
            BinaryOp::Ne => complement(&self.values.equal(a, b)),
            BinaryOp::Lt => self.values.of(Factor::Less(a, b)),
            BinaryOp::Gt => self.values.of(Factor::Less(b, a)),
            BinaryOp::Le => self.values.of(Factor::AtMost(a, b)),
            _ => self.values.of(Factor::AtMost(b, a)),
        }))
    }

    fn call(&mut self, f: Function, mut args: Vec<Item>) -> Outcome<Item> {
        use Function as F;
        let mut take = || {
            if args.is_empty() { unsupported("an argument is missing") } else { Ok(args.remove(0)) }
        };
        Ok(match f {
            F::Permute => Item::List(take()?.list()?.permuted(&take()?.list()?)?),
            F::Unpermute => Item::List(take()?.list()?.unpermuted(&take()?.list()?)?),
            F::Inverse => Item::List(take()?.list()?.inverse()?),
            F::Compose => Item::List(take()?.list()?.composed(&take()?.list()?)?),
            F::Pick => Item::List(take()?.list()?.picked(&take()?.list()?)?),
            F::Drop => Item::List(take()?.list()?.dropped(&take()?.list()?)?),
            F::Weave => {
                let (kept, inserted, at) = (take()?.list()?, take()?.list()?, take()?.list()?);
                Item::List(List::woven(&kept, &inserted, &at)?)
            }
            F::Replace => {
                let list = take()?.list()?;
                let at = take()?.int(&mut self.values)?;
                let value = take()?.int(&mut self.values)?;
                Item::List(list.replaced(&at, value)?)
            }
            F::Entry | F::At => {
                let list = take()?.list()?;
                let at = take()?.int(&mut self.values)?;
                Item::Int(list.entry(&at)?)
            }
            F::Length | F::Rank => match take()? {
                Item::Fill(n, _) => Item::Int(n),
                list => Item::Int(list.list()?.length()?),
            },
            F::Range => {
                let first = take()?.int(&mut self.values)?;
                let (from, to) = match take() {
                    Ok(to) => (first, to.int(&mut self.values)?),
                    Err(_) => (Int::from(0), first),
                };
                Item::List(range(&from, &to)?)
            }
            F::Fill => {
                let n = take()?.int(&mut self.values)?;
                Item::Fill(n, take()?.int(&mut self.values)?)
            }
            F::All => match take()? {
                Item::Truths(cs) => Item::Truth(every(cs)),
                Item::Truth(c) => Item::Truth(c),
                _ => return unsupported("`all` of no conditions"),
            },
            F::Any => match take()? {
                Item::Truths(cs) => {
                    let none = cs.into_iter().map(|(s, c)| (s, c.negated())).collect();
                    Item::Truth(every(none).negated())
                }
                Item::Truth(c) => Item::Truth(c),
                _ => return unsupported("`any` of no conditions"),
            },
            F::Maximum | F::Minimum => {
                let (a, b) = (take()?, take()?);
                match (a, b) {
                    (Item::Int(a), Item::Int(b)) => Item::Int(self.extreme(f, &a, &b)?),
                    (a @ (Item::List(_) | Item::Fill(..)), b)
                    | (a, b @ (Item::List(_) | Item::Fill(..))) => {
                        let (a, b) = paired(a, b)?;
                        let mut out = Vec::new();
                        for (p, q) in a.0.iter().zip(&b.0) {
                            out.push(p.with(self.extreme(f, p.entry(), q.entry())?));
                        }
                        Item::List(List(out))
                    }
                    (a, b) => {
                        let args = vec![a.value(&mut self.values)?, b.value(&mut self.values)?];
                        Item::Value(self.values.function(f, args)?)
                    }
                }
            }
            F::Product => Item::Int(product(&take()?.list()?)?),
            F::Total => {
                let list = take()?.list()?;
                let mut out = Int::from(0);
                for part in &list.0 {
                    let sum = match part {
                        Part::One(i) => i.clone(),
                        Part::Each(..) => Int::from(Atom::Of(
                            "total",
                            vec![Argument::List(List(vec![part.clone()]))],
                        )),
                    };
                    out = small(out.plus(1, &sum))?;
                }
                Item::Int(out)
            }
            F::Ravel => {
                let (index, shape) = (take()?.list()?, take()?.list()?);
                Item::Int(reshape::raveled(&index, &shape)?)
            }
            F::Unravel => {
                let number = take()?.int(&mut self.values)?;
                Item::List(reshape::unraveled(&number, &take()?.list()?)?)
            }
            F::Cast => {
                let (a, to) = (take()?, take()?);
                self.cast(a, to)?
            }
            F::Float => {
                let a = take()?;
                Item::Value(a.value(&mut self.values)?)
            }
            F::IsKnown | F::Contains | F::Increasing | F::IndexOf => {
                return super::function::refuse(f);
            }
            F::Abs
            | F::Sqrt
            | F::Rsqrt
            | F::Recip
            | F::Exp
            | F::Log
            | F::Floor
            | F::Ceil
            | F::Round
            | F::Sign
            | F::Erf
            | F::Sin
            | F::Cos
            | F::Tan
            | F::Asin
            | F::Acos
            | F::Atan
            | F::Sinh
            | F::Cosh
            | F::Tanh
            | F::Asinh
            | F::Acosh
            | F::Atanh
            | F::Modulo
            | F::Remainder
            | F::BitAnd
            | F::BitOr
            | F::BitXor
            | F::ShiftLeft
            | F::ShiftRight => {
                let mut values = Vec::new();
                for a in args {
                    values.push(a.value(&mut self.values)?);
                }
                Item::Value(self.values.function(f, values)?)
            }
            _ => return super::function::refuse(f),
        })
    }

    fn cast(&mut self, a: Item, to: Item) -> Outcome<Item> {
        let v = a.value(&mut self.values)?;
        let kept = self.values.is_truth(&v);
        Ok(Item::Value(match to {
            Item::DType(d) if kept && d != DType::Str => v,
            Item::DType(DType::I64) if self.values.is_integer(&v) => v,
            Item::DType(d) => self.values.of(Factor::Convert(d, v)),
            Item::TypeVar(n) => self.values.of(Factor::ConvertTo(n, v)),
            _ => return unsupported("a type is not known"),
        }))
    }

    fn extreme(&mut self, f: Function, a: &Int, b: &Int) -> Outcome<Int> {
        let larger = Condition::AtLeastZero(small(a.plus(-1, b))?);
        Ok(match (self.values.knowledge.decide(&larger), f) {
            (Some(true), Function::Maximum) | (Some(false), Function::Minimum) => a.clone(),
            (Some(_), _) => b.clone(),
            (None, _) => {
                let mut both = [a, b].map(|i| Argument::Int(i.clone()));
                both.sort();
                Int::from(Atom::Of(f.name(), both.to_vec()))
            }
        })
    }
}

/// True of conditions under which everything that they compare has the same axes.
fn is_equation(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => is_equation(a) && is_equation(b),
        ExprKind::Binary(BinaryOp::Eq, ..) => true,
        ExprKind::Call(Function::All, args) => args.iter().all(|a| match &a.kind {
            ExprKind::Binary(op, ..) => !matches!(op, BinaryOp::Or | BinaryOp::And),
            _ => false,
        }),
        _ => false,
    }
}

/// A segment whose number of axes is said to be that of another one, or a small number.
fn same_axes(zero: &Int) -> Option<(Name, Vec<AxisKind>)> {
    let own = |space: Space| space.path.is_empty().then_some(space.base);
    let mut terms = zero.0.iter();
    let (first, second) = (terms.next()?, terms.next());
    let length = |m: &[Atom]| match m {
        [Atom::Length(space)] => Some(space.clone()),
        _ => None,
    };
    match (first, second, terms.next()) {
        ((m, 1 | -1), None, None) => Some((own(length(m)?)?, vec![])),
        ((none, n), Some((m, c)), None)
            if none.is_empty() && c.abs() == 1 && (0..=MOST_AXES).contains(&(-n * c)) =>
        {
            Some((own(length(m)?)?, vec![AxisKind::One; (-n * c) as usize]))
        }
        ((a, c), Some((b, d)), None) if *c == -d && c.abs() == 1 => {
            // A list whose axes are not known has those of a segment.
            let (a, b) = match (length(a)?, length(b)?) {
                (a, b) if a.loose && !b.loose => (b, a),
                (a, b) => (a, b),
            };
            Some((own(b)?, vec![AxisKind::Each(Some(a))]))
        }
        _ => None,
    }
}

/// A comparison of integers.
fn compared(op: BinaryOp, a: &Int, b: &Int) -> Outcome<Condition> {
    let (up, down) = (small(a.plus(-1, b))?, small(b.plus(-1, a))?);
    let known = |c: Condition| match &c {
        Condition::AtLeastZero(i) => i.number().map_or(c.clone(), |n| Condition::Known(n >= 0)),
        Condition::Zero(i) => i.number().map_or(c.clone(), |n| Condition::Known(n == 0)),
        _ => c,
    };
    let zero = |i: Int| match i.0.values().next() {
        Some(c) if *c < 0 => Int::default().plus(-1, &i).unwrap_or(i),
        _ => i,
    };
    Ok(match op {
        BinaryOp::Ge => known(Condition::AtLeastZero(up)),
        BinaryOp::Le => known(Condition::AtLeastZero(down)),
        BinaryOp::Lt => known(Condition::AtLeastZero(small(down.plus(-1, &Int::from(1)))?)),
        BinaryOp::Gt => known(Condition::AtLeastZero(small(up.plus(-1, &Int::from(1)))?)),
        BinaryOp::Ne => known(Condition::Zero(zero(up))).negated(),
        _ => known(Condition::Zero(zero(up))),
    })
}

fn arithmetic(op: BinaryOp, a: &Int, b: &Int) -> Outcome<Int> {
    let opaque = |name| {
        let both = [a, b].map(|i| Argument::Int(i.clone()));
        Int::from(Atom::Of(name, both.to_vec()))
    };
    Ok(match op {
        BinaryOp::Add => small(a.plus(1, b))?,
        BinaryOp::Sub => small(a.plus(-1, b))?,
        BinaryOp::Mul => small(a.times(b))?,
        BinaryOp::Div => match b.number() {
            Some(1) => a.clone(),
            _ => opaque("/"),
        },
        _ => opaque("%"),
    })
}

/// All hold, for each axis where they are of one.
fn every(cs: Vec<(Option<Space>, Condition)>) -> Condition {
    cs.into_iter().fold(Condition::Known(true), |all, (space, c)| {
        all.and(match (space, c) {
            (_, Condition::Known(true)) => Condition::Known(true),
            (Some(space), c) => Condition::Every(space, Box::new(c)),
            (None, c) => c,
        })
    })
}

/// The integers from one up to another: positions of a segment, or a few.
fn range(from: &Int, to: &Int) -> Outcome<List> {
    let n = small(to.plus(-1, from))?;
    if let Some(n) = n.number().filter(|n| (0..=8).contains(n)) {
        let each = (0..n).map(|i| Ok(Part::One(small(from.plus(1, &Int::from(i)))?)));
        return Ok(List(each.collect::<Outcome<_>>()?));
    }
    match n.atom() {
        Some(Atom::Length(space)) if space.path.is_empty() => {
            let position = Int::from(Atom::Position(space.base.clone()));
            Ok(List::each(space.clone(), small(position.plus(1, from))?))
        }
        _ => ranges(from, &n),
    }
}

/// Positions of several segments and single axes one after the other, as many as a sum says.
fn ranges(from: &Int, n: &Int) -> Outcome<List> {
    let mut out = Vec::new();
    let mut next = from.clone();
    // Segments come first: where that is not so, the positions are those of other axes, which is told where they are used.
    let (ones, lengths): (Vec<_>, Vec<_>) = n.0.iter().partition(|(m, _)| m.is_empty());
    for (m, c) in lengths.into_iter().chain(ones) {
        let count = match m.as_slice() {
            [a @ Atom::Length(_)] if *c == 1 => Int::from(a.clone()),
            [] if (1..=MOST_AXES).contains(c) => Int::from(*c),
            _ => return unsupported("a range of positions is of no segment"),
        };
        let end = small(next.plus(1, &count))?;
        out.extend(range(&next, &end)?.0);
        next = end;
    }
    Ok(List(out))
}

/// The product of all entries.
pub(super) fn product(list: &List) -> Outcome<Int> {
    let mut out = Int::from(1);
    for part in &list.0 {
        let factor = match part {
            Part::One(i) => i.clone(),
            Part::Each(_, i) if i.number() == Some(1) => Int::from(1),
            Part::Each(..) => {
                Int::from(Atom::Of("product", vec![Argument::List(List(vec![part.clone()]))]))
            }
        };
        out = small(out.times(&factor))?;
    }
    Ok(out)
}
