//! Several threads with one session, at extents that each draws anew: results are those of one thread, to the last bit, and memory stays.

use mlc_rewrite::ndarray::ArrayD;
use mlc_rewrite::{AnyArray, Device, Model, Outputs, Session};

/// A layer of a transformer, whose batch and length are open.
const LAYER: &str = "
def layer(x: f32[b, t, 32], w: f32[32, 96], o: f32[32, 32], up: f32[32, 64], down: f32[64, 32]) -> f32[b, t, 32]
  let n = softmax(x, axis=2) + x
  let qkv = reshape(n @ w, shape=[b, t, 12, 8])
  let q = transpose(slice(qkv, start=[0, 0, 0, 0], size=[b, t, 4, 8], step=[1, 1, 1, 1]), perm=[0, 2, 1, 3])
  let k = transpose(slice(qkv, start=[0, 0, 4, 0], size=[b, t, 4, 8], step=[1, 1, 1, 1]), perm=[0, 2, 1, 3])
  let v = transpose(slice(qkv, start=[0, 0, 8, 0], size=[b, t, 4, 8], step=[1, 1, 1, 1]), perm=[0, 2, 1, 3])
  let y = transpose(attention(q, k, v, scale=0.35), perm=[0, 2, 1, 3])
  let z = x + reshape(y, shape=[b, t, 32]) @ o
  = z + tanh(z @ up) @ down
";

fn wave(shape: &[usize]) -> AnyArray {
    let mut at = 0.0f64;
    let next = || {
        at += 0.71;
        (at.sin() / 4.0) as f32
    };
    ArrayD::from_shape_simple_fn(shape, next).into()
}

fn inputs(b: usize, t: usize) -> Vec<(&'static str, AnyArray)> {
    let weights = [("w", [32, 96]), ("o", [32, 32]), ("up", [32, 64]), ("down", [64, 32])];
    let weights = weights.map(|(name, shape)| (name, wave(&shape)));
    std::iter::once(("x", wave(&[b, t, 32]))).chain(weights).collect()
}

/// Bytes of memory of this process; none where the system does not say.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|n| n.parse().ok()).map_or(0, |n: u64| n * 4096)
}

/// Extents of a run: a generator of numbers decides them.
fn extents(seed: &mut u64) -> (usize, usize) {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    ((*seed >> 40) as usize % 3 + 1, (*seed >> 50) as usize % 48 + 1)
}

/// Runs from four threads, `each` of them so many; the bytes of the process after a quarter of them and at the end.
fn at_once(session: &Session, alone: &[Vec<Outputs>], each: usize) -> [u64; 2] {
    let round = |count: usize, first: u64| {
        std::thread::scope(|scope| {
            for caller in 0..4 {
                scope.spawn(move || {
                    let mut seed = first + caller;
                    for _ in 0..count {
                        let (b, t) = extents(&mut seed);
                        let y = session.run(inputs(b, t)).expect("runs");
                        assert_eq!(y, alone[b - 1][t - 1], "{b}, {t}");
                    }
                });
            }
        });
        resident()
    };
    [round(each / 4, 1), round(each - each / 4, 100)]
}

fn check(threads: usize, each: usize) {
    let model = Model::from_rules(LAYER).expect("it is read");
    let one = model.session_on(&Device::cpu().threads(1)).expect("a session");
    let row =
        |b: usize| (1..=48).map(|t| one.run(inputs(b, t)).expect("runs")).collect::<Vec<Outputs>>();
    let alone: Vec<Vec<Outputs>> = (1..=3).map(row).collect();
    let session = model.session_on(&Device::cpu().threads(threads)).expect("a session");
    let [early, late] = at_once(&session, &alone, each);
    assert!(late <= early + early / 8 + (16 << 20), "{early} bytes, then {late}");
    let kept = session.allocated().expect("the CPU keeps buffers");
    // Four workspaces, each of the largest extents.
    assert!(kept.arena <= 4 << 20, "{} bytes", kept.arena);
    assert!(kept.results <= 1 << 20, "{} bytes", kept.results);
}

#[test]
fn callers_at_once_have_the_results_of_one() {
    check(1, 100);
    check(2, 100);
}

#[test]
#[ignore = "takes a minute"]
fn ten_thousand_runs_of_callers_at_once_leave_memory_as_it_is() {
    check(2, 2500);
}
