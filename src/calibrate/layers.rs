//! Layers of real networks from `layers.rules`, with the sizes and values of their parameters.

use anyhow::bail;
use mlc_dsl::diagnostics::Severity;
use mlc_dsl::expr::ExprKind;
use mlc_dsl::ir::{Extent, Type};
use mlc_dsl::library::{CallId, CallKind, Callable, Dim, Library};
use mlc_dsl::random::Random;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::model::rules_model::usual_dtype;
use crate::stdlib;

/// The text's name among the library's.
const NAME: &str = "calibrate/layers.rules";
const TEXT: &str = include_str!("layers.rules");

/// What axes may be, by the first letter of their names.
const EXTENTS: &[(&str, &[i64])] = &[
    ("s", &[7, 7, 8, 13, 14, 14, 17, 27, 28, 32, 35, 55, 56, 64, 112, 150]),
    ("t", &[1, 4, 8, 16, 32, 64, 77, 100, 128, 128, 197, 256, 384, 512]),
    ("h", &[4, 6, 8, 12, 12, 16]),
    ("k", &[16, 32, 64, 64, 80, 128]),
    ("n", &[10, 100, 1000, 2000, 8000, 16000]),
];
/// What the others may be: channels and features.
const CHANNELS: &[i64] = &[
    8, 16, 16, 24, 32, 32, 48, 64, 64, 96, 128, 128, 160, 192, 256, 256, 320, 384, 512, 576, 640,
    768, 768, 960, 1024, 1280, 1536, 2048, 3072,
];

/// The shipped texts, these layers and the user's texts.
pub fn library(user: &[PathBuf]) -> anyhow::Result<Library> {
    let mut texts = vec![(NAME.to_string(), TEXT.to_string())];
    for path in user {
        texts.push((path.display().to_string(), stdlib::read_text(path)?));
    }
    let (library, diags) = stdlib::with(&texts);
    if diags.iter().any(|d| d.diag.severity == Severity::Error) {
        bail!("{}", stdlib::rendered(&library, &diags, false));
    }
    Ok(library)
}

/// The layers of a library, in the order of the text.
pub fn layers(library: &Library) -> Vec<CallId> {
    let is_layer = |c: &Callable| {
        let source = library.sources.get(c.source.file as usize);
        source.is_some_and(|s| s.name == NAME) && matches!(c.kind, CallKind::Def(_))
    };
    let ids = (0..library.calls.len() as u32).map(CallId);
    let mut out: Vec<CallId> = ids.filter(|&i| is_layer(library.call(i))).collect();
    out.sort_by_key(|&i| library.call(i).source.span.start);
    out
}

/// True if the parameter comes from another kernel.
pub fn is_variable(name: &str) -> bool {
    name.starts_with('x')
}

/// Types of a layer's parameters.
pub fn types(layer: &Callable, rng: &mut Random) -> Option<Vec<Type>> {
    let mut known: BTreeMap<char, i64> = BTreeMap::new();
    let mut extent = |d: &Dim| match d {
        Dim::Axis(n) => {
            let letter = n.chars().next()?;
            let pool = EXTENTS.iter().find(|(l, _)| n.starts_with(l)).map_or(CHANNELS, |e| e.1);
            Some(Extent::from(*known.entry(letter).or_insert_with(|| rng.pick(pool))))
        }
        Dim::Value(e) => match e.kind {
            ExprKind::Int(v) => Some(Extent::from(v)),
            _ => None,
        },
        Dim::Seg(_) | Dim::Splice(_) => None,
    };
    let inputs = layer.inputs.iter().map(|i| {
        let shape = i.ty.dims.as_ref()?.iter().map(&mut extent).collect::<Option<_>>()?;
        Some(Type::new(usual_dtype(&i.ty.dtype), shape))
    });
    inputs.collect()
}
