//! `--shape`, `--bind`, `--value`, `--fold-defaults` and `--option`: how a model is read otherwise than it declares.

use crate::pipeline::extent_ranges::ExtentRanges;
use std::ops::RangeInclusive;

/// Arguments.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "How to read the model")]
pub struct ShapeOptions {
    /// The shape of an input, as `image=1,3,224,224`, or the extent of a symbol, as `batch=1`, or which extents come for it, as `seq=1..512`:
    /// it stays open, and the result is the best for these; may be given several times.
    #[arg(long = "shape", value_name = "NAME=EXTENTS", value_parser = parse)]
    given: Vec<(String, Given)>,
    /// The extent of a symbol that inputs name, as `batch=1`: what is computed from it is a constant; may be given several times.
    #[arg(long = "bind", value_name = "NAME=EXTENT", value_parser = parse_binding)]
    bindings: Vec<(String, u64)>,
    /// The value of an input that decides shapes or axes, as `axes=1,2`: the model is read for it, and the input is a
    /// constant; may be given several times.
    #[arg(long = "value", value_name = "NAME=NUMBERS", value_parser = parse_value)]
    values: Vec<(String, Numbers)>,
    /// Make constants of inputs that have a value in the file; otherwise a run may replace it, and only `run` takes it as known.
    #[arg(long)]
    fold_defaults: bool,
    /// An option of the architecture that a file of weights is read by, as `last` or `last=false`; may be given several times.
    #[arg(long = "option", value_name = "NAME", value_parser = parse_option)]
    options: Vec<(String, bool)>,
}

/// Numbers in one argument.
#[derive(Clone, Debug)]
struct Numbers(Vec<f64>);

/// Extents, or a range of one.
#[derive(Clone, Debug)]
enum Given {
    Extents(Vec<u64>),
    Range(RangeInclusive<u64>),
}

impl ShapeOptions {
    /// Names and values.
    pub fn values(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.values.iter().map(|(name, numbers)| (name.as_str(), numbers.0.as_slice()))
    }

    /// Whether values of inputs in the file are constants.
    pub fn folds_defaults(&self) -> bool {
        self.fold_defaults
    }

    /// Options of architectures.
    pub fn options(&self) -> impl Iterator<Item = (&str, bool)> {
        self.options.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Symbols and their extents.
    pub fn bindings(&self) -> impl Iterator<Item = (&str, u64)> {
        self.bindings.iter().map(|(name, extent)| (name.as_str(), *extent))
    }

    /// Names and extents.
    pub fn given(&self) -> impl Iterator<Item = (&str, &[u64])> {
        self.given.iter().filter_map(|(name, given)| match given {
            Given::Extents(extents) => Some((name.as_str(), extents.as_slice())),
            Given::Range(_) => None,
        })
    }

    /// Which extents come for symbols that stay open.
    pub fn ranges(&self) -> ExtentRanges {
        let mut ranges = ExtentRanges::default();
        for (symbol, given) in &self.given {
            if let Given::Range(range) = given {
                ranges.give(symbol, range.clone());
            }
        }
        ranges
    }
}

fn parse_value(text: &str) -> Result<(String, Numbers), String> {
    let form = "write NAME=NUMBERS, as in `axes=1,2`";
    let (name, list) = text.rsplit_once('=').filter(|(n, _)| !n.is_empty()).ok_or(form)?;
    let number = |t: &str| match t.trim() {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        t => t.parse::<f64>().map_err(|_| format!("`{t}` is no number; {form}")),
    };
    let numbers = match list.trim() {
        "" => vec![],
        list => list.split(',').map(number).collect::<Result<_, _>>()?,
    };
    Ok((name.to_string(), Numbers(numbers)))
}

fn parse_option(text: &str) -> Result<(String, bool), String> {
    match text.split_once('=') {
        None => Ok((text.to_string(), true)),
        Some((name, "true")) => Ok((name.to_string(), true)),
        Some((name, "false")) => Ok((name.to_string(), false)),
        Some((_, other)) => Err(format!("`{other}` is neither `true` nor `false`")),
    }
}

fn parse_binding(text: &str) -> Result<(String, u64), String> {
    let form = "write NAME=EXTENT, as in `batch=1`";
    let (name, extent) = text.rsplit_once('=').filter(|(n, _)| !n.is_empty()).ok_or(form)?;
    let number = extent.trim().parse::<u32>().ok().filter(|&n| n > 0);
    let number = number.ok_or_else(|| format!("`{extent}` is no positive extent; {form}"))?;
    Ok((name.to_string(), number.into()))
}

fn parse(text: &str) -> Result<(String, Given), String> {
    let form = "write NAME=EXTENTS, as in `image=1,3,224,224`, `batch=1` or `seq=1..512`";
    let (name, list) = text.rsplit_once('=').ok_or(form)?;
    let extent = |e: &str| -> Result<u64, String> {
        let number = e.trim().parse::<u32>();
        number.map(u64::from).map_err(|_| format!("`{e}` is no extent; {form}"))
    };
    if let Some((low, high)) = list.split_once("..") {
        let range = extent(low)?..=extent(high.trim_start_matches('='))?;
        return Ok((name.to_string(), Given::Range(range)));
    }
    let extents: Vec<u64> = match list.trim() {
        "" => vec![],
        list => list.split(',').map(extent).collect::<Result<_, _>>()?,
    };
    if name.is_empty() {
        return Err(form.into());
    }
    Ok((name.to_string(), Given::Extents(extents)))
}
