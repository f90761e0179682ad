//! Programs, random tensors, and the comparison with the reference interpreter.

use bytes::Bytes;
use mlc_backends::reference::{Precision, Reference};
use mlc_backends::{Backend, BackendError};
use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, Consts, DType, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::kernels::selection::select_kernels;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The texts of the repository's rules.
pub fn texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for part in ["ops", "extern", "layers", "fuse", "targets"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules").join(part);
        let mut files: Vec<_> = match std::fs::read_dir(&folder) {
            Ok(all) => all.filter_map(|e| e.ok().map(|e| e.path())).collect(),
            Err(_) => vec![folder],
        };
        files.sort();
        for f in files {
            let text = std::fs::read_to_string(&f).expect("a readable rules file");
            texts.push((f.display().to_string(), text));
        }
    }
    texts
}

/// The library of the repository's rules.
pub fn library() -> Arc<Library> {
    static LIBRARY: OnceLock<Arc<Library>> = OnceLock::new();
    let make = || {
        let (library, diags) = mlc_dsl::check::library(&texts());
        assert!(diags.is_empty(), "{diags:?}");
        Arc::new(library)
    };
    LIBRARY.get_or_init(make).clone()
}

/// A program under construction, with values for its inputs.
pub struct Case<'a> {
    pub builder: Builder<'a>,
    pub inputs: Vec<Tensor>,
    library: &'a Library,
    seed: u64,
}

impl<'a> Case<'a> {
    pub fn new(library: &'a Library) -> Case<'a> {
        Case { builder: Builder::new(library), inputs: vec![], library, seed: 1 }
    }

    /// Numbers in -2..2, of integers -9..9, repeatable.
    pub fn tensor(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| {
                self.seed =
                    self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let unit = (self.seed >> 40) as f64 / (1u64 << 24) as f64;
                if dtype.is_float() { unit * 4.0 - 2.0 } else { (unit * 19.0).floor() - 9.0 }
            })
            .collect();
        Tensor::from_f64(dtype, shape.to_vec(), &values)
    }

    pub fn given(&mut self, t: Tensor) -> Value {
        let name = format!("x{}", self.inputs.len());
        let v = self.builder.input(&name, Type::known(t.dtype(), t.shape()));
        self.inputs.push(t);
        v
    }

    pub fn input(&mut self, dtype: DType, shape: &[usize]) -> Value {
        let t = self.tensor(dtype, shape);
        self.given(t)
    }

    pub fn constant(&mut self, dtype: DType, shape: &[usize]) -> Value {
        let t = self.tensor(dtype, shape);
        self.builder.constant(t)
    }

    pub fn shape(&self, v: Value) -> Vec<usize> {
        self.builder.ty(v).known_shape().expect("known")
    }

    pub fn apply(&mut self, op: &str, attrs: &[(&str, Attr)], args: &[Value]) -> Value {
        self.outputs(op, attrs, args)[0]
    }

    pub fn outputs(&mut self, op: &str, attrs: &[(&str, Attr)], args: &[Value]) -> Vec<Value> {
        let id = self.library.find(op).unwrap_or_else(|| panic!("no operator `{op}`"));
        let call = self.library.call(id);
        let given: Vec<Option<Attr>> = call
            .attrs
            .iter()
            .map(|a| attrs.iter().find(|(n, _)| **n == *a.name).map(|(_, v)| v.clone()))
            .collect();
        self.builder.apply(id, &given, args).unwrap_or_else(|e| panic!("{op}: {e}"))
    }

    /// `x` repeated to `shape`, its axes at `map`.
    pub fn broadcast(&mut self, x: Value, map: &[i64], shape: &[usize]) -> Value {
        let shape: Vec<_> = shape.iter().map(|&d| (d as i64).into()).collect();
        self.builder.broadcast(x, map, &shape).expect("broadcasts")
    }

    pub fn finish(self, outputs: &[Value]) -> (Program, Vec<Tensor>) {
        let named = outputs.iter().enumerate().map(|(i, v)| (format!("y{i}"), *v)).collect();
        (self.builder.finish(named), self.inputs)
    }
}

/// The plan of the repository's CPU target.
pub fn plan(program: &Program) -> Plan {
    let library = library();
    let target = library.target("cpu").expect("the cpu target");
    select_kernels(program.clone(), &library, target)
}

/// Runs a program on `threads` threads.
pub fn run(
    program: &Program,
    inputs: &[Tensor],
    threads: usize,
) -> Result<Vec<Tensor>, BackendError> {
    Cpu::new(threads).compile(&plan(program), library())?.run(inputs)
}

/// How far a value may be from the truth: `absolute + relative * |truth|`.
#[derive(Clone, Copy)]
pub struct Tolerance(pub f64, pub f64);

/// A few units in the last place, for sums of moderate length.
pub fn close(dtype: DType) -> Tolerance {
    let u = dtype.unit_roundoff();
    Tolerance(u * 64.0, u * 64.0)
}

#[track_caller]
pub fn compare(name: &str, got: &Tensor, want: &[f64], shape: &[usize], t: Tolerance) {
    assert_eq!(got.shape(), shape, "{name}: shape");
    for (i, (g, w)) in got.to_f64().into_iter().zip(want).enumerate() {
        let same = g == *w || (g.is_nan() && w.is_nan());
        let near = (g - w).abs() <= t.0 + t.1 * w.abs();
        assert!(
            same || near,
            "{name}: element {i} of {shape:?} is {g}, the reference interpreter says {w}"
        );
    }
}

/// The same program with constants that lie as files may have them: aligned for no element of several bytes.
fn as_in_a_file(program: &Program) -> Program {
    let shifted = |t: &Tensor| match t.dtype() {
        DType::Str => t.clone(),
        dtype => {
            let bytes: Vec<u8> = std::iter::once(0).chain(t.bytes().iter().copied()).collect();
            Tensor::new(dtype, t.shape().to_vec(), Bytes::from(bytes).slice(1..)).unwrap()
        }
    };
    let mut out = Program { consts: Consts::default(), ..program.clone() };
    for t in program.consts.iter() {
        out.consts.intern(shifted(t));
    }
    out
}

/// Compares one program with the reference interpreter, on one and on three threads, and with constants that are aligned or not; all bits
/// must agree.
#[track_caller]
pub fn check_program(name: &str, program: &Program, inputs: &[Tensor], t: Tolerance) {
    let reference = Reference { precision: Precision::F64, ..Reference::default() };
    let truth =
        reference.run_values(program, &library(), inputs).expect("the reference interpreter runs");
    let one = run(program, inputs, 1).unwrap_or_else(|e| panic!("{name}: {e}"));
    let three = run(&as_in_a_file(program), inputs, 3).unwrap_or_else(|e| panic!("{name}: {e}"));
    for ((a, b), w) in one.iter().zip(&three).zip(&truth) {
        assert_eq!(a.dtype(), w.dtype(), "{name}: dtype");
        compare(name, a, &w.to_f64(), w.shape(), t);
        assert_eq!(a.bytes(), b.bytes(), "{name}: three threads compute other bits than one");
    }
}

/// Builds and compares a program.
#[track_caller]
pub fn check(name: &str, t: Tolerance, make: impl FnOnce(&mut Case<'_>) -> Vec<Value>) {
    let library = library();
    let mut case = Case::new(&library);
    let outputs = make(&mut case);
    let (program, inputs) = case.finish(&outputs);
    check_program(name, &program, &inputs, t);
}
