//! Kernels that were prepared for another one of their class, under their own names: a network's layers are prepared once.
//!
//! Never renames what depends on more than operands, symbols and the sizes of buffers.

use super::Resolver;
use super::kernel_cache::{
    BufferId, KernelKey, KernelKeyRef, Location, Pass, PreparedKernel, Storage,
};
use crate::graph::Group;
use mlc_dsl::ir::{NodeId, Value};
use std::sync::Arc;

/// What was prepared last for a class of kernels.
pub struct Prepared {
    pub key: Arc<KernelKey>,
    pub kernel: Arc<PreparedKernel>,
}

impl Resolver<'_> {
    /// The kernel, if one of its class was prepared for operands that lie alike.
    pub(super) fn renamed(
        &self,
        kernel: usize,
        group: &Group,
        key: &KernelKeyRef<'_>,
    ) -> Option<PreparedKernel> {
        let own = group.repeat.as_ref()?;
        let known = self.repeats.get(&own.class)?;
        let Prepared { key: known_key, kernel: prepared } = known;
        let other = &self.cx.graph.groups[prepared.kernel];
        let of_other = other.repeat.as_ref()?;
        if known_key.symbols != key.symbols || !prepared.renames {
            return None;
        }
        let mut names = Names { kernels: (prepared.kernel, kernel), storages: vec![] };
        for (&from, &to) in of_other.reads.iter().zip(&own.reads) {
            names.add(&known_key.reads[from], key.reads[to])?;
        }
        let slots =
            |v: &Option<Value>| v.and_then(|v| key.planned.iter().position(|p| p.value == v));
        let known_slots =
            |v: &Option<Value>| v.and_then(|v| known_key.planned.iter().position(|p| p.0 == v));
        let same_bytes =
            key.planned.iter().map(|p| p.bytes).eq(known_key.planned.iter().map(|p| p.1));
        let same_slots = of_other.named.iter().map(known_slots).eq(own.named.iter().map(slots));
        if !same_bytes || !same_slots || !self.appends_alike(&names) {
            return None;
        }
        let node = |id: NodeId| {
            let at = other.nodes.iter().position(|n| *n == id)?;
            Some(group.nodes[at])
        };
        let place = |(v, place): &(Value, Location)| {
            let v = Value { node: node(v.node)?, ..*v };
            Some((v, names.location(place)?))
        };
        let pass = |p: &Pass| {
            let node = node(p.node)?;
            Some(Pass {
                kernel: p.kernel.clone(),
                inputs: p.inputs.iter().map(|l| names.location(l)).collect::<Option<_>>()?,
                own: p.own,
                outputs: p.outputs.iter().map(|b| names.buffer(*b)).collect::<Option<_>>()?,
                epilogue: p.epilogue.clone(),
                node,
            })
        };
        Some(PreparedKernel {
            kernel,
            passes: prepared.passes.iter().map(pass).collect::<Option<_>>()?,
            workspace: prepared.workspace.clone(),
            places: prepared.places.iter().map(place).collect::<Option<_>>()?,
            learned: vec![],
            constants: 0,
            renames: true,
        })
    }

    /// Whether both kernels append to the memory of an input, or neither.
    fn appends_alike(&self, names: &Names) -> bool {
        let (from, to) = names.kernels;
        match (self.plan.appended(from), self.plan.appended(to)) {
            (None, None) => true,
            (Some(from), Some(to)) => {
                names.buffer(BufferId::of_room(from)) == Some(BufferId::of_room(to))
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// What is called what.
struct Names {
    kernels: (usize, usize),
    /// Memory that one kernel reads, and the other.
    storages: Vec<(Storage, Storage)>,
}

impl Names {
    /// Adds operands; `None` if they do not lie alike.
    fn add(&mut self, from: &Location, to: &Location) -> Option<()> {
        let pair = (&from.storage, &to.storage);
        let is_constant = matches!(pair, (Storage::Const(_), _) | (_, Storage::Const(_)));
        if from.dtype != to.dtype || from.layout != to.layout || is_constant {
            return None;
        }
        let known = self.storages.iter().find(|(a, b)| a == pair.0 || b == pair.1);
        match known {
            Some((a, b)) => (a == pair.0 && b == pair.1).then_some(()),
            None => {
                self.storages.push((from.storage.clone(), to.storage.clone()));
                Some(())
            }
        }
    }

    fn storage(&self, storage: &Storage) -> Option<Storage> {
        match storage {
            Storage::Buffer(b) if b.kernel == self.kernels.0 => {
                Some(Storage::Buffer(BufferId { kernel: self.kernels.1, ..*b }))
            }
            // Folded of what no operand decides.
            Storage::Const(_) | Storage::Unread => Some(storage.clone()),
            Storage::Input(_) | Storage::Buffer(_) => {
                let (_, to) = self.storages.iter().find(|(from, _)| from == storage)?;
                Some(to.clone())
            }
        }
    }

    fn buffer(&self, buffer: BufferId) -> Option<BufferId> {
        match self.storage(&Storage::Buffer(buffer))? {
            Storage::Buffer(b) => Some(b),
            Storage::Const(_) | Storage::Input(_) | Storage::Unread => None,
        }
    }

    fn location(&self, l: &Location) -> Option<Location> {
        Some(Location {
            dtype: l.dtype,
            layout: l.layout.clone(),
            storage: self.storage(&l.storage)?,
        })
    }
}
