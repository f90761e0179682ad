//! What the factors of products read as it is in memory, through views, and where it leaves what is there.

use super::emit::{Emitter, offset_of};
use super::kernel::KernelProgram;
use mlc_backends::reference::code::{Affine, Real};
use mlc_backends::reference::compile::Body;
use mlc_dsl::ir::Value;

/// An element of a value in memory: at this offset where all positions are within their extents, and 0 elsewhere.
pub struct InMemory {
    pub value: Value,
    pub offset: Affine,
    pub inside: Vec<(Affine, i64)>,
}

/// Whether a float is 0, without its sign.
fn is_zero(kernel: &KernelProgram, of: Value, r: &Real) -> bool {
    match r {
        Real::Const(v) => v.to_bits() == 0,
        Real::Read(read) => {
            let source = kernel.program.node(of.node).args.get(read.input);
            let constant = source.and_then(|s| kernel.constant(*s));
            constant.is_some_and(|t| !t.is_empty() && t.get_f64(0).to_bits() == 0)
        }
        _ => false,
    }
}

/// The element that a float of a value's code is, if it is one.
pub fn in_memory(e: &mut Emitter<'_>, of: Value, r: &Real) -> Option<InMemory> {
    behind(e, of, r, &[])
}

/// The same of what is read only where these positions are within their extents.
fn behind(e: &mut Emitter<'_>, of: Value, r: &Real, within: &[(Affine, i64)]) -> Option<InMemory> {
    let kernel = e.kernel();
    let Real::Read(read) = r else { return None };
    let source = *kernel.program.node(of.node).args.get(read.input)?;
    let checked = read.fast.iter().flat_map(|f| &f.checked).map(|(i, _, n)| (i.clone(), *n));
    let mut inside: Vec<(Affine, i64)> = checked.filter(|c| !within.contains(c)).collect();
    match &read.otherwise {
        None if inside.is_empty() => {}
        // Without bounds that are affine, the index may leave them.
        Some(other) if read.fast.is_some() && is_zero(kernel, of, other) => {}
        _ => return None,
    }
    if e.stored.contains_key(&source) && kernel.constant(source).is_none() {
        let shape: Vec<usize> = read.shape.iter().map(|&n| n as usize).collect();
        let offset = match &read.fast {
            Some(fast) => fast.offset.clone(),
            None => offset_of(&shape, &read.index)?,
        };
        return Some(InMemory { value: source, offset, inside });
    }
    let Body::Real(next) = e.placed(source, &read.index)? else { return None };
    let all = [within, &inside].concat();
    let mut found = behind(e, source, &next, &all)?;
    inside.append(&mut found.inside);
    Some(InMemory { inside, ..found })
}
