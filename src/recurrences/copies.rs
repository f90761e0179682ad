//! Programs copied so that equal steps look alike: a product of matrices is a sum of products, in one order of its factors.

use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::canon::ARITHMETIC;
use mlc_dsl::ir::{Attr, Extent, Node, NodeKind, Program, Value};
use std::collections::HashMap;

/// The outputs of a program over values in the place of its inputs.
pub(super) fn copied(
    builder: &mut Builder<'_>,
    program: &Program,
    inputs: &HashMap<String, Value>,
) -> Option<Vec<Value>> {
    let mut copy = Copy { program, inputs, new: vec![], products: HashMap::new() };
    for node in &program.nodes {
        let made = copy.node(builder, node);
        copy.new.push(made);
    }
    program.outputs.iter().map(|(_, v)| copy.value(v)).collect()
}

/// A program that is being copied.
struct Copy<'a> {
    program: &'a Program,
    inputs: &'a HashMap<String, Value>,
    /// The results of each node so far; nothing of one that cannot be applied.
    new: Vec<Option<Vec<Value>>>,
    /// The factors of what are products of matrices.
    products: HashMap<Value, (Value, Value)>,
}

impl Copy<'_> {
    fn value(&self, v: &Value) -> Option<Value> {
        self.new.get(v.node.0 as usize)?.as_ref()?.get(v.output as usize).copied()
    }

    fn node(&mut self, builder: &mut Builder<'_>, node: &Node) -> Option<Vec<Value>> {
        let (call, attrs) = match &node.kind {
            NodeKind::Input(k) => {
                return self.inputs.get(&self.program.inputs[*k as usize].0).map(|&v| vec![v]);
            }
            NodeKind::Const(c) => {
                return Some(vec![builder.constant(self.program.consts.get(*c).clone())]);
            }
            NodeKind::Apply(call, attrs) => (*call, attrs),
        };
        let args = node.args.iter().map(|a| self.value(a)).collect::<Option<Vec<Value>>>()?;
        if let [a, b] = *args
            && builder.library.find("matmul") == Some(call)
        {
            return self.product(builder, a, b);
        }
        if let [product] = args.as_slice()
            && builder.structural().transpose == Some(call)
            && exchanges(attrs)
            && let Some(&(a, b)) = self.products.get(product)
        {
            let (a, b) = (exchanged(builder, a)?, exchanged(builder, b)?);
            return self.product(builder, b, a);
        }
        let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        builder.apply(call, &attrs, &args).ok()
    }

    fn product(&mut self, builder: &mut Builder<'_>, a: Value, b: Value) -> Option<Vec<Value>> {
        let made = summed(builder, a, b)?;
        self.products.insert(made, (a, b));
        Some(vec![made])
    }
}

/// True if a permutation exchanges the last two axes and no others.
fn exchanges(attrs: &[Attr]) -> bool {
    let [Attr::Ints(perm)] = attrs else { return false };
    let rank = perm.len();
    rank >= 2 && attrs[0] == exchange(rank)
}

fn exchange(rank: usize) -> Attr {
    let h = rank as i64 - 2;
    Attr::ints((0..h).chain([h + 1, h]))
}

/// A value whose last two axes are exchanged.
fn exchanged(builder: &mut Builder<'_>, v: Value) -> Option<Value> {
    let transpose = builder.structural().transpose?;
    let perm = exchange(builder.ty(v).rank());
    builder.apply(transpose, &[Some(perm)], &[v]).ok()?.first().copied()
}

/// A matrix product as a sum of products, which is the same in whatever form a step has it.
fn summed(builder: &mut Builder<'_>, a: Value, b: Value) -> Option<Value> {
    let (left, right) = (builder.ty(a).shape.clone(), builder.ty(b).shape.clone());
    let h = left.len().checked_sub(2)?;
    let (rows, columns, depth) = (left[h].clone(), right[h + 1].clone(), left[h + 1].clone());
    let b = exchanged(builder, b)?;
    // An axis of one place is none.
    let wide = |e: &Extent| e.as_const() != Some(1);
    let sides: Vec<Extent> = [&rows, &columns].into_iter().filter(|e| wide(e)).cloned().collect();
    let whole = [&left[..h], sides.as_slice(), std::slice::from_ref(&depth)].concat();
    let end = whole.len() - 1;
    let mut factor = |v: Value, side: &Extent, place: usize| {
        let own = if wide(side) { vec![side.clone()] } else { vec![] };
        let shape = [&left[..h], own.as_slice(), std::slice::from_ref(&depth)].concat();
        let v = builder.reshape(v, &shape).ok()?;
        let side = wide(side).then_some(place);
        let map: Vec<i64> = (0..h).chain(side).chain([end]).map(|i| i as i64).collect();
        builder.broadcast(v, &map, &whole).ok()
    };
    let a = factor(a, &rows, h)?;
    let b = factor(b, &columns, h + usize::from(wide(&rows)))?;
    let mul = ARITHMETIC.iter().position(|n| *n == "mul")?;
    let mul = builder.structural().arithmetic[mul]?;
    let product = *builder.apply(mul, &[], &[a, b]).ok()?.first()?;
    let sum = builder.library.find("sum")?;
    let axes = Some(Attr::ints([end as i64]));
    let sum = *builder.apply(sum, &[axes], &[product]).ok()?.first()?;
    builder.reshape(sum, &[&left[..h], &[rows, columns]].concat()).ok()
}
