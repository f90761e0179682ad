//! Random programs around each loop shape of generated CUDA code: odd extents, extents of 1 and 0, views in front of every operand, all
//! element types. The same seed gives the same text everywhere.
//!
//! Never decides whether a result is right.

mod families;

pub use families::FAMILIES;
use mlc_dsl::random::Random;

/// Elements of an input at most.
const MOST: i64 = 40_000;

/// Programs that are several launches, one of them too large to be merged.
pub const SEVERAL_LAUNCHES: &str = "
    def stack(x: f32[5, 72], w: f32[72, 40], g: f32[40], z: f32[40], u: f32[40, 24]) -> f32[5, 24]
      = softmax(layernorm(gelu(x @ w), g, z, eps=1e-3) @ u, axis=1)
    def halves(x: f16[20, 72], w: f16[72, 40], u: f16[40, 24]) -> f16[20], f16[20, 24]
      let y = tanh(x @ w) @ u
      = (max(y, axes=[1]), softmax(y, axis=1))
    def image(x: f32[1, 8, 9, 9], w: f32[8, 1, 3, 3], u: f32[12, 8, 1, 1]) -> f32[1, 12]
      let y = relu(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=8))
      let z = conv(y, u, stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1])
      = sum(relu(z), axes=[2, 3])
    def queries(q: f16[1, 2, 4, 32], k: f16[1, 2, 600, 32], v: f16[1, 2, 600, 32]) -> f16[1, 2, 4, 32]
      = exp(attention(q, k, v, scale=0.25))
    def deep(x: f32[16, 1100], w: f32[1100, 20], u: f32[2, 9000], v: f32[9000, 40]) -> f32[16, 20], f32[2, 40]
      = (softmax(x @ w, axis=1), softmax(u @ v, axis=1))
    def picked(x: f32[40, 30], i: i64[20], w: f32[30, 16]) -> f32[20]
      = max(softmax(gather(x, i, axis=0) @ w, axis=1), axes=[1])
    def row(x: f32[1, 64], w: f32[64, 64], u: f32[64, 32], v: f32[32, 64]) -> f32[1, 64]
      = tanh(softmax(softmax(softmax(x @ w, axis=1) @ u, axis=1) @ v, axis=1))
    def large(x: f32[4096, 512], w: f32[512, 512], u: f32[512, 512]) -> f32[4096, 512]
      = softmax(softmax(x @ w, axis=1) @ u, axis=1)
";

/// Floating types, the most frequent one more than once.
pub const FLOATS: [&str; 6] = ["f32", "f32", "f32", "f16", "bf16", "f64"];
/// Integer types.
pub const WHOLE: [&str; 8] = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"];

/// The text of a definition of this name, of the family and by the seed.
pub fn text(family: &str, name: &str, seed: u64) -> Option<String> {
    let (_, write) = FAMILIES.iter().find(|f| f.0 == family)?;
    let mut w = Writer { random: Random::of_name(seed, family), parameters: vec![] };
    let (result, body) = write(&mut w);
    Some(format!("def {name}({}) -> {result}\n  = {body}\n", w.parameters.join(", ")))
}

/// A type as it is spelled.
pub fn spelled(dtype: &str, shape: &[i64]) -> String {
    format!("{dtype}{}", list(shape))
}

/// A list as it is spelled.
pub fn list(values: &[i64]) -> String {
    let values: Vec<String> = values.iter().map(i64::to_string).collect();
    format!("[{}]", values.join(", "))
}

/// Writes one definition.
pub struct Writer {
    /// Decides everything.
    pub random: Random,
    parameters: Vec<String>,
}

impl Writer {
    /// An extent of at most so much: often one at an edge of what blocks, warps and wide accesses take.
    pub fn extent(&mut self, most: i64) -> i64 {
        let edges = [
            1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 96, 127, 128, 130, 257,
            512,
        ];
        let edges: Vec<i64> = edges.into_iter().filter(|n| *n <= most).collect();
        match self.random.below(20) {
            0..14 => self.random.pick(&edges),
            _ => self.random.between(1, most),
        }
    }

    /// The same, but now and then 0.
    pub fn extent_or_none(&mut self, most: i64) -> i64 {
        if self.random.chance(0.03) { 0 } else { self.extent(most) }
    }

    /// A new parameter.
    fn parameter(&mut self, dtype: &str, shape: &[i64]) -> String {
        let name = format!("x{}", self.parameters.len());
        self.parameters.push(format!("{name}: {}", spelled(dtype, shape)));
        name
    }

    /// An expression of this type: a parameter, or a chain of views of one.
    pub fn value(&mut self, dtype: &str, shape: &[i64]) -> String {
        let views = self.random.pick(&[0, 0, 0, 1, 1, 2, 3]);
        self.viewed(dtype, shape, views)
    }

    fn viewed(&mut self, dtype: &str, shape: &[i64], views: usize) -> String {
        let count: i64 = shape.iter().product();
        if views == 0 {
            return self.parameter(dtype, shape);
        }
        let rank = shape.len();
        let kind = self.random.below(if rank == 0 { 3 } else { 10 });
        match kind {
            0 => {
                let inner = self.random.shape(count);
                let of = self.viewed(dtype, &inner, views - 1);
                format!("reshape({of}, shape={})", list(shape))
            }
            1 => {
                let other = match dtype {
                    "f16" | "bf16" | "f64" | "i32" => "f32",
                    "f32" => self.random.pick(&["f16", "f64", "i8", "u8"]),
                    "bool" => return self.parameter(dtype, shape),
                    _ => "i32",
                };
                let of = self.viewed(other, shape, views - 1);
                format!("cast({of}, to={dtype})")
            }
            2 if dtype != "bool" => {
                let of = self.viewed(dtype, shape, views - 1);
                format!("relu({of})")
            }
            2 | 3 => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                self.random.shuffle(&mut perm);
                let mut inner = vec![0; rank];
                perm.iter().zip(shape).for_each(|(&p, &n)| inner[p as usize] = n);
                let of = self.viewed(dtype, &inner, views - 1);
                format!("transpose({of}, perm={})", list(&perm))
            }
            4 | 5 => self.sliced(dtype, shape, views),
            6 => {
                let axes: Vec<i64> = (0..rank as i64).filter(|_| self.random.chance(0.6)).collect();
                let inner: Vec<i64> = axes.iter().map(|&a| shape[a as usize]).collect();
                let of = self.viewed(dtype, &inner, views - 1);
                format!("broadcast({of}, map={}, shape={})", list(&axes), list(shape))
            }
            7 => {
                let axis = self.random.below(rank);
                let first = self.random.between(0, shape[axis]);
                let [mut a, mut b] = [shape.to_vec(), shape.to_vec()];
                (a[axis], b[axis]) = (first, shape[axis] - first);
                let a = self.viewed(dtype, &a, views - 1);
                let b = self.viewed(dtype, &b, 0);
                format!("concat({a}, {b}, axis={axis})")
            }
            8 if dtype != "bool" => {
                let mut inner = shape.to_vec();
                let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
                for a in 0..rank {
                    low[a] = self.random.between(0, 2).min(inner[a]);
                    high[a] = self.random.between(0, 2).min(inner[a] - low[a]);
                    inner[a] -= low[a] + high[a];
                }
                let of = self.viewed(dtype, &inner, views - 1);
                let zero = format!("cast(0, to={dtype})");
                format!("pad({of}, {zero}, low={}, high={})", list(&low), list(&high))
            }
            _ => {
                let axis = self.random.below(rank);
                let (n, mut inner) = (shape[axis], shape.to_vec());
                inner[axis] = n + self.random.between(0, 2);
                let step = if inner[axis] > n { "1" } else { "-1" };
                let start = if step == "1" { inner[axis] - n } else { (n - 1).max(0) };
                let of = self.viewed(dtype, &inner, views - 1);
                let places = format!("iota(size={n}, start={start}, step={step}, to=i64)");
                format!("gather({of}, {places}, axis={axis})")
            }
        }
    }

    /// A part of something larger, some axes backwards or with gaps.
    fn sliced(&mut self, dtype: &str, shape: &[i64], views: usize) -> String {
        let rank = shape.len();
        let (mut inner, mut start, mut step) = (shape.to_vec(), vec![0; rank], vec![1; rank]);
        for a in 0..rank {
            let whole = inner.iter().product::<i64>();
            let by = if whole * 3 > MOST { 1 } else { self.random.pick(&[1, 1, 1, -1, 2, 3, -2]) };
            let (low, high) = (self.random.between(0, 3), self.random.pick(&[0, 0, 1, 4]));
            let span = if shape[a] == 0 { 0 } else { (shape[a] - 1) * i64::abs(by) + 1 };
            (inner[a], step[a]) = (low + span + high, by);
            start[a] = if by < 0 && span > 0 { low + span - 1 } else { low };
        }
        let of = self.viewed(dtype, &inner, views - 1);
        format!("slice({of}, start={}, size={}, step={})", list(&start), list(shape), list(&step))
    }

    /// Something that is computed from an expression element by element; of a float.
    pub fn followed(&mut self, dtype: &str, shape: &[i64], of: &str) -> String {
        match self.random.below(8) {
            0 => format!("relu({of})"),
            1 => format!("tanh({of})"),
            2 if !shape.is_empty() => {
                let axis = self.random.below(shape.len());
                let b = self.value(dtype, &[shape[axis]]);
                let b = format!("broadcast({b}, map=[{axis}], shape={})", list(shape));
                format!("relu({of} + {b})")
            }
            3 => {
                let b = self.value(dtype, shape);
                format!("{of} * {b}")
            }
            4 => {
                let mut perm: Vec<i64> = (0..shape.len() as i64).collect();
                self.random.shuffle(&mut perm);
                // There and back again: what is stored lies as it would.
                let mut back = vec![0; perm.len()];
                perm.iter().enumerate().for_each(|(i, &p)| back[p as usize] = i as i64);
                format!(
                    "transpose(exp(transpose({of}, perm={})), perm={})",
                    list(&perm),
                    list(&back)
                )
            }
            _ => of.into(),
        }
    }
}
