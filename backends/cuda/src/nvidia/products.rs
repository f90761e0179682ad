//! The library of products on a device, and what was chosen for products, and for runs, before.

use super::blas::{Blas, Failure, Table};
use super::cubins;
use super::device::Nvidia;
use crate::{Address, DriverError, Library, MatrixProduct, Prepared};
use std::ffi::c_void;
use std::sync::Arc;

/// Turns libraries off if it is `off`.
const VARIABLE: &str = "MLC_CUDA_LIBRARIES";

impl From<Failure> for DriverError {
    fn from(Failure { call, reason }: Failure) -> DriverError {
        DriverError::Call { call, reason }
    }
}

impl Nvidia {
    fn blas(&self) -> Result<&Blas, String> {
        let open = || {
            let table = Table::open()?;
            let _current = self.enter().map_err(|e| e.to_string())?;
            Blas::new(table).map_err(|e| DriverError::from(e).to_string())
        };
        self.blas.get_or_init(open).as_ref().map_err(String::clone)
    }

    pub(super) fn library_of_products(&self) -> Library {
        if std::env::var_os(VARIABLE).is_some_and(|v| v == "off") {
            return Library::Off;
        }
        match self.blas() {
            Ok(blas) => Library::Present(blas.name()),
            Err(why) => Library::Absent(why),
        }
    }

    pub(super) fn prepared(
        &self,
        product: &MatrixProduct,
        at: &[Address],
        workspace: (Address, u64),
    ) -> Result<Prepared, DriverError> {
        let missing = |reason| DriverError::Call { call: "prepare", reason };
        let blas = self.blas().map_err(missing)?;
        let _current = self.enter()?;
        let ready = blas.prepare(product, at, workspace)?;
        let mut state = self.state();
        let id = Prepared(state.number());
        state.products.insert(id, Arc::new(ready));
        Ok(id)
    }

    /// Computes a product on a stream; the context is current.
    pub(super) fn multiplied(
        &self,
        product: Prepared,
        stream: *mut c_void,
    ) -> Result<(), DriverError> {
        let unknown =
            || DriverError::Call { call: "multiply", reason: "it is not prepared".into() };
        let ready = self.state().products.get(&product).cloned().ok_or_else(unknown)?;
        let blas = self.blas().map_err(|reason| DriverError::Call { call: "multiply", reason })?;
        Ok(blas.multiply(&ready, stream)?)
    }

    /// What tells a choice apart from all others: the device, the library and the product.
    fn key(&self, product: &MatrixProduct) -> Option<Vec<u8>> {
        let library = self.blas().ok()?.name();
        Some(format!("choice 1\n{}\n{library}\n{product}", self.name()).into_bytes())
    }

    pub(super) fn choice_on_disk(&self, product: &MatrixProduct) -> Option<bool> {
        match cubins::find(&self.key(product)?)?.as_slice() {
            b"library" => Some(true),
            b"code" => Some(false),
            _ => None,
        }
    }

    pub(super) fn keep_choice(&self, product: &MatrixProduct, library: bool) {
        if let Some(key) = self.key(product) {
            cubins::keep(&key, if library { b"library" } else { b"code" });
        }
    }

    /// What tells a choice for a run apart from all others: the device and the run.
    fn key_of_run(&self, run: &str) -> Vec<u8> {
        format!("choice 1\n{}\n{run}", self.name()).into_bytes()
    }

    pub(super) fn run_on_disk(&self, run: &str) -> Option<String> {
        String::from_utf8(cubins::find(&self.key_of_run(run))?).ok()
    }

    pub(super) fn keep_run(&self, run: &str, way: &str) {
        cubins::keep(&self.key_of_run(run), way.as_bytes());
    }
}
