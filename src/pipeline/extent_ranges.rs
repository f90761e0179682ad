//! Ranges of open extents: the sizes that a model is priced at.

use crate::error::{Error, ErrorKind};
use crate::names;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::shown;
use mlc_extract::Size;
use mlc_extract::resources::symbols_of;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Which extents come for symbols; of two ranges for one symbol the later counts.
#[derive(Clone, Debug, Default)]
pub struct ExtentRanges(Vec<(String, RangeInclusive<u64>)>);

impl ExtentRanges {
    /// Adds the range of a symbol.
    pub fn give(&mut self, symbol: &str, range: RangeInclusive<u64>) {
        self.0.push((symbol.to_string(), range));
    }

    /// True if nothing is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The largest, a middle and the smallest size; what has no range is as [usual](Size::usual).
    ///
    /// # Errors
    /// A symbol that no input of the program has, or a range without an extent.
    pub fn sizes(&self, program: &Program) -> Result<Vec<Size>, Error> {
        let inputs = program.inputs.iter().flat_map(|(_, t)| &t.shape);
        let known: BTreeSet<String> =
            inputs.flat_map(|e| e.symbols()).map(|s| s.to_string()).collect();
        for (symbol, range) in &self.0 {
            let place = format!("range of `{}`", shown(symbol));
            if !known.contains(symbol) {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let all = format!("open are {}", known.join(", "));
                let help = if known.is_empty() { "the model has no open extents" } else { &all };
                let message =
                    format!("{place}: no input of the model has an open axis of this name");
                let help = names::did_you_mean(symbol, &known, help);
                return Err(Error::new(ErrorKind::Setting, message).at(place).or_help(help));
            }
            if range.is_empty() {
                let message = format!("{place}: it ends before it begins");
                let error = Error::new(ErrorKind::Setting, message).at(place);
                return Err(error.with_help("write the smaller extent first, as in `1..512`"));
            }
        }
        let of = |size: Size, at: usize| {
            size.with(self.0.iter().map(|(symbol, range)| (symbol.clone(), points(range)[at])))
        };
        Ok(Size::usual().into_iter().enumerate().map(|(at, size)| of(size, at)).collect())
    }
}

/// The ends of a range, and between them the one as far from both by factors: the largest first.
fn points(range: &RangeInclusive<u64>) -> [i64; 3] {
    let (low, high) = (*range.start() as f64, *range.end() as f64);
    let middle = (low.max(1.0) * high.max(1.0)).sqrt().clamp(low, high);
    [high, middle.round(), low].map(|n| n as i64)
}

/// The size of these inputs of a program.
pub fn size_of(program: &Program, inputs: &[Tensor]) -> Size {
    Size::default().with(symbols_of(program, inputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_ranges() {
        for (range, wanted) in [
            (1..=512, [512, 23, 1]),
            (16..=16, [16, 16, 16]),
            (0..=4, [4, 2, 0]),
            (0..=0, [0, 0, 0]),
            (1..=2, [2, 1, 1]),
        ] {
            assert_eq!(points(&range), wanted, "{range:?}");
        }
    }
}
