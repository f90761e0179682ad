//! Layouts that a runtime has for images, such as blocks of channels: which values lie so, and what changes between
//! kernels. Knows no operator; only prices, never decides what is equal.

use crate::Work;
use crate::candidates::{Class, Entry, Role};

/// How a kernel takes and yields images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Row by row.
    #[default]
    Plain,
    /// In the runtime's own layout.
    Blocked,
    /// In its own if all operands lie so, constants aside.
    Same,
}

/// How a value lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lies {
    /// It is given, or a constant, which was laid out before the first run.
    #[default]
    Either,
    /// Row by row.
    Plain,
    /// In the runtime's own layout: some kernel computes it so.
    Blocked,
}

/// How the classes lie; what is reached through a cycle alone is plain.
pub fn lies(classes: &[Class], entries: &[Entry]) -> Vec<Lies> {
    let mut out = vec![Lies::Either; classes.len()];
    let computed = |e: &&Entry| e.fixed.is_none() && !classes[e.class as usize].fixed;
    for e in entries.iter().filter(computed) {
        let blocked = e.layout == Layout::Blocked;
        let state = &mut out[e.class as usize];
        if *state != Lies::Blocked {
            *state = if blocked { Lies::Blocked } else { Lies::Plain };
        }
    }
    if !out.contains(&Lies::Blocked) {
        return out;
    }
    // What goes into the kernel of its operand lies as that kernel's results do.
    let goes = |e: &&Entry| matches!(e.role, Role::Pointwise { follows, .. } if follows != 0);
    let same = |e: &&Entry| e.layout == Layout::Same || goes(e);
    let follows: Vec<&Entry> = entries.iter().filter(computed).filter(same).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
    for (i, e) in follows.iter().enumerate() {
        e.args.iter().for_each(|&a| readers[a as usize].push(i));
    }
    let mut blocked: Vec<usize> = (0..out.len()).filter(|&c| out[c] == Lies::Blocked).collect();
    while let Some(class) = blocked.pop() {
        for &i in &readers[class] {
            let e = follows[i];
            let result = e.class as usize;
            if out[result] != Lies::Blocked && stays(e.args.iter().map(|&a| out[a as usize])) {
                out[result] = Lies::Blocked;
                blocked.push(result);
            }
        }
    }
    out
}

/// True if a kernel that goes by its operands runs in the runtime's own layout.
fn stays(mut operands: impl Iterator<Item = Lies> + Clone) -> bool {
    operands.clone().any(|l| l == Lies::Blocked) && operands.all(|l| l != Lies::Plain)
}

/// The work of changing layouts for a kernel: of operands that lie otherwise than it takes them, and of its result
/// where others take that to be in the runtime's own layout. Bytes, and a launch for each value.
pub fn changes(
    layout: Layout,
    reads: &[u32],
    result: u32,
    classes: &[Class],
    lies: &[Lies],
) -> Work {
    let operands = reads.iter().map(|&r| lies[r as usize]);
    let wrong = match layout {
        Layout::Blocked => Lies::Plain,
        Layout::Same if stays(operands.clone()) => return Work::default(),
        Layout::Same | Layout::Plain => Lies::Blocked,
    };
    let changed = reads.iter().zip(operands).filter(|(_, l)| *l == wrong);
    let read = changed.map(|(&r, _)| classes[r as usize].read);
    let written = classes[result as usize].written;
    let turned = wrong == Lies::Blocked && lies[result as usize] == Lies::Blocked;
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

    fn entry(class: u32, args: &[u32], layout: Layout) -> Entry {
        let work = Work::default();
        Entry {
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
            Entry::free(0),
            entry(1, &[], Layout::Plain),
            entry(2, &[0], Layout::Blocked),
            entry(3, &[2], Layout::Same),
            entry(4, &[3, 1], Layout::Same),
            entry(5, &[4], Layout::Plain),
            entry(6, &[5], Layout::Blocked),
        ];
        let found = lies(&classes, &entries);
        use Lies::{Blocked as B, Either as E, Plain as P};
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
