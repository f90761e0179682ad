//! Constants against tables: what a law computes from extents and attributes alone stands in programs as a constant.

use super::{Matcher, PartialMatch};
use crate::constants::evaluation;
use crate::constants::folding::fold;
use crate::graph::Graph;
use crate::graph::language::{ConstantValue, Head};
use egg::Id;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, Extent, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallId, OpClass};
use mlc_dsl::pattern::Table;

/// Views that a constant is looked for behind.
pub(crate) const VIEWS: usize = 4;

/// Elements of a table, at most.
const ELEMENTS: usize = 1 << 22;

/// Elements that are computed to find the integer of a table, at most.
const SOUGHT: usize = 1 << 24;

/// Integers of a table up to here are all tried.
const FEW: usize = 64;

impl Matcher<'_> {
    /// True if every constant that was matched as a table has its elements. An integer that the tables alone ask for is
    /// bound to the least one that makes it so.
    pub(crate) fn tables_agree(&self, st: &mut PartialMatch) -> bool {
        let PartialMatch { env, tables, .. } = st;
        let found = tables.iter().map(|(_, class)| elements(self.graph, *class, VIEWS));
        let Some(found) = found.collect::<Option<Vec<Tensor>>>() else { return false };
        let agree = |env: &Env| {
            let pairs = tables.iter().zip(&found);
            pairs
                .into_iter()
                .all(|((t, _), found)| self.table(t, env).is_some_and(|w| same(found, &w)))
        };
        let Some(name) = &self.compiled.sought else { return agree(env) };
        let size: usize = found.iter().map(Tensor::len).sum();
        let most = found.iter().flat_map(|t| t.shape()).max().copied().unwrap_or(0);
        for value in candidates(most).take(SOUGHT / size.max(1)) {
            let mark = env.mark();
            if env.bind_attr(name, Attr::int(value as i64)) && agree(env) {
                return true;
            }
            env.rollback(mark);
        }
        false
    }

    /// The elements of a table, if what it depends on is known.
    fn table(&self, table: &Table, env: &Env) -> Option<Tensor> {
        let library = &self.graph.library;
        let mut b = Builder::new(library);
        let v = table.instantiate(&mut b, self.graph.structural, &self.law.terms, env).ok()?;
        let program = fold(&b.finish(vec![("table".into(), v)]), library).ok()?;
        self.unfolded(&program, program.outputs.first()?.1, VIEWS)
    }

    /// A constant of a program; views that enlarge one stand before it.
    fn unfolded(&self, program: &Program, v: Value, views: usize) -> Option<Tensor> {
        if let Some(t) = program.as_const(v) {
            return Some(t.clone());
        }
        let node = program.node(v.node);
        let (NodeKind::Apply(call, attrs), [arg]) = (&node.kind, node.args.as_slice()) else {
            return None;
        };
        let attrs = one_period(self.graph, *call, attrs, &program.ty(v).shape)?;
        let inner = self.unfolded(program, *arg, views.checked_sub(1)?)?;
        let (library, structural) = (&self.graph.library, self.graph.structural);
        let made = evaluation::values(library, structural, *call, &attrs, &[&inner]);
        made.ok()?.into_iter().next()
    }
}

/// What an integer of a table may be, where the longest axis has `most` places: every number up to [`FEW`], then powers of two.
fn candidates(most: usize) -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS).map(|k| 1 << k).filter(|&p| p > FEW);
    (0..=FEW.min(most)).chain(powers.take_while(move |&p| p <= most))
}

/// The elements of a class that is a constant, or views of one.
fn elements(graph: &Graph, class: Id, views: usize) -> Option<Tensor> {
    match graph.facts(class).value {
        Some(ConstantValue::Single(c)) => return Some(graph.consts.get(c).clone()),
        Some(ConstantValue::PerCopy(_)) => return None,
        None => {}
    }
    let (shape, views) = (&graph.type_of(class).shape, views.checked_sub(1)?);
    graph.egg[class].nodes.iter().find_map(|n| {
        let Head::Apply(call, attrs) = n.head else { return None };
        let [arg] = *n.args else { return None };
        if graph.library.call(call).class != OpClass::View || !graph.facts(arg).is_constant {
            return None;
        }
        let attrs = one_period(graph, call, graph.attrs(attrs), shape)?;
        let inner = elements(graph, arg, views)?;
        let made = evaluation::values(&graph.library, graph.structural, call, &attrs, &[&inner]);
        made.ok()?.into_iter().next()
    })
}

/// The attributes of a view with which it is computed, where it has at most [`ELEMENTS`]. A broadcast along axes of unknown
/// extent repeats one value, so that one period says all: each such axis has one place.
fn one_period(graph: &Graph, call: CallId, attrs: &[Attr], shape: &[Extent]) -> Option<Vec<Attr>> {
    let period: Vec<i64> = shape.iter().map(|d| d.as_const().unwrap_or(1)).collect();
    if period.iter().try_fold(1, |n: i64, d| n.checked_mul(*d)).is_none_or(|n| n > ELEMENTS as i64)
    {
        return None;
    }
    if shape.iter().all(|d| d.as_const().is_some()) {
        return Some(attrs.to_vec());
    }
    let [map, _] = attrs else { return None };
    (graph.structural.broadcast == Some(call)).then(|| vec![map.clone(), Attr::ints(period)])
}

/// True if two constants differ by the rounding of their elements: by two units in the last place of an element, or of the largest one
/// where that is below one. A mask's huge elements give small ones no room.
fn same(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return false;
    }
    if !a.dtype().is_float() {
        return (0..a.len()).all(|i| a.get_f64(i) == b.get_f64(i));
    }
    let finite = (0..b.len()).map(|i| b.get_f64(i).abs()).filter(|v| v.is_finite());
    let least = finite.fold(0.0, f64::max).min(1.0);
    let unit = 4.0 * a.dtype().unit_roundoff();
    (0..a.len()).all(|i| {
        let (a, b) = (a.get_f64(i), b.get_f64(i));
        a == b
            || a.is_nan() && b.is_nan()
            || a.is_finite() && b.is_finite() && (a - b).abs() <= unit * b.abs().max(least)
    })
}
