//! Rust references of string operators.

use super::super::array::{Array, Elements};
use super::flag;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::strings::{number_of, text_of};
use mlc_dsl::ir::{Attr, DType, Type};
use regex_lite::RegexBuilder;
use std::sync::Arc;

/// Bytes that a pattern may take once it is compiled.
const PATTERN_BYTES: usize = 1 << 20;

/// The texts of an argument.
fn texts(a: &Array) -> Result<Vec<Arc<str>>, String> {
    match a.elements() {
        Elements::Int(v) if a.dtype() == DType::Str => {
            Ok(v.iter().map(|&n| text_of(n as u64)).collect())
        }
        _ => Err("arguments are texts".into()),
    }
}

/// A result of texts.
fn of_texts(shape: Vec<usize>, texts: Vec<impl AsRef<str>>) -> Result<Array, String> {
    let numbers = texts.iter().map(|t| Some(number_of(t.as_ref())? as i64));
    let numbers: Option<Vec<i64>> = numbers.collect();
    let numbers = numbers.ok_or("different strings of more than 1 GiB together")?;
    Array::from_i64(DType::Str, shape, numbers)
        .ok_or_else(|| "the declared type does not fit".into())
}

fn of_numbers(dtype: DType, shape: &[usize], numbers: Vec<i64>) -> Result<Vec<Array>, String> {
    let y = Array::from_i64(dtype, shape.to_vec(), numbers);
    Ok(vec![y.ok_or("the declared type does not fit")?])
}

fn word<'e>(env: &'e Env, name: &str) -> &'e str {
    if let Some(Attr::Str(s)) = env.attr(name) { s } else { "" }
}

/// Every text of `a` followed by that of `b` at its place.
pub(crate) fn join(_: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let [a, b] = args else { return Err("two arguments yield one result".into()) };
    let pairs = texts(a)?.into_iter().zip(texts(b)?);
    let joined: Vec<String> = pairs.map(|(a, b)| format!("{a}{b}")).collect();
    Ok(vec![of_texts(a.shape().to_vec(), joined)?])
}

/// Every text with its letters in upper case, or in lower case unless `upper`, as Unicode has them in no language in particular.
pub(crate) fn cased(env: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let [x] = args else { return Err("one argument yields one result".into()) };
    let upper = flag(env, "upper");
    let change = |t: Arc<str>| if upper { t.to_uppercase() } else { t.to_lowercase() };
    let changed: Vec<String> = texts(x)?.into_iter().map(change).collect();
    Ok(vec![of_texts(x.shape().to_vec(), changed)?])
}

/// Whether the whole of every text matches a regular expression in the syntax of RE2, where `\w`, `\d`, `\s` and `\b` know ASCII
/// alone.
pub(crate) fn matched(env: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let [x] = args else { return Err("one argument yields one result".into()) };
    let pattern = word(env, "pattern");
    // Alone, so that no bracket of it closes one of ours.
    let build = |p: &str| RegexBuilder::new(p).size_limit(PATTERN_BYTES).build();
    let whole = build(pattern).and_then(|_| build(&format!(r"\A(?:{pattern})\z")));
    let whole = whole.map_err(|e| format!("the pattern {pattern:?} is not understood: {e}"))?;
    let found = texts(x)?.iter().map(|t| whole.is_match(t).into()).collect();
    of_numbers(DType::Bool, x.shape(), found)
}

/// The parts of a text between delimiters, at most `most` of which are looked at if there is such a number. Without a delimiter it is
/// any run of white space, and none at the ends counts.
fn parts<'t>(text: &'t str, delimiter: &str, most: Option<usize>) -> Vec<&'t str> {
    if !delimiter.is_empty() {
        return match most {
            Some(most) => text.splitn(most.saturating_add(1), delimiter).collect(),
            None => text.split(delimiter).collect(),
        };
    }
    let (mut rest, mut parts) = (text.trim_start(), vec![]);
    while !rest.is_empty() {
        let limited = most.is_some_and(|most| parts.len() >= most);
        let end = if limited { None } else { rest.find(char::is_whitespace) };
        let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = after.trim_start();
    }
    parts
}

/// The parts of every text.
fn all_parts(env: &Env, texts: &[Arc<str>]) -> Vec<Vec<String>> {
    let delimiter = word(env, "delimiter");
    let most = env.attr("most").and_then(Attr::as_i64).and_then(|n| usize::try_from(n).ok());
    let owned = |t: &Arc<str>| parts(t, delimiter, most).into_iter().map(str::to_string).collect();
    texts.iter().map(owned).collect()
}

/// How many parts every text has between delimiters.
pub(crate) fn counted(env: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let [x] = args else { return Err("one argument yields one result".into()) };
    let counts = all_parts(env, &texts(x)?).iter().map(|p| p.len() as i64).collect();
    of_numbers(DType::I64, x.shape(), counts)
}

/// The first `count` parts of every text between delimiters; an empty text where there are fewer.
pub(crate) fn split(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x], [t]) = (args, types) else {
        return Err("one argument yields one result".into());
    };
    let shape = t.known_shape().ok_or("the number of parts is known")?;
    let count = shape.last().copied().unwrap_or_default();
    let mut all = vec![];
    for mut parts in all_parts(env, &texts(x)?) {
        parts.resize(count, String::new());
        all.extend(parts);
    }
    Ok(vec![of_texts(shape, all)?])
}

/// Every number in decimal digits: the fewest that no other number of its type has, without an exponent.
pub(crate) fn of_number(_: &Env, args: &[Array], _: &[Type]) -> Result<Vec<Array>, String> {
    let [x] = args else { return Err("one argument yields one result".into()) };
    let real = |v: f64| match v {
        v if v.is_nan() => "NaN".to_string(),
        v if v.is_infinite() => if v > 0.0 { "INF" } else { "-INF" }.to_string(),
        v if x.dtype() == DType::F64 => v.to_string(),
        v => (v as f32).to_string(),
    };
    let written: Vec<String> = match x.elements() {
        Elements::Float(v) => v.iter().map(|&v| real(v)).collect(),
        Elements::Int(v) if x.dtype() == DType::U64 => {
            v.iter().map(|&v| (v as u64).to_string()).collect()
        }
        Elements::Int(v) => v.iter().map(i64::to_string).collect(),
    };
    Ok(vec![of_texts(x.shape().to_vec(), written)?])
}

/// The number of type `to` that every text writes in decimal digits, with or without an exponent; `INF` and `NaN` in any case.
pub(crate) fn to_number(_: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let ([x], [t]) = (args, types) else {
        return Err("one argument yields one result".into());
    };
    let bad = |text: &str| format!("the text {text:?} is no number of type {}", t.dtype);
    let real = |text: &str| match t.dtype {
        DType::F32 => text.parse::<f32>().map(f64::from).map_err(|_| bad(text)),
        _ => text.parse::<f64>().map_err(|_| bad(text)),
    };
    let whole = |text: &str| {
        let v = text.parse::<i128>().ok();
        let (low, high) = t.dtype.int_range().unwrap_or((0, 0));
        v.filter(|v| (low..=high).contains(v)).map(|v| v as i64).ok_or_else(|| bad(text))
    };
    let (all, shape) = (texts(x)?, x.shape().to_vec());
    let texts = all.iter().map(|t| t.trim());
    let y = match t.dtype {
        d if d.is_float() => Array::from_f64(d, shape, texts.map(real).collect::<Result<_, _>>()?),
        DType::Bool => {
            let truth = |t| real(t).map(|v| i64::from(v != 0.0));
            Array::from_i64(DType::Bool, shape, texts.map(truth).collect::<Result<_, _>>()?)
        }
        d => Array::from_i64(d, shape, texts.map(whole).collect::<Result<_, _>>()?),
    };
    Ok(vec![y.ok_or("the declared type does not fit")?])
}
