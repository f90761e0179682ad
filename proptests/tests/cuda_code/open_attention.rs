//! Attention in one pass whose batch, queries and keys are open, through one session each, run by the emulator against the reference
//! interpreter: from no keys to many. A length in a band that was run before loads no function.

use super::open_extents::Session;
use mlc_fuzz::input_values::Style;
use std::collections::BTreeSet;

/// Around the sizes of tiles, and many.
const LENGTHS: [i64; 11] = [7, 1, 0, 2, 31, 32, 33, 127, 128, 129, 1500];
/// Those of definitions that the emulator takes long for.
const SHORT: [i64; 10] = [7, 1, 0, 2, 31, 32, 33, 127, 128, 129];
/// Those of masks, by which whole tiles are skipped.
const MASKED: [i64; 8] = [7, 1, 0, 31, 33, 128, 129, 300];

/// A definition, and what some of its code contains.
pub type Case<'a> = (&'a str, &'a [&'a str]);

const ONE: &str = "with a normalised factor for each block";
const PARTS: &str = "a part of a product with a normalised factor";
const STRAIGHT: &str = "Keys are read straight to registers";
const COPIED: &str = "copy_async(tile";
const LEAVES_OUT: &str = "continue;";

/// The band of a length `n`, and of one of three more.
fn band(n: i64) -> [u64; 2] {
    [n, n + 3].map(|n| (n.max(1) as u64).next_power_of_two())
}

fn check(cases: &[Case<'_>], lengths: &[i64], styles: &[Style]) {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let only = std::env::var("MLC_CUDA_CASE").ok().and_then(|n| n.parse::<usize>().ok());
    for (i, (definition, with)) in cases.iter().enumerate() {
        if only.is_some_and(|only| only != i) {
            continue;
        }
        println!("{definition}");
        let session = Session::new(definition);
        let (mut bands, mut texts) = (BTreeSet::new(), String::new());
        for &n in lengths {
            let fresh = session.hold_texts(n, styles[0]);
            assert!(bands.insert(band(n)) || fresh.is_empty(), "{definition}, {n}: {fresh:?}");
            fresh.iter().for_each(|(_, text)| texts.push_str(text));
            if only.is_some() {
                println!("{n}: {}", fresh.into_iter().map(|f| f.1).collect::<String>());
            }
        }
        for &style in &styles[1..] {
            for &n in lengths {
                assert_eq!(session.hold(n, style), [""; 0], "{definition}, {n}");
            }
        }
        for with in *with {
            assert!(texts.contains(with), "{definition}: no `{with}` in\n{texts}");
        }
        let notes = session.notes();
        assert!(
            notes.iter().all(|n| n.starts_with("launches one by one")),
            "{definition}: {notes:?}"
        );
    }
}

/// Queries and keys, one or both of them open.
pub const QUERIES_AND_KEYS: &[Case<'_>] = &[
    (
        "def f(q: f32[2, n, 16], k: f32[2, m, 16], v: f32[2, m, 16]) -> f32[2, n, 16]
           = attention(q, k, v, scale=0.25)",
        &[ONE, COPIED],
    ),
    (
        "def f(q: f16[1, 2, n, 64], k: f16[1, 2, m, 64], v: f16[1, 2, m, 32]) -> f16[1, 2, n, 32]
           = attention(q, k, v, scale=0.125)",
        &[ONE, COPIED, "mma_16816("],
    ),
    (
        "def f(q: bf16[n, 17], k: bf16[m, 17], v: bf16[m, 19]) -> bf16[n, 19]
           = tanh(attention(q, k, v, scale=0.25))",
        &[ONE, "mma_16816_bf16("],
    ),
    (
        "def f(q: f32[n, 2, 4], k: f32[n, 20, 4], v: f32[n, 20, 136]) -> f32[n, 2, 136]
           = attention(q, k, v, scale=0.5)",
        &[ONE],
    ),
    (
        "def f(q: f32[2, 20, 24], y: f32[2, 24, n], v: f32[2, n, 32]) -> f32[2, 20, 32]
           = attention(q, transpose(y, perm=[0, 2, 1]), v, scale=0.25)",
        &[ONE],
    ),
];

#[test]
fn queries_and_keys() {
    check(QUERIES_AND_KEYS, &SHORT, &[Style::Normal, Style::Special]);
}

/// Few queries, and keys that grow.
pub const CACHES: &[Case<'_>] = &[
    (
        "def f(q: f32[2, 3, 1, 24], k: f32[2, 3, n, 24], v: f32[2, 3, n, 40]) -> f32[2, 3, 1, 40]
           = attention(q, k, v, scale=0.25)",
        &[PARTS, STRAIGHT, "load_pack<4>(x"],
    ),
    (
        "def f(q: f16[1, 2, 1, 64], k: f16[1, 2, n, 64], v: f16[1, 2, n, 64]) -> f16[1, 2, 1, 64]
           = attention(q, k, v, scale=0.25)",
        &[PARTS, STRAIGHT, "load_pack<8>(x"],
    ),
    (
        "def f(q: f16[1, 2, 3, 64], k: f16[1, 2, n, 64], v: f16[1, 2, n, 64], a: f16[1, 2, 3, 64], b: f16[1, 2, 3, 64])
           -> f16[1, 2, 3, 64] = attention(q, concat(k, a, axis=2), concat(v, b, axis=2), scale=0.25)",
        &[PARTS, STRAIGHT],
    ),
];

#[test]
fn a_query_and_a_growing_cache() {
    check(CACHES, &LENGTHS, &[Style::Normal, Style::Special]);
}

/// Masks of all kinds.
pub const MASKS: &[Case<'_>] = &[
    (
        "def f(q: f16[2, n, 16], k: f16[2, m, 16], v: f16[2, m, 16]) -> f16[2, n, 16]
           = attention_select(
             q, k, v,
             broadcast(iota(size=m, to=i64), map=[2], shape=[2, n, m])
               <= broadcast(iota(size=n, start=m - n, to=i64), map=[1], shape=[2, n, m]),
             scale=0.25, low=-inf
           )",
        &[ONE, LEAVES_OUT],
    ),
    (
        "def f(q: f32[2, n, 16], k: f32[2, m, 16], v: f32[2, m, 16], w: i64[2]) -> f32[2, n, 16]
           = attention_select(
             q, k, v,
             broadcast(iota(size=m, to=i64), map=[2], shape=[2, n, m])
               < broadcast(w + 60, map=[0], shape=[2, n, m]),
             scale=0.25, low=-1e9
           )",
        &[ONE, LEAVES_OUT, "turn == 1"],
    ),
    (
        "def f(q: f32[2, n, 16], k: f32[2, m, 16], v: f32[2, m, 16], mask: f32[n, m]) -> f32[2, n, 16]
           = attention_masked(q, k, v, broadcast(mask, map=[1, 2], shape=[2, n, m]), scale=0.25)",
        &[ONE, LEAVES_OUT, "turn == 1"],
    ),
    (
        "def f(q: bf16[2, n, 16], k: bf16[2, m, 16], v: bf16[2, m, 16], mask: bool[2, n, m]) -> bf16[2, n, 16]
           = attention_capped_select(q, k, v, mask, scale=0.05, cap=20, low=-inf)",
        &[ONE, LEAVES_OUT],
    ),
    (
        "def f(q: f32[2, 3, 16], k: f32[2, n, 16], v: f32[2, n, 16], mask: bool[2, 3, n]) -> f32[2, 3, 16]
           = attention_select(q, k, v, mask, scale=0.25, low=-1e9)",
        &[STRAIGHT, LEAVES_OUT, "turn == 1"],
    ),
    (
        "def f(q: f32[2, n, 16], k: f32[2, m, 16], v: f32[2, m, 16]) -> f32[2, n, 16]
           = attention_select(
             q, k, v,
             broadcast(iota(size=m, to=i64), map=[2], shape=[2, n, m])
               > broadcast(iota(size=n, start=m - n - 20, to=i64), map=[1], shape=[2, n, m]),
             scale=0.25, low=-inf
           )",
        &[ONE, LEAVES_OUT],
    ),
];

#[test]
fn masks() {
    check(MASKS, &MASKED, &[Style::Normal]);
}

/// Open batches, and heads that share keys or lie side by side.
pub const SHARED_HEADS: &[Case<'_>] = &[
    (
        "def f(q: f16[n, 6, 20, 16], k: f16[n, 2, 40, 16], v: f16[n, 2, 40, 16]) -> f16[n, 6, 20, 16]
           = attention(
             q,
             reshape(broadcast(k, map=[0, 1, 3, 4], shape=[n, 2, 3, 40, 16]), shape=[n, 6, 40, 16]),
             reshape(broadcast(v, map=[0, 1, 3, 4], shape=[n, 2, 3, 40, 16]), shape=[n, 6, 40, 16]),
             scale=0.25
           )",
        &[ONE, COPIED],
    ),
    (
        "def f(q: f32[1, 6, 1, 16], k: f32[1, 2, n, 16], v: f32[1, 2, n, 16]) -> f32[1, 6, 1, 16]
           = attention(
             q,
             reshape(broadcast(k, map=[0, 1, 3, 4], shape=[1, 2, 3, n, 16]), shape=[1, 6, n, 16]),
             reshape(broadcast(v, map=[0, 1, 3, 4], shape=[1, 2, 3, n, 16]), shape=[1, 6, n, 16]),
             scale=0.25
           )",
        &[STRAIGHT, "load_pack<2>(x"],
    ),
    (
        "def f(q: f32[2, n, 24], k: f32[2, m, 24], v: f32[2, m, 24]) -> f32[2, n, 24]
           let a = transpose(reshape(q, shape=[2, n, 3, 8]), perm=[0, 2, 1, 3])
           let b = transpose(reshape(k, shape=[2, m, 3, 8]), perm=[0, 2, 1, 3])
           let c = transpose(reshape(v, shape=[2, m, 3, 8]), perm=[0, 2, 1, 3])
           = reshape(transpose(attention(a, b, c, scale=0.25), perm=[0, 2, 1, 3]), shape=[2, n, 24])",
        &[ONE, COPIED],
    ),
];

/// All definitions.
pub const ALL: [&[Case<'_>]; 4] = [QUERIES_AND_KEYS, CACHES, MASKS, SHARED_HEADS];

#[test]
fn batches_and_shared_heads() {
    check(SHARED_HEADS, &SHORT[..8], &[Style::Normal]);
}

/// A step of a decoder, of two tokens: their keys and values come behind those of the steps before.
const STEP: &str = "def f(
  x: f32[2, 2, 32], wq: f32[32, 32], wk: f32[32, 32], wv: f32[32, 32], wo: f32[32, 32],
  pk: f32[2, 4, n, 8], pv: f32[2, 4, n, 8]
) -> f32[2, 2, 32]
  let q = transpose(reshape(x @ wq, shape=[2, 2, 4, 8]), perm=[0, 2, 1, 3])
  let k = concat(pk, transpose(reshape(x @ wk, shape=[2, 2, 4, 8]), perm=[0, 2, 1, 3]), axis=2)
  let v = concat(pv, transpose(reshape(x @ wv, shape=[2, 2, 4, 8]), perm=[0, 2, 1, 3]), axis=2)
  let m = broadcast(iota(size=n + 2, to=i64), map=[3], shape=[2, 4, 2, n + 2])
    <= broadcast(iota(size=2, start=n, to=i64), map=[2], shape=[2, 4, 2, n + 2])
  let a = attention_select(q, k, v, m, scale=0.25, low=-inf)
  = x + reshape(transpose(a, perm=[0, 2, 1, 3]), shape=[2, 2, 32]) @ wo
";

/// First and last lengths of a cache that are in one band with the new tokens.
const BANDS: [(i64, i64); 9] =
    [(1, 2), (3, 6), (7, 9), (29, 30), (31, 33), (126, 126), (127, 129), (254, 254), (1500, 1502)];

#[test]
fn steps_of_a_decoder_with_a_growing_cache() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let session = Session::optimised_with(STEP, "concat");
    assert!(session.hold(0, Style::Normal).len() > 1);
    // So that there are 3 and 4 keys, 5 to 8 and so on.
    for (first, last) in BANDS {
        session.hold(first, Style::Normal);
        for n in first + 1..=last {
            assert_eq!(session.hold(n, Style::Normal), [""; 0], "{n}");
        }
    }
    let notes = session.notes();
    assert!(notes.iter().all(|n| n.starts_with("launches one by one")), "{notes:?}");
}
