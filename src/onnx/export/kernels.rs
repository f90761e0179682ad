//! The kernels of a plan while it is written: what one ONNX node may compute.
//!
//! A node computes one kernel, a part of one, or several whole ones that one operator writes. It never computes parts of
//! two: what was chosen together stays together. Views belong to nobody and go with whoever reads or yields them. A loop over
//! pointwise operators holds nothing together: runtimes join such nodes by themselves, so each stands for itself.

use mlc_dsl::ir::build::BuildError;
use mlc_dsl::ir::unfold::{Rebuild, unfold_once_mapped};
use mlc_dsl::ir::{NodeId, Program};
use mlc_dsl::library::{CallId, Library};
use mlc_dsl::plan::Kernel;

/// A program, and the kernels that compute its nodes.
pub(crate) struct PlannedProgram {
    /// The program.
    pub program: Program,
    /// The kernels that compute each node; none of a view.
    pub kernels: Vec<Vec<u32>>,
    /// The places in the plan of these kernels. Nodes of one loop are kernels of one place.
    pub places: Vec<u32>,
}

impl PlannedProgram {
    /// What a plan computes.
    pub fn of_plan(program: &Program, library: &Library, kernels: &[Kernel]) -> PlannedProgram {
        let mut of = vec![Vec::new(); program.nodes.len()];
        let mut places: Vec<u32> = Vec::new();
        for (place, kernel) in (0..).zip(kernels) {
            let computed = kernel.nodes.iter().filter(|n| !library.is_view(program, **n));
            for (i, node) in computed.enumerate() {
                if i == 0 || kernel.anchors.is_empty() {
                    places.push(place);
                }
                of[node.0 as usize].push(places.len() as u32 - 1);
            }
        }
        PlannedProgram { program: program.clone(), kernels: of, places }.settled()
    }

    /// A program of which nothing is chosen: every application is a kernel of its own.
    pub fn of_nodes(program: &Program, library: &Library) -> PlannedProgram {
        let computed = |n: NodeId| program.is_applied(n) && !library.is_view(program, n);
        let nodes = (0..program.nodes.len() as u32).map(NodeId);
        let kernels = nodes.map(|n| if computed(n) { vec![n.0] } else { vec![] }).collect();
        let places = (0..program.nodes.len() as u32).collect();
        PlannedProgram { program: program.clone(), kernels, places }.settled()
    }

    /// The place in the plan of the first kernel that computes a node.
    pub fn place(&self, node: NodeId) -> Option<u32> {
        self.kernels[node.0 as usize].first().map(|k| self.places[*k as usize])
    }

    /// The same where the definitions that `opens` names are written out. Their kernels compute what they consist of.
    pub fn opened(
        &self,
        library: &Library,
        opens: &dyn Fn(NodeId, CallId) -> bool,
    ) -> Result<PlannedProgram, (NodeId, BuildError)> {
        let (program, became) =
            unfold_once_mapped(&self.program, library, Rebuild::Canonical, opens)?;
        let mut kernels = self.moved(program.nodes.len(), became.iter().map(Vec::as_slice));
        // A view of a body may be that of another kernel's body, too.
        for (i, own) in kernels.iter_mut().enumerate() {
            if library.is_view(&program, NodeId(i as u32)) {
                own.clear();
            }
        }
        Ok(PlannedProgram { program, kernels, places: self.places.clone() }.settled())
    }

    /// The same without what no output needs, and with constants for what has no elements.
    fn settled(self) -> PlannedProgram {
        let (program, became) = self.program.clone().with_empty_constants_by();
        let (program, left) = program.pruned_by();
        let became: Vec<Option<NodeId>> = became.iter().map(|n| left[n.0 as usize]).collect();
        let kernels = self.moved(program.nodes.len(), became.iter().map(Option::as_slice));
        PlannedProgram { program, kernels, places: self.places }
    }

    /// The kernels of the nodes that these nodes became.
    fn moved<'n>(&self, nodes: usize, became: impl Iterator<Item = &'n [NodeId]>) -> Vec<Vec<u32>> {
        let mut out = vec![Vec::new(); nodes];
        for (kernels, nodes) in self.kernels.iter().zip(became) {
            for node in nodes {
                let known: &mut Vec<u32> = &mut out[node.0 as usize];
                known.extend(kernels);
                known.sort_unstable();
                known.dedup();
            }
        }
        out
    }
}
