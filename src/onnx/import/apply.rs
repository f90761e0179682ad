//! Applies operators positionally: NumPy's broadcasting, numbers among tensors, values known at import.

use super::broadcast::trailing_axes;
use super::data_dependent::KnownValues;
use super::data_dependent::symbolic_values::SymbolicValues;
use super::extent_equations::{
    BroadcastMisfit, ExtentEquation, equality_needs, is_open, number_for,
};
use super::facts::{bound_to_be_equal, simplified};
use super::read_facts::Positive;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Program, Tensor, Type, Value, may_equal};
use mlc_dsl::library::{CallId, Callable, DTypePattern, Library};
use mlc_dsl::shape_values::{self, Known, KnownElement};
use mlc_dsl::typing::infer::{TypeError, infer};
use mlc_dsl::typing::open_conditions::OpenConditions;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Lists of symbolic extents longer than this do not replace what computes them.
const MAX_SYMBOLIC: usize = 64;
/// Most calls of `onnx` items by others that one node takes.
const MAX_CALLS: usize = 256;
/// Most arguments of one node that are made to fit.
const MAX_FITS: usize = 16;

/// An argument of an operator.
#[derive(Clone, Debug)]
pub(crate) enum ImportOperand {
    /// A tensor.
    Value(Value),
    /// A number, which takes the element type of its partners.
    Number(Attr),
}

/// The program that is being written, and what is known of its values.
pub(crate) struct ImportBuilder<'a> {
    pub builder: Builder<'a>,
    known: HashMap<Value, Option<Rc<Known>>>,
    pub(crate) conflict: Option<ExtentEquation>,
    /// What extents have to be for the model to have a meaning.
    assumed: &'a [ExtentEquation],
    /// Extents that are at least 0 wherever the model has a meaning.
    facts: &'a [Extent],
    /// One that would let the last extents that did not fit each other be equal.
    pub(crate) needed_fact: Option<Extent>,
    misfit: Option<BroadcastMisfit>,
    /// Values whose elements a declaration has asked for in vain since the current node began.
    undecided: Vec<Value>,
    unsupported: bool,
    symbolic: bool,
    symbolic_values: SymbolicValues,
    /// What is not 0 wherever the model runs.
    pub positive: Positive,
    /// Elements that a run has computed, by place and question.
    known_values: &'a KnownValues,
    pub(crate) step: usize,
    /// The first result of the current node of the main graph, and the step before it.
    pub(crate) main: (String, usize),
    /// Calls of `onnx` items by others since the current node began, and arguments that were made to fit.
    calls: usize,
    fits: usize,
}

impl<'a> ImportBuilder<'a> {
    /// An empty program of a model that has a meaning only where what is assumed holds, and all of `facts` are at least 0.
    pub fn new(
        library: &'a Library,
        known_values: &'a KnownValues,
        assumed: &'a [ExtentEquation],
        facts: &'a [Extent],
    ) -> ImportBuilder<'a> {
        ImportBuilder {
            builder: Builder::new(library),
            known: HashMap::new(),
            conflict: None,
            assumed,
            facts,
            needed_fact: None,
            misfit: None,
            undecided: vec![],
            unsupported: false,
            symbolic: false,
            symbolic_values: SymbolicValues::default(),
            positive: Positive::default(),
            known_values,
            step: 0,
            main: Default::default(),
            calls: 0,
            fits: 0,
        }
    }

    pub fn facts(&self) -> &'a [Extent] {
        self.facts
    }

    pub fn known_values(&self) -> &'a KnownValues {
        self.known_values
    }

    /// What had to be assumed of extents.
    pub fn assumed(&self) -> &'a [ExtentEquation] {
        self.assumed
    }

    pub fn library(&self) -> &'a Library {
        self.builder.library
    }

    /// The program with these outputs.
    pub fn finish(self, outputs: Vec<(String, Value)>) -> Program {
        self.builder.finish(outputs)
    }

    /// What [`ImportBuilder::take_conflict`] has to take.
    pub fn conflict(&self) -> Option<&ExtentEquation> {
        self.conflict.as_ref()
    }

    /// What must hold for the last application that failed to be well-typed.
    pub fn take_conflict(&mut self) -> Option<ExtentEquation> {
        self.conflict.take()
    }

    /// An extent that is at least 0 wherever the last extents that did not fit each other do.
    pub fn take_needed_fact(&mut self) -> Option<Extent> {
        self.needed_fact.take()
    }

    /// True if there is one.
    pub fn needs_fact(&self) -> bool {
        self.needed_fact.is_some()
    }

    /// That two extents do not broadcast, and what a symbol would have to be for them to. Of two that a run computes only a run
    /// knows whether they do.
    pub fn apart(&mut self, a: &Extent, b: &Extent) -> String {
        let reason = format!("extents {a} and {b} do not broadcast");
        self.symbolic |= a.as_const().or(b.as_const()).is_none() || is_open(a, b);
        self.misfit = number_for(a, b).map(|(symbol, number)| BroadcastMisfit {
            symbol,
            number,
            reason: reason.clone(),
        });
        reason
    }

    /// The last extents that [`ImportBuilder::apart`] found, if a number would make them fit.
    pub fn misfit(&self) -> Option<&BroadcastMisfit> {
        self.misfit.as_ref()
    }

    /// The elements of a value that a declaration cannot do without, or chooses by.
    pub fn required(&mut self, v: Value) -> Option<Rc<Known>> {
        let known = self.known(v);
        if known.is_some() {
            return known;
        }
        if self.symbolic_values.is_on() {
            return self.symbolic_values.elements(v, self.builder.ty(v), 0);
        }
        let asked = self.undecided.iter().position(|&u| u == v).unwrap_or_else(|| {
            self.undecided.push(v);
            self.undecided.len() - 1
        });
        let known = self.known_values.get(&self.request_site(), asked).map(Rc::new)?;
        self.known.insert(v, Some(known.clone()));
        Some(known)
    }

    /// The same of an input that may hold numbers which mean something to this node alone, such as -1 for the rest.
    pub fn required_input(&mut self, v: Value) -> Option<Rc<Known>> {
        match self.known(v) {
            None if self.symbolic_values.is_on() => {
                self.symbolic_values.elements(v, self.builder.ty(v), self.step)
            }
            _ => self.required(v),
        }
    }

    /// The elements of a value, if they can be known; what is supposed of one is not.
    pub fn known_or_asked(&mut self, v: Value) -> Option<Rc<Known>> {
        if self.symbolic_values.is_on() { self.known(v) } else { self.required(v) }
    }

    /// Elements that only a run computes are symbols until [`ImportBuilder::stop_supposing`].
    pub fn begin_symbolic_values(&mut self) {
        self.symbolic_values.turn(true);
    }

    /// Ends what [`ImportBuilder::suppose`] began.
    pub fn end_symbolic_values(&mut self) {
        self.symbolic_values.turn(false);
        self.conflict = None;
    }

    /// True if an extent depends on what was supposed.
    pub fn mentions_symbolic_value(&self, extent: &Extent) -> bool {
        self.symbolic_values.mentions(extent)
    }

    /// Forgets which elements were asked for in vain: a node begins, or another part of one.
    pub fn begin_node(&mut self) {
        self.step += 1;
        (self.calls, self.fits) = (0, 0);
        self.undecided.clear();
        self.misfit = None;
        self.needed_fact = None;
        self.unsupported = false;
        self.symbolic = false;
    }

    /// Counts a call of an `onnx` item by another.
    pub fn begin_call(&mut self) -> Result<(), String> {
        self.calls += 1;
        match self.calls > MAX_CALLS {
            true => Err("its declaration calls others too often, or in a circle".into()),
            false => Ok(()),
        }
    }

    /// Of the elements that the current node asked for in vain, the first that nobody has answered.
    pub fn unanswered(&self) -> Option<Value> {
        self.undecided.get(self.known_values.count(&self.request_site())).copied()
    }

    /// True if the current node asked for elements that are not known.
    pub fn asked_in_vain(&self) -> bool {
        !self.undecided.is_empty()
    }

    /// Part of a value: of each axis a start and an extent.
    pub fn slice(
        &mut self,
        x: Value,
        start: Vec<Extent>,
        size: Vec<Extent>,
    ) -> Result<Value, String> {
        let slice = self.builder.structural().slice.ok_or("`slice` is not declared")?;
        let step = vec![Extent::from(1); size.len()];
        let attrs = [start, size, step].map(|a| Some(Attr::Ints(a)));
        first(self.apply(slice, &attrs, &[x])?)
    }

    /// A value with other axes.
    pub fn reshape(&mut self, x: Value, shape: Vec<Extent>) -> Result<Value, String> {
        let reshape = self.builder.structural().reshape.ok_or("`reshape` is not declared")?;
        first(self.apply(reshape, &[Some(Attr::Ints(shape))], &[x])?)
    }

    /// Values one after the other along an axis.
    pub fn concat(&mut self, mut values: Vec<Value>, axis: usize) -> Result<Value, String> {
        let concat = self.library().find("concat").ok_or("`concat` is not declared")?;
        let attrs = [Some(Attr::int(axis as i64))];
        // In pairs of neighbours, so that no element is copied more often than there are rounds.
        while values.len() > 1 {
            let mut joined = Vec::with_capacity(values.len().div_ceil(2));
            for pair in values.chunks(2) {
                joined.push(match pair {
                    [a, b] => first(self.apply(concat, &attrs, &[*a, *b])?)?,
                    other => other[0],
                });
            }
            values = joined;
        }
        first(values)
    }

    /// Notes that the current node asks for what is not supported, and is not wrong; yields the reason.
    pub fn unsupported(&mut self, reason: String) -> String {
        self.unsupported = true;
        reason
    }

    /// Notes that the current node asks for an extent which is a symbol; yields the reason.
    pub fn symbolic(&mut self, reason: String) -> String {
        self.symbolic = true;
        reason
    }

    /// True if that was noted of the current node.
    pub fn is_symbolic(&self) -> bool {
        self.symbolic
    }

    /// True if the current node asks for what is not supported.
    pub fn is_unsupported(&self) -> bool {
        self.unsupported
    }

    /// The inputs of the program that those elements are computed from, in order.
    pub fn undecided_inputs(&self) -> Vec<String> {
        let program = self.builder.program();
        let (mut seen, mut found) = (HashSet::new(), BTreeSet::new());
        let mut open: Vec<NodeId> = self.undecided.iter().map(|v| v.node).collect();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = program.node(id);
            if let NodeKind::Input(i) = node.kind {
                found.insert(i);
            }
            open.extend(node.args.iter().map(|v| v.node));
        }
        found.iter().map(|&i| program.inputs[i as usize].0.clone()).collect()
    }

    /// The elements of a value, if they are known.
    pub fn known(&mut self, v: Value) -> Option<Rc<Known>> {
        if let Some(k) = self.known.get(&v) {
            return k.clone();
        }
        let k = self.builder.program().as_const(v).and_then(Known::of).map(Rc::new);
        self.known.insert(v, k.clone());
        k
    }

    /// Applies an operator to operands that are broadcast as NumPy would.
    pub fn call(
        &mut self,
        id: CallId,
        operands: Vec<ImportOperand>,
        attrs: &[Option<Attr>],
    ) -> Result<Vec<Value>, String> {
        let call = self.library().call(id);
        let mut args = self.tensors(call, operands)?;
        if let Some(trailing) = trailing_axes(call) {
            args = self.align(args, trailing)?;
        }
        self.apply(id, attrs, &args)
    }

    /// The operands as values: a number becomes a constant of rank 0.
    fn tensors(
        &mut self,
        call: &Callable,
        operands: Vec<ImportOperand>,
    ) -> Result<Vec<Value>, String> {
        let mut dtypes: Vec<(&str, DType)> = Vec::new();
        let mut any = None;
        for (input, o) in call.inputs.iter().zip(&operands) {
            if let ImportOperand::Value(v) = o {
                let d = self.builder.ty(*v).dtype;
                any = any.or(Some(d));
                if let DTypePattern::Var(n) = &input.ty.dtype {
                    dtypes.push((n, d));
                }
            }
        }
        let mut out = Vec::with_capacity(operands.len());
        for (input, o) in call.inputs.iter().zip(operands) {
            out.push(match o {
                ImportOperand::Value(v) => v,
                ImportOperand::Number(a) => {
                    let dtype = match &input.ty.dtype {
                        DTypePattern::Fixed(d) => Some(*d),
                        DTypePattern::Var(n) => {
                            dtypes.iter().find(|(m, _)| *m == &**n).map(|d| d.1).or(any)
                        }
                    };
                    let dtype = dtype.ok_or_else(|| {
                        format!("the number {a} has no tensor to take its type from")
                    })?;
                    self.scalar(&a, dtype)?
                }
            });
        }
        Ok(out)
    }

    /// A number as a constant of rank 0; a symbolic one stays an extent.
    pub fn scalar(&mut self, a: &Attr, dtype: DType) -> Result<Value, String> {
        if let (DType::Str, Attr::Str(text)) = (dtype, a) {
            let tensor = Tensor::from_strings(vec![], [text]).map_err(|e| e.to_string())?;
            return Ok(self.builder.constant(tensor));
        }
        if dtype == DType::Str {
            return Err(format!("{a} is no text"));
        }
        let number = match a {
            Attr::Bool(b) => Some(f64::from(u8::from(*b))),
            Attr::Int(e) if e.as_const().is_none() => {
                let known =
                    Known { dtype, shape: vec![], elements: vec![KnownElement::Int(e.clone())] };
                return self.place(known).ok_or_else(|| format!("{e} is no {dtype}"));
            }
            Attr::Int(e) => {
                let v = e.as_const().unwrap_or(0);
                if dtype.int_range().is_some_and(|(l, h)| !(l..=h).contains(&i128::from(v))) {
                    return Err(format!("{v} is no {dtype}"));
                }
                return Ok(self.builder.constant(Tensor::from_i64(dtype, vec![], &[v])));
            }
            a => a.as_f64(),
        };
        let v = number.ok_or_else(|| format!("{a} is not a number"))?;
        if !dtype.is_exact(v) {
            return Err(format!("{v} is no {dtype}"));
        }
        Ok(self.builder.constant(Tensor::from_f64(dtype, vec![], &[v])))
    }

    /// Applies an operator to arguments as they are. What comes out of known values is known.
    pub fn apply(
        &mut self,
        id: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, String> {
        let structural = self.builder.structural();
        if let ([x], [Some(map), Some(Attr::Ints(shape))], true) =
            (args, attrs, Some(id) == structural.broadcast)
            && let Some(map) = map.as_i64s()
            && map.len() == self.builder.ty(*x).rank()
        {
            return Ok(vec![self.broadcast(*x, &map, shape.clone())?]);
        }
        self.apply_as_is(id, attrs, args)
    }

    pub(crate) fn apply_as_is(
        &mut self,
        id: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<Vec<Value>, String> {
        let known_better: Vec<Option<Attr>>;
        let attrs = if self.facts.is_empty() {
            attrs
        } else {
            known_better =
                attrs.iter().map(|a| a.as_ref().map(|a| simplified(a, self.facts))).collect();
            &known_better
        };
        let structural = self.builder.structural();
        if let ([x], [Some(Attr::Ints(shape))], true) =
            (args, attrs, Some(id) == structural.reshape)
            && let Some(t) = self.builder.program().as_const(*x)
            && let Some(shape) = Type::new(t.dtype(), shape.clone()).known_shape()
            && shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) == Some(t.len())
        {
            let t = t.reshaped(shape);
            return Ok(vec![self.builder.constant(t)]);
        }
        let values = match self.builder.apply(id, attrs, args) {
            Ok(values) => values,
            Err(e) => match self.fitted(id, args, &e)? {
                Some(args) => return self.apply_as_is(id, attrs, &args),
                None => return Err(e.to_string()),
            },
        };
        self.meet_conditions(id, attrs, args)?;
        let known: Option<Vec<Rc<Known>>> = args.iter().map(|&a| self.known(a)).collect();
        match known {
            Some(known) => Ok(self.learn(id, attrs, args, &known, values)),
            None => Ok(values),
        }
    }

    /// The arguments of an application that failed, with the one that did not fit stretched: its extent and that which it must have are
    /// equal in every run that there is, though nothing shows it before.
    fn fitted(
        &mut self,
        id: CallId,
        args: &[Value],
        e: &TypeError,
    ) -> Result<Option<Vec<Value>>, String> {
        let Some((a, b)) = e.unequal() else { return Ok(None) };
        self.conflict = equality_needs(a, b).filter(|need| !self.assumed.contains(need));
        self.needed_fact = bound_to_be_equal(a, b).filter(|fact| !self.facts.contains(fact));
        self.symbolic |= is_open(a, b);
        let TypeError::Input { input, .. } = e else { return Ok(None) };
        let at = self.library().call(id).inputs.iter().position(|i| i.name == *input);
        let is_needed = self.conflict.is_some() || self.needed_fact.is_some();
        let (Some(at), false, true) = (at, is_needed, may_equal(a, b)) else {
            return Ok(None);
        };
        let shape = self.builder.ty(args[at]).shape.clone();
        let (found, bound) = if shape.contains(b) { (b, a) } else { (a, b) };
        let Some(axis) = shape.iter().position(|e| e == found) else { return Ok(None) };
        let mut wide = shape;
        wide[axis] = bound.clone();
        let stretch = self.builder.structural().stretch.ok_or("`stretch` is not declared")?;
        let mut args = args.to_vec();
        args[at] = self.apply_as_is(stretch, &[Some(Attr::Ints(wide))], &[args[at]])?[0];
        self.fits += 1;
        Ok((self.fits <= MAX_FITS).then_some(args))
    }

    /// An error if a condition of an operator holds for one value of a symbol only.
    fn meet_conditions(
        &mut self,
        id: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
    ) -> Result<(), String> {
        let call = self.builder.library.call(id);
        let types: Vec<&Type> = args.iter().map(|&a| self.builder.ty(a)).collect();
        let open = |t: &&Type| t.shape.iter().any(|e| e.as_const().is_none());
        if call.conditions.is_empty() || !types.iter().any(open) {
            return Ok(());
        }
        let open = OpenConditions::of(call, &types, attrs).comparisons;
        for (a, b) in open.iter().filter_map(|c| c.as_equality()) {
            if let Some((symbol, number)) = number_for(a, b) {
                let reason = format!("`{}` needs {a} to be {b}", call.name);
                self.conflict = Some(ExtentEquation::of(Extent::sym(&symbol), number));
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Replaces integers and truth values that are known by constants and lists of extents.
    fn learn(
        &mut self,
        id: CallId,
        attrs: &[Option<Attr>],
        args: &[Value],
        known: &[Rc<Known>],
        values: Vec<Value>,
    ) -> Vec<Value> {
        let call = self.library().call(id);
        let types: Vec<Type> = args.iter().map(|&a| self.builder.ty(a).clone()).collect();
        let types: Vec<&Type> = types.iter().collect();
        let Ok(app) = infer(call, &types, attrs) else { return values };
        let known: Vec<&Known> = known.iter().map(Rc::as_ref).collect();
        values
            .into_iter()
            .enumerate()
            .map(|(i, v)| {
                if self.known(v).is_some() {
                    return v;
                }
                let Some(k) = shape_values::evaluate(call, i, &app, &known) else { return v };
                let place = if k.dtype.is_float() { None } else { self.place(k.clone()) };
                let v = place.unwrap_or(v);
                self.known.insert(v, Some(Rc::new(k)));
                v
            })
            .collect()
    }

    /// A value that holds known integers.
    fn place(&mut self, k: Known) -> Option<Value> {
        if let Some(t) = k.tensor() {
            return Some(self.builder.constant(t));
        }
        let list = k.extents().filter(|e| e.len() <= MAX_SYMBOLIC)?;
        let leaf = self.library().find("extents")?;
        let count = list.len();
        let mut v = *self.builder.apply(leaf, &[Some(Attr::Ints(list))], &[]).ok()?.first()?;
        if k.shape != [count] {
            let shape: Vec<Extent> = k.shape.iter().map(|&d| Extent::from(d)).collect();
            v = self.builder.reshape(v, &shape).ok()?;
        }
        if k.dtype != DType::I64 {
            let cast = self.builder.structural().cast?;
            v = *self.builder.apply(cast, &[Some(Attr::DType(k.dtype))], &[v]).ok()?.first()?;
        }
        self.known.insert(v, Some(Rc::new(k)));
        Some(v)
    }

    /// True if the value is a constant of the program.
    pub fn is_const(&self, v: Value) -> bool {
        matches!(self.builder.program().node(v.node).kind, NodeKind::Const(_))
    }
}

fn first(values: Vec<Value>) -> Result<Value, String> {
    values.first().copied().ok_or_else(|| "there is nothing to join".into())
}
