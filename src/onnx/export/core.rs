//! Core expressions in the inputs of a `prints` clause: what one ONNX node cannot write becomes new
//! nodes of the graph, which are written in their turn.

use super::forms::Forms;
use super::matching::FormMatch;
use crate::import::broadcast::trailing_axes;
use mlc_dsl::eval::eval;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use mlc_dsl::ir::{Attr, DType, NodeKind, Tensor, Type, Value};
use mlc_dsl::library::CallId;
use mlc_dsl::onnx::{Apply, Callee};
use mlc_dsl::typing::infer::infer;

/// What an input expression is.
pub(crate) enum Core {
    /// A value of the graph.
    Value(Value),
    /// A number.
    Number(Attr),
}

impl Forms<'_, '_> {
    /// A core expression as new nodes of the graph.
    pub(crate) fn core(&mut self, e: &Expr, found: &FormMatch<'_>, origin: &str) -> Option<Core> {
        if let Ok(a) = eval(e, &found.env) {
            return Some(Core::Number(a));
        }
        match &e.kind {
            ExprKind::Name(n) => Some(Core::Value(*found.tensors.get(n)?)),
            ExprKind::Unary(op, a) => {
                let a = self.core(a, found, origin)?;
                self.add(self.graph.library.find(op.operator())?, vec![a], vec![], origin)
            }
            ExprKind::Binary(op, a, b) => {
                let (name, swapped) = op.operator();
                let mut args = vec![self.core(a, found, origin)?, self.core(b, found, origin)?];
                if swapped {
                    args.reverse();
                }
                let whole = self.add(self.graph.library.find(name)?, args, vec![], origin)?;
                if *op != BinaryOp::Ne {
                    return Some(whole);
                }
                let not = self.graph.library.find(UnaryOp::Not.operator())?;
                self.add(not, vec![whole], vec![], origin)
            }
            ExprKind::Apply(call) => self.core_call(call, found, origin),
            _ => None,
        }
    }

    fn core_call(&mut self, call: &Apply, found: &FormMatch<'_>, origin: &str) -> Option<Core> {
        let args = call.args.as_slice();
        let id = match (&call.callee, args) {
            (Callee::Scalar, [v, to]) => {
                let Ok(Attr::DType(to)) = eval(&to.value, &found.env) else { return None };
                let t = number(&eval(&v.value, &found.env).ok()?, to)?;
                return Some(Core::Value(self.graph.add_const(t)));
            }
            (Callee::Operator(_, id, _), _) => (*id)?,
            _ => return None,
        };
        let call = self.graph.library.call(id);
        let mut operands = Vec::new();
        let mut attrs = vec![None; call.attrs.len()];
        for a in args {
            match &a.name {
                None if operands.len() < call.inputs.len() => {
                    operands.push(self.core(&a.value, found, origin)?);
                }
                None => return None,
                Some(n) => {
                    let i = call.attrs.iter().position(|p| p.name == *n)?;
                    attrs[i] = Some(eval(&a.value, &found.env).ok()?);
                }
            }
        }
        self.add(id, operands, attrs, origin)
    }

    /// Adds an application whose operands NumPy's rule broadcasts.
    fn add(
        &mut self,
        id: CallId,
        operands: Vec<Core>,
        attrs: Vec<Option<Attr>>,
        origin: &str,
    ) -> Option<Core> {
        let call = self.graph.library.call(id);
        let dtype = operands.iter().find_map(|o| match o {
            Core::Value(v) => Some(self.graph.ty(*v).dtype),
            Core::Number(_) => None,
        });
        let mut args = Vec::with_capacity(operands.len());
        for o in operands {
            args.push(match o {
                Core::Value(v) => v,
                Core::Number(a) => {
                    let t = number(&a, dtype?)?;
                    self.graph.add_const(t)
                }
            });
        }
        let mut types: Vec<Type> = args.iter().map(|&v| self.graph.ty(v).clone()).collect();
        if let Some(trailing) = trailing_axes(call) {
            let lead = self.graph.lead(&args, &trailing)?;
            for (ty, t) in types.iter_mut().zip(&trailing) {
                let own = ty.shape.split_off(ty.rank().checked_sub(*t)?);
                ty.shape = lead.iter().cloned().chain(own).collect();
            }
        }
        let types: Vec<&Type> = types.iter().collect();
        let app = infer(call, &types, &attrs).ok()?;
        // What keeps its shape is not reshaped.
        if Some(id) == self.graph.structural.reshape && types[0].shape == app.types[0].shape {
            return Some(Core::Value(args[0]));
        }
        let kind = NodeKind::Apply(id, app.attrs);
        Some(Core::Value(self.graph.add_own(kind, args, app.types, origin)))
    }
}

/// A number as a tensor of rank 0, if the type has it.
fn number(a: &Attr, dtype: DType) -> Option<Tensor> {
    if let Some(v) = a.as_i64() {
        let fits = dtype.int_range().is_none_or(|(l, h)| (l..=h).contains(&i128::from(v)));
        return fits.then(|| Tensor::from_i64(dtype, vec![], &[v]));
    }
    a.as_f64().filter(|&v| dtype.is_exact(v)).map(|v| Tensor::from_f64(dtype, vec![], &[v]))
}
