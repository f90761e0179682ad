//! Questions to an optimised model, answered in words.

use super::OptimizedModel;
use crate::error::{Error, ErrorKind};
use crate::explain::{self, KernelTable, NodeStory, NotFused, Numerics, WouldGain};
use crate::kernel_times::KernelTime;
use crate::names;
use crate::stack::with_room;
use mlc_dsl::shown;
use std::collections::BTreeSet;

impl OptimizedModel {
    /// Says why two nodes of the model are not computed by one kernel of the plan, or that they are.
    ///
    /// # Errors
    /// The program as read has no such node.
    pub fn why_not_fused(&self, a: &str, b: &str) -> Result<NotFused, Error> {
        [a, b].into_iter().try_for_each(|n| self.has_node(n))?;
        with_room(|| explain::not_fused(&self.result, &self.model.library, &self.options, [a, b]))
    }

    /// Plans the model once more, with another error class (`exact`, `reorder`, `approx`), for another objective (`latency`,
    /// `memory`, `size`), or with or without a law, and says what that would gain.
    ///
    /// # Errors
    /// Nothing has that name, it is how the model is planned already, or the model cannot be planned so.
    pub fn would_gain(&self, what: &str) -> Result<WouldGain, Error> {
        with_room(|| explain::would_gain(&self.result, &self.model.library, &self.options, what))
    }

    /// Says what became of a node of the model: what computes its value before and after, which laws touched it, what is beside it.
    ///
    /// # Errors
    /// The program as read has no such node.
    pub fn node(&self, name: &str) -> Result<NodeStory, Error> {
        self.has_node(name)?;
        with_room(|| explain::node(&self.result, &self.model.library, &self.options, name))
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

    /// Refuses a name that no node of the program as read has.
    fn has_node(&self, name: &str) -> Result<(), Error> {
        let nodes = self.result.source.nodes.iter().map(|n| n.origin.as_str());
        let known: BTreeSet<&str> = nodes.filter(|n| !n.is_empty()).collect();
        if known.contains(name) {
            return Ok(());
        }
        let message = format!("the program as read has no node `{}`", shown(name));
        let help = names::did_you_mean(
            name,
            known,
            "`mlc-rewrite explain MODEL --node NAME` tells of a node that reading removed",
        );
        Err(Error::new(ErrorKind::Setting, message).or_help(help))
    }
}
