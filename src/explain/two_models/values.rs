//! The values of two programs in classes of what is known to be equal: the same operator on equal values is equal, and so
//! is what was decided to be. Decides nothing by itself.

use mlc_dsl::ir::{Attr, ConstId, Consts, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::CallId;
use std::collections::HashMap;

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Side {
    A,
    B,
}

/// A class, by its number.
pub(super) type ClassId = usize;

/// What a node is, in terms of both programs.
#[derive(Clone, PartialEq, Eq, Hash)]
enum What {
    Input(u32),
    Const(ConstId),
    Apply(CallId, Vec<Attr>),
}

/// Values that are equal: the first of each program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Class {
    pub a: Option<Value>,
    pub b: Option<Value>,
    /// Whether an input decides it.
    pub varies: bool,
}

impl Class {
    pub fn is_shared(&self) -> bool {
        self.a.is_some() && self.b.is_some()
    }
}

/// The constants of two programs under common numbers: equal ones have one.
pub(super) struct CommonConstants([Vec<ConstId>; 2]);

impl CommonConstants {
    pub fn of(programs: [&Program; 2]) -> CommonConstants {
        let mut all = Consts::default();
        CommonConstants(programs.map(|p| p.consts.iter().map(|t| all.intern(t.clone())).collect()))
    }
}

/// The classes, as far as the second program has been entered.
pub(super) struct Values<'p> {
    pub programs: [&'p Program; 2],
    consts: &'p CommonConstants,
    table: HashMap<(What, Vec<ClassId>), Vec<ClassId>>,
    of: [Vec<Vec<ClassId>>; 2],
    classes: Vec<Class>,
}

impl<'p> Values<'p> {
    /// The values of the first program.
    pub fn new(programs: [&'p Program; 2], consts: &'p CommonConstants) -> Values<'p> {
        let mut values = Values {
            programs,
            consts,
            table: HashMap::new(),
            of: [vec![], vec![]],
            classes: vec![],
        };
        for _ in 0..programs[0].nodes.len() {
            values.enter(Side::A);
        }
        values
    }

    /// Enters the next node of a program; yields the classes of its results.
    pub fn enter(&mut self, side: Side) -> Vec<ClassId> {
        let at = self.of[side as usize].len();
        let program = self.programs[side as usize];
        let node = &program.nodes[at];
        let args: Vec<ClassId> = node.args.iter().map(|v| self.class_of(side, *v)).collect();
        let what = match &node.kind {
            NodeKind::Input(i) => What::Input(*i),
            NodeKind::Const(c) => What::Const(self.consts.0[side as usize][c.0 as usize]),
            NodeKind::Apply(call, attrs) => What::Apply(*call, attrs.clone()),
        };
        let varies = matches!(what, What::Input(_)) || args.iter().any(|a| self.classes[*a].varies);
        let found = self.table.entry((what, args)).or_insert_with(|| {
            let first = self.classes.len();
            let all = first..first + node.types.len();
            self.classes.extend(all.clone().map(|_| Class { varies, ..Class::default() }));
            all.collect()
        });
        let found = found.clone();
        for (output, class) in found.iter().enumerate() {
            self.note(side, Value { node: NodeId(at as u32), output: output as u32 }, *class);
        }
        self.of[side as usize].push(found.clone());
        found
    }

    fn note(&mut self, side: Side, v: Value, class: ClassId) {
        let class = &mut self.classes[class];
        match side {
            Side::A => class.a.get_or_insert(v),
            Side::B => class.b.get_or_insert(v),
        };
    }

    /// Makes a value of the second program, just entered, equal to a class.
    pub fn join(&mut self, v: Value, class: ClassId) {
        let old = self.class_of(Side::B, v);
        self.of[1][v.node.0 as usize][v.output as usize] = class;
        self.note(Side::B, v, class);
        // Nothing that was entered before reads it.
        for found in self.table.values_mut().filter(|f| f.contains(&old)) {
            found.iter_mut().filter(|c| **c == old).for_each(|c| *c = class);
        }
    }

    pub fn class_of(&self, side: Side, v: Value) -> ClassId {
        self.of[side as usize][v.node.0 as usize][v.output as usize]
    }

    pub fn class(&self, id: ClassId) -> &Class {
        &self.classes[id]
    }

    /// A value that defines a class, and its program: the first one's, if it has one.
    pub fn definition(&self, id: ClassId) -> (Side, Value) {
        let class = &self.classes[id];
        match (class.a, class.b) {
            (Some(v), _) => (Side::A, v),
            (None, Some(v)) => (Side::B, v),
            (None, None) => unreachable!("a class has a value from the beginning"),
        }
    }

    pub fn ty(&self, side: Side, v: Value) -> &'p Type {
        self.programs[side as usize].ty(v)
    }

    /// The outputs that are not known to be equal, by number.
    pub fn open_outputs(&self) -> impl Iterator<Item = usize> {
        let [a, b] = self.programs;
        let pairs = a.outputs.iter().zip(&b.outputs).enumerate();
        let open = pairs.filter(|(_, ((_, a), (_, b)))| {
            self.class_of(Side::A, *a) != self.class_of(Side::B, *b)
        });
        open.map(|(i, _)| i)
    }

    /// Values of the second program that inputs decide, and how many of these are values of the first.
    pub fn counted(&self) -> (usize, usize) {
        let all = self.of[1].iter().flatten().filter(|c| self.classes[**c].varies);
        let shared = all.clone().filter(|c| self.classes[**c].is_shared());
        (all.clone().count(), shared.count())
    }
}
