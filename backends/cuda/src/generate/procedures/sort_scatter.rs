//! Argsort, scatter and bit casts.

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, Statements, TypedShape};
use super::super::spelling as spell;
use mlc_dsl::eval::Env;
use mlc_dsl::ir::{Attr, DType};

/// Threads of a block.
const THREADS: u32 = 256;

/// Elements of a value of this shape.
pub fn elements(shape: &[usize]) -> u64 {
    shape.iter().product::<usize>() as u64
}

/// The type of indices up to so many elements.
pub fn index(most: u64) -> &'static str {
    if most < 1 << 30 { "int" } else { "long long" }
}

/// An element for each thread: its number is `at`.
pub fn each(count: u64, kind: &str) -> Statements {
    let mut t = Statements::default();
    t.line(1, format!("{kind} at = ({kind})blockIdx.x * {THREADS} + threadIdx.x;"));
    t.line(1, format!("if (at >= {count}) return;"));
    t
}

/// A launch with a thread for each of so many elements.
pub fn part(
    name: &'static str,
    count: u64,
    operands: Vec<(Operand, bool)>,
    body: Statements,
) -> ProcedureLaunch {
    let blocks = count.div_ceil(THREADS.into());
    ProcedureLaunch { name, blocks, threads: THREADS, operands, faults: false, body: body.0 }
}

/// The type in which elements are compared.
pub fn scalar(dtype: DType) -> &'static str {
    match dtype {
        d if d.is_float() => spell::real(d == DType::F64),
        DType::U64 => "unsigned long long",
        _ => "long long",
    }
}

/// A float in memory as a number of 64 bits.
pub fn widened(dtype: DType, element: &str) -> String {
    match dtype {
        DType::F32 | DType::F64 => spell::loaded(dtype, element, true),
        d => format!("(double){}", spell::loaded(d, element, true)),
    }
}

/// A number of 64 bits as an element in memory.
pub fn narrowed(dtype: DType, v: &str) -> String {
    match dtype {
        DType::F64 => v.into(),
        d if d.is_small() => spell::element(d, v),
        d => spell::element(d, &format!("(float)({v})")),
    }
}

/// The bits of an element in memory, as an integer.
fn bits(dtype: DType, element: &str) -> String {
    match dtype {
        DType::F32 => format!("__float_as_uint({element})"),
        DType::F64 => format!("__double_as_longlong({element})"),
        _ => element.into(),
    }
}

/// The element in memory whose bits these are.
fn from_bits(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::F32 => format!("__uint_as_float((unsigned)({bits}))"),
        DType::F64 => format!("__longlong_as_double((long long)({bits}))"),
        DType::Bool => format!("(unsigned char)(({bits}) != 0)"),
        d if d.is_small() && d.is_float() => {
            format!("(unsigned char)(({bits}) & {})", d.canonical(0xff))
        }
        d if d.is_small() => spell::element(d, bits),
        d => format!("({})({bits})", spell::stored(d)),
    }
}

/// Every element of an argument with its bits read as the type of the result.
pub fn bit_cast(_: &Env, args: &[TypedShape], results: &[TypedShape]) -> Result<Procedure, String> {
    let ([(from, shape)], [(to, _)]) = (args, results) else {
        return Err("one argument yields one result".into());
    };
    if from.size() != to.size() {
        return Err(format!("{from} has {} bytes and {to} has {}", from.size(), to.size()));
    }
    let count = elements(shape);
    let kind = index(count);
    let mut t = each(count, kind);
    t.line(1, format!("y0[at] = {};", from_bits(*to, &bits(*from, "a0[at]"))));
    let operands = vec![(Operand::Argument(0), false), (Operand::Result(0), true)];
    Ok(Procedure::new(vec![], vec![part("bits", count, operands, t)]))
}

/// The places of the first elements of every row in order: an element's place is the number of those that come before it.
pub fn sort_places(
    env: &Env,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Result<Procedure, String> {
    let ([(dtype, shape)], [(_, of)]) = (args, results) else {
        return Err("one argument yields one result".into());
    };
    let (&[rows, n], &[_, k]) = (shape.as_slice(), of.as_slice()) else {
        return Err("the argument and the result have two axes".into());
    };
    let largest = !matches!(env.attr("largest"), Some(Attr::Bool(false)));
    let real = scalar(*dtype);
    let load = |at: &str| {
        let loaded = spell::loaded(*dtype, &format!("a0[{at}]"), *dtype == DType::F64);
        format!("({real}){loaded}")
    };
    let (count, across) = (elements(shape), (n as u64).div_ceil(THREADS.into()));
    let kind = index(count.max(rows as u64 * k as u64));
    let mut t = Statements::default();
    t.line(1, format!("SHARED({real}, others, {THREADS});"));
    t.line(1, format!("{kind} row = ({kind})blockIdx.x / {};", across.max(1)));
    t.line(
        1,
        format!("{kind} at = ({kind})blockIdx.x % {} * {THREADS} + threadIdx.x;", across.max(1)),
    );
    t.line(1, format!("{real} own = 0;"));
    t.line(1, format!("if (at < {n}) own = {};", load(&format!("row * {n} + at"))));
    t.line(1, format!("{kind} place = 0;"));
    t.line(1, format!("for ({kind} from = 0; from < {n}; from += {THREADS}) {{"));
    let other = load(&format!("row * {n} + from + threadIdx.x"));
    t.line(2, format!("if (from + threadIdx.x < {n}) others[threadIdx.x] = {other};"));
    t.line(2, "__syncthreads();");
    t.line(2, format!("int most = {n} - from < {THREADS} ? {n} - from : {THREADS};"));
    t.line(2, "for (int j = 0; j < most; ++j) {");
    t.line(3, format!("int order = compare(({real})others[j], own);"));
    let sign = if largest { ">" } else { "<" };
    t.line(3, format!("if (order {sign} 0 || (order == 0 && from + j < at)) ++place;"));
    t.line(2, "}");
    t.line(2, "__syncthreads();");
    t.line(1, "}");
    t.line(1, format!("if (at < {n} && place < {k}) y0[row * {k} + place] = at;"));
    let operands = vec![(Operand::Argument(0), false), (Operand::Result(0), true)];
    let blocks = if k == 0 { 0 } else { rows as u64 * across };
    let sort = ProcedureLaunch { blocks, ..part("order", count, operands, t) };
    Ok(Procedure::new(vec![], vec![sort]))
}

/// Rows of `x[n, s]` with those of `u[m, s]` written to the places `i[m]`, in the order of `u`. Where the last one stays, its number
/// is found first; where all are combined, a thread has a column.
pub fn scatter(
    env: &Env,
    args: &[TypedShape],
    results: &[TypedShape],
) -> Result<Procedure, String> {
    let ([(dtype, shape), _, (_, updates)], [_]) = (args, results) else {
        return Err("three arguments yield one result".into());
    };
    let (&[n, s], &[m, _]) = (shape.as_slice(), updates.as_slice()) else {
        return Err("the target and the updates have two axes".into());
    };
    let word = match env.attr("reduction") {
        Some(Attr::Str(s)) => s.as_str(),
        _ => "none",
    };
    let (count, all) = (elements(shape), elements(updates));
    let kind = index(count.max(all).max(m as u64));
    let (x, i, u) = (Operand::Argument(0), Operand::Argument(1), Operand::Argument(2));
    let outside = format!("if (!(0 <= to && to < {n})) {{ out_of_range(fault, NODE, 0, to, {n}); ");
    if word == "none" {
        let none = Operand::Scratch(0);
        let mut first = each(n as u64, kind);
        first.line(1, "s0[at] = -1;");
        let mut last = each(m as u64, kind);
        last.line(1, "long long to = a1[at];");
        last.line(1, outside + "return; }");
        last.line(1, "atomicMax(&s0[to], (long long)at);");
        let mut write = each(count, kind);
        write.line(1, format!("long long from = s0[at / {}];", s.max(1)));
        write.line(1, "if (from < 0) y0[at] = a0[at];");
        write.line(1, format!("else y0[at] = a2[from * {s} + at % {}];", s.max(1)));
        let find = part("last", m as u64, vec![(i, false), (none, true)], last);
        let operands = vec![(x, false), (u, false), (none, false), (Operand::Result(0), true)];
        let parts = vec![
            part("none", n as u64, vec![(none, true)], first),
            ProcedureLaunch { faults: true, ..find },
            part("write", count, operands, write),
        ];
        return Ok(Procedure::new(vec![(DType::I64, vec![n])], parts));
    }
    let unsigned = if *dtype == DType::U64 { "Unsigned" } else { "" };
    let op = match word {
        "add" => "Sum".to_string(),
        "mul" => "Product".into(),
        "max" => format!("Maximum{unsigned}"),
        "min" => format!("Minimum{unsigned}"),
        other => return Err(format!("there is no reduction {other:?}")),
    };
    let double = *dtype == DType::F64;
    let number = match dtype.is_float() {
        true => spell::real(double),
        false => "long long",
    };
    let mut copy = each(count, kind);
    copy.line(1, "y0[at] = a0[at];");
    let mut t = each(s as u64, kind);
    t.line(1, format!("for ({kind} update = 0; update < {m}; ++update) {{"));
    t.line(2, "long long to = a1[update];");
    t.line(2, outside + "continue; }");
    let there =
        spell::loaded(*dtype, &format!("({})y0[to * {s} + at]", spell::stored(*dtype)), double);
    let own = spell::loaded(*dtype, &format!("a2[update * {s} + at]"), double);
    t.line(2, format!("{number} value = {op}()(({number}){there}, ({number}){own});"));
    t.line(2, format!("y0[to * {s} + at] = {};", spell::element(*dtype, "value")));
    t.line(1, "}");
    let operands = vec![(i, false), (u, false), (Operand::Result(0), true)];
    let combine = part("combine", s as u64, operands, t);
    let parts = vec![
        part("copy", count, vec![(x, false), (Operand::Result(0), true)], copy),
        ProcedureLaunch { faults: true, ..combine },
    ];
    Ok(Procedure::new(vec![], parts))
}
