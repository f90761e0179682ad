//! Plans with dynamic shapes: launches are made for each set of extents when it is first run, of functions that the sets share.

use crate::buffers::DeviceConstants;
use crate::driver::Driver;
use crate::function_cache::{CODE_BYTES, FunctionCache};
use crate::generate::{OpenExtents, Tuning};
use crate::launch::Launches;
use crate::session::LaunchedPlan;
use mlc_backends::device::DriverError;
use mlc_backends::symbols::SymbolBindings;
use mlc_backends::{Allocated, BackendError, Executable, LaunchTime};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes of the sets of extents that stay ready, besides the one that was run last.
const READY_BYTES: u64 = 1 << 30;

/// The code generator for a plan of known shapes, given where they come from if some are open.
pub type Generate =
    fn(&Plan, Option<&OpenExtents<'_>>, &Library, Tuning) -> Result<Launches, BackendError>;

/// A plan that is ready for a set of extents.
struct Ready {
    symbols: SymbolBindings,
    plan: Arc<LaunchedPlan>,
    bytes: u64,
}

/// Those that are kept, in the order of their last use.
#[derive(Default)]
struct ReadyPlans(Vec<Ready>);

impl ReadyPlans {
    /// The one of these symbols, which is now used last.
    fn used(&mut self, symbols: &SymbolBindings) -> Option<Arc<LaunchedPlan>> {
        let at = self.0.iter().position(|r| r.symbols == *symbols)?;
        let ready = self.0.remove(at);
        self.0.push(ready);
        self.0.last().map(|r| r.plan.clone())
    }

    /// Adds one; those that were not used the longest go until the others take so many bytes.
    fn add(&mut self, symbols: &SymbolBindings, plan: &Arc<LaunchedPlan>, most: u64) {
        let mut left: u64 = self.0.iter().map(|r| r.bytes).sum();
        while left > most {
            left -= self.0.remove(0).bytes;
        }
        self.0.push(Ready { symbols: symbols.clone(), plan: plan.clone(), bytes: plan.bytes() });
    }
}

/// A plan ready to run on inputs of any shape that it takes.
pub struct DynamicShapePlan {
    plan: Plan,
    /// Whether all shapes are static.
    fixed: bool,
    library: Arc<Library>,
    generate: (Generate, Tuning),
    driver: Arc<dyn Driver>,
    /// On the device once, whatever the number of shapes.
    constants: Arc<DeviceConstants>,
    functions: FunctionCache,
    /// Bytes of the sets of extents that stay ready.
    most: u64,
    kept: Mutex<ReadyPlans>,
}

impl DynamicShapePlan {
    /// Reads the plan; if its shapes are known, it is prepared at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        generate: (Generate, Tuning),
        driver: Arc<dyn Driver>,
    ) -> Result<DynamicShapePlan, BackendError> {
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let constants = DeviceConstants::new(driver.clone(), plan.program.consts.clone());
        let constants = Arc::new(constants);
        let functions = FunctionCache::new(driver.clone(), CODE_BYTES);
        let shaped = DynamicShapePlan {
            plan: plan.clone(),
            fixed,
            library,
            generate,
            driver,
            constants,
            functions,
            most: READY_BYTES,
            kept: Mutex::default(),
        };
        if fixed {
            shaped.ready(&SymbolBindings::default())?;
        }
        Ok(shaped)
    }

    fn kept(&self) -> MutexGuard<'_, ReadyPlans> {
        self.kept.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The launches for inputs of these shapes.
    fn plan_for(&self, inputs: &[Tensor]) -> Result<Arc<LaunchedPlan>, BackendError> {
        self.ready(&SymbolBindings::bind(&self.plan.program.inputs, inputs)?)
    }

    /// The launches for these symbols, generated now or before.
    fn ready(&self, symbols: &SymbolBindings) -> Result<Arc<LaunchedPlan>, BackendError> {
        if let Some(known) = self.kept().used(symbols) {
            return Ok(known);
        }
        let (generate, tuning) = self.generate;
        let launches = match self.fixed {
            true => generate(&self.plan, None, &self.library, tuning)?,
            false => {
                let bound = self.plan.bound(&self.library, &|s| symbols.get(s));
                let open = OpenExtents { plan: &self.plan, symbols };
                generate(&bound, Some(&open), &self.library, tuning)?
            }
        };
        let (constants, functions) = (&self.constants, &self.functions);
        let load =
            || LaunchedPlan::sharing(launches.clone(), self.driver.clone(), constants, functions);
        let fresh = match load() {
            // Memory of other sets, unless they are running, comes back before it is asked for again.
            Err(BackendError::Device(DriverError::Memory { .. })) if !self.kept().0.is_empty() => {
                self.kept().0.clear();
                load()?
            }
            other => other?,
        };
        let fresh = Arc::new(fresh);
        self.kept().add(symbols, &fresh, self.most);
        Ok(fresh)
    }
}

impl Executable for DynamicShapePlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.plan_for(inputs)?.run(inputs)
    }

    fn allocated(&self) -> Option<Allocated> {
        let mut out = Allocated::default();
        for own in self.kept().0.iter().filter_map(|ready| ready.plan.allocated()) {
            out.arena += own.arena;
            out.results += own.results;
        }
        Some(out)
    }

    fn notes(&self) -> Vec<String> {
        let kept = self.kept();
        let all = kept.0.iter().flat_map(|ready| ready.plan.notes());
        // Sets of extents have most of them in common.
        let mut notes: Vec<String> = vec![];
        all.for_each(|note| {
            if !notes.contains(&note) {
                notes.push(note)
            }
        });
        notes
    }

    fn device_seconds(&self, inputs: &[Tensor]) -> Result<Option<f64>, BackendError> {
        self.plan_for(inputs)?.device_seconds(inputs)
    }

    fn launch_seconds(&self, inputs: &[Tensor]) -> Result<Option<Vec<LaunchTime>>, BackendError> {
        self.plan_for(inputs)?.launch_seconds(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Argument, Code, Invocation, Launch, Module, Place, Port, Stream};
    use mlc_dsl::ir::{ConstId, DType, Extent, Program, Type};

    /// A device that counts: bytes and modules that it holds, allocations of the constant, modules loaded so far.
    #[derive(Default)]
    struct Counter(Mutex<Counts>);

    #[derive(Default)]
    struct Counts {
        allocations: Vec<u64>,
        held: u64,
        room: u64,
        modules: i64,
        constants: usize,
        loaded: usize,
    }

    /// Bytes of the constant; no other memory has as many.
    const CONSTANT: u64 = 1000;

    impl Counter {
        fn with_room(room: u64) -> Arc<Counter> {
            Arc::new(Counter(Mutex::new(Counts { room, ..Counts::default() })))
        }

        fn counts(&self) -> MutexGuard<'_, Counts> {
            self.0.lock().unwrap()
        }
    }

    impl Driver for Counter {
        fn processors(&self) -> Option<u32> {
            Some(7)
        }

        fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
            let mut counts = self.counts();
            if counts.held + bytes > counts.room {
                return Err(DriverError::Memory { bytes, room: None });
            }
            counts.held += bytes;
            counts.constants += usize::from(bytes == CONSTANT);
            counts.allocations.push(bytes);
            Ok(Address(counts.allocations.len() as u64 - 1))
        }

        fn free(&self, address: Address) -> Result<(), DriverError> {
            let mut counts = self.counts();
            counts.held -= counts.allocations[address.0 as usize];
            Ok(())
        }

        fn stream(&self) -> Result<Stream, DriverError> {
            Ok(Stream(0))
        }

        fn end(&self, _: Stream) -> Result<(), DriverError> {
            Ok(())
        }

        fn wait(&self, _: Stream) -> Result<(), DriverError> {
            Ok(())
        }

        fn upload(&self, _: Stream, _: Address, _: &[u8]) -> Result<(), DriverError> {
            Ok(())
        }

        fn download(&self, _: Stream, _: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
            Ok(())
        }

        fn clear(&self, _: Stream, _: Address, _: u64) -> Result<(), DriverError> {
            Ok(())
        }

        fn load(&self, _: &Code<'_>) -> Result<Module, DriverError> {
            let mut counts = self.counts();
            counts.modules += 1;
            counts.loaded += 1;
            Ok(Module(0))
        }

        fn unload(&self, _: Module) -> Result<(), DriverError> {
            self.counts().modules -= 1;
            Ok(())
        }

        fn launch(&self, _: Stream, _: &Invocation<'_>) -> Result<(), DriverError> {
            Ok(())
        }
    }

    /// One launch that reads the input and the constant.
    fn generate(
        plan: &Plan,
        _: Option<&OpenExtents<'_>>,
        _: &Library,
        _: Tuning,
    ) -> Result<Launches, BackendError> {
        let (name, ty) = &plan.program.inputs[0];
        let shape = ty.known_shape().expect("bound");
        let bytes = shape[0] as u64;
        let argument = |place, bytes, written| Argument { place, bytes, dtype: ty.dtype, written };
        let port = Port { name: name.clone(), dtype: ty.dtype, shape };
        let launch = Launch {
            function: "f".into(),
            // Plans of a few elements have functions of their own, larger ones have one in common.
            source: format!("f{}", shape_of_text(bytes)),
            grid: [1; 3],
            block: 1,
            arguments: vec![
                argument(Place::Input(0), bytes, false),
                argument(Place::Constant(ConstId(0)), CONSTANT, false),
                argument(Place::Output(0), bytes, true),
            ],
            numbers: vec![],
            kernel: 0,
            fallback: None,
        };
        Ok(Launches {
            each: vec![launch],
            constants: vec![ConstId(0)],
            inputs: vec![port.clone()],
            outputs: vec![(port, Place::Output(0))],
            ..Launches::default()
        })
    }

    /// What the text of the function says of its elements.
    fn shape_of_text(bytes: u64) -> u64 {
        bytes.min(100)
    }

    fn vector(n: usize) -> Tensor {
        Tensor::new(DType::U8, vec![n], vec![0; n].into()).expect("a vector")
    }

    fn shaped(extent: Extent, device: &Arc<Counter>) -> Result<DynamicShapePlan, BackendError> {
        let mut program = Program::default();
        program.inputs.push(("x".into(), Type::new(DType::U8, vec![extent])));
        program.consts.intern(vector(CONSTANT as usize));
        let library = Library::default();
        let plan = Plan::new(program, &library, vec![], 0.0);
        let how = (generate as Generate, Tuning::default());
        DynamicShapePlan::new(&plan, Arc::new(library), how, device.clone())
    }

    #[test]
    fn code_is_cut_for_the_processors_of_the_device() {
        let device = Counter::with_room(u64::MAX);
        let cuda = crate::Cuda::new(device).in_tf32();
        assert_eq!(cuda.tuning, Tuning { processors: 7, tf32: true, ..Tuning::default() });
    }

    #[test]
    fn sets_of_extents_share_constants_and_functions() {
        let device = Counter::with_room(u64::MAX);
        let plan = shaped(Extent::sym("n"), &device).expect("is ready");
        assert_eq!(device.counts().loaded, 0);
        for n in [1, 2, 1, 2, 1] {
            assert_eq!(plan.run(&[vector(n)]).expect("runs")[0].shape(), [n]);
        }
        assert_eq!(device.counts().loaded, 2);
        for n in [200, 300, 100, 400, 200] {
            plan.run(&[vector(n)]).expect("runs");
        }
        let counts = device.counts();
        assert_eq!((counts.loaded, counts.modules), (3, 3));
        assert_eq!(counts.constants, 1);
        drop(counts);
        drop(plan);
        let counts = device.counts();
        assert_eq!((counts.held, counts.modules), (0, 0));
    }

    #[test]
    fn the_set_that_was_not_used_the_longest_goes() {
        let device = Counter::with_room(u64::MAX);
        let mut plan = shaped(Extent::sym("n"), &device).expect("is ready");
        plan.run(&[vector(1000)]).expect("runs");
        // As many bytes as two such sets take.
        let bytes = plan.kept().0[0].bytes;
        plan.most = 2 * bytes;
        let kept = |plan: &DynamicShapePlan| -> Vec<i64> {
            plan.kept().0.iter().filter_map(|r| r.symbols.get("n")).collect()
        };
        for (n, all) in [
            (999, vec![1000, 999]),
            (998, vec![1000, 999, 998]),
            (1000, vec![999, 998, 1000]),
            (997, vec![998, 1000, 997]),
        ] {
            plan.run(&[vector(n)]).expect("runs");
            assert_eq!(kept(&plan), all);
        }
        assert_eq!(device.counts().modules, 1);
    }

    #[test]
    fn memory_of_other_shapes_is_given_back_if_there_is_no_other() {
        let device = Counter::with_room(CONSTANT + 500);
        let plan = shaped(Extent::sym("n"), &device).expect("is ready");
        for n in [100, 50, 200, 100] {
            plan.run(&[vector(n)]).expect("runs");
        }
        let e = plan.run(&[vector(300)]).expect_err("is more than there is");
        assert_eq!(e, BackendError::Device(DriverError::Memory { bytes: 300, room: None }));
        plan.run(&[vector(200)]).expect("runs");
        drop(plan);
        assert_eq!(device.counts().held, 0);
    }

    #[test]
    fn known_shapes_are_prepared_at_once() {
        let device = Counter::with_room(CONSTANT + 500);
        let plan = shaped(Extent::from(100i64), &device).expect("is ready");
        assert_eq!(device.counts().loaded, 1);
        plan.run(&[vector(100)]).expect("runs");
        assert!(matches!(plan.run(&[vector(99)]), Err(BackendError::Input { .. })));
        assert_eq!(device.counts().loaded, 1);
        drop(plan);
        let e = shaped(Extent::from(300i64), &device).err().expect("is more than there is");
        assert!(matches!(e, BackendError::Device(DriverError::Memory { .. })));
        assert_eq!(device.counts().held, 0);
    }
}
