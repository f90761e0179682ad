//! Which laws may fire, and why another may not.

use crate::error::{Error, ErrorKind};
use crate::names;
use crate::pipeline::options::{Fp, Options};
use crate::pipeline::planning::target;
use mlc_dsl::ir::Program;
use mlc_dsl::library::{ErrorClass, Law, LawOrigin, Library, TargetItem};
use mlc_dsl::shown;
use mlc_explore::UnusableOperators;
use std::collections::BTreeSet;

/// Refuses names that no law has.
pub fn all_laws(library: &Library, wanted: &[String]) -> Result<(), Error> {
    let unknown = |name: &&String| !library.laws.iter().any(|l| l.answers_to(name));
    let Some(name) = wanted.iter().find(unknown) else { return Ok(()) };
    let laws = library.laws.iter();
    let laws: BTreeSet<&str> = laws.flat_map(|l| [&*l.name, l.declared_name()]).collect();
    let help = names::did_you_mean(name, laws, "`mlc-rewrite list laws` names them");
    let place = format!("law `{}`", shown(name));
    let error = Error::new(ErrorKind::Setting, format!("there is no {place}"));
    Err(error.at(place).or_help(help))
}

/// The laws that may fire. A layer's own kernel rounds otherwise than the kernels of its body: under
/// `exact` such a layer stays as it is read.
pub(crate) fn active_laws(
    library: &Library,
    target: &TargetItem,
    options: &Options,
    source: &Program,
) -> Result<Vec<u32>, Error> {
    let foreign = UnusableOperators::of(library, target, options.operators.as_ref(), source);
    all_laws(library, &options.without)?;
    let active = library.laws.iter().enumerate().filter(|(_, l)| {
        let off = options.without.iter().any(|w| l.answers_to(w));
        options.fp.admits(l.error) && !off && !rounds(library, target, options, l)
    });
    let useful = active.filter(|(_, l)| !foreign.concerns(l));
    Ok(useful.map(|(i, _)| i as u32).collect())
}

/// True for a definition whose kernel may give other bits than its body, where the bits must stay.
fn rounds(library: &Library, target: &TargetItem, options: &Options, law: &Law) -> bool {
    let layer = law.name.strip_suffix(".rev").unwrap_or(&law.name);
    let has_kernel = |c| target.kernels.iter().any(|k| k.covers.contains(&c));
    options.fp == Fp::Exact
        && matches!(law.origin, LawOrigin::Fold | LawOrigin::Unfold)
        && library.find(layer).is_some_and(has_kernel)
}

/// Why a law is not searched with the others.
pub fn why_off(library: &Library, options: &Options, index: u32) -> String {
    let law = &library.laws[index as usize];
    if options.without.iter().any(|w| law.answers_to(w)) {
        return "it is turned off by `--without`".into();
    }
    if !options.fp.admits(law.error) {
        let needed = if matches!(law.error, ErrorClass::Reorder) { "reorder" } else { "approx" };
        return format!("its error class is {}: `--fp {needed}` admits it", law.error);
    }
    let target = target(library, &options.target).ok();
    match target.is_some_and(|t| rounds(library, &t, options, law)) {
        true => "its kernel may give other bits than its body, and `--fp exact` keeps them".into(),
        false => format!(
            "what it yields has no kernel on `{}`, and nothing follows from it",
            options.target
        ),
    }
}
