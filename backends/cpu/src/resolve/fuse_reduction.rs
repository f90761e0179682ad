//! Fuses reductions with the pointwise expressions that they reduce.

use super::Resolver;
use crate::graph::Group;
use crate::reduction::map_reduce::MapReduce;
use crate::registry;
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, NodeId};

impl Resolver<'_> {
    /// Launches a reduction of f32 with its prologue; false if it is none, and nothing is done then.
    pub(super) fn fuse_map_reduce(
        &mut self,
        anchor: NodeId,
        group: &Group,
    ) -> Result<bool, BackendError> {
        let program = &self.cx.graph.program;
        let op = self.cx.library.node_name(program, anchor);
        let (Some(monoid), [operand]) = (registry::monoid(&op), group.arguments.as_slice()) else {
            return Ok(false);
        };
        if !group.prologue.contains(&operand.node) || program.ty(*operand).dtype != DType::F32 {
            return Ok(false);
        }
        let (Some((_, from)), Some(outputs)) =
            (self.symbols.shape(program.ty(*operand)), self.results(anchor))
        else {
            return Ok(false);
        };
        let Some(axes) = self.attrs(anchor).first().and_then(|a| a.as_i64s()) else {
            return Ok(false);
        };
        let axes: Vec<usize> = axes.into_iter().map(|a| a as usize).collect();
        let Some((map, inputs, _)) = self.fuse(&group.prologue, &from, None, &[*operand])? else {
            return Ok(false);
        };
        let kernel = Box::new(MapReduce::new(map, monoid, &from, &axes));
        self.add_with_epilogue(kernel, inputs, &outputs, anchor, group)?;
        Ok(true)
    }
}
