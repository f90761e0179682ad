//! Extents of a model's inputs, in place of those that it declares.

use crate::error::{Error, ErrorKind};
use crate::model::rules_model::ExtentSource;
use crate::names;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::shown;
use mlc_onnx::{RawDim, RawModel, RawValueInfo};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Shapes of inputs and extents of symbols; of two shapes for one name the later counts.
#[derive(Clone, Debug, Default)]
pub struct InputShapes {
    given: Vec<Given>,
    /// Extents of names that must be symbols; two for one name must agree.
    bindings: Vec<(String, u64)>,
}

/// One override.
#[derive(Clone, Debug)]
struct Given {
    name: String,
    extents: Vec<u64>,
}

impl InputShapes {
    /// Adds the shape of an input, or the extent of a symbol.
    pub fn give(&mut self, name: &str, extents: &[u64]) {
        self.given.push(Given { name: name.to_string(), extents: extents.to_vec() });
    }

    /// Adds the extent of a symbol.
    pub fn bind(&mut self, symbol: &str, extent: u64) {
        self.bindings.push((symbol.to_string(), extent));
    }

    /// The same, and for inputs whose shape is not given that of an array.
    pub(crate) fn or_of(&self, arrays: &HashMap<String, Tensor>) -> InputShapes {
        let extents = |t: &Tensor| t.shape().iter().map(|&n| n as u64).collect();
        let mut all: Vec<Given> = arrays
            .iter()
            .map(|(name, t)| Given { name: name.clone(), extents: extents(t) })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.extend(self.given.iter().cloned());
        InputShapes { given: all, bindings: self.bindings.clone() }
    }

    /// True if nothing is given.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.bindings.is_empty()
    }

    /// Adds those of `other`.
    pub(crate) fn extend(&mut self, other: &InputShapes) {
        self.given.extend(other.given.iter().cloned());
        self.bindings.extend(other.bindings.iter().cloned());
    }

    /// Enters the extents into a model.
    ///
    /// # Errors
    /// A name that the model does not have, or extents that do not fit.
    pub fn enter(&self, model: &mut RawModel) -> Result<(), Error> {
        if self.is_empty() {
            return Ok(());
        }
        let known = symbols_of(&model.graph.inputs);
        let mut symbols = self.bound_symbols()?;
        if let Some(name) = symbols.keys().find(|name| !known.contains(*name)) {
            return Err(no_symbol(name, &known));
        }
        let mut other = false;
        for g in &self.given {
            let input = model.graph.inputs.iter_mut().find(|i| i.name == g.name);
            match (input, g.extents.as_slice()) {
                (Some(input), extents) => other |= shaped(input, extents, &mut symbols)?,
                (None, [extent]) if known.contains(&g.name) => {
                    bound(&mut symbols, &g.name, *extent)?;
                }
                (None, _) => return Err(unknown(&g.name, &model.graph.inputs, &known)),
            }
        }
        let graph = &mut model.graph;
        if other {
            // What the model says of other values is true of the extents that it declares.
            graph.value_infos.clear();
        }
        let between = &mut graph.value_infos;
        let all = graph.inputs.iter_mut().chain(&mut graph.outputs).chain(between);
        all.for_each(|v| v.bind(&symbols));
        Ok(())
    }

    /// The extents of symbols that are bound.
    fn bound_symbols(&self) -> Result<BTreeMap<String, u64>, Error> {
        let mut symbols = BTreeMap::new();
        for (name, extent) in &self.bindings {
            if *extent == 0 {
                let name = shown(name);
                let message = format!("symbol `{name}`: 0 is no extent to bind it to");
                return Err(Error::new(ErrorKind::Setting, message)
                    .at(format!("symbol `{name}`"))
                    .with_help("give a positive number"));
            }
            bound(&mut symbols, name, *extent)?;
        }
        Ok(symbols)
    }

    /// The extents as the inputs of a text ask for them.
    ///
    /// # Errors
    /// A symbol is bound to zero or to two extents.
    pub(crate) fn of_text(&self) -> Result<OfText<'_>, Error> {
        let symbols = self.bound_symbols()?;
        Ok(OfText { shapes: self, symbols, used: RefCell::default(), axes: RefCell::default() })
    }

    fn find(&self, name: &str) -> Option<&Given> {
        self.given.iter().rev().find(|g| g.name == name)
    }
}

/// Extents for a text, and which of them it has used.
pub(crate) struct OfText<'a> {
    shapes: &'a InputShapes,
    symbols: BTreeMap<String, u64>,
    used: RefCell<BTreeSet<&'a str>>,
    /// The named axes of the text.
    axes: RefCell<BTreeSet<String>>,
}

impl ExtentSource for OfText<'_> {
    fn extent(&self, input: &str, axis: usize, symbol: &str) -> Option<u64> {
        self.axes.borrow_mut().insert(symbol.to_string());
        if let Some(extent) = self.symbols.get(symbol) {
            return Some(*extent);
        }
        let one = |g: &'_ Given| (g.extents.len() == 1).then(|| g.extents[0]);
        let of_symbol = || self.shapes.find(symbol).and_then(|g| Some((g, one(g)?)));
        let of_input = self.shapes.find(input).and_then(|g| Some((g, *g.extents.get(axis)?)));
        let (given, extent) = of_input.or_else(of_symbol)?;
        self.used.borrow_mut().insert(&given.name);
        Some(extent)
    }

    fn rank(&self, input: &str) -> Option<usize> {
        self.shapes.find(input).map(|g| g.extents.len())
    }
}

impl OfText<'_> {
    /// Refuses what a text had no use for, and inputs of another shape than was asked for.
    pub(crate) fn all_used(&self, program: &Program) -> Result<(), Error> {
        let axes = self.axes.borrow();
        if let Some(name) = self.symbols.keys().find(|name| !axes.contains(*name)) {
            return Err(no_symbol(name, &axes));
        }
        for g in &self.shapes.given {
            let input = program.inputs.iter().find(|(n, _)| *n == g.name);
            if let Some((name, ty)) = input {
                let fits = ty.shape.len() == g.extents.len()
                    && ty.shape.iter().zip(&g.extents).all(|(a, &b)| a.is(b as i64));
                if !fits {
                    let given = list(&g.extents);
                    let message = format!("shape `{name}={given}` does not fit: the input is {ty}");
                    return Err(Error::new(ErrorKind::Setting, message)
                        .at(format!("input `{name}`"))
                        .with_help(
                            "give an extent for each axis; only named axes can be changed",
                        ));
                }
            } else if !self.used.borrow().contains(g.name.as_str()) {
                let inputs = program.inputs.iter();
                let symbols =
                    inputs.clone().flat_map(|(_, t)| t.shape.iter()).flat_map(|e| e.symbols());
                let symbols = symbols.map(|s| s.to_string());
                let names: BTreeSet<String> =
                    inputs.map(|(n, _)| n.clone()).chain(symbols).collect();
                if names.contains(&g.name) {
                    return Err(one_extent(&g.name));
                }
                let all: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
                let help = format!("the inputs and axes are {}", all.join(", "));
                let message = format!("shape `{}`: no input and no axis has this name", g.name);
                return Err(Error::new(ErrorKind::Setting, message)
                    .at(format!("shape `{}`", g.name))
                    .or_help(names::did_you_mean(&g.name, &names, &help)));
            }
        }
        Ok(())
    }
}

/// Gives an input its shape; symbols that it had are that everywhere. True if it is declared with another extent.
fn shaped(
    input: &mut RawValueInfo,
    extents: &[u64],
    symbols: &mut BTreeMap<String, u64>,
) -> Result<bool, Error> {
    let mut other = false;
    if let Some(dims) = &input.dims {
        if dims.len() != extents.len() {
            let (name, has, gets) = (shown(&input.name), dims.len(), extents.len());
            let given = list(extents);
            let message = format!("shape `{name}={given}`: the input has {has} axes, not {gets}");
            let declared: Vec<String> = dims.iter().map(RawDim::to_string).collect();
            return Err(Error::new(ErrorKind::Setting, message)
                .at(format!("input `{name}`"))
                .with_help(format!("it is declared as [{}]", declared.join(", "))));
        }
        for (d, &extent) in dims.iter().zip(extents) {
            match d {
                RawDim::Symbol(s) => bound(symbols, s, extent)?,
                RawDim::Known(n) => other |= *n != extent,
                RawDim::Unknown => {}
            }
        }
    }
    input.dims = Some(extents.iter().map(|&e| RawDim::Known(e)).collect());
    Ok(other)
}

fn bound(symbols: &mut BTreeMap<String, u64>, name: &str, extent: u64) -> Result<(), Error> {
    match symbols.insert(name.to_string(), extent) {
        Some(before) if before != extent => {
            let name = shown(name);
            let message = format!("shape: `{name}` is {before} and {extent}");
            Err(Error::new(ErrorKind::Setting, message)
                .at(format!("symbol `{name}`"))
                .with_help("a symbol has one extent everywhere"))
        }
        _ => Ok(()),
    }
}

fn symbols_of(inputs: &[RawValueInfo]) -> BTreeSet<String> {
    let dims = inputs.iter().flat_map(|i| i.dims.iter().flatten());
    dims.filter_map(|d| if let RawDim::Symbol(s) = d { Some(s.clone()) } else { None }).collect()
}

/// A name that was bound and is no symbol; the symbols are all listed, since they are few.
fn no_symbol(name: &str, symbols: &BTreeSet<String>) -> Error {
    let place = format!("symbol `{}`", shown(name));
    let all: Vec<String> = symbols.iter().map(|s| format!("`{}`", shown(s))).collect();
    let help = match all.as_slice() {
        [] => "the model has no symbols: the extents of its inputs are numbers".to_string(),
        [one] => format!("the only symbol is {one}"),
        all => format!("the symbols are {}", all.join(", ")),
    };
    let message = format!("{place}: no input of the model has an axis of this name");
    Error::new(ErrorKind::Setting, message).at(place).with_help(help)
}

/// Of several extents for a symbol.
fn one_extent(name: &str) -> Error {
    let place = format!("shape `{}`", shown(name));
    Error::new(ErrorKind::Setting, format!("{place}: a symbol has one extent"))
        .at(place)
        .with_help(format!("give one, as in `{}=1`", shown(name)))
}

fn unknown(name: &str, inputs: &[RawValueInfo], symbols: &BTreeSet<String>) -> Error {
    let place = format!("shape `{}`", shown(name));
    if symbols.contains(name) {
        return one_extent(name);
    }
    let names: BTreeSet<&str> =
        inputs.iter().map(|i| i.name.as_str()).chain(symbols.iter().map(String::as_str)).collect();
    let all = names.iter().copied().collect::<Vec<_>>().join(", ");
    let message = format!("{place}: the model has no input and no symbol of this name");
    let help = format!("the inputs and symbols are {all}");
    Error::new(ErrorKind::Setting, message)
        .at(place)
        .or_help(names::did_you_mean(name, &names, &help))
}

fn list(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}
