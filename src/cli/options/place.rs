//! Where models run: the backend, and which of its devices.

use super::super::common::Common;
use super::model::Tuning;
use crate::device::{BackendKind, Device};
use crate::pipeline::Options;
use anyhow::ensure;
use mlc_dsl::library::Library;

/// Arguments.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Where to run")]
pub struct Place {
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    pub backend: BackendKind,
    /// Which NVIDIA device, by its number; the first one by default.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

impl Place {
    /// The device, on so many threads.
    pub fn on(&self, threads: usize) -> anyhow::Result<Device> {
        ensure!(
            self.device.is_none() || self.backend == BackendKind::Cuda,
            "`--device` numbers NVIDIA devices\nhelp: add `--backend cuda`, or leave `--device` out"
        );
        let device = match self.backend {
            BackendKind::Cuda => Device::cuda(self.device.unwrap_or(0)),
            other => Device::of(other),
        };
        Ok(device.threads(threads))
    }

    /// What computes there: a device, or so many threads.
    pub fn told(&self, threads: usize) -> String {
        match self.backend {
            BackendKind::Cuda => format!("NVIDIA device {}", self.device.unwrap_or(0)),
            BackendKind::Cpu | BackendKind::Reference if threads == 1 => "1 thread".into(),
            BackendKind::Cpu | BackendKind::Reference => format!("{threads} threads"),
        }
    }

    /// The device, as the user limits it.
    pub fn device(&self, common: &Common, tuning: &Tuning) -> anyhow::Result<Device> {
        let device = self.on(common.threads())?.fp(tuning.fp);
        Ok(tuning.memory.map_or(device.clone(), |bytes| device.memory(bytes)))
    }

    /// The options for running there, at the figures of the target that describes the device at hand.
    pub fn options(
        &self,
        tuning: &Tuning,
        common: &Common,
        library: &Library,
    ) -> anyhow::Result<Options> {
        let device = match self.backend {
            BackendKind::Cuda => self.on(common.threads())?,
            BackendKind::Cpu | BackendKind::Reference => Device::cpu().threads(common.threads()),
        };
        tuning.options_on(&device, &device.target(library)?, library, common)
    }
}
