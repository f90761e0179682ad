//! Parts of a model that data decide, and what decides how each is imported.
//!
//! A part is made once; what it is imported as is kept by the extents of its inputs and the answers that decided it. Nothing is imported,
//! optimised or run here.

use super::{MOST_STEPS, Step};
use mlc_dsl::ir::{DType, Tensor};
use mlc_onnx::{KnownValues, RawDim, RawModel, RawValueInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nodes of a model that wait for what others compute, or a body of one.
pub(crate) struct Part {
    raw: RawModel,
    /// Where in the model it begins: what is cut at the same node again has the same place.
    place: Place,
    known: Mutex<Vec<(Key, Arc<Step>)>>,
    /// Symbols of its inputs that a question was about: their extents are known from the beginning of later runs, which need not ask
    /// twice.
    closed: Mutex<BTreeSet<String>>,
}

/// The body of control flow that a part is of, and the first result of the part.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    body: Arc<str>,
    first: String,
}

/// Element types and extents of inputs by name; extents that are left open are `None`.
type Types = BTreeMap<String, (DType, Vec<Option<usize>>)>;

/// What decides how a part is imported.
#[derive(Clone, PartialEq)]
pub(super) struct Key {
    types: Types,
    pub answers: KnownValues,
    /// True if the elements of inputs decided extents.
    pub is_volatile: bool,
}

impl Part {
    /// A part of a body, by its place in the model; that of the model itself has none.
    pub fn new(mut raw: RawModel, body: Arc<str>) -> Part {
        name_extents(&mut raw.graph.inputs);
        let first = raw.graph.nodes.iter().flat_map(|n| &n.outputs).find(|o| !o.is_empty());
        let place = Place { body, first: first.cloned().unwrap_or_default() };
        Part { raw, place, known: Mutex::default(), closed: Mutex::default() }
    }

    /// Its nodes.
    pub(super) fn raw(&self) -> &RawModel {
        &self.raw
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The place of a body of one of its nodes.
    pub(super) fn body(&self, node: &str, i: usize) -> Arc<str> {
        format!("{}/{node}[{i}]", self.place.body).into()
    }

    /// The rest of it behind a cut.
    pub(super) fn rest(&self, raw: RawModel) -> Arc<Part> {
        Arc::new(Part::new(raw, self.place.body.clone()))
    }

    /// What it is given.
    pub fn inputs(&self) -> &[RawValueInfo] {
        &self.raw.graph.inputs
    }

    fn known(&self) -> MutexGuard<'_, Vec<(Key, Arc<Step>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Symbols whose extents are not open.
    pub(super) fn closed(&self) -> BTreeSet<String> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes more of them.
    pub(super) fn close(&self, symbols: &BTreeSet<String>) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.extend(symbols.iter().cloned());
    }

    /// How far it is imported with what is known of a run, if that was found out before.
    pub(super) fn step(&self, key: &Key) -> Option<Arc<Step>> {
        self.known().iter().find(|(k, _)| k == key).map(|(_, step)| step.clone())
    }

    pub(super) fn keep(&self, key: Key, step: Arc<Step>) {
        let mut known = self.known();
        if known.len() >= MOST_STEPS {
            known.remove(0);
        }
        known.push((key, step));
    }

    /// What decides how the part is imported with the extents open that are declared so, but for those of closed symbols, and answers that
    /// may be extents; and inputs that say what these are. None if no extent is open, or not all inputs are declared.
    pub(super) fn opened(
        &self,
        inputs: &HashMap<String, Tensor>,
        answers: &KnownValues,
        is_volatile: bool,
    ) -> Option<(Key, Vec<(String, Tensor)>)> {
        let types = self.open_types(inputs, &self.closed());
        let (answers, symbols) = answers.opened();
        let key = Key { types: types?, answers, is_volatile };
        if !key.is_open() {
            return None;
        }
        let tensor = |(name, n): (String, usize)| {
            let none = Tensor::new(DType::Bool, vec![n, 0], bytes::Bytes::new());
            Some((name, none.ok()?))
        };
        Some((key, symbols.into_iter().map(tensor).collect::<Option<_>>()?))
    }

    /// The types of inputs with the extents open that are declared so and not closed. None if the inputs do not fit: what they are then
    /// is found out for their extents.
    fn open_types(
        &self,
        inputs: &HashMap<String, Tensor>,
        closed: &BTreeSet<String>,
    ) -> Option<Types> {
        let mut symbols: HashMap<&str, usize> = HashMap::new();
        let mut types = Types::new();
        for input in &self.raw.graph.inputs {
            let (dims, tensor) = (input.dims.as_ref()?, inputs.get(&input.name)?);
            let fits = input.containers.is_empty()
                && dims.len() == tensor.shape().len()
                && input.dtype.is_none_or(|d| d == tensor.dtype());
            let mut shape = Vec::with_capacity(dims.len());
            for (dim, &n) in dims.iter().zip(tensor.shape()) {
                let same = match dim {
                    RawDim::Symbol(s) => *symbols.entry(s).or_insert(n) == n,
                    RawDim::Known(declared) => *declared == n as u64,
                    RawDim::Unknown => false,
                };
                if !(fits && same) {
                    return None;
                }
                let is_open = matches!(dim, RawDim::Symbol(s) if !closed.contains(s));
                shape.push((!is_open).then_some(n));
            }
            types.insert(input.name.clone(), (tensor.dtype(), shape));
        }
        (inputs.len() == types.len()).then_some(types)
    }

    /// The model with the extents that a key knows; the others stay open.
    pub(super) fn with_extents_of(&self, key: &Key) -> RawModel {
        let mut raw = self.raw.clone();
        for input in &mut raw.graph.inputs {
            let Some((_, shape)) = key.types.get(&input.name) else { continue };
            for (dim, n) in input.dims.iter_mut().flatten().zip(shape) {
                if let Some(n) = n {
                    *dim = RawDim::Known(*n as u64);
                }
            }
        }
        raw
    }

    /// The symbols of its inputs that a key leaves open.
    pub(super) fn open_symbols(&self, key: &Key) -> BTreeSet<&str> {
        let open = self.raw.graph.inputs.iter().flat_map(|input| {
            let shape = key.types.get(&input.name).map(|(_, shape)| shape);
            input.dims.iter().flatten().zip(shape.into_iter().flatten())
        });
        open.filter_map(|(dim, n)| match (dim, n) {
            (RawDim::Symbol(s), None) => Some(s.as_str()),
            _ => None,
        })
        .collect()
    }

    /// True if an input, or an element of one, has this name.
    pub(super) fn reads(&self, name: &str) -> bool {
        let own = |i: &RawValueInfo| {
            name.strip_prefix(i.name.as_str()).is_some_and(|element| {
                element.is_empty() || !i.containers.is_empty() && element.starts_with('[')
            })
        };
        self.raw.graph.inputs.iter().chain(&self.raw.graph.defaults).any(own)
    }
}

/// Gives extents that an input declares without a name one of their own: they are as open as those that have one.
fn name_extents(inputs: &mut [RawValueInfo]) {
    let dims = inputs.iter().flat_map(|i| i.dims.iter().flatten());
    let symbol = |d: &RawDim| match d {
        RawDim::Symbol(s) => Some(s.clone()),
        RawDim::Known(_) | RawDim::Unknown => None,
    };
    let mut taken: BTreeSet<String> = dims.filter_map(symbol).collect();
    for input in inputs.iter_mut().filter(|i| i.containers.is_empty()) {
        for (axis, dim) in input.dims.iter_mut().flatten().enumerate() {
            if *dim != RawDim::Unknown {
                continue;
            }
            let mut name = format!("{}_dim{axis}", input.name);
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            *dim = RawDim::Symbol(name);
        }
    }
}

impl Key {
    /// Of inputs with all their extents.
    pub fn closed(
        inputs: &HashMap<String, Tensor>,
        answers: KnownValues,
        is_volatile: bool,
    ) -> Key {
        let ty = |t: &Tensor| (t.dtype(), t.shape().iter().map(|&n| Some(n)).collect());
        let types = inputs.iter().map(|(n, t)| (n.clone(), ty(t))).collect();
        Key { types, answers, is_volatile }
    }

    /// True if an extent is open.
    pub fn is_open(&self) -> bool {
        let types = self.types.values().any(|(_, shape)| shape.contains(&None));
        types || self.answers.symbols().next().is_some()
    }
}
