//! Runs nodes that no kernel computes in the reference interpreter.

use super::kernel::{Context, Kernel, TensorView};
use crate::pointwise::{ElementSource, strided_copy};
use bytes::Bytes;
use mlc_backends::BackendError;
use mlc_backends::reference::{Array as Interpreted, Reference};
use mlc_backends::symbols::BoundExtents;
use mlc_dsl::expr::{ExprKind, Meaning};
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Program, Tensor};
use mlc_dsl::library::{CallId, CallKind, Library};
use std::sync::Arc;

/// One operator, applied by the reference interpreter.
pub struct ReferenceFallback {
    library: Arc<Library>,
    call: CallId,
    attrs: Vec<Option<Attr>>,
    /// Elements of arguments and results, each of which the reference interpreter holds as eight bytes.
    elements: u64,
    /// Results that nothing reads, for which there is no memory.
    unread: Vec<bool>,
}

impl ReferenceFallback {
    /// Prepares node `id`, whose arguments and results have so many elements.
    pub fn new(
        elements: u64,
        from: &Program,
        id: NodeId,
        symbols: &BoundExtents,
        library: &Arc<Library>,
    ) -> Result<ReferenceFallback, BackendError> {
        let NodeKind::Apply(call, attrs) = &from.node(id).kind else {
            let what = "a leaf_tensor as a kernel".into();
            return Err(BackendError::Unsupported { backend: "cpu", what });
        };
        let attrs = attrs.iter().map(|a| Some(symbols.attr(a))).collect();
        Ok(ReferenceFallback {
            library: library.clone(),
            call: *call,
            attrs,
            elements,
            unread: vec![],
        })
    }

    /// The same without memory for results that nothing reads.
    pub fn without(self, unread: Vec<bool>) -> ReferenceFallback {
        ReferenceFallback { unread, ..self }
    }

    pub fn tensors(&self, inputs: &[TensorView<'_>]) -> Result<Vec<Tensor>, String> {
        let args = inputs
            .iter()
            .map(|a| dense(a).map(|t| Interpreted::from_tensor(&t)))
            .collect::<Result<Vec<_>, _>>()?;
        let reference = Reference::default();
        let results = reference.apply(&self.library, self.call, &self.attrs, &args);
        let results = results.map_err(|e| match e {
            BackendError::Operator { reason, .. } => reason,
            other => other.to_string(),
        })?;
        Ok(results.iter().map(Interpreted::to_tensor).collect())
    }
}

/// Elements of a result up to which their places are computed ahead of the run.
const KNOWN_AHEAD: usize = 1 << 24;

impl ReferenceFallback {
    /// Where the operator, which has one operand of this shape, takes each element of its one result from, if its meaning is an element
    /// of the operand whose place no element decides. The reference interpreter says so when it is given the places themselves.
    pub fn places(&self, shape: &[usize], result: &[usize]) -> Option<Vec<usize>> {
        let CallKind::Op(meanings) = &self.library.call(self.call).kind else { return None };
        let [Meaning { value, .. }] = meanings.as_slice() else { return None };
        let ExprKind::Read(read) = &value.kind else { return None };
        let decided = read.index.iter().any(|e| e.expr().reads());
        let count = |shape: &[usize]| shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        let n = count(shape).filter(|&n| n <= KNOWN_AHEAD)?;
        if decided || read.otherwise.is_some() || count(result)? > KNOWN_AHEAD {
            return None;
        }
        let numbers = (0..n as i64).map(|i| i as f64).collect();
        let places = Interpreted::from_f64(DType::F64, shape.to_vec(), numbers)?;
        let taken = Reference::default().apply(&self.library, self.call, &self.attrs, &[places]);
        let [taken] = taken.ok()?.try_into().ok()?;
        (taken.shape() == result)
            .then(|| taken.floats().map(|p| p.iter().map(|&p| p as usize).collect()))?
    }
}

impl Kernel for ReferenceFallback {
    fn is_interpreted(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        self.elements.saturating_mul(8)
    }

    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        for (i, (t, out)) in self.tensors(inputs)?.iter().zip(outputs).enumerate() {
            if self.unread.get(i) == Some(&true) {
                continue;
            }
            if t.bytes().len() != out.len() {
                return Err(format!("the reference interpreter yields shape {:?}", t.shape()));
            }
            out.copy_from_slice(t.bytes());
        }
        Ok(())
    }
}

/// A dense tensor of an array's elements.
fn dense(a: &TensorView<'_>) -> Result<Tensor, String> {
    let source = ElementSource::of(a.layout).ok_or("a view of too many axes")?;
    let len = a.layout.len();
    macro_rules! go {
        ($t:ty) => {{
            let mut out: Vec<$t> = vec![0; len];
            strided_copy(&source, a.typed(), 0, &mut out);
            Bytes::copy_from_slice(bytemuck::cast_slice(&out))
        }};
    }
    let bytes = crate::pointwise::convert::by_size!(a.dtype, go);
    Tensor::new(a.dtype, a.layout.shape.to_vec(), bytes).map_err(|e| e.to_string())
}
