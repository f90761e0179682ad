//! Generated CUDA code of definitions, on the emulator: it has the shape that is meant, and computes what the reference interpreter does.

use crate::emulated::Emulated;
use crate::{library_with, program_of};
use mlc_backends::Executable;
use mlc_cuda::{LaunchedPlan, Launches, Tuning, launches_for};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold_run;
use rayon::prelude::*;
use std::sync::Arc;

/// Holds definitions of a text against the reference interpreter; the code of each contains a text, and does not contain another.
pub fn check(text: &str, cases: &[(&str, &str, &str)], styles: &[Style]) {
    check_for(Tuning::default(), text, cases, styles);
}

/// The same for a device.
pub fn check_for(tuning: Tuning, text: &str, cases: &[(&str, &str, &str)], styles: &[Style]) {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(text);
    let target = library.target("cuda").expect("shipped");
    let code = |p: &Program| {
        let plan = select_kernels(p.clone(), &library, target);
        launches_for(&plan, &library, tuning).map_err(|e| e.to_string())
    };
    let only = std::env::var("MLC_CUDA_CASE").ok();
    let wanted = |c: &&(&str, &str, &str)| only.as_deref().is_none_or(|o| o == c.0);
    cases.par_iter().filter(wanted).for_each(|&(name, with, without)| {
        let p = program_of(&library, name);
        let launches = code(&p).unwrap_or_else(|e| panic!("{name}: {e}"));
        let texts: Vec<&str> = launches.each.iter().map(|l| l.source.as_str()).collect();
        let text = texts.join("\n");
        if only.is_some() {
            println!("{text}");
        }
        assert!(text.contains(with), "{name}: no `{with}` in\n{text}");
        assert!(without.is_empty() || !text.contains(without), "{name}: `{without}` in\n{text}");
        let held = holds(&library, &p, styles, &code);
        held.unwrap_or_else(|m| panic!("{name}, {m}\n{text}"));
    });
}

/// Holds what `code` makes of a program against the reference interpreter, on inputs of these styles; the style and what is wrong.
pub fn holds(
    library: &Library,
    p: &Program,
    styles: &[Style],
    code: &dyn Fn(&Program) -> Result<Launches, String>,
) -> Result<(), String> {
    let run = |p: &Program, i: &[Tensor]| {
        let emulated = Arc::new(Emulated::default());
        let loaded = LaunchedPlan::new(code(p)?, emulated.clone(), p.consts.clone());
        let result = loaded.and_then(|e| e.run(i)).map_err(|e| e.to_string());
        assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
        result
    };
    for &style in styles {
        let values = inputs(p, style, 1).ok_or("extents that are not known")?;
        hold_run(library, p, style, &values, &run).map_err(|m| format!("{style:?}: {m}"))?;
    }
    Ok(())
}
