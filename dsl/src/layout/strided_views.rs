//! Views that strides can express: which operators they are, and how they change a layout.

use crate::ir::{Attr, NodeId, NodeKind, Program};
use crate::layout::Layout;
use crate::library::Library;

/// The ways to see a tensor differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Axes in another order.
    Transpose,
    /// The same elements under another shape.
    Reshape,
    /// Repetition along new axes.
    Broadcast,
    /// Repetition along axes of one element.
    Stretch,
    /// A regular part.
    Slice,
}

/// The view that an operator is.
pub fn find(op: &str) -> Option<View> {
    Some(match op {
        "transpose" => View::Transpose,
        "reshape" => View::Reshape,
        "broadcast" => View::Broadcast,
        "stretch" => View::Stretch,
        "slice" => View::Slice,
        _ => return None,
    })
}

/// The view that a node of a program is.
pub fn of(program: &Program, library: &Library, node: NodeId) -> Option<View> {
    match &program.node(node).kind {
        NodeKind::Apply(call, _) => find(&library.call(*call).name),
        NodeKind::Input(_) | NodeKind::Const(_) => None,
    }
}

/// True of the operator that puts tensors one behind the other along an axis, its first attribute.
pub fn is_concatenation(op: &str) -> bool {
    op == "concat"
}

/// What comes of a view.
pub enum Viewed {
    /// A layout over the same memory.
    Layout(Layout),
    /// Strides cannot say it: the elements must be copied first.
    NeedsCopy,
    /// The attributes are not those of such a view.
    Declined,
}

/// The layout of a view of `x`.
pub fn apply(view: View, x: &Layout, attrs: &[Attr], shape: &[usize]) -> Viewed {
    let sizes = |at: usize| -> Option<Vec<usize>> {
        attrs.get(at)?.as_i64s()?.into_iter().map(|v| usize::try_from(v).ok()).collect()
    };
    let ints = |at: usize| attrs.get(at).and_then(Attr::as_i64s);
    let layout = match view {
        View::Transpose => sizes(0).and_then(|perm| x.transpose(&perm)),
        View::Reshape => match x.reshape(shape) {
            Some(layout) => Some(layout),
            None if x.len() == shape.iter().product::<usize>() => return Viewed::NeedsCopy,
            None => None,
        },
        View::Broadcast => sizes(0).and_then(|map| x.broadcast(&map, shape)),
        View::Stretch => x.stretch(shape),
        View::Slice => match (ints(0), ints(1), ints(2)) {
            (Some(start), Some(size), Some(step)) => x.slice(&start, &size, &step),
            _ => None,
        },
    };
    match layout {
        Some(layout) if *layout.shape == *shape => Viewed::Layout(layout),
        _ => Viewed::Declined,
    }
}
