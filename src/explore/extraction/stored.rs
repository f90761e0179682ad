//! Classes that are both computed and seen as a view in another order, and that a kernel wants stored: the view must be copied
//! for it, which every other reader is spared.
//!
//! Such a class gets a second one, its stored value, which whatever is no such view computes. The first is the second, or a view; the second can be
//! copied of the first. Knows no operator; decides what is cheap, never what is equal.

use mlc_dsl::ir::DType;
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::kernels::candidates::{Class, KernelCandidate, OperatorNode};
use mlc_extract::kernels::layout::Layout;
use mlc_extract::{ClassId, Cost, EGraphViewBuilder, NodeId};
use std::collections::HashMap;

/// The stored value of a class.
#[derive(Clone, Copy)]
pub(crate) struct StoredClass {
    /// Its class.
    pub(super) class: ClassId,
    /// The node that makes it the value that others read.
    pub(super) read: NodeId,
    /// The node that copies the view.
    pub(super) copied: NodeId,
}

/// How kernels see their classes where some are stored.
pub(super) struct StoredClasses<'a> {
    sites: &'a [OperatorNode],
    /// Per class: the stored value, if it has one.
    of: Vec<Option<ClassId>>,
}

impl<'a> StoredClasses<'a> {
    /// Adds the stored classes that these kernels want.
    pub(super) fn add(
        classes: &[Class],
        sites: &'a [OperatorNode],
        kernels: &[KernelCandidate],
        b: &mut EGraphViewBuilder,
    ) -> StoredClasses<'a> {
        let (mut viewed, mut computed) = (vec![false; classes.len()], vec![false; classes.len()]);
        for site in sites {
            let kinds = if site.reorders() { &mut viewed } else { &mut computed };
            kinds[site.class as usize] = true;
        }
        let mut of = vec![None; classes.len()];
        let wants = |k: &&KernelCandidate| is_dense(sites, k);
        for &r in kernels.iter().filter(wants).flat_map(|k| &k.reads) {
            let r = r as usize;
            if viewed[r] && computed[r] && !classes[r].fixed && of[r].is_none() {
                of[r] = Some(b.add_class());
            }
        }
        StoredClasses { sites, of }
    }

    /// The class that a kernel computes, and those that it reads.
    pub(super) fn seen(&self, k: &KernelCandidate, ids: &[ClassId]) -> (ClassId, Vec<ClassId>) {
        let dense = is_dense(self.sites, k);
        let stored = |c: u32| self.of[c as usize].unwrap_or(ids[c as usize]);
        let root = &self.sites[k.entries[k.entries.len() - 1] as usize];
        let class = if root.reorders() { ids[root.class as usize] } else { stored(root.class) };
        let read = |&r: &u32| if dense { stored(r) } else { ids[r as usize] };
        (class, k.reads.iter().map(read).collect())
    }

    /// Adds the nodes between each class and its stored value, which follow all kernels.
    pub(super) fn join(
        self,
        prices: &TargetPrices<'_>,
        (classes, dtypes): (&[Class], &[DType]),
        ids: &[ClassId],
        b: &mut EGraphViewBuilder,
    ) -> HashMap<ClassId, StoredClass> {
        let mut out = HashMap::new();
        for (i, stored) in self.of.iter().enumerate() {
            let Some(class) = *stored else { continue };
            let read = b.add_node(ids[i], &[class], Cost::new(0.0));
            let seconds = prices.copied(classes[i].read, dtypes[i]);
            let copied = b.add_node(class, &[ids[i]], Cost::new(seconds));
            out.insert(ids[i], StoredClass { class, read, copied });
        }
        out
    }
}

/// True of a kernel that takes no view in another order.
fn is_dense(sites: &[OperatorNode], k: &KernelCandidate) -> bool {
    k.entries.iter().any(|&e| sites[e as usize].layout == Layout::Dense)
}
