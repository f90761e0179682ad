//! Lists of integers, one for each axis of a tensor, whatever the number of axes is.
//!
//! A list is a sequence of single entries and of stretches, which have an entry for each axis of a segment. All entries of a stretch
//! are said by one, for some axis of the segment: what is shown of it holds for every axis. Therefore nothing here depends on ranks.

use super::integer::{Argument, Atom, Int};
use mlc_dsl::library::Name;

/// The axes of a segment, or of a part of one, in some order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Space {
    /// The segment. A list whose axes are not known yet has its own name, and is loose.
    pub base: Name,
    /// It is a list whose axes are not known yet.
    pub loose: bool,
    /// How its axes come of the segment's, by names of lists.
    pub path: Vec<Step>,
}

/// A step from the axes of a list to those of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Permuted; backwards if `inverse`.
    Permuted {
        /// The permutation.
        by: Name,
        /// Entry `by[i]` is entry `i` of what there was.
        inverse: bool,
    },
    /// Those at these positions.
    Picked(Name),
    /// Those at all other positions.
    Dropped(Name),
}

/// Which axes of a segment a space has, whatever their order.
pub(crate) type Subset = (Name, Vec<Step>);

impl Space {
    /// Its axes without their order.
    pub(crate) fn subset(&self) -> Subset {
        let chosen = |s: &Step| !matches!(s, Step::Permuted { .. });
        let length = self.path.iter().rposition(chosen).map_or(0, |i| i + 1);
        (self.base.clone(), self.path[..length].to_vec())
    }

    /// The axes of a segment as they stand.
    pub(crate) fn segment(base: &Name) -> Space {
        Space { base: base.clone(), loose: false, path: vec![] }
    }

    /// The axes of a list that are not known yet.
    pub(crate) fn loose(list: &Name) -> Space {
        Space { base: list.clone(), loose: true, path: vec![] }
    }

    fn then(&self, step: Step) -> Space {
        let mut out = self.clone();
        let undone = match (&step, out.path.last()) {
            (Step::Permuted { by, inverse }, Some(Step::Permuted { by: last, inverse: way })) => {
                by == last && inverse != way
            }
            _ => false,
        };
        match undone {
            true => drop(out.path.pop()),
            false => out.path.push(step),
        }
        out
    }

    /// How many axes there are.
    pub(crate) fn length(&self) -> Int {
        let (_, path) = self.subset();
        Int::from(Atom::Length(Space { path, ..self.clone() }))
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// One entry.
    One(Int),
    /// A stretch, said for some axis.
    Each(Space, Int),
}

impl Part {
    /// How many entries it has.
    pub(crate) fn length(&self) -> Int {
        match self {
            Part::One(_) => Int::from(1),
            Part::Each(space, _) => space.length(),
        }
    }

    /// The entry, or some entry of the stretch.
    pub(crate) fn entry(&self) -> &Int {
        let (Part::One(i) | Part::Each(_, i)) = self;
        i
    }

    /// The axes of a stretch.
    pub(crate) fn space(&self) -> Option<&Space> {
        match self {
            Part::One(_) => None,
            Part::Each(space, _) => Some(space),
        }
    }

    /// Of positions: the first of them.
    fn first(&self) -> Outcome<Int> {
        match self {
            Part::One(at) => Ok(at.clone()),
            Part::Each(space, at) => {
                small(at.plus(-1, &Int::from(Atom::Position(space.base.clone()))))
            }
        }
    }

    /// The same part with another entry.
    pub(crate) fn with(&self, entry: Int) -> Part {
        match self {
            Part::One(_) => Part::One(entry),
            Part::Each(space, _) => Part::Each(space.clone(), entry),
        }
    }
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct List(pub Vec<Part>);

/// Why nothing is shown, or what has to be known first.
#[derive(Clone, Debug)]
pub(crate) enum Stuck {
    /// There is no proof of this kind; a few words that say why.
    Unsupported(String),
    /// The axes of a list that is not known yet, or of a segment, are these: single ones and segments.
    Axes(Name, Vec<AxisKind>),
    /// An extent or an attribute is this.
    Equal(Atom, Int),
    /// A case for each place where the axis of a position can be: at a single axis, or within a segment that begins there.
    Position(Name, Vec<(Int, Option<Space>)>),
    /// Two cases: with this condition, and without.
    Cases(super::condition::Condition),
}

/// What stands in the place of axes that were not told apart.
#[derive(Clone, Debug)]
pub(crate) enum AxisKind {
    /// A single axis.
    One,
    /// The axes of a space, or of a new segment.
    Each(Option<Space>),
}

pub(crate) type Outcome<T> = Result<T, Stuck>;

/// No proof, for a reason.
pub(crate) fn unsupported<T>(why: impl Into<String>) -> Outcome<T> {
    Err(Stuck::Unsupported(why.into()))
}

/// A result that fails where coefficients overflow.
pub(crate) fn small(i: Option<Int>) -> Outcome<Int> {
    i.map_or_else(|| unsupported("its numbers grow too large"), Ok)
}

impl List {
    /// One stretch.
    pub(crate) fn each(space: Space, entry: Int) -> List {
        List(vec![Part::Each(space, entry)])
    }

    /// How many entries it has.
    pub(crate) fn length(&self) -> Outcome<Int> {
        self.0.iter().try_fold(Int::from(0), |n, p| small(n.plus(1, &p.length())))
    }

    /// Every entry.
    pub(crate) fn each_int(&self, f: &mut dyn FnMut(&Int)) {
        self.0.iter().for_each(|p| f(p.entry()));
    }

    /// With other integers in the place of atoms.
    pub(crate) fn substituted(&self, f: &mut dyn FnMut(&Atom) -> Option<Int>) -> Option<List> {
        let parts = self.0.iter().map(|p| Some(p.with(p.entry().substituted(f)?)));
        Some(List(parts.collect::<Option<_>>()?))
    }

    /// The name, if the list is an attribute of which no axes are known.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self.0.as_slice() {
            [Part::Each(space, entry)] if space.path.is_empty() => match entry.atom() {
                Some(Atom::Attr(n)) => Some(n),
                _ => None,
            },
            _ => None,
        }
    }

    /// The axes of the list that is not known yet, if it is one.
    fn loose(&self) -> Option<&Name> {
        match self.0.as_slice() {
            [Part::Each(space, _)] if space.loose && space.path.is_empty() => Some(&space.base),
            _ => None,
        }
    }

    /// The segment whose axes these are as they stand, if the other list has none of them.
    fn segment_beside(&self, other: &List) -> Option<&Name> {
        match self.0.as_slice() {
            [Part::Each(space, _)] if !space.loose && space.path.is_empty() => {
                let own = |p: &Part| matches!(p, Part::Each(s, _) if s.base == space.base);
                (!other.0.iter().any(own)).then_some(&space.base)
            }
            _ => None,
        }
    }

    /// What its axes are.
    fn kinds(&self) -> Vec<AxisKind> {
        let kind = |p: &Part| match p {
            Part::One(_) => AxisKind::One,
            Part::Each(space, _) => AxisKind::Each(Some(space.clone())),
        };
        self.0.iter().map(kind).collect()
    }

    /// Entry by entry.
    pub(crate) fn zip(
        &self,
        other: &List,
        f: &mut dyn FnMut(&Int, &Int) -> Outcome<Int>,
    ) -> Outcome<List> {
        self.aligned(other)?;
        let parts = self.0.iter().zip(&other.0);
        let parts = parts.map(|(a, b)| Ok(a.with(f(a.entry(), b.entry())?)));
        Ok(List(parts.collect::<Outcome<_>>()?))
    }

    /// Shows that two lists have the same axes.
    pub(crate) fn aligned(&self, other: &List) -> Outcome<()> {
        let same = |(a, b): (&Part, &Part)| match (a, b) {
            (Part::One(_), Part::One(_)) => true,
            (Part::Each(a, _), Part::Each(b, _)) => a == b,
            _ => false,
        };
        if self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same) {
            return Ok(());
        }
        match (self.loose(), other.loose()) {
            (Some(name), _) => Err(Stuck::Axes(name.clone(), other.kinds())),
            (None, Some(name)) => Err(Stuck::Axes(name.clone(), self.kinds())),
            (None, None) => match (self.segment_beside(other), other.segment_beside(self)) {
                (Some(name), _) => Err(Stuck::Axes(name.clone(), other.kinds())),
                (None, Some(name)) => Err(Stuck::Axes(name.clone(), self.kinds())),
                (None, None) => unsupported("its lists have different axes"),
            },
        }
    }

    /// The number of the part that begins at a position.
    pub(crate) fn at(&self, position: &Int) -> Outcome<usize> {
        // From the end.
        let counted = match position.number() {
            Some(n) if n < 0 => small(self.length()?.plus(1, position))?,
            _ => position.clone(),
        };
        let position = &counted;
        let mut before = Int::from(0);
        for (i, part) in self.0.iter().enumerate() {
            if before == *position {
                return Ok(i);
            }
            before = small(before.plus(1, &part.length()))?;
        }
        match position.atom() {
            Some(Atom::Attr(name)) => Err(Stuck::Position(name.clone(), self.places()?)),
            _ => unsupported("a position is none of an axis that is named"),
        }
    }

    /// Where an axis can be: at each single entry, and within each stretch that was not told apart, by where that begins.
    fn places(&self) -> Outcome<Vec<(Int, Option<Space>)>> {
        let (mut before, mut out) = (Int::from(0), Vec::new());
        for part in &self.0 {
            let within = match part {
                Part::One(_) => None,
                Part::Each(space, _) if space.path.is_empty() => Some(space.clone()),
                Part::Each(..) => return unsupported("a position is one of a permuted segment"),
            };
            out.push((before.clone(), within));
            before = small(before.plus(1, &part.length()))?;
        }
        Ok(out)
    }

    /// The part that an entry of a list of positions stands for.
    fn part_at(&self, position: &Part) -> Outcome<usize> {
        match position {
            Part::One(at) => match self.at(at)? {
                i if matches!(self.0[i], Part::One(_)) => Ok(i),
                _ => unsupported("a position lies within a segment"),
            },
            Part::Each(space, _) => match self.at(&position.first()?)? {
                i if matches!(&self.0[i], Part::Each(s, _) if s.base == space.base) => Ok(i),
                _ => unsupported("positions are none of a segment"),
            },
        }
    }

    /// `permute(list, by)`.
    pub(crate) fn permuted(&self, by: &List) -> Outcome<List> {
        match by.word() {
            Some(_) if self.0.len() > 1 && by.name().is_some() => {
                self.aligned(by).map(|()| self.clone())
            }
            Some(word) => word.into_iter().try_fold(self.clone(), |l, step| l.through(step)),
            None => self.selected(by),
        }
    }

    /// `unpermute(list, by)`.
    pub(crate) fn unpermuted(&self, by: &List) -> Outcome<List> {
        self.permuted(&by.inverse()?)
    }

    /// The permutations one after the other that a list which is no list of known positions stands for.
    fn word(&self) -> Option<Vec<Step>> {
        self.loose()?;
        let [Part::Each(_, entry)] = self.0.as_slice() else { return None };
        match entry.atom()? {
            Atom::Attr(by) => Some(vec![Step::Permuted { by: by.clone(), inverse: false }]),
            Atom::Of("word", lists) => {
                let lists = lists.iter().map(|l| match l {
                    Argument::List(l) => l.word(),
                    _ => None,
                });
                Some(lists.collect::<Option<Vec<_>>>()?.concat())
            }
            Atom::Of("inverse", lists) => match lists.as_slice() {
                [Argument::List(l)] => {
                    let back = |s: Step| match s {
                        Step::Permuted { by, inverse } => Step::Permuted { by, inverse: !inverse },
                        other => other,
                    };
                    Some(l.word()?.into_iter().rev().map(back).collect())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// `compose(p, q)`.
    pub(crate) fn composed(&self, then: &List) -> Outcome<List> {
        match (self.loose(), self.word(), then.word()) {
            (Some(base), Some(_), Some(_)) => {
                let lists = [self, then].map(|l| Argument::List(l.clone()));
                let word = Int::from(Atom::Of("word", lists.to_vec()));
                Ok(List::each(Space::loose(base), word))
            }
            (None, None, None) => self.selected(then),
            _ => unsupported("a permutation that is known is composed with one that is not"),
        }
    }

    /// `pick(list, positions)`.
    pub(crate) fn picked(&self, positions: &List) -> Outcome<List> {
        match (positions.name(), positions.loose()) {
            (Some(name), Some(_)) => self.through(Step::Picked(name.clone())),
            _ => self.selected(positions),
        }
    }

    /// The entries at known positions.
    fn selected(&self, positions: &List) -> Outcome<List> {
        let mut out = Vec::new();
        for p in &positions.0 {
            out.push(match permuted_segment(p) {
                // The axes of one segment, in the order of a list of which no more is known.
                Some((space, by)) => {
                    let own = |q: &&Part| matches!(q, Part::Each(s, _) if s == space);
                    let Some(Part::Each(space, entry)) = self.0.iter().find(own) else {
                        return unsupported("positions are none of a segment");
                    };
                    let step = Step::Permuted { by: by.clone(), inverse: false };
                    Part::Each(space.then(step), entry.clone())
                }
                None => self.0[self.part_at(p)?].clone(),
            });
        }
        Ok(List(out))
    }

    fn through(&self, step: Step) -> Outcome<List> {
        match (self.0.as_slice(), step) {
            ([], _) => Ok(List::default()),
            ([Part::Each(space, entry)], step) => {
                let entry = match (woven(entry), &step) {
                    (Some((name, kept, _)), Step::Dropped(by)) if name == by => kept.clone(),
                    (Some((name, _, inserted)), Step::Picked(by)) if name == by => inserted.clone(),
                    _ => entry.clone(),
                };
                Ok(List::each(space.then(step), entry))
            }
            _ => unsupported("a list variable names some of several axes"),
        }
    }

    /// `drop(list, positions)`.
    pub(crate) fn dropped(&self, positions: &List) -> Outcome<List> {
        if let (Some(name), Some(_)) = (positions.name(), positions.loose()) {
            return self.through(Step::Dropped(name.clone()));
        }
        let gone = positions.0.iter().map(|p| self.part_at(p)).collect::<Outcome<Vec<usize>>>()?;
        let kept = self.0.iter().enumerate().filter(|(i, _)| !gone.contains(i));
        Ok(List(kept.map(|(_, p)| p.clone()).collect()))
    }

    /// `weave(kept, inserted, positions)`.
    pub(crate) fn woven(kept: &List, inserted: &List, positions: &List) -> Outcome<List> {
        if let (Some(name), Some(_)) = (positions.name(), positions.loose()) {
            return match (kept.0.as_slice(), inserted.0.as_slice()) {
                ([Part::Each(k, kept)], [Part::Each(i, inserted)])
                    if k.base == i.base
                        && k.path.last() == Some(&Step::Dropped(name.clone()))
                        && i.path.last() == Some(&Step::Picked(name.clone())) =>
                {
                    let path = k.path[..k.path.len() - 1].to_vec();
                    let entry = match kept == inserted {
                        true => kept.clone(),
                        false => Int::from(Atom::Of(
                            "weave",
                            vec![
                                Argument::Name(name.clone()),
                                Argument::Int(kept.clone()),
                                Argument::Int(inserted.clone()),
                            ],
                        )),
                    };
                    Ok(List::each(Space { path, ..k.clone() }, entry))
                }
                _ => unsupported("a list variable names some of several axes"),
            };
        }
        let (mut kept, mut out) = (kept.0.iter(), Vec::new());
        let mut before = Int::from(0);
        let mut left: Vec<(&Part, &Part)> = positions.0.iter().zip(&inserted.0).collect();
        loop {
            let mut next = None;
            for (i, (position, _)) in left.iter().enumerate() {
                if position.first()? == before {
                    next = Some(i);
                }
            }
            let part = match next {
                Some(i) => left.remove(i).1,
                None => match kept.next() {
                    Some(p) => p,
                    None if left.is_empty() => return Ok(List(out)),
                    None => return unsupported("a position is none of an axis that is named"),
                },
            };
            before = small(before.plus(1, &part.length()))?;
            out.push(part.clone());
        }
    }

    /// `inverse(perm)`.
    pub(crate) fn inverse(&self) -> Outcome<List> {
        if let (Some(base), Some(_)) = (self.loose(), self.word()) {
            let inverse = Atom::Of("inverse", vec![Argument::List(self.clone())]);
            return Ok(List::each(Space::loose(base), Int::from(inverse)));
        }
        let mut out = Vec::new();
        let mut before = Int::from(0);
        while out.len() < self.0.len() {
            // Which part of the list says the next position, and where it stands.
            let mut place = Int::from(0);
            let mut found = None;
            for part in &self.0 {
                if permuted_segment(part).is_some() {
                    return unsupported("a permutation is not known");
                }
                if part.first()? == before {
                    let entry = match part {
                        Part::One(_) => Part::One(place.clone()),
                        Part::Each(space, _) => {
                            let own = Int::from(Atom::Position(space.base.clone()));
                            Part::Each(space.clone(), small(own.plus(1, &place))?)
                        }
                    };
                    found = Some(entry);
                }
                place = small(place.plus(1, &part.length()))?;
            }
            let Some(part) = found else { return unsupported("a permutation is not known") };
            before = small(before.plus(1, &part.length()))?;
            out.push(part);
        }
        Ok(List(out))
    }

    /// The list with the single entry at a position changed.
    pub(crate) fn replaced(&self, position: &Int, value: Int) -> Outcome<List> {
        let at = self.part_at(&Part::One(position.clone()))?;
        let mut out = self.clone();
        out.0[at] = Part::One(value);
        Ok(out)
    }

    /// The single entry at a position.
    pub(crate) fn entry(&self, position: &Int) -> Outcome<Int> {
        let at = self.part_at(&Part::One(position.clone()))?;
        Ok(self.0[at].entry().clone())
    }
}

/// The axes of a segment that a part of a list of positions permutes, and by what.
fn permuted_segment(positions: &Part) -> Option<(&Space, &Name)> {
    match positions {
        Part::Each(space, at) if !space.loose => match at.atom() {
            Some(Atom::Attr(by)) => Some((space, by)),
            _ => None,
        },
        _ => None,
    }
}

/// An entry that is one of two lists, whichever has the axis.
fn woven(entry: &Int) -> Option<(&Name, &Int, &Int)> {
    match entry.atom() {
        Some(Atom::Of("weave", args)) => match args.as_slice() {
            [Argument::Name(n), Argument::Int(kept), Argument::Int(inserted)] => {
                Some((n, kept, inserted))
            }
            _ => None,
        },
        _ => None,
    }
}
