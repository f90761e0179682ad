//! Generated kernels compile with NVRTC, where there is one: the library that `MLC_NVRTC` names, one on the library path, that
//! which `scripts/nvrtc` installs, or that of the Python package `nvidia-cuda-nvrtc`. No function of a model spills registers.

use super::{open_attention, open_extents};
use mlc_backends::BackendError;
use mlc_cuda::nvrtc::Usage;
use mlc_cuda::{DriverError, Launch, PRELUDE, Policy, Tuning, Warpgroups, launches_for, nvrtc};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Program, Type, Value};
use mlc_dsl::library::CallId;
use mlc_dsl::plan::Plan;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::Generator;
use mlc_fuzz::input_values::Style;
use mlc_onnx::{RawDim, import, read_onnx};
use mlc_proptests::emulated::has_no_code;
use mlc_proptests::filled::{Case, folders};
use mlc_proptests::shapes::SEVERAL_LAUNCHES;
use mlc_proptests::stacks::Decoder;
use mlc_proptests::{checked_options, defined, library, library_with, program_of};
use mlc_rewrite::pipeline::{Options, optimize};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Names the library file.
const VARIABLE: &str = "MLC_NVRTC";
/// Names a folder of models, whose code is compiled, too.
const MODELS: &str = "MLC_CUDA_MODELS";
/// Names the one unit that is compiled.
const CASE: &str = "MLC_CUDA_CASE";
/// What code is compiled for, and for the newest architecture besides.
const ARCHITECTURES: [&str; 2] = ["sm_80", HOPPER];
/// Has launches that start early.
const HOPPER: &str = "sm_90a";
/// Where `scripts/nvrtc` installs it.
const INSTALLED: &str = "../target/nvrtc/nvidia";
/// Applications of each operator, and the seeds that they are drawn by at most.
const APPLICATIONS: usize = 2;
const MOST_SEEDS: u64 = 12;

/// Prints the path of the library in the packages of Python.
const FIND: &str = "import nvidia, pathlib\n\
    found = [f for p in nvidia.__path__ for f in pathlib.Path(p).glob('*/lib/libnvrtc.so.*')]\n\
    print(found[0])";

/// The library that the script installed.
fn installed() -> Option<String> {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join(INSTALLED).read_dir().ok()?;
    let mut found: Vec<_> = packages
        .flatten()
        .flat_map(|package| package.path().join("lib").read_dir().into_iter().flatten().flatten())
        .map(|file| file.path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libnvrtc.so.")))
        .collect();
    found.sort();
    found.pop().map(|p| p.display().to_string())
}

/// The library in the packages of Python.
fn packaged() -> Option<String> {
    let output = Command::new("python3").args(["-c", FIND]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && Path::new(&path).is_file()).then_some(path)
}

/// Functions under names of their own.
#[derive(Default)]
struct Functions {
    texts: Vec<String>,
    /// How many of them are runs as one launch.
    merged: usize,
}

impl Functions {
    /// Adds those of a plan.
    fn add(&mut self, plan: &Plan) -> Result<(), BackendError> {
        self.add_for(plan, Tuning::default())
    }

    /// The same for a device; and all of a run as one launch, where that is possible.
    fn add_for(&mut self, plan: &Plan, tuning: Tuning) -> Result<(), BackendError> {
        let launches =
            launches_for(plan, library(), Tuning { megakernel: Policy::Always, ..tuning })?;
        for launch in launches.once.iter().chain(&launches.each) {
            self.add_one(launch);
            launch.fallback.iter().for_each(|l| self.add_one(l));
        }
        launches.variants.iter().flat_map(|v| &v.replacement).for_each(|l| self.add_one(l));
        if let Some(merged) = &launches.megakernel {
            self.merged += 1;
            self.add_one(merged);
        }
        Ok(())
    }

    /// Phases of a merged launch have names that others of its plan have, too.
    fn add_one(&mut self, launch: &Launch) {
        let n = self.texts.len();
        let fresh = format!("{}_{n}(", launch.function);
        let text = launch.source.replace(&format!(" {}(", launch.function), &format!(" {fresh}"));
        self.texts.push(format!("namespace unit_{n} {{\n{text}}}"));
    }

    /// The translation unit of all.
    fn unit(&self) -> String {
        format!("{PRELUDE}\n{}", self.texts.join("\n"))
    }
}

/// An operator whose lists are never drawn such that they describe trees.
const TREES: &str = "tree_ensemble";

/// A tree of one node.
fn trees() -> Program {
    let mut b = Builder::new(library());
    let types: [(DType, &[usize]); 5] = [
        (DType::F32, &[5, 2]),
        (DType::F32, &[1]),
        (DType::U8, &[1]),
        (DType::F32, &[1]),
        (DType::F32, &[2]),
    ];
    let mut args = vec![];
    for (i, (dtype, shape)) in types.into_iter().enumerate() {
        args.push(b.input(&i.to_string(), Type::known(dtype, shape)));
    }
    let int = |v: i64| Attr::Int(Extent::from(v));
    let ints = |l: &[i64]| Attr::Ints(l.iter().map(|&v| Extent::from(v)).collect());
    let lists: [&[i64]; 8] = [&[0], &[0], &[1], &[1], &[1], &[0], &[0], &[0, 1]];
    let attrs: Vec<Option<Attr>> =
        lists.into_iter().map(ints).chain([int(2), int(1), ints(&[])]).map(Some).collect();
    let op = library().find(TREES).expect("shipped");
    let y = b.apply(op, &attrs, &args).expect("types")[0];
    b.finish(vec![("y".into(), y)])
}

/// Applications of every operator.
fn operators() -> Functions {
    let generator = Generator::new(library());
    let mut functions = Functions::default();
    for i in 0..library().calls.len() as u32 {
        let drawn = (0..MOST_SEEDS).filter_map(|seed| generator.single(CallId(i), seed));
        // Some are drawn that no backend computes.
        let added = |p| functions.add(&Plan::of_nodes(p, library(), "reference")).is_ok();
        let added = drawn.map(added).filter(|ok| *ok).take(APPLICATIONS).count();
        let call = library().call(CallId(i));
        let is_known = has_no_code(call) || &*call.name == TREES;
        assert!(added > 0 || is_known, "no application of {}", call.name);
    }
    functions.add(&Plan::of_nodes(trees(), library(), "reference")).expect("code");
    functions
}

/// Attention with heads of the usual sizes, of many queries and of few, with a condition or without.
fn attentions() -> Functions {
    let mut functions = Functions::default();
    let target = library().target("cuda").expect("shipped");
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let queries = [(512, false), (512, true), (12, true), (8, false), (4, true), (1, true)];
        for (head, (queries, is_chosen)) in
            [64, 128].into_iter().flat_map(|h| queries.map(|q| (h, q)))
        {
            let mut b = Builder::new(library());
            let shapes = [[queries, head], [2048, head], [2048, head], [queries, 2048]];
            let types = [dtype, dtype, dtype, DType::Bool].into_iter().zip(shapes);
            let input = |(i, (dtype, [m, n])): (usize, (DType, [usize; 2]))| {
                b.input(&format!("x{i}"), Type::known(dtype, &[2, m, n]))
            };
            let taken = if is_chosen { 4 } else { 3 };
            let args: Vec<Value> = types.enumerate().map(input).take(taken).collect();
            let (op, low) = match is_chosen {
                true => ("attention_select", Some(Attr::float(f64::NEG_INFINITY))),
                false => ("attention", None),
            };
            let attrs =
                [vec![Some(Attr::float(0.125))], low.map(Some).into_iter().collect()].concat();
            let y = b.apply(library().find(op).expect("shipped"), &attrs, &args).expect("types")[0];
            let p = b.finish(vec![("y".into(), y)]);
            for tf32 in [false, true].into_iter().filter(|tf32| !tf32 || dtype == DType::F32) {
                let tuning = Tuning { tf32, ..Tuning::default() };
                let before = functions.texts.len();
                functions
                    .add_for(&select_kernels(p.clone(), library(), target), tuning)
                    .expect("code");
                let one = functions.texts[before..]
                    .iter()
                    .any(|t| t.contains("with a normalised factor"));
                assert!(one, "attention of {dtype} in one pass");
            }
        }
    }
    functions
}

/// Attention whose blocks have as many threads as those of other launches, with what follows it.
const ATTENDED: &str = "
    def attended(q: f32[2, 100, 64], k: f32[2, 300, 64], v: f32[2, 300, 64], w: f32[64, 40]) -> f32[2, 100, 40]
      = softmax(attention(q, k, v, scale=0.125) @ w, axis=2)
";

/// Programs of several launches, also as one.
fn several() -> Functions {
    let own = library_with(&format!("{SEVERAL_LAUNCHES}{ATTENDED}"));
    let target = own.target("cuda").expect("shipped");
    let mut functions = Functions::default();
    for name in ["stack", "halves", "image", "picked", "row", "attended"] {
        let plan = select_kernels(program_of(&own, name), &own, target);
        let before = functions.merged;
        functions.add(&plan).expect("code");
        assert!(functions.merged > before, "{name} is not one launch");
    }
    functions
}

/// Products in 16 bits by warpgroups, large and not: in both layouts of each factor, with what precedes and follows, in parts.
const WIDE: &str = "
    def large(x: f16[4096, 4096], w: f16[4096, 4096]) -> f16[4096, 4096] = x @ w
    def halves(x: bf16[512, 768], w: bf16[768, 3072], b: bf16[3072]) -> bf16[512, 3072] = gelu(x @ w + b)
    def columns(x: f16[768, 512], w: f16[768, 768]) -> f16[512, 768]
      = transpose(x, perm=[1, 0]) @ transpose(w, perm=[1, 0])
    def odd(x: f16[1000, 520], w: f16[520, 1016], b: f16[1016]) -> f16[1000, 1016] = relu(x @ w + b)
    def narrow(x: f16[4096, 640], w: f16[640, 64]) -> f16[4096, 64] = x @ w
    def flat(x: f16[64, 640], w: f16[640, 4096]) -> f16[64, 4096] = x @ w
    def deep(x: f16[128, 8192], w: f16[8192, 128], b: f16[128]) -> f16[128, 128] = relu(x @ w + b)
    def scaled(x: f16[512, 768], s: f16[768], w: f16[768, 768]) -> f16[512, 768] = (x * s) @ w
    def apart(x: f16[511, 333], w: f16[333, 255]) -> f16[511, 255] = x @ w
    def heads(x: f16[12, 512, 64], w: f16[12, 64, 512]) -> f16[12, 512, 512] = x @ w
    def image(x: f16[8, 28, 28, 128], w: f16[3, 3, 128, 128], b: f16[128]) -> f16[8, 28, 28, 128]
      = relu(conv_all_channels_last(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1) + b)
";

/// The same in types that warpgroups do not multiply here.
const TILED: &str = "
    def floats(x: f32[128, 768], w: f32[768, 3072], b: f32[3072]) -> f32[128, 3072] = gelu(x @ w + b)
    def deep_floats(x: f32[128, 3072], w: f32[3072, 768], r: f32[128, 768]) -> f32[128, 768] = x @ w + r
    def doubles(x: f64[256, 1024], w: f64[1024, 256]) -> f64[256, 256] = x @ w
    def odd_halves(x: f16[63, 2047], w: f16[2047, 777]) -> f16[63, 777] = x @ w
    def bytes(x: u8[64, 1024], w: i8[1024, 256]) -> i32[64, 256] = matmul_integer(x, w, 0, 0)
";

/// The functions of all definitions of a text for a device; each has some that contain a word, which says what is meant.
fn defined_for(text: &str, tuning: Tuning, word: &str) -> Functions {
    let own = library_with(text);
    let target = own.target("cuda").expect("shipped");
    let mut functions = Functions::default();
    for name in defined(text) {
        let plan = select_kernels(program_of(&own, name), &own, target);
        let before = functions.texts.len();
        functions.add_for(&plan, tuning).expect("code");
        let has_some = functions.texts[before..].iter().any(|t| t.contains(word));
        assert!(has_some, "{name} has no function with `{word}`");
    }
    functions
}

fn wide() -> Functions {
    let tuning = Tuning { warpgroups: Warpgroups::Always, ..Tuning::default() };
    defined_for(WIDE, tuning, "wgmma_")
}

/// Products in all tilings that a device's clock may choose from.
fn tilings() -> Functions {
    let tuning = Tuning { offers_tilings: true, ..Tuning::default() };
    let functions = defined_for(&format!("{WIDE}{TILED}"), tuning, "KERNEL(");
    assert!(functions.texts.iter().any(|t| t.contains("LARGE_SHARED")), "none takes more memory");
    functions
}

/// Elements of at most 8 bits: what reads and writes them, and products that decode weights as they load them.
fn small_types() -> Functions {
    let of = |d: DType| {
        format!(
            "def of_{d}(x: f32[100], y: f64[100]) -> {d}[200]
               = concat(cast(x, to={d}), cast(y, to={d}), axis=0)
             def to_{d}(x: {d}[16, 256], w: {d}[256, 72]) -> f16[16, 72]
               = cast(x, to=f16) @ cast(w, to=f16)\n"
        )
    };
    let text: String = DType::ALL.into_iter().filter(|d| d.is_small()).map(of).collect();
    defined_for(&text, Tuning::default(), "KERNEL(")
}

/// Recurrent layers whose steps all blocks share: weights in registers, few and many, and in memory; one element of the batch and several.
fn layers() -> Functions {
    let target = library().target("cuda").expect("shipped");
    let mut functions = Functions::default();
    let sizes =
        [(512, 1, DType::F32), (512, 8, DType::F16), (1024, 4, DType::F32), (2048, 2, DType::F64)];
    for (hidden, batch, dtype) in sizes {
        let attrs = |last: Option<i64>| {
            let word = Some(Attr::Str("forward".into()));
            [Some(word), last.map(|v| Some(Attr::int(v)))].into_iter().flatten().collect()
        };
        let layers: [(&str, usize, Vec<Option<Attr>>); 3] =
            [("lstm", 4, attrs(None)), ("gru", 3, attrs(Some(0))), ("gru", 3, attrs(Some(1)))];
        for (name, gates, attrs) in layers {
            let mut b = Builder::new(library());
            let rows = gates * hidden;
            let state = [1, batch, hidden];
            let shapes: [&[usize]; 6] = [
                &[16, batch, 512],
                &[1, rows, 512],
                &[1, rows, hidden],
                &[1, 2 * rows],
                &state,
                &state,
            ];
            let taken = shapes.iter().take(gates + 2).enumerate();
            let args: Vec<Value> =
                taken.map(|(i, s)| b.input(&i.to_string(), Type::known(dtype, s))).collect();
            let op = library().find(name).expect("shipped");
            let y = b.apply(op, &attrs, &args).expect("types")[0];
            let plan = select_kernels(b.finish(vec![("y".into(), y)]), library(), target);
            let before = functions.texts.len();
            functions.add(&plan).expect("code");
            let one = functions.texts[before..].iter().any(|t| t.contains("wait_for_grid"));
            assert!(one, "{name} of {hidden} units, {dtype}: all blocks share its steps");
        }
    }
    functions
}

/// A small transformer and a network of convolutions.
fn models() -> Vec<Program> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/squeezenet1_1.onnx");
    let mut models = vec![Decoder::small(2).seeded(), read_onnx(path).expect("reads")];
    for dim in models.iter_mut().flat_map(|m| &mut m.graph.inputs).flat_map(|i| &mut i.dims) {
        for extent in dim.iter_mut().filter(|d| !matches!(d, RawDim::Known(_))) {
            *extent = RawDim::Known(16);
        }
    }
    let program = |model| import(model, library()).expect("imports").program;
    models.into_iter().map(program).collect()
}

/// Compiles units for all architectures; no function of a model spills registers.
fn compile(units: impl IntoIterator<Item = (String, Functions)>) {
    let newest = nvrtc::architectures().expect("a compiler").into_iter().max().expect("some");
    let newest = format!("sm_{newest}");
    let mut spills = Vec::new();
    for (name, functions) in units {
        let of_one = |t: &String| t.contains("wgmma_");
        let is_open = |arch: &&str| *arch == HOPPER || !functions.texts.iter().any(of_one);
        for arch in ARCHITECTURES.into_iter().chain([newest.as_str()]).filter(is_open) {
            let start = Instant::now();
            let usages = nvrtc::usages(&functions.unit(), arch);
            let (usages, code) = usages.unwrap_or_else(|e| panic!("{name}, {arch}: {e}"));
            if arch == HOPPER {
                wait_first(&name, &functions.texts, &code);
                multiply_wide(&name, &functions.texts, &code);
            }
            let (n, seconds) = (functions.texts.len(), start.elapsed().as_secs_f64());
            let is_own =
                |u: &&Usage| ["kernel_", "merged_"].iter().any(|p| u.function.starts_with(p));
            let own = || usages.iter().filter(is_own);
            assert_eq!(own().count(), n, "{name}, {arch}: every function is accounted for");
            let most = own().map(|u| u.registers).max().unwrap_or(0);
            let spilled: Vec<_> = own().filter(|u| u.spilled > 0).collect();
            println!(
                "{name}, {arch}: {n} functions ({} of whole runs) compiled in {seconds:.1} s, {most} registers at most, {} spill",
                functions.merged,
                spilled.len()
            );
            if functions.texts.iter().any(of_one) {
                own().for_each(|u| println!("{u:?}"));
            }
            let waiting = own().filter(|u| u.is_serialized);
            spills.extend(waiting.map(|u| format!("{name}, {arch}: {u:?}")));
            // A run as one launch is one of several ways, of which a session takes the one that the clock says.
            let hot = spilled.iter().filter(|u| !u.function.starts_with("merged_"));
            let told = hot.map(|u| format!("{name}, {arch}: {u:?}"));
            spills.extend(told.filter(|_| name != "operators"));
        }
    }
    assert!(spills.is_empty(), "registers are spilled:\n{}", spills.join("\n"));
}

/// The lowest 12 bits of instructions of 16 bytes, as nvdisasm names them: the wait for launches ahead, and accesses to global memory.
const WAIT: u16 = 0x82e;
const ACCESSES: [(u16, &str); 8] = [
    (0x980, "LD"),
    (0x981, "LDG"),
    (0x985, "ST"),
    (0x986, "STG"),
    (0x98e, "RED"),
    (0x3a8, "ATOMG"),
    (0x3a9, "ATOMG.CAS"),
    (0xfae, "LDGSTS"),
];

/// The same of a product by a warpgroup.
const WGMMA: u16 = 0x9f0;

/// Functions that are to multiply by warpgroups do.
fn multiply_wide(name: &str, texts: &[String], cubin: &[u8]) {
    let wanted = texts.iter().filter(|t| t.contains("wgmma_")).count();
    let has_one = |code: &[u8]| {
        let mut all = code.chunks_exact(16).map(|c| u16::from_le_bytes([c[0], c[1]]) & 0xfff);
        all.any(|op| op == WGMMA)
    };
    let of_kernels = |s: &&(String, &[u8])| s.0.starts_with(".text.kernel_") && has_one(s.1);
    let found = sections(cubin).iter().filter(of_kernels).count();
    assert_eq!(found, wanted, "{name}: functions that multiply by warpgroups");
}

/// Compilers may move loads of what a function only reads: none comes before the wait for the launches that wrote it.
fn wait_first(name: &str, texts: &[String], cubin: &[u8]) {
    let waiting = texts.iter().filter(|t| t.contains("wait_for_launch()")).count();
    let mut functions = 0;
    for (section, code) in sections(cubin) {
        let Some(function) = section.strip_prefix(".text.kernel_") else { continue };
        let all = code.chunks_exact(16).map(|c| u16::from_le_bytes([c[0], c[1]]) & 0xfff);
        // Functions whose blocks wait for each other are started when all ahead have ended.
        if !all.clone().any(|op| op == WAIT) {
            continue;
        }
        functions += 1;
        let mut ahead = all.take_while(|&op| op != WAIT);
        let access = ahead.find_map(|op| ACCESSES.iter().find(|a| a.0 == op));
        assert_eq!(access, None, "{name}: {function} before its wait");
    }
    assert_eq!(functions, waiting, "{name}: functions that wait");
}

/// The sections of an ELF file of 64 bits: their names and bytes.
fn sections(file: &[u8]) -> Vec<(String, &[u8])> {
    let number = |at: usize, bytes: usize| -> usize {
        file[at..at + bytes].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b))
    };
    let (table, each, count, names) = (number(40, 8), number(58, 2), number(60, 2), number(62, 2));
    let place = |i: usize| {
        let at = table + i * each;
        (number(at, 4), number(at + 24, 8), number(at + 32, 8))
    };
    let texts = place(names).1;
    let section = |i: usize| {
        let (name, at, bytes) = place(i);
        let name = file[texts + name..].split(|b| *b == 0).next().unwrap_or_default();
        Some((String::from_utf8_lossy(name).into_owned(), file.get(at..at + bytes)?))
    };
    (0..count).filter_map(section).collect()
}

/// Whether there is a compiler. Where it has to be named first, a test goes on in a process of its own.
fn has_compiler(test: &str) -> bool {
    if std::env::var_os(VARIABLE).is_none()
        && let Err(DriverError::NoCompiler(why)) = nvrtc::version()
    {
        let Some(path) = installed().or_else(packaged) else {
            println!("1 skipped: {why}; `scripts/nvrtc` installs it below target/nvrtc");
            return false;
        };
        // The library is searched for once in a process.
        let mut again = Command::new(std::env::current_exe().expect("a path"));
        let done = again.args(["--exact", &format!("cuda_code::nvrtc::{test}"), "--nocapture"]);
        let done = done.env(VARIABLE, path).status().expect("runs");
        assert!(done.success(), "kernels do not compile");
        return false;
    }
    println!("NVRTC {:?}", nvrtc::version().expect("a compiler"));
    true
}

#[test]
fn what_is_compiled_side_by_side_is_what_each_is_by_itself() {
    if !has_compiler("what_is_compiled_side_by_side_is_what_each_is_by_itself") {
        return;
    }
    let source = |name: &str, body: &str| format!("{PRELUDE}\nKERNEL(32) {name}() {{ {body} }}\n");
    let compile_all = |sources: &[String]| {
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        nvrtc::compile_all(&sources, HOPPER)
    };
    let sources: Vec<String> = (0..5).map(|i| source(&format!("f{i}"), "")).collect();
    let each: Result<Vec<_>, _> = sources.iter().map(|s| nvrtc::compile(s, HOPPER)).collect();
    assert!(each.is_ok());
    assert_eq!(compile_all(&sources), each);
    let wrong = [source("f", "first = 1;"), source("g", ""), source("h", "second = 1;")];
    let e = compile_all(&wrong).expect_err("is refused").to_string();
    assert!(e.contains("first") && !e.contains("second"), "{e}");
    assert_eq!(compile_all(&[]), Ok(vec![]));
}

/// How models are optimised.
fn options() -> Options {
    Options { target: "cuda".into(), self_check: false, ..checked_options() }
}

/// The code of the models of a folder, as their optimised plans launch it.
#[test]
fn models_of_a_folder_compile() {
    let Ok(folder) = std::env::var(MODELS) else { return };
    if !has_compiler("models_of_a_folder_compile") {
        return;
    }
    compile(folders(Path::new(&folder)).iter().map(|f| {
        let case = Case::read(f);
        let program = import(case.model, library()).expect("imports").program;
        let mut functions = Functions::default();
        functions
            .add(&optimize(program, library(), &options()).expect("optimises").plan)
            .expect("code");
        (case.name, functions)
    }));
}

#[test]
fn functions_that_take_extents_compile() {
    if !has_compiler("functions_that_take_extents_compile") {
        return;
    }
    if !mlc_cuda_emulator::available() {
        println!("1 skipped: there is no C++ compiler to run sessions");
        return;
    }
    let all = open_extents::MOVEMENT.iter().chain(&open_extents::ROWS);
    let mut texts: Vec<String> = vec![];
    let attention = open_attention::ALL.into_iter().flatten().map(|case| &case.0);
    let all = all
        .chain(&open_extents::DIRECT)
        .chain(&open_extents::RUNNING)
        .chain(&open_extents::PRODUCTS)
        .chain(attention);
    for definition in all {
        let session = open_extents::Session::new(definition);
        for n in [7, 130] {
            session.run(n, Style::Normal).unwrap_or_else(|e| panic!("{definition}: {e}"));
            texts.extend(session.emulated.loaded().into_iter().map(|f| f.1));
        }
    }
    let taken = texts.iter().filter(|t| t.contains("long long m0")).count();
    assert!(taken >= open_extents::PRODUCTS.len(), "{taken} of {}", texts.len());
    let units: Vec<String> = texts.iter().map(|t| format!("{PRELUDE}\n{t}")).collect();
    let units: Vec<&str> = units.iter().map(String::as_str).collect();
    for architecture in ARCHITECTURES {
        let compiled = nvrtc::compile_all(&units, architecture);
        compiled.unwrap_or_else(|e| panic!("{architecture}: {e}"));
    }
    println!("{} functions, of which {taken} take extents", texts.len());
}

#[test]
fn generated_kernels_compile() {
    if !has_compiler("generated_kernels_compile") {
        return;
    }
    let target = library().target("cuda").expect("shipped");
    let mut units: Vec<(String, Functions)> = vec![
        ("operators".into(), operators()),
        ("attention".into(), attentions()),
        ("several".into(), several()),
        ("layers".into(), layers()),
        ("warpgroups".into(), wide()),
        ("tilings".into(), tilings()),
        ("small types".into(), small_types()),
    ];
    let only = std::env::var(CASE).ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|o| o == name);
    units.retain(|u| is_wanted(&u.0));
    for (i, program) in models().into_iter().enumerate() {
        let name = format!("model {i}");
        if !is_wanted(&name) {
            continue;
        }
        let mut functions = Functions::default();
        functions.add(&select_kernels(program.clone(), library(), target)).expect("code");
        functions
            .add(&optimize(program, library(), &options()).expect("optimises").plan)
            .expect("code");
        units.push((name, functions));
    }
    compile(units);
}
