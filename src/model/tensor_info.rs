//! What is known of the inputs and outputs of a model: names and types.

use mlc_dsl::ir::{DType, Program, Type};
use std::fmt;

/// Name, element type and shape of an input or output. Printed as `x: f32[batch, 3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    name: String,
    ty: Type,
}

impl TensorInfo {
    /// As the model declares it; what inputs and outputs of a run are called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Its extents, `None` for each that only a run decides.
    pub fn shape(&self) -> Vec<Option<usize>> {
        self.ty.shape.iter().map(|e| e.as_const().and_then(|v| usize::try_from(v).ok())).collect()
    }

    /// Its extents as they are printed: numbers, and those that only a run decides by name, as `batch` or `2 * n`.
    pub fn extents(&self) -> Vec<String> {
        self.ty.shape.iter().map(ToString::to_string).collect()
    }

    /// Element type and extents, open ones by name.
    pub(crate) fn ty(&self) -> &Type {
        &self.ty
    }
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

pub(crate) fn inputs(program: &Program) -> Vec<TensorInfo> {
    let info = |(name, ty): &(String, Type)| TensorInfo { name: name.clone(), ty: ty.clone() };
    program.inputs.iter().map(info).collect()
}

pub(crate) fn input_names(program: &Program) -> Vec<&str> {
    program.inputs.iter().map(|(name, _)| name.as_str()).collect()
}

pub(crate) fn outputs(program: &Program) -> Vec<TensorInfo> {
    let all = program.outputs.iter();
    all.map(|(n, v)| TensorInfo { name: n.clone(), ty: program.ty(*v).clone() }).collect()
}
