//! Identifies the hardware that timings belong to.

use crate::device::{Device, Facts};
use crate::error::Error;
use mlc_extract::cost::fit::Caches;
use std::fs;

/// Changes whenever what is measured or how work is counted changes: older times are then left alone.
const METHOD: u32 = 12;

/// What times are of.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// What tells one's times from another's.
    pub key: String,
    /// Its caches.
    pub caches: Caches,
}

impl Hardware {
    /// That of a device.
    ///
    /// # Errors
    /// There is no such device.
    pub fn of(device: &Device) -> Result<Hardware, Error> {
        Ok(match device.facts()? {
            None => {
                let threads = device.thread_count();
                Hardware { key: key(threads), caches: caches(threads) }
            }
            Some(Facts { name, capability: (major, minor), cache }) => {
                let version = env!("CARGO_PKG_VERSION");
                let key = format!(
                    "{name}, compute capability {major}.{minor}, kernels {version}.{METHOD}"
                );
                // One cache for all multiprocessors; their own are too small for what a kernel leaves to the next.
                let size = if cache == 0 { Caches::default().far } else { cache as f64 };
                Hardware { key, caches: Caches { near: size, far: size } }
            }
        })
    }
}

/// What tells one processor's times from another's: its name, threads, vector instructions, kernels.
pub fn key(threads: usize) -> String {
    let model = info("model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let version = env!("CARGO_PKG_VERSION");
    format!("{model}, {threads} threads, {}, kernels {version}.{METHOD}", vectors())
}

fn info(key: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split(':').nth(1)?.trim().to_string())
}

/// The vector instructions that kernels choose by.
fn vectors() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    std::env::consts::ARCH
}

/// The caches, where the system tells; usual sizes otherwise.
pub fn caches(threads: usize) -> Caches {
    let level = |wanted: &str| -> Option<f64> {
        (0..8).find_map(|i| {
            let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{i}");
            let read = |f: &str| fs::read_to_string(format!("{folder}/{f}")).ok();
            let is = read("level")?.trim() == wanted && read("type")?.trim() != "Instruction";
            if is { size(read("size")?.trim()) } else { None }
        })
    };
    let usual = Caches::default();
    let near = level("2").map_or(usual.near, |b| b * threads as f64);
    Caches { near, far: level("3").unwrap_or(usual.far).max(near) }
}

/// `512K`, `32M`.
fn size(text: &str) -> Option<f64> {
    let (digits, unit) = text.split_at(text.len().checked_sub(1)?);
    let scale = match unit {
        "K" => 1024.0,
        "M" => 1048576.0,
        _ => return text.parse().ok(),
    };
    Some(digits.parse::<f64>().ok()? * scale)
}
