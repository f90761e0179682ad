//! CUDA C++ for the kernels of a plan whose shapes are known.
//!
//! Everything is generated from what operators mean, or by the code of their procedures where they have no meaning: no operator
//! is named here. A kernel becomes one launch or several ([`stages`]), which read and write the plan's memory.

mod emit;
mod kernel;
mod one_pass;
mod procedures;
mod product;
mod recurrent;
mod spelling;
mod split;
mod stages;

use super::launch::{Argument, FAULT_WORDS, Launch, Launches, Place, Port};
use crate::BackendError;
pub use procedures::is_known as has_procedure;

use emit::{Emitter, coordinates, parts_name};
use kernel::{KernelProgram, Stored, known, unsupported};
use mlc_dsl::ir::{DType, NodeId, NodeKind, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Plan};
use stages::{Shape, Stage};
use std::collections::HashMap;

/// Values in memory begin at a multiple of so many bytes.
const ALIGNED: u64 = 256;
/// Bytes of stack: code is generated recursively over the depth of a kernel. What is not used takes no memory.
const STACK: usize = 256 << 20;
/// Threads of a block that computes an element with each.
const THREADS: u32 = 256;

/// The launches of a plan.
///
/// # Errors
/// An extent is not known, or an operator has no meaning to generate code from.
pub fn launches(plan: &Plan, library: &Library) -> Result<Launches, BackendError> {
    std::thread::scope(|scope| {
        let generate = || generate(plan, library);
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, generate) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(unsupported(format!("a system that starts no thread ({e})"))),
        }
    })
}

fn generate(plan: &Plan, library: &Library) -> Result<Launches, BackendError> {
    let mut g = Generator::new(plan, library)?;
    for k in 0..plan.kernels.len() {
        g.kernel(k)?;
    }
    g.outputs()?;
    Ok(g.out)
}

struct Generator<'a> {
    plan: &'a Plan,
    library: &'a Library,
    stored: Stored,
    out: Launches,
    /// Where memory for stages begins.
    scratch: u64,
    /// The names of functions by their texts.
    names: HashMap<String, String>,
}

/// Takes bytes behind `end`, which is aligned and stays so; where they begin.
fn take(end: &mut u64, bytes: u64) -> Result<u64, BackendError> {
    let begin = *end;
    let next = bytes.checked_next_multiple_of(ALIGNED).and_then(|b| begin.checked_add(b));
    *end = next.ok_or_else(|| unsupported("values of more than 2^64 bytes together".into()))?;
    Ok(begin)
}

/// Bytes of a value, as [`known`] yields it.
fn bytes_of((dtype, shape): &(DType, Vec<usize>)) -> u64 {
    shape.iter().product::<usize>() as u64 * dtype.size() as u64
}

impl<'a> Generator<'a> {
    fn new(plan: &'a Plan, library: &'a Library) -> Result<Generator<'a>, BackendError> {
        let program = &plan.program;
        let types = program.nodes.iter().flat_map(|n| &n.types);
        if let Some(small) = types.map(|t| t.dtype).find(|d| d.is_small()) {
            return Err(unsupported(format!("the element type {small}")));
        }
        let port = |name: &str, ty: (DType, Vec<usize>)| Port {
            name: name.to_string(),
            dtype: ty.0,
            shape: ty.1,
        };
        let mut out = Launches::default();
        take(&mut out.arena, plan.memory.arena)?;
        for (name, ty) in &program.inputs {
            let shape = ty.known_shape().ok_or_else(|| {
                unsupported(format!("an input of unknown extents (`{name}`: {ty})"))
            })?;
            out.inputs.push(port(name, (ty.dtype, shape)));
        }
        for (i, (name, v)) in program.outputs.iter().enumerate() {
            out.outputs.push((port(name, known(program, *v)?), Place::Output(i)));
        }
        let mut places = HashMap::new();
        for p in &plan.memory.places {
            let own = program.outputs.iter().position(|(_, v)| *v == p.value);
            let place = match (p.home, own) {
                (Home::Arena(at), _) => Place::Arena(at),
                (Home::Result, Some(i)) => Place::Output(i),
                // Outputs are seen in it otherwise.
                (Home::Result, None) => {
                    Place::Arena(take(&mut out.arena, bytes_of(&known(program, p.value)?))?)
                }
            };
            places.insert(p.value, place);
        }
        for (k, kernel) in plan.kernels.iter().enumerate() {
            if !plan.memory.once[k] || kernel.is_view() {
                continue;
            }
            for v in &kernel.outputs {
                let at = take(&mut out.kept, bytes_of(&known(program, *v)?))?;
                places.insert(*v, Place::Kept(at));
            }
        }
        let scratch = out.arena;
        let stored = Stored { places };
        Ok(Generator { plan, library, stored, out, scratch, names: HashMap::new() })
    }

    fn kernel(&mut self, k: usize) -> Result<(), BackendError> {
        let kernel = &self.plan.kernels[k];
        let inside = |v: Value| kernel.nodes.contains(&v.node);
        let values = kernel.outputs.iter();
        let placed = |v: &Value| Some((*v, *self.stored.places.get(v)?));
        let outputs: Vec<(Value, Place)> = values.filter_map(placed).collect();
        self.launch_all(k, &kernel.name, &inside, &outputs, self.plan.memory.once[k])
    }

    /// Copies of what outputs are equal to.
    fn outputs(&mut self) -> Result<(), BackendError> {
        let program = &self.plan.program;
        let written = |i: usize, v: Value| self.stored.places.get(&v) == Some(&Place::Output(i));
        let missing: Vec<(Value, Place)> = program
            .outputs
            .iter()
            .enumerate()
            .filter(|(i, (_, v))| !written(*i, *v))
            .map(|(i, (_, v))| (*v, Place::Output(i)))
            .collect();
        self.launch_all(self.plan.kernels.len(), "copy", &|_| false, &missing, false)
    }

    fn launch_all(
        &mut self,
        k: usize,
        name: &str,
        inside: &dyn Fn(Value) -> bool,
        outputs: &[(Value, Place)],
        once: bool,
    ) -> Result<(), BackendError> {
        if outputs.is_empty() {
            return Ok(());
        }
        let kernel = KernelProgram::new(self.plan, self.library, &self.stored, inside, outputs)?;
        let first = self.out.nodes.len();
        for node in &kernel.program.nodes {
            let op = match &node.kind {
                NodeKind::Apply(call, _) => self.library.call(*call).name.to_string(),
                NodeKind::Input(_) | NodeKind::Const(_) => String::new(),
            };
            let of = if node.origin.is_empty() { op } else { format!("{op} ({})", node.origin) };
            self.out.nodes.push(of);
        }
        let mut places: HashMap<Value, Place> = HashMap::new();
        for i in 0..kernel.program.nodes.len() as u32 {
            let v = Value { node: NodeId(i), output: 0 };
            if let Some(input) = kernel.input(v) {
                places.insert(v, kernel.inputs[input]);
            }
        }
        let mut scratch = self.scratch;
        for stage in stages::stages(&kernel) {
            if stage.shape == Shape::Procedure {
                let node = stage.value.node;
                let launches = self.procedure(k, &kernel, node, &mut places, &mut scratch)?;
                self.list(once).extend(launches);
                // What else is equal to a result.
                let of_node = kernel.outputs.iter().filter(|o| o.0.node == node);
                for (v, target) in of_node.filter(|o| places[&o.0] != o.1) {
                    let copy = Stage { value: *v, shape: Shape::Elements };
                    let launch = self.launch(k, name, &kernel, &copy, *target, &places, first)?;
                    self.list(once).extend(launch);
                }
                continue;
            }
            let mut targets: Vec<Place> =
                kernel.outputs.iter().filter(|o| o.0 == stage.value).map(|o| o.1).collect();
            if targets.is_empty() {
                let bytes = bytes_of(&known(&kernel.program, stage.value)?);
                targets.push(Place::Arena(take(&mut scratch, bytes)?));
            }
            let mut stage = stage;
            if let Shape::Split(split) = stage.shape {
                let parts = Place::Arena(take(&mut scratch, bytes_of(&split.ty()))?);
                stage.shape = Shape::Parts(split);
                let launch = self.launch(k, name, &kernel, &stage, parts, &places, first)?;
                self.list(once).extend(launch);
                stage.shape = Shape::Total(split, parts);
            }
            for &target in &targets {
                let launch = self.launch(k, name, &kernel, &stage, target, &places, first)?;
                self.list(once).extend(launch);
            }
            let target = targets[0];
            if kernel.input(stage.value).is_none() {
                places.insert(stage.value, target);
            }
        }
        self.out.arena = self.out.arena.max(scratch);
        Ok(())
    }

    /// The launches before the first run, or those of every run.
    fn list(&mut self, once: bool) -> &mut Vec<Launch> {
        if once { &mut self.out.once } else { &mut self.out.each }
    }

    /// Notes that a launch reads or writes here.
    fn reads(&mut self, place: Place) {
        if let Place::Constant(c) = place
            && !self.out.constants.contains(&c)
        {
            self.out.constants.push(c);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn launch(
        &mut self,
        k: usize,
        name: &str,
        kernel: &KernelProgram,
        stage: &Stage,
        target: Place,
        places: &HashMap<Value, Place>,
        first: usize,
    ) -> Result<Option<Launch>, BackendError> {
        let (dtype, shape) = known(&kernel.program, stage.value)?;
        if shape.contains(&0) {
            return Ok(None);
        }
        let mut e = Emitter::new(kernel);
        e.first_node = first;
        let mut order: Vec<Value> = places.keys().copied().collect();
        order.sort_unstable();
        for (i, v) in order.iter().enumerate() {
            e.stored.insert(*v, format!("x{i}"));
        }
        let (blocks, threads) = body(&mut e, kernel, stage, &shape)
            .ok_or_else(|| unsupported("a value of more than 2^31 blocks".into()))?;
        let grid = u32::try_from(blocks).ok().filter(|&b| b <= i32::MAX as u32);
        let grid = grid.ok_or_else(|| unsupported(format!("a launch of {blocks} blocks")))?;
        let mut parameters = vec![];
        let mut arguments = vec![];
        for v in order.iter().filter(|v| e.read.contains(v)) {
            let ty = known(&kernel.program, *v)?;
            parameters.push(format!("GLOBAL(const {}) {}", spelling::stored(ty.0), e.stored[v]));
            let (place, bytes) = (places[v], bytes_of(&ty));
            self.reads(place);
            arguments.push(Argument { place, bytes, dtype: ty.0, written: false });
        }
        let mut written = (dtype, shape);
        match &stage.shape {
            Shape::Parts(split) => written = split.ty(),
            Shape::Total(split, place) => {
                let (place, ty) = (*place, split.ty());
                parameters.push(format!("GLOBAL(const {}) parts", spelling::stored(ty.0)));
                let bytes = bytes_of(&ty);
                arguments.push(Argument { place, bytes, dtype: ty.0, written: false });
            }
            _ => {}
        }
        let dtype = written.0;
        parameters.push(format!("GLOBAL({}) out", spelling::stored(dtype)));
        let bytes = bytes_of(&written);
        arguments.push(Argument { place: target, bytes, dtype, written: true });
        if e.faults {
            parameters.push("GLOBAL(unsigned long long) fault".into());
            let bytes = 8 * FAULT_WORDS as u64;
            arguments.push(Argument {
                place: Place::Fault,
                bytes,
                dtype: DType::U64,
                written: true,
            });
        }
        let text = format!("({}) {{\n{}}}\n", parameters.join(", "), e.text());
        let fresh = format!("kernel_{}_{}", self.names.len(), identifier(name));
        let function = self.names.entry(format!("{threads} {text}")).or_insert(fresh).clone();
        let ops = self.describe(k, kernel, stage);
        let source = format!("// {ops}\nKERNEL({threads}) {function}{text}");
        let grid = [grid, 1, 1];
        Ok(Some(Launch { function, source, grid, block: threads, arguments, kernel: k }))
    }

    /// What a function is, for its reader.
    fn describe(&self, k: usize, kernel: &KernelProgram, stage: &Stage) -> String {
        let how = match &stage.shape {
            Shape::Elements => "an element for each thread",
            Shape::Rows(_) => "a row for each block",
            Shape::Tiles(_) => "a tile of a product for each block",
            Shape::Split(_) | Shape::Parts(_) => "a part of a reduction for each block",
            Shape::Total(..) => "the parts of a reduction for each block",
            Shape::OnePass(_) => "a tile of a product with a normalised factor for each block",
            Shape::Procedure => "by a procedure",
        };
        format!("{}: {}, {how}.", self.kernel_words(k), kernel.program.ty(stage.value))
    }

    /// A kernel of the plan and what it computes.
    fn kernel_words(&self, k: usize) -> String {
        match self.plan.kernels.get(k) {
            Some(kernel) => {
                let name = |n: &NodeId| self.library.node_name(&self.plan.program, *n);
                let nodes: Vec<_> = kernel.nodes.iter().map(name).collect();
                format!("Kernel `{}` of {}", kernel.name, nodes.join(", "))
            }
            None => "An output that is there already".into(),
        }
    }
}

/// A name of C++ from a kernel's.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Stores an element of the result.
fn store(e: &mut Emitter<'_>, dtype: DType, shape: &[i64], slots: &[usize], v: &str) {
    let mut stride = 1;
    let mut terms: Vec<String> = vec![];
    for (slot, n) in slots.iter().zip(shape).rev() {
        if *n != 1 {
            let name = Emitter::name(*slot);
            terms.insert(
                0,
                if stride == 1 { name } else { format!("{name} * {}", spelling::int(stride)) },
            );
        }
        stride *= n;
    }
    let offset = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
    e.line(format!("out[{offset}] = {};", spelling::element(dtype, v)));
}

/// Writes the body of a stage; the blocks and their threads.
fn body(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    stage: &Stage,
    shape: &[usize],
) -> Option<(u64, u32)> {
    let v = stage.value;
    let dtype = kernel.program.ty(v).dtype;
    let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let put = |e: &mut Emitter<'_>, slots: &[usize], v: &str| store(e, dtype, &shape, slots, v);
    if let Shape::Tiles(product) = stage.shape {
        return Some((product::write(e, kernel, v, product, &put)?, product::THREADS));
    }
    if let Shape::OnePass(product) = stage.shape {
        return Some((one_pass::write(e, kernel, v, product, &put)?, product::THREADS));
    }
    match &stage.shape {
        Shape::Parts(split) => return Some(split::write_parts(e, v, &shape, split)),
        Shape::Total(split, _) => return Some(split::write_total(e, dtype, &shape, split)),
        _ => {}
    }
    let slots: Vec<usize> = shape.iter().map(|&n| e.variable(n)).collect();
    let index: Vec<_> = slots.iter().map(|s| Emitter::index(*s)).collect();
    let Shape::Rows(rows) = &stage.shape else {
        let axes: Vec<(usize, i64)> = slots.iter().copied().zip(shape.iter().copied()).collect();
        let total = shape.iter().product::<i64>();
        let kind = e.index_type();
        e.line(format!("{kind} at = ({kind})blockIdx.x * {THREADS} + threadIdx.x;"));
        e.line(format!("if (at >= {}) return;", spelling::int(total)));
        coordinates(e, "at", &axes);
        let text = e.element(v, &index);
        store(e, dtype, &shape, &slots, &text);
        return Some(((total as u64).div_ceil(THREADS.into()), THREADS));
    };
    let axis = |a: &usize| (slots[*a], shape[*a]);
    let of_rows: Vec<(usize, i64)> = rows.iter().map(axis).collect();
    let along: Vec<(usize, i64)> =
        (0..shape.len()).filter(|a| !rows.contains(a)).map(|a| axis(&a)).collect();
    let length = along.iter().map(|a| a.1).product::<i64>();
    let count = of_rows.iter().map(|a| a.1).product::<i64>();
    let threads = threads_for(length.max(e.longest_loop(v, &index)));
    let head = e.mark();
    let kind = e.index_type();
    e.line(format!("{kind} row = blockIdx.x;"));
    coordinates(e, "row", &of_rows);
    e.cooperate(threads);
    e.diverge(&along.iter().map(|a| a.0).collect::<Vec<_>>());
    let found = e.look(&[(v, index.clone())]);
    e.converge();
    for (h, at) in &found.reductions {
        e.element(*h, at);
    }
    e.open(&format!("for ({kind} at = threadIdx.x; at < {length}; at += {threads})"));
    coordinates(e, "at", &along);
    e.diverge(&along.iter().map(|a| a.0).collect::<Vec<_>>());
    let text = e.element(v, &index);
    store(e, dtype, &shape, &slots, &text);
    e.close();
    declare_parts(e, head);
    Some((count as u64, threads))
}

/// Declares at a place the arrays in which blocks combine.
fn declare_parts(e: &mut Emitter<'_>, at: usize) {
    let arrays: Vec<String> =
        e.parts.iter().map(|kind| format!("SHARED({kind}, {}, 32);", parts_name(kind))).collect();
    arrays.iter().rev().for_each(|a| e.insert(at, a));
}

/// Threads of a block that shares loops of this length.
fn threads_for(length: i64) -> u32 {
    [32, 64, 128, 256].into_iter().find(|&t| length <= 4 * i64::from(t)).unwrap_or(512)
}
