//! What an operator of ONNX may take and yield at a version of the operator set, and what runtimes have code for.
//!
//! Two tables, made from ONNX's own schemas and from the kernels of ONNX Runtime's CPU provider. Of an operator that a table
//! does not list nothing is said.

use mlc_dsl::ir::DType;
use std::collections::HashMap;
use std::sync::OnceLock;

/// The newest version of the standard operator set that is read and written.
pub const NEWEST_OPSET: i64 = 28;

const SCHEMAS: &str = include_str!("types.txt");
const KERNELS: &str = include_str!("kernels.txt");

/// An input or output.
#[derive(Debug)]
struct Place {
    types: Vec<DType>,
    /// It may be left out.
    optional: bool,
}

/// Consecutive inputs or outputs.
#[derive(Debug)]
struct Side {
    places: Vec<Place>,
    /// The last place stands for any number.
    variadic: bool,
}

#[derive(Debug)]
struct Entry {
    since: i64,
    inputs: Side,
    outputs: Side,
    /// The attributes, and whether each must be given.
    attributes: Vec<(&'static str, bool)>,
}

type Table = HashMap<&'static str, Vec<Entry>>;

impl Place {
    fn parse(word: &str) -> Place {
        let types = word.trim_start_matches('?').split(',').filter_map(|t| t.parse().ok());
        Place { types: types.collect(), optional: word.starts_with('?') }
    }
}

impl Side {
    fn parse(text: &str) -> Side {
        let words: Vec<&str> = text.split_whitespace().collect();
        let places = words.iter().filter(|w| **w != "..." && **w != "-");
        Side {
            places: places.map(|w| Place::parse(w)).collect(),
            variadic: words.last() == Some(&"..."),
        }
    }

    fn allows(&self, found: &[Option<DType>], fits: &dyn Fn(&Place, DType) -> bool) -> bool {
        found.iter().enumerate().all(|(i, dtype)| {
            let last = self.places.last().filter(|_| self.variadic);
            match (dtype, self.places.get(i).or(last)) {
                (None, _) => true,
                (Some(d), Some(place)) => fits(place, *d),
                (Some(_), None) => false,
            }
        })
    }

    /// True if everything is given that may not be left out.
    fn is_given(&self, found: &[Option<DType>]) -> bool {
        let fixed = self.places.len() - usize::from(self.variadic && !self.places.is_empty());
        let given = |i: usize| found.get(i).is_some_and(Option::is_some);
        self.places[..fixed].iter().enumerate().all(|(i, p)| p.optional || given(i))
    }
}

fn parse(text: &'static str) -> Table {
    let mut out = Table::new();
    for line in text.lines() {
        if let Some((head, rest)) = line.split_once(": ")
            && let Some((name, since)) = head.split_once(' ')
            && let Ok(since) = since.parse()
            && let Some((inputs, rest)) = rest.split_once(" -> ")
        {
            let (outputs, attributes) = rest.split_once(" | ").unwrap_or((rest, "-"));
            let attribute = |w: &'static str| (w.trim_end_matches('!'), w.ends_with('!'));
            out.entry(name).or_default().push(Entry {
                since,
                inputs: Side::parse(inputs),
                outputs: Side::parse(outputs),
                attributes: attributes
                    .split_whitespace()
                    .filter(|w| *w != "-")
                    .map(attribute)
                    .collect(),
            });
        }
    }
    out
}

fn schemas() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| parse(SCHEMAS))
}

fn kernels() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| parse(KERNELS))
}

/// The newest version of an operator that an operator set has; `None` of one that it lacks.
fn newest(versions: &[Entry], opset: i64) -> Option<&Entry> {
    versions.iter().filter(|e| e.since <= opset).max_by_key(|e| e.since)
}

/// True if the standard operator of this name may have these element types at version `opset`; `None` stands for
/// what is not given.
pub(crate) fn allowed(
    name: &str,
    opset: i64,
    inputs: &[Option<DType>],
    outputs: &[Option<DType>],
) -> bool {
    let Some(versions) = schemas().get(name) else { return true };
    let fits = |place: &Place, d: DType| place.types.contains(&d);
    newest(versions, opset).is_some_and(|e| {
        e.inputs.allows(inputs, &fits)
            && e.outputs.allows(outputs, &fits)
            && e.inputs.is_given(inputs)
    })
}

/// True if the standard operator of this name has these attributes at version `opset`, and none that must be given is left out.
pub(crate) fn has_attributes(name: &str, opset: i64, given: &[&str]) -> bool {
    let Some(versions) = schemas().get(name) else { return true };
    newest(versions, opset).is_some_and(|e| {
        let known = |g: &&str| e.attributes.iter().any(|(a, _)| a == g);
        let needed = e.attributes.iter().filter(|(_, needed)| *needed);
        given.iter().all(known) && needed.into_iter().all(|(a, _)| given.contains(a))
    })
}

/// True if a runtime on a processor has code for the operator with these element types. One that has none for numbers of 16 bits
/// computes in 32.
pub(crate) fn is_implemented(
    domain: &str,
    name: &str,
    opset: i64,
    inputs: &[Option<DType>],
    outputs: &[Option<DType>],
) -> bool {
    let own = format!("{domain}.{name}");
    let name = if domain.is_empty() { name } else { own.as_str() };
    let Some(all) = kernels().get(name) else { return true };
    let version = match (domain, schemas().get(name)) {
        ("", Some(versions)) => newest(versions, opset).map(|e| e.since),
        _ => all.iter().map(|e| e.since).max(),
    };
    let wide = |place: &Place, d: DType| {
        let half = matches!(d, DType::F16 | DType::BF16);
        place.types.contains(&d) || half && place.types.contains(&DType::F32)
    };
    let mut own = all.iter().filter(|e| Some(e.since) == version).peekable();
    own.peek().is_none()
        || own.any(|e| e.inputs.allows(inputs, &wide) && e.outputs.allows(outputs, &wide))
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
        assert!(schemas().len() > 150);
    }

    #[test]
    fn what_must_be_given_depends_on_the_version() {
        let [x, none, scales] = [Some(DType::F32), None, Some(DType::F32)];
        let resize = |opset, roi| allowed("Resize", opset, &[x, roi, scales], &[x]);
        assert!(!resize(11, none) && !resize(12, none) && resize(13, none) && resize(11, x));
        assert!(has_attributes("AveragePool", 19, &["dilations", "kernel_shape"]));
        assert!(!has_attributes("AveragePool", 18, &["dilations", "kernel_shape"]));
        assert!(!has_attributes("AveragePool", 18, &[]), "it needs a window");
        assert!(has_attributes("NobodysOperator", 18, &["mode"]));
    }

    #[test]
    fn runtimes_have_code_for_some_types() {
        let has = |domain, name, d: DType, n: usize| {
            is_implemented(domain, name, 17, &vec![Some(d); n], &[Some(d)])
        };
        assert!(has("", "Gemm", DType::F32, 3) && has("", "Gemm", DType::F64, 3));
        assert!(!has("", "Gemm", DType::I64, 3) && has("", "MatMul", DType::I64, 2));
        assert!(has("", "LeakyRelu", DType::F16, 1) && !has("", "LeakyRelu", DType::F64, 1));
        assert!(has("com.microsoft", "FastGelu", DType::F32, 1));
        assert!(!has("com.microsoft", "FastGelu", DType::F64, 1));
        assert!(has("", "Celu", DType::F32, 1) && has("example", "Anything", DType::U8, 1));
    }
}
