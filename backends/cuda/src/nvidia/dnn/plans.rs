//! Execution plans of a convolution, by the engines that the library's heuristics rank, created as they are asked for.

use super::{
    CudnnFunctions, DescriptorBuilder, Descriptors, MODES, MOST, PlanTarget, REFUSED, TENSOR_CORE,
    get, graph, kind, ty,
};
use crate::convolution::Convolution;
use crate::nvidia::library::{Failure, Handle, Owned};
use mlc_dsl::ir::DType;
use std::sync::Arc;

/// A plan, and the descriptions that it was made of, which are given back after it.
pub struct ExecutionPlan {
    pub plan: Owned,
    _engines: Arc<Descriptors>,
    _graph: Arc<Descriptors>,
}

// SAFETY: a plan does not change once it is finished; whoever executes it has the library.
unsafe impl Send for ExecutionPlan {}
// SAFETY: as above.
unsafe impl Sync for ExecutionPlan {}

/// The plans of a convolution that are precise and need no more bytes than there is room for beside its operands. What was found
/// stays, so that asking for the next one repeats nothing.
pub struct PlanSearch {
    of: Convolution,
    room: u64,
    graph: Arc<Descriptors>,
    root: Handle,
    /// Engines by the heuristics asked last, and those that were looked at; and how many heuristics were asked.
    engines: Arc<Descriptors>,
    seen: usize,
    asked: usize,
    found: Vec<Arc<ExecutionPlan>>,
}

impl PlanSearch {
    pub fn new(
        t: &CudnnFunctions,
        c: &Convolution,
        target: PlanTarget,
        room: u64,
    ) -> Result<PlanSearch, Failure> {
        let (parts, root) = graph(t, c, target)?;
        let (of, graph, engines) = (c.clone(), Arc::new(parts), Arc::default());
        Ok(PlanSearch { of, room, graph, root, engines, seen: 0, asked: 0, found: vec![] })
    }

    /// Whether they are those of this convolution.
    pub fn are_of(&self, c: &Convolution, room: u64) -> bool {
        (&self.of, self.room) == (c, room)
    }

    /// The n-th plan; `None` if there are fewer.
    pub fn nth(
        &mut self,
        t: &CudnnFunctions,
        target: PlanTarget,
        n: usize,
    ) -> Result<Option<Arc<ExecutionPlan>>, Failure> {
        while self.found.len() <= n {
            let Some(next) = self.next(t, target)? else { break };
            self.found.push(Arc::new(next));
        }
        if self.found.is_empty() {
            let reason =
                "no engine computes it precisely enough in the memory that it may use".into();
            return Err(Failure { call: "cudnnBackendFinalize", reason });
        }
        Ok(self.found.get(n).cloned())
    }

    fn next(
        &mut self,
        t: &CudnnFunctions,
        target: PlanTarget,
    ) -> Result<Option<ExecutionPlan>, Failure> {
        loop {
            let Some(engine) = self.engines.0.get(self.seen) else {
                // Further heuristics are asked only if nothing was found so far.
                let mode = MODES.get(self.asked).filter(|_| self.found.is_empty());
                let Some(&mode) = mode else { return Ok(None) };
                self.engines = Arc::new(engines(t, self.root, mode, target)?);
                (self.seen, self.asked) = (0, self.asked + 1);
                continue;
            };
            let configuration = engine.handle;
            self.seen += 1;
            if !is_precise(t, configuration, &self.of)? {
                continue;
            }
            // An engine may still not support it.
            let Ok((plan, bytes)) = plan(t, configuration, target) else { continue };
            if bytes <= self.room {
                let (_engines, _graph) = (self.engines.clone(), self.graph.clone());
                return Ok(Some(ExecutionPlan { plan, _engines, _graph }));
            }
        }
    }
}

/// Engines for a graph with their choices, the fastest ones first as the library thinks.
fn engines(
    t: &CudnnFunctions,
    graph: Handle,
    mode: i32,
    target: PlanTarget,
) -> Result<Descriptors, Failure> {
    let heuristics = DescriptorBuilder::new(t, kind::HEURISTICS)?
        .with_descriptor(201, graph)?
        .with(200, ty::HEURISTIC_MODE, &[mode])?;
    let heuristics = match target {
        #[cfg(test)]
        PlanTarget::Device(device) => heuristics.with_descriptor(204, device)?,
        _ => heuristics,
    };
    let heuristics = heuristics.done()?;
    let mut parts = Descriptors::default();
    for _ in 0..MOST {
        parts.keep(DescriptorBuilder::new(t, kind::CONFIGURATION)?.own);
    }
    let mut handles: Vec<Handle> = parts.0.iter().map(|p| p.handle).collect();
    let count = get(t, heuristics.handle, 202, ty::DESCRIPTION, &mut handles)?;
    parts.0.truncate(count);
    Ok(parts)
}

/// Whether an engine computes as precisely as it is asked for.
fn is_precise(t: &CudnnFunctions, configuration: Handle, c: &Convolution) -> Result<bool, Failure> {
    let engine = DescriptorBuilder::new(t, kind::ENGINE)?.own;
    let mut handle = [engine.handle];
    let found = get(t, configuration, 300, ty::DESCRIPTION, &mut handle)?;
    let mut notes = [0i32; 16];
    let count = match found {
        0 => return Ok(false),
        _ => get(t, handle[0], 1303, ty::NUMERICAL_NOTE, &mut notes)?,
    };
    let is_refused = |note: &i32| {
        let rounds = *note == TENSOR_CORE && c.dtype == DType::F32 && !c.in_tf32;
        rounds || REFUSED.contains(note)
    };
    Ok(!notes[..count].iter().any(is_refused))
}

/// A plan by an engine, and the bytes that it needs beside its operands.
fn plan(
    t: &CudnnFunctions,
    configuration: Handle,
    target: PlanTarget,
) -> Result<(Owned, u64), Failure> {
    let plan = DescriptorBuilder::new(t, kind::PLAN)?.with_descriptor(401, configuration)?;
    let plan = match target {
        PlanTarget::Library(handle) => plan.with(400, ty::HANDLE, &[handle])?,
        #[cfg(test)]
        PlanTarget::Device(device) => plan.with_descriptor(407, device)?,
        #[cfg(test)]
        PlanTarget::None => plan,
    };
    let plan = plan.done()?;
    let mut bytes = [0i64];
    get(t, plan.handle, 402, ty::INT64, &mut bytes)?;
    let bytes = u64::try_from(bytes[0]).unwrap_or(u64::MAX);
    Ok((plan, bytes))
}
