//! Sessions at extents that vary from run to run.

use mlc_rewrite::ndarray::ArrayD;
use mlc_rewrite::{AnyArray, Device, Model};

/// Attention of one new step over a cache that has any length, from several threads.
const STEP: &str = "
def step(x: f32[1, 16], past: f32[n, 16], w: f32[16, 16]) -> y: f32[1, 16], all: f32[n + 1, 16]
  let q = tanh(x @ w)
  let keys = concat(past, q, axis=0)
  = (softmax(q @ transpose(keys, perm=[1, 0]), axis=1) @ keys, keys)
";

#[test]
fn runs_at_any_extents_share_what_they_do_not_read() {
    let session = Model::from_rules(STEP)
        .expect("it is read")
        .session_on(&Device::cpu().threads(1))
        .expect("a session");
    let inputs = |n: usize| -> [(&str, AnyArray); 3] {
        let wave = |rows: usize| {
            ArrayD::from_shape_fn(vec![rows, 16], |at| ((at[0] * 16 + at[1] * 3) as f32).sin())
        };
        [("x", wave(1).into()), ("past", wave(n).into()), ("w", wave(16).into())]
    };
    let alone: Vec<_> = (0..40).map(|n| session.run(inputs(n)).expect("runs")).collect();
    let kept = session.allocated().expect("the CPU keeps buffers");
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (session, alone) = (&session, &alone);
            scope.spawn(move || {
                for n in (0..200).map(|i| (i * 7 + first * 11) % 40) {
                    assert_eq!(session.run(inputs(n)).expect("runs"), alone[n], "{n}");
                }
            });
        }
    });
    drop(alone);
    // Of each thread what one run takes, and of results those of the largest run twice.
    let after = session.allocated().expect("the CPU keeps buffers");
    assert!(after.arena <= 5 * kept.arena, "{} and {} bytes", kept.arena, after.arena);
    assert!(after.results <= 8 << 10, "{} bytes", after.results);
}
