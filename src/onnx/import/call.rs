//! Calls in the expression of an `onnx` item: operators, other items, and the forms that yield or fold lists.

use super::apply::ImportOperand;
use super::expression::{ExprValue, OnnxItemInterpreter};
use mlc_dsl::expr::{AttrKind, Expr};
use mlc_dsl::ir::{Attr, Extent};
use mlc_dsl::library::{CallId, Callable, Name};
use mlc_dsl::onnx::{Apply, Arg, Callee};

impl OnnxItemInterpreter<'_, '_> {
    pub(crate) fn find(&self, name: &str) -> Result<CallId, String> {
        let id = self.draft.library().find(name);
        id.ok_or_else(|| format!("it is read as `{name}`, which no text declares"))
    }

    pub(crate) fn call(&mut self, call: &Apply) -> Result<ExprValue, String> {
        let args = call.args.as_slice();
        let (name, id) = match &call.callee {
            Callee::Split => return self.split(call),
            Callee::Fold(operator) => return self.fold(operator, args),
            Callee::Scalar => {
                let [v, to] = args else { return Err("`scalar` takes a number and a type".into()) };
                let Attr::DType(to) = self.attr(&to.value)? else {
                    return Err("`scalar` takes a number and a type".into());
                };
                let v = self.attr(&v.value)?;
                return Ok(ExprValue::Tensor(self.draft.scalar(&v, to)?));
            }
            Callee::Unsupported => {
                let reason = args.first().map(|a| self.attr(&a.value)).transpose()?;
                let reason = match reason {
                    Some(Attr::Str(s)) => s,
                    _ => "this use is not supported".into(),
                };
                return Err(self.draft.unsupported(reason));
            }
            Callee::Operator(name, Some(id), _) => (name, *id),
            Callee::Operator(name, None, _) => match self.other_item(name) {
                Some(item) => return self.read_called_item(item, args),
                None => (name, self.find(name)?),
            },
        };
        let callee = self.draft.library().call(id);
        let positional: Vec<&Expr> =
            args.iter().filter(|a| a.name.is_none()).map(|a| &a.value).collect();
        let (tensors, extra) = positional.split_at(positional.len().min(callee.inputs.len()));
        let mut operands = Vec::with_capacity(tensors.len());
        for e in tensors {
            operands.push(self.operand(e)?);
        }
        let attrs = self.attributes(callee, extra, args)?;
        self.apply(name, operands, &attrs)
    }

    fn attributes(
        &mut self,
        callee: &Callable,
        extra: &[&Expr],
        args: &[Arg],
    ) -> Result<Vec<Option<Attr>>, String> {
        let mut out: Vec<Option<Attr>> = vec![None; callee.attrs.len()];
        let named = args.iter().filter_map(|a| a.name.as_ref().map(|n| (n, &a.value)));
        let place = |n: &Name| callee.attrs.iter().position(|p| p.name == *n);
        let all = extra
            .iter()
            .enumerate()
            .map(|(i, e)| (Some(i), *e))
            .chain(named.map(|(n, e)| (place(n), e)));
        for (i, e) in all {
            let Some((i, param)) = i.and_then(|i| callee.attrs.get(i).map(|p| (i, p))) else {
                return Err(format!("`{}` has no such attribute: {e}", callee.name));
            };
            let a = self.attr(e)?;
            out[i] = Some(match (&a, param.ty.kind) {
                // One number, one spelling.
                (Attr::Int(_), AttrKind::Float) => a.as_f64().map_or(a, Attr::float),
                _ => a,
            });
        }
        Ok(out)
    }

    /// `fold(op, xs, axis=a)`: a binary operator over all inputs, left to right.
    fn fold(&mut self, op: &Name, args: &[Arg]) -> Result<ExprValue, String> {
        let usage = "`fold` takes an operator and a list of inputs";
        let [list, rest @ ..] = args else { return Err(usage.into()) };
        let ExprValue::Tuple(items) = self.expr(&list.value)? else { return Err(usage.into()) };
        let id = self.find(op)?;
        let attrs = self.attributes(self.draft.library().call(id), &[], rest)?;
        let mut sum = None;
        for item in items {
            let ExprValue::Tensor(v) = item else { return Err(usage.into()) };
            sum = Some(match sum {
                None => v,
                Some(s) => {
                    let pair = vec![ImportOperand::Value(s), ImportOperand::Value(v)];
                    *self.draft.call(id, pair, &attrs)?.first().ok_or(usage)?
                }
            });
        }
        sum.map(ExprValue::Tensor).ok_or_else(|| "it has no inputs".into())
    }

    /// `split(x, axis=a, sizes=s)`: consecutive slices along one axis.
    fn split(&mut self, call: &Apply) -> Result<ExprValue, String> {
        let usage = "`split` takes a tensor, an axis and sizes";
        let given = (call.args.first(), call.named("axis"), call.named("sizes"));
        let (Some(x), Some(axis), Some(sizes)) = given else {
            return Err(usage.into());
        };
        let x = self.tensor(&x.value)?;
        let shape = self.draft.builder.ty(x).shape.clone();
        let axis = self.attr(axis)?.as_i64().ok_or(usage)?;
        let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
        let axis = usize::try_from(axis).ok().filter(|&a| a < shape.len());
        let axis =
            axis.ok_or_else(|| format!("a tensor of {} axes has no such axis", shape.len()))?;
        let Attr::Ints(sizes) = self.attr(sizes)? else { return Err(usage.into()) };
        let total = sizes.iter().fold(Extent::from(0), |a, b| &a + b);
        self.draft
            .equal(&total, &shape[axis])
            .map_err(|_| format!("its sizes add up to {total}, not {}", shape[axis]))?;
        let slice = self.draft.builder.structural().slice.ok_or("`slice` is not declared")?;
        let mut start = vec![Extent::from(0); shape.len()];
        let step = vec![Extent::from(1); shape.len()];
        let mut parts = Vec::with_capacity(sizes.len());
        for size in sizes {
            let mut whole = shape.clone();
            whole[axis] = size.clone();
            let attrs = [start.clone(), whole, step.clone()].map(|a| Some(Attr::Ints(a)));
            parts.push(ExprValue::Tensor(self.draft.apply(slice, &attrs, &[x])?[0]));
            start[axis] = &start[axis] + &size;
        }
        Ok(ExprValue::Tuple(parts))
    }
}
