//! Nodes that no kernel computes, given to the judge.

use super::launch::{Array, Context, Launch};
use super::pointwise::{Source, strided_copy};
use super::symbols::Symbols;
use crate::BackendError;
use crate::reference::{Array as Judgement, Reference};
use bytes::Bytes;
use mlc_dsl::ir::{Attr, NodeId, NodeKind, Program, Tensor};
use mlc_dsl::library::{CallId, Library};
use std::sync::Arc;

/// One operator, applied by the judge.
pub struct Judged {
    library: Arc<Library>,
    call: CallId,
    attrs: Vec<Option<Attr>>,
    /// Elements of arguments and results, each of which the judge holds as eight bytes.
    elements: u64,
}

impl Judged {
    /// Prepares node `id`, whose arguments and results have so many elements.
    pub fn new(
        elements: u64,
        from: &Program,
        id: NodeId,
        symbols: &Symbols,
        library: &Arc<Library>,
    ) -> Result<Judged, BackendError> {
        let NodeKind::Apply(call, attrs) = &from.node(id).kind else {
            let what = "a leaf as a kernel".into();
            return Err(BackendError::Unsupported { backend: "cpu", what });
        };
        let attrs = attrs.iter().map(|a| Some(symbols.attr(a))).collect();
        Ok(Judged { library: library.clone(), call: *call, attrs, elements })
    }

    /// The results.
    pub fn tensors(&self, inputs: &[Array<'_>]) -> Result<Vec<Tensor>, String> {
        let args = inputs
            .iter()
            .map(|a| dense(a).map(|t| Judgement::from_tensor(&t)))
            .collect::<Result<Vec<_>, _>>()?;
        let judge = Reference::default();
        let results = judge.apply(&self.library, self.call, &self.attrs, &args);
        let results = results.map_err(|e| match e {
            BackendError::Operator { reason, .. } => reason,
            other => other.to_string(),
        })?;
        Ok(results.iter().map(Judgement::to_tensor).collect())
    }
}

impl Launch for Judged {
    fn scratch(&self) -> u64 {
        self.elements.saturating_mul(8)
    }

    fn run(
        &self,
        _: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        for (t, out) in self.tensors(inputs)?.iter().zip(outputs) {
            if t.bytes().len() != out.len() {
                return Err(format!("the judge yields shape {:?}", t.shape()));
            }
            out.copy_from_slice(t.bytes());
        }
        Ok(())
    }
}

/// A dense tensor of an array's elements.
fn dense(a: &Array<'_>) -> Result<Tensor, String> {
    let source = Source::of(a.layout).ok_or("a view of too many axes")?;
    let len = a.layout.len();
    macro_rules! go {
        ($t:ty) => {{
            let mut out: Vec<$t> = vec![0; len];
            strided_copy(&source, a.typed(), 0, &mut out);
            Bytes::copy_from_slice(bytemuck::cast_slice(&out))
        }};
    }
    let bytes = super::convert::by_size!(a.dtype, go);
    Tensor::new(a.dtype, a.layout.shape.clone(), bytes).map_err(|e| e.to_string())
}
