//! CUDA C++ for the kernels of a plan whose shapes are known.
//!
//! Code is generated from the meaning of operators; those without one have hand-written code in [`procedures`], which alone names
//! operators. A kernel becomes one or more launches ([`stages`]) that read and write the plan's memory.

mod assembled;
mod body;
mod emit;
mod flash_attention;
mod grid;
mod kernel;
mod library_candidates;
mod megakernel;
mod open;
mod procedure;
mod procedure_launches;
mod procedures;
mod product;
mod ranges;
mod recurrent;
mod reduction;
mod scopes;
mod spelling;
mod stages;
mod tiled_transpose;
mod tuning;

use super::launch::{Argument, Launch, Launches, Place, Port, Variant};
use mlc_backends::BackendError;
pub(crate) use open::OpenExtents;
pub use procedures::is_known as has_procedure;

use assembled::{FunctionBody, Signature};
use body::body;
use emit::Emitter;
use kernel::{KernelProgram, StoredValues, known_type, unsupported};
use mlc_dsl::ir::{ConstId, DType, NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Plan};
use open::KernelForm;
use procedure::TypedShape;
use product::Product;
use product::tile_config::Tiling;
use stages::{Schedule, Stage};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use tuning::CodeTarget;
pub use tuning::{Policy, Tuning, Warpgroups};

/// Alignment of values in memory, in bytes.
const ALIGNED: u64 = 256;
/// Bytes of stack: code is generated recursively over the depth of a kernel. What is not used takes no memory.
const STACK: usize = 256 << 20;
/// How a function begins that may be launched programmatically.
const WAIT: &str = "  wait_for_launch();\n";
/// Bytes of a weight that a function prefetches while it waits, at least and at most.
const LEAST_AHEAD: u64 = 32 << 10;
const MOST_AHEAD: u64 = 8 << 20;
/// Threads of a block with an element for each.
const THREADS: u32 = 256;

/// The launches of a plan.
///
/// # Errors
/// An extent is not known, or an operator has no meaning to generate code from.
pub fn launches(plan: &Plan, library: &Library) -> Result<Launches, BackendError> {
    launches_for(plan, library, Tuning::default())
}

/// The launches of a plan whose `f32` products run on tensor cores in `tf32` (19 bits): the error of a sum is at most 2^-10 of the sum of
/// its products' magnitudes, besides rounding of the additions.
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
    launches_at(plan, None, library, tuning)
}

/// The same of a plan whose symbols are bound, if it has some: functions take open extents as arguments where they can.
///
/// # Errors
/// As [`launches`].
pub fn launches_at(
    plan: &Plan,
    open: Option<&OpenExtents<'_>>,
    library: &Library,
    tuning: Tuning,
) -> Result<Launches, BackendError> {
    std::thread::scope(|scope| {
        let generate = || generate(plan, open, library, tuning);
        match std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, generate) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(unsupported(format!("a system that starts no thread ({e})"))),
        }
    })
}

fn generate(
    plan: &Plan,
    open: Option<&OpenExtents<'_>>,
    library: &Library,
    tuning: Tuning,
) -> Result<Launches, BackendError> {
    let mut out = separate(plan, open, library, CodeTarget { tuning, uniform_blocks: false })?;
    if open.is_some() {
        // The phases of a megakernel have the numbers of their blocks in their text.
        if tuning.megakernel != Policy::Never && out.each.len() > 1 {
            let why = "as one they would be compiled for each set of extents";
            out.notes.push(format!("launches one by one, not as one: {why}"));
        }
        return Ok(out);
    }
    let megakernel_estimate = match tuning.megakernel {
        Policy::Never => return Ok(out),
        Policy::WhenFaster => match megakernel::prospect(&out, tuning.processors) {
            None => return Ok(out),
            likely => likely,
        },
        Policy::Always => None,
    };
    let even = separate(plan, None, library, CodeTarget { tuning, uniform_blocks: true })?;
    if megakernel_estimate.is_none() || megakernel::is_short(&even) {
        out.megakernel = megakernel::merged(&even, tuning.processors);
        out.megakernel_estimate = megakernel_estimate.filter(|_| out.megakernel.is_some());
        out.arena = out.arena.max(even.arena);
    }
    Ok(out)
}

/// The launches of a plan, separate ones.
fn separate(
    plan: &Plan,
    open: Option<&OpenExtents<'_>>,
    library: &Library,
    target: CodeTarget,
) -> Result<Launches, BackendError> {
    let mut g = Generator::new(plan, library, target)?;
    if let Some(open) = open {
        g.read_forms(open);
    }
    for k in 0..plan.kernels.len() {
        g.kernel(k, open)?;
    }
    g.outputs(open)?;
    Ok(g.out)
}

/// A kernel of the plan whose launches are generated.
#[derive(Clone, Copy)]
struct KernelSite<'a> {
    /// Its number in the plan, and its name.
    number: usize,
    name: &'a str,
    /// The number of its first node in the record of a fault.
    first_node: usize,
    /// Whether it runs once, before the first run.
    once: bool,
}

/// Where the values of a kernel are, and where its scratch memory ends.
struct StageMemory {
    places: HashMap<Value, Place>,
    scratch: u64,
}

impl StageMemory {
    /// Scratch memory for a value of this type.
    fn allocate(&mut self, ty: &TypedShape) -> Result<Place, BackendError> {
        Ok(Place::Arena(take(&mut self.scratch, bytes_of(ty))?))
    }
}

/// A stage of a kernel, where it stores its value, and its launches among those of a run.
struct LaunchedStage<'a> {
    stage: &'a Stage,
    target: Place,
    launches: Range<usize>,
}

struct Generator<'a> {
    plan: &'a Plan,
    library: &'a Library,
    target: CodeTarget,
    stored: StoredValues,
    out: Launches,
    /// Where memory for stages begins.
    scratch: u64,
    /// The names of functions by their texts.
    names: HashMap<String, String>,
    /// How the kernels of a plan with open extents are generated, and the number of the first node of each in the record of a fault;
    /// the last one copies outputs.
    forms: Vec<Option<(KernelForm, usize)>>,
    /// The tiling of the product that is emitted at present, if not the one that is estimated to be fastest.
    tiling: Option<Tiling>,
}

/// Allocates bytes at `end`, which stays aligned; their offset.
fn take(end: &mut u64, bytes: u64) -> Result<u64, BackendError> {
    let begin = *end;
    let next = bytes.checked_next_multiple_of(ALIGNED).and_then(|b| begin.checked_add(b));
    *end = next.ok_or_else(|| unsupported("values of more than 2^64 bytes together".into()))?;
    Ok(begin)
}

/// Bytes of a value, as [`known_type`] yields it.
fn bytes_of((dtype, shape): &TypedShape) -> u64 {
    shape.iter().product::<usize>() as u64 * dtype.size() as u64
}

impl<'a> Generator<'a> {
    fn new(
        plan: &'a Plan,
        library: &'a Library,
        target: CodeTarget,
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
            out.outputs.push((port(name, known_type(program, *v)?), Place::Output(i)));
        }
        let mut places = HashMap::new();
        for p in &plan.memory.places {
            let own = program.outputs.iter().position(|(_, v)| *v == p.value);
            let place = match (p.home, own) {
                (Home::Arena(at), _) => Place::Arena(at),
                (Home::Result, Some(i)) => Place::Output(i),
                // Outputs are seen in it otherwise.
                (Home::Result, None) => {
                    Place::Arena(take(&mut out.arena, bytes_of(&known_type(program, p.value)?))?)
                }
            };
            places.insert(p.value, place);
        }
        for (k, kernel) in plan.kernels.iter().enumerate() {
            if !plan.memory.once[k] || kernel.is_view() {
                continue;
            }
            for v in &kernel.outputs {
                let at = take(&mut out.kept, bytes_of(&known_type(program, *v)?))?;
                places.insert(*v, Place::Kept(at));
            }
        }
        let scratch = out.arena;
        let stored = StoredValues { places };
        let (names, forms, tiling) = (HashMap::new(), vec![], None);
        Ok(Generator { plan, library, target, stored, out, scratch, names, forms, tiling })
    }

    /// Notes the names of nodes for the record of a fault.
    fn name_nodes(&mut self, program: &Program) {
        for node in &program.nodes {
            let op = match &node.kind {
                NodeKind::Apply(call, _) => self.library.call(*call).name.to_string(),
                NodeKind::Input(_) | NodeKind::Const(_) => String::new(),
            };
            let of = if node.origin.is_empty() { op } else { format!("{op} ({})", node.origin) };
            self.out.nodes.push(of);
        }
    }

    /// What a kernel stores, and where.
    fn stores(&self, k: usize) -> Vec<(Value, Place)> {
        let kernel = &self.plan.kernels[k];
        let placed = |v: &Value| Some((*v, *self.stored.places.get(v)?));
        let mut outputs: Vec<(Value, Place)> = kernel.outputs.iter().filter_map(placed).collect();
        if outputs.is_empty() && kernel.is_view() {
            // Its result is seen in what stands before it, such as elements that are taken out and then reshaped.
            let first = |&node: &NodeId| placed(&Value { node, output: 0 });
            outputs.extend(kernel.nodes.iter().filter_map(first));
        }
        outputs
    }

    fn kernel(&mut self, k: usize, open: Option<&OpenExtents<'_>>) -> Result<(), BackendError> {
        let (kernel, outputs) = (&self.plan.kernels[k], self.stores(k));
        let inside = |v: Value| kernel.nodes.contains(&v.node);
        self.launch_all(k, &kernel.name, &inside, &outputs, self.plan.memory.once[k], open)
    }

    /// Copies of outputs that are equal to inputs, constants or other outputs.
    fn outputs(&mut self, open: Option<&OpenExtents<'_>>) -> Result<(), BackendError> {
        let missing = self.copies();
        self.launch_all(self.plan.kernels.len(), "copy", &|_| false, &missing, false, open)
    }

    /// The outputs that no kernel writes, and where they go.
    fn copies(&self) -> Vec<(Value, Place)> {
        let program = &self.plan.program;
        let written = |i: usize, v: Value| self.stored.places.get(&v) == Some(&Place::Output(i));
        program
            .outputs
            .iter()
            .enumerate()
            .filter(|(i, (_, v))| !written(*i, *v))
            .map(|(i, (_, v))| (*v, Place::Output(i)))
            .collect()
    }

    fn launch_all(
        &mut self,
        k: usize,
        name: &str,
        inside: &dyn Fn(Value) -> bool,
        outputs: &[(Value, Place)],
        once: bool,
        open: Option<&OpenExtents<'_>>,
    ) -> Result<(), BackendError> {
        if outputs.is_empty() {
            return Ok(());
        }
        let form = self.forms.get_mut(k).and_then(Option::take);
        if let Some((form, first_node)) = form {
            match (form, open) {
                (KernelForm::Open(kernel, stages), Some(open))
                    if !open.is_vector(&kernel, &stages) =>
                {
                    let site = KernelSite { number: k, name, first_node, once };
                    let end = self.launch_open(site, open, &kernel, &stages)?;
                    self.out.arena = self.out.arena.max(end);
                    return Ok(());
                }
                (KernelForm::PerExtents(why), _) => {
                    let what = format!("kernel {k} (`{name}`)");
                    self.out
                        .notes
                        .push(format!("{what} is compiled for each set of extents: {why}"));
                }
                (KernelForm::Known | KernelForm::Open(..), _) => {}
            }
        }
        let kernel = |transposed: &BTreeSet<ConstId>| {
            let (stored, target) = (&self.stored, self.target);
            KernelProgram::new(self.plan, self.library, stored, inside, outputs, target, transposed)
        };
        let as_it_is = kernel(&BTreeSet::new())?;
        let transposed = product::transposed_weights::unaligned_weights(&as_it_is);
        let kernel = if transposed.is_empty() { as_it_is } else { kernel(&transposed)? };
        let first_node = self.out.nodes.len();
        self.name_nodes(&kernel.program);
        let site = KernelSite { number: k, name, first_node, once };
        let end = self.launch_stages(site, &kernel, self.scratch)?;
        self.out.arena = self.out.arena.max(end);
        Ok(())
    }

    /// Adds the launches of a kernel; where scratch memory for its stages begins, and where it ends.
    fn launch_stages(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        scratch: u64,
    ) -> Result<u64, BackendError> {
        let mut memory = StageMemory { places: HashMap::new(), scratch };
        for i in 0..kernel.program.nodes.len() as u32 {
            let v = Value { node: NodeId(i), output: 0 };
            if let Some(input) = kernel.input(v) {
                memory.places.insert(v, kernel.inputs[input]);
            }
        }
        for stage in stages::stages(kernel) {
            match stage.schedule {
                Schedule::Procedure | Schedule::Recurrence => {
                    self.launch_node(site, kernel, &stage, &mut memory)?;
                }
                _ => self.launch_stage(site, kernel, &stage, &mut memory)?,
            }
        }
        Ok(memory.scratch)
    }

    /// Adds the launches of a node that stores all of its results.
    fn launch_node(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        stage: &Stage,
        memory: &mut StageMemory,
    ) -> Result<(), BackendError> {
        let node = stage.value.node;
        let launches = match stage.schedule {
            Schedule::Recurrence => self.recurrence(site, kernel, node, memory)?,
            _ => self.procedure(site, kernel, node, memory)?,
        };
        self.list(site.once).extend(launches);
        // What else is equal to a result.
        for (v, target) in kernel.outputs.iter().filter(|o| o.0.node == node) {
            if memory.places.get(v).is_some_and(|place| place != target) {
                let copy = Stage { value: *v, schedule: Schedule::Elements };
                let launch = self.launch(site, kernel, &copy, *target, None, &memory.places)?;
                self.list(site.once).extend(launch);
            }
        }
        Ok(())
    }

    /// Adds the launches of a stage, and notes what may take their place.
    fn launch_stage(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        stage: &Stage,
        memory: &mut StageMemory,
    ) -> Result<(), BackendError> {
        let mut targets: Vec<Place> =
            kernel.outputs.iter().filter(|o| o.0 == stage.value).map(|o| o.1).collect();
        if targets.is_empty() {
            targets.push(memory.allocate(&known_type(&kernel.program, stage.value)?)?);
        }
        let first = self.out.each.len();
        let launches = self.launches_of(site, kernel, stage, &targets, memory)?;
        self.list(site.once).extend(launches);
        let target = targets[0];
        if !site.once && targets.len() == 1 {
            let launched = LaunchedStage { stage, target, launches: first..self.out.each.len() };
            self.library_candidates(site, kernel, &launched, memory)?;
            self.variants(site, kernel, &launched, memory)?;
        }
        if kernel.input(stage.value).is_none() {
            memory.places.insert(stage.value, target);
        }
        Ok(())
    }

    /// The launches of a stage that stores its value here.
    fn launches_of(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        stage: &Stage,
        targets: &[Place],
        memory: &mut StageMemory,
    ) -> Result<Vec<Launch>, BackendError> {
        let parts = stage.schedule.parts().map(|ty| memory.allocate(&ty)).transpose()?;
        let mut out = vec![];
        for &target in targets {
            out.extend(self.launch(site, kernel, stage, target, parts, &memory.places)?);
        }
        Ok(out)
    }

    /// The launches before the first run, or those of every run.
    fn list(&mut self, once: bool) -> &mut Vec<Launch> {
        if once { &mut self.out.once } else { &mut self.out.each }
    }

    /// Notes the constants that launches read.
    fn reads(&mut self, place: Place) {
        let (list, c) = match place {
            Place::Constant(c) => (&mut self.out.constants, c),
            Place::Transposed(c) => (&mut self.out.transposed, c),
            _ => return,
        };
        if !list.contains(&c) {
            list.push(c);
        }
    }

    /// The launch of a stage that stores its value at `target`, and partial results, if it has some, at `parts`.
    fn launch(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        stage: &Stage,
        target: Place,
        parts: Option<Place>,
        places: &HashMap<Value, Place>,
    ) -> Result<Option<Launch>, BackendError> {
        let (dtype, shape) = known_type(&kernel.program, stage.value)?;
        if shape.contains(&0) {
            return Ok(None);
        }
        let mut e = Emitter::new(kernel);
        e.first_node = site.first_node;
        e.tiling = self.tiling;
        let mut order: Vec<Value> = places.keys().copied().collect();
        order.sort_unstable();
        for (i, v) in order.iter().enumerate() {
            e.stored.insert(*v, format!("x{i}"));
        }
        e.unaligned.extend(order.iter().filter(|v| !places[*v].is_aligned()));
        e.out_is_unaligned = !target.is_aligned();
        let grid = body(&mut e, kernel, stage, &shape)
            .ok_or_else(|| unsupported("a value of more than 2^31 blocks".into()))?;
        let mut signature = Signature::default();
        for v in order.iter().filter(|v| e.read.contains(v)) {
            let ty = known_type(&kernel.program, *v)?;
            let (place, bytes) = (places[v], bytes_of(&ty));
            self.reads(place);
            let is_product =
                matches!(stage.schedule, Schedule::TiledProduct(_) | Schedule::SplitK(..));
            if is_product && is_weight(place, bytes) {
                let fetched = bytes.min(MOST_AHEAD) / 16 * 16;
                e.ahead += &format!("  fetch_ahead({}, {fetched});\n", e.stored[v]);
            }
            signature.push(
                format!("GLOBAL(const {}) {}", spelling::stored(ty.0), e.stored[v]),
                Argument { place, bytes, dtype: ty.0, written: false },
            );
        }
        if let Schedule::EpilogueOnly(_, ty, place) = &stage.schedule {
            signature.push(
                format!("GLOBAL(const {}) parts", spelling::stored(ty.0)),
                Argument { place: *place, bytes: bytes_of(ty), dtype: ty.0, written: false },
            );
        }
        if let Some((place, ty)) = parts.zip(stage.schedule.parts()) {
            // Blocks read what others write.
            signature.push(
                format!("PLAIN({}) parts", spelling::stored(ty.0)),
                Argument { place, bytes: bytes_of(&ty), dtype: ty.0, written: true },
            );
            signature.push("PLAIN(unsigned) counts".into(), Argument::counts(ty.1[0]));
        }
        let bytes = bytes_of(&(dtype, shape));
        signature.push(
            format!("GLOBAL({}) out", spelling::stored(dtype)),
            Argument { place: target, bytes, dtype, written: true },
        );
        let what = self.describe(site.number, kernel, stage);
        self.assembled(site, what, e.into(), signature, grid).map(Some)
    }

    /// Notes the launches with other tilings that may take the place of those of a stage.
    fn variants(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        launched: &LaunchedStage<'_>,
        memory: &mut StageMemory,
    ) -> Result<(), BackendError> {
        let (value, target) = (launched.stage.value, launched.target);
        let Some(product) = launched.stage.schedule.product() else { return Ok(()) };
        let mut emitter = Emitter::with_stored(kernel, memory.places.keys());
        let found = Product::recognise(&mut emitter, kernel, product);
        let Some(mut found) = found.filter(|_| !launched.launches.is_empty()) else {
            return Ok(());
        };
        for tiling in found.other_tilings(&self.target.tuning) {
            found.tiling = tiling;
            let schedule = Schedule::of_product(product, found.parts());
            let stage = Stage { value, schedule };
            self.tiling = Some(tiling);
            let replacement = self.launches_of(site, kernel, &stage, &[target], memory);
            self.tiling = None;
            self.out.variants.push(Variant {
                launches: launched.launches.clone(),
                replacement: replacement?,
                description: tiling.words(),
                by_warpgroups: tiling.by_warpgroups,
            });
        }
        Ok(())
    }
}

/// Whether it is constant during a run, and large enough for prefetching to pay.
fn is_weight(place: Place, bytes: u64) -> bool {
    matches!(place, Place::Constant(_) | Place::Transposed(_) | Place::Kept(_))
        && place.is_aligned()
        && bytes >= LEAST_AHEAD
}
