//! `bench` of a model that the data of a run decide: whole sessions are timed, with what they compute to decide it.

use super::super::common::{Findings, met};
use super::super::options::selfcheck;
use super::turns;
use super::turns::Ready;
use super::{Args, BenchReport};
use crate::model::Model;
use crate::optimizer::optimizing;
use crate::pipeline::measure;
use crate::session::Session;
use anyhow::{Context, ensure};
use mlc_backends::{BackendError, Executable};
use mlc_dsl::ir::Tensor;

/// A session that takes its inputs in an order.
struct Ordered {
    session: Session,
    names: Vec<String>,
}

impl Executable for Ordered {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let given = self.names.iter().cloned().zip(inputs.iter().cloned()).collect();
        let results = self.session.run_tensors(given).map_err(|e| BackendError::Operator {
            op: "the model".into(),
            reason: e.to_string(),
        })?;
        Ok(results.into_iter().map(|(_, t)| t).collect())
    }
}

/// Runs the verb.
pub fn run(args: Args, model: Model) -> anyhow::Result<Findings> {
    ensure!(
        !args.kernels,
        "the data of each run decide the kernels of this model\nhelp: leave `--kernels` out"
    );
    let of_inputs = "the data of a run decide what this model computes";
    let inputs = args.inputs.as_ref().with_context(|| {
        format!("{of_inputs}\nhelp: give the inputs of a run with `--inputs FILE.npz`")
    })?;
    let device = args.place.device(&args.common, &args.tuning)?;
    let mut options = args.place.options(&args.tuning, &args.common, &model.library)?;
    args.checking.enter(&mut options, vec![])?;
    let fast = model.session_of_data(&device, optimizing(&model, &device, &options)?)?;
    let names: Vec<String> = fast.inputs().iter().map(|i| i.name().to_string()).collect();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let samples = selfcheck::samples(inputs, &known)?;
    let inputs = samples.into_iter().next().unwrap_or_default();
    let [fast, plain] =
        [fast, model.session_on(&device)?].map(|session| Ordered { session, names: names.clone() });
    let named: Vec<(String, Tensor)> = names.into_iter().zip(inputs.iter().cloned()).collect();
    if args.turns {
        let mut both = [fast, plain].map(|p| Some(Box::new(p) as Box<dyn Executable>));
        let made = |i: usize| both[i].take().context("each is made once");
        return turns::serve(Ready::default(), &named, made);
    }
    args.turn()?;
    let times = measure::runs(&[&fast, &plain], &inputs, args.count())?;
    let against = args.peer(&named)?;
    let against = against.map(|peer| peer.race(&fast, &inputs, args.turns())).transpose()?;
    let made = met(&fast.session.reports_of_runs());
    let notes = vec![format!("{of_inputs}: whole sessions are timed; {made}")];
    let mut report = BenchReport::of(&times[0], &times[1]);
    (report.against, report.notes) = (against, notes);
    args.common.report(&report)?;
    let (times, peer) = report.human();
    let notes: String = report.notes.iter().map(|n| format!("note: {n}\n")).collect();
    args.common.screen.print(&format!("{times}{notes}{peer}"))?;
    Ok(Findings::Nothing)
}
