//! A `.rules` text as a model: its last `def`, its parameters being the inputs.

use anyhow::{Context, anyhow, bail};
use mlc_dsl::build::{BuildError, Builder};
use mlc_dsl::diag::{Code, Diag, render};
use mlc_dsl::infer::{is_countable, too_many};
use mlc_dsl::ir::{DType, Extent, Program, Type};
use mlc_dsl::library::{CallKind, Callable, DTypePattern, Dim, Library};
use mlc_dsl::syntax::ast::ExprKind;

/// The program of a definition. Axes that are no numbers become symbols, element type variables f32
/// (`F`, `N`, `T`), i64 (`I`) or bool (`B`). Attributes take their defaults.
pub fn program(library: &Library, name: &str) -> anyhow::Result<Program> {
    program_at(library, name, &|_, _, _| None)
}

/// The same where `known` may give the extent of an input's axis, by the input's name, the axis' number and symbol.
pub fn program_at(
    library: &Library,
    name: &str,
    known: &dyn Fn(&str, usize, &str) -> Option<u64>,
) -> anyhow::Result<Program> {
    let call = library.find(name).with_context(|| format!("there is no definition `{name}`"))?;
    let c = library.call(call);
    let CallKind::Def(body) = &c.kind else { bail!("`{name}` is not a `def`") };
    let mut b = Builder::new(library);
    let mut inputs = Vec::new();
    for i in &c.inputs {
        let dtype = usual_dtype(&i.ty.dtype);
        let no_model = |reason: String| {
            let message = format!("`{name}` is no model: input `{}`: {reason}", i.name);
            let help =
                "a model names each axis of its inputs, or gives its extent: `x: f32[batch, 8]`";
            drawn(library, c, Diag::error(Code("V011"), message, c.source.1).help(help))
        };
        let dims =
            i.ty.dims.as_ref().ok_or_else(|| no_model("its axes are not declared".into()))?;
        let one = |(axis, d): (usize, &Dim)| match d {
            Dim::Axis(n) => match known(&i.name, axis, n).and_then(|v| i64::try_from(v).ok()) {
                Some(v) => Ok(Extent::from(v)),
                None => extent(d),
            },
            other => extent(other),
        };
        let shape = dims.iter().enumerate().map(one).collect::<anyhow::Result<_>>();
        let shape = shape.and_then(|s: Vec<Extent>| match is_countable(&s) {
            true => Ok(s),
            false => Err(anyhow!("{}", too_many(&s))),
        });
        let shape = shape.map_err(|e| no_model(format!("{e:#}")))?;
        inputs.push(b.input(&i.name, Type::new(dtype, shape)));
    }
    let attrs = vec![None; c.attrs.len()];
    let out = b.expand(call, body, &attrs, &inputs).map_err(|e| placed(library, c, &e))?;
    let names = (0..).zip(out).map(|(i, v)| (output_name(c, i), v)).collect();
    Ok(b.finish(names))
}

/// Why a definition has no program, with its place.
fn placed(library: &Library, c: &Callable, e: &BuildError) -> anyhow::Error {
    let span = e.span().unwrap_or(c.source.1);
    let mut message = e.to_string();
    if e.span().is_none() {
        message = format!("`{}` has no program: {message}", c.name);
    }
    drawn(library, c, Diag::error(Code("V011"), message, span).help(e.help()))
}

/// A mistake in the text that declares `c`, as an error.
fn drawn(library: &Library, c: &Callable, diag: Diag) -> anyhow::Error {
    let source = &library.sources[c.source.0 as usize];
    anyhow!("{}", render(&[diag], &source.name, &source.text, false))
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

fn extent(d: &Dim) -> anyhow::Result<Extent> {
    match d {
        Dim::Axis(n) => Ok(Extent::sym(n)),
        Dim::Value(e) => match e.kind {
            ExprKind::Int(v) if v >= 0 => Ok(Extent::from(v)),
            _ => bail!("an input's axes are names or numbers"),
        },
        Dim::Seg(n) => bail!("segment `..{n}` has no known number of axes"),
        Dim::Splice(_) => bail!("an input's axes are names or numbers"),
    }
}

/// The name of the last `def` of a source text of the library.
pub fn last_definition(library: &Library, source: u32) -> Option<String> {
    let own = library.calls.iter().filter(|c| c.source.0 == source);
    let defs = own.filter(|c| matches!(c.kind, CallKind::Def(_)));
    defs.max_by_key(|c| c.source.1.start).map(|c| c.name.to_string())
}
