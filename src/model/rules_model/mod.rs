//! A `.rules` text as a model: the last `def`, whose parameters are the inputs.

mod application;
mod extents;

pub use application::application;

use crate::error::{Error, ErrorKind};
use mlc_dsl::diagnostics::{Code, Diag};
use mlc_dsl::expr::ExprKind;
use mlc_dsl::ir::build::{BuildError, Builder};
use mlc_dsl::ir::{DType, Extent, Program, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Callable, DTypePattern, Dim, Library};
use mlc_dsl::shown;
use mlc_dsl::typing::infer::{is_countable, too_many};

/// Extents of a definition's inputs that its text leaves open.
pub trait ExtentSource {
    /// The extent of an input's axis, by the input's name, the axis' number and symbol.
    fn extent(&self, input: &str, axis: usize, symbol: &str) -> Option<u64>;

    /// The number of axes of an input.
    fn rank(&self, input: &str) -> Option<usize>;
}

/// Nothing is known besides the text.
struct Open;

impl ExtentSource for Open {
    fn extent(&self, _: &str, _: usize, _: &str) -> Option<u64> {
        None
    }

    fn rank(&self, _: &str) -> Option<usize> {
        None
    }
}

/// The program of a definition. Axes that are no numbers become symbols, element type variables f32
/// (`F`, `N`, `T`), i64 (`I`) or bool (`B`). Attributes take their defaults.
pub fn program(library: &Library, name: &str) -> Result<Program, Error> {
    program_at(library, name, &Open).map(|(program, _)| program)
}

/// The same with extents that are `known`. Axes that the definition's conditions equate are one; where there is no program for all
/// extents, some are chosen, and the second part says which.
pub fn program_at(
    library: &Library,
    name: &str,
    known: &dyn ExtentSource,
) -> Result<(Program, Option<String>), Error> {
    let place = || format!("definition `{}`", shown(name));
    let refused = |message: String| {
        Error::new(ErrorKind::Rules, message)
            .at(place())
            .with_help("the last `def` of a text is what runs")
    };
    let call = library.find(name).ok_or_else(|| refused(format!("there is no {}", place())))?;
    let c = library.call(call);
    let CallKind::Def(_) = &c.kind else {
        return Err(refused(format!("`{}` is not a `def`", shown(name))));
    };
    let mut inputs = Vec::new();
    for i in &c.inputs {
        let no_model = |reason: String| {
            let message =
                format!("`{}` is no model: input `{}`: {reason}", shown(name), shown(&i.name));
            let help = "a model names each axis of its inputs, or gives its extent: `x: f32[batch, 8]`; or \
                        give its shape";
            drawn(library, c, Diag::error(Code("V011"), message, c.source.span).help(help))
        };
        let dims = i.ty.dims.as_ref();
        let dims = dims.ok_or_else(|| no_model("its axes are not declared".into()))?;
        let shape = shape(&i.name, dims, known).map_err(no_model)?;
        inputs.push((i.name.to_string(), Type::new(usual_dtype(&i.ty.dtype), shape)));
    }
    extents::equate(c, &mut inputs);
    match expanded(library, call, &inputs) {
        Ok(program) => Ok((program, None)),
        Err(e) if !e.is_of_unequal_extents() => Err(placed(library, c, &e)),
        Err(e) => {
            let build = |inputs: &[(String, Type)]| expanded(library, call, inputs).ok();
            let found = extents::chosen(&inputs, &build);
            found.map(|(program, note)| (program, Some(note))).ok_or_else(|| placed(library, c, &e))
        }
    }
}

/// The program of a definition on inputs of these types. Attributes take their defaults.
fn expanded(
    library: &Library,
    call: CallId,
    inputs: &[(String, Type)],
) -> Result<Program, BuildError> {
    let c = library.call(call);
    let mut b = Builder::new(library);
    let args: Vec<Value> = inputs.iter().map(|(name, ty)| b.input(name, ty.clone())).collect();
    let out = b.expand(call, &vec![None; c.attrs.len()], &args)?;
    let mut taken: Vec<String> = inputs.iter().map(|(name, _)| name.clone()).collect();
    let mut names = Vec::new();
    for (i, v) in (0..).zip(out) {
        let name = free_name(output_name(c, i), &taken);
        taken.push(name.clone());
        names.push((name, v));
    }
    Ok(b.finish(names))
}

/// The extents of an input. A segment has the axes that are left of a known rank.
fn shape(input: &str, dims: &[Dim], known: &dyn ExtentSource) -> Result<Vec<Extent>, String> {
    let number = |axis: usize, symbol: &str| {
        known.extent(input, axis, symbol).and_then(|v| i64::try_from(v).ok()).map(Extent::from)
    };
    let left = known.rank(input).and_then(|rank| (rank + 1).checked_sub(dims.len()));
    let mut out: Vec<Extent> = Vec::with_capacity(dims.len());
    for d in dims {
        match (d, left) {
            (Dim::Axis(n), _) => out.push(number(out.len(), n).unwrap_or_else(|| Extent::sym(n))),
            (Dim::Seg(n), Some(left)) if segments(dims) == 1 => {
                for _ in 0..left {
                    let axis = number(out.len(), n);
                    out.push(axis.ok_or_else(|| format!("segment `..{n}` has no known extents"))?);
                }
            }
            (Dim::Seg(n), _) => return Err(format!("segment `..{n}` has no known number of axes")),
            (Dim::Value(_) | Dim::Splice(_), _) => out.push(extent(d)?),
        }
    }
    match is_countable(&out) {
        true => Ok(out),
        false => Err(too_many(&out)),
    }
}

fn segments(dims: &[Dim]) -> usize {
    dims.iter().filter(|d| matches!(d, Dim::Seg(_))).count()
}

/// Why a definition has no program, with its place.
fn placed(library: &Library, c: &Callable, e: &BuildError) -> Error {
    let span = e.span().unwrap_or(c.source.span);
    let mut message = e.to_string();
    if e.span().is_none() {
        message = format!("`{}` has no program: {message}", c.name);
    }
    drawn(library, c, Diag::error(Code("V011"), message, span).help(e.help()))
}

/// A mistake in the text that declares `c`, as an error.
fn drawn(library: &Library, c: &Callable, diag: Diag) -> Error {
    let source = &library.sources[c.source.file as usize];
    Error::in_text(&diag, &source.name, &source.text)
}

/// The element type that a pattern gets where nothing decides it: f32 for a variable, i64 for `I`, bool for `B`.
pub fn usual_dtype(pattern: &DTypePattern) -> DType {
    match pattern {
        DTypePattern::Fixed(d) => *d,
        DTypePattern::Var(v) => match v.as_bytes().first() {
            Some(b'I') => DType::I64,
            Some(b'B') => DType::Bool,
            _ => DType::F32,
        },
    }
}

fn output_name(c: &Callable, i: usize) -> String {
    match c.outputs.get(i) {
        Some((n, _)) if !n.is_empty() => n.to_string(),
        _ if i == 0 => "y".into(),
        _ => format!("y{i}"),
    }
}

/// A name like this one that is not taken.
fn free_name(base: String, taken: &[String]) -> String {
    let is_free = |name: &String| !taken.contains(name);
    let others = (1..).map(|n| format!("{base}_{n}"));
    std::iter::once(base.clone()).chain(others).find(is_free).unwrap_or(base)
}

/// The extent that a number is.
fn extent(d: &Dim) -> Result<Extent, String> {
    if let Dim::Value(e) = d
        && let ExprKind::Int(v) = e.kind
        && v >= 0
    {
        return Ok(Extent::from(v));
    }
    Err("an input's axes are names or numbers".into())
}

/// The name of the last `def` of a source text of the library.
pub fn last_definition(library: &Library, source: u32) -> Option<String> {
    let own = library.calls.iter().filter(|c| c.source.file == source);
    let defs = own.filter(|c| matches!(c.kind, CallKind::Def(_)));
    defs.max_by_key(|c| c.source.span.start).map(|c| c.name.to_string())
}
