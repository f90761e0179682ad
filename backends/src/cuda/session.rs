//! Launches on a device: their memory, their constants, their runs.

use super::{
    Address, Argument, Driver, DriverError, FAULT_WORDS, Launch, Launches, Module, NAME, Place,
    Port,
};
use crate::{Allocated, BackendError, Executable};
use bytes::Bytes;
use mlc_dsl::ir::{ConstId, Consts, Tensor, Type};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

/// Memory of a device, given back when this is dropped.
struct Memory {
    driver: Arc<dyn Driver>,
    address: Address,
    bytes: u64,
}

impl Memory {
    fn new(driver: &Arc<dyn Driver>, bytes: u64) -> Result<Memory, DriverError> {
        let address = driver.allocate(bytes)?;
        Ok(Memory { driver: driver.clone(), address, bytes })
    }

    /// With these bytes in it.
    fn of(driver: &Arc<dyn Driver>, bytes: &[u8]) -> Result<Memory, DriverError> {
        let memory = Memory::new(driver, bytes.len() as u64)?;
        memory.fill(bytes)?;
        Ok(memory)
    }

    fn fill(&self, bytes: &[u8]) -> Result<(), DriverError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => self.driver.upload(self.address, bytes),
        }
    }

    /// Where so many bytes begin, if they are all inside.
    fn part(&self, from: u64, bytes: u64) -> Option<Address> {
        let inside = from.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        inside.then(|| self.address.after(from))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A device that does not take its memory back is one that no longer works; the next call says so.
        let _ = self.driver.free(self.address);
    }
}

/// A translation unit on a device, unloaded when this is dropped.
struct Loaded {
    driver: Arc<dyn Driver>,
    module: Module,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // As with memory.
        let _ = self.driver.unload(self.module);
    }
}

/// The constants of a program on a device, each from its first use until no plan uses it.
pub struct DeviceConstants {
    driver: Arc<dyn Driver>,
    tensors: Consts,
    uploaded: Mutex<HashMap<ConstId, Weak<Memory>>>,
}

impl DeviceConstants {
    /// The constants of a program, none of them on the device yet.
    pub fn new(driver: Arc<dyn Driver>, tensors: Consts) -> DeviceConstants {
        DeviceConstants { driver, tensors, uploaded: Mutex::default() }
    }

    fn tensor(&self, id: ConstId) -> Option<&Tensor> {
        ((id.0 as usize) < self.tensors.len()).then(|| self.tensors.get(id))
    }

    /// A constant's memory. `None` if the program has no such constant.
    fn memory(&self, id: ConstId) -> Result<Option<Arc<Memory>>, DriverError> {
        let Some(tensor) = self.tensor(id) else { return Ok(None) };
        let mut uploaded = self.uploaded.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = uploaded.get(&id).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        let fresh = Arc::new(Memory::of(&self.driver, tensor.bytes())?);
        uploaded.insert(id, Arc::downgrade(&fresh));
        Ok(Some(fresh))
    }
}

/// All memory of a plan on a device.
struct Buffers {
    /// Those that a launch reads.
    inputs: Vec<Option<Memory>>,
    /// Once a plan is ready, those that a run reads.
    constants: HashMap<ConstId, Arc<Memory>>,
    outputs: BTreeMap<usize, Memory>,
    arena: Memory,
    kept: Memory,
    fault: Memory,
}

impl Buffers {
    fn new(
        launches: &Launches,
        driver: &Arc<dyn Driver>,
        constants: &DeviceConstants,
    ) -> Result<Buffers, BackendError> {
        let of = |port: &Port| size(port).ok_or_else(|| misplaced(&port.name));
        let places: Vec<Place> = all(launches).map(|(_, a)| a.place).collect();
        let input = |(i, port): (usize, &Port)| -> Result<Option<Memory>, BackendError> {
            match places.contains(&Place::Input(i)) {
                true => Ok(Some(Memory::new(driver, of(port)?)?)),
                false => Ok(None),
            }
        };
        let mut sizes: BTreeMap<usize, u64> = BTreeMap::new();
        for (port, place) in &launches.outputs {
            if let Place::Output(at) = place {
                let bytes = sizes.entry(*at).or_default();
                *bytes = of(port)?.max(*bytes);
            }
        }
        let mut used = HashMap::new();
        for id in &launches.constants {
            let memory = constants.memory(*id)?;
            used.insert(*id, memory.ok_or_else(|| misplaced(&format!("constant {}", id.0)))?);
        }
        Ok(Buffers {
            inputs: launches.inputs.iter().enumerate().map(input).collect::<Result<_, _>>()?,
            constants: used,
            outputs: sizes
                .into_iter()
                .map(|(at, bytes)| Ok((at, Memory::new(driver, bytes)?)))
                .collect::<Result<_, DriverError>>()?,
            arena: Memory::new(driver, launches.arena)?,
            kept: Memory::new(driver, launches.kept)?,
            fault: Memory::new(driver, FAULT_BYTES as u64)?,
        })
    }

    /// The address of a place with so many bytes behind it, if it has that many.
    fn address(&self, place: Place, bytes: u64) -> Option<Address> {
        match place {
            Place::Input(i) => self.inputs.get(i)?.as_ref()?.part(0, bytes),
            Place::Constant(id) => self.constants.get(&id)?.part(0, bytes),
            Place::Arena(at) => self.arena.part(at, bytes),
            Place::Kept(at) => self.kept.part(at, bytes),
            Place::Output(i) => self.outputs.get(&i)?.part(0, bytes),
            Place::Fault => self.fault.part(0, bytes),
        }
    }
}

const FAULT_BYTES: usize = 8 * FAULT_WORDS;

/// Every argument with the launch that takes it.
fn all(launches: &Launches) -> impl Iterator<Item = (&Launch, &Argument)> {
    let each = launches.once.iter().chain(&launches.each);
    each.flat_map(|launch| launch.arguments.iter().map(move |a| (launch, a)))
}

/// Bytes of a port's elements.
fn size(port: &Port) -> Option<u64> {
    if port.shape.contains(&0) {
        return Some(0);
    }
    let bytes = port.shape.iter().try_fold(port.dtype.size(), |n, &d| n.checked_mul(d))?;
    u64::try_from(bytes).ok()
}

/// Launches that reach outside the memory that they ask for.
fn misplaced(what: &str) -> BackendError {
    let what = format!("launches outside of their memory (`{what}`)");
    BackendError::Unsupported { backend: NAME, what }
}

/// A launch with the addresses of its arguments.
struct Call {
    function: String,
    grid: [u32; 3],
    block: u32,
    arguments: Vec<(Address, u64)>,
}

/// Launches in order, and whether any of them records a fault.
struct Sequence {
    calls: Vec<Call>,
    faulty: bool,
}

impl Sequence {
    /// Launches without blocks compute nothing, and devices refuse them.
    fn new(launches: &[Launch], buffers: &Buffers) -> Result<Sequence, BackendError> {
        let call = |launch: &Launch| {
            let argument = |a: &Argument| Some((buffers.address(a.place, a.bytes)?, a.bytes));
            let arguments = launch.arguments.iter().map(argument).collect::<Option<_>>();
            Ok(Call {
                function: launch.function.clone(),
                grid: launch.grid,
                block: launch.block,
                arguments: arguments.ok_or_else(|| misplaced(&launch.function))?,
            })
        };
        let launches: Vec<&Launch> = launches.iter().filter(|l| !l.grid.contains(&0)).collect();
        let faulty = launches.iter().any(|l| l.arguments.iter().any(|a| a.place == Place::Fault));
        let calls = launches.into_iter().map(call).collect::<Result<_, BackendError>>()?;
        Ok(Sequence { calls, faulty })
    }
}

/// Launches that are ready to run on a device.
pub struct LaunchedPlan {
    launches: Launches,
    driver: Arc<dyn Driver>,
    each: Sequence,
    /// What outputs that are constants are equal to.
    constants: Arc<DeviceConstants>,
    buffers: Buffers,
    /// Absent if nothing is launched.
    module: Option<Loaded>,
    /// Held during a run, for runs share all memory.
    running: Mutex<()>,
}

impl LaunchedPlan {
    /// Loads the code, uploads the constants, allocates memory and runs what runs once.
    ///
    /// # Errors
    /// The device refuses, or a launch reaches outside of its memory.
    pub fn new(
        launches: Launches,
        driver: Arc<dyn Driver>,
        constants: Consts,
    ) -> Result<LaunchedPlan, BackendError> {
        let constants = Arc::new(DeviceConstants::new(driver.clone(), constants));
        LaunchedPlan::sharing(launches, driver, &constants)
    }

    /// The same with constants that other plans use, too, on the same device.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sharing(
        launches: Launches,
        driver: Arc<dyn Driver>,
        constants: &Arc<DeviceConstants>,
    ) -> Result<LaunchedPlan, BackendError> {
        let buffers = Buffers::new(&launches, &driver, constants)?;
        let once = Sequence::new(&launches.once, &buffers)?;
        let each = Sequence::new(&launches.each, &buffers)?;
        for (port, place) in &launches.outputs {
            let there = match place {
                Place::Input(i) => launches.inputs.get(*i).is_some_and(|p| size(p) == size(port)),
                Place::Constant(id) => constants
                    .tensor(*id)
                    .is_some_and(|t| Some(t.bytes().len() as u64) == size(port)),
                _ => size(port).is_some_and(|bytes| buffers.address(*place, bytes).is_some()),
            };
            if !there {
                return Err(misplaced(&port.name));
            }
        }
        let module = match once.calls.is_empty() && each.calls.is_empty() {
            true => None,
            false => {
                let module = driver.load(&launches.unit())?;
                Some(Loaded { driver: driver.clone(), module })
            }
        };
        let mut plan = LaunchedPlan {
            launches,
            driver,
            each,
            constants: constants.clone(),
            buffers,
            module,
            running: Mutex::default(),
        };
        plan.execute(&once)?;
        let read = plan.launches.each.iter().flat_map(|l| &l.arguments).map(|a| a.place);
        let read: HashSet<ConstId> = read
            .filter_map(|place| if let Place::Constant(id) = place { Some(id) } else { None })
            .collect();
        plan.buffers.constants.retain(|id, _| read.contains(id));
        Ok(plan)
    }

    /// Launches in order; the fault that they record is an error.
    fn execute(&self, sequence: &Sequence) -> Result<(), BackendError> {
        let Some(Loaded { module, .. }) = &self.module else { return Ok(()) };
        let record = &self.buffers.fault;
        if sequence.faulty {
            self.driver.clear(record.address, record.bytes)?;
        }
        for call in &sequence.calls {
            let Call { function, grid, block, arguments } = call;
            self.driver.launch(*module, function, *grid, *block, arguments)?;
        }
        if sequence.faulty {
            let mut bytes = [0; FAULT_BYTES];
            self.driver.download(record.address, &mut bytes)?;
            let mut words = bytes.chunks_exact(8).map(|w| w.try_into().expect("8 bytes"));
            let words: [i64; FAULT_WORDS] =
                std::array::from_fn(|_| words.next().map_or(0, i64::from_le_bytes));
            self.fault(words)?;
        }
        Ok(())
    }

    /// The error of a record of a fault, if there is one.
    fn fault(
        &self,
        [any, node, axis, index, extent]: [i64; FAULT_WORDS],
    ) -> Result<(), BackendError> {
        if any == 0 {
            return Ok(());
        }
        let name = usize::try_from(node).ok().and_then(|n| self.launches.nodes.get(n));
        let op = name.cloned().unwrap_or_else(|| format!("node {node}"));
        let reason = match axis {
            -1 => "an index exists for no element".to_string(),
            axis => {
                format!("index {index} is out of range for axis {axis}, which has extent {extent}")
            }
        };
        Err(BackendError::Operator { op, reason })
    }

    /// An error unless the inputs are those that the code was generated for.
    fn check(&self, inputs: &[Tensor]) -> Result<(), BackendError> {
        let bad = |name: &str, reason| Err(BackendError::Input { name: name.to_string(), reason });
        let ports = &self.launches.inputs;
        if ports.len() != inputs.len() {
            let (takes, given) = (ports.len(), inputs.len());
            return bad("", format!("the program takes {takes} inputs, {given} given"));
        }
        for (port, t) in ports.iter().zip(inputs) {
            if port.dtype != t.dtype() {
                return bad(&port.name, format!("expected {}, found {}", port.dtype, t.dtype()));
            }
            if port.shape != t.shape() {
                let wanted = Type::known(port.dtype, &port.shape);
                let found = t.shape();
                return bad(&port.name, format!("expected {wanted}, found shape {found:?}"));
            }
        }
        Ok(())
    }

    /// The value of an output after a run.
    fn output(&self, port: &Port, place: Place, inputs: &[Tensor]) -> Result<Tensor, BackendError> {
        let bytes = match place {
            Place::Input(i) => inputs[i].bytes().clone(),
            Place::Constant(id) => match self.constants.tensor(id) {
                Some(t) => t.bytes().clone(),
                None => return Err(misplaced(&port.name)),
            },
            _ => {
                let bytes = size(port).ok_or_else(|| misplaced(&port.name))?;
                let from = self.buffers.address(place, bytes);
                let from = from.ok_or_else(|| misplaced(&port.name))?;
                let mut out = vec![0; bytes as usize];
                if !out.is_empty() {
                    self.driver.download(from, &mut out)?;
                }
                Bytes::from(out)
            }
        };
        Tensor::new(port.dtype, port.shape.clone(), bytes).map_err(|_| misplaced(&port.name))
    }
}

impl Executable for LaunchedPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.check(inputs)?;
        let _alone = self.running.lock().unwrap_or_else(|e| e.into_inner());
        for (memory, tensor) in self.buffers.inputs.iter().zip(inputs) {
            if let Some(memory) = memory {
                memory.fill(tensor.bytes())?;
            }
        }
        self.execute(&self.each)?;
        let outputs = self.launches.outputs.iter();
        outputs.map(|(port, place)| self.output(port, *place, inputs)).collect()
    }

    fn allocated(&self) -> Option<Allocated> {
        let arena = self.buffers.arena.bytes + self.buffers.kept.bytes;
        let results = self.buffers.outputs.values().map(|m| m.bytes).sum();
        Some(Allocated { arena, results })
    }
}
