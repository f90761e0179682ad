//! Subnormal weights: numbers below the smallest normal one, which training with weight decay leaves where a channel is dead.
//!
//! Many processors take some hundred cycles for a product with one of them, which can make a convolution fifty times as slow. What a constant
//! is multiplied by and added to in sums loses at most the smallest normal number times the other operand when they are zeros, which the
//! [contract of `reorder`](../../docs/decisions/0015-rounding-errors.md) admits. Constants that anything else reads stay: a logarithm knows
//! them from zero.

use mlc_dsl::expr::{BinaryOp, ExprKind};
use mlc_dsl::ir::unfold::definition;
use mlc_dsl::ir::{DType, Node, NodeKind, Program, Tensor};
use mlc_dsl::library::{CallKind, Library, OpClass};

/// What was set to zero.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// How many numbers.
    pub numbers: usize,
    /// Of how many constants.
    pub constants: usize,
}

impl Flushed {
    /// What the report says of it; nothing if nothing was set to zero.
    pub fn note(&self) -> Option<String> {
        let Flushed { numbers, constants } = self;
        (*numbers > 0).then(|| {
            format!(
                "{numbers} subnormal numbers of {constants} weights are zeros in the result (`--fp exact` keeps them): \
                 many processors take a hundred cycles for each product with one"
            )
        })
    }
}

/// Sets the subnormal numbers of constants to zero that only sums and products read.
pub fn flush(program: &mut Program, library: &Library) -> Flushed {
    let linear = linear_in(program, library);
    let mut done = Flushed::default();
    for (node, is_linear) in program.nodes.iter_mut().zip(linear) {
        let NodeKind::Const(c) = node.kind else { continue };
        if !is_linear {
            continue;
        }
        if let Some((tensor, numbers)) = without_subnormals(program.consts.get(c)) {
            node.kind = NodeKind::Const(program.consts.intern(tensor));
            done.numbers += numbers;
            done.constants += 1;
        }
    }
    done
}

/// For each node, whether everything that reads it, views aside, only adds and multiplies it.
fn linear_in(program: &Program, library: &Library) -> Vec<bool> {
    let mut linear = vec![true; program.nodes.len()];
    program.outputs.iter().for_each(|(_, v)| linear[v.node.0 as usize] = false);
    // What reads a node comes after it.
    for at in (0..program.nodes.len()).rev() {
        let node = &program.nodes[at];
        let NodeKind::Apply(call, _) = node.kind else { continue };
        let kept = match library.call(call).class {
            OpClass::View => vec![linear[at]; node.args.len()],
            _ => linear_arguments(program, library, node),
        };
        for (arg, kept) in node.args.iter().zip(kept) {
            linear[arg.node.0 as usize] &= kept;
        }
    }
    linear
}

/// For each argument of an application, whether it is only added and multiplied.
fn linear_arguments(program: &Program, library: &Library, node: &Node) -> Vec<bool> {
    let all = |is_linear| vec![is_linear; node.args.len()];
    let NodeKind::Apply(call, attrs) = &node.kind else { return all(false) };
    let callable = library.call(*call);
    match (&callable.kind, callable.class) {
        (_, OpClass::Contraction) => all(true),
        (CallKind::Op(meanings), OpClass::Pointwise) => {
            all(meanings.iter().all(|m| is_sum_or_product(&m.value.kind)))
        }
        (CallKind::Def(_), _) => {
            let types: Vec<_> = node.args.iter().map(|a| program.ty(*a)).collect();
            let Ok(body) = definition(library, *call, attrs, &types) else { return all(false) };
            let linear = linear_in(&body, library);
            let of_input =
                |k: usize| body.nodes.iter().position(|n| n.kind == NodeKind::Input(k as u32));
            (0..node.args.len()).map(|k| of_input(k).is_none_or(|input| linear[input])).collect()
        }
        _ => all(false),
    }
}

/// True for a sum, a difference or a product of two elements.
fn is_sum_or_product(value: &ExprKind) -> bool {
    match value {
        ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, a, b) => {
            [a, b].iter().all(|e| matches!(e.kind, ExprKind::Read(_)))
        }
        _ => false,
    }
}

/// The same constant without subnormal numbers, and how many it had; nothing if it had none. Those of 16 bits are computed with as `f32`, where
/// they are normal.
fn without_subnormals(tensor: &Tensor) -> Option<(Tensor, usize)> {
    if tensor.dtype() != DType::F32 || tensor.unread().is_some() {
        return None;
    }
    let values = tensor.to_f32();
    let numbers = values.iter().map(|v| usize::from(v.is_subnormal())).sum();
    if numbers == 0 {
        return None;
    }
    let kept = values.iter().map(|v| if v.is_subnormal() { 0.0f32.copysign(*v) } else { *v });
    let flushed = Tensor::from_f32(tensor.shape().to_vec(), kept.collect());
    Some((flushed.computed_from([tensor]), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stdlib;
    use mlc_dsl::ir::build::Builder;
    use mlc_dsl::ir::{Type, Value};
    use mlc_dsl::library::CallId;

    const WEIGHTS: [f32; 4] = [1e-40, -1e-45, 0.5, f32::MIN_POSITIVE];

    /// What is left of the weights where a program of `x` and `w`, both 2x2, reads them so.
    fn left(
        make: impl FnOnce(&dyn Fn(&str) -> CallId, &mut Builder<'_>, Value, Value) -> Value,
    ) -> Vec<f32> {
        let library = stdlib::shipped();
        let mut b = Builder::new(&library);
        let x = b.input("x", Type::known(DType::F32, &[2, 2]));
        let w = b.constant(Tensor::from_f32(vec![2, 2], WEIGHTS.to_vec()).named("w"));
        let call = |name: &str| library.find(name).expect("shipped");
        let y = make(&call, &mut b, x, w);
        let mut program = b.finish(vec![("y".into(), y)]);
        let done = flush(&mut program, &library);
        let constants = program.nodes.iter().filter_map(|n| match n.kind {
            NodeKind::Const(c) => Some(program.consts.get(c).to_f32().to_vec()),
            NodeKind::Input(_) | NodeKind::Apply(..) => None,
        });
        let left: Vec<f32> = constants.flatten().collect();
        assert_eq!(done.numbers, if left == WEIGHTS { 0 } else { 2 });
        left
    }

    #[test]
    fn weights_of_products_and_summands_lose_them() {
        let zeros = [0.0, 0.0, 0.5, f32::MIN_POSITIVE];
        for op in ["matmul", "add", "sub", "mul"] {
            let own = left(|call, b, x, w| b.apply(call(op), &[], &[x, w]).expect("types")[0]);
            assert_eq!(own, zeros, "{op}");
            assert!(own[1].is_sign_negative());
        }
        let through_a_view = left(|call, b, x, w| {
            let perm = Some(mlc_dsl::ir::Attr::ints([1, 0]));
            let t = b.apply(call("transpose"), &[perm], &[w]).expect("types")[0];
            b.apply(call("matmul"), &[], &[x, t]).expect("types")[0]
        });
        assert_eq!(through_a_view, zeros);
    }

    #[test]
    fn what_anything_else_reads_keeps_them() {
        for op in ["div", "maximum", "pow"] {
            assert_eq!(
                left(|call, b, x, w| b.apply(call(op), &[], &[x, w]).expect("types")[0]),
                WEIGHTS,
                "{op}"
            );
        }
        let also_in_a_logarithm = left(|call, b, x, w| {
            let product = b.apply(call("matmul"), &[], &[x, w]).expect("types")[0];
            let log = b.apply(call("log"), &[], &[w]).expect("types")[0];
            b.apply(call("add"), &[], &[product, log]).expect("types")[0]
        });
        assert_eq!(also_in_a_logarithm, WEIGHTS);
        assert_eq!(left(|_, _, _, w| w), WEIGHTS);
    }
}
