//! Finds library operations that may replace the launches of a stage.

use super::emit::Emitter;
use super::kernel::{KernelProgram, known_type};
use super::product::convolution_match::ConvolutionMatch;
use super::product::gemm_match::GemmMatch;
use super::stages::{Schedule, Stage};
use super::{Generator, KernelSite, LaunchedStage, StageMemory, bytes_of};
use crate::autotune::library_candidate::{LibraryCandidate, LibraryOp, PermutedArgument};
use crate::launch::{Argument, Launch, Place};
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, Value};

/// What a library computes, and of what.
struct LibraryMatch {
    work: LibraryOp,
    read: Vec<Value>,
    copied: Option<PermutedArgument>,
    /// The type of the result, and whether it is the stage's value.
    dtype: DType,
    is_whole: bool,
}

impl From<GemmMatch> for LibraryMatch {
    fn from(m: GemmMatch) -> LibraryMatch {
        LibraryMatch {
            dtype: m.product.result.dtype,
            work: LibraryOp::Product(m.product),
            read: m.factors.into_iter().chain(m.added.into_iter().flatten()).collect(),
            copied: None,
            is_whole: m.is_whole,
        }
    }
}

impl From<ConvolutionMatch> for LibraryMatch {
    fn from(c: ConvolutionMatch) -> LibraryMatch {
        let is_as_stored = c.is_as_stored();
        LibraryMatch {
            dtype: c.work.dtype,
            read: [c.image, c.weights].into_iter().chain(c.added.into_iter().flatten()).collect(),
            work: LibraryOp::Convolution(c.work),
            copied: (!is_as_stored).then_some(PermutedArgument { argument: 1, axes: c.axes }),
            is_whole: c.is_whole,
        }
    }
}

impl Generator<'_> {
    /// Notes what libraries may compute in place of the launches of a stage.
    pub(super) fn library_candidates(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        launched: &LaunchedStage<'_>,
        memory: &mut StageMemory,
    ) -> Result<(), BackendError> {
        let stage = launched.stage;
        let Some(product) = stage.schedule.product() else { return Ok(()) };
        let places = &memory.places;
        let emitter = || Emitter::with_stored(kernel, places.keys());
        let is_fixed = |v: Value| {
            let place = places.get(&v);
            place.is_some_and(|p| {
                matches!(p, Place::Constant(_) | Place::Transposed(_) | Place::Kept(_))
            })
        };
        let gemm = GemmMatch::recognise(&mut emitter(), kernel, stage.value, product);
        let convolution =
            ConvolutionMatch::recognise(&mut emitter(), kernel, stage.value, product, &is_fixed);
        let all = gemm.map(LibraryMatch::from).into_iter();
        for found in all.chain(convolution.map(LibraryMatch::from)) {
            self.library_candidate(site, kernel, launched, product, found, memory)?;
        }
        Ok(())
    }

    fn library_candidate(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        launched: &LaunchedStage<'_>,
        product: Value,
        found: LibraryMatch,
        memory: &mut StageMemory,
    ) -> Result<(), BackendError> {
        let (value, target) = (launched.stage.value, launched.target);
        let shape = known_type(&kernel.program, product)?.1;
        let (place, epilogue): (Place, Option<Launch>) = match found.is_whole {
            true => (target, None),
            false => {
                let sums = (found.dtype, [vec![1], shape.clone()].concat());
                let place = memory.allocate(&sums)?;
                let schedule = Schedule::EpilogueOnly(product, sums, place);
                let stage = Stage { value, schedule };
                (place, self.launch(site, kernel, &stage, target, None, &memory.places)?)
            }
        };
        let mut arguments = vec![];
        for v in found.read {
            let ty = known_type(&kernel.program, v)?;
            let (place, bytes) = (memory.places[&v], bytes_of(&ty));
            self.reads(place);
            arguments.push(Argument { place, bytes, dtype: ty.0, written: false });
        }
        let bytes = bytes_of(&(found.dtype, shape));
        arguments.push(Argument { place, bytes, dtype: found.dtype, written: true });
        let launches = launched.launches.clone();
        if arguments.iter().all(|a| a.place.is_aligned()) && !launches.is_empty() {
            let LibraryMatch { work, copied, .. } = found;
            let candidate = LibraryCandidate { launches, work, arguments, copied, epilogue };
            self.out.library_candidates.push(candidate);
        }
        Ok(())
    }
}
