//! A plan whose shapes are known when it runs: launches are generated for each shape of the inputs.

use super::{DeviceConstants, Driver, DriverError, LaunchedPlan, generate};
use crate::cpu::symbols::SymbolBindings;
use crate::{Allocated, BackendError, Executable};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use std::sync::{Arc, Mutex, MutexGuard};

/// Shapes whose launches are kept.
const KEPT: usize = 16;

/// A plan ready to run on inputs of any shape that it takes.
pub struct ShapedPlan {
    plan: Plan,
    library: Arc<Library>,
    driver: Arc<dyn Driver>,
    /// On the device once, whatever the number of shapes.
    constants: Arc<DeviceConstants>,
    /// By the symbols' values, in order of first use.
    kept: Mutex<Vec<(SymbolBindings, Arc<LaunchedPlan>)>>,
}

impl ShapedPlan {
    /// Reads the plan; if its shapes are known, it is prepared at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        driver: Arc<dyn Driver>,
    ) -> Result<ShapedPlan, BackendError> {
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let constants = DeviceConstants::new(driver.clone(), plan.program.consts.clone());
        let constants = Arc::new(constants);
        let kept = Mutex::default();
        let shaped = ShapedPlan { plan: plan.clone(), library, driver, constants, kept };
        if fixed {
            shaped.ready(&SymbolBindings::default())?;
        }
        Ok(shaped)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(SymbolBindings, Arc<LaunchedPlan>)>> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The launches for these symbols, generated now or before.
    fn ready(&self, symbols: &SymbolBindings) -> Result<Arc<LaunchedPlan>, BackendError> {
        if let Some((_, known)) = self.kept().iter().find(|(s, _)| s == symbols) {
            return Ok(known.clone());
        }
        let launches = match self.plan.memory.nominal {
            true => {
                let bound = self.plan.bound(&self.library, &|s| symbols.get(s));
                generate::launches(&bound, &self.library)?
            }
            false => generate::launches(&self.plan, &self.library)?,
        };
        let load = || LaunchedPlan::sharing(launches.clone(), self.driver.clone(), &self.constants);
        let fresh = match load() {
            // Memory of other shapes, unless they are running, comes back before it is asked for again.
            Err(BackendError::Device(DriverError::Memory { .. })) if !self.kept().is_empty() => {
                self.kept().clear();
                load()?
            }
            other => other?,
        };
        let fresh = Arc::new(fresh);
        let mut all = self.kept();
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((symbols.clone(), fresh.clone()));
        Ok(fresh)
    }
}

impl Executable for ShapedPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let symbols = SymbolBindings::bind(&self.plan.program.inputs, inputs)?;
        self.ready(&symbols)?.run(inputs)
    }

    fn allocated(&self) -> Option<Allocated> {
        let mut out = Allocated::default();
        for own in self.kept().iter().filter_map(|(_, ready)| ready.allocated()) {
            out.arena += own.arena;
            out.results += own.results;
        }
        Some(out)
    }
}
