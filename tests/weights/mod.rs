//! Models of files of weights: GGUF in blocks, GGUF of floats and a folder of safetensors are one model, pasts continue
//! it, and what does not fit is named.

mod files;

use files::{GROUPS, LAYERS, SIZE, WORDS, decoder, decoder_folder};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Type};
use mlc_rewrite::ndarray::{ArrayD, IxDyn};
use mlc_rewrite::pipeline::{self, Options};
use mlc_rewrite::{AnyArray, Error, Model, Optimizer, Outputs, Reader, Session, stdlib};
use std::path::Path;

fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn read(gguf: &files::Gguf) -> Result<Model, Error> {
    Model::read(written(&gguf.bytes()).path())
}

/// A run on ids, after what `past` has.
fn run(session: &Session, ids: &[i64], past: Option<&Outputs>) -> Outputs {
    let used = past.map_or(0, |p| p.get("present.0.key").unwrap().shape()[2]);
    let row = |v: Vec<i64>| -> AnyArray {
        ArrayD::from_shape_vec(IxDyn(&[1, v.len()]), v).unwrap().into()
    };
    let all = used + ids.len();
    let mut inputs = vec![
        ("input_ids".to_string(), row(ids.to_vec())),
        ("attention_mask".to_string(), row(vec![1; all])),
        ("position_ids".to_string(), row((used as i64..all as i64).collect())),
    ];
    for i in 0..LAYERS {
        for part in ["key", "value"] {
            let none = || ArrayD::<f32>::zeros(IxDyn(&[1, GROUPS, 0, SIZE])).into();
            let array =
                past.map_or_else(none, |p| p.get(&format!("present.{i}.{part}")).unwrap().clone());
            inputs.push((format!("past.{i}.{part}"), array));
        }
    }
    session.run(inputs).unwrap()
}

fn logits(outputs: &Outputs) -> Vec<f32> {
    outputs.array::<f32>("logits").unwrap().iter().copied().collect()
}

fn assert_close(a: &[f32], b: &[f32]) {
    let largest = b.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= 1e-5 * largest, "{x} is not {y}");
    }
}

const IDS: [i64; 5] = [3, 17, 39, 0, 8];

#[test]
fn blocks_floats_and_safetensors_are_one_model() {
    let folder = tempfile::tempdir().unwrap();
    decoder_folder(folder.path());
    let saved = Model::read(folder.path()).unwrap();
    let wanted = logits(&run(&saved.session().unwrap(), &IDS, None));
    assert_eq!(wanted.len(), IDS.len() * WORDS);
    assert!(wanted.iter().any(|v| v.abs() > 0.1));
    for blocks in [false, true] {
        let model = read(&decoder(blocks)).unwrap();
        assert_close(&logits(&run(&model.session().unwrap(), &IDS, None)), &wanted);
        let names: Vec<String> = model.inputs().iter().map(|i| i.name().to_string()).collect();
        assert_eq!(names[..4], ["input_ids", "attention_mask", "position_ids", "past.0.key"]);
    }
}

#[test]
fn a_file_for_another_runtime_holds_numbers() {
    let model = read(&decoder(true)).unwrap();
    let wanted = run(&model.session().unwrap(), &IDS, None);
    for target in ["standard", "onnxruntime"] {
        let result = Optimizer::new().target(target).optimize(&model).expect(target);
        let file = Model::from_bytes(result.to_bytes().expect("written")).expect("it loads");
        let session = file.session().unwrap();
        let (first, more) = (run(&session, &IDS, None), run(&session, &IDS[..1], Some(&wanted)));
        assert_close(&logits(&first), &logits(&wanted));
        let reference = run(&model.session().unwrap(), &IDS[..1], Some(&wanted));
        assert_close(&logits(&more), &logits(&reference));
    }
}

#[test]
fn a_past_continues_a_model_and_the_last_position_may_stand_alone() {
    let file = written(&decoder(true).bytes());
    let session = Model::read(file.path()).unwrap().session().unwrap();
    let whole = run(&session, &IDS, None);
    let part = run(&session, &IDS[..3], None);
    let rest = run(&session, &IDS[3..], Some(&part));
    assert_close(&logits(&rest), &logits(&whole)[3 * WORDS..]);
    let last = Reader::new().option("last", true).read(file.path()).unwrap();
    let last = run(&last.session().unwrap(), &IDS, None);
    assert_close(&logits(&last), &logits(&whole)[4 * WORDS..]);
    let e = Reader::new().option("lsat", true).read(file.path()).unwrap_err();
    assert!(e.to_string().contains("option `lsat`") && e.help().is_some(), "{e}");
}

#[test]
fn rounded_rows_are_what_the_model_means() {
    let file = written(&decoder(true).bytes());
    let exact = run(&Model::read(file.path()).unwrap().session().unwrap(), &IDS, None);
    let rounded = Reader::new().option("rounded", true).read(file.path()).unwrap();
    let wanted = logits(&run(&rounded.session().unwrap(), &IDS, None));
    let exact = logits(&exact);
    let largest = exact.iter().fold(0f32, |m, v| m.max(v.abs()));
    let off = exact.iter().zip(&wanted).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
    assert!((1e-4..0.05).contains(&(off / largest)), "{off} of {largest}");
    let result = Optimizer::new().optimize(&rounded).unwrap();
    let kernels = result.result().plan.kernels.iter();
    let products = kernels.filter(|k| k.name == "gemm_blocks_rounded").count();
    assert_eq!(products, 7 * LAYERS + 1, "{}", result.text());
    let own = logits(&run(&result.session().unwrap(), &IDS, None));
    assert_close(&own, &wanted);
}

/// Products of many rows take no longer with weights in blocks than with numbers, and those of few rows a fraction.
#[test]
fn weights_stay_in_blocks_on_every_processor_where_rows_are_open() {
    let library = stdlib::shipped();
    let call = |name: &str| library.find(name).expect("shipped");
    let mut b = Builder::new(&library);
    let x = b.input("x", Type::new(DType::F32, vec![Extent::sym("n"), Extent::from(576)]));
    let blocks = Tensor::from_i64(DType::U8, vec![1536, 18, 20], &[1; 1536 * 18 * 20]);
    let blocks = b.constant(blocks);
    let numbers = b.apply(call("q4_1"), &[], &[blocks]).expect("types")[0];
    let perm = Some(Attr::ints([1, 0]));
    let turned = b.apply(call("transpose"), &[perm], &[numbers]).expect("types")[0];
    let y = b.apply(call("matmul"), &[], &[x, turned]).expect("types")[0];
    let program = b.finish(vec![("y".into(), y)]);
    for target in ["cpu", "cpu_avx512_halves", "cpu_avx2", "cpu_neon", "cpu_baseline"] {
        let options = Options { target: target.into(), self_check: false, ..Options::default() };
        let result = pipeline::optimize(program.clone(), &library, &options).expect(target);
        let kernels: Vec<&str> = result.plan.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(kernels, ["gemm_blocks"], "{target}");
    }
}

#[test]
fn the_embedding_and_the_head_are_one_constant_of_the_file() {
    let model = read(&decoder(true)).unwrap();
    let program = model.program();
    let table = |t: &&mlc_dsl::ir::Tensor| t.shape() == [WORDS, 1, 20];
    assert_eq!(program.consts.iter().filter(table).count(), 1);
    assert!(program.consts.iter().all(|t| t.len() < 64 || t.dtype() == mlc_rewrite::DType::U8));
}

#[test]
fn extents_may_be_given() {
    let file = written(&decoder(true).bytes());
    let model = Reader::new().shape("batch", &[1]).bind("past", 7).read(file.path()).unwrap();
    let shape = |name: &str| model.inputs().iter().find(|i| i.name() == name).unwrap().shape();
    assert_eq!(shape("past.1.value"), [Some(1), Some(GROUPS), Some(7), Some(SIZE)]);
    assert_eq!(shape("input_ids")[1], None);
}

fn told(gguf: &files::Gguf, parts: &[&str]) {
    let e = read(gguf).unwrap_err();
    let message = e.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(message.contains("\nhelp: ") || message.contains("help:"), "{message}");
}

#[test]
fn what_does_not_fit_is_named() {
    let sound = decoder(true);
    let change = |f: &dyn Fn(&mut files::Gguf)| {
        let mut changed = sound.clone();
        f(&mut changed);
        changed
    };
    let at = |g: &files::Gguf, name: &str| g.tensors.iter().position(|t| t.0 == name).unwrap();
    let missing = change(&|g| drop(g.tensors.remove(at(g, "blk.1.ffn_up.weight"))));
    told(&missing, &["tensor `blk.1.ffn_up.weight`: it is missing", "llama_gguf"]);
    let other = change(&|g| {
        let i = at(g, "blk.0.attn_q.weight");
        g.tensors[i].1 = vec![16, 64];
    });
    told(&other, &["tensor `blk.0.attn_q.weight`: its shape is [16, 64]", "[32, 32]"]);
    let unknown = change(&|g| {
        let i = at(g, "blk.0.attn_v.weight");
        g.tensors[i].2 = 77;
    });
    told(&unknown, &["tensor `blk.0.attn_v.weight`: its type 77 is not known", "q4_1"]);
    let alien = change(&|g| {
        g.keys[0] = decoder(true).text("general.architecture", "alien").keys.pop().unwrap()
    });
    told(&alien, &["no `architecture` of format `gguf` is called `alien`", "llama"]);
    let keyless = change(&|g| drop(g.keys.remove(1)));
    told(&keyless, &["key `llama.block_count`", "needs it"]);
    let cut = written(&sound.bytes()[..sound.bytes().len() - 600]);
    let e = Model::read(cut.path()).unwrap_err().to_string();
    assert!(e.contains("tensor `") && e.contains("and the file has"), "{e}");
}

#[test]
fn what_is_not_read_is_noted() {
    let mut more = decoder(true);
    assert!(read(&more).unwrap().notes().is_empty());
    more.tensors.push((
        "blk.0.ffn_up.bias".into(),
        vec![files::INNER],
        0,
        vec![0; 4 * files::INNER],
    ));
    let notes = read(&more).unwrap().notes().join("\n");
    assert!(notes.contains("1 unread, `blk.0.ffn_up.bias`"), "{notes}");
}

#[test]
fn another_architecture_is_a_text() {
    let text = "
def next_to(x: f32[b, s, k], w: f32[n, k]) -> f32[b, s, n]
  = tanh(x @ w[k, n])
architecture alien() of gguf \"alien\"
  let x = rows(\"w\", [40, 32], input(\"ids\", i64, [symbol(\"b\"), symbol(\"s\")]))
  each i in metadata(\"alien.times\") let x = next_to(x, tensor(\"v\", [32, 32]))
  let \"y\" = x
";
    let mut gguf =
        files::Gguf::default().text("general.architecture", "alien").int("alien.times", 3);
    for (name, shape) in [("w", vec![40, 32]), ("v", vec![32, 32])] {
        let w = files::numbers(name, &shape);
        gguf.tensors.push((name.into(), shape, 3, files::q4_1(&w)));
    }
    let file = written(&gguf.bytes());
    let model = Reader::new().rules_text("alien.rules", text).read(file.path()).unwrap();
    let ids: AnyArray = ArrayD::from_shape_vec(IxDyn(&[1, 2]), vec![39i64, 4]).unwrap().into();
    let y = model.session().unwrap().run([("ids", ids)]).unwrap();
    let y: Vec<f32> = y.array::<f32>("y").unwrap().iter().copied().collect();
    let (w, v) = (files::numbers("w", &[40, 32]), files::numbers("v", &[32, 32]));
    let mut x: Vec<f32> = [39, 4].iter().flat_map(|r| w[r * 32..(r + 1) * 32].to_vec()).collect();
    for _ in 0..3 {
        let dot = |r: usize, n: usize| (0..32).map(|k| x[r * 32 + k] * v[n * 32 + k]).sum::<f32>();
        x = (0..64).map(|i| dot(i / 32, i % 32).tanh()).collect();
    }
    assert_close(&y, &x);
}

#[test]
fn no_change_of_a_byte_of_the_description_makes_reading_panic() {
    let bytes = decoder(true).bytes();
    for at in (0..1200).step_by(7) {
        for value in [0, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let file = written(&changed);
            if let Err(e) = Model::read(Path::new(file.path())) {
                assert!(!e.to_string().is_empty());
            }
        }
    }
}
