//! Valid ranges of integer inputs: integers that are used as indices must lie within the axes that they index.
//!
//! Ranges are propagated backwards through the meanings of operators to the inputs. If two unconstrained values meet in a sum, a
//! difference or a product, each gets a part of the range. Neither exact nor complete: unknown constructs impose no range.
//! Never refers to an operator by name.

use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Monoid, UnaryOp};
use mlc_dsl::ir::{Extent, Node, NodeKind, Program, Value};
use mlc_dsl::library::{CallKind, DTypePattern, Library, OpClass};
use std::collections::HashMap;

/// Larger constants are not looked at.
const CONSTANT: usize = 1 << 16;

/// Whole numbers from one to another, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn point(v: f64) -> Range {
        Range { low: v, high: v }
    }

    /// The whole numbers in between; `None` if there are none.
    fn whole(low: f64, high: f64) -> Option<Range> {
        let (low, high) = (low.ceil(), high.floor());
        (low <= high).then_some(Range { low, high })
    }

    fn has_zero(self) -> bool {
        self.low <= 0.0 && 0.0 <= self.high
    }

    /// What two ranges have in common, or else the one that zero lies in.
    fn meet(self, other: Range) -> Range {
        let both = Range::whole(self.low.max(other.low), self.high.min(other.high));
        both.unwrap_or(if other.has_zero() && !self.has_zero() { other } else { self })
    }

    fn join(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// The range of results from operands of two ranges.
    fn corners(self, other: Range, f: impl Fn(f64, f64) -> f64) -> Range {
        let (a, b) = (self, other);
        let all = [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
        Range {
            low: all.into_iter().fold(f64::INFINITY, f64::min),
            high: all.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// What may be multiplied by all of `by` without leaving this range.
    fn divided(self, by: Range) -> Option<Range> {
        if by.low == by.high && by.low != 0.0 {
            let (a, b) = (self.low / by.low, self.high / by.low);
            return Range::whole(a.min(b), a.max(b));
        }
        let most = by.low.abs().max(by.high.abs());
        if !self.has_zero() || most == 0.0 {
            return None;
        }
        if by.low >= 0.0 {
            return Range::whole(self.low / most, self.high / most);
        }
        let reach = self.high.min(-self.low) / most;
        Range::whole(-reach, reach)
    }
}

/// The least and the largest number of each input whose elements decide what is read. `known` tells extents.
pub(crate) fn ranges(
    program: &Program,
    library: &Library,
    known: &dyn Fn(&Extent) -> Option<i64>,
) -> HashMap<u32, (i64, i64)> {
    let mut pass = Pass { program, library, known, spans: vec![], wanted: vec![] };
    for node in &program.nodes {
        let span = pass.span_of(node);
        pass.spans.push(span);
    }
    pass.wanted = vec![None; program.nodes.len()];
    let mut out: HashMap<u32, (i64, i64)> = HashMap::new();
    for i in (0..program.nodes.len()).rev() {
        let node = &program.nodes[i];
        if let Some(range) = pass.selected(node) {
            pass.want(node.args[1], range);
        }
        let Some(range) = pass.wanted[i] else { continue };
        if let NodeKind::Input(input) = node.kind {
            out.insert(input, (range.low as i64, range.high as i64));
        } else if let Some(reading) = RangeReader::of(node, library) {
            pass.demand(&reading, reading.meaning, range);
        }
    }
    out
}

/// An application of an operator with one meaning.
struct RangeReader<'a> {
    node: &'a Node,
    meaning: &'a Expr,
}

impl<'a> RangeReader<'a> {
    fn of(node: &'a Node, library: &'a Library) -> Option<RangeReader<'a>> {
        let NodeKind::Apply(call, _) = &node.kind else { return None };
        let callee = library.call(*call);
        let CallKind::Op(meanings) = &callee.kind else { return None };
        let [meaning] = meanings.as_slice() else { return None };
        Some(RangeReader { node, meaning: &meaning.value })
    }

    fn argument(&self, input: usize) -> Option<Value> {
        self.node.args.get(input).copied()
    }
}

struct Pass<'a> {
    program: &'a Program,
    library: &'a Library,
    known: &'a dyn Fn(&Extent) -> Option<i64>,
    /// Where the elements of each node's first output lie, whatever the inputs are.
    spans: Vec<Option<Range>>,
    /// Where they should lie.
    wanted: Vec<Option<Range>>,
}

impl Pass<'_> {
    fn want(&mut self, v: Value, range: Range) {
        if v.output == 0 {
            let slot = &mut self.wanted[v.node.0 as usize];
            *slot = Some(slot.map_or(range, |old| old.meet(range)));
        }
    }

    /// The positions that an operator selects from whose second argument names them.
    fn selected(&self, node: &Node) -> Option<Range> {
        let NodeKind::Apply(call, attrs) = &node.kind else { return None };
        let c = self.library.call(*call);
        let names = |d: &DTypePattern| matches!(d, DTypePattern::Var(v) if v.starts_with('I'));
        let selects = c.class == OpClass::Movement && c.inputs.len() == 2;
        if !selects || !names(&c.inputs[1].ty.dtype) {
            return None;
        }
        let axis = attrs.first().and_then(|a| a.as_i64()).unwrap_or(0) as usize;
        let extent = self.program.ty(node.args[0]).shape.get(axis).and_then(self.known);
        Some(Range { low: 0.0, high: (extent.unwrap_or(1) - 1).max(0) as f64 })
    }

    fn elements(&self, v: Value) -> Option<f64> {
        let shape = &self.program.ty(v).shape;
        shape.iter().try_fold(1.0, |n, e| Some(n * (self.known)(e)? as f64))
    }

    fn span_of(&self, node: &Node) -> Option<Range> {
        if let NodeKind::Const(id) = node.kind {
            let t = self.program.consts.get(id);
            let values = if t.len() <= CONSTANT { t.to_f64() } else { vec![] };
            let spans = values.into_iter().map(Range::point);
            return spans.reduce(Range::join).filter(|r| r.low.is_finite() && r.high.is_finite());
        }
        let reading = RangeReader::of(node, self.library)?;
        self.span(&reading, reading.meaning)
    }

    /// Where the elements that an expression stands for lie, if that is known.
    fn span(&self, at: &RangeReader<'_>, e: &Expr) -> Option<Range> {
        let of = |e: &Expr| self.span(at, e);
        match &e.kind {
            ExprKind::Int(v) => Some(Range::point(*v as f64)),
            ExprKind::Float(v) => Some(Range::point(*v)),
            ExprKind::Read(r) => {
                let v = at.argument(r.input).filter(|v| v.output == 0)?;
                let inside = self.spans[v.node.0 as usize]?;
                r.otherwise.as_ref().map_or(Some(inside), |o| Some(inside.join(of(o)?)))
            }
            ExprKind::Unary(UnaryOp::Neg, a) => of(a).map(|a| Range { low: -a.high, high: -a.low }),
            ExprKind::Binary(BinaryOp::Add, a, b) => Some(of(a)?.corners(of(b)?, |a, b| a + b)),
            ExprKind::Binary(BinaryOp::Sub, a, b) => Some(of(a)?.corners(of(b)?, |a, b| a - b)),
            ExprKind::Binary(BinaryOp::Mul, a, b) => Some(of(a)?.corners(of(b)?, |a, b| a * b)),
            ExprKind::If { then, otherwise, .. } => Some(of(then)?.join(of(otherwise)?)),
            ExprKind::Call(f, args) => match (f, args.as_slice()) {
                (Function::Cast, [x, ..]) => of(x),
                (Function::Maximum, [a, b]) => Some(of(a)?.corners(of(b)?, f64::max)),
                (Function::Minimum, [a, b]) => Some(of(a)?.corners(of(b)?, f64::min)),
                _ => None,
            },
            ExprKind::Reduce(r) if is_extreme(r.monoid) => of(&r.body),
            _ => None,
        }
    }

    /// Asks of the arguments what brings the expression into a range.
    fn demand(&mut self, at: &RangeReader<'_>, e: &Expr, range: Range) {
        let parts: Vec<(&Expr, Option<Range>)> = match &e.kind {
            ExprKind::Read(r) => {
                if let Some(v) = at.argument(r.input) {
                    self.want(v, range);
                }
                vec![]
            }
            ExprKind::Unary(UnaryOp::Neg, a) => vec![(a, Range::whole(-range.high, -range.low))],
            ExprKind::Binary(op, a, b) => {
                let (of_a, of_b) = operands(*op, range, self.span(at, a), self.span(at, b));
                vec![(a, of_a), (b, of_b)]
            }
            ExprKind::If { then, otherwise, .. } => {
                vec![(then, Some(range)), (otherwise, Some(range))]
            }
            ExprKind::Call(f, args) => match (f, args.as_slice()) {
                (Function::Cast, [x, ..]) => vec![(x, Some(range))],
                (Function::Maximum | Function::Minimum, [a, b]) => {
                    vec![(a, Some(range)), (b, Some(range))]
                }
                _ => vec![],
            },
            ExprKind::Reduce(r) if is_extreme(r.monoid) => vec![(&r.body, Some(range))],
            ExprKind::Reduce(r) if r.monoid == Monoid::Sum => {
                vec![(&r.body, self.summands(at, range))]
            }
            _ => vec![],
        };
        for (part, range) in parts {
            if let Some(range) = range {
                self.demand(at, part, range);
            }
        }
    }

    /// The range of each summand of a reduction.
    fn summands(&self, at: &RangeReader<'_>, range: Range) -> Option<Range> {
        let result = at.node.types.first()?.shape.iter().map(self.known);
        let result = result.collect::<Option<Vec<i64>>>()?.into_iter().product::<i64>() as f64;
        let count = self.elements(*at.node.args.first()?)? / result.max(1.0);
        range.divided(Range { low: 0.0, high: count.max(1.0) })
    }
}

fn is_extreme(monoid: Monoid) -> bool {
    matches!(monoid, Monoid::Max | Monoid::Min)
}

/// The ranges of two operands whose result is to lie in one; `spans` is what is known of them.
fn operands(
    op: BinaryOp,
    range: Range,
    a: Option<Range>,
    b: Option<Range>,
) -> (Option<Range>, Option<Range>) {
    let Range { low, high } = range;
    let half = ((high - low) / 2.0).floor();
    match (op, a, b) {
        (BinaryOp::Add, _, Some(b)) => (Range::whole(low - b.low, high - b.high), None),
        (BinaryOp::Add, Some(a), None) => (None, Range::whole(low - a.low, high - a.high)),
        (BinaryOp::Add, None, None) => {
            let part = Range::whole(low / 2.0, high / 2.0);
            (part, part)
        }
        (BinaryOp::Sub, _, Some(b)) => (Range::whole(low + b.high, high + b.low), None),
        (BinaryOp::Sub, Some(a), None) => (None, Range::whole(a.high - high, a.low - low)),
        (BinaryOp::Sub, None, None) => (Range::whole(low + half, high), Range::whole(0.0, half)),
        (BinaryOp::Mul, _, Some(b)) => (range.divided(b), None),
        (BinaryOp::Mul, Some(a), None) => (None, range.divided(a)),
        (BinaryOp::Mul, None, None) if range.has_zero() => {
            let part = Range::whole(0.0, high.sqrt());
            (part, part)
        }
        _ => (None, None),
    }
}
