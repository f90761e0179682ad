//! Sums of products, found in meanings: matrix products, convolutions and other contractions alike.
//!
//! An axis that only the first factor depends on belongs to the rows, one that only the second depends on to the columns, one
//! that both depend on to the batch. How such a sum is computed is decided by its extents alone ([`Tiling`]).

use super::emit::{Emitter, offset_of};
use super::factor::Element;
use super::kernel::KernelProgram;
use super::thin::{self, Thin};
use crate::reference::code::{Affine, Int, Real, Slot};
use crate::reference::compile::Body;
use crate::reference::scalar::{Monoid, RealOp};
use mlc_dsl::ir::{DType, Value};

/// Rows, columns and depth from which on tiles pay.
pub const LEAST: i64 = 8;

/// A sum of products.
pub struct Contraction {
    /// Output axes by what depends on them, counted from the left.
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    /// Elements of rows, of columns and of a sum.
    sizes: [i64; 3],
    /// Vectors up to which a matrix is read once for all of them.
    few: i64,
}

impl Contraction {
    /// A value as a sum of products, for an emitter that knows what is stored.
    fn find(e: &Emitter<'_>, kernel: &KernelProgram, v: Value) -> Option<Contraction> {
        let code = kernel.code(v)?;
        let mut probe = e.probe();
        let slots: Vec<Slot> = code.axes.iter().map(|a| probe.variable(a.1)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let Body::Real(Real::Reduce(r)) = probe.placed(v, &index)? else { return None };
        let (Monoid::Sum, Real::Binary(RealOp::Mul, left, right)) = (r.monoid, &r.body) else {
            return None;
        };
        // What views leave out of an index does not count.
        let [left, right] = [left, right].map(|side| probe.look_at(v, side).touched);
        let (mut batch, mut rows, mut columns) = (vec![], vec![], vec![]);
        for (axis, slot) in slots.iter().enumerate() {
            match (left.contains(slot), right.contains(slot)) {
                (true, true) => batch.push(axis),
                (true, false) => rows.push(axis),
                (false, _) => columns.push(axis),
            }
        }
        let extent = |axes: &[usize]| axes.iter().map(|&a| code.axes[a].1).product::<i64>();
        let sizes = [extent(&rows), extent(&columns), r.over.iter().map(|o| o.1).product::<i64>()];
        let is_half = matches!(kernel.program.ty(v).dtype, DType::F16 | DType::BF16);
        let few = if is_half { thin::MOST_HALVES } else { thin::MOST };
        Some(Contraction { batch, rows, columns, sizes, few })
    }

    /// Whether one factor is a matrix and the other one a vector, or a few.
    fn is_thin(&self) -> bool {
        let [rows, columns, depth] = self.sizes;
        let few = (1..=self.few).contains(&rows.min(columns));
        few && rows.max(columns) >= thin::LEAST && depth >= thin::LEAST
    }

    /// A value as a sum of products, however small.
    pub fn of_any_size(e: &Emitter<'_>, kernel: &KernelProgram, v: Value) -> Option<Contraction> {
        Contraction::find(e, kernel, v)
    }

    /// A value as a sum of products with a shape of its own.
    pub fn of(e: &Emitter<'_>, kernel: &KernelProgram, v: Value) -> Option<Contraction> {
        let found = Contraction::find(e, kernel, v);
        found.filter(|c| c.is_thin() || c.sizes.iter().all(|n| *n >= LEAST))
    }
}

/// A sum of products with names for its indices.
pub struct Product {
    pub value: Value,
    pub shape: Vec<usize>,
    pub index: Vec<Int>,
    pub batch: Vec<(Slot, i64)>,
    pub rows: Vec<(Slot, i64)>,
    pub columns: Vec<(Slot, i64)>,
    /// What the sum runs over.
    pub deep: Vec<(Slot, i64)>,
    /// The factors that depend on rows and on columns.
    pub factors: [Real; 2],
    pub double: bool,
    /// What tiles in shared memory consist of.
    pub element: Element,
    pub tiling: Tiling,
    /// How it is cut if it has few rows: then the tiling does not count.
    pub thin: Option<Thin>,
}

/// What tiles of the factors of a product consist of: what tensor cores take, where that is what the factors are.
fn element(kernel: &KernelProgram, value: Value, factors: &[Real; 2]) -> Element {
    let type_of = |v: Value| kernel.program.ty(v).dtype;
    let args = &kernel.program.node(value.node).args;
    let of = |r: &Real| match r {
        Real::Read(read) => match read.otherwise {
            None | Some(Real::Const(0.0)) => Some(type_of(args[read.input])),
            Some(_) => None,
        },
        _ => None,
    };
    let [left, right] = [of(&factors[0]), of(&factors[1])];
    match (left, type_of(value)) {
        (Some(d @ (DType::F16 | DType::BF16)), _) if left == right => Element::Half(d),
        (Some(DType::F32), _) if left == right && kernel.tuning.tf32 => Element::Tf32,
        (_, own) => Element::Real(own == DType::F64),
    }
}

/// Elements along axes.
pub fn size(axes: &[(Slot, i64)]) -> i64 {
    axes.iter().map(|a| a.1).product()
}

impl Product {
    /// A sum of products with a shape of its own. Tiles have its last axis among their columns, if it is not one of the batch; what is
    /// thin has fewer rows than columns.
    pub fn of(e: &mut Emitter<'_>, kernel: &KernelProgram, value: Value) -> Option<Product> {
        let c = Contraction::of(e, kernel, value)?;
        let shape = kernel.program.ty(value).known_shape()?;
        let slots: Vec<Slot> = shape.iter().map(|&n| e.variable(n as i64)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let axes =
            |list: &[usize]| list.iter().map(|&a| (slots[a], shape[a] as i64)).collect::<Vec<_>>();
        let Body::Real(Real::Reduce(r)) = e.placed(value, &index)? else { return None };
        let Real::Binary(RealOp::Mul, left, right) = r.body else { return None };
        let last = (0..shape.len()).rev().find(|&a| shape[a] != 1);
        let is_thin = c.is_thin();
        let turned = match is_thin {
            true => c.sizes[0] > c.sizes[1],
            false => last.is_some_and(|a| c.rows.contains(&a)),
        };
        let (rows, columns) = if turned { (c.columns, c.rows) } else { (c.rows, c.columns) };
        let factors = if turned { [*right, *left] } else { [*left, *right] };
        let dtype = kernel.program.ty(value).dtype;
        let (batch, rows, columns) = (axes(&c.batch), axes(&rows), axes(&columns));
        let double = dtype == DType::F64;
        let sizes = [size(&batch), size(&rows), size(&columns), size(&r.over)];
        let element = element(kernel, value, &factors);
        let tiling = Tiling::of(sizes, element, kernel.tuning.processors);
        let deep = r.over;
        let mut product = Product {
            value,
            shape,
            index,
            batch,
            rows,
            columns,
            deep,
            factors,
            double,
            element,
            tiling,
            thin: None,
        };
        if is_thin {
            product.thin = Some(Thin::of(e, &product, kernel.tuning.processors));
        }
        Some(product)
    }

    /// Parts of the depth: of more than one, another launch adds the sums.
    pub fn count_of_parts(&self) -> i64 {
        self.thin.map_or(self.tiling.parts, |t| t.parts)
    }

    /// Element type and extents of the sums over parts of the depth.
    pub fn parts(&self) -> (DType, Vec<usize>) {
        let mut shape = vec![self.count_of_parts() as usize];
        shape.extend(&self.shape);
        (if self.double { DType::F64 } else { DType::F32 }, shape)
    }

    /// The head of a block in which the row `down` and the column `across` are inside.
    pub fn inside(&self) -> String {
        let mut checks = vec![];
        let sides = [
            ("down", &self.rows, self.tiling.rows),
            ("across", &self.columns, self.tiling.columns),
        ];
        for (name, axes, own) in sides {
            if size(axes) % (own * SIDE) != 0 {
                checks.push(format!("{name} < {}", size(axes)));
            }
        }
        if checks.is_empty() { String::new() } else { format!("if ({})", checks.join(" && ")) }
    }

    /// Where the sum of a part of the depth is, by the index variable of the part.
    pub fn place_of_part(&self, part: Slot) -> Option<Affine> {
        let index = [vec![Emitter::index(part)], self.index.clone()].concat();
        offset_of(&self.parts().1, &index)
    }
}

/// How a sum of products is cut into blocks of 16 by 16 threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Rows and columns of a thread.
    pub rows: i64,
    pub columns: i64,
    /// Parts of the depth: of more than one, another launch adds the sums.
    pub parts: i64,
}

/// Threads of a block, by rows and by columns.
pub const SIDE: i64 = 16;
/// Least depth of a part.
const PART: i64 = 128;

impl Tiling {
    /// The fastest one by a rough estimate.
    pub fn of(sizes: [i64; 4], element: Element, processors: u32) -> Tiling {
        let depth = sizes[3];
        let shapes: &[(i64, i64)] = match element {
            Element::Real(true) => &[(4, 4), (2, 2)],
            _ => &[(8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2)],
        };
        let parts = [1, 2, 4, 8, 16, 32].into_iter().filter(|p| *p == 1 || depth / p >= PART);
        let all = parts.flat_map(|parts| {
            shapes.iter().map(move |&(rows, columns)| Tiling { rows, columns, parts })
        });
        let time = |t: &Tiling| t.nanoseconds(sizes, element, processors);
        all.min_by(|a, b| time(a).total_cmp(&time(b))).expect("there are tilings")
    }

    /// About how long it takes: 218 products in a nanosecond on each multiprocessor where everything is in registers, less
    /// where elements come from shared memory, or one block alone waits for them.
    fn nanoseconds(&self, sizes: [i64; 4], element: Element, processors: u32) -> f64 {
        let [batch, m, n, depth] = sizes;
        let (rows, columns) = (self.rows * SIDE, self.columns * SIDE);
        let up = |a: i64, b: i64| (a / b + i64::from(a % b != 0)) as f64;
        let blocks = batch as f64 * up(m, rows) * up(n, columns) * self.parts as f64;
        let rounds = (blocks / f64::from(processors)).ceil();
        let reused = (self.rows * self.columns) as f64 / (self.rows + self.columns) as f64;
        let busy = (0.4 + 0.2 * rounds).min(1.0);
        // Elements of fewer bits, of which a thread reads fewer words for as many products, and the units that multiply them.
        let (most, words) = match element {
            Element::Real(_) => (218.0, 1.5),
            Element::Tf32 => (1000.0, 3.0),
            Element::Half(_) => (2000.0, 3.0),
        };
        let rate = most * reused / (reused + words) * busy;
        let work = (rows * columns) as f64 * self.depth_of_part(depth, element) as f64;
        let again = match self.parts {
            1 => 0.0,
            p => 3000.0 + (8 * p) as f64 * batch as f64 * m as f64 * n as f64 / 3000.0,
        };
        rounds * work / rate + 1500.0 + again
    }

    /// Depth of a part, but of the last one, which may have less.
    pub fn depth_of_part(&self, depth: i64, element: Element) -> i64 {
        let part = depth / self.parts + i64::from(depth % self.parts != 0);
        (part + element.depth() - 1) / element.depth() * element.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_have_large_tiles_and_deep_ones_parts() {
        let half = Element::Half(DType::F16);
        let (real, double) = (Element::Real(false), Element::Real(true));
        let cases = [
            ([1, 4096, 4096, 4096], real, [8, 8, 1]),
            ([1, 4096, 4096, 4096], half, [8, 8, 1]),
            ([1, 4096, 4096, 4096], double, [4, 4, 1]),
            ([12, 512, 512, 64], real, [8, 4, 1]),
            ([1, 64, 64, 8192], real, [2, 2, 32]),
            ([1, 32, 32, 64], real, [2, 2, 1]),
            ([1, 64, 12544, 147], real, [4, 2, 1]),
        ];
        for (sizes, element, expected) in cases {
            let t = Tiling::of(sizes, element, 132);
            assert_eq!([t.rows, t.columns, t.parts], expected, "{sizes:?} {element:?}");
        }
    }
}
