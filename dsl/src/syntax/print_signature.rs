//! Prints the signature of an operator as it was declared, on one line.

use super::print_resolved;
use crate::library::{AttrParam, Callable, DTypePattern, Dim, Input, TypePattern};

/// `name(x: F[..b, n], axis: int = -1) -> F[..b]`.
pub fn signature_of(call: &Callable) -> String {
    let inputs = call.inputs.iter().map(input);
    let params = inputs.chain(call.attrs.iter().map(attribute)).collect::<Vec<_>>().join(", ");
    let outputs = call.outputs.iter().map(|(name, ty)| match &**name {
        "" => written(ty),
        name => format!("{name}: {}", written(ty)),
    });
    format!("{}({params}) -> {}", call.name, outputs.collect::<Vec<_>>().join(", "))
}

fn input(i: &Input) -> String {
    let domain = i.domain.as_ref();
    let domain = domain.map(|d| format!(" {} {}", d.op.sign(), print_resolved(&d.bound)));
    format!("{}: {}{}", i.name, written(&i.ty), domain.unwrap_or_default())
}

fn attribute(a: &AttrParam) -> String {
    let of = a.ty.of.as_ref().map(|of| format!("({of})")).unwrap_or_default();
    let default = a.default.as_ref().map(|e| format!(" = {}", print_resolved(e)));
    format!("{}: {}{of}{}", a.name, a.ty.kind, default.unwrap_or_default())
}

fn written(ty: &TypePattern) -> String {
    let dtype = match &ty.dtype {
        DTypePattern::Fixed(d) => d.to_string(),
        DTypePattern::Var(v) => v.to_string(),
    };
    let dim = |d: &Dim| match d {
        Dim::Axis(n) => n.to_string(),
        Dim::Seg(n) => format!("..{n}"),
        Dim::Value(e) => print_resolved(e),
        Dim::Splice(e) => format!("..{}", print_resolved(e)),
    };
    let dims = ty.dims.as_ref().map(|all| all.iter().map(dim).collect::<Vec<_>>().join(", "));
    format!("{dtype}{}", dims.map(|d| format!("[{d}]")).unwrap_or_default())
}
