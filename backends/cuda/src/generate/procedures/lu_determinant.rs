//! Determinants by LU elimination.

use super::super::procedure::{Operand, Procedure, ProcedureLaunch, TypedShape};
use super::sort_scatter::{elements, index, narrowed, widened};
use mlc_dsl::eval::Env;
use mlc_dsl::ir::DType;

/// Threads of a block, which has a matrix.
const THREADS: u32 = 256;

/// The determinant of every matrix, by elimination with the largest pivot of each column, in 64 bits.
pub fn det(_: &Env, args: &[TypedShape], results: &[TypedShape]) -> Result<Procedure, String> {
    let ([(dtype, of)], [(_, shape)]) = (args, results) else {
        return Err("one argument yields one result".into());
    };
    let n = of.last().copied().unwrap_or_default();
    let kind = index(elements(of));
    let (load, store) = (widened(*dtype, "a0[begin + at]"), narrowed(*dtype, "product"));
    let body = format!(
        "  SHARED(double, double_parts, 32);
  SHARED(long long, integer_parts, 32);
  {kind} begin = ({kind})blockIdx.x * {size};
  for ({kind} at = threadIdx.x; at < {size}; at += {THREADS}) s0[begin + at] = {load};
  __syncthreads();
  double product = 1.0;
  for ({kind} i = 0; i < {n}; ++i) {{
    double largest = 0.0;
    for ({kind} row = i + threadIdx.x; row < {n}; row += {THREADS}) {{
      double element = s0[begin + row * {n} + i];
      largest = maximum(largest, fabs(element));
    }}
    largest = combine_block(Maximum(), largest, 0.0, double_parts);
    long long pivot = {n};
    for ({kind} row = i + threadIdx.x; row < {n}; row += {THREADS}) {{
      double element = s0[begin + row * {n} + i];
      if (pivot == {n} && fabs(element) == largest) pivot = row;
    }}
    pivot = combine_block(Minimum(), pivot, (long long){n}, integer_parts);
    if (largest == 0.0 || pivot == {n}) {{
      product *= largest;
      break;
    }}
    if (pivot != i) {{
      for ({kind} j = i + threadIdx.x; j < {n}; j += {THREADS}) {{
        double upper = s0[begin + i * {n} + j], lower = s0[begin + pivot * {n} + j];
        s0[begin + i * {n} + j] = lower;
        s0[begin + pivot * {n} + j] = upper;
      }}
      product = -product;
      __syncthreads();
    }}
    double top = s0[begin + i * {n} + i];
    product *= top;
    {kind} left = {n} - 1 - i;
    for ({kind} at = threadIdx.x; at < left * left; at += {THREADS}) {{
      {kind} row = i + 1 + at / left, j = i + 1 + at % left;
      double factor = (double)s0[begin + row * {n} + i] / top;
      s0[begin + row * {n} + j] = (double)s0[begin + row * {n} + j] - factor * (double)s0[begin + i * {n} + j];
    }}
    __syncthreads();
  }}
  if (threadIdx.x == 0) y0[blockIdx.x] = {store};
",
        size = n * n,
    );
    let operands =
        [(Operand::Argument(0), false), (Operand::Scratch(0), true), (Operand::Result(0), true)];
    let eliminate = ProcedureLaunch {
        name: "eliminate",
        blocks: elements(shape),
        threads: THREADS,
        operands: operands.to_vec(),
        faults: false,
        body,
    };
    Ok(Procedure::new(vec![(DType::F64, of.clone())], vec![eliminate]))
}
