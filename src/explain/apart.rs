//! Why two kernels of a plan, one of which reads what the other yields, are two.
//!
//! Says what the target's text and the selection of kernels permit; never decides what is fused.

use super::html::laws::{Joined, of_both};
use mlc_dsl::ir::{Node, NodeId, NodeKind, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Kernel, Plan};
use mlc_extract::cost::target::{TargetPrices, VIEW};
use mlc_extract::kernels::candidates::Role;

/// A plan, and what it was chosen by.
pub(super) struct Apart<'a> {
    pub plan: &'a Plan,
    pub library: &'a Library,
    pub prices: &'a TargetPrices<'a>,
    pub target: &'a str,
    /// The operators of the target that are defined by others.
    pub joined: &'a [Joined],
}

impl Apart<'_> {
    /// Why a kernel and one that reads its value are two.
    pub fn why(&self, from: &Kernel, to: &Kernel, value: Value, readers: usize) -> String {
        let program = &self.plan.program;
        if from.name == VIEW || to.name == VIEW {
            return "one of them is a view, which moves or renames elements and computes nothing: whether it costs anything is up to the kernel that reads it".into();
        }
        let name = |k: &Kernel| {
            let main = k.anchors.last().or(k.nodes.last());
            main.map_or(k.name.clone(), |n| self.library.node_name(program, *n))
        };
        let (a, b) = (name(from), name(to));
        let shared = match readers {
            0 | 1 => String::new(),
            n => format!(
                "; the value between them has {n} readers, so it would be computed once for each of them, or be written all the same"
            ),
        };
        match self.could_be_one(from, to, value) {
            Some(why) => {
                format!("no kernel of target `{}` computes both: {why}{shared}", self.target)
            }
            None if readers > 1 => {
                format!("a kernel of both is possible, and was estimated to cost more{shared}")
            }
            None => format!(
                "a kernel of `{a}` and `{b}` is possible by their kinds; the selection found the two to cost no more: shapes or layouts differ on the way, or the kernel would be larger than kernels may be"
            ),
        }
    }

    /// Why no kernel of the target computes two kernels at once; nothing if one may.
    pub fn could_be_one(&self, from: &Kernel, to: &Kernel, value: Value) -> Option<String> {
        let program = &self.plan.program;
        let role = |n: &NodeId| -> Option<Role> {
            let node: &Node = program.node(*n);
            let NodeKind::Apply(call, attrs) = &node.kind else { return None };
            let args: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
            Some(self.prices.any_site(*call, attrs, &args, &node.types).role)
        };
        let name = |n: &NodeId| self.library.node_name(program, *n);
        let main = |k: &Kernel| {
            k.anchors.iter().copied().find(|n| !role(n).is_some_and(Role::is_pointwise))
        };
        let reads = to.nodes.iter().find(|n| program.node(**n).args.contains(&value))?;
        match (main(from), main(to)) {
            (Some(a), Some(b)) => {
                let call = |n: &NodeId| match program.node(*n).kind {
                    NodeKind::Apply(call, _) => Some(call),
                    NodeKind::Input(_) | NodeKind::Const(_) => None,
                };
                let known = of_both(self.joined, call(&a)?, call(&b)?);
                let known = known.map_or_else(
                    || "the target has no operator that is defined by both".to_string(),
                    |known| format!("of the target's operators these are defined by both: {known}"),
                );
                Some(format!(
                    "`{}` and `{}` are each the main operator of a kernel, and a kernel has one; {known}",
                    name(&a),
                    name(&b)
                ))
            }
            (Some(a), None) => match (role(&a)?, role(reads)?) {
                (Role::Anchor { epilogue: 0, .. } | Role::Alone | Role::Pointwise { .. }, _) => {
                    Some(format!("the kernel of `{}` takes in nothing that follows it", name(&a)))
                }
                (Role::Anchor { epilogue, .. }, Role::Pointwise { follows, .. })
                    if epilogue & follows == 0 =>
                {
                    Some(format!(
                        "the kernel of `{}` takes in some operators that follow it, and `{}` is none of them",
                        name(&a),
                        name(reads)
                    ))
                }
                (Role::Anchor { .. }, Role::Pointwise { .. }) => {
                    let (before, after) =
                        (program.ty(value), &program.node(*to.nodes.last()?).types[0]);
                    (before.shape != after.shape)
                        .then(|| format!("what follows has another shape: {before}, then {after}"))
                }
                (Role::Anchor { .. }, _) => {
                    Some(format!("`{}` is not computed element by element", name(reads)))
                }
            },
            (None, Some(b)) => match role(&b)? {
                Role::Anchor { prologue: true, .. } => None,
                Role::Anchor { .. } | Role::Alone | Role::Pointwise { .. } => Some(format!(
                    "the kernel of `{}` takes in nothing that computes its operands",
                    name(&b)
                )),
            },
            (None, None) => {
                let (before, after) =
                    (program.ty(value), &program.node(*to.nodes.last()?).types[0]);
                (before.shape != after.shape).then(|| {
                    format!("a loop has one shape, and these have two: {before}, then {after}")
                })
            }
        }
    }
}
