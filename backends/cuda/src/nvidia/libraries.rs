//! cuBLASLt and cuDNN of a device, and the autotuning choices kept on disk.

use super::blas::{self, Blas};
use super::cubins;
use super::device::Nvidia;
use super::dnn::{self, Dnn};
use super::library::Failure;
use crate::autotune::library_candidate::{LibraryKind, LibraryOp};
use crate::driver::{Address, Library, Prepared};
use mlc_backends::device::DriverError;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// Turns libraries off if it is `off`.
const VARIABLE: &str = "MLC_CUDA_LIBRARIES";

/// Has sessions choose by the clock again what was chosen before, if it is `anew`.
const CHOICES: &str = "MLC_CUDA_CHOICES";

/// What was chosen before, unless it is to be chosen again.
fn kept(key: &[u8]) -> Option<String> {
    let is_anew = std::env::var_os(CHOICES).is_some_and(|v| v == "anew");
    let found = if is_anew { None } else { cubins::find(key) };
    String::from_utf8(found?).ok()
}

impl From<Failure> for DriverError {
    fn from(Failure { call, reason }: Failure) -> DriverError {
        DriverError::Call { call, reason }
    }
}

/// The libraries in a context, opened when they are first asked for; or why there are none.
#[derive(Default)]
pub(super) struct Libraries {
    blas: OnceLock<Result<Blas, String>>,
    dnn: OnceLock<Result<Dnn, String>>,
}

/// What a library is ready to compute.
pub(super) enum PreparedOp {
    Product(blas::PreparedGemm),
    Convolution(dnn::PreparedConvolution),
}

impl Nvidia {
    fn blas(&self) -> Result<&Blas, String> {
        let open = || {
            let table = blas::CublasLtFunctions::open()?;
            let _current = self.enter().map_err(|e| e.to_string())?;
            Blas::new(table).map_err(|e| DriverError::from(e).to_string())
        };
        self.libraries.blas.get_or_init(open).as_ref().map_err(String::clone)
    }

    fn dnn(&self) -> Result<&Dnn, String> {
        let open = || {
            let table = dnn::CudnnFunctions::open()?;
            let _current = self.enter().map_err(|e| e.to_string())?;
            Dnn::new(table).map_err(|e| DriverError::from(e).to_string())
        };
        self.libraries.dnn.get_or_init(open).as_ref().map_err(String::clone)
    }

    fn library_name(&self, of: LibraryKind) -> Result<String, String> {
        match of {
            LibraryKind::Products => self.blas().map(Blas::name),
            LibraryKind::Convolutions => self.dnn().map(Dnn::name),
        }
    }

    pub(super) fn library_of(&self, of: LibraryKind) -> Library {
        if std::env::var_os(VARIABLE).is_some_and(|v| v == "off") {
            return Library::Off;
        }
        self.library_name(of).map_or_else(Library::Absent, Library::Present)
    }

    pub(super) fn prepared(
        &self,
        work: &LibraryOp,
        at: &[Address],
        workspace: (Address, u64),
        way: usize,
    ) -> Result<Option<Prepared>, DriverError> {
        let missing = |reason| DriverError::Call { call: "prepare", reason };
        let ready = match work {
            LibraryOp::Product(product) => {
                let blas = self.blas().map_err(missing)?;
                let _current = self.enter()?;
                blas.prepare(product, at, workspace, way)?.map(PreparedOp::Product)
            }
            LibraryOp::Convolution(convolution) => {
                let dnn = self.dnn().map_err(missing)?;
                let _current = self.enter()?;
                dnn.prepare(convolution, at, workspace, way)?.map(PreparedOp::Convolution)
            }
        };
        Ok(ready.map(|ready| {
            let mut state = self.state();
            let id = Prepared(state.number());
            state.products.insert(id, Arc::new(ready));
            id
        }))
    }

    /// Computes what was prepared on a stream; the context is current.
    pub(super) fn multiplied(
        &self,
        work: Prepared,
        stream: *mut c_void,
    ) -> Result<(), DriverError> {
        let call = "multiply";
        let unknown = || DriverError::Call { call, reason: "it is not prepared".into() };
        let ready = self.state().products.get(&work).cloned().ok_or_else(unknown)?;
        let missing = |reason| DriverError::Call { call, reason };
        match &*ready {
            PreparedOp::Product(ready) => {
                self.blas().map_err(missing)?.multiply(ready, stream)?;
            }
            PreparedOp::Convolution(ready) => {
                self.dnn().map_err(missing)?.convolve(ready, stream)?;
            }
        }
        Ok(())
    }

    /// What tells a choice apart from all others: the device, the libraries and what they may compute.
    fn key(&self, of: &[LibraryOp]) -> Option<Vec<u8>> {
        let mut text = format!("choice 3\n{}", self.name());
        for work in of {
            text += &format!("\n{}\n{work}", self.library_name(work.kind()).ok()?);
        }
        Some(text.into_bytes())
    }

    pub(super) fn choice_on_disk(&self, of: &[LibraryOp]) -> Option<String> {
        kept(&self.key(of)?)
    }

    pub(super) fn keep_choice(&self, of: &[LibraryOp], how: &str) {
        if let Some(key) = self.key(of) {
            cubins::keep(&key, how.as_bytes());
        }
    }

    /// What tells a choice for a run apart from all others: the device and the run.
    fn key_of_run(&self, run: &str) -> Vec<u8> {
        format!("choice 1\n{}\n{run}", self.name()).into_bytes()
    }

    pub(super) fn run_on_disk(&self, run: &str) -> Option<String> {
        kept(&self.key_of_run(run))
    }

    pub(super) fn keep_run(&self, run: &str, way: &str) {
        cubins::keep(&self.key_of_run(run), way.as_bytes());
    }
}
