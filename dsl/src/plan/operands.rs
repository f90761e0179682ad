//! The operands of kernels, and their roles.

use super::Kernel;
use crate::ir::{NodeId, Program, Value};
use std::collections::HashSet;

/// What an operand is to the kernel that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The anchor's argument of that index; in a chain, its operand from left to right.
    Argument(u32),
    /// The prologue reads it.
    Prologue,
    /// The epilogue reads it.
    Epilogue,
    /// It is shown otherwise.
    Viewed,
}

/// An operand of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// What it is read for.
    pub role: Role,
    /// The value as it is read.
    pub value: Value,
    /// Where that comes from, through views inside the kernel: one of its inputs.
    pub from: Value,
}

impl Kernel {
    /// What it reads, the anchor's arguments first. An argument that the prologue computes is none.
    pub fn operands(&self, program: &Program) -> Vec<Operand> {
        let inside: HashSet<NodeId> = self.nodes.iter().copied().collect();
        let computed: HashSet<NodeId> =
            self.anchors.iter().chain(&self.prologue).chain(&self.epilogue).copied().collect();
        let from = |mut v: Value| {
            while inside.contains(&v.node) && !computed.contains(&v.node) {
                v = program.node(v.node).args[0];
            }
            v
        };
        let mut out: Vec<Operand> = Vec::new();
        let mut add = |role, value: Value| {
            let operand = Operand { role, value, from: from(value) };
            if !inside.contains(&operand.from.node) && !out.contains(&operand) {
                out.push(operand);
            }
        };
        for (i, value) in self.arguments(program).into_iter().enumerate() {
            add(Role::Argument(i as u32), value);
        }
        for (role, nodes) in [(Role::Prologue, &self.prologue), (Role::Epilogue, &self.epilogue)] {
            nodes.iter().for_each(|n| program.node(*n).args.iter().for_each(|a| add(role, *a)));
        }
        if self.is_view() {
            self.outputs.iter().for_each(|v| add(Role::Viewed, *v));
        }
        out
    }

    /// What the anchor reads, in order; of a chain, what none of its applications computes.
    pub fn arguments(&self, program: &Program) -> Vec<Value> {
        let mut out = Vec::new();
        let Some(last) = self.anchors.last() else { return out };
        let mut stack: Vec<Value> = program.node(*last).args.iter().rev().copied().collect();
        while let Some(v) = stack.pop() {
            match self.anchors.contains(&v.node) {
                true => stack.extend(program.node(v.node).args.iter().rev()),
                false => out.push(v),
            }
        }
        out
    }
}
