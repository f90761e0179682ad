//! Rust references of operators with procedural meanings (`extern`).

use super::array::Array;
use super::choices::{distinct_rows, suppress_overlapping};
use super::places::{order_rows, write_rows};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, Type};

/// A Rust reference: the results for arguments and attributes whose types have been checked, in the
/// types given.
type Reference = fn(&Env, &[Array], &[Type]) -> Result<Vec<Array>, String>;

/// Every reference by the name that `extern` items give it.
const REFERENCES: &[(&str, Reference)] = &[
    ("lstm", lstm),
    ("gru", gru),
    ("rnn", rnn),
    ("linear_attention", linear_attention),
    ("det", det),
    ("scatter", write_rows),
    ("sort_places", order_rows),
    ("unique_rows", distinct_rows),
    ("choose_boxes", suppress_overlapping),
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

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Which way a direction runs through the sequence.
#[derive(Clone, Copy)]
enum Way {
    Forward,
    Reverse,
}

/// Sequence, batch, input and hidden extents.
#[derive(Clone, Copy)]
struct RecurrentSizes {
    s: usize,
    b: usize,
    i: usize,
    h: usize,
}

/// The ways of all directions, from the attribute `direction`.
fn ways(env: &Env, d: usize) -> Result<Vec<Way>, String> {
    let direction = match env.attr("direction") {
        Some(Attr::Str(s)) => s.as_str(),
        Some(other) => return Err(format!("`direction` is a word, not {other}")),
        None if d == 2 => "bidirectional",
        None => "forward",
    };
    let ways = match direction {
        "forward" => vec![Way::Forward],
        "reverse" => vec![Way::Reverse],
        "bidirectional" => vec![Way::Forward, Way::Reverse],
        other => return Err(format!("there is no direction {other:?}")),
    };
    if ways.len() != d {
        return Err(format!("direction {direction:?} does not fit {d} directions"));
    }
    Ok(ways)
}

/// The shapes of `x[s, b, i]`, `w[d, gates * h, i]`, `r[d, gates * h, h]`, `bias[d, 2 * gates * h]` and
/// the states `[d, b, h]`.
fn sizes(args: &[Array], gates: usize, states: usize) -> Result<(usize, RecurrentSizes), String> {
    let shapes: Vec<&[usize]> = args.iter().map(Array::shape).collect();
    let ([s, b, i], [d, _, h]) =
        (shapes.first().copied().unwrap_or_default(), shapes.get(2).copied().unwrap_or_default())
    else {
        return Err("the input and the recurrence weights have three axes".into());
    };
    let (s, b, i, d, h) = (*s, *b, *i, *d, *h);
    let mut expected =
        vec![vec![s, b, i], vec![d, gates * h, i], vec![d, gates * h, h], vec![d, 2 * gates * h]];
    expected.extend(vec![vec![d, b, h]; states]);
    if shapes != expected {
        return Err(format!("arguments of shapes {shapes:?} where {expected:?} are expected"));
    }
    Ok((d, RecurrentSizes { s, b, i, h }))
}

fn floats(a: &Array) -> Result<&[f64], String> {
    a.floats().ok_or_else(|| "arguments are floats".to_string())
}

/// `Σ w[row, ..] * v`.
fn dot(w: &[f64], row: usize, v: &[f64]) -> f64 {
    w[row * v.len()..][..v.len()].iter().zip(v).map(|(a, b)| a * b).sum()
}

/// The parameters of one direction.
struct Weights<'a> {
    w: &'a [f64],
    r: &'a [f64],
    /// Of the input, then of the recurrence.
    bias: (&'a [f64], &'a [f64]),
}

impl<'a> Weights<'a> {
    fn of(
        args: &'a [Array],
        d: usize,
        gates: usize,
        z: RecurrentSizes,
    ) -> Result<Weights<'a>, String> {
        let rows = gates * z.h;
        let bias = &floats(&args[3])?[d * 2 * rows..][..2 * rows];
        Ok(Weights {
            w: &floats(&args[1])?[d * rows * z.i..][..rows * z.i],
            r: &floats(&args[2])?[d * rows * z.h..][..rows * z.h],
            bias: bias.split_at(rows),
        })
    }

    fn input(&self, row: usize, x: &[f64]) -> f64 {
        dot(self.w, row, x) + self.bias.0[row]
    }

    fn recurrence(&self, row: usize, h: &[f64]) -> f64 {
        dot(self.r, row, h) + self.bias.1[row]
    }
}

/// Whether each direction runs backwards, from the attribute `direction`.
pub(crate) fn reversed(env: &Env, d: usize) -> Result<Vec<bool>, String> {
    Ok(ways(env, d)?.into_iter().map(|w| matches!(w, Way::Reverse)).collect())
}

/// Whether the reset gate applies after the recurrent product, from the attribute `linear_before_reset`.
pub(crate) fn resets_after(env: &Env) -> bool {
    match env.attr("linear_before_reset") {
        Some(Attr::Bool(b)) => *b,
        Some(a) => a.as_i64().is_some_and(|v| v != 0),
        None => false,
    }
}

/// Runs `step(direction, x, h, carry)`, which updates the state, over sequence and batch. Yields `y[s, d, b, h]`
/// and the last states `[d, b, h]`.
fn scan(
    ways: &[Way],
    z: RecurrentSizes,
    x: &[f64],
    mut states: Vec<Vec<f64>>,
    mut step: impl FnMut(usize, &[f64], &mut [Vec<f64>]),
) -> (Vec<f64>, Vec<Vec<f64>>) {
    let d = ways.len();
    let mut y = vec![0.0; z.s * d * z.b * z.h];
    for (dir, way) in ways.iter().enumerate() {
        for b in 0..z.b {
            let at = (dir * z.b + b) * z.h;
            let mut state: Vec<Vec<f64>> =
                states.iter().map(|all| all[at..at + z.h].to_vec()).collect();
            for k in 0..z.s {
                let t = match way {
                    Way::Forward => k,
                    Way::Reverse => z.s - 1 - k,
                };
                step(dir, &x[(t * z.b + b) * z.i..][..z.i], &mut state);
                y[((t * d + dir) * z.b + b) * z.h..][..z.h].copy_from_slice(&state[0]);
            }
            for (all, own) in states.iter_mut().zip(&state) {
                all[at..at + z.h].copy_from_slice(own);
            }
        }
    }
    (y, states)
}

/// Results in the declared types.
fn results(values: Vec<Vec<f64>>, types: &[Type]) -> Result<Vec<Array>, String> {
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

/// Long short-term memory as ONNX defines it: gates in the order input, output, forget, cell;
/// sigmoid for the gates, tanh for the cell and the output; no peepholes, no clipping.
fn lstm(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let (d, z) = sizes(args, 4, 2)?;
    let ways = ways(env, d)?;
    let weights = (0..d).map(|d| Weights::of(args, d, 4, z)).collect::<Result<Vec<_>, _>>()?;
    let initial = vec![floats(&args[4])?.to_vec(), floats(&args[5])?.to_vec()];
    let mut gates = vec![0.0; 4 * z.h];
    let (y, last) = scan(&ways, z, floats(&args[0])?, initial, |dir, x, state| {
        let w = &weights[dir];
        for (row, g) in gates.iter_mut().enumerate() {
            *g = w.input(row, x) + w.recurrence(row, &state[0]);
        }
        for j in 0..z.h {
            let [i, o, f, c] = [0, 1, 2, 3].map(|g| gates[g * z.h + j]);
            let cell = sigmoid(f) * state[1][j] + sigmoid(i) * c.tanh();
            state[1][j] = cell;
            state[0][j] = sigmoid(o) * cell.tanh();
        }
    });
    results(std::iter::once(y).chain(last).collect(), types)
}

/// Gated recurrent unit as ONNX defines it: gates in the order update, reset, hidden.
fn gru(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let (d, z) = sizes(args, 3, 1)?;
    let ways = ways(env, d)?;
    let reset_after = resets_after(env);
    let weights = (0..d).map(|d| Weights::of(args, d, 3, z)).collect::<Result<Vec<_>, _>>()?;
    let initial = vec![floats(&args[4])?.to_vec()];
    let (mut update, mut reset) = (vec![0.0; z.h], vec![0.0; z.h]);
    let mut product = vec![0.0; z.h];
    let (y, last) = scan(&ways, z, floats(&args[0])?, initial, |dir, x, state| {
        let (w, h) = (&weights[dir], &mut state[0]);
        for j in 0..z.h {
            update[j] = sigmoid(w.input(j, x) + w.recurrence(j, h));
            reset[j] = sigmoid(w.input(z.h + j, x) + w.recurrence(z.h + j, h));
        }
        for j in 0..z.h {
            product[j] = reset[j] * h[j];
        }
        let hidden: Vec<f64> = (2 * z.h..3 * z.h)
            .map(|row| {
                let r = if reset_after {
                    reset[row - 2 * z.h] * w.recurrence(row, h)
                } else {
                    w.recurrence(row, &product)
                };
                (w.input(row, x) + r).tanh()
            })
            .collect();
        for j in 0..z.h {
            h[j] = (1.0 - update[j]) * hidden[j] + update[j] * h[j];
        }
    });
    results(std::iter::once(y).chain(last).collect(), types)
}

/// Simple recurrence as ONNX defines it, with `activation` `tanh` or `relu`.
fn rnn(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let (d, z) = sizes(args, 1, 1)?;
    let ways = ways(env, d)?;
    let activation: fn(f64) -> f64 = match env.attr("activation") {
        Some(Attr::Str(s)) if s == "tanh" => f64::tanh,
        Some(Attr::Str(s)) if s == "relu" => |x| if x < 0.0 { 0.0 } else { x },
        _ => return Err("`activation` is `tanh` or `relu`".into()),
    };
    let weights = (0..d).map(|d| Weights::of(args, d, 1, z)).collect::<Result<Vec<_>, _>>()?;
    let initial = vec![floats(&args[4])?.to_vec()];
    let (y, last) = scan(&ways, z, floats(&args[0])?, initial, |dir, x, state| {
        let (w, h) = (&weights[dir], &mut state[0]);
        *h = (0..z.h).map(|row| activation(w.input(row, x) + w.recurrence(row, h))).collect();
    });
    results(std::iter::once(y).chain(last).collect(), types)
}

/// Attention by a state: at every place of the sequence the state `s[d, e]` of a head is multiplied by
/// `exp(decay[d])`, the product `k v` of `beta` is added (with `delta`, of `v` less what the state
/// says of `k`), and the queries of the head's group read it.
fn linear_attention(env: &Env, args: &[Array], types: &[Type]) -> Result<Vec<Array>, String> {
    let shapes: Vec<&[usize]> = args.iter().map(Array::shape).collect();
    let [&[b, h, t, d], _, &[_, g, _, e], ..] = shapes[..] else {
        return Err("queries, keys and values have four axes".into());
    };
    let expected: [&[usize]; 6] =
        [&[b, h, t, d], &[b, g, t, d], &[b, g, t, e], &[b, g, d, e], &[b, g, t, d], &[b, g, t]];
    if shapes != expected || g == 0 || h % g != 0 {
        return Err(format!("arguments of shapes {shapes:?} where {expected:?} are expected"));
    }
    let delta = match env.attr("delta") {
        Some(Attr::Bool(b)) => *b,
        _ => return Err("`delta` is a truth value".into()),
    };
    let scale = match env.attr("scale").and_then(Attr::as_f64) {
        Some(v) => v,
        None => return Err("`scale` is a number".into()),
    };
    let (q, k, v) = (floats(&args[0])?, floats(&args[1])?, floats(&args[2])?);
    let (decay, beta) = (floats(&args[4])?, floats(&args[5])?);
    let mut states = floats(&args[3])?.to_vec();
    let mut y = vec![0.0; b * h * t * e];
    for head in 0..b * g {
        let state = &mut states[head * d * e..][..d * e];
        for step in 0..t {
            let place = head * t + step;
            let (k, v) = (&k[place * d..][..d], &v[place * e..][..e]);
            for (row, by) in decay[place * d..][..d].iter().enumerate() {
                state[row * e..][..e].iter_mut().for_each(|s| *s *= by.exp());
            }
            for column in 0..e {
                let known: f64 = if delta {
                    (0..d).map(|row| state[row * e + column] * k[row]).sum()
                } else {
                    0.0
                };
                let new = beta[place] * (v[column] - known);
                (0..d).for_each(|row| state[row * e + column] += k[row] * new);
            }
            for query in 0..h / g {
                let place = (head * (h / g) + query) * t + step;
                let q = &q[place * d..][..d];
                for column in 0..e {
                    let read: f64 = (0..d).map(|row| state[row * e + column] * q[row]).sum();
                    y[place * e + column] = scale * read;
                }
            }
        }
    }
    results(vec![y, states], types)
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
