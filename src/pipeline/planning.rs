//! Plans of programs as they stand: constants folded, kernels chosen, nothing explored.

use crate::error::{Error, ErrorKind};
use crate::names;
use crate::pipeline::options::Options;
use crate::pipeline::sized_prices::SizedPrices;
use mlc_dsl::ir::Program;
use mlc_dsl::library::{Library, TargetItem};
use mlc_dsl::plan::Plan;
use mlc_dsl::shown;
use mlc_explore::constants::folding;
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::{CostModel, Size};

/// The target of this machine's processor; those that describe its vectors extend it.
pub(crate) const CPU: &str = "cpu";

/// The target of NVIDIA devices; those that describe single ones extend it.
pub(crate) const CUDA: &str = "cuda";

/// True if results for a target are run here, and not files for a runtime.
pub(crate) fn is_run_here(library: &Library, target: &str) -> bool {
    library.is_kind_of(target, CPU) || library.is_kind_of(target, CUDA)
}

/// The plan of a program as it stands: constants folded, definitions without a kernel expanded.
pub fn plan(program: &Program, library: &Library, target: &TargetItem) -> Result<Plan, Error> {
    plan_with(program, library, target, &CostModel::of(target), &Size::usual())
}

/// The same for the target, the sizes and at the figures that options say.
pub fn plan_as_read(
    program: &Program,
    library: &Library,
    options: &Options,
) -> Result<Plan, Error> {
    let target = target(library, &options.target)?;
    let model = options.costing.model(&target, program);
    plan_with(program, library, &target, &model, &options.sizes)
}

/// The same, priced by a model at these sizes.
pub fn plan_with(
    program: &Program,
    library: &Library,
    target: &TargetItem,
    model: &CostModel,
    sizes: &[Size],
) -> Result<Plan, Error> {
    let at = || TargetPrices::new(library, target, None).with_model(model.clone());
    let mut prices = SizedPrices::new(library, sizes, program, at);
    let open = folding::unfold(program, library, prices.first())?;
    let mut plans = prices.select(&folding::fold(&open, library)?, &[]);
    if plans.len() > 1 {
        let all: Vec<Vec<f64>> = plans.iter().map(|p| prices.at_sizes(p)).collect();
        prices.weigh(&all[0]);
        let seconds = |i: usize| prices.seconds(&all[i]);
        let best = (1..plans.len()).fold(0, |b, i| if seconds(i) < seconds(b) { i } else { b });
        plans.swap(0, best);
    }
    Ok(plans.swap_remove(0))
}

/// The target of a name.
pub fn target(library: &Library, name: &str) -> Result<TargetItem, Error> {
    library.target(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = library.targets.iter().map(|t| &*t.name).collect();
        let help = names::did_you_mean(name, &known, &format!("known are {}", known.join(", ")));
        let place = format!("target `{}`", shown(name));
        Error::new(ErrorKind::Setting, format!("there is no {place}")).at(place).or_help(help)
    })
}

/// The prices of a program under these options, at the default size.
///
/// # Errors
/// There is no such target.
pub fn prices<'l>(
    library: &'l Library,
    options: &Options,
    source: &Program,
) -> Result<TargetPrices<'l>, Error> {
    let target = target(library, &options.target)?;
    let model = options.costing.model(&target, source);
    Ok(TargetPrices::new(library, &target, options.operators.clone()).with_model(model))
}
