//! Values of a model's inputs, given when it is read: such inputs become constants.

use crate::error::{Error, ErrorKind};
use crate::names;
use mlc_dsl::ir::{DType, Tensor, Type};
use mlc_dsl::shown;
use mlc_onnx::{Imported, RawDim, RawModel, RawValueInfo};
use std::collections::{BTreeMap, HashMap};

/// Inputs with more elements than this are data.
const MOST_DECIDING: usize = 4096;

/// What a run will get, by name of the input.
pub(crate) type Offered = HashMap<String, Tensor>;

/// Values by name of the input.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputValues {
    given: BTreeMap<String, GivenValue>,
    /// What a run will get; used only where the model cannot be read without it.
    offered: Offered,
    /// Whether the defaults of inputs are constants.
    folds_defaults: bool,
}

/// A value as it is given.
#[derive(Clone, Debug)]
pub(crate) enum GivenValue {
    Array(Tensor),
    /// Numbers, of the element type and shape that the input declares.
    Numbers(Vec<f64>),
}

impl InputValues {
    pub fn give(&mut self, name: &str, value: GivenValue) {
        self.given.insert(name.to_string(), value);
    }

    #[cfg(feature = "cli")]
    pub fn offer(&mut self, values: Offered) {
        self.offered = values;
    }

    /// Makes constants of the inputs that have a default, or not.
    pub fn fold_defaults(&mut self, folds: bool) {
        self.folds_defaults = folds;
    }

    /// What a run will get.
    pub fn offered(&self) -> &Offered {
        &self.offered
    }

    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.offered.is_empty() && !self.folds_defaults
    }

    /// The inputs that are given.
    #[cfg(feature = "cli")]
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    pub fn extend(&mut self, other: &InputValues) {
        self.given.extend(other.given.clone());
        self.offered.extend(other.offered.clone());
        self.folds_defaults |= other.folds_defaults;
    }

    /// Makes constants of the inputs whose value is given, and of those with a default that a run will be given; their names.
    ///
    /// # Errors
    /// A name that the model does not have, or a value that does not fit.
    pub fn enter(&self, raw: &mut RawModel) -> Result<Vec<String>, Error> {
        for (name, value) in &self.given {
            let inputs = &raw.graph.inputs;
            let declared = inputs.iter().chain(&raw.graph.defaults).find(|i| i.name == *name);
            let declared = declared.ok_or_else(|| unknown(name, inputs))?;
            let tensor = match value {
                GivenValue::Array(tensor) => tensor.clone(),
                GivenValue::Numbers(numbers) => of_numbers(declared, numbers)?,
            };
            bind(raw, name, tensor)?;
        }
        let mut bound: Vec<String> = self.given.keys().cloned().collect();
        // What a run is given takes the place of a default.
        let defaults = raw.graph.defaults.iter().map(|d| d.name.clone());
        let offered = defaults.filter_map(|n| self.offered.get(&n).map(|t| (n, t.clone())));
        for (name, tensor) in offered.collect::<Vec<_>>() {
            bind(raw, &name, tensor)?;
            bound.push(name);
        }
        raw.graph.defaults.retain(|d| !self.folds_defaults && !bound.contains(&d.name));
        raw.graph.inputs.iter_mut().filter(|i| i.dims.is_none()).for_each(|i| {
            self.enter_extents_of(i);
        });
        Ok(bound)
    }

    /// Gives inputs the extents that a run will have; false if all have them.
    pub fn enter_extents(&self, raw: &mut RawModel) -> bool {
        let mut entered = false;
        let mut symbols = BTreeMap::new();
        let mut conflict = false;
        for input in &mut raw.graph.inputs {
            let declared = input.dims.clone().unwrap_or_default();
            if !self.enter_extents_of(input) {
                continue;
            }
            entered = true;
            for (d, n) in declared.into_iter().zip(input.dims.iter().flatten()) {
                if let (RawDim::Symbol(s), RawDim::Known(n)) = (d, n) {
                    conflict |= symbols.insert(s, *n).is_some_and(|before| before != *n);
                }
            }
        }
        if conflict {
            raw.graph.value_infos.clear();
        }
        raw.graph.value_infos.iter_mut().for_each(|v| v.bind(&symbols));
        entered
    }

    /// The same for one input; of other extents than it declares none is taken.
    fn enter_extents_of(&self, input: &mut RawValueInfo) -> bool {
        let Some(tensor) = self.offered.get(&input.name) else { return false };
        let found: Vec<RawDim> = tensor.shape().iter().map(|&n| RawDim::Known(n as u64)).collect();
        let fits = |(d, n): (&RawDim, &RawDim)| !matches!(d, RawDim::Known(_)) || d == n;
        let fit = input
            .dims
            .as_ref()
            .is_none_or(|dims| dims.len() == found.len() && dims.iter().zip(&found).all(fits));
        let changes = input.containers.is_empty() && fit && input.dims.as_ref() != Some(&found);
        if changes {
            input.dims = Some(found);
        }
        changes
    }

    /// Makes constants of those of `inputs` whose value a run will be given; false if there is none.
    ///
    /// # Errors
    /// A value that does not fit.
    pub fn decide(
        &self,
        raw: &mut RawModel,
        inputs: &[String],
        bound: &mut Vec<String>,
    ) -> Result<bool, Error> {
        let before = bound.len();
        for name in inputs.iter().filter(|n| !bound.contains(n)).collect::<Vec<_>>() {
            if let Some(tensor) = self.offered.get(name).filter(|t| is_deciding(t)) {
                bind(raw, name, tensor.clone())?;
                bound.push(name.clone());
            }
        }
        Ok(bound.len() > before)
    }
}

/// Whether an input has a value where a run gives none.
pub(crate) fn has_default(name: &str, defaults: &[RawValueInfo]) -> bool {
    defaults.iter().any(|d| d.name == name)
}

/// What is to be said of an import with constants in place of these inputs.
pub(crate) fn notes(
    imported: &Imported,
    bound: &[String],
    defaults: &[RawValueInfo],
) -> Vec<String> {
    let equal = |(symbol, same): &(String, String)| {
        format!("the model is only meaningful if extent `{symbol}` equals `{same}`")
    };
    let decided =
        |name: &String| format!("input `{name}` decides shapes: the model is read for its value");
    let assumed = imported.assumed.iter().map(equal).chain(imported.notes.iter().cloned());
    let opaque = imported.model.opaque.notes();
    let bound = bound.iter().filter(|b| !has_default(b, defaults));
    let open = imported.model.defaults.len();
    let open = (open > 0).then(|| {
        format!(
            "{open} inputs have a value in the file that a run may replace, so that nothing is computed from it before; \
             `--fold-defaults` makes constants of them"
        )
    });
    assumed.chain(bound.map(decided)).chain(opaque).chain(open).collect()
}

/// True of numbers that are there to decide a shape, unlike data from which such numbers are computed.
fn is_deciding(t: &Tensor) -> bool {
    let numbers = if t.dtype().is_float() { t.len() == 1 } else { t.len() <= MOST_DECIDING };
    numbers && t.shape().len() <= 1
}

/// Turns an input into a constant.
fn bind(raw: &mut RawModel, name: &str, tensor: Tensor) -> Result<(), Error> {
    let at = raw.graph.inputs.iter().position(|i| i.name == name);
    let default = || raw.graph.defaults.iter().find(|i| i.name == name);
    let Some(declared) = at.map_or_else(default, |at| raw.graph.inputs.get(at)) else {
        return Ok(());
    };
    let tensor = declared.dtype.map_or(tensor.clone(), |d| tensor.with_codes_read(d));
    let fits = |(d, &n): (&RawDim, &usize)| match d {
        RawDim::Known(d) => usize::try_from(*d) == Ok(n),
        RawDim::Symbol(_) | RawDim::Unknown => true,
    };
    let shape = declared.dims.as_ref().is_none_or(|dims| {
        dims.len() == tensor.shape().len() && dims.iter().zip(tensor.shape()).all(fits)
    });
    if declared.dtype.is_some_and(|d| d != tensor.dtype()) || !shape {
        let found = Type::known(tensor.dtype(), tensor.shape());
        return Err(wrong(declared, format!("a value of type {found} does not fit")));
    }
    if let Some(at) = at {
        raw.graph.inputs.remove(at);
    }
    raw.graph.initializers.insert(name.to_string(), tensor);
    Ok(())
}

/// Numbers as a tensor of the type that an input declares.
fn of_numbers(declared: &RawValueInfo, numbers: &[f64]) -> Result<Tensor, Error> {
    let dtype = declared.dtype.ok_or_else(|| wrong(declared, "its element type is unknown"))?;
    if dtype == DType::Str {
        return Err(wrong(declared, "numbers are no texts"));
    }
    let extent = |d: &RawDim| match d {
        RawDim::Known(n) => usize::try_from(*n).ok(),
        RawDim::Symbol(_) | RawDim::Unknown => None,
    };
    let known =
        declared.dims.as_ref().and_then(|d| d.iter().map(extent).collect::<Option<Vec<_>>>());
    let rank = declared.dims.as_ref().map(Vec::len);
    let shape = match (known, rank) {
        (Some(shape), _) => shape,
        (None, None | Some(1)) => vec![numbers.len()],
        (None, Some(_)) => return Err(wrong(declared, "numbers do not tell its shape")),
    };
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if count != Some(numbers.len()) {
        let message = format!("{} numbers are given for the shape {shape:?}", numbers.len());
        return Err(wrong(declared, message));
    }
    let tensor = Tensor::from_f64(dtype, shape, numbers);
    let exact = dtype.is_float() && !dtype.is_small() || tensor.to_f64() == numbers;
    if exact { Ok(tensor) } else { Err(wrong(declared, format!("a number is no {dtype}"))) }
}

fn wrong(input: &RawValueInfo, message: impl Into<String>) -> Error {
    let place = format!("input `{}`", shown(&input.name));
    let dims: Vec<String> = input.dims.iter().flatten().map(RawDim::to_string).collect();
    let dtype = input.dtype.map_or("?", |d| d.name());
    Error::new(ErrorKind::Setting, format!("{place}: {}", message.into()))
        .at(place)
        .with_help(format!("it is declared as {dtype}[{}]", dims.join(", ")))
}

fn unknown(name: &str, inputs: &[RawValueInfo]) -> Error {
    let place = format!("value `{}`", shown(name));
    let known: std::collections::BTreeSet<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
    let all = known.iter().copied().collect::<Vec<_>>().join(", ");
    let message = format!("{place}: the model has no input of this name");
    let help = format!("the inputs are {all}");
    Error::new(ErrorKind::Setting, message)
        .at(place)
        .or_help(names::did_you_mean(name, &known, &help))
}
