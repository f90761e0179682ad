//! Integers that depend on extents alone: written as constants once these are bound.

use super::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;

struct Extents(Vec<i64>);

/// Prepares the writing of attribute 0.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [(DType::I64, _)] = spec.outputs else { return None };
    Some(Box::new(Extents(spec.ints(0)?)))
}

impl Kernel for Extents {
    fn run(
        &self,
        _: &Context<'_>,
        _: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        outputs[0].copy_from_slice(bytemuck::cast_slice(&self.0));
        Ok(())
    }
}
