//! Binds the names of an `onnx` item at one node.

use super::apply::ImportBuilder;
use crate::raw::tensor;
use crate::raw::{RawAttr, RawNode};
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::ir::{Attr, Extent, Type, Value};
use mlc_dsl::library::{Name, OnnxItem};
use mlc_dsl::onnx::{Kind, Param, ParamKind};
use mlc_dsl::shape_values::KnownElement;
use mlc_dsl::shown;
use std::collections::HashMap;

/// An input or a tensor attribute.
#[derive(Clone, Debug)]
pub(crate) enum BoundInput {
    /// A tensor.
    One(Value),
    /// All remaining inputs.
    Many(Vec<Value>),
    /// A tensor that is not given.
    Absent,
    /// An attribute, or an input read as one, that is not given.
    Unset,
}

/// The names of one node.
#[derive(Debug, Default)]
pub(crate) struct BoundParams {
    /// Tensors.
    pub inputs: HashMap<Name, BoundInput>,
    /// Attributes, and the types of tensors.
    pub env: Env,
}

/// Binds inputs, constants and attributes of `node` to the parameters of `item`.
pub(crate) fn bind(
    item: &OnnxItem,
    node: &RawNode,
    inputs: &[Option<Value>],
    draft: &mut ImportBuilder<'_>,
) -> Result<BoundParams, String> {
    let mut bound = BoundParams::default();
    let mut rest = inputs;
    let mut next = || {
        let v = rest.first().copied().flatten();
        rest = rest.get(1..).unwrap_or_default();
        v
    };
    for p in &item.decl.params {
        let name = p.name.clone();
        match &p.kind {
            ParamKind::Tensor { variadic: true, .. } => {
                let mut all = Vec::new();
                while let Some(v) = next() {
                    all.push(v);
                }
                bound.inputs.insert(name, BoundInput::Many(all));
            }
            ParamKind::Tensor { optional, .. } => {
                let input = match next() {
                    Some(v) => {
                        bound.env.bind_tensor(&name, draft.builder.ty(v).clone());
                        BoundInput::One(v)
                    }
                    None if *optional => BoundInput::Absent,
                    None => return Err(format!("its input `{name}` is missing")),
                };
                bound.inputs.insert(name, input);
            }
            ParamKind::ConstInput { kind, optional } => match next() {
                Some(v) => {
                    let a =
                        constant(draft, v, *kind).map_err(|e| format!("its input `{name}` {e}"))?;
                    bound.env.bind_attr(&name, a);
                }
                None if *optional => drop(bound.inputs.insert(name, BoundInput::Unset)),
                None => return Err(format!("its input `{name}` is missing")),
            },
            ParamKind::Attr(_) => {}
        }
    }
    if rest.iter().any(Option::is_some) {
        let reason = format!("it has {} inputs, more than `{}` takes", inputs.len(), item.name);
        return Err(draft.unsupported(reason));
    }
    attributes(item, node, draft, &mut bound)?;
    Ok(bound)
}

fn attributes(
    item: &OnnxItem,
    node: &RawNode,
    draft: &mut ImportBuilder<'_>,
    bound: &mut BoundParams,
) -> Result<(), String> {
    let kind = |p: &Param| if let ParamKind::Attr(kind) = p.kind { Some(kind) } else { None };
    let params: Vec<(&Param, Kind)> =
        item.decl.params.iter().filter_map(|p| Some((p, kind(p)?))).collect();
    for (name, _) in &node.attrs {
        if !params.iter().any(|(p, _)| *p.name == **name) {
            let reason = format!("its attribute `{}` is not supported", shown(name));
            return Err(draft.unsupported(reason));
        }
    }
    for (p, kind) in params {
        let name = p.name.clone();
        match node.attrs.get(&*name) {
            Some(raw) if kind == Kind::Tensor => {
                let t = raw.to_tensor();
                let t = t.ok_or_else(|| format!("its attribute `{name}` is no {kind}"))?;
                let ty = Type::known(t.dtype(), t.shape());
                let v = draft.builder.constant(t);
                bound.env.bind_tensor(&name, ty);
                bound.inputs.insert(name, BoundInput::One(v));
            }
            Some(raw) => {
                let a = attribute(raw, kind)
                    .ok_or_else(|| format!("its attribute `{name}` is no {kind}"))?;
                bound.env.bind_attr(&name, a);
            }
            None => leave_out(p, bound),
        }
    }
    Ok(())
}

/// Binds an attribute, or an input read as one, that is not given.
pub(crate) fn leave_out(p: &Param, bound: &mut BoundParams) {
    let name = p.name.clone();
    match &p.default {
        Some(d) => {
            // A default that needs an absent input is missed only where it is used.
            if let Ok(a) = eval(d, &bound.env) {
                bound.env.bind_attr(&name, a);
            }
        }
        None if p.kind == ParamKind::Attr(Kind::Tensor) => {
            bound.inputs.insert(name, BoundInput::Absent);
        }
        None => drop(bound.inputs.insert(name, BoundInput::Unset)),
    }
}

/// An ONNX attribute as one of ours.
pub(crate) fn attribute(raw: &RawAttr, kind: Kind) -> Option<Attr> {
    Some(match (kind, raw) {
        (Kind::Int, RawAttr::Int(v)) => Attr::int(*v),
        (Kind::Bool, RawAttr::Int(v)) => Attr::Bool(*v != 0),
        (Kind::DType, RawAttr::Int(v)) => {
            Attr::DType(tensor::dtype(i32::try_from(*v).ok()?).ok()??)
        }
        (Kind::Ints, RawAttr::Ints(v)) => Attr::ints(v.iter().copied()),
        (Kind::Ints, RawAttr::Int(v)) => Attr::ints([*v]),
        (Kind::Float, RawAttr::Float(v)) => Attr::float(shortest(*v)),
        (Kind::Float, RawAttr::Int(v)) => Attr::float(*v as f64),
        (Kind::Floats, RawAttr::Floats(v)) => Attr::floats(v.iter().map(|v| shortest(*v))),
        (Kind::Floats, RawAttr::Float(v)) => Attr::floats([shortest(*v)]),
        (Kind::String, RawAttr::Str(_)) => Attr::Str(raw.as_str()?.to_string()),
        (Kind::Strings, RawAttr::Strs(v)) => {
            let words = v.iter().map(|s| std::str::from_utf8(s)).collect::<Result<Vec<_>, _>>();
            Attr::Str(words.ok()?.join(","))
        }
        _ => return None,
    })
}

/// The shortest decimal that means this number: `1e-5` rather than `9.999999747378752e-6`.
pub(crate) fn shortest(v: f32) -> f64 {
    v.to_string().parse().unwrap_or(f64::from(v))
}

/// A tensor that must be known, as an attribute.
pub(crate) fn constant(
    draft: &mut ImportBuilder<'_>,
    v: Value,
    kind: Kind,
) -> Result<Attr, String> {
    let known =
        draft.required_input(v).ok_or("has elements that are not known before the model runs")?;
    if matches!(kind, Kind::Int | Kind::Float | Kind::Bool) && known.elements.len() != 1 {
        return Err(format!("must be a single {kind}"));
    }
    if known.shape.len() > 1 {
        return Err("must have at most one axis".into());
    }
    let wrong = || format!("is no {kind}");
    Ok(match kind {
        Kind::Ints => {
            Attr::Ints(known.elements.iter().map(whole).collect::<Option<_>>().ok_or_else(wrong)?)
        }
        Kind::Int => Attr::Int(known.extents().and_then(|mut v| v.pop()).ok_or_else(wrong)?),
        Kind::Float => Attr::float(number(draft, v).ok_or_else(wrong)?),
        Kind::Floats => {
            let short = known.dtype.size() < 8;
            let real = |e: &KnownElement| match e {
                KnownElement::Real(v) if short => Some(shortest(*v as f32)),
                e => e.as_f64(),
            };
            let all: Option<Vec<f64>> = known.elements.iter().map(real).collect();
            Attr::floats(all.ok_or_else(wrong)?)
        }
        Kind::Bool => Attr::Bool(number(draft, v).ok_or_else(wrong)? != 0.0),
        _ => return Err(format!("cannot be read as {kind}")),
    })
}

/// The whole number that an element is, also one written as a float.
fn whole(e: &KnownElement) -> Option<Extent> {
    match e {
        KnownElement::Int(v) => Some(v.clone()),
        KnownElement::Real(v) => {
            (v.fract() == 0.0 && v.abs() < 1e15).then(|| Extent::from(*v as i64))
        }
    }
}

/// The number that a tensor of one known element holds.
pub(crate) fn number(draft: &mut ImportBuilder<'_>, v: Value) -> Option<f64> {
    let known = draft.required(v)?;
    match known.elements.as_slice() {
        [KnownElement::Real(v)] if known.dtype.size() < 8 => Some(shortest(*v as f32)),
        [e] if known.is_exact() => e.as_f64(),
        _ => None,
    }
}

/// All elements of a known tensor of integers.
pub(crate) fn integers(draft: &mut ImportBuilder<'_>, v: Value) -> Option<Vec<Extent>> {
    draft.required(v)?.extents()
}
