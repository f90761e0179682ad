//! Operators with data-dependent result sizes: unique rows and non-max suppression.

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, TypedShape};
use super::super::spelling as spell;
use super::sort_scatter::{each, elements, index, part, scalar, widened};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, DType};

/// Threads of a block that chooses among boxes.
const THREADS: u32 = 256;

/// The distinct rows of `x[n, m]`: every row looks for the first one that is equal, the first ones count those that come before them.
pub fn unique_rows(
    env: &Env,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Result<Procedure, String> {
    let ([(dtype, shape)], [_, _, _]) = (args, results) else {
        return Err("one argument yields three results".into());
    };
    let &[n, m] = shape.as_slice() else { return Err("the argument has two axes".into()) };
    let is_sorted = !matches!(env.attr("sorted"), Some(Attr::Bool(false)));
    let kind = index(elements(shape).max(n as u64));
    let number = scalar(*dtype);
    let load = |row: &str| {
        let element = format!("a0[{row} * {m} + k]");
        format!("({number}){}", spell::loaded(*dtype, &element, *dtype == DType::F64))
    };
    // Below, equal or above, by the first elements that differ.
    let order = |other: &str| {
        let (a, b) = (load(other), load("at"));
        format!("for ({kind} k = 0; order == 0 && k < {m}; ++k) order = compare({a}, {b});")
    };
    let (x, first, own) = (Operand::Argument(0), Operand::Scratch(0), Operand::Scratch(1));
    let mut find = each(n as u64, kind);
    find.line(1, format!("{kind} same = at;"));
    find.line(1, format!("for ({kind} other = 0; other < at && same == at; ++other) {{"));
    find.line(2, "int order = 0;");
    find.line(2, order("other"));
    find.line(2, "if (order == 0) same = other;");
    find.line(1, "}");
    find.line(1, "s0[at] = same;");
    let mut rank = each(n as u64, kind);
    rank.line(1, "long long kinds = 0, before = 0, alike = 0;");
    rank.line(1, "bool is_first = s0[at] == at;");
    rank.line(1, format!("for ({kind} other = 0; other < {n}; ++other) {{"));
    rank.line(2, "if (s0[other] == at) ++alike;");
    rank.line(2, "if (s0[other] != other) continue;");
    rank.line(2, "++kinds;");
    rank.line(2, "if (!is_first) continue;");
    if is_sorted {
        rank.line(2, "int order = 0;");
        rank.line(2, order("other"));
        rank.line(2, "if (order < 0) ++before;");
    } else {
        rank.line(2, "if (other < at) ++before;");
    }
    rank.line(1, "}");
    rank.line(1, "if (at >= kinds) {");
    rank.line(2, "y0[at] = 0;");
    rank.line(2, "y2[at] = 0;");
    rank.line(1, "}");
    rank.line(1, "if (!is_first) return;");
    rank.line(1, "s1[at] = before;");
    rank.line(1, "y0[before] = at;");
    rank.line(1, "y2[before] = alike;");
    let mut tell = each(n as u64, kind);
    tell.line(1, "y1[at] = s1[s0[at]];");
    let [places, kinds, counts] = [0, 1, 2].map(Operand::Result);
    let of_rank = vec![(x, false), (first, false), (places, true), (counts, true), (own, true)];
    let parts = vec![
        part("first", n as u64, vec![(x, false), (first, true)], find),
        part("rank", n as u64, of_rank, rank),
        part("kind", n as u64, vec![(first, false), (own, false), (kinds, true)], tell),
    ];
    Ok(Procedure::new(vec![(DType::I64, vec![n]), (DType::I64, vec![n])], parts))
}

/// Greedy non-max suppression of `boxes[b, n, 4]` for every row of `scores[b, c, n]`, a block for each: the best box that is left is
/// chosen, and those that overlap it are no longer left. Overlaps are computed in 64 bits, so that they compare with the limit as they do
/// in the reference.
pub fn choose_boxes(env: &Env, args: &[TypedShape], _: &[TypedShape]) -> Result<Procedure, String> {
    let [(of_boxes, _), (of_scores, shape), _, (of_overlap, _), (of_floor, _)] = args else {
        return Err("five arguments yield one result".into());
    };
    let &[b, c, n] = shape.as_slice() else { return Err("the scores have three axes".into()) };
    let corner =
        |k: usize, row: &str| widened(*of_boxes, &format!("a0[(batch * {n} + {row}) * 4 + {k}]"));
    let corners = |name: &str, row: &str| {
        let [p, q, r, s] = [0, 1, 2, 3].map(|k| corner(k, row));
        let centered = matches!(env.attr("centered"), Some(Attr::Bool(true)));
        format!("double {name}[4]; box_corners({name}, {p}, {q}, {r}, {s}, {centered});")
    };
    let (kind, score) =
        (index(elements(shape).saturating_mul(4)), widened(*of_scores, "a1[row + at]"));
    let (floor, overlap) = (widened(*of_floor, "a4[0]"), widened(*of_overlap, "a3[0]"));
    let (mine, chosen) = (corners("mine", "at"), corners("best", "place"));
    let body = format!(
        "  SHARED(double, double_parts, 32);
  SHARED(long long, integer_parts, 32);
  {kind} row = ({kind})blockIdx.x * {n}, batch = blockIdx.x / {c};
  for ({kind} at = threadIdx.x; at < {n}; at += {THREADS}) {{
    y0[row + at] = -1;
    s0[row + at] = {score} > {floor};
  }}
  __syncthreads();
  long long most = a2[0] < {n} ? a2[0] : {n};
  for ({kind} count = 0; count < most; ++count) {{
    // The best box that is left: the first one of the highest score.
    double highest = -INFINITE;
    long long place = {n};
    for ({kind} at = threadIdx.x; at < {n}; at += {THREADS}) {{
      double score = {score};
      unsigned char is_left = s0[row + at];
      if (is_left && (place == {n} || score > highest)) {{ highest = score; place = at; }}
    }}
    double of_all = combine_block(Maximum(), highest, -INFINITE, double_parts);
    if (highest != of_all) place = {n};
    place = combine_block(Minimum(), place, (long long){n}, integer_parts);
    if (place == {n}) return;
    if (threadIdx.x == 0) y0[row + count] = place;
    {chosen}
    for ({kind} at = threadIdx.x; at < {n}; at += {THREADS}) {{
      {mine}
      if (at == place || !(box_overlap(best, mine) <= {overlap})) s0[row + at] = 0;
    }}
  }}
"
    );
    let mut operands: Vec<_> = (0..5).map(|i| (Operand::Argument(i), false)).collect();
    operands.extend([(Operand::Scratch(0), true), (Operand::Result(0), true)]);
    let blocks = if n == 0 { 0 } else { b as u64 * c as u64 };
    let choose =
        ProcedureLaunch { name: "choose", blocks, threads: THREADS, operands, faults: false, body };
    Ok(Procedure::new(vec![(DType::U8, vec![b, c, n])], vec![choose]))
}
