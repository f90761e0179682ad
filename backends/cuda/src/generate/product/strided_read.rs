//! Factors of products that are strided reads of memory, through views, and where such a read leaves the tensor.

use super::super::emit::{Emitter, offset_read};
use super::super::kernel::KernelProgram;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Real};
use mlc_dsl::ir::Value;

/// An element of a value in memory: at this offset where all positions are within their extents, and a number elsewhere.
pub struct StridedRead {
    pub value: Value,
    pub offset: Affine,
    pub inside: Vec<(Affine, i64)>,
    pub outside: Option<f64>,
}

/// The number that a float is, if it is one whatever is in memory.
pub fn number(kernel: &KernelProgram, of: Value, r: &Real) -> Option<f64> {
    match r {
        Real::Const(v) => Some(*v),
        Real::Read(read) => {
            let source = kernel.program.node(of.node).args.get(read.input)?;
            let tensor = kernel.constant(*source)?;
            tensor.splat().map(|_| tensor.get_f64(0))
        }
        _ => None,
    }
}

/// The element that a float of a value's code is, if it is one, or 0 outside of what is there.
pub fn in_memory(e: &mut Emitter<'_>, of: Value, r: &Real) -> Option<StridedRead> {
    or_number(e, of, r).filter(|found| found.outside.is_none_or(|n| n.to_bits() == 0))
}

/// The element that a float of a value's code is, if it is one, or a number outside of what is there.
pub fn or_number(e: &mut Emitter<'_>, of: Value, r: &Real) -> Option<StridedRead> {
    behind(e, of, r, &[])
}

/// The same of what is read only where these positions are within their extents.
fn behind(
    e: &mut Emitter<'_>,
    of: Value,
    r: &Real,
    within: &[(Affine, i64)],
) -> Option<StridedRead> {
    let kernel = e.kernel();
    let Real::Read(read) = r else { return None };
    let source = *kernel.program.node(of.node).args.get(read.input)?;
    let checked = read.fast.iter().flat_map(|f| &f.checked).map(|(i, _, n)| (i.clone(), *n));
    let mut inside: Vec<(Affine, i64)> = checked.filter(|c| !within.contains(c)).collect();
    let outside = match &read.otherwise {
        None if inside.is_empty() => None,
        // Without bounds that are affine, the index may leave them.
        Some(other) if read.fast.is_some() => Some(number(kernel, of, other)?),
        _ => return None,
    };
    let outside = outside.filter(|_| !inside.is_empty());
    if e.stored.contains_key(&source) && kernel.constant(source).is_none() {
        let offset = match &read.fast {
            Some(fast) => fast.offset.clone(),
            None => offset_read(read)?,
        };
        return Some(StridedRead { value: source, offset, inside, outside });
    }
    let Body::Real(next) = e.body_at(source, &read.index)? else { return None };
    let all = [within, &inside].concat();
    let found = behind(e, source, &next, &all)?;
    let differ = outside.zip(found.outside).is_some_and(|(a, b)| a.to_bits() != b.to_bits());
    inside.extend(found.inside);
    (!differ).then(|| StridedRead { inside, outside: outside.or(found.outside), ..found })
}
