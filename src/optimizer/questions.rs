//! Questions to an optimised model, answered in words.

use super::OptimizedModel;
use crate::error::Error;
use crate::explain::{self, KernelTable, NodeStory, NotFused, Numerics, OfNodes, Place, WouldGain};
use crate::kernel_times::KernelTime;
use crate::stack::with_room;

impl OptimizedModel {
    /// Says why two nodes of the model are not computed by one kernel of the plan, or that they are. Of nodes that reading removed it
    /// says what became of them, and answers for the nodes that stand for them.
    ///
    /// # Errors
    /// The model has no such node or value.
    pub fn why_not_fused(&self, a: &str, b: &str) -> Result<OfNodes<NotFused>, Error> {
        let [a, b] = [self.place(a)?, self.place(b)?];
        let notes = [a.told, b.told].concat();
        let Some((a, b)) = a.node.zip(b.node) else {
            return Ok(OfNodes { notes, answer: None });
        };
        let (library, options) = (&self.model.library, &self.options);
        let answer = with_room(|| explain::not_fused(&self.result, library, options, [&a, &b]))?;
        Ok(OfNodes { notes, answer: Some(answer) })
    }

    /// Plans the model once more, with another error class (`exact`, `reorder`, `approx`), for another objective (`latency`,
    /// `memory`, `size`), or with or without a law, and says what that would gain.
    ///
    /// # Errors
    /// Nothing has that name, it is how the model is planned already, or the model cannot be planned so.
    pub fn would_gain(&self, what: &str) -> Result<WouldGain, Error> {
        with_room(|| explain::would_gain(&self.result, &self.model.library, &self.options, what))
    }

    /// Says what became of a node or value of the model: what computes it before and after, which laws touched it, what is beside
    /// it. Of one that reading removed it says by which step, and tells of the node that stands for it.
    ///
    /// # Errors
    /// The model has no such node or value.
    pub fn node(&self, name: &str) -> Result<OfNodes<NodeStory>, Error> {
        let Place { node, told: notes } = self.place(name)?;
        let Some(node) = node else { return Ok(OfNodes { notes, answer: None }) };
        let (library, options) = (&self.model.library, &self.options);
        let story = with_room(|| explain::node(&self.result, library, options, &node))?;
        Ok(OfNodes { notes, answer: Some(story) })
    }

    /// Measures what the result does to numbers: the error of each law's steps, and how the model amplifies a rounding of its inputs.
    ///
    /// # Errors
    /// The model's inputs have no known size.
    pub fn numerics(&self) -> Result<Numerics, Error> {
        with_room(|| explain::numerics(&self.result, &self.model.library, &self.options))
    }

    /// The kernels of the plan with the nodes of the model that they compute, and what each is estimated to take.
    ///
    /// # Errors
    /// The model as read cannot be planned.
    pub fn kernel_table(&self) -> Result<KernelTable, Error> {
        self.kernels_taking(None)
    }

    /// The same by the clock; by their estimates where the plan does not run here.
    ///
    /// # Errors
    /// The model as read cannot be planned, or its inputs cannot be drawn.
    #[cfg(feature = "cli")]
    pub(crate) fn measured_kernel_table(&self) -> Result<KernelTable, Error> {
        let measured = self.kernel_times()?;
        let mut table = self.kernels_taking(measured.as_deref())?;
        if measured.is_none() {
            let target = &table.target;
            table.notes.push(format!(
                "a plan for `{target}` does not run here: times are estimates; `--target cpu` has kernels to be measured"
            ));
        }
        Ok(table)
    }

    fn kernels_taking(&self, measured: Option<&[KernelTime]>) -> Result<KernelTable, Error> {
        with_room(|| {
            let (library, options) = (&self.model.library, &self.options);
            explain::kernel_table(&self.result, library, options, measured)
        })
    }

    fn place(&self, name: &str) -> Result<Place, Error> {
        with_room(|| explain::place(&self.result.source, &self.model, name))
    }
}
