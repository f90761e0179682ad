//! Graphs that compute nothing: everything must vanish.

use super::build::{Build, Value, int};
use super::{Family, HALF, PLAIN, SYMBOLIC, Setup};
use mlc_dsl::ir::DType;

const SETUPS: &[Setup] = &[PLAIN, SYMBOLIC];
const SETS: &[i64] = &[17, 13, 18, 21];

/// Spellings of graphs that compute nothing, by layer.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "identity_movement",
        expect: &[""],
        setups: SETUPS,
        opsets: SETS,
        build: movement,
    },
    Family { name: "identity_parts", expect: &[""], setups: SETUPS, opsets: SETS, build: parts },
    Family {
        name: "identity_numbers",
        expect: &[""],
        setups: SETUPS,
        opsets: SETS,
        build: numbers,
    },
    Family { name: "identity_casts", expect: &[""], setups: &[HALF], opsets: SETS, build: casts },
    Family { name: "identity_mixed", expect: &[""], setups: SETUPS, opsets: SETS, build: mixed },
];

const SHAPE: [i64; 4] = [2, 6, 4, 8];

fn all(g: &mut Build, steps: &[fn(&mut Build, Value) -> Value], most: usize) -> Vec<Value> {
    let mut x = g.input(&SHAPE);
    let n = 1 + g.pick(most);
    let start = x;
    for _ in 0..n {
        let step = steps[g.pick(steps.len())];
        x = step(g, x);
    }
    if x == start { vec![g.op("Identity", [x])] } else { vec![x] }
}

const MOVES: &[fn(&mut Build, Value) -> Value] =
    &[copied, transposed, rotated, reshaped, squeezed, flattened, folded];

fn movement(g: &mut Build) -> Vec<Value> {
    all(g, MOVES, 3)
}

fn parts(g: &mut Build) -> Vec<Value> {
    all(g, &[copied, cut, whole, padded, grown], 2)
}

fn numbers(g: &mut Build) -> Vec<Value> {
    all(g, &[copied, negated, unit, lifted, doubled, reciprocal], 3)
}

fn mixed(g: &mut Build) -> Vec<Value> {
    all(g, &[copied, transposed, reshaped, squeezed, cut, negated, unit, sandwiched], 4)
}

fn copied(g: &mut Build, x: Value) -> Value {
    let name = g.any(&["Identity", "Dropout"]);
    g.op(name, [x])
}

fn transposed(g: &mut Build, x: Value) -> Value {
    let (p, q) = g.any(&[
        ([0, 2, 3, 1], [0, 3, 1, 2]),
        ([0, 3, 1, 2], [0, 2, 3, 1]),
        ([3, 2, 1, 0], [3, 2, 1, 0]),
        ([1, 0, 3, 2], [1, 0, 3, 2]),
    ]);
    let t = g.transpose(x, &p);
    let t = g.noise(t);
    g.transpose(t, &q)
}

fn rotated(g: &mut Build, x: Value) -> Value {
    (0..4).fold(x, |x, _| g.transpose(x, &[1, 2, 3, 0]))
}

fn reshaped(g: &mut Build, x: Value) -> Value {
    let first: &[i64] = g.any(&[&[0, 6, 32][..], &[-1, 192], &[-1, 8], &[0, 0, -1], &[-1]]);
    let r = g.reshape(x, first);
    let to = g.any(&[[-1, 6, 4, 8], g.open(&SHAPE).try_into().unwrap_or(SHAPE)]);
    g.reshape(r, &to)
}

fn squeezed(g: &mut Build, x: Value) -> Value {
    let axis = g.any(&[0, 2, 4, -1]);
    let u = g.unsqueeze(x, &[axis]);
    if g.flip() {
        let to = g.open(&SHAPE);
        return g.reshape(u, &to);
    }
    g.squeeze(u, &[axis])
}

fn flattened(g: &mut Build, x: Value) -> Value {
    let axis = g.any(&[1, 2, -1]);
    let f = g.node("Flatten", &[x], &[("axis", int(axis))]);
    g.reshape(f, &[-1, 6, 4, 8])
}

/// A transpose between reshapes that is undone the same way.
fn folded(g: &mut Build, x: Value) -> Value {
    let r = g.reshape(x, &[-1, 6, 32]);
    let t = g.transpose(r, &[0, 2, 1]);
    let t = g.noise(t);
    let t = g.transpose(t, &[0, 2, 1]);
    g.reshape(t, &[-1, 6, 4, 8])
}

fn cut(g: &mut Build, x: Value) -> Value {
    let (axis, sizes): (i64, &[i64]) =
        g.any(&[(1, &[2, 4][..]), (1, &[2, 2, 2]), (3, &[4, 4]), (2, &[1, 3]), (-1, &[3, 3, 2])]);
    let p = g.parts(x, axis, sizes);
    let axis = if axis > 0 && g.flip() { axis - 4 } else { axis };
    g.node("Concat", &p, &[("axis", int(axis))])
}

/// A slice that takes everything, or the part of a concatenation that came from `x`.
fn whole(g: &mut Build, x: Value) -> Value {
    if g.flip() {
        return g.slice(x, 1, 0, i64::MAX);
    }
    let n = g.op("Relu", [x]);
    let first = g.flip();
    let both = if first { [x, n] } else { [n, x] };
    let c = g.node("Concat", &both, &[("axis", int(1))]);
    if first { g.slice(c, 1, 0, 6) } else { g.slice(c, 1, 6, 12) }
}

fn padded(g: &mut Build, x: Value) -> Value {
    if g.flip() {
        let p = g.integers(&[0; 8]);
        return g.op("Pad", [x, p]);
    }
    let p = g.integers(&[0, 1, 0, 2, 0, 0, 0, 1]);
    let y = g.op("Pad", [x, p]);
    let (s, e, a) = (g.integers(&[1, 2]), g.integers(&[7, 10]), g.integers(&[1, 3]));
    g.op("Slice", [y, s, e, a])
}

/// A repetition that repeats nothing.
fn grown(g: &mut Build, x: Value) -> Value {
    if g.flip() {
        let n = g.integers(&[1, 1, 1, 1]);
        return g.op("Tile", [x, n]);
    }
    let to = g.integers(&[1, 6, 1, 8]);
    g.op("Expand", [x, to])
}

fn negated(g: &mut Build, x: Value) -> Value {
    let n = g.neg(x);
    g.neg(n)
}

fn unit(g: &mut Build, x: Value) -> Value {
    match g.pick(5) {
        0 => {
            let k = g.scalar(1.0);
            g.mul(x, k)
        }
        1 => {
            let k = g.scalar(1.0);
            g.op("Div", [x, k])
        }
        2 => {
            let k = g.scalar(0.0);
            g.add(x, k)
        }
        3 => {
            let k = g.scalar(0.0);
            g.op("Sub", [x, k])
        }
        _ => {
            let k = g.scalar(1.0);
            g.op("Pow", [x, k])
        }
    }
}

/// A number that is added and taken away again.
fn lifted(g: &mut Build, x: Value) -> Value {
    let y = g.shift(x, 2.0);
    g.shift(y, -2.0)
}

fn doubled(g: &mut Build, x: Value) -> Value {
    let y = g.scale(x, 4.0);
    g.scale(y, 0.25)
}

fn reciprocal(g: &mut Build, x: Value) -> Value {
    let y = g.recip(x);
    g.recip(y)
}

/// Movement around an operator that is undone.
fn sandwiched(g: &mut Build, x: Value) -> Value {
    let t = g.transpose(x, &[0, 2, 3, 1]);
    let y = negated(g, t);
    g.transpose(y, &[0, 3, 1, 2])
}

/// To a wider type and back.
fn casts(g: &mut Build) -> Vec<Value> {
    debug_assert_eq!(g.dtype, DType::F16);
    let mut x = g.input(&SHAPE);
    for _ in 0..1 + g.pick(3) {
        let wide = g.any(&[1, 11, 10]);
        x = g.node("Cast", &[x], &[("to", int(wide))]);
        if g.flip() {
            x = g.transpose(x, &[0, 2, 1, 3]);
            x = g.node("Cast", &[x], &[("to", int(10))]);
            x = g.transpose(x, &[0, 2, 1, 3]);
        } else {
            x = g.node("Cast", &[x], &[("to", int(10))]);
        }
    }
    vec![x]
}
