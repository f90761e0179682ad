//! Launches bound to device addresses, as a session starts them.

use super::buffers::{Buffers, misplaced};
use crate::driver::Address;
use crate::launch::{Argument, Launch, Place};
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use std::sync::OnceLock;

/// Shared memory of a light block at most, in bytes.
const LIGHT: u64 = 8 << 10;

/// A launch with the addresses of its arguments.
pub struct BoundLaunch {
    pub function: String,
    pub grid: [u32; 3],
    pub block: u32,
    pub shared: u32,
    pub arguments: Vec<(Address, u64)>,
    pub numbers: Vec<i64>,
    pub is_cooperative: bool,
    /// Whether its blocks have little shared memory, so that they fit beside others.
    pub is_light: bool,
    /// What replaces it where the device refuses a cooperative launch, and why it does.
    pub fallback: Option<Box<BoundLaunch>>,
    pub refused: OnceLock<String>,
}

impl BoundLaunch {
    pub fn new(launch: &Launch, buffers: &Buffers) -> Result<BoundLaunch, BackendError> {
        let argument = |a: &Argument| Some((buffers.address(a.place, a.bytes)?, a.bytes));
        let arguments = launch.arguments.iter().map(argument).collect::<Option<_>>();
        let fallback =
            launch.fallback.as_ref().map(|l| BoundLaunch::new(l, buffers)).transpose()?;
        Ok(BoundLaunch {
            function: launch.function.clone(),
            grid: launch.grid,
            block: launch.block,
            shared: launch.large_bytes() as u32,
            arguments: arguments.ok_or_else(|| misplaced(&launch.function))?,
            numbers: launch.numbers.clone(),
            is_cooperative: launch.is_cooperative(),
            is_light: launch.shared_bytes().is_some_and(|bytes| bytes <= LIGHT),
            fallback: fallback.map(Box::new),
            refused: OnceLock::new(),
        })
    }

    /// The note where it was refused.
    pub fn note(&self) -> Option<String> {
        let (why, fallback) = (self.refused.get()?, self.fallback.as_ref()?);
        Some(format!("`{}` in place of `{}`: {why}", fallback.function, self.function))
    }
}

/// Launches in order, and whether any of them records a fault.
pub struct Sequence {
    pub calls: Vec<BoundLaunch>,
    pub faulty: bool,
}

impl Sequence {
    /// Launches without blocks compute nothing, and devices refuse them.
    pub fn new(launches: &[Launch], buffers: &Buffers) -> Result<Sequence, BackendError> {
        let call = |launch: &Launch| BoundLaunch::new(launch, buffers);
        let launches: Vec<&Launch> = launches.iter().filter(|l| l.has_blocks()).collect();
        let faulty = launches.iter().any(|l| l.arguments.iter().any(|a| a.place == Place::Fault));
        let calls = launches.into_iter().map(call).collect::<Result<_, BackendError>>()?;
        Ok(Sequence { calls, faulty })
    }
}

/// The megakernel of a run: why it is used, or why not.
pub struct MegakernelLaunch {
    pub call: BoundLaunch,
    count: usize,
    chosen: OnceLock<String>,
    refused: OnceLock<String>,
}

impl MegakernelLaunch {
    pub fn new(
        launch: &Launch,
        count: usize,
        buffers: &Buffers,
    ) -> Result<MegakernelLaunch, BackendError> {
        let call = BoundLaunch::new(launch, buffers)?;
        Ok(MegakernelLaunch { call, count, chosen: OnceLock::new(), refused: OnceLock::new() })
    }

    /// Notes what is chosen, and why.
    pub fn decide(&self, as_one: bool, why: String) {
        match as_one {
            true => self.chosen.get_or_init(|| why),
            false => self.refused.get_or_init(|| why),
        };
    }

    pub fn is_used(&self) -> bool {
        self.refused.get().is_none()
    }

    /// Falls back to separate launches from here on.
    pub fn give_up(&self, why: &DriverError) {
        self.refused.get_or_init(|| why.to_string());
    }

    pub fn note(&self) -> String {
        match self.refused.get() {
            None => {
                let why = self.chosen.get().map_or(String::new(), |why| format!(": {why}"));
                format!("{} launches as one{why}", self.count)
            }
            Some(why) => format!("{} launches one by one, not as one: {why}", self.count),
        }
    }
}
