//! Keys in parts: what blocks leave of each, and how a second launch combines it.
//!
//! Of every row and part there are the sums of all columns, then the largest element and the sum of exponentials.

use super::OnePass;
use super::frame::least;
use crate::generate::emit::{Emitter, offset_of};
use crate::generate::kernel::KernelProgram;
use crate::generate::spelling as spell;
use mlc_backends::reference::code::{Int, Slot};
use mlc_dsl::ir::Value;

/// Stores what a thread has of a part: sums of a row side by side, and with the first ones what belongs to the row.
pub fn store(
    e: &mut Emitter<'_>,
    p: &OnePass,
    width: i64,
    sum: &dyn Fn(&str) -> String,
    [total, most]: [&str; 2],
) {
    let (sizes, kind) = (p.cut.sizes, e.index_type());
    let (rows, line) = (sizes.rows, sizes.columns + 2);
    e.line(format!("{kind} to = ((part * {} + batch) * {rows} + down) * {line};", sizes.batch));
    e.line("#pragma unroll");
    e.open(&format!("for (int lane = 0; lane < {width}; ++lane)"));
    e.line(format!(
        "if (across + lane < {}) out[to + across + lane] = {};",
        sizes.columns,
        sum("lane")
    ));
    e.close();
    e.open("if (across == 0)");
    e.line(format!("out[to + {}] = {most};", sizes.columns));
    e.line(format!("out[to + {}] = {total};", sizes.columns + 1));
    e.close();
}

/// Combines the parts of an element of a product, whose index variables these are; it is known from then on.
pub fn total(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    product: Value,
    slots: &[Slot],
) -> Option<()> {
    let p = OnePass::of(e, kernel, product)?;
    let (sizes, kind) = (p.cut.sizes, e.index_type());
    let (parts, line, least) = (p.cut.parts, sizes.columns + 2, least());
    // Where the element is, counted as blocks count it.
    let place = |axes: &[(Slot, i64)]| {
        let own = |slot: &Slot| p.index.iter().position(|i| super::slot_of(i) == Some(*slot));
        let index: Vec<Int> =
            axes.iter().filter_map(|a| Some(Emitter::index(slots[own(&a.0)?]))).collect();
        let shape: Vec<usize> = axes.iter().map(|a| a.1 as usize).collect();
        Some(spell::affine(&offset_of(&shape, &index)?, &Emitter::name))
    };
    let (batch, row, column) = (place(&p.batch)?, place(&p.rows)?, place(&p.columns)?);
    e.line(format!("{kind} from = ({batch} * {} + {row}) * {line};", sizes.rows));
    e.line(format!("const {kind} apart = {};", sizes.batch * sizes.rows * line));
    e.line(format!("float top = {least};"));
    // Reads of some parts are on their way together.
    e.line("#pragma unroll 16");
    let next = format!("(float)parts[from + part * apart + {}]", sizes.columns);
    e.line(format!("for (int part = 0; part < {parts}; ++part) top = fmaxf(top, {next});"));
    e.line(format!("float base = top == {least} ? 0.0f : top, sums = 0, weights = 0;"));
    e.line("#pragma unroll 16");
    e.open(&format!("for (int part = 0; part < {parts}; ++part)"));
    e.line(format!("{kind} own = from + part * apart;"));
    e.line(format!("float weight = exp((float)parts[own + {}] - base);", sizes.columns));
    e.line(format!("sums += weight * (float)parts[own + {column}];"));
    e.line(format!("weights += weight * (float)parts[own + {}];", sizes.columns + 1));
    e.close();
    e.line("float quotient = sums / weights;");
    let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
    e.know(product, &index, "quotient");
    Some(())
}
