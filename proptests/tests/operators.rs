//! Every operator by itself: the CPU computes what the reference interpreter does.

use mlc_cpu::Cpu;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{DType, NodeKind, Program, Value};
use mlc_dsl::library::{CallId, CallKind, Callable};
use mlc_dsl::typing::infer::infer;
use mlc_dsl::whole_tensors;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs, tame};
use mlc_fuzz::oracle::{hold, hold_run};
use mlc_fuzz::{Generator, Subject};
use mlc_proptests::library;
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::show;
use std::collections::BTreeSet;

/// Applications per operator and style of input.
const SEEDS: u64 = 6;

#[test]
fn the_cpu_computes_every_operator_as_the_reference_does() {
    let library = library();
    let generator = Generator::new(library);
    let run = |p: &_, i: &[_]| selfcheck::run(p, library, i, 1).map_err(|e| e.to_string());
    let mut wrong = Vec::new();
    let mut never = Vec::new();
    for (i, call) in library.calls.iter().enumerate() {
        let mut applied = 0;
        for seed in 0..SEEDS {
            let Some(p) = generator.single(CallId(i as u32), seed) else { continue };
            applied += 1;
            // One line per program: the first style of input that shows something wrong.
            wrong.extend(Style::ALL.into_iter().find_map(|style| {
                let values = inputs(&p, style, seed)?;
                let runs = [tame(&values), values];
                let mut failures =
                    runs.iter().filter_map(|v| hold_run(library, &p, style, v, &run).err());
                let message = failures.next()?;
                let text = show::program(&p, library, "case");
                Some(format!("{} (seed {seed}, {style:?}): {message}\n{text}", call.name))
            }));
        }
        if applied == 0 {
            never.push(call.name.to_string());
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    // An operator that is never drawn is never tested.
    assert!(never.is_empty(), "no application found for {}", never.join(", "));
}

/// The program with applications of one operator as operators on whole tensors; `None` if it has no such form.
fn spelled(p: &Program, of: CallId) -> Option<Program> {
    let library = library();
    let mut b = Builder::new(library);
    let mut new: Vec<Vec<Value>> = vec![];
    for node in &p.nodes {
        let args: Vec<Value> =
            node.args.iter().map(|a| new[a.node.0 as usize][a.output as usize]).collect();
        new.push(match &node.kind {
            NodeKind::Input(i) => {
                let (name, ty) = &p.inputs[*i as usize];
                vec![b.input(name, ty.clone())]
            }
            NodeKind::Const(c) => vec![b.constant(p.consts.get(*c).clone())],
            NodeKind::Apply(call, attrs) => {
                let attrs: Vec<_> = attrs.iter().cloned().map(Some).collect();
                match &library.call(*call).kind {
                    CallKind::Op(meanings) if *call == of => {
                        let types: Vec<_> = args.iter().map(|&a| b.ty(a).clone()).collect();
                        let types: Vec<_> = types.iter().collect();
                        let app = infer(library.call(*call), &types, &attrs).ok()?;
                        whole_tensors::whole(&mut b, &app.env, meanings, &args, &app.types)?
                    }
                    _ => b.apply(*call, &attrs, &args).ok()?,
                }
            }
        });
    }
    let value = |v: &Value| new[v.node.0 as usize][v.output as usize];
    Some(b.finish(p.outputs.iter().map(|(n, v)| (n.clone(), value(v))).collect()))
}

#[test]
fn meanings_as_operators_on_whole_tensors_compute_the_same() {
    let library = library();
    let generator = Generator::new(library);
    let run = |p: &_, i: &[_]| selfcheck::run(p, library, i, 1).map_err(|e| e.to_string());
    let keep = |p: &Program| Ok(p.clone());
    let subject = Subject { library, optimise: &keep, run: &run };
    let (mut wrong, mut spelled_out) = (vec![], BTreeSet::new());
    let is_plain = |c: &&Callable| c.recurrence.is_none() && matches!(c.kind, CallKind::Op(_));
    for (i, call) in library.calls.iter().enumerate().filter(|(_, c)| is_plain(c)) {
        for seed in 0..SEEDS {
            let id = CallId(i as u32);
            let Some(p) = generator.single(id, seed) else { continue };
            let Some(q) = spelled(&p, id) else { continue };
            spelled_out.insert(call.name.to_string());
            let style = Style::ALL[0];
            let Some(values) = inputs(&p, style, seed) else { continue };
            if let Err((stage, message)) = hold(&subject, &p, &q, style, &tame(&values)) {
                let texts = [&p, &q].map(|p| show::program(p, library, "case")).join("\n");
                wrong.push(format!("{} (seed {seed}, {stage:?}): {message}\n{texts}", call.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        spelled_out.len() >= 60,
        "only {} have such a form: {spelled_out:?}",
        spelled_out.len()
    );
}

/// True of a program without texts and floats of fewer than 32 bits: texts have no code, and states of 16 bits would be rounded at each
/// step.
fn is_usual(p: &Program) -> bool {
    let wide = |t: DType| matches!(t, DType::F32 | DType::F64) || !t.is_float();
    let types = p.nodes.iter().flat_map(|n| &n.types);
    types.into_iter().all(|t| t.dtype != DType::Str && wide(t.dtype))
}

/// What has a meaning is made code of, unless a kernel computes it.
#[test]
fn no_operator_is_left_to_the_interpreter() {
    let library = library();
    let generator = Generator::new(library);
    let target = library.target("cpu").expect("the cpu target");
    let mut found = BTreeSet::new();
    for (i, call) in library.calls.iter().enumerate() {
        if !matches!(call.kind, CallKind::Op(_)) {
            continue;
        }
        for seed in 0..2 * SEEDS {
            let Some(p) = generator.single(CallId(i as u32), seed) else { continue };
            let Some(values) = inputs(&p, Style::ALL[0], seed).filter(|_| is_usual(&p)) else {
                continue;
            };
            let plan = select_kernels(p, library, target);
            let watched = Cpu::new(1).watched(&plan, library.clone()).expect("a plan");
            let names = watched.interpreted(&values).unwrap_or_default();
            // What has no value for these attributes has no code.
            if watched.run(&values).is_ok() && names.iter().any(|n| *n == *call.name) {
                found.insert(call.name.to_string());
            }
        }
    }
    assert!(found.is_empty(), "interpreted: {found:?}");
}
