//! Programs in floats of 16 bits as programs in `f32`, for processors that compute in nothing narrower.
//!
//! Between two operators a value of 16 bits is one of 32, so that every kernel, law and layout of `f32` applies, and nothing is converted
//! on the way. Inputs, outputs and casts to 16 bits round as they did; what an operator alone would have rounded keeps the digits that
//! the kernel has. The interface stays what it was.

use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::unfold::unfold;
use mlc_dsl::ir::{Attr, DType, Node, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Library, OpClass};

/// Most bytes of constants in `f32`: those of larger models stay half as large.
const MOST: u64 = 8 << 30;

/// The same program in `f32`; none if it has no floats of 16 bits, or does little with them, or an operator knows that they are.
pub(crate) fn widened(program: &Program, library: &Library) -> Option<Program> {
    let types = || program.nodes.iter().flat_map(|n| &n.types);
    if !types().any(|t| t.dtype.is_half()) || program.consts.unread() > 0 {
        return None;
    }
    if !computes(program, library) {
        return None;
    }
    let constants = program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Const(_)));
    let halves = constants.flat_map(|n| &n.types).filter(|t| t.dtype.is_half());
    let elements = |t: &Type| t.known_shape().map_or(0, |s| s.iter().product::<usize>() as u64);
    if halves.map(|t| 4 * elements(t)).sum::<u64>() > MOST {
        return None;
    }
    let mut builder = Builder::new(library);
    let inputs = program.inputs.iter().map(|(name, ty)| builder.input(name, ty.clone())).collect();
    let mut wide = Wide { library, builder, inputs, values: Vec::new() };
    program.nodes.iter().try_for_each(|node| {
        let outputs = wide.node(program, node)?;
        wide.values.push(outputs);
        Some(())
    })?;
    let mut outputs = Vec::with_capacity(program.outputs.len());
    for (name, v) in &program.outputs {
        outputs.push((name.clone(), wide.to(wide.of(*v), program.ty(*v).dtype)?));
    }
    Some(wide.builder.finish(outputs))
}

/// True if a program sums products, or does what no other class of operators is. All others convert as they load and store, half of the bytes.
fn computes(program: &Program, library: &Library) -> bool {
    let Ok(whole) = unfold(program, library, &|_| true) else { return true };
    whole.nodes.iter().any(|n| match n.kind {
        NodeKind::Apply(call, _) => {
            matches!(library.call(call).class, OpClass::Contraction | OpClass::Other)
        }
        NodeKind::Input(_) | NodeKind::Const(_) => false,
    })
}

fn wide(dtype: DType) -> DType {
    if dtype.is_half() { DType::F32 } else { dtype }
}

/// The program as far as it is rewritten.
struct Wide<'l> {
    library: &'l Library,
    builder: Builder<'l>,
    inputs: Vec<Value>,
    /// What stands for the outputs of each node.
    values: Vec<Vec<Value>>,
}

impl Wide<'_> {
    fn of(&self, v: Value) -> Value {
        self.values[v.node.0 as usize][v.output as usize]
    }

    /// What stands for the outputs of a node.
    fn node(&mut self, program: &Program, node: &Node) -> Option<Vec<Value>> {
        self.builder.set_origin(&node.origin);
        match &node.kind {
            NodeKind::Input(i) => Some(vec![self.as_wide(self.inputs[*i as usize])?]),
            NodeKind::Const(c) => {
                let t = program.consts.get(*c);
                let t = match t.dtype().is_half() {
                    true => {
                        let wide = Tensor::from_f32(t.shape().to_vec(), t.to_f32().into_owned());
                        wide.computed_from([t])
                    }
                    false => t.clone(),
                };
                Some(vec![self.builder.constant(t)])
            }
            NodeKind::Apply(call, attrs) => {
                let args: Vec<Value> = node.args.iter().map(|&a| self.of(a)).collect();
                if Some(*call) == self.builder.structural().cast {
                    let from = program.ty(node.args[0]).dtype;
                    return Some(vec![self.cast(args[0], from, node.types[0].dtype)?]);
                }
                if self.knows_types(*call, attrs) {
                    return self.narrow(program, node, (*call, attrs), &args);
                }
                let outputs = self.applied(*call, attrs, &args)?;
                let same = |(v, ty): (&Value, &Type)| {
                    let new = self.builder.ty(*v);
                    new.dtype == wide(ty.dtype) && new.shape == ty.shape
                };
                outputs.iter().zip(&node.types).all(same).then_some(outputs)
            }
        }
    }

    /// True for a procedure that is told a type: what it computes may depend on the bits of its operands.
    fn knows_types(&self, call: CallId, attrs: &[Attr]) -> bool {
        let is_procedure = matches!(self.library.call(call).kind, CallKind::Extern(_));
        is_procedure && attrs.iter().any(|a| matches!(a, Attr::DType(_)))
    }

    /// An application to the operands that it had.
    fn narrow(
        &mut self,
        program: &Program,
        node: &Node,
        (call, attrs): (CallId, &[Attr]),
        args: &[Value],
    ) -> Option<Vec<Value>> {
        let own = node.args.iter().zip(args);
        let args = own.map(|(a, &v)| self.to(v, program.ty(*a).dtype));
        let args = args.collect::<Option<Vec<Value>>>()?;
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let outputs = self.builder.apply(call, &attrs, &args).ok()?;
        outputs.into_iter().map(|v| self.as_wide(v)).collect()
    }

    fn applied(&mut self, call: CallId, attrs: &[Attr], args: &[Value]) -> Option<Vec<Value>> {
        let attr = |a: &Attr| match a {
            Attr::DType(d) => Attr::DType(wide(*d)),
            other => other.clone(),
        };
        let attrs: Vec<Option<Attr>> = attrs.iter().map(|a| Some(attr(a))).collect();
        self.builder.apply(call, &attrs, args).ok()
    }

    /// A cast of a value that was `from`: to 16 bits of another type it rounds.
    fn cast(&mut self, x: Value, from: DType, to: DType) -> Option<Value> {
        if to.is_half() && from != to {
            let rounded = self.to(x, to)?;
            return self.as_wide(rounded);
        }
        self.to(x, wide(to))
    }

    fn as_wide(&mut self, v: Value) -> Option<Value> {
        let dtype = self.builder.ty(v).dtype;
        self.to(v, wide(dtype))
    }

    fn to(&mut self, v: Value, dtype: DType) -> Option<Value> {
        if self.builder.ty(v).dtype == dtype {
            return Some(v);
        }
        let cast = self.builder.structural().cast?;
        self.builder.apply(cast, &[Some(Attr::DType(dtype))], &[v]).ok()?.into_iter().next()
    }
}
