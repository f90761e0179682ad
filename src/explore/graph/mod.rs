//! The e-graph of a program: typed, canonical, bounded and logged.
//!
//! Every node is added by [`Graph::add`], which types it, folds it if it is small and constant, and
//! rejects it once the node limit is reached: the limit is never exceeded.

pub(crate) mod language;
pub(crate) mod lower;

use super::analysis::scalar_factors::taking_up_numbers;
use super::constants::evaluation::ConstantFolder;
use super::proof::log::{Equation, LogId, ProofLog, Reason};
use egg::Id;
use language::{Analysis, AttrsId, ClassFacts, ConstantValue, ENode, Egg, Head, PerCopyId};
use mlc_dsl::ir::canon::{Sink, Structural};
use mlc_dsl::ir::{Attr, ConstId, Consts, DType, Extent, Tensor, Type};
use mlc_dsl::library::{CallId, CallKind, Library, Name, OpClass};
use mlc_dsl::typing::infer::{TypeError, infer};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Results of folding with more elements than this stay unevaluated until the plan is made.
const FOLD_ELEMENTS: usize = 4096;

/// The e-graph and everything that belongs to it.
pub struct Graph {
    /// egg's part. Classes may be read by anyone; nodes are added through [`Graph::add`] only.
    pub egg: Egg,
    pub library: Arc<Library>,
    /// The operators of the notation.
    pub structural: Structural,
    pub consts: Consts,
    /// Provenance.
    pub log: ProofLog,
    /// The round that is being run; 0 while the program is read.
    pub round: u32,
    attrs: Vec<Arc<[Attr]>>,
    attrs_by_value: HashMap<Arc<[Attr]>, AttrsId>,
    per_copy: Vec<Arc<[ConstId]>>,
    per_copy_by_value: HashMap<Arc<[ConstId]>, PerCopyId>,
    predicates: Mutex<HashMap<(ConstId, &'static str), bool>>,
    /// Classes that are computed without a number, as of the beginning of the round.
    pub(super) without_scalar_factor: HashSet<Id>,
    /// Classes a constant of which takes up numbers, as of the round in which that is first asked.
    pub(super) taking_up_numbers: OnceLock<HashSet<Id>>,
    /// Constants that laws compute of finite ones and that are infinite: no law may go by way of them.
    overflowed: HashSet<Id>,
    folder: ConstantFolder,
    nodes: usize,
    limit: usize,
    hit_limit: bool,
    definitions: Vec<Definition>,
    source_terms: u32,
    source_uses: Vec<(Id, Id)>,
}

/// An application of a `def`, and the classes of its outputs.
pub struct Definition {
    /// The class of the application.
    pub class: Id,
    /// The classes of its outputs.
    pub outputs: Vec<Id>,
    pub call: CallId,
    pub attrs: Vec<Attr>,
    pub args: Vec<Id>,
}

impl Graph {
    /// True if a number that multiplies a class can be multiplied into a constant that it is computed from.
    pub(super) fn takes_up_numbers(&self, id: Id) -> bool {
        let all = self.taking_up_numbers.get_or_init(|| taking_up_numbers(self));
        all.contains(&self.egg.find(id))
    }

    /// An empty graph that takes at most `limit` nodes.
    pub fn new(library: Arc<Library>, consts: Consts, limit: usize) -> Graph {
        Graph {
            egg: Egg::new(Analysis::default()),
            structural: Structural::of(&library),
            folder: ConstantFolder::new(library.clone()),
            library,
            consts,
            log: ProofLog::default(),
            round: 0,
            attrs: Vec::new(),
            attrs_by_value: HashMap::new(),
            per_copy: Vec::new(),
            per_copy_by_value: HashMap::new(),
            predicates: Mutex::default(),
            without_scalar_factor: HashSet::new(),
            taking_up_numbers: OnceLock::new(),
            overflowed: HashSet::new(),
            nodes: 0,
            limit,
            hit_limit: false,
            definitions: Vec::new(),
            source_terms: 0,
            source_uses: Vec::new(),
        }
    }

    /// Marks the end of the source program: all terms logged so far are its own; `uses` are its reads.
    pub fn seal(&mut self, uses: Vec<(Id, Id)>) {
        self.source_terms = self.log.len() as u32;
        self.source_uses = uses;
    }

    /// Classes of the program as read and what is below their nodes, in id order.
    pub fn reachable(&self) -> BTreeSet<Id> {
        let ends = self.source_uses.iter().flat_map(|&(u, v)| [u, v]);
        let mut stack: Vec<Id> = ends.collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = stack.pop() {
            let id = self.egg.find(id);
            if seen.insert(id) {
                stack.extend(self.egg[id].nodes.iter().flat_map(|n| n.args.iter().copied()));
            }
        }
        seen
    }

    /// Values that more than one value of the program as read is computed from.
    pub fn shared_values(&self) -> HashSet<Id> {
        let uses = self.source_uses.iter().map(|&(u, v)| (self.egg.find(v), self.egg.find(u)));
        let uses: BTreeSet<(Id, Id)> = uses.collect();
        let pairs = uses.iter().zip(uses.iter().skip(1));
        pairs.filter(|(a, b)| a.0 == b.0).map(|(a, _)| a.0).collect()
    }

    /// True if the class was there when the program had been read, be it within a definition.
    pub fn in_source(&self, id: Id) -> bool {
        self.facts(id).rep.0 < self.source_terms
    }

    /// Who reads what in the program as read: what each of its values is computed from.
    pub fn source_reads(&self) -> HashMap<Id, BTreeSet<Id>> {
        let mut out: HashMap<Id, BTreeSet<Id>> = HashMap::new();
        for &(user, value) in &self.source_uses {
            let (user, value) = (self.egg.find(user), self.egg.find(value));
            let reads = out.entry(user).or_default();
            if user != value {
                reads.insert(value);
            }
        }
        out
    }

    /// An application of a `def` that was added and not taken yet.
    pub fn take_definition(&mut self) -> Option<Definition> {
        self.definitions.pop()
    }

    /// Nodes added so far; congruent ones are counted until they are merged away.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// How many nodes may still be added.
    pub fn remaining_nodes(&self) -> usize {
        self.limit.saturating_sub(self.nodes)
    }

    /// True once a node was refused because the limit was reached.
    pub fn is_full(&self) -> bool {
        self.hit_limit
    }

    /// Sets the node limit.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The facts of a class.
    pub fn facts(&self, id: Id) -> &ClassFacts {
        &self.egg[id].data
    }

    /// The type of a class of one output.
    pub fn type_of(&self, id: Id) -> &Type {
        &self.facts(id).types[0]
    }

    /// An interned attribute list.
    pub fn attrs(&self, id: AttrsId) -> &Arc<[Attr]> {
        &self.attrs[id.0 as usize]
    }

    fn intern(&mut self, attrs: Vec<Attr>) -> AttrsId {
        let attrs: Arc<[Attr]> = Arc::from(attrs);
        if let Some(&id) = self.attrs_by_value.get(&attrs) {
            return id;
        }
        let id = AttrsId(self.attrs.len() as u32);
        self.attrs.push(attrs.clone());
        self.attrs_by_value.insert(attrs, id);
        id
    }

    /// The id of an attribute list that occurs already.
    pub fn find_attrs(&self, attrs: &[Attr]) -> Option<AttrsId> {
        self.attrs_by_value.get(attrs).copied()
    }

    /// Adds a node with its facts; `None` if the limit is reached and the node is new.
    fn add(
        &mut self,
        head: Head,
        args: &[Id],
        facts: impl FnOnce(LogId) -> ClassFacts,
    ) -> Option<Id> {
        let node = ENode { head, args: args.iter().map(|&a| self.egg.find(a)).collect() };
        let reps = node.args.iter().map(|&a| self.facts(a).rep).collect();
        if let Some(id) = self.egg.lookup(node.clone()) {
            return Some(id);
        }
        if self.nodes >= self.limit {
            self.hit_limit = true;
            return None;
        }
        self.nodes += 1;
        let rep = self.log.term(head, reps);
        self.egg.analysis.next = Some(facts(rep));
        let id = self.egg.add(node);
        self.egg.analysis.next = None;
        Some(id)
    }

    /// The class of an input.
    pub fn add_input(&mut self, index: u32, ty: Type) -> Option<Id> {
        self.add(Head::Input(index), &[], |rep| ClassFacts {
            types: Arc::from(vec![ty]),
            is_constant: false,
            is_foldable: false,
            value: None,
            uniform: None,
            rep,
        })
    }

    /// The class of a constant. A constant whose elements are all equal is also that scalar, broadcast.
    pub fn add_const(&mut self, id: ConstId) -> Option<Id> {
        let tensor = self.consts.get(id).clone();
        // An integer that no float equals is no number that laws compute with.
        let number = |t: &Tensor| Some(t.get_f64(0)).filter(|&v| t.dtype().is_exact(v));
        let uniform = tensor.splat().and_then(|_| number(&tensor));
        let ty = Type::known(tensor.dtype(), tensor.shape());
        let known = self.nodes;
        // What is not read cannot be computed with before the first run.
        let read = tensor.unread().is_none();
        let class = self.add(Head::Const(id), &[], |rep| ClassFacts {
            types: Arc::from(vec![ty]),
            is_constant: read,
            is_foldable: read,
            value: read.then_some(ConstantValue::Single(id)),
            uniform,
            rep,
        })?;
        let new = self.nodes > known;
        if let (true, Some(bytes), false) = (new, tensor.splat(), tensor.shape().is_empty()) {
            let bytes = bytes::Bytes::copy_from_slice(bytes);
            if let Ok(scalar) = Tensor::new(tensor.dtype(), vec![], bytes) {
                let shape: Vec<Extent> = tensor.shape().iter().map(|&d| Extent::from(d)).collect();
                let scalar = self.consts.intern(scalar);
                let scalar = self.add_const(scalar)?;
                let structural = self.structural;
                if let Ok(b) = mlc_dsl::ir::canon::broadcast(self, structural, scalar, &[], &shape)
                {
                    self.union(class, b, Reason::UniformConstant);
                }
            }
        }
        Some(class)
    }

    /// The class of a constant with a different value in each copy of a repeated block.
    pub fn add_per_copy_constant(&mut self, values: &[ConstId]) -> Option<Id> {
        let (&first, rest) = values.split_first()?;
        if rest.iter().all(|&v| v == first) {
            return self.add_const(first);
        }
        let id = match self.per_copy_by_value.get(values) {
            Some(&id) => id,
            None => {
                let id = PerCopyId(self.per_copy.len() as u32);
                let values: Arc<[ConstId]> = Arc::from(values);
                self.per_copy.push(values.clone());
                self.per_copy_by_value.insert(values, id);
                id
            }
        };
        let tensor = self.consts.get(first);
        let ty = Type::known(tensor.dtype(), tensor.shape());
        let read = values.iter().all(|&v| self.consts.get(v).unread().is_none());
        self.add(Head::PerCopyConstant(id), &[], |rep| ClassFacts {
            types: Arc::from(vec![ty]),
            is_constant: read,
            is_foldable: read,
            value: read.then_some(ConstantValue::PerCopy(id)),
            uniform: None,
            rep,
        })
    }

    /// The values of a per-copy constant, one for each copy.
    pub fn per_copy_values(&self, id: PerCopyId) -> &[ConstId] {
        &self.per_copy[id.0 as usize]
    }

    /// The constants that a class stands for: one, or one for each copy; none if its value is not known.
    fn values(&self, id: Id) -> Vec<ConstId> {
        match self.facts(id).value {
            Some(ConstantValue::Single(c)) => vec![c],
            Some(ConstantValue::PerCopy(s)) => self.per_copy_values(s).to_vec(),
            None => vec![],
        }
    }

    /// True if the value of a class is known and every element of it passes. Elements are looked at once
    /// for each `name`.
    pub fn every_element(&self, id: Id, name: &'static str, passes: fn(f64) -> bool) -> bool {
        let holds = |c: ConstId| {
            // A thread that panicked left no half-made entry.
            let known = || self.predicates.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(&holds) = known().get(&(c, name)) {
                return holds;
            }
            let t = self.consts.get(c);
            let holds = (0..t.len()).all(|i| passes(t.get_f64(i)));
            known().insert((c, name), holds);
            holds
        };
        let values = self.values(id);
        !values.is_empty() && values.into_iter().all(holds)
    }

    /// The smallest and the largest element of a class whose value is known, if all are numbers and they
    /// are few enough to look at.
    pub fn bounds(&self, id: Id) -> Option<(f64, f64)> {
        const MOST: usize = 1 << 16;
        let tensors: Vec<&Tensor> = self.values(id).iter().map(|c| self.consts.get(*c)).collect();
        let few = !tensors.is_empty() && tensors.iter().map(|t| t.len()).sum::<usize>() <= MOST;
        let mut out = (f64::INFINITY, f64::NEG_INFINITY);
        for v in tensors.iter().filter(|_| few).flat_map(|t| (0..t.len()).map(|i| t.get_f64(i))) {
            out = if v.is_nan() { return None } else { (out.0.min(v), out.1.max(v)) };
        }
        (out.0 <= out.1).then_some(out)
    }

    /// Unites two classes and logs why. False if they were one already.
    pub fn union(&mut self, a: Id, b: Id, reason: Reason) -> bool {
        let (a, b) = (self.egg.find(a), self.egg.find(b));
        if a == b {
            return false;
        }
        let (left, right) = (self.facts(a).rep, self.facts(b).rep);
        self.log.assert(Equation { reason, left, right, round: self.round });
        self.egg.union(a, b)
    }

    /// Unites a class with what a law made of the node that was matched in it.
    pub fn union_matched(&mut self, left: LogId, class: Id, made: Id, reason: Reason) -> bool {
        let (class, made) = (self.egg.find(class), self.egg.find(made));
        if class == made {
            return false;
        }
        let right = self.facts(made).rep;
        self.log.assert(Equation { reason, left, right, round: self.round });
        self.egg.union(class, made)
    }

    /// Takes nodes out of their classes. What was known to be equal to them still is: adding one again finds the class.
    pub fn drop_nodes(&mut self, gone: &HashMap<Id, Vec<ENode>>) {
        for class in self.egg.classes_mut() {
            let Some(gone) = gone.get(&class.id) else { continue };
            let before = class.nodes.len();
            class.nodes.retain(|n| !gone.contains(n));
            self.nodes -= before - class.nodes.len();
        }
    }

    /// The logged term of a node as it stands in the e-graph.
    pub fn log_node(&mut self, node: &ENode) -> LogId {
        let reps = node.args.iter().map(|&a| self.egg[a].data.rep).collect();
        self.log.term(node.head, reps)
    }

    /// Adds a typed application and evaluates it if its arguments are small constants.
    fn add_apply(
        &mut self,
        call: CallId,
        attrs: Vec<Attr>,
        types: Vec<Type>,
        args: &[Id],
    ) -> Option<Vec<Id>> {
        let fed = args.iter().all(|&a| self.facts(a).is_constant);
        let is_foldable = self.folds_ahead(call, &attrs, &types, args);
        let known = self.nodes;
        let attrs_id = self.intern(attrs.clone());
        let types: Arc<[Type]> = Arc::from(types);
        // Moving equal elements leaves them equal.
        let moves = self.library.call(call).class == OpClass::View && args.len() == 1;
        let uniform = if moves { self.facts(args[0]).uniform } else { None };
        let facts = |types: Arc<[Type]>| {
            move |rep| ClassFacts {
                types,
                is_constant: fed,
                is_foldable,
                value: None,
                uniform,
                rep,
            }
        };
        let whole = self.add(Head::Apply(call, attrs_id), args, facts(types.clone()))?;
        let mut out = vec![whole];
        if types.len() > 1 {
            out.clear();
            for (i, ty) in types.iter().enumerate() {
                let ty: Arc<[Type]> = Arc::from(vec![ty.clone()]);
                out.push(self.add(Head::Output(i as u32), &[whole], facts(ty))?);
            }
        } else if self.nodes > known {
            if fed {
                self.fold(call, &attrs, &types[0], args, whole);
            }
            self.fold_uniform(call, &attrs, &types[0], args, whole);
        }
        if self.round == 0 && matches!(self.library.call(call).kind, CallKind::Def(_)) {
            let (outputs, args) = (out.clone(), args.to_vec());
            self.definitions.push(Definition { class: whole, outputs, call, attrs, args });
        }
        Some(out)
    }

    /// Whether an application is folded before the first run. A repetition counts as folded: it is read from its operand.
    fn folds_ahead(&self, call: CallId, attrs: &[Attr], types: &[Type], args: &[Id]) -> bool {
        let count = |t: &Type| t.shape.iter().fold(Extent::from(1), |n, e| &n * e);
        let repeats = |&a: &Id| {
            self.library.call(call).class == OpClass::View
                && count(&types[0]).div_exact(&count(self.type_of(a))).is_some()
        };
        let known = |t: &Type| t.known_shape().is_some();
        args.iter().all(|&a| self.facts(a).is_foldable)
            && (attrs.iter().all(Attr::is_known)
                && types.iter().all(known)
                && args.iter().all(|&a| known(self.type_of(a)))
                || matches!(args, [a] if repeats(a)))
    }

    /// Evaluates an element by element application of numbers that are repeated, whatever the shape.
    fn fold_uniform(&mut self, call: CallId, attrs: &[Attr], ty: &Type, args: &[Id], class: Id) {
        let pointwise = self.library.call(call).class == OpClass::Pointwise;
        if !pointwise || ty.shape.is_empty() || self.facts(class).uniform.is_some() {
            return;
        }
        let number = |&a: &Id| {
            let value = self.facts(a).uniform?;
            Some(Tensor::from_f64(self.type_of(a).dtype, vec![], &[value]))
        };
        let Some(numbers) = args.iter().map(number).collect::<Option<Vec<Tensor>>>() else {
            return;
        };
        let scalar = Type::known(ty.dtype, &[]);
        if let Some(result) = self.evaluated(call, attrs, &scalar, &numbers, class) {
            let id = self.consts.intern(result);
            let structural = self.structural;
            let Some(number) = self.add_const(id) else { return };
            if let Ok(b) = mlc_dsl::ir::canon::broadcast(self, structural, number, &[], &ty.shape) {
                self.union(class, b, Reason::ConstantFolding);
            }
        }
    }

    /// Evaluates an application of known constants, if the result is small.
    fn fold(&mut self, call: CallId, attrs: &[Attr], ty: &Type, args: &[Id], class: Id) {
        let small = |t: &Type| {
            let n = t.known_shape().map(|s| s.iter().product::<usize>());
            n.is_some_and(|n| n <= FOLD_ELEMENTS)
        };
        if !small(ty) || !args.iter().all(|&a| small(self.type_of(a))) {
            return;
        }
        let known: Vec<Vec<ConstId>> = args.iter().map(|&a| self.values(a)).collect();
        if known.iter().any(Vec::is_empty) {
            return;
        }
        let copies = known.iter().map(Vec::len).max().unwrap_or(1);
        let mut results = Vec::with_capacity(copies);
        for k in 0..copies {
            let of_copy = |v: &Vec<ConstId>| *v.get(k).unwrap_or(&v[0]);
            let values: Vec<Tensor> =
                known.iter().map(|v| self.consts.get(of_copy(v)).clone()).collect();
            let Some(result) = self.evaluated(call, attrs, ty, &values, class) else { return };
            results.push(self.consts.intern(result));
        }
        if let Some(c) = self.add_per_copy_constant(&results) {
            self.union(class, c, Reason::ConstantFolding);
        }
    }

    /// The value of an application of constants. Where a law makes it overflow it has none, and its class is noted.
    fn evaluated(
        &mut self,
        call: CallId,
        attrs: &[Attr],
        ty: &Type,
        args: &[Tensor],
        class: Id,
    ) -> Option<Tensor> {
        let result = self.folder.evaluate(call, attrs, ty, args)?;
        if self.round > 0 && overflows(args, &result) {
            self.overflowed.insert(self.egg.find(class));
            return None;
        }
        Some(result)
    }
}

/// True if a float computed of finite ones is not finite.
fn overflows(args: &[Tensor], result: &Tensor) -> bool {
    let finite = |t: &Tensor| (0..t.len()).all(|i| t.get_f64(i).is_finite());
    result.dtype().is_float() && !finite(result) && args.iter().all(finite)
}

fn refused(reason: &str) -> TypeError {
    TypeError::Result { op: Name::from("e-graph"), reason: reason.into() }
}

impl Sink for Graph {
    type Value = Id;

    fn ty(&self, v: Id) -> Type {
        self.type_of(v).clone()
    }

    fn raw(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Id],
    ) -> Result<Vec<Id>, TypeError> {
        let library = self.library.clone();
        let facts: Vec<Arc<[Type]>> = args.iter().map(|&a| self.facts(a).types.clone()).collect();
        let types: Vec<&Type> = facts.iter().map(|t| &t[0]).collect();
        let app = infer(library.call(call), &types, attrs)?;
        let made = self.add_apply(call, app.attrs, app.types, args);
        let made = made.ok_or_else(|| refused("the node limit is reached"))?;
        match made.iter().any(|&id| self.overflowed.contains(&self.egg.find(id))) {
            true => Err(refused("a constant overflows")),
            false => Ok(made),
        }
    }

    fn scalar(&mut self, dtype: DType, v: f64) -> Result<Id, TypeError> {
        let id = self.consts.intern(Tensor::from_f64(dtype, vec![], &[v]));
        self.add_const(id).ok_or_else(|| refused("the node limit is reached"))
    }

    fn is_only(&self, v: Id, call: CallId) -> bool {
        self.egg[v].nodes.iter().all(|n| matches!(n.head, Head::Apply(c, _) if c == call))
    }

    fn peel(&self, v: Id, call: CallId) -> Option<(Id, Vec<Attr>)> {
        let nodes = &self.egg[v].nodes;
        let found = nodes.iter().find(|n| matches!(n.head, Head::Apply(c, _) if c == call))?;
        let Head::Apply(_, attrs) = found.head else { return None };
        Some((found.args[0], self.attrs(attrs).to_vec()))
    }
}
