//! Chains of concatenations as one copy.

use super::{Place, Resolver};
use crate::BackendError;
use mlc_dsl::ir::{Attr, DType, NodeId, NodeKind, Value};

/// Most parts of one copy.
const MOST: usize = 1024;

impl Resolver<'_> {
    /// A concatenation: put off if its only reader is another one along the same axis.
    pub(super) fn concat(
        &mut self,
        id: NodeId,
        attrs: &[Attr],
        outputs: &[(DType, Vec<usize>)],
    ) -> Result<(), BackendError> {
        let node = self.graph.program.node(id);
        let result = Value { node: id, output: 0 };
        let mut parts: Vec<Place> = Vec::new();
        for (i, a) in node.args.iter().enumerate() {
            // Only this node reads a concatenation that was put off: its parts move on, or chains take the square of
            // their length.
            match self.parts.remove(a) {
                Some(list) => {
                    if node.args[i + 1..].contains(a) {
                        self.parts.insert(*a, list.clone());
                    }
                    parts.extend(list);
                }
                None => parts.push(self.place(*a)?.clone()),
            }
        }
        let joins = |reader: &NodeId| self.graph.program.node(*reader).kind == node.kind;
        let readers = self.graph.readers.get(&result).map_or(&[][..], Vec::as_slice);
        let inner = !self.graph.results.contains(&result) && matches!(readers, [r] if joins(r));
        if inner && parts.len() < MOST {
            self.parts.insert(result, parts);
            return Ok(());
        }
        let NodeKind::Apply(call, _) = node.kind else { return Ok(()) };
        let name = &self.library.call(call).name;
        let operands = self.operands(&parts);
        let made = crate::cpu::registry::find(name)
            .and_then(|maker| maker(&self.site(attrs, &operands, outputs)));
        let name = self.name(id);
        let launch = made.ok_or_else(|| self.fail(id, "too many axes"))?;
        let places = self.step(launch, parts, outputs, None, &name)?;
        self.places.extend(places.into_iter().map(|p| (result, p)));
        Ok(())
    }
}
