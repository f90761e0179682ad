//! CUDA C++ for the kernels of a plan whose shapes are known.
//!
//! Everything is generated from what operators mean, or by the code of their procedures where they have no meaning: no operator
//! is named here. A kernel becomes one launch or several ([`stages`]), which read and write the plan's memory.

mod alternatives;
mod body;
mod emit;
mod flash_attention;
mod kernel;
mod merged;
mod procedures;
mod product;
mod ranges;
mod recurrent;
mod reduction;
mod spelling;
mod stages;
mod tiled_transpose;

use super::launch::{Argument, Launch, Launches, Place, Port, Variant};
use mlc_backends::BackendError;
pub use procedures::is_known as has_procedure;

use body::body;
use emit::Emitter;
pub use kernel::Tuning;
use kernel::{KernelProgram, Stored, known, unsupported};
pub use merged::Merge;
use mlc_dsl::ir::{ConstId, DType, NodeId, NodeKind, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Plan};
use product::Product;
use product::tile_config::Tiling;
pub use product::warpgroups::Warpgroups;
pub use recurrent::persistent::Spread;
use stages::{Shape, Stage};
use std::collections::{BTreeSet, HashMap};

/// Values in memory begin at a multiple of so many bytes.
const ALIGNED: u64 = 256;
/// Bytes of stack: code is generated recursively over the depth of a kernel. What is not used takes no memory.
const STACK: usize = 256 << 20;
/// How a function begins whose launch may come onto the device before the one ahead of it has ended.
const WAIT: &str = "  wait_for_launch();\n";
/// Bytes of a weight that a function has fetched while it waits, at least and at most.
const LEAST_AHEAD: u64 = 32 << 10;
const MOST_AHEAD: u64 = 8 << 20;
/// Threads of a block that computes an element with each.
const THREADS: u32 = 256;

/// The launches of a plan.
///
/// # Errors
/// An extent is not known, or an operator has no meaning to generate code from.
pub fn launches(plan: &Plan, library: &Library) -> Result<Launches, BackendError> {
    launches_for(plan, library, Tuning::default())
}

/// The launches of a plan whose products of factors in 32 bits go to tensor cores, which take 19 bits of each (`tf32`): a sum strays by at
/// most 2^-10 of the sum of its products' magnitudes, besides what adding them up does.
///
/// # Errors
/// As [`launches`].
pub fn launches_in_tf32(plan: &Plan, library: &Library) -> Result<Launches, BackendError> {
    launches_for(plan, library, Tuning { tf32: true, ..Tuning::default() })
}

/// The launches of a plan, for a device and with a precision of one's own.
///
/// # Errors
/// As [`launches`].
pub fn launches_for(
    plan: &Plan,
    library: &Library,
    tuning: Tuning,
) -> Result<Launches, BackendError> {
    std::thread::scope(|scope| {
        let generate = || generate(plan, library, tuning);
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, generate) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(unsupported(format!("a system that starts no thread ({e})"))),
        }
    })
}

fn generate(plan: &Plan, library: &Library, tuning: Tuning) -> Result<Launches, BackendError> {
    let mut out = separate(plan, library, (tuning, false))?;
    let by_clock = match tuning.merge {
        Merge::Never => return Ok(out),
        Merge::Chosen => match merged::prospect(&out, tuning.processors) {
            None => return Ok(out),
            likely => likely,
        },
        Merge::Always => None,
    };
    let even = separate(plan, library, (tuning, true))?;
    if by_clock.is_none() || merged::is_short(&even) {
        out.merged = merged::merged(&even, tuning.processors);
        out.by_clock = by_clock.filter(|_| out.merged.is_some());
        out.arena = out.arena.max(even.arena);
    }
    Ok(out)
}

/// The launches of a plan, which run one after another.
fn separate(
    plan: &Plan,
    library: &Library,
    tuning: (Tuning, bool),
) -> Result<Launches, BackendError> {
    let mut g = Generator::new(plan, library, tuning)?;
    for k in 0..plan.kernels.len() {
        g.kernel(k)?;
    }
    g.outputs()?;
    Ok(g.out)
}

struct Generator<'a> {
    plan: &'a Plan,
    library: &'a Library,
    /// What the code is for, and whether all blocks have the same number of threads.
    tuning: (Tuning, bool),
    stored: Stored,
    out: Launches,
    /// Where memory for stages begins.
    scratch: u64,
    /// The names of functions by their texts.
    names: HashMap<String, String>,
    /// How a product that is written at present is cut, if not as is estimated to be the fastest.
    tiling: Option<Tiling>,
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
    fn new(
        plan: &'a Plan,
        library: &'a Library,
        tuning: (Tuning, bool),
    ) -> Result<Generator<'a>, BackendError> {
        let program = &plan.program;
        let types = program.nodes.iter().flat_map(|n| &n.types);
        if types.into_iter().any(|t| t.dtype == DType::Str) {
            return Err(unsupported(format!("the element type {}", DType::Str)));
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
        let (names, tiling) = (HashMap::new(), None);
        Ok(Generator { plan, library, tuning, stored, out, scratch, names, tiling })
    }

    fn kernel(&mut self, k: usize) -> Result<(), BackendError> {
        let kernel = &self.plan.kernels[k];
        let inside = |v: Value| kernel.nodes.contains(&v.node);
        let placed = |v: &Value| Some((*v, *self.stored.places.get(v)?));
        let mut outputs: Vec<(Value, Place)> = kernel.outputs.iter().filter_map(placed).collect();
        if outputs.is_empty() && kernel.is_view() {
            // Its result is seen in what stands before it, such as elements that are taken out and then reshaped.
            let first = |&node: &NodeId| placed(&Value { node, output: 0 });
            outputs.extend(kernel.nodes.iter().filter_map(first));
        }
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
        let kernel = |turned: &BTreeSet<ConstId>| {
            let (stored, tuning) = (&self.stored, self.tuning);
            KernelProgram::new(self.plan, self.library, stored, inside, outputs, (tuning, turned))
        };
        let as_it_is = kernel(&BTreeSet::new())?;
        let turned = product::unaligned::weights(&as_it_is);
        let kernel = if turned.is_empty() { as_it_is } else { kernel(&turned)? };
        let first = self.out.nodes.len();
        for node in &kernel.program.nodes {
            let op = match &node.kind {
                NodeKind::Apply(call, _) => self.library.call(*call).name.to_string(),
                NodeKind::Input(_) | NodeKind::Const(_) => String::new(),
            };
            let of = if node.origin.is_empty() { op } else { format!("{op} ({})", node.origin) };
            self.out.nodes.push(of);
        }
        let mut scratch = self.scratch;
        self.launch_stages((k, name, first, once), &kernel, &mut scratch)?;
        self.out.arena = self.out.arena.max(scratch);
        Ok(())
    }

    /// Adds the launches of a kernel, whose nodes have numbers from `first` on in a record of faults.
    fn launch_stages(
        &mut self,
        (k, name, first, once): (usize, &str, usize, bool),
        kernel: &KernelProgram,
        scratch: &mut u64,
    ) -> Result<(), BackendError> {
        let mut places: HashMap<Value, Place> = HashMap::new();
        for i in 0..kernel.program.nodes.len() as u32 {
            let v = Value { node: NodeId(i), output: 0 };
            if let Some(input) = kernel.input(v) {
                places.insert(v, kernel.inputs[input]);
            }
        }
        for stage in stages::stages(kernel) {
            if matches!(stage.shape, Shape::Procedure | Shape::Steps) {
                let node = stage.value.node;
                let launches = match stage.shape {
                    Shape::Steps => {
                        let at = (k, name, first);
                        self.steps(at, kernel, node, &mut places, scratch)?
                    }
                    _ => self.procedure((k, first, once), kernel, node, &mut places, scratch)?,
                };
                self.list(once).extend(launches);
                // What else is equal to a result.
                let of_node = kernel.outputs.iter().filter(|o| o.0.node == node);
                for (v, target) in of_node.filter(|o| places.get(&o.0).is_some_and(|p| *p != o.1)) {
                    let copy = Stage { value: *v, shape: Shape::Elements };
                    let launch =
                        self.launch(k, name, kernel, &copy, (*target, None), &places, first)?;
                    self.list(once).extend(launch);
                }
                continue;
            }
            let mut targets: Vec<Place> =
                kernel.outputs.iter().filter(|o| o.0 == stage.value).map(|o| o.1).collect();
            if targets.is_empty() {
                let bytes = bytes_of(&known(&kernel.program, stage.value)?);
                targets.push(Place::Arena(take(scratch, bytes)?));
            }
            let before = self.out.each.len();
            let of = (k, name, first);
            let launches = self.launches_of(of, kernel, &stage, &targets, &places, scratch)?;
            self.list(once).extend(launches);
            let target = targets[0];
            if !once && targets.len() == 1 {
                let at = (k, name, first, before);
                self.alternatives(at, kernel, &stage, target, &places, scratch)?;
                self.variants(at, kernel, &stage, target, &places, scratch)?;
            }
            if kernel.input(stage.value).is_none() {
                places.insert(stage.value, target);
            }
        }
        Ok(())
    }

    /// The launches of a stage that stores its value here.
    fn launches_of(
        &mut self,
        (k, name, first): (usize, &str, usize),
        kernel: &KernelProgram,
        stage: &Stage,
        targets: &[Place],
        places: &HashMap<Value, Place>,
        scratch: &mut u64,
    ) -> Result<Vec<Launch>, BackendError> {
        let parts = match stage.shape.parts() {
            Some(ty) => Some(Place::Arena(take(scratch, bytes_of(&ty))?)),
            None => None,
        };
        let mut out = vec![];
        for &target in targets {
            out.extend(self.launch(k, name, kernel, stage, (target, parts), places, first)?);
        }
        Ok(out)
    }

    /// The launches before the first run, or those of every run.
    fn list(&mut self, once: bool) -> &mut Vec<Launch> {
        if once { &mut self.out.once } else { &mut self.out.each }
    }

    /// Notes that a launch reads or writes here.
    fn reads(&mut self, place: Place) {
        let (list, c) = match place {
            Place::Constant(c) => (&mut self.out.constants, c),
            Place::Turned(c) => (&mut self.out.turned, c),
            _ => return,
        };
        if !list.contains(&c) {
            list.push(c);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn launch(
        &mut self,
        k: usize,
        name: &str,
        kernel: &KernelProgram,
        stage: &Stage,
        (target, parts): (Place, Option<Place>),
        places: &HashMap<Value, Place>,
        first: usize,
    ) -> Result<Option<Launch>, BackendError> {
        let (dtype, shape) = known(&kernel.program, stage.value)?;
        if shape.contains(&0) {
            return Ok(None);
        }
        let mut e = Emitter::new(kernel);
        e.first_node = first;
        e.tiling = self.tiling;
        let mut order: Vec<Value> = places.keys().copied().collect();
        order.sort_unstable();
        for (i, v) in order.iter().enumerate() {
            e.stored.insert(*v, format!("x{i}"));
        }
        e.unaligned.extend(order.iter().filter(|v| !places[*v].is_aligned()));
        e.out_is_unaligned = !target.is_aligned();
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
            if matches!(stage.shape, Shape::Tiles(_) | Shape::Deep(..)) && is_weight(place, bytes) {
                let fetched = bytes.min(MOST_AHEAD) / 16 * 16;
                e.ahead += &format!("  fetch_ahead({}, {fetched});\n", e.stored[v]);
            }
            arguments.push(Argument { place, bytes, dtype: ty.0, written: false });
        }
        if let Shape::Rest(_, ty, place) = &stage.shape {
            parameters.push(format!("GLOBAL(const {}) parts", spelling::stored(ty.0)));
            let bytes = bytes_of(ty);
            arguments.push(Argument { place: *place, bytes, dtype: ty.0, written: false });
        }
        if let Some((place, ty)) = parts.zip(stage.shape.parts()) {
            // Blocks read what others write.
            parameters.push(format!("PLAIN({}) parts", spelling::stored(ty.0)));
            parameters.push("PLAIN(unsigned) counts".into());
            let bytes = bytes_of(&ty);
            arguments.push(Argument { place, bytes, dtype: ty.0, written: true });
            arguments.push(Argument::counts(ty.1[0]));
        }
        parameters.push(format!("GLOBAL({}) out", spelling::stored(dtype)));
        let bytes = bytes_of(&(dtype, shape));
        arguments.push(Argument { place: target, bytes, dtype, written: true });
        let what = self.describe(k, kernel, stage);
        let place = (k, name, what);
        Ok(Some(self.assembled(place, e, (parameters, arguments), (grid, threads))))
    }

    /// Notes the launches with other tilings that may take the place of those of a stage, which are those of a run from `before` on.
    fn variants(
        &mut self,
        (k, name, first, before): (usize, &str, usize, usize),
        kernel: &KernelProgram,
        stage: &Stage,
        target: Place,
        places: &HashMap<Value, Place>,
        scratch: &mut u64,
    ) -> Result<(), BackendError> {
        let (Shape::Tiles(product) | Shape::Deep(product, _)) = stage.shape else { return Ok(()) };
        let end = self.out.each.len();
        let found = Product::of(&mut Emitter::of_stored(kernel, places.keys()), kernel, product);
        let Some(mut found) = found.filter(|_| before < end) else { return Ok(()) };
        for tiling in found.other_tilings(&self.tuning.0) {
            found.tiling = tiling;
            let shape = found.parts().map_or(Shape::Tiles(product), |ty| Shape::Deep(product, ty));
            let stage = Stage { value: stage.value, shape };
            self.tiling = Some(tiling);
            let instead =
                self.launches_of((k, name, first), kernel, &stage, &[target], places, scratch);
            self.tiling = None;
            let (how, by_warpgroups, launches) =
                (tiling.words(), tiling.by_warpgroups, before..end);
            self.out.variants.push(Variant { launches, instead: instead?, how, by_warpgroups });
        }
        Ok(())
    }

    /// A launch of what an emitter has written: for a kernel, by the end of the function's name and what it is.
    fn assembled(
        &mut self,
        (k, name, what): (usize, &str, String),
        e: Emitter<'_>,
        (mut parameters, mut arguments): (Vec<String>, Vec<Argument>),
        (grid, block): (u32, u32),
    ) -> Launch {
        if e.faults {
            parameters.push("GLOBAL(unsigned long long) fault".into());
            arguments.push(Argument::fault());
        }
        let text = format!("({}) {{\n{}{WAIT}{}}}\n", parameters.join(", "), e.ahead, e.text());
        let fresh = format!("kernel_{}_{}", self.names.len(), identifier(name));
        let function = self.names.entry(format!("{block} {text}")).or_insert(fresh).clone();
        let limits = match e.registers {
            Some(registers) => format!("{block}, {registers}"),
            None => block.to_string(),
        };
        let source = format!("// {what}\nKERNEL({limits}) {function}{text}");
        Launch { function, source, grid: [grid, 1, 1], block, arguments, kernel: k, instead: None }
    }

    /// What a function is, for its reader.
    fn describe(&self, k: usize, kernel: &KernelProgram, stage: &Stage) -> String {
        let (kernel, ty) = (self.kernel_words(k), kernel.program.ty(stage.value));
        format!("{kernel}: {ty}, {}.", stage.shape.words())
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

/// Whether no launch of a run writes here, and so much lies here that fetching it takes time.
fn is_weight(place: Place, bytes: u64) -> bool {
    matches!(place, Place::Constant(_) | Place::Turned(_) | Place::Kept(_))
        && place.is_aligned()
        && bytes >= LEAST_AHEAD
}

/// A name of C++ from a kernel's.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
