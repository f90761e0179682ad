//! Which element types an operator of ONNX may take and yield at a version of the operator set.
//!
//! A table made from ONNX's own schemas. Of an operator that it does not list nothing is said.

use mlc_dsl::ir::DType;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The newest version of the standard operator set that is read and written.
pub const NEWEST_OPSET: i64 = 28;

const TABLE: &str = include_str!("types.txt");

/// The types of consecutive inputs or outputs.
#[derive(Debug)]
struct Side {
    places: Vec<Vec<DType>>,
    /// The last place stands for any number.
    variadic: bool,
}

#[derive(Debug)]
struct Entry {
    since: i64,
    inputs: Side,
    outputs: Side,
}

impl Side {
    fn parse(text: &str) -> Side {
        let words: Vec<&str> = text.split_whitespace().collect();
        let variadic = words.last() == Some(&"...");
        let places = words.iter().filter(|w| **w != "...");
        let types = |w: &&str| w.split(',').filter_map(|t| t.parse().ok()).collect();
        Side { places: places.map(types).collect(), variadic }
    }

    fn allows(&self, found: &[Option<DType>]) -> bool {
        found.iter().enumerate().all(|(i, dtype)| {
            let last = self.places.last().filter(|_| self.variadic);
            match (dtype, self.places.get(i).or(last)) {
                (None, _) => true,
                (Some(d), Some(types)) => types.contains(d),
                (Some(_), None) => false,
            }
        })
    }
}

fn table() -> &'static HashMap<&'static str, Vec<Entry>> {
    static PARSED: OnceLock<HashMap<&str, Vec<Entry>>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut out: HashMap<&str, Vec<Entry>> = HashMap::new();
        for line in TABLE.lines() {
            if let Some((head, rest)) = line.split_once(": ")
                && let Some((name, since)) = head.split_once(' ')
                && let Ok(since) = since.parse()
                && let Some((inputs, outputs)) = rest.split_once(" -> ")
            {
                let (inputs, outputs) = (Side::parse(inputs), Side::parse(outputs));
                out.entry(name).or_default().push(Entry { since, inputs, outputs });
            }
        }
        out
    })
}

/// True if the standard operator of this name may have these element types at version `opset`; `None` stands for
/// what is not given.
pub(super) fn allowed(
    name: &str,
    opset: i64,
    inputs: &[Option<DType>],
    outputs: &[Option<DType>],
) -> bool {
    let Some(versions) = table().get(name) else { return true };
    let newest = versions.iter().filter(|e| e.since <= opset).max_by_key(|e| e.since);
    newest.is_some_and(|e| e.inputs.allows(inputs) && e.outputs.allows(outputs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_with_versions() {
        let two = |d| [Some(d), Some(d)];
        let truth = [Some(DType::Bool)];
        let equal = |opset, d| allowed("Equal", opset, &two(d), &truth);
        assert!(equal(7, DType::I64) && !equal(10, DType::F32) && equal(11, DType::F32));
        assert!(!equal(11, DType::BF16) && equal(13, DType::BF16));
        assert!(allowed("Concat", 13, &[Some(DType::U8); 5], &[Some(DType::U8)]));
        assert!(!allowed("Relu", 14, &two(DType::F32), &[Some(DType::F32)]));
        assert!(!allowed("Where", 8, &[], &[]), "it is not there yet");
        assert!(allowed("NobodysOperator", 8, &two(DType::U8), &[]));
        assert!(table().len() > 150);
    }
}
