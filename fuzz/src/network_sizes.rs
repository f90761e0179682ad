//! Applications of operators at sizes typical of networks, generated from the signatures only.
//!
//! Proposes types and attributes; the builder decides whether they are well-typed. Refers to no operator by name.

use crate::generate::words;
use crate::signature::{CallDraft, ExtentPool, Signature, Words};
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::{Attr, Type};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::random::Random;

/// Draws applications.
pub struct NetworkSizes<'a> {
    library: &'a Library,
    words: Words,
}

/// Types of the arguments, and attributes in declared order; `None` takes the default.
pub type Application = (Vec<Type>, Vec<Option<Attr>>);

impl<'a> NetworkSizes<'a> {
    /// For the operators of a library.
    pub fn new(library: &'a Library) -> NetworkSizes<'a> {
        NetworkSizes { library, words: words(library) }
    }

    /// An application of an operator whose extents are of `pool`, or follow from such.
    pub fn draw(&self, call: CallId, pool: &[i64], rng: &mut Random) -> Option<Application> {
        let extents = ExtentPool::large(pool.to_vec());
        let sig = Signature::from(self.library.call(call));
        let mut draft = CallDraft::new(sig);
        draft.close(&extents, rng);
        let mut types = Vec::with_capacity(sig.inputs.len());
        for (i, input) in sig.inputs.iter().enumerate() {
            let ty = draft.wanted(i, &extents, rng)?;
            draft.env.bind_tensor(&input.name, ty.clone());
            types.push(ty);
        }
        draft.attributes(&self.words, rng)?;
        let mut attrs = draft.attrs;
        let is_empty = |a: &Attr| a.as_i64s().is_some_and(|v| v.is_empty());
        let pairs = || sig.attrs.iter().zip(&attrs);
        if pairs().any(|(p, a)| p.ty.kind == AttrKind::Axes && a.as_ref().is_some_and(is_empty)) {
            return None;
        }
        if rng.chance(0.8) {
            // Windows, strides and margins are mostly the same along all axes.
            let kinds = sig.attrs.iter().map(|p| p.ty.kind == AttrKind::Ints);
            for (a, _) in attrs.iter_mut().zip(kinds).filter(|(_, is_list)| *is_list) {
                let least = rng.chance(0.5);
                a.iter_mut().for_each(|a| level(a, least));
            }
        }
        Some((types, attrs))
    }
}

/// A list of small numbers with equal entries: the first one, or the least.
fn level(a: &mut Attr, least: bool) {
    if let Attr::Ints(list) = a
        && let Some(first) = list.first().and_then(|e| e.as_const())
        && list.iter().all(|e| e.as_const().is_some_and(|v| (0..4).contains(&v)))
    {
        let all = list.iter().filter_map(|e| e.as_const());
        let entry = if least { all.min().unwrap_or(first) } else { first };
        *a = Attr::ints(vec![entry; list.len()]);
    }
}
