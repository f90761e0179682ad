//! `GroupQueryAttention` with open extents: states that end where the new keys begin, and states with room behind them, which one model takes both.

use super::super::support::*;
use super::{D, drawn, whole};
use mlc_onnx::to_bytes;
use mlc_rewrite::{AnyArray, Device, Reader, Session};

/// Key heads; each has two query heads.
const KEYS: usize = 2;

/// Extents of a run: batch, new keys, keys in all, room of the states.
type Extents = [usize; 4];

/// Whether the batch is open, and positions turn heads.
#[derive(Clone, Copy, Debug)]
struct Kind {
    open_batch: bool,
    rotary: bool,
}

const KINDS: [Kind; 3] = [
    Kind { open_batch: false, rotary: false },
    Kind { open_batch: false, rotary: true },
    Kind { open_batch: true, rotary: true },
];

/// The inputs of a run; `mask` has as many columns as there are keys in all.
fn feeds([b, s, t, room]: Extents) -> [Tensor; 7] {
    let state = |seed| drawn(seed, &[b, KEYS, room, D]);
    [
        drawn(1, &[b, s, 2 * KEYS * D]),
        drawn(2, &[b, s, KEYS * D]),
        drawn(3, &[b, s, KEYS * D]),
        state(4),
        state(5),
        whole(&[b], &vec![t as i64 - 1; b]),
        ints(&[b, t], &vec![1; b * t]),
    ]
}

/// Attention whose number of keys is that of a mask's columns, as builders of language models write it.
fn raw(kind: Kind, extents: Extents, is_open: bool) -> RawModel {
    let symbols: [&'static [&'static str]; 7] = match kind.open_batch {
        true => [
            &["b", "s"],
            &["b", "s"],
            &["b", "s"],
            &["b", "", "p"],
            &["b", "", "p"],
            &["b"],
            &["b", "t"],
        ],
        false => {
            [&["", "s"], &["", "s"], &["", "s"], &["", "", "p"], &["", "", "p"], &[], &["", "t"]]
        }
    };
    let args = feeds(extents).into_iter().zip(symbols);
    let mut args: Vec<Arg> = args.map(|(t, s)| if is_open { Sym(t, s) } else { In(t) }).collect();
    args.push(Const(ints(&[], &[1])));
    args.extend([Const(drawn(6, &[32, D / 2])), Const(drawn(7, &[32, D / 2]))]);
    let mut read: Vec<&str> = ["x0", "x1", "x2", "x3", "x4", "x5", "total"].to_vec();
    if kind.rotary {
        read.extend(["x8", "x9"]);
    }
    let attrs = [
        ("num_heads", int(2 * KEYS as i64)),
        ("kv_num_heads", int(KEYS as i64)),
        ("do_rotary", int(kind.rotary.into())),
    ];
    let mut grouped = node("GroupQueryAttention", &read, &["y0", "y1", "y2"], &attrs);
    grouped.domain = "com.microsoft".into();
    let nodes = vec![
        node("Shape", &["x6"], &["columns"], &[]),
        node("Gather", &["columns", "x7"], &["keys"], &[]),
        node("Cast", &["keys"], &["total"], &[("to", int(6))]),
        grouped,
    ];
    let (mut raw, _) = model(18, &args, nodes, &["y0", "y1", "y2"]);
    raw.opset_imports.insert("com.microsoft".into(), 1);
    raw
}

/// Growing states, prompts with and without room, states with room, full ones.
const RUNS: [Extents; 8] = [
    [1, 1, 6, 5],
    [1, 3, 8, 5],
    [1, 4, 4, 0],
    [1, 1, 6, 9],
    [1, 1, 6, 6],
    [1, 4, 4, 9],
    [1, 2, 3, 1],
    [1, 1, 1, 0],
];
const BATCHES: [Extents; 3] = [[2, 1, 6, 5], [3, 1, 6, 9], [2, 4, 4, 0]];

#[test]
fn states_may_end_or_have_room() {
    for kind in KINDS {
        let open = import(raw(kind, RUNS[0], true), library()).expect("it is read").program;
        let batches = BATCHES.iter().filter(|_| kind.open_batch);
        for &extents in RUNS.iter().chain(batches) {
            let closed = import(raw(kind, extents, false), library()).expect("it is read").program;
            let feeds = feeds(extents);
            // Inputs that a program does not read are none of its own.
            let own = |p: &Program| -> Vec<Tensor> {
                let at = |(n, _): &(String, _)| {
                    feeds[n[1..].parse::<usize>().expect("a number")].clone()
                };
                p.inputs.iter().map(at).collect()
            };
            let expected = run(&closed, &own(&closed));
            for (found, expected) in run(&open, &own(&open)).iter().zip(&expected) {
                same(found, expected, &format!("{kind:?} at {extents:?}"));
            }
        }
    }
}

fn session(kind: Kind) -> Session {
    let raw = raw(kind, RUNS[0], true);
    let model =
        Reader::new().from_bytes(to_bytes(&raw).expect("it is written")).expect("it is read");
    let session = model.session_on(&Device::cpu().threads(1)).expect("a session");
    assert!(!session.is_decided_by_data(), "{kind:?}");
    session
}

#[test]
fn growing_states_are_appended_in_place() {
    let kind = KINDS[1];
    let session = session(kind);
    assert_eq!(session.appended(), [("y1", "x3"), ("y2", "x4")]);
    let mut stream = session.bind();
    assert_eq!(stream.feed_back_appended().len(), 2);
    let mut states: Vec<AnyArray> = vec![floats(&[1, KEYS, 0, D], &[]).into(); 2];
    for (input, state) in ["x3", "x4"].iter().zip(&states) {
        stream.set(input, state.clone()).expect("a state");
    }
    for past in 0..20 {
        let new = feeds([1, 1, past + 1, past]);
        let given = |i: usize| (format!("x{i}"), AnyArray::from(new[i].clone()));
        let own: Vec<_> = [0, 1, 2, 5, 6].map(given).into();
        let by_hand = own.iter().cloned();
        let pairs = ["x3", "x4"].map(String::from).into_iter().zip(states.clone());
        let expected = session.run(by_hand.chain(pairs)).expect("it runs");
        let found = stream.run(own).expect("it runs");
        assert_eq!(found["y0"], expected["y0"], "after {past}");
        states = ["y1", "y2"].map(|o| expected[o].clone()).into();
        for (input, state) in ["x3", "x4"].iter().zip(&states) {
            assert_eq!(stream.get(input).expect("an input").as_ref(), Some(state), "after {past}");
        }
    }
}
