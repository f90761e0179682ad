//! Evaluates terms of a law at some index: what each element is, as operators' meanings say, for tensors of any shape.

mod element;
pub(super) mod expression;
mod knowledge;
mod signature;

use super::condition::Condition;
use super::integer::{Atom, Int};
use super::item::Item;
use super::list::{AxisKind, List, Outcome, Part, Space, Stuck, unsupported};
use super::order::Order;
use super::value::{Factor, Value, Values};
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::DType;
use mlc_dsl::library::{CallId, DTypePattern, Dim, Input, Law, Library, Name, TypePattern};
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
    nesting: usize,
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
            nesting: 0,
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
            let Some(dims) = &ty.dims else {
                return unsupported(format!("`{}` yields any shape", c.name));
            };
            outputs.push(self.dims(scope, Some(&names), dims)?);
        }
        let made = Rc::new(Application { call: *call, names, args, outputs });
        self.applications.insert((scope, id), made.clone());
        Ok(made)
    }
}
