//! Drafts of samples: element types, extents, ranks and attributes, chosen and repaired.

use crate::law::facts::{AxisOrSegment, LARGEST_SIZE, LawFacts, first_inexact_integer};
use mlc_dsl::eval::Env;
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{DTypePattern, Name};
use mlc_dsl::random::Random;
use mlc_dsl::typing::infer::resolve_dims;

/// A sample without its elements. Lists have one entry per member of the family.
#[derive(Clone, Debug)]
pub(crate) struct SampleDraft {
    /// Members of the family; 1 where the law has none.
    pub members: usize,
    /// Element types.
    pub dtypes: Vec<(Name, DType)>,
    /// Axes.
    pub axes: Vec<(Name, Vec<i64>)>,
    /// Segments.
    pub segs: Vec<(Name, Vec<Vec<i64>>)>,
    /// Attributes chosen so far.
    pub attrs: Vec<(Name, Attr)>,
    /// Whether ranges and domains are kept.
    pub stray: RangePolicy,
    /// How extents are chosen.
    pub style: ExtentStyle,
    /// Attributes are chosen to be as discriminating as possible.
    pub telling: bool,
    /// Where integers in lists are drawn.
    pub end: RangeEnd,
    /// Extents of axes and segments that symbols stand for.
    pub open: Vec<(Name, Vec<Extent>)>,
}

/// Whether attributes keep their declared ranges and elements their domains. Both are hints for sampling;
/// only conditions restrict a law, so it must hold outside of them, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangePolicy {
    /// They do.
    No,
    /// They do, but for one special value of an attribute, by its number.
    Only(usize),
    /// They may be anything that the operators take; the number says which special number has its turn.
    Any(usize),
}

/// Bias of integers in lists towards an end of their range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeEnd {
    /// Anywhere.
    Any,
    /// At the lower one.
    Low,
    /// At the upper one.
    High,
    /// Below the lower one, or anywhere.
    Below,
    /// At the integers that the law names, or right above them, or anywhere.
    Named,
}

/// How extents are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentStyle {
    /// Every axis another number.
    Distinct,
    /// Small numbers.
    Small,
    /// Some axes of extent one.
    Ones,
    /// Two or three.
    Few,
    /// All axes of one extent.
    Equal,
    /// Some axes of no extent.
    Zeros,
    /// Small numbers, but the axis or segment of that number has no extent.
    Empty(usize),
    /// One and two, beside windows and paddings that are as large as may be.
    Padded,
    /// Some axes so long that parts of parts have room, beside parts that begin or end outside of their ranges.
    Beyond,
    /// Some axes so long that parts of parts, windows and steps have room, and attributes that use it.
    Roomy,
    /// The first axes as long as they may be.
    Long,
    /// Some axes as long as for parts of parts, beside parts, windows and steps of the integers that the law names.
    Named,
}

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];
const SMALL: &[DType] =
    &[DType::F8E4M3FN, DType::F8E5M2FNUZ, DType::F8E8M0, DType::F4E2M1, DType::I4, DType::U2];
const INTS: &[DType] = &[DType::I64, DType::I32, DType::U8, DType::I8, DType::U32];

impl SampleDraft {
    /// Chooses everything but attributes.
    pub(crate) fn choose(
        facts: &LawFacts,
        style: ExtentStyle,
        stray: RangePolicy,
        rng: &mut Random,
    ) -> SampleDraft {
        let members = if facts.each { 2 + rng.below(2) } else { 1 };
        let mut d = SampleDraft {
            members,
            dtypes: vec![],
            axes: vec![],
            segs: vec![],
            attrs: vec![],
            stray,
            style,
            telling: matches!(style, ExtentStyle::Roomy | ExtentStyle::Named) || rng.chance(0.4),
            end: match style {
                ExtentStyle::Padded => RangeEnd::High,
                ExtentStyle::Beyond => RangeEnd::Below,
                ExtentStyle::Named => RangeEnd::Named,
                _ if rng.chance(0.15) => RangeEnd::Low,
                _ => RangeEnd::Any,
            },
            open: vec![],
        };
        for n in &facts.dtypes {
            d.dtypes.push((n.clone(), dtype(n, rng)));
        }
        let mut pool = ExtentPool::new(style, rng);
        for s in &facts.segs {
            let copies = if s.private { members } else { 1 };
            let rank = pick_rank(facts, rng);
            let mut list: Vec<Vec<i64>> =
                (0..copies).map(|_| (0..rank).map(|_| pool.next(rng)).collect()).collect();
            // Tensors of one law are often alike.
            if rng.chance(0.25)
                && let Some((_, other)) = d.segs.last().filter(|(_, l)| l.len() == copies)
            {
                list.clone_from(other);
                if let Some(e) = list[0].first_mut().filter(|_| rng.chance(0.5)) {
                    *e = pool.next(rng);
                }
            }
            // Members that differ in more than one axis rarely fit together.
            if rng.chance(0.8) {
                let first = list[0].clone();
                list.fill(first);
            }
            d.segs.push((s.name.clone(), list));
        }
        for a in &facts.axes {
            let copies = if a.private { members } else { 1 };
            d.axes.push((a.name.clone(), (0..copies).map(|_| pinned(a, &mut pool, rng)).collect()));
        }
        if let ExtentStyle::Empty(slot) = style {
            d.empty(slot);
        }
        if let RangePolicy::Only(number) = stray {
            d.attrs.extend(facts.specials.get(number).cloned());
        }
        if let RangePolicy::Any(turn) = stray {
            d.special_numbers(facts, turn, rng);
            if turn % 2 == 1 {
                d.named_size(facts, rng);
            }
        }
        d
    }

    /// Numbers of the law that are no ordinary ones. One at a time, each in turn, for two blur each other;
    /// but beside a sum of nothing a number shows best if it is none.
    fn special_numbers(&mut self, facts: &LawFacts, turn: usize, rng: &mut Random) {
        const SPECIAL: &[Option<f64>] = &[
            Some(f64::INFINITY),
            Some(f64::NAN),
            None,
            Some(f64::NEG_INFINITY),
            Some(0.0),
            Some(f64::INFINITY),
            None,
            Some(-2.0),
            Some(-0.0),
        ];
        let floats = facts.law.attrs.iter().filter(|a| a.ty.kind == AttrKind::Float);
        let floats: Vec<&Name> = floats.map(|a| &a.name).collect();
        let beside_nothing = matches!(self.style, ExtentStyle::Empty(_));
        for (i, name) in floats.iter().enumerate() {
            let v = match beside_nothing {
                true => rng.chance(0.7).then(|| rng.pick(&[f64::NAN, f64::NAN, f64::INFINITY])),
                false if turn % floats.len() == i => SPECIAL[turn / floats.len() % SPECIAL.len()],
                false => None,
            };
            self.attrs.extend(v.map(|v| ((*name).clone(), Attr::float(v))));
        }
    }

    /// An axis or an integer of the law becomes a number that the law names, or a neighbour.
    fn named_size(&mut self, facts: &LawFacts, rng: &mut Random) {
        // Long axes have more elements than narrow integers can count.
        let narrow = self
            .dtypes
            .iter()
            .filter(|(_, d)| d.is_int())
            .filter_map(|(_, d)| first_inexact_integer(*d));
        let mut sizes = facts.sizes.clone();
        sizes.extend(narrow.filter(|s| *s <= LARGEST_SIZE));
        let integers = facts.law.attrs.iter().filter(|a| a.ty.kind == AttrKind::Int);
        let integers: Vec<&Name> = integers.map(|a| &a.name).collect();
        let free = |(i, _): &(usize, &AxisOrSegment)| facts.axes[*i].pinned.is_none();
        let axes: Vec<usize> = facts.axes.iter().enumerate().filter(free).map(|(i, _)| i).collect();
        if axes.is_empty() && integers.is_empty() {
            return;
        }
        let chosen = rng.below(axes.len() + integers.len());
        let known = if chosen < axes.len() { &sizes } else { &facts.counts };
        if known.is_empty() {
            return;
        }
        let size = rng.pick(known) + rng.between(-1, 1);
        match axes.get(chosen) {
            Some(&i) => self.axes[i].1.fill(size),
            None => self.attrs.push((integers[chosen - axes.len()].clone(), Attr::int(size))),
        }
    }

    /// Takes the extent of the axis or segment of that number.
    fn empty(&mut self, slot: usize) {
        if let Some((_, v)) = self.axes.get_mut(slot) {
            v.fill(0);
        } else if let Some((_, list)) = self.segs.get_mut(slot - self.axes.len()) {
            for s in list {
                match s.first_mut() {
                    Some(first) => *first = 0,
                    None => s.push(0),
                }
            }
        }
    }

    fn member<T>(list: &[T], member: usize) -> Option<&T> {
        list.get(if list.len() == 1 { 0 } else { member })
    }

    /// The environment of a member: everything chosen so far and the types of the variables.
    pub(crate) fn env(&self, facts: &LawFacts, member: usize) -> Result<Env, String> {
        let mut env = Env::default();
        for (n, d) in &self.dtypes {
            env.bind_dtype(n, *d);
        }
        for (n, v) in &self.axes {
            env.bind_axis(n, Extent::from(*SampleDraft::member(v, member).unwrap_or(&1)));
        }
        for (n, v) in &self.segs {
            let list = SampleDraft::member(v, member).cloned().unwrap_or_default();
            env.bind_seg(n, list.into_iter().map(Extent::from).collect());
        }
        self.finish_env(facts, env)
    }

    /// The same with every float in f64.
    pub(crate) fn widened(&self) -> SampleDraft {
        let mut d = self.clone();
        d.dtypes.iter_mut().filter(|(_, t)| t.is_float()).for_each(|(_, t)| *t = DType::F64);
        d
    }

    fn opened(&self, name: &Name) -> Option<&[Extent]> {
        self.open.iter().find(|(n, _)| n == name).map(|(_, e)| e.as_slice())
    }

    /// The environment with a symbol for every extent, or with those that stand for them.
    pub(crate) fn symbolic_env(&self, facts: &LawFacts) -> Result<Env, String> {
        let mut env = Env::default();
        for (n, d) in &self.dtypes {
            env.bind_dtype(n, *d);
        }
        for (n, _) in &self.axes {
            let own = self.opened(n).and_then(|e| e.first().cloned());
            env.bind_axis(n, own.unwrap_or_else(|| Extent::sym(n)));
        }
        for (n, v) in &self.segs {
            let rank = v.first().map_or(0, Vec::len);
            let all = || (0..rank).map(|i| Extent::sym(&format!("{n}{i}"))).collect();
            env.bind_seg(n, self.opened(n).map_or_else(all, <[Extent]>::to_vec));
        }
        self.finish_env(facts, env)
    }

    fn finish_env(&self, facts: &LawFacts, mut env: Env) -> Result<Env, String> {
        for (n, a) in &self.attrs {
            env.bind_attr(n, a.clone());
        }
        for i in 0..facts.law.vars.len() {
            let ty = self.var_type(facts, i, &env)?;
            env.bind_tensor(&facts.law.vars[i].name, ty);
        }
        Ok(env)
    }

    fn var_type(&self, facts: &LawFacts, var: usize, env: &Env) -> Result<Type, String> {
        let dtype = match &facts.law.vars[var].ty.dtype {
            DTypePattern::Fixed(d) => *d,
            DTypePattern::Var(n) => env.dtype(n).unwrap_or(DType::F32),
        };
        Ok(Type::new(dtype, resolve_dims(&facts.dims(var), env)?))
    }
}

/// An element type of the family of a variable.
fn dtype(name: &str, rng: &mut Random) -> DType {
    let float = |rng: &mut Random| match rng.below(20) {
        // Truth is decided in f64: there is no rounding to check in it, but there is a range.
        0 => DType::F64,
        1..=13 => DType::F32,
        14..=16 => DType::F16,
        _ => DType::BF16,
    };
    match name.as_bytes().first() {
        Some(b'F') => float(rng),
        Some(b'I') => rng.pick(INTS),
        Some(b'B') => DType::Bool,
        Some(b'N') => {
            if rng.chance(0.7) {
                float(rng)
            } else {
                rng.pick(INTS)
            }
        }
        _ => match rng.below(10) {
            0..=5 => float(rng),
            6..=8 => rng.pick(INTS),
            _ if rng.chance(0.5) => rng.pick(SMALL),
            _ => DType::Bool,
        },
    }
}

/// Any element type, for attributes.
pub(crate) fn any_dtype(rng: &mut Random) -> DType {
    match rng.below(3) {
        0 => rng.pick(FLOATS),
        1 => rng.pick(INTS),
        _ => rng.pick(&[DType::F32, DType::I64, DType::Bool, DType::F8E4M3FN, DType::F8E8M0]),
    }
}

/// Permutations of two axes commute: where a law has some, three axes are usual.
fn pick_rank(facts: &LawFacts, rng: &mut Random) -> usize {
    if facts.law.attrs.iter().any(|a| a.ty.kind == AttrKind::Perm) {
        return rng.pick(&[0, 1, 2, 2, 3, 3, 3, 4]);
    }
    rng.pick(&[0, 1, 1, 1, 2, 2, 2, 3])
}

fn pinned(a: &AxisOrSegment, pool: &mut ExtentPool, rng: &mut Random) -> i64 {
    match a.pinned {
        Some((low, high)) => rng.between(low.max(0), high.max(0)),
        None => pool.next(rng),
    }
}

/// Long axes are drawn until that many elements lie along all of them.
const ROOM: i64 = 40;

struct ExtentPool {
    style: ExtentStyle,
    left: Vec<i64>,
    equal: i64,
    /// Elements along all that was drawn.
    elements: i64,
}

impl ExtentPool {
    fn new(style: ExtentStyle, rng: &mut Random) -> ExtentPool {
        ExtentPool { style, left: vec![], equal: rng.between(1, 3), elements: 1 }
    }

    fn next(&mut self, rng: &mut Random) -> i64 {
        match self.style {
            ExtentStyle::Small | ExtentStyle::Empty(_) => rng.between(1, 4),
            ExtentStyle::Few => rng.between(2, 3),
            ExtentStyle::Padded => rng.pick(&[1, 1, 1, 2]),
            ExtentStyle::Roomy | ExtentStyle::Beyond | ExtentStyle::Long | ExtentStyle::Named => {
                let always = self.style == ExtentStyle::Long;
                let long = self.elements < ROOM && (always || rng.chance(0.7));
                let e = if long { rng.between(5, 10) } else { rng.between(1, 3) };
                self.elements *= e;
                e
            }
            ExtentStyle::Equal => self.equal,
            ExtentStyle::Ones if rng.chance(0.4) => 1,
            ExtentStyle::Zeros if rng.chance(0.25) => 0,
            ExtentStyle::Distinct | ExtentStyle::Ones | ExtentStyle::Zeros => {
                if self.left.is_empty() {
                    self.left = vec![2, 3, 5, 7];
                    rng.shuffle(&mut self.left);
                    if self.style != ExtentStyle::Distinct {
                        self.left = vec![2, 3, 4];
                        rng.shuffle(&mut self.left);
                    }
                }
                self.left.pop().unwrap_or(2)
            }
        }
    }
}
