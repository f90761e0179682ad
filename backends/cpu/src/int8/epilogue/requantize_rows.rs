//! Requantises rows of sums in memory, at every vector level. `dot/vnni.rs` computes the same on sums in registers.

use super::requantize::{
    DenseElements, DenseOperand, Operand, OutputType, RequantizeStep, RequantizeSteps, Sign,
};
use mlc_vector::simd;

/// Elements per step: they stay in the first-level cache, and dispatch is amortised.
const TOGETHER: usize = 64;

/// A binary operation.
#[derive(Clone, Copy)]
enum Combined {
    Sum,
    Product,
    Quotient,
}

/// Requantises the sums of the elements from index `at` on of a result with rows of `n`.
pub fn requantize_rows(
    steps: &RequantizeSteps<'_>,
    n: usize,
    at: usize,
    sums: &[i32],
    out: &mut [u8],
) {
    let size = match steps.written {
        OutputType::Floats => size_of::<f32>(),
        OutputType::Bytes(_) => 1,
    };
    let mut done = 0;
    while done < sums.len() {
        let column = (at + done) % n;
        let count = (n - column).min(sums.len() - done).min(TOGETHER);
        let out = &mut out[done * size..][..count * size];
        piece(steps, at + done, column, &sums[done..][..count], out);
        done += count;
    }
}

/// The same for elements of one row.
fn piece(steps: &RequantizeSteps<'_>, at: usize, column: usize, sums: &[i32], out: &mut [u8]) {
    use Combined::{Product, Quotient, Sum};
    let count = sums.len();
    let (mut all, mut more) = ([0.0f32; TOGETHER], [0.0f32; TOGETHER]);
    let (mut x, mut spare) = (&mut all[..count], &mut more[..count]);
    match steps.summands.get(column..column + count) {
        Some(more) => added(sums, more, x),
        None => converted(sums, x),
    }
    let combine = |f: Combined, operand: Operand<'_>, x: &mut [f32]| match operand {
        Operand::Number(y) => with_number(f, y, x),
        Operand::Column(first) => with_line(f, &steps.columns[first + column..][..count], x),
        Operand::Dense(side) => {
            let mut other = [0.0f32; TOGETHER];
            let other = &mut other[..count];
            match side.elements {
                DenseElements::Unsigned(d) => unsigned(&d[at..][..count], other),
                DenseElements::Signed(d) => signed(&d[at..][..count], other),
                DenseElements::Floats(d) => other.copy_from_slice(&d[at..][..count]),
            }
            placed(side, other);
            with_line(f, other, x);
        }
    };
    for step in &steps.steps {
        match *step {
            RequantizeStep::Add(o) => combine(Sum, o, x),
            RequantizeStep::Mul(o) => combine(Product, o, x),
            RequantizeStep::Div(o) => combine(Quotient, o, x),
            RequantizeStep::Max(y) => {
                larger(y, x, spare);
                std::mem::swap(&mut x, &mut spare);
                if y == 0.0 {
                    // A negative zero, which is not less, becomes a positive one.
                    with_number(Sum, 0.0, x);
                }
            }
            RequantizeStep::Min(y) => {
                smaller(y, x, spare);
                std::mem::swap(&mut x, &mut spare);
            }
            RequantizeStep::Round => rounded(x),
            RequantizeStep::Byte(sign) => as_byte(sign, x),
        }
    }
    match steps.written {
        OutputType::Floats => out.copy_from_slice(bytemuck::cast_slice(x)),
        OutputType::Bytes(_) => cut(x, out),
    }
}

simd! {
    fn converted(sums: &[i32], x: &mut [f32]) {
        x.iter_mut().zip(sums).for_each(|(x, &s)| *x = s as f32);
    }
}

simd! {
    fn added(sums: &[i32], more: &[i32], x: &mut [f32]) {
        x.iter_mut().zip(sums).zip(more).for_each(|((x, &s), &y)| *x = s.wrapping_add(y) as f32);
    }
}

/// A number of a byte's range as an integer; 0 for NaN.
#[inline(always)]
fn integer(x: f32) -> i32 {
    let x = if x.is_nan() { 0.0 } else { x };
    // SAFETY: it is no NaN, and within the bounds of an `i32`.
    unsafe { x.clamp(-128.0, 255.0).to_int_unchecked() }
}

simd! {
    /// The larger one, or `x` where that is NaN. Numbers go elsewhere: where they stay, compilers write the others alone, which takes long.
    fn larger(y: f32, from: &[f32], x: &mut [f32]) {
        x.iter_mut().zip(from).for_each(|(to, &x)| *to = if y > x { y } else { x });
    }
}

simd! {
    /// The smaller one, in the same way.
    fn smaller(y: f32, from: &[f32], x: &mut [f32]) {
        x.iter_mut().zip(from).for_each(|(to, &x)| *to = if y < x { y } else { x });
    }
}

simd! {
    fn with_number(f: Combined, y: f32, x: &mut [f32]) {
        match f {
            Combined::Sum => x.iter_mut().for_each(|x| *x += y),
            Combined::Product => x.iter_mut().for_each(|x| *x *= y),
            Combined::Quotient => x.iter_mut().for_each(|x| *x /= y),
        }
    }
}

simd! {
    fn with_line(f: Combined, line: &[f32], x: &mut [f32]) {
        let each = x.iter_mut().zip(line);
        match f {
            Combined::Sum => each.for_each(|(x, y)| *x += y),
            Combined::Product => each.for_each(|(x, y)| *x *= y),
            Combined::Quotient => each.for_each(|(x, y)| *x /= y),
        }
    }
}

simd! {
    fn unsigned(bytes: &[u8], x: &mut [f32]) {
        x.iter_mut().zip(bytes).for_each(|(x, &b)| *x = f32::from(b));
    }
}

simd! {
    fn signed(bytes: &[u8], x: &mut [f32]) {
        x.iter_mut().zip(bytes).for_each(|(x, &b)| *x = f32::from(b as i8));
    }
}

simd! {
    /// Shifted, and then scaled.
    fn placed(side: DenseOperand<'_>, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = (*x + side.shift) * side.scale);
    }
}

simd! {
    fn rounded(x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = x.round_ties_even());
    }
}

simd! {
    fn as_byte(sign: Sign, x: &mut [f32]) {
        match sign {
            Sign::Unsigned => x.iter_mut().for_each(|x| *x = integer(*x) as u8 as f32),
            Sign::Signed => x.iter_mut().for_each(|x| *x = integer(*x) as i8 as f32),
        }
    }
}

simd! {
    /// Numbers of a byte's range, or NaN, which becomes 0.
    fn cut(x: &[f32], out: &mut [u8]) {
        out.iter_mut().zip(x).for_each(|(to, &x)| *to = integer(x) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(
        steps: Vec<RequantizeStep<'_>>,
        written: OutputType,
        columns: Vec<f32>,
    ) -> RequantizeSteps<'_> {
        RequantizeSteps { steps, written, summands: vec![], columns, has_sides: false }
    }

    #[test]
    fn rows_are_followed_wherever_they_begin_and_nan_is_a_zero_byte() {
        let columns: Vec<f32> =
            (0..128).map(|i| if i == 3 { f32::NAN } else { i as f32 }).collect();
        let all = [
            RequantizeStep::Add(Operand::Column(0)),
            RequantizeStep::Mul(Operand::Number(0.5)),
            RequantizeStep::Max(0.0),
            RequantizeStep::Min(255.0),
            RequantizeStep::Round,
        ];
        let s = steps(all.to_vec(), OutputType::Bytes(Sign::Unsigned), columns);
        // Rows of 70 elements, from the middle of one to the middle of another.
        let (n, at) = (70, 30);
        let sums: Vec<i32> = (0..150).map(|i| 10 * i - 300).collect();
        let mut out = vec![7; sums.len()];
        requantize_rows(&s, n, at, &sums, &mut out);
        for (i, (&sum, &found)) in sums.iter().zip(&out).enumerate() {
            let column = (at + i) % n;
            let x = ((sum + column as i32) as f32 * 0.5).clamp(0.0, 255.0).round_ties_even();
            assert_eq!(found, if column == 3 { 0 } else { x as u8 }, "element {i}");
        }
    }

    #[test]
    fn other_arrays_signs_and_zeros() {
        let bytes: Vec<u8> = (200..300u32).map(|i| i as u8).collect();
        let side =
            DenseOperand { elements: DenseElements::Signed(&bytes), shift: 4.0, scale: 0.25 };
        let all = [
            RequantizeStep::Mul(Operand::Number(-1.0)),
            RequantizeStep::Max(0.0),
            RequantizeStep::Add(Operand::Dense(side)),
            RequantizeStep::Div(Operand::Number(2.0)),
            RequantizeStep::Max(-128.0),
            RequantizeStep::Min(127.0),
            RequantizeStep::Byte(Sign::Signed),
        ];
        let s = RequantizeSteps {
            summands: vec![1; 128],
            ..steps(all.to_vec(), OutputType::Floats, vec![])
        };
        let sums: Vec<i32> = (-50..50).collect();
        let mut out = vec![0; 400];
        requantize_rows(&s, 100, 0, &sums, &mut out);
        for (i, found) in out.as_chunks::<4>().0.iter().enumerate() {
            let x = -((sums[i] + 1) as f32);
            let x = (x.max(0.0) + (f32::from(bytes[i] as i8) + 4.0) * 0.25) / 2.0;
            assert_eq!(f32::from_le_bytes(*found), x.clamp(-128.0, 127.0) as i8 as f32, "{i}");
        }
        // No negative zero is left, and NaN stays one.
        let s = steps(
            vec![RequantizeStep::Mul(Operand::Column(0)), RequantizeStep::Max(0.0)],
            OutputType::Floats,
            vec![-0.0, f32::NAN],
        );
        let mut out = vec![0; 8];
        requantize_rows(&s, 2, 0, &[1, 1], &mut out);
        assert_eq!(out[..4], 0.0f32.to_le_bytes());
        assert!(f32::from_le_bytes([out[4], out[5], out[6], out[7]]).is_nan());
    }
}
