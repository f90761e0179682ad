//! Saved sessions yield the same bits; damaged files are errors.

use super::{read, write};
use crate::device::Device;
use crate::error::Error;
use crate::error::ErrorKind;
use crate::model::Model;
use crate::optimizer::Optimizer;
use crate::session::Session;
use crate::stdlib;
use mlc_dsl::ir::{Attr, DType, Extent, Node, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_fuzz::Generator;
use mlc_verify::random_inputs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MACHINE: &str = "a test";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("session.plan")
    }
}

fn device() -> Device {
    Device::cpu().threads(1)
}

/// What a session yields, element types, extents and bits, or why it does not.
fn results(
    session: &Session,
    program: &Program,
    inputs: &[Tensor],
) -> Result<Vec<(String, Tensor)>, String> {
    let names = program.inputs.iter().map(|(name, _)| name.clone());
    let given = names.zip(inputs.iter().cloned()).collect();
    session.run_tensors(given).map_err(|e| e.to_string())
}

/// Saves a session, and holds the one that is loaded against it.
fn held(session: &Session, program: &Program, library: &Arc<Library>, seed: u64) {
    let folder = Folder::new();
    session.save(folder.file()).expect("it is written");
    let loaded = Session::load(folder.file(), &device()).expect("it is loaded");
    assert_eq!(loaded.inputs(), session.inputs());
    assert_eq!(loaded.outputs(), session.outputs());
    let Some(inputs) = random_inputs::inputs(program, library, seed) else { return };
    assert_eq!(results(&loaded, program, &inputs), results(session, program, &inputs));
    let again = folder.0.path().join("again.plan");
    loaded.save(&again).expect("it is written again");
    assert_eq!(std::fs::read(folder.file()).ok(), std::fs::read(again).ok(), "other bytes");
}

#[test]
fn random_programs_come_back() {
    let library = stdlib::shipped();
    let generator = Generator::new(&library);
    let mut count = 0;
    for seed in 0..60 {
        let program = generator.program(seed);
        // What takes too much memory, or fails when it is planned, is no matter here.
        let Ok(session) = Session::of_program(&program, &library, &device()) else { continue };
        held(&session, &program, &library, seed);
        count += 1;
    }
    assert!(count >= 50, "only {count} programs were held");
}

/// Extents of every form, broadcasts, infinities, layers of the user's, states.
const TEXTS: [&str; 6] = [
    "def tail(x: f32[n, 3]) -> y: f32[m, 3]
  where m = minimum(n, 5)
  = slice(x, start=[n - minimum(n, 5), 0], size=[minimum(n, 5), 3], step=[1, 1])
",
    "def pooled(x: f32[b, 2, n]) -> y: f32[b, 2, m]
  where m = (n + 1) / 2
  = meanpool(x, window=[3], stride=[2], low=[1], high=[1], dilation=[1])
",
    "def scaled(x: f32[n, m], w: f32[m]) -> y: f32[n, m]
  = softmax(x * w, axis=-1) * 0.25
",
    "def large(x: f32[n, m]) -> y: f32[n, m]
  = maximum(x, -inf) + 1e300
",
    "def bump(x: F[..s], k: float in 1..3 = 2.0) -> F[..s]
  = x + exp(-float(k) * x * x)

def model(x: f32[n]) -> y: f32[n]
  = bump(bump(x, k=3.0))
",
    "def kept(past: f32[p, 2], x: f32[s, 2]) -> seen: f32[p + s, 2]
  = concat(past, x, axis=0)
",
];

#[test]
fn texts_with_open_extents_come_back() {
    for text in TEXTS {
        let model = Model::from_rules(text).unwrap_or_else(|e| panic!("{text}{e}"));
        let optimized = Optimizer::new().target("cpu").optimize(&model).expect("it is optimised");
        for session in [optimized.session(), model.session()] {
            let session = session.expect("a session");
            for seed in 0..3 {
                held(&session, &model.program, &model.library, seed);
            }
        }
    }
}

#[test]
fn what_data_decide_is_not_saved() {
    let model = Model::from_rules("def model(x: f32[n]) -> y: f32[n]\n  = x\n").expect("a model");
    let never = Box::new(|_: &Program, _| Err(Error::unexpected("it is not run")));
    let session = Session::of_data(&model, &device(), never);
    let folder = Folder::new();
    let error = session.save(folder.file()).expect_err("there is no plan");
    assert_eq!(error.kind(), ErrorKind::Setting);
    assert!(!folder.file().exists());
}

fn saved(folder: &Folder) -> Vec<u8> {
    let text = "def model(x: f32[n, 4]) -> y: f32[n, 2]
  = slice(relu(x * 2.0), start=[0, 1], size=[n, 2], step=[1, 1])
";
    let model = Model::from_rules(text).expect("a model");
    // Without the text, which would be read again each time.
    let library = stdlib::shipped();
    let session = Session::of_program(&model.program, &library, &device()).expect("a session");
    session.save(folder.file()).expect("it is written");
    std::fs::read(folder.file()).expect("it is there")
}

fn loaded(path: &Path, bytes: &[u8]) -> Result<Session, Error> {
    std::fs::write(path, bytes).expect("it is written");
    Session::load(path, &device())
}

#[test]
fn any_bytes_are_a_session_or_an_error() {
    let folder = Folder::new();
    let whole = saved(&folder);
    let path = folder.file();
    for end in (1..whole.len()).step_by(37) {
        let error = loaded(&path, &whole[..end]).map(drop).expect_err("it is cut off");
        assert_eq!(error.kind(), ErrorKind::Model, "{end}");
    }
    for (at, other) in (0..whole.len()).step_by(2).zip([b'0', b'9', b'-', b'"', 0].iter().cycle()) {
        let mut bytes = whole.clone();
        bytes[at] = *other;
        drop(loaded(&path, &bytes));
    }
}

/// The file with another text in its description.
fn changed(whole: &[u8], from: &str, to: &str) -> Vec<u8> {
    let length = u64::from_le_bytes(whole[..8].try_into().expect("8 bytes")) as usize;
    let header = String::from_utf8(whole[8..8 + length].to_vec()).expect("JSON");
    let from = from.replace('"', "\\\"");
    assert!(header.contains(&from), "{from} is not in {header}");
    let header = header.trim_end().replacen(&from, &to.replace('"', "\\\""), 1);
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &whole[8 + length..]].concat()
}

#[test]
fn what_is_wrong_is_named() {
    let folder = Folder::new();
    let whole = saved(&folder);
    let path = folder.file();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let table = [
        (
            version.as_str(),
            "\"version\":\"9.9\"",
            ErrorKind::Setting,
            "another build, of version 9.9",
        ),
        (
            "a processor with",
            "a processor without",
            ErrorKind::Setting,
            "it was saved for a processor without",
        ),
        ("\"slice\"", "\"slide\"", ErrorKind::Model, "there is no `slide`"),
        ("\"slice\"", "\"concat\"", ErrorKind::Model, "node "),
        (
            "\"kernels\":[",
            "\"kernels\":[],\"others\":[",
            ErrorKind::Model,
            "no kernel computes the output `y`",
        ),
        ("{\"input\":0}", "{\"input\":7}", ErrorKind::Model, "there is no such input"),
        ("\"plan\":", "\"plot\":", ErrorKind::Model, "plan"),
    ];
    for (from, to, kind, reason) in table {
        let error = loaded(&path, &changed(&whole, from, to)).map(drop).expect_err(reason);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.help().is_some(), "{error}");
        assert_eq!(error.place(), Some(path.display().to_string().as_str()), "{error}");
    }
}

#[test]
fn attributes_come_back() {
    use super::extents::SavedAttr;
    let all = [
        Attr::float(f64::NEG_INFINITY),
        Attr::floats([-0.0, f64::NAN, 0.1]),
        Attr::ints([3, -1]),
        Attr::Bool(true),
        Attr::Str("naïve \"words\"".into()),
        Attr::DType(DType::BF16),
    ];
    for attr in all {
        let text = serde_json::to_string(&SavedAttr::from(&attr)).expect("JSON");
        let saved: SavedAttr = serde_json::from_str(&text).expect("it is read");
        assert_eq!(saved.read(), Some(attr), "{text}");
    }
}

#[test]
fn extents_come_back() {
    use super::extents::SavedExtent;
    let (n, m) = (Extent::sym("n"), Extent::sym("m"));
    let five = Extent::from(5);
    let all = [
        Extent::from(-3),
        &(&n * &n) - &(&m * &five),
        (&n + &m).floor_div(&five),
        n.modulo(&m),
        n.minimum(&five),
        (&n - &m).positive(),
        Extent::common(vec![n.clone(), m.clone()]),
        &Extent::common(vec![n.minimum(&m), m.clone()]) * &n.floor_div(&m),
    ];
    for extent in all {
        let text = serde_json::to_string(&SavedExtent::from(&extent)).expect("JSON");
        let saved: SavedExtent = serde_json::from_str(&text).expect("it is read");
        assert_eq!(saved.read(), Some(extent), "{text}");
    }
}

/// Texts are numbers of a process; in a file they are themselves. What a run need not give comes back, too.
#[test]
fn texts_and_defaults_come_back() {
    let library = stdlib::shipped();
    let words = Tensor::from_strings(vec![2], ["", "größer"]).expect("two texts");
    let mut program = Program::default();
    let kind = NodeKind::Const(program.consts.intern(words.clone()));
    let types = vec![Type::known(DType::Str, &[2])];
    let node = program.push(Node { kind, args: vec![], types, origin: "the node".into() });
    program.outputs.push(("words".into(), Value { node, output: 0 }));
    let plan = Plan::new(program, &library, vec![], 0.5);
    let folder = Folder::new();
    let defaults = vec![("x".to_string(), Tensor::from_f32(vec![1], vec![f32::NAN]))];
    write(&folder.file(), (&plan, &library), &defaults, MACHINE.into()).expect("it is written");
    let back = read(&folder.file(), MACHINE.into()).expect("it is read");
    assert_eq!(back.defaults[0].0, "x");
    assert_eq!(back.defaults[0].1, defaults[0].1);
    assert_eq!(back.plan.program.consts.iter().next(), Some(&words));
    assert_eq!(back.plan.cost, 0.5);
}
