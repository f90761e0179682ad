//! NumPy's broadcasting: operands as they are become operands of one shape.
//!
//! An axis of an open extent may have one element, or as many as its partners. Which it is, a run decides: such an axis is stretched.

use super::apply::ImportBuilder;
use super::extent_equations::equality_needs;
use super::facts::{bound_to_be_equal, bound_to_broadcast};
use mlc_dsl::ir::{Attr, Common, Extent, Type, Value, common_extent, may_equal};
use mlc_dsl::library::{Callable, Dim};

impl ImportBuilder<'_> {
    /// Broadcasts the leading axes of the arguments, all but the last `trailing[i]`, to a common shape.
    pub(crate) fn align(
        &mut self,
        args: Vec<Value>,
        trailing: Vec<usize>,
    ) -> Result<Vec<Value>, String> {
        let types: Vec<Type> = args.iter().map(|&a| self.builder.ty(a).clone()).collect();
        let mut lead: Vec<Extent> = Vec::new();
        for (ty, t) in types.iter().zip(&trailing) {
            let n = ty.rank().checked_sub(*t);
            let n = n.ok_or_else(|| format!("a tensor of {} axes has too few", ty.rank()))?;
            lead = self.common(&lead, &ty.shape[..n])?;
        }
        let mut out = Vec::with_capacity(args.len());
        for ((v, ty), t) in args.into_iter().zip(types).zip(trailing) {
            let shape: Vec<Extent> =
                lead.iter().chain(&ty.shape[ty.rank() - t..]).cloned().collect();
            let missing = shape.len() - ty.rank();
            let map: Vec<i64> = (0..ty.rank()).map(|i| (i + missing) as i64).collect();
            out.push(self.broadcast(v, &map, shape)?);
        }
        Ok(out)
    }

    /// NumPy's common shape. Extents that must be equal become so by what a symbol is, if one can be.
    fn common(&mut self, a: &[Extent], b: &[Extent]) -> Result<Vec<Extent>, String> {
        let n = a.len().max(b.len());
        let one = Extent::from(1);
        let entry = |list: &[Extent], i: usize| {
            (i + list.len()).checked_sub(n).and_then(|i| list.get(i)).unwrap_or(&one).clone()
        };
        let mut out = Vec::with_capacity(n);
        for (a, b) in (0..n).map(|i| (entry(a, i), entry(b, i))) {
            out.push(match common_extent(&a, &b) {
                Common::Is(e) => {
                    self.needed_fact =
                        bound_to_broadcast(&a, &b).filter(|fact| !self.facts().contains(fact));
                    if self.needed_fact.is_some() {
                        return Err(self.apart(&a, &b));
                    }
                    self.as_assumed(e)
                }
                Common::IfEqual => {
                    self.conflict = equality_needs(&a, &b);
                    self.needed_fact =
                        bound_to_be_equal(&a, &b).filter(|fact| !self.facts().contains(fact));
                    if self.conflict.is_some() || self.needed_fact.is_some() {
                        return Err(self.apart(&a, &b));
                    }
                    b
                }
                Common::Apart => return Err(self.apart(&a, &b)),
            });
        }
        Ok(out)
    }

    /// `v` with its axis `i` at `map[i]` of `shape`. Unit axes are dropped first, so that what is
    /// known of `v`, and that it is a constant, is not lost. An axis of another extent than there has one element, or the extents
    /// are equal: a run decides it.
    pub(crate) fn broadcast(
        &mut self,
        v: Value,
        map: &[i64],
        shape: Vec<Extent>,
    ) -> Result<Value, String> {
        let own = self.builder.ty(v).shape.clone();
        if own == shape {
            return Ok(v);
        }
        let structural = self.builder.structural();
        let (Some(broadcast), Some(reshape)) = (structural.broadcast, structural.reshape) else {
            return Err("the operators `broadcast` and `reshape` are not declared".into());
        };
        let kept: Vec<usize> = (0..own.len()).filter(|&i| !own[i].is(1)).collect();
        let place = |i: usize| kept.iter().find(|&&k| map[k] == i as i64);
        let only_units = (0..shape.len()).all(|i| shape[i].is(1) || place(i).is_some());
        let own_or = |i: usize| place(i).map_or(Extent::from(1), |&k| own[k].clone());
        let (bare, wide): (Vec<Extent>, Vec<Extent>) = match only_units {
            true => ((0..shape.len()).map(own_or).collect(), shape.clone()),
            false => {
                let to = |&k: &usize| usize::try_from(map[k]).ok().and_then(|i| shape.get(i));
                let of = |k: &usize| (own[*k].clone(), to(k).unwrap_or(&own[*k]).clone());
                kept.iter().map(of).unzip()
            }
        };
        let mut v = self.apply_as_is(reshape, &[Some(Attr::Ints(bare.clone()))], &[v])?[0];
        if bare != wide {
            let stretch = structural.stretch.ok_or("`stretch` is not declared")?;
            v = self.apply_as_is(stretch, &[Some(Attr::Ints(wide))], &[v])?[0];
        }
        if only_units {
            return Ok(v);
        }
        let map = Attr::ints(kept.iter().map(|&i| map[i]));
        Ok(self.apply_as_is(broadcast, &[Some(map), Some(Attr::Ints(shape))], &[v])?[0])
    }

    /// An error if two extents differ, or are equal for one value of a symbol only, which then is to be assumed.
    pub(crate) fn equal(&mut self, a: &Extent, b: &Extent) -> Result<(), String> {
        let differ = !may_equal(a, b);
        self.conflict = if a == b || differ { None } else { equality_needs(a, b) };
        match differ || self.conflict.is_some() {
            true => Err(format!("{a} and {b} must be equal")),
            false => Ok(()),
        }
    }

    /// The extent that one has to be for the model to have a meaning.
    fn as_assumed(&self, e: Extent) -> Extent {
        self.assumed().iter().find(|need| need.of == e).map_or(e, |need| need.is.clone())
    }
}

/// How many axes of each input stand behind a leading segment that all share, if they share one:
/// these leading axes broadcast.
pub(crate) fn trailing_axes(call: &Callable) -> Option<Vec<usize>> {
    if call.inputs.len() < 2 {
        return None;
    }
    let mut lead = None;
    let mut out = Vec::with_capacity(call.inputs.len());
    for input in &call.inputs {
        let [Dim::Seg(s), rest @ ..] = input.ty.dims.as_deref()? else { return None };
        if *lead.get_or_insert(s) != s || !rest.iter().all(|d| matches!(d, Dim::Axis(_))) {
            return None;
        }
        out.push(rest.len());
    }
    Some(out)
}
