//! Orders the kernels of a plan so that few bytes are alive at once.
//!
//! Where values are stored is decided in `mlc_dsl::plan`. The given order is kept unless another needs less memory.

use mlc_dsl::ir::Program;
use mlc_dsl::library::Library;
use mlc_dsl::plan::arena;
use mlc_dsl::plan::{Buffers, Kernel, Memory, Plan};

use crate::resources::schedule::{Job, JobBuffer, Jobs, schedule};

/// A plan of these kernels, ordered and placed. They must come in an order in which they can run.
pub fn plan(program: Program, library: &Library, kernels: Vec<Kernel>, cost: f64) -> Plan {
    let (order, memory) = planned(&Buffers::of(&program, library, &kernels));
    let mut kernels: Vec<Option<Kernel>> = kernels.into_iter().map(Some).collect();
    let kernels = order.into_iter().filter_map(|k| kernels[k].take()).collect();
    Plan { program, kernels, memory, cost }
}

/// The better of the given order and the one searched, with its memory.
fn planned(needs: &Buffers) -> (Vec<usize>, Memory) {
    let cells = needs.buffers.iter();
    let cells = cells.map(|b| JobBuffer { bytes: arena::rounded(b.bytes), kept: b.kept }).collect();
    let job = |k: usize| Job {
        after: needs.after[k].clone(),
        reads: needs.reads[k].clone(),
        writes: needs.writes[k].clone(),
    };
    let all = Jobs { jobs: (0..needs.writes.len()).map(job).collect(), cells };
    // Results take no room in the arena, which is what an order can make smaller.
    let mut inner = all.clone();
    inner.cells.iter_mut().filter(|c| c.kept).for_each(|c| c.bytes = 0);
    let found = schedule(&inner);
    let given: Vec<usize> = (0..all.jobs.len()).collect();
    let least = found.least.max(all.least());
    let placed = |order: &[usize]| {
        let memory = needs.placed(order);
        Memory { least: least.min(memory.alive), ..memory }
    };
    let before = placed(&given);
    if found.order == given {
        return (given, before);
    }
    let after = placed(&found.order);
    match after.peak() < before.peak() {
        true => (found.order, after),
        false => (given, before),
    }
}
