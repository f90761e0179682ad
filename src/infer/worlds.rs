//! Worlds: typed variables of laws, and environments with a value for each.
//!
//! A world fixes element types and axes; an environment of it fixes extents and values. Never says whether terms are equal.

use mlc_backends::reference::Array;
use mlc_dsl::eval::Env;
use mlc_dsl::expr::{AttrKind, Name};
use mlc_dsl::ir::{Attr, DType, Extent};
use mlc_dsl::random::Random;

/// An axis or a segment of a world, by its place among them.
pub type DimId = u8;

/// An axis or a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimName {
    /// Any number of axes.
    Segment(&'static str),
    /// One axis.
    Axis(&'static str),
}

impl DimName {
    /// As types and lists of axes have it.
    pub fn text(self) -> String {
        match self {
            DimName::Segment(s) => format!("..{s}"),
            DimName::Axis(n) => n.to_string(),
        }
    }
}

/// Which elements an environment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Style {
    /// Finite numbers of either sign, zeros and equal ones among them; attributes have different signs.
    Finite,
    /// The same elements where attributes are positive and grow.
    Scaled,
    /// None below zero.
    Nonnegative,
    /// Positive, neither large nor small.
    Moderate,
    /// Infinities and NaN too; of integers the ends of their range.
    Special,
}

/// A tensor variable.
#[derive(Clone, Debug)]
pub struct Variable {
    /// In texts.
    pub name: String,
    /// In the environments; a law may be about more types.
    pub dtype: DType,
    /// Its axes.
    pub dims: Vec<DimId>,
}

/// A variable of attributes.
#[derive(Clone, Debug)]
pub struct AttrVariable {
    /// In texts.
    pub name: String,
    /// What it is.
    pub kind: AttrKind,
}

/// Values for all variables.
pub struct Environment {
    /// Which elements.
    pub style: Style,
    /// Extents of each axis (one) and segment.
    pub extents: Vec<Vec<usize>>,
    /// A value for each variable.
    pub values: Vec<Array>,
    /// Attributes by name.
    pub env: Env,
}

/// Variables with their environments.
pub struct World {
    /// Axes and segments, in the order in which all types have them.
    pub dims: Vec<DimName>,
    /// Tensors.
    pub vars: Vec<Variable>,
    /// Attributes.
    pub attrs: Vec<AttrVariable>,
    /// The first has extents that tell axes apart.
    pub environments: Vec<Environment>,
    /// The type that the world is about; variables of truth values stand beside it.
    pub main: DType,
}

/// What a world is to have.
pub struct WorldPlan<'a> {
    /// The type of most variables.
    pub main: DType,
    /// Variables of the main type.
    pub variables: usize,
    /// Variables of truth values, if that is not the main type.
    pub conditions: usize,
    /// Whether there is a named axis, and one variable without it.
    pub axis: bool,
    /// Kinds of attributes that are variables, with how many of each.
    pub attrs: &'a [(AttrKind, usize)],
}

const NAMES: [&str; 5] = ["x", "y", "z", "w", "v"];
const CONDITIONS: [&str; 5] = ["c", "d", "e", "f", "g"];
/// Elements of a segment where no attribute asks for axes.
const ELEMENTS: usize = 24;

impl World {
    /// Draws a world.
    pub fn new(plan: &WorldPlan<'_>, seed: u64) -> World {
        let dims = match plan.axis {
            true => vec![DimName::Segment("p"), DimName::Axis("n"), DimName::Segment("s")],
            false => vec![DimName::Segment("s")],
        };
        let all: Vec<DimId> = (0..dims.len() as DimId).collect();
        let names = if plan.main == DType::Bool { &CONDITIONS } else { &NAMES };
        let named = |names: &[&str], count: usize, dtype| {
            let names = names.iter().take(count);
            names.map(|n| variable(n, dtype, &all)).collect::<Vec<_>>()
        };
        let mut vars = named(names, plan.variables, plan.main);
        if plan.main != DType::Bool {
            vars.extend(named(&CONDITIONS, plan.conditions, DType::Bool));
        }
        if plan.axis {
            vars.push(variable("r", plan.main, &[0, 2]));
        }
        let attrs = attr_variables(plan.attrs);
        let mut world = World { dims, vars, attrs, environments: vec![], main: plan.main };
        let views = plan.attrs.iter().any(|(k, _)| k.is_ints());
        let mut rng = Random::of_name(seed, &format!("{:?} {}", plan.main, plan.axis));
        for (style, extents) in shapes(plan.axis, views) {
            let drawn = world.environment(style, extents, &mut rng);
            world.environments.push(drawn);
        }
        world
    }

    fn environment(&self, style: Style, extents: Vec<Vec<usize>>, rng: &mut Random) -> Environment {
        let mut env = Env::default();
        let whole: Vec<usize> = extents.concat();
        for (i, a) in self.attrs.iter().enumerate() {
            env.bind_attr(&Name::from(a.name.as_str()), attr(a.kind, i, style, whole.len(), rng));
        }
        for (dim, e) in self.dims.iter().zip(&extents) {
            match dim {
                DimName::Axis(n) => env.bind_axis(&Name::from(*n), Extent::from(e[0] as i64)),
                DimName::Segment(s) => {
                    let list = e.iter().map(|v| Extent::from(*v as i64)).collect();
                    env.bind_seg(&Name::from(*s), list)
                }
            };
        }
        let mut values = Vec::new();
        let mut of_main = 0;
        for v in &self.vars {
            let shape: Vec<usize> =
                v.dims.iter().flat_map(|d| extents[*d as usize].clone()).collect();
            // The first two meet in all pairs of a few numbers: what is equal seldom is equal there.
            let pairs = style == Style::Finite && v.dtype.is_float() && of_main < 2;
            let stride = pairs.then_some([1, FEW.len()][of_main % 2]);
            of_main += usize::from(v.dtype == self.main);
            values.push(array(v.dtype, shape, style, stride, rng));
        }
        Environment { style, extents, values, env }
    }

    /// The number that an attribute variable is in an environment.
    pub fn number(&self, variable: usize, environment: usize) -> Option<f64> {
        let AttrVariable { name, kind } = &self.attrs[variable];
        let number = matches!(kind, AttrKind::Int | AttrKind::Float);
        self.environments[environment].env.attr(name).filter(|_| number)?.as_f64()
    }

    /// The shape of these axes in an environment.
    pub fn shape(&self, dims: &[DimId], environment: usize) -> Vec<usize> {
        let e = &self.environments[environment];
        dims.iter().flat_map(|d| e.extents[*d as usize].iter().copied()).collect()
    }

    /// The axes that a shape of the first environment has, if they are some of the world's, in their order.
    pub fn dims_of(&self, shape: &[usize]) -> Option<Vec<DimId>> {
        let subsets = (0u32..1 << self.dims.len()).map(|mask| {
            let has = |d: &DimId| mask >> d & 1 == 1;
            (0..self.dims.len() as DimId).filter(has).collect::<Vec<_>>()
        });
        subsets.into_iter().find(|dims| self.shape(dims, 0) == shape)
    }
}

fn variable(name: &str, dtype: DType, dims: &[DimId]) -> Variable {
    Variable { name: name.to_string(), dtype, dims: dims.to_vec() }
}

fn attr_variables(kinds: &[(AttrKind, usize)]) -> Vec<AttrVariable> {
    let names: fn(AttrKind) -> &'static [&'static str] = |kind| match kind {
        AttrKind::Int | AttrKind::Float => &["k", "l", "m"],
        AttrKind::Perm => &["i", "j", "h"],
        _ => &["a", "b", "q"],
    };
    let of_kind = |(kind, count): &(AttrKind, usize)| {
        let named = names(*kind).iter().take(*count);
        named.map(|n| AttrVariable { name: n.to_string(), kind: *kind }).collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}

/// Styles and extents of the environments of a world.
fn shapes(axis: bool, views: bool) -> Vec<(Style, Vec<Vec<usize>>)> {
    let styles =
        [Style::Finite, Style::Scaled, Style::Nonnegative, Style::Moderate, Style::Special];
    let extents: Vec<Vec<Vec<usize>>> = match (axis, views) {
        (true, _) => vec![
            vec![vec![2], vec![3], vec![5]],
            vec![vec![3], vec![4], vec![2]],
            vec![vec![3], vec![2], vec![2]],
            vec![vec![2], vec![4], vec![]],
            vec![vec![4], vec![3], vec![2]],
            vec![vec![2], vec![0], vec![3]],
            vec![vec![], vec![1], vec![4]],
        ],
        (false, true) => vec![
            vec![vec![2, 3, 5]],
            vec![vec![4, 2, 3]],
            vec![vec![3, 4]],
            vec![vec![2, 4]],
            vec![vec![3, 2, 3]],
            vec![vec![2, 0]],
        ],
        (false, false) => {
            let first = vec![vec![FEW.len() * FEW.len() + ELEMENTS]];
            std::iter::once(first).chain(vec![vec![vec![ELEMENTS]]; styles.len() - 1]).collect()
        }
    };
    let style = |i: usize| styles.get(i).copied().unwrap_or(Style::Finite);
    extents.into_iter().enumerate().map(|(i, e)| (style(i), e)).collect()
}

fn attr(kind: AttrKind, i: usize, style: Style, rank: usize, rng: &mut Random) -> Attr {
    match kind {
        AttrKind::Perm => {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            // Rotations one way and the other, and a swap: no two are alike where there are three axes.
            match i % 3 {
                0 => order.rotate_left(1),
                1 if rank > 1 => order.swap(0, 1),
                _ => order.reverse(),
            }
            Attr::ints(order)
        }
        AttrKind::Axes => Attr::ints([(i % rank.max(1)) as i64]),
        AttrKind::Bool => Attr::Bool(rng.chance(0.5)),
        AttrKind::Int => Attr::int([2, 3, 5][i % 3]),
        // Few binary places: what is computed of them is not rounded.
        _ => Attr::float(match style {
            Style::Finite => [-1.75, 0.625, 2.5][i % 3],
            Style::Scaled => [0.75, 1.5, 3.25][i % 3],
            Style::Nonnegative | Style::Moderate | Style::Special => [0.875, 2.5, 3.375][i % 3],
        }),
    }
}

/// Numbers that are met more often than others: some are sums, products and roots of others.
const FEW: [f64; 9] = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 4.0, 0.25, 3.0];

/// Elements of a style; with a stride the first ones run through the few numbers, each so many times in a row.
fn array(
    dtype: DType,
    shape: Vec<usize>,
    style: Style,
    stride: Option<usize>,
    rng: &mut Random,
) -> Array {
    let n = shape.iter().product();
    if dtype.is_float() {
        let few = |i: usize| {
            let all = FEW.len() * FEW.len();
            stride.filter(|_| i < all && n > all).map(|s| FEW[i / s % FEW.len()])
        };
        let values = (0..n).map(|i| few(i).unwrap_or_else(|| float(style, rng))).collect();
        return Array::from_f64(dtype, shape, values).expect("as many as the shape asks for");
    }
    let values = (0..n).map(|_| integer(dtype, style, rng)).collect();
    Array::from_i64(dtype, shape, values).expect("as many as the shape asks for")
}

fn float(style: Style, rng: &mut Random) -> f64 {
    match style {
        Style::Finite | Style::Scaled if rng.chance(0.35) => FEW[rng.below(FEW.len())],
        Style::Finite | Style::Scaled => 2.0 * rng.normal(),
        Style::Nonnegative if rng.chance(0.3) => FEW[rng.below(FEW.len())].abs(),
        Style::Nonnegative => (2.0 * rng.normal()).abs(),
        Style::Moderate => 0.2 + 3.0 * rng.unit(),
        Style::Special => {
            let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 3.5];
            values[rng.below(values.len())]
        }
    }
}

fn integer(dtype: DType, style: Style, rng: &mut Random) -> i64 {
    if dtype == DType::Bool {
        return i64::from(rng.chance(0.5));
    }
    let (low, high) = dtype.int_range().unwrap_or((0, 1));
    let least = if low < 0 { -4 } else { 0 };
    match style {
        Style::Finite | Style::Scaled => rng.between(least, 4),
        Style::Nonnegative => rng.between(0, 5),
        Style::Moderate => rng.between(1, 9),
        Style::Special => {
            let ends = [low as i64, high as i64, low as i64 + 1, 0, 1, 7];
            ends[rng.below(ends.len())]
        }
    }
}
