//! Errors of devices.
//!
//! Plain data, for messages; never depends on a device being there.

use mlc_dsl::diagnostics::message_text::bytes as human;
use thiserror::Error;

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that nothing has.
    pub free: u64,
    /// Bytes of all its memory.
    pub total: u64,
}

/// Why a device does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// There is no driver, or it finds no device.
    #[error("no NVIDIA device can be used: {0}")]
    NoDevice(String),
    /// The compiler of generated code cannot be loaded.
    #[error("the run-time compiler NVRTC cannot be loaded: {0}")]
    NoCompiler(String),
    /// Generated code does not compile: a defect of this library.
    #[error("generated code does not compile:\n{0}")]
    Compile(String),
    /// The device's memory does not suffice.
    #[error("{} of device memory are not to be had{}", human(*bytes), told(*room))]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// What there is, if the device tells.
        room: Option<Room>,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// The driver's own words.
        reason: String,
    },
    /// A call failed, and so will every later one in this process.
    #[error("the device's context is lost: {call} failed: {reason}")]
    Lost {
        /// The function of the driver.
        call: &'static str,
        /// The driver's own words.
        reason: String,
    },
    /// Generated code failed on the device.
    #[error("generated code failed on the device, {}: {reason}", named(functions))]
    Kernel {
        /// The function, or those of which one failed.
        functions: Vec<String>,
        /// Their text.
        source_text: String,
        /// Which call told, and the driver's own words.
        reason: String,
    },
}

fn told(room: Option<Room>) -> String {
    match room {
        Some(Room { free, total }) => format!(": {} of {} are free", human(free), human(total)),
        None => String::new(),
    }
}

/// Functions that are named in a message at most.
const NAMED: usize = 8;

fn named(functions: &[String]) -> String {
    let quoted: Vec<String> = functions.iter().take(NAMED).map(|f| format!("`{f}`")).collect();
    match functions.len() {
        1 => format!("in {}", quoted.join("")),
        n if n <= NAMED => format!("in one of {}", quoted.join(", ")),
        n => format!("in one of {} and {} more", quoted.join(", "), n - NAMED),
    }
}
