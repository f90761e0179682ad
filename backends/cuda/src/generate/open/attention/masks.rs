//! Masks between the product and the softmax, by which tiles of keys are skipped, as for known extents.

use super::Follower;
use crate::generate::emit::NodeScope;
use crate::generate::flash_attention::masked_tiles::{self, FAR, LOWEST, MOST};
use crate::generate::open::emitter::{ElementAt, OpenEmitter};
use crate::generate::spelling as spell;
use mlc_backends::reference::code::{Real, Truth};
use mlc_backends::reference::scalar::RealOp;
use mlc_dsl::ir::Value;

/// A mask of scores, in the code of an element.
enum Mask {
    /// A condition, and its value where the element is not masked.
    Condition(ElementAt, Truth, bool),
    /// An additive mask.
    Term(ElementAt, Real),
}

/// The masks of scores.
pub struct Masks {
    all: Vec<Mask>,
    /// Upper bound of masked scores.
    pub largest: f64,
}

impl Masks {
    /// The masks between this product and the scores, if there are any.
    pub fn recognise(e: &mut OpenEmitter<'_>, scores: &ElementAt, inner: Value) -> Option<Masks> {
        let mut masks = Masks { all: vec![], largest: f64::NEG_INFINITY };
        let mut at = scores.clone();
        let (mut factor, mut has_term) = (1.0, false);
        while at.0 != inner && masks.all.len() < MOST {
            let Some((place, code)) = (Follower { e: &mut *e }).code(at) else { break };
            let kernel = e.kernel;
            let body = |v| kernel.code(v).map(|c| &c.body);
            let number = |of, r: &Real| masked_tiles::number(&kernel.program, &body, of, r);
            let leads = |e: &mut OpenEmitter<'_>, r: &Real| {
                let found = e.analyse(|e| {
                    e.part_of_code(place.0, &place.1, &[], |e, scope| drop(scope.real(e, r)));
                });
                !found.is_empty()
            };
            let next = match &code {
                Real::If(condition, then, otherwise) => {
                    let counts = leads(e, then);
                    let (rest, low) = if counts { (then, otherwise) } else { (otherwise, then) };
                    let Some(low) = number(place.0, low).map(|n| n * factor) else { break };
                    if low > if has_term { LOWEST } else { -FAR } || low.is_nan() {
                        break;
                    }
                    masks.all.push(Mask::Condition(place.clone(), (**condition).clone(), counts));
                    masks.largest = masks.largest.max(low);
                    rest
                }
                Real::Binary(RealOp::Add, a, b) => {
                    let (rest, term) = if leads(e, a) { (a, b) } else { (b, a) };
                    if leads(e, term) {
                        break;
                    }
                    masks.all.push(Mask::Term(place.clone(), (**term).clone()));
                    masks.largest = masks.largest.max(LOWEST);
                    has_term = true;
                    rest
                }
                Real::Binary(op @ (RealOp::Mul | RealOp::Div), a, b) => {
                    let (rest, by) = if leads(e, a) { (a, b) } else { (b, a) };
                    let by = number(place.0, by).filter(|n| *n > 0.0 && n.is_finite());
                    match (op, by) {
                        (RealOp::Mul, Some(n)) => factor *= n,
                        (RealOp::Div, Some(n)) if std::ptr::eq(rest, a) => factor /= n,
                        _ => break,
                    }
                    rest
                }
                _ => break,
            };
            match (Follower { e: &mut *e }).read(&place, &[], next) {
                Some(read) => at = read,
                None => break,
            }
        }
        // Terms that are scaled behind the product are smaller by the factor.
        if has_term && factor < 1.0 {
            masks.largest = masks.largest.max(LOWEST * factor);
        }
        (!masks.all.is_empty()).then_some(masks)
    }

    /// Whether an element is not masked.
    pub fn counts(&self, e: &mut OpenEmitter<'_>) -> String {
        let single = |scope: NodeScope| NodeScope { double: false, ..scope };
        let one = |mask: &Mask| match mask {
            Mask::Condition((of, index), truth, counts) => {
                let text =
                    e.part_of_code(*of, index, &[], |e, scope| single(scope).truth(e, truth));
                if *counts { text } else { format!("!{text}") }
            }
            Mask::Term((of, index), term) => {
                let term = e.part_of_code(*of, index, &[], |e, scope| single(scope).real(e, term));
                // Not below: what is not a number counts.
                format!("!({term} <= {})", spell::float(LOWEST, false))
            }
        };
        format!("({})", self.all.iter().map(one).collect::<Vec<_>>().join(" && "))
    }
}
