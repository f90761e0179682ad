//! The families: one function for each, which writes a body and yields its type.

use super::{FLOATS, WHOLE, Writer, list, spelled};

type Family = fn(&mut Writer) -> (String, String);

/// All families by name.
pub const FAMILIES: &[(&str, Family)] = &[
    ("elements", elements),
    ("integers", integers),
    ("rows", rows),
    ("sums", sums),
    ("long_sums", long_sums),
    ("products", products),
    ("thin_products", thin_products),
    ("contractions", contractions),
    ("integer_products", integer_products),
    ("convolutions", convolutions),
    ("depthwise", depthwise),
    ("transposed", transposed),
    ("pools", pools),
    ("attention", attention),
    ("running", running),
    ("places", places),
    ("joined", joined),
    ("recurrent", recurrent),
];

/// A random shape of at most so many elements.
fn shape(w: &mut Writer, rank: usize, most: i64) -> Vec<i64> {
    let mut left = most;
    let mut out = vec![1; rank];
    let mut order: Vec<usize> = (0..rank).collect();
    w.random.shuffle(&mut order);
    for a in order {
        out[a] = w.extent_or_none(left.min(300));
        left = (left / out[a].max(1)).max(1);
    }
    out
}

fn elements(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let rank = w.random.below(5);
    let shape = shape(w, rank, 6000);
    let (x, y) = (w.value(dtype, &shape), w.value(dtype, &shape));
    let sum = format!("({x} + tanh({y}))");
    let body = w.followed(dtype, &shape, &sum);
    let to = w.random.pick(&[dtype, dtype, "f32", "i32", "u8"]);
    (spelled(to, &shape), if to == dtype { body } else { format!("cast({body}, to={to})") })
}

fn integers(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&WHOLE);
    let rank = w.random.below(5);
    let shape = shape(w, rank, 6000);
    let (x, y) = (w.value(dtype, &shape), w.value(dtype, &shape));
    let body = match w.random.below(6) {
        0 => format!("{x} * {y} + {x}"),
        1 => format!("maximum({x}, {y}) - {y}"),
        2 => format!("bitwise_xor({x}, {y})"),
        3 => format!("modulo({x}, maximum({y}, cast(1, to={dtype})))"),
        4 => format!("select(less({x}, {y}), {x}, {y} * {y})"),
        _ => {
            let to = w.random.pick(&WHOLE);
            return (spelled(to, &shape), format!("cast({x} - {y}, to={to})"));
        }
    };
    (spelled(dtype, &shape), body)
}

fn rows(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let n = w.extent(1200);
    let outer = w.extent_or_none((12_000 / n).clamp(1, 300));
    match w.random.below(6) {
        0 => {
            let shape = vec![outer, n];
            let x = w.value(dtype, &shape);
            (spelled(dtype, &shape), format!("softmax({x}, axis=1)"))
        }
        1 => {
            let inner = w.extent(4);
            let shape = vec![(outer / inner).max(1), n, inner];
            let x = w.value(dtype, &shape);
            (spelled(dtype, &shape), format!("log_softmax({x}, axis=1)"))
        }
        2 => {
            let shape = vec![outer, n];
            let (x, g, z) = (w.value(dtype, &shape), w.value(dtype, &[n]), w.value(dtype, &[n]));
            (spelled(dtype, &shape), format!("layernorm({x}, {g}, {z}, eps=1e-3)"))
        }
        3 => {
            let shape = vec![outer, n];
            let (x, g) = (w.value(dtype, &shape), w.value(dtype, &[n]));
            let y = format!("rmsnorm({x}, {g}, eps=1e-3)");
            let y = w.followed(dtype, &shape, &y);
            (spelled(dtype, &shape), y)
        }
        4 => {
            let groups = w.random.pick(&[1, 2, 3]);
            let (c, s) = (groups * w.extent(5), w.extent(40));
            let shape = vec![w.extent(3), c, s, w.extent(5)];
            let (x, g, z) = (w.value(dtype, &shape), w.value(dtype, &[c]), w.value(dtype, &[c]));
            (spelled(dtype, &shape), format!("groupnorm({x}, {g}, {z}, groups={groups}, eps=1e-3)"))
        }
        _ => {
            let shape = vec![outer, n];
            let (x, y) = (w.value(dtype, &shape), w.value(dtype, &shape));
            let top = format!("max({x} * {y}, axes=[1])");
            let low = format!("min({y}, axes=[1])");
            (spelled(dtype, &[outer]), format!("{top} - {low}"))
        }
    }
}

fn sums(w: &mut Writer) -> (String, String) {
    let dtype = match w.random.chance(0.3) {
        true => w.random.pick(&WHOLE),
        false => w.random.pick(&FLOATS),
    };
    let rank = 1 + w.random.below(4);
    let shape = shape(w, rank, 12_000);
    let axes: Vec<i64> = (0..rank as i64).filter(|_| w.random.chance(0.5)).collect();
    let rest: Vec<i64> =
        (0..rank).filter(|a| !axes.contains(&(*a as i64))).map(|a| shape[a]).collect();
    let x = w.value(dtype, &shape);
    let op = w.random.pick(&["sum", "sum", "max", "min"]);
    (spelled(dtype, &rest), format!("{op}({x}, axes={})", list(&axes)))
}

fn long_sums(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&["f32", "f16", "i32", "f64", "u8"]);
    let (n, rows) = (w.random.between(16_000, 33_000), w.random.between(1, 2));
    let by_rows = w.random.chance(0.5);
    let shape = if by_rows { vec![rows, n] } else { vec![n, rows] };
    let x = w.value(dtype, &shape);
    let op = w.random.pick(&["sum", "max"]);
    (spelled(dtype, &[rows]), format!("{op}({x}, axes=[{}])", i32::from(by_rows)))
}

fn products(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let batch = match w.random.below(4) {
        0 => vec![w.extent_or_none(3)],
        1 => vec![w.extent(2), w.extent(3)],
        _ => vec![],
    };
    let [m, n] = [w.extent_or_none(140), w.extent_or_none(140)];
    let k = if w.random.chance(0.15) { w.random.between(500, 900) } else { w.extent_or_none(130) };
    let k = k.min(400_000 / (m * n).max(1));
    let of = |a: i64, b: i64| [batch.clone(), vec![a, b]].concat();
    let (x, y) = (w.value(dtype, &of(m, k)), w.value(dtype, &of(k, n)));
    let x = if w.random.chance(0.2) { format!("tanh({x})") } else { x };
    let body = w.followed(dtype, &of(m, n), &format!("({x} @ {y})"));
    (spelled(dtype, &of(m, n)), body)
}

fn thin_products(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let (few, n) = (w.random.between(1, 17), w.extent(512));
    let k = if w.random.chance(0.3) { w.random.between(1000, 2100) } else { w.extent(300) };
    let is_left = w.random.chance(0.7);
    let (m, n) = if is_left { (few, n) } else { (n, few) };
    let (x, y) = (w.value(dtype, &[m, k]), w.value(dtype, &[k, n]));
    let body = w.followed(dtype, &[m, n], &format!("({x} @ {y})"));
    (spelled(dtype, &[m, n]), body)
}

/// Sums of products that are no product of two matrices.
fn contractions(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let [a, b, c, d] = [w.extent(20), w.extent(12), w.extent(24), w.extent(12)];
    let whole = [a, b, c, d];
    let axes = |w: &mut Writer| -> Vec<i64> {
        let mut axes: Vec<i64> = (0..4).filter(|_| w.random.chance(0.6)).collect();
        if axes.is_empty() {
            axes.push(0);
        }
        axes
    };
    let (left, right) = (axes(w), axes(w));
    let factor = |w: &mut Writer, axes: &[i64]| {
        let own: Vec<i64> = axes.iter().map(|&a| whole[a as usize]).collect();
        let x = w.value(dtype, &own);
        format!("broadcast({x}, map={}, shape={})", list(axes), list(&whole))
    };
    let (x, y) = (factor(w, &left), factor(w, &right));
    let over: Vec<i64> = (0..4).filter(|_| w.random.chance(0.5)).collect();
    let rest: Vec<i64> = (0..4).filter(|a| !over.contains(a)).map(|a| whole[a as usize]).collect();
    (spelled(dtype, &rest), format!("sum({x} * {y}, axes={})", list(&over)))
}

fn integer_products(w: &mut Writer) -> (String, String) {
    let [m, n, k] = [w.extent_or_none(140), w.extent(140), w.extent(140)];
    let (a, b) = (w.random.pick(&["i8", "u8"]), w.random.pick(&["i8", "u8"]));
    let (x, y) = (w.value(a, &[m, k]), w.value(b, &[k, n]));
    let p = w.random.pick(&[0, 0, 1, 100, 128]);
    let q = if w.random.chance(0.1) { 3 } else { 0 };
    let body = format!("matmul_integer({x}, {y}, {p}, {q})");
    (spelled("i32", &[m, n]), body)
}

/// Windows along some axes: extents in front, window, step, borders, gaps, and extents behind.
struct Windows {
    from: Vec<i64>,
    size: Vec<i64>,
    stride: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    dilation: Vec<i64>,
    to: Vec<i64>,
}

impl Windows {
    fn new(w: &mut Writer, rank: usize) -> Windows {
        let mut v = Windows {
            from: vec![],
            size: vec![],
            stride: vec![],
            low: vec![],
            high: vec![],
            dilation: vec![],
            to: vec![],
        };
        let most = [0, 120, 18, 7][rank];
        for _ in 0..rank {
            let (size, dilation) = (w.random.pick(&[1, 2, 3, 3, 5]), w.random.pick(&[1, 1, 1, 2]));
            let stride = w.random.pick(&[1, 1, 1, 2, 3]);
            let (low, high) = (w.random.between(0, 2), w.random.between(0, 2));
            let span = dilation * (size - 1) + 1;
            let from = w.extent(most).max(span - low - high).max(1);
            v.to.push((from + low + high - span) / stride + 1);
            v.from.push(from);
            v.size.push(size);
            v.stride.push(stride);
            v.low.push(low);
            v.high.push(high);
            v.dilation.push(dilation);
        }
        v
    }

    fn words(&self) -> String {
        format!(
            "stride={}, low={}, high={}, dilation={}",
            list(&self.stride),
            list(&self.low),
            list(&self.high),
            list(&self.dilation)
        )
    }
}

fn convolution(w: &mut Writer, groups: i64, each: [i64; 2], dtype: &str) -> (String, String) {
    let rank = 1 + w.random.below(3);
    let v = Windows::new(w, rank);
    let batch = w.random.between(1, 2);
    let [c, o] = each;
    let x = w.value(dtype, &[vec![batch, groups * c], v.from.clone()].concat());
    let f = w.value(dtype, &[vec![groups * o, c], v.size.clone()].concat());
    let to = [vec![batch, groups * o], v.to.clone()].concat();
    let y = format!("conv({x}, {f}, {}, group={groups})", v.words());
    let y = w.followed(dtype, &to, &y);
    (spelled(dtype, &to), y)
}

fn convolutions(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let groups = w.random.pick(&[1, 1, 1, 2, 3]);
    let each = [w.extent(17), w.extent(33)];
    convolution(w, groups, each, dtype)
}

fn depthwise(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let groups = w.extent(33);
    let each = [1, w.random.pick(&[1, 1, 1, 2])];
    convolution(w, groups, each, dtype)
}

fn transposed(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let rank = 1 + w.random.below(2);
    let (mut from, mut size, mut to) = (vec![], vec![], vec![]);
    let (mut stride, mut low, mut dilation, mut extra) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rank {
        let (s, r) = (w.extent(if rank == 1 { 40 } else { 9 }), w.random.between(1, 4));
        let (by, d) = (w.random.between(1, 3), w.random.pick(&[1, 1, 2]));
        let more = w.random.between(0, by - 1);
        let span = (s - 1) * by + d * (r - 1) + 1 + more;
        let cut = w.random.between(0, 1).min(span / 2);
        from.push(s);
        size.push(r);
        stride.push(by);
        dilation.push(d);
        extra.push(more);
        low.push(cut);
        to.push(span - 2 * cut);
    }
    let (batch, groups) = (w.random.between(1, 2), w.random.pick(&[1, 1, 2]));
    let (c, o) = (groups * w.extent(17), w.extent(17));
    let x = w.value(dtype, &[vec![batch, c], from].concat());
    let f = w.value(dtype, &[vec![c, o], size].concat());
    let words = format!(
        "stride={}, low={}, high={}, dilation={}, extra={}, group={groups}",
        list(&stride),
        list(&low),
        list(&low),
        list(&dilation),
        list(&extra)
    );
    let to = [vec![batch, o * groups], to].concat();
    (spelled(dtype, &to), format!("conv_transpose({x}, {f}, {words})"))
}

fn pools(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let rank = 1 + w.random.below(3);
    let v = Windows::new(w, rank);
    let c = w.extent(17);
    let x = w.value(dtype, &[vec![2, c], v.from.clone()].concat());
    let op = w.random.pick(&["maxpool", "sumpool"]);
    let to = [vec![2, c], v.to.clone()].concat();
    let y = format!("{op}({x}, window={}, {})", list(&v.size), v.words());
    let y = w.followed(dtype, &to, &y);
    (spelled(dtype, &to), y)
}

fn attention(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&["f32", "f32", "f16", "bf16", "f16", "bf16", "f64"]);
    let heads = match w.random.below(3) {
        0 => vec![],
        1 => vec![w.random.between(1, 3)],
        _ => vec![1, w.random.between(1, 2)],
    };
    let s = if w.random.chance(0.4) { w.random.between(1, 4) } else { w.extent(70) };
    let t = if s <= 4 { w.random.between(1, 700) } else { w.extent(150) };
    let [d, e] = [w.extent(80), w.extent(140)];
    let of = |a: i64, b: i64| [heads.clone(), vec![a, b]].concat();
    let (q, k, v) =
        (w.value(dtype, &of(s, d)), w.value(dtype, &of(t, d)), w.value(dtype, &of(t, e)));
    let body = match w.random.below(4) {
        0 => {
            let mask = w.value(dtype, &of(s, t));
            format!("attention_masked({q}, {k}, {v}, {mask}, scale=0.25)")
        }
        1 => {
            let mask = w.value("bool", &of(s, t));
            format!("attention_select({q}, {k}, {v}, {mask}, scale=0.25, low=-9)")
        }
        _ => format!("attention({q}, {k}, {v}, scale=0.25)"),
    };
    let body = w.followed(dtype, &of(s, e), &body);
    (spelled(dtype, &of(s, e)), body)
}

fn running(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&["f32", "f16", "bf16", "f64", "i32", "i64", "u8"]);
    let rank = 1 + w.random.below(3);
    let shape = shape(w, rank, 3000);
    let x = w.value(dtype, &shape);
    let axis = w.random.below(rank);
    let [exclusive, reverse] = [w.random.chance(0.4), w.random.chance(0.4)];
    let words = format!("axis={axis}, exclusive={exclusive}, reverse={reverse}");
    (spelled(dtype, &shape), format!("cumsum({x}, {words})"))
}

/// Elements at places that data decide.
fn places(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&["f32", "f16", "bf16", "f64", "i32", "i64", "u8", "bool"]);
    let (n, m, s) = (w.random.between(3, 60), w.extent(70), w.extent(33));
    let x = w.value(dtype, &[n, s]);
    match w.random.below(4) {
        0 => {
            let i = w.value("i64", &[m]);
            (spelled(dtype, &[m, s]), format!("gather({x}, abs({i}), axis=0)"))
        }
        1 => {
            let i = w.value("i32", &[m, s]);
            (spelled(dtype, &[m, s]), format!("gather_elements({x}, abs({i}), axis=0)"))
        }
        2 => {
            let (i, u) = (w.value("i64", &[m]), w.value(dtype, &[m, s]));
            (spelled(dtype, &[n, s]), format!("scatter({x}, abs({i}), {u})"))
        }
        _ if dtype == "bool" => (spelled(dtype, &[n, s]), format!("logical_not({x})")),
        _ => {
            let count = w.random.between(0, s);
            (spelled("i64", &[n, count]), format!("sort_places({x}, count={count})"))
        }
    }
}

/// Values that are computed next to each other in one result.
fn joined(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&FLOATS);
    let rank = 1 + w.random.below(3);
    let whole = shape(w, rank, 3000);
    let axis = w.random.below(rank);
    let first = w.random.between(0, whole[axis]);
    let [mut a, mut b] = [whole.clone(), whole.clone()];
    (a[axis], b[axis]) = (first, whole[axis] - first);
    let (x, y) = (w.value(dtype, &a), w.value(dtype, &b));
    let last = rank - 1;
    let y = if b.contains(&0) { y } else { format!("softmax({y}, axis={last})") };
    let all = format!("concat(exp({x}), {y}, axis={axis})");
    let body = w.followed(dtype, &whole, &all);
    (spelled(dtype, &whole), body)
}

fn recurrent(w: &mut Writer) -> (String, String) {
    let dtype = w.random.pick(&["f32", "f16", "bf16"]);
    let [t, b, i, h] = [w.random.between(1, 5), w.extent(4), w.extent(40), w.extent(70)];
    let (x, first) = (w.value(dtype, &[t, b, i]), w.value(dtype, &[1, b, h]));
    let direction = w.random.pick(&["forward", "reverse"]);
    let gates = w.random.pick(&[3, 4]);
    let rows = gates * h;
    let input = w.value(dtype, &[1, rows, i]);
    let own = w.value(dtype, &[1, rows, h]);
    let bias = w.value(dtype, &[1, 2 * rows]);
    let body = match gates {
        4 => {
            let cell = w.value(dtype, &[1, b, h]);
            format!("lstm({x}, {input}, {own}, {bias}, {first}, {cell}, direction=\"{direction}\")")
        }
        _ => format!(
            "gru({x}, {input}, {own}, {bias}, {first}, direction=\"{direction}\", linear_before_reset=1)"
        ),
    };
    let mut types = vec![spelled(dtype, &[t, 1, b, h]), spelled(dtype, &[1, b, h])];
    if gates == 4 {
        types.push(spelled(dtype, &[1, b, h]));
    }
    (types.join(", "), body)
}
