//! ROI pooling (ROI align).

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, TypedShape};
use super::super::spelling as spell;
use super::sort_scatter::{each, elements, index, narrowed, part, widened};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::Attr;

/// The most samples along one side of a bin.
const MOST_SAMPLES: i64 = 1 << 12;

/// A bin of a region and channel for each thread. Places and sums have 64 bits, so that a bin has as many samples as in the reference.
pub fn roi_align(
    env: &Env,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Result<Procedure, String> {
    let ([(dtype, images), (of_corners, _), _], [(_, shape)]) = (args, results) else {
        return Err("three arguments yield one result".into());
    };
    let (&[b, c, h, v], &[_, _, rows, columns]) = (images.as_slice(), shape.as_slice()) else {
        return Err("images and the result have four axes".into());
    };
    let ratio = env.attr("ratio").and_then(Attr::as_i64).unwrap_or(0);
    let scale = env.attr("scale").and_then(Attr::as_f64).ok_or("`scale` is a number")?;
    let flag = |name: &str| matches!(env.attr(name), Some(Attr::Bool(true)));
    let (is_half, is_max) = (flag("half"), flag("max"));
    let count = elements(shape);
    let kind = index(count.max(elements(images)));
    let mut t = each(count, kind);
    t.line(
        1,
        format!(
            "{kind} region = at / {}, channel = at / {} % {c};",
            c * rows * columns,
            rows * columns
        ),
    );
    t.line(1, format!("{kind} down = at / {columns} % {rows}, across = at % {columns};"));
    t.line(1, "long long image = a2[region];");
    t.line(1, format!("if (!(0 <= image && image < {b})) {{ out_of_range(fault, NODE, 0, image, {b}); return; }}"));
    for (k, name) in ["left", "top", "right", "bottom"].into_iter().enumerate() {
        let corner = widened(*of_corners, &format!("a1[region * 4 + {k}]"));
        let (scale, half) = (spell::float(scale, true), if is_half { " - 0.5" } else { "" });
        t.line(1, format!("double {name} = {corner} * {scale}{half};"));
    }
    let least =
        |extent: &str| if is_half { format!("({extent})") } else { format!("fmax({extent}, 1.0)") };
    t.line(
        1,
        format!(
            "double height = {} / {rows}.0, width = {} / {columns}.0;",
            least("bottom - top"),
            least("right - left")
        ),
    );
    for (name, bin) in [("ys", "height"), ("xs", "width")] {
        match ratio {
            0 => t.line(1, format!("long long {name} = truncate_signed(fmax(ceil({bin}), 0.0));")),
            n => t.line(1, format!("long long {name} = {n};")),
        }
        t.line(1, format!("if ({name} > {MOST_SAMPLES}) {{ out_of_range(fault, NODE, 0, {name}, {}); return; }}", MOST_SAMPLES + 1));
    }
    // The larger of NaN and a number is the number.
    t.line(1, format!("double total = {};", if is_max { "(double)NOT_A_NUMBER" } else { "0.0" }));
    t.line(1, "for (long long i = 0; i < ys; ++i) {");
    t.line(2, format!("Sample y = sample(top + down * height + (i + 0.5) * height / ys, {h});"));
    t.line(2, "for (long long j = 0; j < xs; ++j) {");
    t.line(3, format!("Sample x = sample(left + across * width + (j + 0.5) * width / xs, {v});"));
    t.line(3, "double terms[4] = {};");
    t.line(3, "if (y.is_inside && x.is_inside) {");
    t.line(4, format!("{kind} plane = ({kind})(image * {c} + channel) * {};", h * v));
    let mut term = |k: usize, row: &str, column: &str, weight: &str| {
        let element = format!("a0[plane + y.{row} * {v} + x.{column}]");
        let element = widened(*dtype, &element);
        t.line(4, format!("terms[{k}] = {weight} * {element};"));
    };
    term(0, "low", "low", "(1.0 - y.part) * (1.0 - x.part)");
    term(1, "low", "high", "(1.0 - y.part) * x.part");
    term(2, "high", "low", "y.part * (1.0 - x.part)");
    term(3, "high", "high", "y.part * x.part");
    t.line(3, "}");
    let add = if is_max { "total = fmax(total, terms[k])" } else { "total += terms[k]" };
    t.line(3, format!("for (int k = 0; k < 4; ++k) {add};"));
    t.line(2, "}");
    t.line(1, "}");
    t.line(
        1,
        match is_max {
            true => "if (ys * xs == 0) total = 0.0;",
            false => "total /= ys * xs > 1 ? ys * xs : 1;",
        },
    );
    t.line(1, format!("y0[at] = {};", narrowed(*dtype, "total")));
    let mut operands: Vec<_> = (0..3).map(|i| (Operand::Argument(i), false)).collect();
    operands.push((Operand::Result(0), true));
    let pool = part("pool", count, operands, t);
    Ok(Procedure::new(vec![], vec![ProcedureLaunch { faults: true, ..pool }]))
}
