//! Epilogues that libraries can fuse into a product: an added tensor, a bias and an activation.

use super::super::emit::{Emitter, offset_of};
use super::super::kernel::KernelProgram;
use super::Product;
use super::gelu_tanh;
use super::strided_read::{in_memory, number};
use crate::matrix_product::Activation;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Read, Real};
use mlc_backends::reference::scalar::RealOp;
use mlc_dsl::ir::Value;

/// The epilogue of a product.
#[derive(Default)]
pub struct Epilogue {
    /// A residual of the same extents.
    pub added: Option<Value>,
    /// A bias for each channel.
    pub bias: Option<Value>,
    /// The activation of the sum.
    pub activation: Option<Activation>,
    /// How often the product is a term of the sum.
    products: usize,
}

impl Epilogue {
    /// The epilogue by which `v` follows from a product at the same index; `is_bias` tells the offsets of a bias.
    pub fn recognise(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        p: &Product,
        is_bias: &dyn Fn(&Affine) -> bool,
    ) -> Option<Epilogue> {
        let mut out = Epilogue::default();
        if v == p.value {
            out.products = 1;
            return Some(out);
        }
        if let Some(inner) = gelu_tanh::argument(e, v, p) {
            out = Epilogue::recognise(e, kernel, inner, p, is_bias)?;
            let is_first = out.activation.replace(Activation::GeluTanh).is_none();
            return is_first.then_some(out);
        }
        let Body::Real(body) = e.body_at(v, &p.index)? else { return None };
        let (of, body) = unfolded(e, v, body, p)?;
        let rectified = zero_or_more(e, of, &body, p);
        out.activation = rectified.map(|_| Activation::Relu);
        EpilogueFinder { e, kernel, v, p, is_bias }.terms(
            of,
            rectified.unwrap_or(&body),
            &mut out,
        )?;
        (out.products == 1).then_some(out)
    }
}

/// The value that is read, if nothing stands in for what is outside of it.
pub fn source(kernel: &KernelProgram, of: Value, read: &Read<Real>) -> Option<Value> {
    let is_bounded = read.fast.as_ref().is_some_and(|f| !f.checked.is_empty());
    let source = kernel.program.node(of.node).args.get(read.input).copied();
    source.filter(|_| read.otherwise.is_none() && !is_bounded)
}

/// A float, or what it reads that is computed here, with the value whose code it is of.
fn unfolded(e: &mut Emitter<'_>, of: Value, r: Real, p: &Product) -> Option<(Value, Real)> {
    let kernel = e.kernel();
    let Real::Read(read) = &r else { return Some((of, r)) };
    let Some(next) = source(kernel, of, read) else { return Some((of, r)) };
    if next == p.value || e.stored.contains_key(&next) || kernel.constant(next).is_some() {
        return Some((of, r));
    }
    match e.body_at(next, &read.index) {
        Some(Body::Real(inner)) => unfolded(e, next, inner, p),
        _ => None,
    }
}

/// Whether a float is 0.
fn is_zero(e: &mut Emitter<'_>, of: Value, r: &Real, p: &Product) -> bool {
    let kernel = e.kernel();
    let inner = unfolded(e, of, r.clone(), p);
    inner.and_then(|(of, r)| number(kernel, of, &r)).is_some_and(|v| v == 0.0)
}

/// What a float is the larger one of, the other one being 0.
fn zero_or_more<'r>(e: &mut Emitter<'_>, of: Value, r: &'r Real, p: &Product) -> Option<&'r Real> {
    let Real::Binary(RealOp::Max, a, b) = r else { return None };
    match [a, b].map(|side| is_zero(e, of, side, p)) {
        [false, true] => Some(a),
        [true, false] => Some(b),
        _ => None,
    }
}

struct EpilogueFinder<'f, 'k> {
    e: &'f mut Emitter<'k>,
    kernel: &'f KernelProgram,
    v: Value,
    p: &'f Product,
    is_bias: &'f dyn Fn(&Affine) -> bool,
}

impl EpilogueFinder<'_, '_> {
    /// Adds the terms of a sum.
    fn terms(&mut self, of: Value, r: &Real, out: &mut Epilogue) -> Option<()> {
        let (of, r) = unfolded(self.e, of, r.clone(), self.p)?;
        if let Real::Binary(RealOp::Add, a, b) = &r {
            self.terms(of, a, out)?;
            return self.terms(of, b, out);
        }
        let own = offset_of(&self.p.shape, &self.p.index)?;
        if let Real::Read(read) = &r
            && source(self.kernel, of, read) == Some(self.p.value)
        {
            out.products += 1;
            return (offset_of(&self.p.shape, &read.index)? == own).then_some(());
        }
        let found = in_memory(self.e, of, &r)?;
        let dtype = |v: Value| self.kernel.program.ty(v).dtype;
        if !found.inside.is_empty()
            || found.offset.constant != 0
            || dtype(found.value) != dtype(self.v)
        {
            return None;
        }
        let free = match (self.is_bias)(&found.offset) {
            true => &mut out.bias,
            false if found.offset == own => &mut out.added,
            false => return None,
        };
        free.replace(found.value).is_none().then_some(())
    }
}
