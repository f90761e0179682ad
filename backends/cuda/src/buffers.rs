//! Device resources of a plan, released on drop: memory, modules, streams, recorded graphs.

use super::NAME;
use crate::code::Code;
use crate::driver::{Address, Driver, Graph, Module, Prepared, Stream};
use crate::launch::{Argument, FAULT_WORDS, Launch, Launches, Place, Port};
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use mlc_dsl::ir::{ConstId, Consts, Tensor};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

/// Device memory, freed on drop.
pub struct Memory {
    driver: Arc<dyn Driver>,
    pub address: Address,
    pub bytes: u64,
}

impl Memory {
    pub fn new(driver: &Arc<dyn Driver>, bytes: u64) -> Result<Memory, DriverError> {
        let address = driver.allocate(bytes)?;
        Ok(Memory { driver: driver.clone(), address, bytes })
    }

    /// Copies bytes into it, in stream order.
    pub fn fill(&self, on: &OwnedStream, bytes: &[u8]) -> Result<(), DriverError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => self.driver.upload(on.stream, self.address, bytes),
        }
    }

    /// The address of a range of bytes, if it is inside.
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

/// A module on a device, unloaded on drop.
pub struct LoadedModule {
    driver: Arc<dyn Driver>,
    pub module: Module,
}

impl LoadedModule {
    pub fn new(driver: &Arc<dyn Driver>, code: &Code<'_>) -> Result<LoadedModule, DriverError> {
        Ok(LoadedModule { driver: driver.clone(), module: driver.load(code)? })
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        // As with memory.
        let _ = self.driver.unload(self.module);
    }
}

/// A stream of a plan's own, destroyed on drop.
pub struct OwnedStream {
    driver: Arc<dyn Driver>,
    pub stream: Stream,
}

impl OwnedStream {
    pub fn new(driver: &Arc<dyn Driver>) -> Result<OwnedStream, DriverError> {
        Ok(OwnedStream { driver: driver.clone(), stream: driver.stream()? })
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        // As with memory.
        let _ = self.driver.end(self.stream);
    }
}

/// A captured graph, destroyed on drop.
pub struct OwnedGraph {
    driver: Arc<dyn Driver>,
    pub graph: Graph,
}

impl OwnedGraph {
    pub fn new(driver: &Arc<dyn Driver>, graph: Graph) -> OwnedGraph {
        OwnedGraph { driver: driver.clone(), graph }
    }
}

impl Drop for OwnedGraph {
    fn drop(&mut self) {
        // As with memory.
        let _ = self.driver.forget(self.graph);
    }
}

/// A prepared library operation, released on drop.
pub struct OwnedLibraryOp {
    driver: Arc<dyn Driver>,
    pub prepared: Prepared,
}

impl OwnedLibraryOp {
    pub fn new(driver: &Arc<dyn Driver>, prepared: Prepared) -> OwnedLibraryOp {
        OwnedLibraryOp { driver: driver.clone(), prepared }
    }
}

impl Drop for OwnedLibraryOp {
    fn drop(&mut self) {
        // As with memory.
        let _ = self.driver.release(self.prepared);
    }
}

/// The constants of a program on a device, each from its first use until no plan uses it.
pub struct DeviceConstants {
    driver: Arc<dyn Driver>,
    tensors: Consts,
    uploaded: Mutex<HashMap<Place, Weak<Memory>>>,
}

impl DeviceConstants {
    /// The constants of a program, none of them on the device yet.
    pub fn new(driver: Arc<dyn Driver>, tensors: Consts) -> DeviceConstants {
        DeviceConstants { driver, tensors, uploaded: Mutex::default() }
    }

    pub(super) fn tensor(&self, id: ConstId) -> Option<&Tensor> {
        ((id.0 as usize) < self.tensors.len()).then(|| self.tensors.get(id))
    }

    /// The memory of the constants that launches read, with all of their bytes in it. An error names one that the program does not have.
    fn resident(&self, launches: &Launches) -> Result<HashMap<Place, Arc<Memory>>, BackendError> {
        let mut uploaded = self.uploaded.lock().unwrap_or_else(|e| e.into_inner());
        let (mut out, mut fresh): (HashMap<Place, Arc<Memory>>, _) = (HashMap::new(), vec![]);
        let as_they_are = launches.constants.iter().map(|&id| (id, Place::Constant(id)));
        let turned = launches.transposed.iter().map(|&id| (id, Place::Transposed(id)));
        for (id, place) in as_they_are.chain(turned) {
            let Entry::Vacant(entry) = out.entry(place) else { continue };
            let tensor = self.tensor(id);
            let tensor = tensor.ok_or_else(|| misplaced(&format!("constant {}", id.0)))?;
            match uploaded.get(&place).and_then(Weak::upgrade) {
                Some(known) => drop(entry.insert(known)),
                None => {
                    let memory = Memory::new(&self.driver, tensor.bytes().len() as u64)?;
                    entry.insert(Arc::new(memory));
                    fresh.push((place, tensor));
                }
            }
        }
        if fresh.is_empty() {
            return Ok(out);
        }
        // A stream for this alone: what its copies go through is large, and is given back with it. Other plans on other
        // streams find the constants whole.
        let stream = OwnedStream::new(&self.driver)?;
        for (place, tensor) in &fresh {
            match place {
                Place::Transposed(_) => out[place].fill(&stream, &transposed_bytes(tensor))?,
                _ => out[place].fill(&stream, tensor.bytes())?,
            }
        }
        self.driver.wait(stream.stream)?;
        uploaded.extend(fresh.iter().map(|(place, _)| (*place, Arc::downgrade(&out[place]))));
        Ok(out)
    }
}

/// All memory of a plan on a device.
pub struct Buffers {
    /// Those that a launch reads.
    pub inputs: Vec<Option<Memory>>,
    /// Once a plan is ready, those that a run reads.
    pub constants: HashMap<Place, Arc<Memory>>,
    pub outputs: BTreeMap<usize, Memory>,
    pub arena: Memory,
    pub kept: Memory,
    pub fault: Memory,
    /// Counters of grid barriers and of last blocks, if there are such launches.
    pub grid: Option<Memory>,
    pub counts: Option<Memory>,
}

impl Buffers {
    pub fn new(
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
        let numbers = |place: Place| {
            let bytes = all(launches).filter(|(_, a)| a.place == place).map(|(_, a)| a.bytes).max();
            bytes.map(|bytes| Memory::new(driver, bytes)).transpose()
        };
        Ok(Buffers {
            inputs: launches.inputs.iter().enumerate().map(input).collect::<Result<_, _>>()?,
            constants: constants.resident(launches)?,
            outputs: sizes
                .into_iter()
                .map(|(at, bytes)| Ok((at, Memory::new(driver, bytes)?)))
                .collect::<Result<_, DriverError>>()?,
            arena: Memory::new(driver, launches.arena)?,
            kept: Memory::new(driver, launches.kept)?,
            fault: Memory::new(driver, FAULT_BYTES as u64)?,
            grid: numbers(Place::Grid)?,
            counts: numbers(Place::Counts)?,
        })
    }

    /// Bytes on the device, those of constants aside, which plans share.
    pub fn bytes(&self) -> u64 {
        let own = [&self.arena, &self.kept, &self.fault];
        let own = own.into_iter().chain(self.inputs.iter().flatten()).chain(self.outputs.values());
        own.chain(&self.grid).chain(&self.counts).map(|m| m.bytes).sum()
    }

    /// The address of a place, if it has so many bytes.
    pub fn address(&self, place: Place, bytes: u64) -> Option<Address> {
        match place {
            Place::Input(i) => self.inputs.get(i)?.as_ref()?.part(0, bytes),
            Place::Constant(_) | Place::Transposed(_) => self.constants.get(&place)?.part(0, bytes),
            Place::Arena(at) => self.arena.part(at, bytes),
            Place::Kept(at) => self.kept.part(at, bytes),
            Place::Output(i) => self.outputs.get(&i)?.part(0, bytes),
            Place::Fault => self.fault.part(0, bytes),
            Place::Grid => self.grid.as_ref()?.part(0, bytes),
            Place::Counts => self.counts.as_ref()?.part(0, bytes),
        }
    }
}

/// Side of a transposed tile: both its source and its target fit the cache.
const SQUARE: usize = 32;

/// The bytes of a tensor with its last two axes transposed.
fn transposed_bytes(tensor: &Tensor) -> Vec<u8> {
    let (shape, size) = (tensor.shape(), tensor.dtype().size());
    let [.., rows, columns] = *shape else { return tensor.bytes().to_vec() };
    let (from, mut to) = (tensor.bytes(), vec![0; tensor.bytes().len()]);
    let all = rows * columns * size;
    for (from, to) in from.chunks_exact(all.max(1)).zip(to.chunks_exact_mut(all.max(1))) {
        let columns_of = |row| (0..columns).step_by(SQUARE).map(move |column| (row, column));
        for (row, column) in (0..rows).step_by(SQUARE).flat_map(columns_of) {
            for i in row..(row + SQUARE).min(rows) {
                for j in column..(column + SQUARE).min(columns) {
                    let (own, other) = ((i * columns + j) * size, (j * rows + i) * size);
                    to[other..other + size].copy_from_slice(&from[own..own + size]);
                }
            }
        }
    }
    to
}

pub const FAULT_BYTES: usize = 8 * FAULT_WORDS;

/// Every argument with the launch that takes it.
fn all(launches: &Launches) -> impl Iterator<Item = (&Launch, &Argument)> {
    let others = launches.variants.iter().flat_map(|v| &v.replacement);
    let each = launches.once.iter().chain(&launches.each).chain(&launches.megakernel).chain(others);
    let each = each.flat_map(|l| std::iter::once(l).chain(l.fallback.as_deref()));
    each.flat_map(|launch| launch.arguments.iter().map(move |a| (launch, a)))
}

/// Bytes of a port's elements.
pub fn size(port: &Port) -> Option<u64> {
    if port.shape.contains(&0) {
        return Some(0);
    }
    let bytes = port.shape.iter().try_fold(port.dtype.size(), |n, &d| n.checked_mul(d))?;
    u64::try_from(bytes).ok()
}

/// The error of launches that access memory outside of what they declare.
pub fn misplaced(what: &str) -> BackendError {
    let what = format!("launches outside of their memory (`{what}`)");
    BackendError::Unsupported { backend: NAME, what }
}
