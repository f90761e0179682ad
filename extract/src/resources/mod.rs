//! Resources of a run, computed before anything is allocated: bytes alive at once, and operations.
//!
//! Everything that runs a program or evaluates a part of it asks here first. Never runs anything itself.

pub mod schedule;

use crate::cost::Work;
use crate::cost::work::Works;
use mlc_dsl::diagnostics::message_text::bytes as human;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Library, OpClass};
use mlc_dsl::plan::Plan;
use std::borrow::Cow;
use std::collections::HashMap;
use thiserror::Error;

/// Bytes that a self-check takes at most, where the user does not say.
pub const CHECKED_BYTES: u64 = 768 << 20;
/// Operations of model and result together on the first inputs of a self-check: some seconds.
pub const CHECKED_OPERATIONS: f64 = 4e11;
/// Bytes of a value that is computed from constants once, unless the constants have as many themselves.
pub const FOLDED_BYTES: u64 = 64 << 20;
/// Bytes of a value that a definition makes of constants of less than half of them, as one that decodes weights does: what is larger is left
/// to the run, which computes it once, too.
pub const DECODED_BYTES: u64 = 1 << 20;
/// Operations that such a value may take, most of them in products, which the interpreter regroups.
pub const FOLDED_PRODUCTS: f64 = 4e9;
/// Operations that such a value may take otherwise.
pub const FOLDED_OPERATIONS: f64 = 2e8;
/// Operations that a run may take: hours.
pub const RUN_OPERATIONS: f64 = 1e14;
/// Operations that drawing one element of a random input takes.
const DRAWN: f64 = 200.0;
/// Quick operations that a slow one takes.
const SLOW: f64 = 20.0;

/// A number of bytes as the user writes it: `64M`, `1.5GiB`, `2_000_000`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let power = ["", "k", "m", "g", "t"].iter().position(|u| *u == unit);
    let number = number.replace('_', "").parse::<f64>().ok();
    match (number, power) {
        (Some(n), Some(power)) => Ok((n * 1024f64.powi(power as i32)) as u64),
        _ => Err("write a number of bytes, such as 512M or 4G".into()),
    }
}

/// The values of a program's symbols.
pub type Symbols = HashMap<String, i64>;

/// Why a run is not begun.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TooMuch {
    /// It takes more memory than it may.
    #[error("a run needs {}, but only {} are available: {largest}", human(*takes), human(*limit))]
    Bytes {
        /// Bytes that it takes.
        takes: u64,
        /// Bytes that it may take.
        limit: u64,
        /// The largest value, in words.
        largest: String,
    },
    /// It takes more operations than anyone waits for.
    #[error("a run needs {takes:.1e} operations, more than {RUN_OPERATIONS:.0e}: {slowest}")]
    Operations {
        /// Operations that it takes.
        takes: f64,
        /// What takes most of them, in words.
        slowest: String,
    },
}

impl TooMuch {
    /// What takes most.
    pub fn place(&self) -> &str {
        match self {
            TooMuch::Bytes { largest, .. } => largest,
            TooMuch::Operations { slowest, .. } => slowest,
        }
    }

    /// What the user can do about it.
    pub fn help(&self) -> &'static str {
        match self {
            TooMuch::Bytes { .. } => "give `--memory SIZE` if there is more, or smaller extents",
            TooMuch::Operations { .. } => "check the attributes of that operator",
        }
    }
}

/// What a run takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunResources {
    /// Bytes of inputs, results and intermediate values alive at once.
    pub bytes: u64,
    /// Bytes of the inputs.
    pub inputs: u64,
    /// Bytes of the results.
    pub results: u64,
    /// Operations; a slow one counts as some quick ones.
    pub operations: f64,
    /// The largest value, in words.
    pub largest: String,
    /// What takes most operations, in words.
    pub slowest: String,
}

/// Bytes of a value; `u64::MAX` if they cannot be counted, none for extents that only data decide.
pub fn size(ty: &Type, symbols: &Symbols, element: u64) -> u64 {
    let mut bytes = element;
    for e in &ty.shape {
        let known = e.symbols().iter().all(|s| symbols.contains_key(&**s));
        let n = match e.eval(&|s| symbols.get(s).copied()) {
            Some(n) => u64::try_from(n).unwrap_or(0),
            None if known => u64::MAX,
            None => 0,
        };
        if n == 0 {
            return 0;
        }
        bytes = bytes.saturating_mul(n);
    }
    bytes
}

/// Operations, a slow one counting as some quick ones.
fn counted(work: &Work) -> f64 {
    work.flops + SLOW * work.slow + work.points
}

/// Operations of a program; a symbol counts as its nominal value.
pub fn operations(program: &Program, library: &Library) -> f64 {
    each(program, library).map(|(_, n)| n).sum()
}

/// Operations of each application.
fn each<'a>(
    program: &'a Program,
    library: &'a Library,
) -> impl Iterator<Item = (NodeId, f64)> + use<'a> {
    let works = Works::new(library);
    program.nodes.iter().enumerate().filter_map(move |(i, n)| match &n.kind {
        NodeKind::Apply(call, attrs) => {
            let args: Vec<&Type> = n.args.iter().map(|a| program.ty(*a)).collect();
            Some((NodeId(i as u32), counted(&works.of(*call, attrs, &args, &n.types))))
        }
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    })
}

/// True if an application of constants is computed once, before the first run: neither its result nor the way to it is
/// large. A result that is no larger than twice its arguments is not.
pub fn runs_once(
    works: &Works<'_>,
    library: &Library,
    call: CallId,
    attrs: &[Attr],
    args: &[&Type],
    types: &[Type],
) -> bool {
    let (read, made) = (all_bytes(args.iter().copied()), all_bytes(types));
    let moves =
        matches!(library.call(call).class, OpClass::Pointwise | OpClass::View | OpClass::Movement);
    let is_quick = || {
        let work = works.of(call, attrs, args, types);
        let products = 2.0 * work.products >= work.flops;
        counted(&work) <= if products { FOLDED_PRODUCTS } else { FOLDED_OPERATIONS }
    };
    made <= FOLDED_BYTES.max(read.saturating_mul(2)) && (moves || is_quick())
}

/// True if the result takes the place of such an application: not that of a definition that makes much of little, which its kernel computes.
pub fn folds(
    works: &Works<'_>,
    library: &Library,
    call: CallId,
    attrs: &[Attr],
    args: &[&Type],
    types: &[Type],
) -> bool {
    let decodes = || {
        let (read, made) = (all_bytes(args.iter().copied()), all_bytes(types));
        matches!(library.call(call).kind, CallKind::Def(_))
            && made > DECODED_BYTES.max(read.saturating_mul(2))
    };
    runs_once(works, library, call, attrs, args, types) && !decodes()
}

/// Bytes of values of known extents.
fn all_bytes<'t>(types: impl IntoIterator<Item = &'t Type>) -> u64 {
    let none = Symbols::new();
    let own = |t: &Type| size(t, &none, t.dtype.size() as u64);
    types.into_iter().map(own).fold(0, u64::saturating_add)
}

impl RunResources {
    /// Of a plan on the processor.
    pub fn of_plan(plan: &Plan, library: &Library, symbols: &Symbols) -> RunResources {
        let mut needs = RunResources::of(&plan.program, library, symbols);
        let own = |v: Value| {
            let ty = plan.program.ty(v);
            size(ty, symbols, ty.dtype.size() as u64)
        };
        let is_view = |v: &Value| library.is_view(&plan.program, v.node);
        let written = plan.kernels.iter().flat_map(|k| k.outputs.iter().copied());
        let results = || plan.program.outputs.iter().map(|(_, v)| *v);
        let buffers = written.filter(|v| !is_view(v)).chain(results());
        if let Some(v) = buffers.max_by_key(|v| own(*v)) {
            needs.name_largest(&plan.program, library, v, own(v));
        }
        let bound = || {
            let buffers = plan.buffers(library, &|s| symbols.get(s).copied());
            buffers.placed(&plan.order()).peak()
        };
        needs.bytes = needs.inputs.saturating_add(plan.peak_bytes().unwrap_or_else(bound));
        needs
    }

    /// With the buffers of another plan on the same inputs, kept at the same time.
    pub fn beside(mut self, other: &RunResources) -> RunResources {
        self.bytes = self.bytes.saturating_add(other.bytes.saturating_sub(other.inputs));
        self
    }

    /// Of a program in the f64 interpreter, which keeps eight bytes of every element and shows no value without copying it.
    pub fn of_reference(program: &Program, library: &Library, symbols: &Symbols) -> RunResources {
        let mut needs = RunResources::of(program, library, symbols);
        let (most, largest) = alive_in_reference(program, symbols);
        let value = Value { node: NodeId(largest.1 as u32), output: 0 };
        needs.name_largest(program, library, value, largest.0);
        needs.bytes = most;
        needs
    }

    /// What does not depend on where it runs: inputs, results, operations.
    fn of(program: &Program, library: &Library, symbols: &Symbols) -> RunResources {
        let program = &*bound(program, symbols);
        let bytes = |t: &Type| size(t, symbols, t.dtype.size() as u64);
        let inputs = program.inputs.iter().map(|(_, t)| bytes(t));
        let mut needs = RunResources {
            inputs: inputs.fold(0, u64::saturating_add),
            results: program
                .outputs
                .iter()
                .map(|(_, v)| bytes(program.ty(*v)))
                .fold(0, u64::saturating_add),
            ..RunResources::default()
        };
        let largest = program.inputs.iter().max_by_key(|(_, t)| bytes(t));
        if let Some((name, t)) = largest {
            needs.largest = format!("input `{name}`: {t} takes {}", human(bytes(t)));
        }
        let mut slowest = (0.0, None);
        for (node, n) in each(program, library) {
            needs.operations += n;
            if n > slowest.0 {
                slowest = (n, Some(node));
            }
        }
        if let Some(node) = slowest.1 {
            let place = place(program, library, node);
            needs.slowest = format!("{place} takes {:.1e} of them", slowest.0);
        }
        needs
    }

    /// Names the value as the largest, if no input is larger.
    fn name_largest(&mut self, program: &Program, library: &Library, v: Value, bytes: u64) {
        if bytes >= self.inputs.max(1) {
            let (place, ty) = (place(program, library, v.node), program.ty(v));
            self.largest = format!("{place}: {ty} takes {}", human(bytes));
        }
    }

    /// An error if a run takes more than `limit` bytes, or more operations than anyone waits for.
    pub fn afford(&self, limit: u64) -> Result<(), TooMuch> {
        if self.bytes > limit {
            let largest = self.largest.clone();
            return Err(TooMuch::Bytes { takes: self.bytes, limit, largest });
        }
        if self.operations > RUN_OPERATIONS {
            let slowest = self.slowest.clone();
            return Err(TooMuch::Operations { takes: self.operations, slowest });
        }
        Ok(())
    }

    /// Operations of a run and of drawing its inputs.
    pub fn drawn_operations(&self) -> f64 {
        self.operations + DRAWN * self.inputs as f64 / 4.0
    }
}

/// Bytes that the f64 interpreter keeps at once of a program's values.
pub fn reference_bytes(program: &Program, symbols: &Symbols) -> u64 {
    alive_in_reference(program, symbols).0
}

/// The same, and the bytes and the node of the largest value.
fn alive_in_reference(program: &Program, symbols: &Symbols) -> (u64, (u64, usize)) {
    let mut last = vec![0; program.nodes.len()];
    for (i, node) in program.nodes.iter().enumerate() {
        node.args.iter().for_each(|a| last[a.node.0 as usize] = i);
    }
    program.outputs.iter().for_each(|(_, v)| last[v.node.0 as usize] = usize::MAX);
    let own = |i: usize| {
        let types = program.nodes[i].types.iter();
        types.map(|t| size(t, symbols, 8)).fold(0, u64::saturating_add)
    };
    let mut ends: HashMap<usize, u64> = HashMap::new();
    let (mut now, mut most, mut largest) = (0u64, 0u64, (0, 0));
    for (i, &until) in last.iter().enumerate() {
        let bytes = own(i);
        largest = largest.max((bytes, i));
        // A value is there while the next one is computed.
        now = now.saturating_add(bytes);
        most = most.max(now);
        let end = ends.entry(until.max(i)).or_default();
        *end = end.saturating_add(bytes);
        now = now.saturating_sub(ends.remove(&i).unwrap_or(0));
    }
    (most, largest)
}

/// The program with its symbols replaced by numbers.
fn bound<'a>(program: &'a Program, symbols: &Symbols) -> Cow<'a, Program> {
    if symbols.is_empty() {
        return Cow::Borrowed(program);
    }
    Cow::Owned(program.bound(&|s| symbols.get(s).copied()))
}

/// An operator and where it is in the model.
fn place(program: &Program, library: &Library, node: NodeId) -> String {
    let name = library.node_name(program, node);
    match program.node(node).origin.as_str() {
        "" => format!("operator `{name}`"),
        origin => format!("operator `{name}` ({})", shortened(origin)),
    }
}

/// A name that a model gives, fit for a message.
fn shortened(name: &str) -> String {
    const MOST: usize = 60;
    let clean: String = name.chars().take(MOST).flat_map(char::escape_default).collect();
    if name.chars().count() > MOST { format!("{clean}…") } else { clean }
}

/// The extents that inputs give the symbols of a program, as far as an extent is one symbol alone.
pub fn symbols_of(program: &Program, inputs: &[Tensor]) -> Symbols {
    symbols_of_shapes(program, inputs.iter().map(Tensor::shape))
}

/// The same of inputs of these shapes.
pub fn symbols_of_shapes<'a>(
    program: &Program,
    shapes: impl IntoIterator<Item = &'a [usize]>,
) -> Symbols {
    let mut out = Symbols::new();
    for ((_, ty), shape) in program.inputs.iter().zip(shapes) {
        for (e, &n) in ty.shape.iter().zip(shape) {
            // Most inputs have the same few symbols.
            if let Some(s) = e.as_symbol().filter(|s| out.get(&***s) != Some(&(n as i64))) {
                out.insert(s.to_string(), n as i64);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64k", 64 << 10),
            ("512M", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("2 gb", 2 << 30),
            ("1_000", 1000),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "5X", "1.2.3", "many"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
