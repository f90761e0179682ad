//! Places instructions: each in the outermost loop in which it has its value, and once.
//!
//! Loops are open blocks, outermost first. The terms of a reduction in lanes are a space of their own, in which nothing of what is
//! around them has its elements, except what is expanded.

use super::code::{Block, Instr, Join, Mode, Reduce, Step, Val};
use super::machine::TILE;
use super::walk::{Axis, Walk, slots};
use crate::pointwise::code::RegisterClass as Class;
use crate::pointwise::source::MAX_RANK;
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::{Affine, Slot};

/// A block whose instructions are collected.
struct Open {
    block: Block,
    /// The index variables that have their values in it: those of its loop, and of its space.
    slots: Vec<Slot>,
    /// Its space is not that of the block around it.
    own_space: bool,
}

/// The blocks that are open, and what is known of registers.
pub struct Builder {
    open: Vec<Open>,
    /// Of each register: its class and its block.
    known: Vec<(Class, usize)>,
}

impl Builder {
    /// A builder of code over a space.
    pub fn new(space: Vec<Axis>) -> Builder {
        let slots = slots(&space).collect();
        let block = Block { space, instrs: vec![] };
        Builder { open: vec![Open { block, slots, own_space: true }], known: vec![] }
    }

    /// The outermost block, and how many registers there are.
    pub fn finish(mut self) -> (Block, usize) {
        let root = self.open.swap_remove(0);
        (root.block, self.known.len())
    }

    /// The class of a value; a number has any.
    pub fn class(&self, v: Val) -> Option<Class> {
        match v {
            Val::Reg(r) => Some(self.known[r].0),
            Val::Imm(_) => None,
        }
    }

    /// The block in which a value is.
    pub fn level(&self, v: Val) -> usize {
        match v {
            Val::Reg(r) => self.known[r].1,
            Val::Imm(_) => 0,
        }
    }

    /// The innermost block of another space than the one around it.
    fn floor(&self) -> usize {
        self.open.iter().rposition(|o| o.own_space).unwrap_or(0)
    }

    /// The innermost open block that one of the variables belongs to.
    pub fn level_of(&self, reads: impl Fn(Slot) -> bool) -> usize {
        self.open.iter().rposition(|o| o.slots.iter().any(|&s| reads(s))).unwrap_or(0)
    }

    /// How a reduction at that level goes through its terms: side by side where the elements are few, or read with strides.
    pub fn mode(&self, level: usize, over: &[(Slot, i64)], body: &impl AffineVisitor) -> Mode {
        let space = &self.open[level].block.space;
        let count = |lens: &mut dyn Iterator<Item = i64>| lens.fold(1i64, i64::saturating_mul);
        let elements = count(&mut space.iter().map(|a| a.len));
        let terms = count(&mut over.iter().map(|o| o.1));
        let strided = |slot: Option<Slot>| {
            let mut found = 0;
            let of = |a: &Affine| slot.map_or(0, |s| a.factor(s));
            body.affines(&mut |a| found += (of(a).abs() > 1) as i64);
            found as f64
        };
        // Elements of a tile that an instruction takes as long as its own start.
        let start = |lanes: i64| 32.0 / lanes.clamp(1, TILE as i64) as f64;
        let steps = 1.0 + strided(space.last().map(|a| a.slot)) + start(elements);
        let lanes = 1.0
            + strided(over.last().map(|o| o.0))
            + start(elements.saturating_mul(terms))
            + 4.0 / terms as f64;
        match usize::try_from(terms) {
            Ok(terms) if lanes < steps => Mode::Lanes(terms),
            _ => Mode::Steps,
        }
    }

    fn register(&mut self, class: Class, level: usize) -> usize {
        self.known.push((class, level));
        self.known.len() - 1
    }

    /// The space of the innermost block.
    pub fn space(&self) -> &[Axis] {
        &self.open[self.open.len() - 1].block.space
    }

    /// The value where the innermost block's elements are.
    fn here(&mut self, v: Val) -> Val {
        let Val::Reg(r) = v else { return v };
        let mut v = v;
        let (class, mut level) = self.known[r];
        for at in 0..self.open.len() {
            if at > level && self.open[at].own_space {
                v = self.put(at, Step::Expand, vec![v], class, false).0;
                level = at;
            }
        }
        v
    }

    /// Appends an instruction to a block, unless it is there.
    fn put(
        &mut self,
        level: usize,
        step: Step,
        args: Vec<Val>,
        class: Class,
        told: bool,
    ) -> (Val, Option<Val>) {
        let same = |i: &&Instr| {
            i.step == step
                && i.class == class
                && i.args.len() == args.len()
                && i.args.iter().zip(&args).all(|(a, b)| a.is(*b))
        };
        if let Some(i) = self.open[level].block.instrs.iter().find(same) {
            return (Val::Reg(i.dst), i.inside.map(Val::Reg));
        }
        let dst = self.register(class, level);
        let inside = told.then(|| self.register(Class::Bool, level));
        self.open[level].block.instrs.push(Instr { step, args, class, dst, inside });
        (Val::Reg(dst), inside.map(Val::Reg))
    }

    /// The value of an instruction on values.
    pub fn step(&mut self, step: Step, args: &[Val], class: Class) -> Val {
        let args: Vec<Val> = args.iter().map(|&a| self.here(a)).collect();
        let level = args.iter().map(|&a| self.level(a)).fold(self.floor(), usize::max);
        self.put(level, step, args, class, false).0
    }

    /// The same of one that depends on index variables: `of` makes it for the space of its block.
    pub fn placed(
        &mut self,
        affines: &[&Affine],
        of: impl FnOnce(&[Axis]) -> Step,
        args: &[Val],
        class: Class,
        told: bool,
    ) -> Option<(Val, Option<Val>)> {
        let args: Vec<Val> = args.iter().map(|&a| self.here(a)).collect();
        let read = |slot| affines.iter().any(|a| a.factor(slot) != 0);
        let level = args.iter().map(|&a| self.level(a)).fold(self.floor(), usize::max);
        let level = level.max(self.level_of(read));
        let step = of(&self.open[level].block.space);
        let fits = |w: &Walk| w.shape.len() <= MAX_RANK;
        let fits = match &step {
            Step::Index(_, w) => fits(w),
            Step::Load(l) => fits(&l.walk),
            Step::Gather(g) => fits(&g.walk),
            _ => true,
        };
        fits.then(|| self.put(level, step, args, class, told))
    }

    /// A reduction in the outermost block in which its terms have their values, which is that of `level` or further in; `body` yields a
    /// term and how terms are joined.
    pub fn reduce<T>(
        &mut self,
        level: usize,
        over: &[(Slot, i64)],
        mode: Mode,
        context: &mut T,
        body: impl FnOnce(&mut T, &mut Builder) -> Option<(Val, Join, super::code::Imm, Class)>,
    ) -> Option<Val> {
        let deeper = self.open.split_off(level + 1);
        let variables: Vec<Axis> =
            over.iter().map(|&(slot, len)| Axis { slot, start: 0, len }).collect();
        let mut space = self.space().to_vec();
        if let Mode::Lanes(_) = mode {
            space.extend(&variables);
        }
        let own_space = mode != Mode::Steps;
        let mut own: Vec<Slot> = slots(&variables).collect();
        if own_space {
            own.extend(slots(&space));
        }
        let block = Block { space, instrs: vec![] };
        self.open.push(Open { block, slots: own, own_space });
        let (term, join, first, class) = body(context, self)?;
        let term = self.here(term);
        let body = self.open.pop()?.block;
        let over = over.to_vec();
        let reduce = Reduce { join, first, over, mode, body, term };
        let dst = self.register(class, level);
        let instr =
            Instr { step: Step::Reduce(Box::new(reduce)), args: vec![], class, dst, inside: None };
        self.open[level].block.instrs.push(instr);
        self.open.extend(deeper);
        Some(Val::Reg(dst))
    }
}
