//! Rust references of operators with procedural meanings (`extern`).

mod bits;
mod images;
mod jpeg;
pub mod roi_align;
pub mod selection;
mod sort_scatter;
mod strings;
mod trees;

use super::array::Array;
use bits::read_bits;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, Type};
use roi_align::pool_regions;
use selection::{distinct_rows, suppress_overlapping};
use sort_scatter::{order_rows, write_rows};
use trees::follow_trees;

/// A Rust reference: the results for arguments and attributes whose types have been checked, in the
/// types given.
type Reference = fn(&Env, &[Array], &[Type]) -> Result<Vec<Array>, String>;

/// Every reference by the name that `extern` items give it.
const REFERENCES: &[(&str, Reference)] = &[
    ("det", det),
    ("scatter", write_rows),
    ("sort_places", order_rows),
    ("bit_cast", read_bits),
    ("roi_align", pool_regions),
    ("tree_ensemble", follow_trees),
    ("unique_rows", distinct_rows),
    ("choose_boxes", suppress_overlapping),
    ("join_texts", strings::join),
    ("change_case", strings::cased),
    ("matches_pattern", strings::matched),
    ("count_parts", strings::counted),
    ("split_texts", strings::split),
    ("text_of_number", strings::of_number),
    ("number_of_text", strings::to_number),
    ("image_size", images::size),
    ("image_pixels", images::pixels),
];

/// The names of all references.
pub fn names() -> impl Iterator<Item = &'static str> {
    REFERENCES.iter().map(|r| r.0)
}

/// Calls the reference of a name.
pub(super) fn call(
    name: &str,
    env: &Env,
    args: &[Array],
    types: &[Type],
) -> Result<Vec<Array>, String> {
    match REFERENCES.iter().find(|r| r.0 == name) {
        Some((_, f)) => f(env, args, types),
        None => {
            let known: Vec<&str> = names().collect();
            Err(format!("there is no reference `{name}`; there are {}", known.join(", ")))
        }
    }
}

/// Whether the attribute `name` is true.
pub(super) fn flag(env: &Env, name: &str) -> bool {
    matches!(env.attr(name), Some(Attr::Bool(true)))
}

pub(super) fn floats(a: &Array) -> Result<&[f64], String> {
    a.floats().ok_or_else(|| "arguments are floats".to_string())
}

/// Results in the declared types.
pub(super) fn results(values: Vec<Vec<f64>>, types: &[Type]) -> Result<Vec<Array>, String> {
    values
        .into_iter()
        .zip(types)
        .map(|(v, ty)| {
            let shape = ty.known_shape().ok_or("the shape is not known")?;
            Array::from_f64(ty.dtype, shape, v).ok_or("the declared types do not fit")
        })
        .collect::<Result<_, _>>()
        .map_err(str::to_string)
}

/// The determinant of every matrix, by elimination with the largest pivot of each column.
fn det(_: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let n = args[0].shape().last().copied().unwrap_or_default();
    let count = types[0].known_shape().ok_or("the shape is not known")?.iter().product();
    let of = |mut m: Vec<f64>| {
        let mut product = 1.0;
        for i in 0..n {
            let best = (i..n).max_by(|&a, &b| m[a * n + i].abs().total_cmp(&m[b * n + i].abs()));
            let Some(pivot) = best else { return product };
            if pivot != i {
                (0..n).for_each(|j| m.swap(i * n + j, pivot * n + j));
                product = -product;
            }
            let top = m[i * n + i];
            product *= top;
            if top == 0.0 {
                return product;
            }
            for row in i + 1..n {
                let factor = m[row * n + i] / top;
                (i..n).for_each(|j| m[row * n + j] -= factor * m[i * n + j]);
            }
        }
        product
    };
    let all = floats(&args[0])?;
    let values = (0..count).map(|i| of(all[i * n * n..][..n * n].to_vec())).collect();
    results(vec![values], types)
}
