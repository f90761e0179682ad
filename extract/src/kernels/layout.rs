//! How values lie: image layouts of a runtime, such as blocks of channels, and views in another order than what they are views of.
//! Which values are stored that way, and which conversions kernels need. Knows no operator; assigns costs, never decides what is equal.

use crate::cost::Work;
use crate::kernels::candidates::{Class, OperatorNode, Role, VIEWS};

/// How a kernel takes and yields values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Row by row.
    #[default]
    Plain,
    /// In the runtime's own layout.
    Blocked,
    /// In its own if all operands lie so, constants aside.
    Same,
    /// Row by row: a view in another order is copied first.
    Dense,
}

/// How a value lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayoutNeed {
    /// It is given, or a constant, which was laid out before the first run.
    #[default]
    Either,
    /// Row by row.
    Plain,
    /// Row by row, in an order in which it is not stored: nothing but a view yields it.
    Reordered,
    /// In the runtime's own layout: some kernel computes it so.
    Blocked,
}

impl OperatorNode {
    /// True of a view in another order than that of its operand.
    pub fn reorders(&self) -> bool {
        self.kernel == VIEWS && self.work.moved > 0.0
    }
}

/// How the classes lie; what is reached through a cycle alone is plain.
pub fn lies(classes: &[Class], entries: &[OperatorNode]) -> Vec<LayoutNeed> {
    let mut out = vec![LayoutNeed::Either; classes.len()];
    let computed = |e: &&OperatorNode| e.fixed.is_none() && !classes[e.class as usize].fixed;
    for e in entries.iter().filter(computed) {
        let state = &mut out[e.class as usize];
        *state = match (*state, e.layout) {
            (LayoutNeed::Blocked, _) | (_, Layout::Blocked) => LayoutNeed::Blocked,
            (LayoutNeed::Either | LayoutNeed::Reordered, _) if e.reorders() => {
                LayoutNeed::Reordered
            }
            _ => LayoutNeed::Plain,
        };
    }
    // What is given, or known before the first run, is stored as it is.
    for e in entries.iter().filter(|e| e.fixed.is_some()) {
        let state = &mut out[e.class as usize];
        if *state == LayoutNeed::Reordered {
            *state = LayoutNeed::Plain;
        }
    }
    if !out.contains(&LayoutNeed::Blocked) {
        return out;
    }
    // What goes into the kernel of its operand lies as that kernel's results do.
    let goes =
        |e: &&OperatorNode| matches!(e.role, Role::Pointwise { follows, .. } if follows != 0);
    let same = |e: &&OperatorNode| e.layout == Layout::Same || goes(e);
    let follows: Vec<&OperatorNode> = entries.iter().filter(computed).filter(same).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
    for (i, e) in follows.iter().enumerate() {
        e.args.iter().for_each(|&a| readers[a as usize].push(i));
    }
    let mut blocked: Vec<usize> =
        (0..out.len()).filter(|&c| out[c] == LayoutNeed::Blocked).collect();
    while let Some(class) = blocked.pop() {
        for &i in &readers[class] {
            let e = follows[i];
            let result = e.class as usize;
            if out[result] != LayoutNeed::Blocked && stays(e.args.iter().map(|&a| out[a as usize]))
            {
                out[result] = LayoutNeed::Blocked;
                blocked.push(result);
            }
        }
    }
    out
}

/// True if a kernel that goes by its operands runs in the runtime's own layout.
fn stays(mut operands: impl Iterator<Item = LayoutNeed> + Clone) -> bool {
    let row_by_row = |l| matches!(l, LayoutNeed::Plain | LayoutNeed::Reordered);
    operands.clone().any(|l| l == LayoutNeed::Blocked) && !operands.any(row_by_row)
}

/// The work of changing layouts for a kernel: of operands that lie otherwise than it takes them, and of its result
/// where others take that to be in the runtime's own layout. Bytes, and a launch for each value.
pub fn changes(
    layout: Layout,
    reads: &[u32],
    result: u32,
    classes: &[Class],
    lies: &[LayoutNeed],
) -> Work {
    let operands = reads.iter().map(|&r| lies[r as usize]);
    let wrong: &[LayoutNeed] = match layout {
        Layout::Blocked => &[LayoutNeed::Plain, LayoutNeed::Reordered],
        Layout::Same if stays(operands.clone()) => return Work::default(),
        Layout::Same | Layout::Plain => &[LayoutNeed::Blocked],
        Layout::Dense => &[LayoutNeed::Blocked, LayoutNeed::Reordered],
    };
    let changed = reads.iter().zip(operands).filter(|(_, l)| wrong.contains(l));
    let read = changed.map(|(&r, _)| classes[r as usize].read);
    let written = classes[result as usize].written;
    let turned =
        wrong.contains(&LayoutNeed::Blocked) && lies[result as usize] == LayoutNeed::Blocked;
    let all = read.chain(turned.then_some(written));
    all.fold(Work::default(), |sum, bytes| Work {
        relaid: sum.relaid + bytes,
        launches: sum.launches + 1.0,
        ..sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(class: u32, args: &[u32], layout: Layout) -> OperatorNode {
        let work = Work::default();
        OperatorNode {
            class,
            args: args.to_vec(),
            role: Role::Alone,
            kernel: 3,
            layout,
            work,
            fixed: None,
        }
    }

    /// A convolution (2) of an input (0), a rectifier of it (3), its sum with a constant (1), a cut of that (5), and a
    /// convolution of the cut (6).
    #[test]
    fn values_lie_as_kernels_compute_them() {
        let class =
            |bytes, fixed| Class { shape: 0, read: bytes, written: bytes, fixed, readers: 1 };
        let classes: Vec<Class> = (0..7).map(|i| class(10.0 + f64::from(i), i == 1)).collect();
        let entries = [
            OperatorNode::free(0),
            entry(1, &[], Layout::Plain),
            entry(2, &[0], Layout::Blocked),
            entry(3, &[2], Layout::Same),
            entry(4, &[3, 1], Layout::Same),
            entry(5, &[4], Layout::Plain),
            entry(6, &[5], Layout::Blocked),
        ];
        let found = lies(&classes, &entries);
        use LayoutNeed::{Blocked as B, Either as E, Plain as P};
        assert_eq!(found, [E, E, B, B, B, P, B]);
        for (layout, reads, result, expected) in [
            (Layout::Blocked, &[0, 1][..], 2, &[][..]),
            (Layout::Same, &[2], 3, &[]),
            (Layout::Same, &[3, 1], 4, &[]),
            (Layout::Same, &[3, 5], 5, &[13.0]),
            (Layout::Plain, &[4, 2], 5, &[14.0, 12.0]),
            (Layout::Plain, &[5, 0], 5, &[]),
            (Layout::Plain, &[5, 0], 6, &[16.0]),
            (Layout::Blocked, &[5], 6, &[15.0]),
            (Layout::Dense, &[5, 0], 5, &[]),
        ] {
            let work = changes(layout, reads, result, &classes, &found);
            let sum: f64 = expected.iter().sum();
            assert_eq!(
                (work.relaid, work.launches),
                (sum, expected.len() as f64),
                "{layout:?} {reads:?}"
            );
        }
    }
}
