//! `--shape`: extents of a model's inputs, in place of those that it declares.

use crate::names;
use crate::onnx::{RawDim, RawModel, RawValueInfo};
use anyhow::{Context, anyhow, bail, ensure};
use mlc_dsl::ir::Program;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Arguments.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Shapes {
    /// The shape of an input, as `image=1,3,224,224`, or the extent of a symbol, as `batch=1`; may be given several times.
    #[arg(long = "shape", value_name = "NAME=EXTENTS", value_parser = parse)]
    given: Vec<Given>,
    /// Which of them a text has used.
    #[arg(skip)]
    used: RefCell<BTreeSet<String>>,
}

/// One override.
#[derive(Clone, Debug)]
struct Given {
    name: String,
    extents: Vec<u64>,
}

fn parse(text: &str) -> Result<Given, String> {
    let form = "write NAME=EXTENTS, as in `image=1,3,224,224` or `batch=1`";
    let (name, list) = text.rsplit_once('=').ok_or(form)?;
    let extent = |e: &str| -> Result<u64, String> {
        let number = e.trim().parse::<u32>();
        number.map(u64::from).map_err(|_| format!("`{e}` is no extent; {form}"))
    };
    let extents: Vec<u64> = match list.trim() {
        "" => vec![],
        list => list.split(',').map(extent).collect::<Result<_, _>>()?,
    };
    if name.is_empty() {
        return Err(form.into());
    }
    Ok(Given { name: name.to_string(), extents })
}

impl Shapes {
    /// Enters the extents into a model.
    pub fn enter(&self, model: &mut RawModel) -> anyhow::Result<()> {
        if self.given.is_empty() {
            return Ok(());
        }
        let mut symbols: BTreeMap<String, u64> = BTreeMap::new();
        let known = symbols_of(&model.graph.inputs);
        for g in &self.given {
            let input = model.graph.inputs.iter_mut().find(|i| i.name == g.name);
            match (input, g.extents.as_slice()) {
                (Some(input), extents) => shaped(input, extents, &mut symbols)?,
                (None, [extent]) if known.contains(&g.name) => {
                    bound(&mut symbols, &g.name, *extent)?;
                }
                (None, _) => return Err(unknown(&g.name, &model.graph.inputs, &known)),
            }
        }
        // What the model says of other values follows from its inputs.
        model.graph.value_infos.clear();
        for v in model.graph.inputs.iter_mut().chain(&mut model.graph.outputs) {
            for d in v.dims.iter_mut().flatten() {
                if let RawDim::Symbol(s) = d
                    && let Some(n) = symbols.get(s)
                {
                    *d = RawDim::Known(*n);
                }
            }
        }
        Ok(())
    }

    /// The extent of an axis of an input in a text, if one is given.
    pub fn extent(&self, input: &str, axis: usize, symbol: &str) -> Option<u64> {
        let find = |name: &str| self.given.iter().rev().find(|g| g.name == name);
        let of_symbol = || find(symbol).filter(|g| g.extents.len() == 1).map(|g| (g, g.extents[0]));
        let of_input = find(input).and_then(|g| Some((g, *g.extents.get(axis)?)));
        let (given, extent) = of_input.or_else(of_symbol)?;
        self.used.borrow_mut().insert(given.name.clone());
        Some(extent)
    }

    /// Refuses what a text had no use for, and inputs of another shape than was asked for.
    pub fn all_used(&self, program: &Program) -> anyhow::Result<()> {
        for g in &self.given {
            let input = program.inputs.iter().find(|(n, _)| *n == g.name);
            if let Some((name, ty)) = input {
                let fits = ty.shape.len() == g.extents.len()
                    && ty.shape.iter().zip(&g.extents).all(|(a, &b)| a.is(b as i64));
                ensure!(
                    fits,
                    "`--shape {name}={}` does not fit: the input is {ty}\nhelp: give an extent for each axis; only named axes can be changed",
                    list(&g.extents)
                );
            } else if !self.used.borrow().contains(&g.name) {
                let inputs = program.inputs.iter();
                let symbols =
                    inputs.clone().flat_map(|(_, t)| t.shape.iter()).flat_map(|e| e.symbols());
                let symbols = symbols.map(|s| s.to_string());
                let names: BTreeSet<String> =
                    inputs.map(|(n, _)| n.clone()).chain(symbols).collect();
                let all: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
                let help = format!("the inputs and axes are {}", all.join(", "));
                bail!(
                    "`--shape {}`: no input and no axis has this name{}",
                    g.name,
                    names::hint(&g.name, &names, &help)
                );
            }
        }
        Ok(())
    }
}

/// Gives an input its shape; symbols that it had are that everywhere.
fn shaped(
    input: &mut RawValueInfo,
    extents: &[u64],
    symbols: &mut BTreeMap<String, u64>,
) -> anyhow::Result<()> {
    if let Some(dims) = &input.dims {
        ensure!(
            dims.len() == extents.len(),
            "`--shape {}={}`: the input has {} axes, not {}\nhelp: it is declared as [{}]",
            input.name,
            list(extents),
            dims.len(),
            extents.len(),
            dims.iter().map(shown).collect::<Vec<_>>().join(", ")
        );
        for (d, &extent) in dims.iter().zip(extents) {
            if let RawDim::Symbol(s) = d {
                bound(symbols, s, extent)?;
            }
        }
    }
    input.dims = Some(extents.iter().map(|&e| RawDim::Known(e)).collect());
    Ok(())
}

fn bound(symbols: &mut BTreeMap<String, u64>, name: &str, extent: u64) -> anyhow::Result<()> {
    let before = symbols.insert(name.to_string(), extent);
    let same = before.is_none_or(|b| b == extent);
    same.then_some(()).with_context(|| {
        format!(
            "`--shape`: `{name}` is {} and {extent}\nhelp: a symbol has one extent everywhere",
            before.unwrap_or_default()
        )
    })
}

fn symbols_of(inputs: &[RawValueInfo]) -> BTreeSet<String> {
    let dims = inputs.iter().flat_map(|i| i.dims.iter().flatten());
    dims.filter_map(|d| if let RawDim::Symbol(s) = d { Some(s.clone()) } else { None }).collect()
}

fn unknown(name: &str, inputs: &[RawValueInfo], symbols: &BTreeSet<String>) -> anyhow::Error {
    let names: BTreeSet<&str> =
        inputs.iter().map(|i| i.name.as_str()).chain(symbols.iter().map(String::as_str)).collect();
    if symbols.contains(name) {
        return anyhow!(
            "`--shape {name}`: a symbol has one extent\nhelp: write `--shape {name}=1`"
        );
    }
    let all = names.iter().copied().collect::<Vec<_>>().join(", ");
    let hint = names::hint(name, &names, &format!("the inputs and symbols are {all}"));
    anyhow!("`--shape {name}`: the model has no input and no symbol of this name{hint}")
}

/// A declared extent as text.
pub fn shown(d: &RawDim) -> String {
    match d {
        RawDim::Known(n) => n.to_string(),
        RawDim::Symbol(s) => s.clone(),
        RawDim::Unknown => "?".into(),
    }
}

fn list(extents: &[u64]) -> String {
    extents.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}
