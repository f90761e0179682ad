//! What is enumerated in which order: all operators in small terms, then few of them in larger ones.

use super::Options;
use super::exprs::expressions;
use super::operators::Operator;
use super::terms::{Bank, Bounds};
use super::worlds::{World, WorldPlan};
use crate::threads;
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::DType;
use mlc_dsl::library::{DTypePattern, Library};
use std::time::Instant;

/// Terms of one bank that are evaluated at most.
const TERMS: usize = 40_000;

/// A stage: so many operators together, with or without numbers, in terms up to a size.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Operators of a term; all of them if `None`.
    pub together: Option<usize>,
    /// So many literals stand among tensors.
    pub literals: usize,
    /// Variables stand for numbers.
    pub numbers: usize,
    /// Variables of the main type.
    pub variables: usize,
    /// Largest size of a term.
    pub size: usize,
    /// Of the time that is left when it begins it takes no more than this part.
    pub share: f64,
}

/// The stages, small terms first.
pub fn stages(options: &Options) -> Vec<Stage> {
    let (size, variables) = (options.size, options.variables);
    let few = variables.min(2);
    let stage = |together, literals, numbers, variables, most: usize, share| Stage {
        together,
        literals,
        numbers,
        variables,
        size: most.min(size),
        share,
    };
    vec![
        stage(None, 7, 0, few, 3, 0.1),
        stage(Some(1), 0, 0, variables, 5, 0.1),
        stage(Some(2), 2, 0, few, 4, 0.1),
        stage(Some(2), 0, 0, variables, 5, 0.15),
        stage(Some(2), 0, 0, variables, 8, 0.35),
        stage(Some(3), 0, 0, variables, 6, 0.35),
        stage(Some(2), 0, 2, 1, 7, 0.3),
        stage(None, 4, 1, 1, 4, 0.3),
        stage(None, 0, 0, few, 4, 0.3),
        stage(Some(2), 3, 0, few, 5, 0.3),
        stage(Some(3), 0, 0, variables, 7, 0.5),
        stage(Some(2), 0, 2, few, 7, 1.0),
    ]
}

/// The banks of a stage, grown.
pub fn banks(
    library: &Library,
    ops: &[Operator],
    options: &Options,
    stage: Stage,
    until: Instant,
) -> Vec<Bank> {
    let mut plans: Vec<(Vec<Operator>, DType, bool)> = Vec::new();
    for group in groups(library, ops, stage.together) {
        let axes = group.iter().any(|o| has_axis(library, o));
        for main in &options.types {
            if !group.iter().all(|o| applies(library, o, *main)) && stage.together.is_some() {
                continue;
            }
            plans.push((group.clone(), *main, false));
            if axes && *main != DType::Bool {
                plans.push((group.clone(), *main, true));
            }
        }
    }
    threads::map(options.threads, plans.len(), &|i| {
        let (group, main, axis) = &plans[i];
        let attrs = attr_kinds(library, group, stage.numbers, *main);
        let world = World::new(
            &WorldPlan {
                main: *main,
                variables: stage.variables,
                conditions: stage.variables.min(2),
                axis: *axis,
                attrs: &attrs,
            },
            options.seed,
        );
        let exprs = expressions(&world, stage.literals, &options.types);
        let mut bank = Bank::new(world, exprs, group.clone());
        let terms = if stage.together == Some(3) { TERMS / 5 } else { TERMS };
        bank.grow(library, &Bounds { size: stage.size, terms, until });
        bank
    })
}

/// Groups of operators that occur in a term together: each yields what another one takes.
fn groups(library: &Library, ops: &[Operator], together: Option<usize>) -> Vec<Vec<Operator>> {
    let Some(count) = together else { return vec![ops.to_vec()] };
    let mut out: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..count {
        let more = |g: &Vec<usize>| {
            let from = g.last().map_or(0, |l| l + 1);
            (from..ops.len()).map(|i| [&g[..], &[i]].concat()).collect::<Vec<_>>()
        };
        out = out.iter().flat_map(more).collect();
    }
    let joined = |a: &Operator, b: &Operator| feeds(library, a, b) || feeds(library, b, a);
    let connected = |g: &Vec<usize>| {
        g.len() < 2 || g.iter().all(|i| g.iter().any(|j| i != j && joined(&ops[*i], &ops[*j])))
    };
    let group = |g: Vec<usize>| g.into_iter().map(|i| ops[i].clone()).collect();
    out.into_iter().filter(connected).map(group).collect()
}

/// True if an operand of `b` may be a result of `a`.
fn feeds(library: &Library, a: &Operator, b: &Operator) -> bool {
    let (from, to) = (library.call(a.call), library.call(b.call));
    let meet = |p: &DTypePattern, q: &DTypePattern| match (p, q) {
        (DTypePattern::Fixed(d), other) | (other, DTypePattern::Fixed(d)) => other.admits(*d),
        (DTypePattern::Var(_), DTypePattern::Var(_)) => true,
    };
    from.outputs.iter().any(|o| to.inputs.iter().any(|i| meet(&o.1.dtype, &i.ty.dtype)))
}

/// True if an operator takes variables of a world with this main type.
fn applies(library: &Library, op: &Operator, main: DType) -> bool {
    let takes = |p: &DTypePattern| p.admits(main) || p.admits(DType::Bool);
    library.call(op.call).inputs.iter().all(|i| takes(&i.ty.dtype))
}

fn has_axis(library: &Library, op: &Operator) -> bool {
    let call = library.call(op.call);
    call.attrs.iter().any(|a| matches!(a.ty.kind, AttrKind::Axis | AttrKind::Axes))
}

/// Kinds of attribute variables that operators ask for, and how many of each.
fn attr_kinds(
    library: &Library,
    ops: &[Operator],
    numbers: usize,
    main: DType,
) -> Vec<(AttrKind, usize)> {
    let asked = |kind: AttrKind| {
        let has = |o: &Operator| library.call(o.call).attrs.iter().any(|a| a.ty.kind == kind);
        ops.iter().any(has)
    };
    let mut out = Vec::new();
    if asked(AttrKind::Perm) {
        out.push((AttrKind::Perm, 2));
    }
    if asked(AttrKind::Axes) {
        out.push((AttrKind::Axes, 1));
    }
    let of_numbers = match main {
        DType::Bool => 0,
        _ if asked(AttrKind::Float) => numbers.max(2),
        _ => numbers,
    };
    if of_numbers > 0 {
        out.push((if main.is_float() { AttrKind::Float } else { AttrKind::Int }, of_numbers));
    }
    out
}
