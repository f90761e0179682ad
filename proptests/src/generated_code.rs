//! Generated CUDA code of definitions, on the emulator: it has the shape that is meant, and computes what the reference interpreter does.

use crate::emulated::Emulated;
use crate::{library_with, program_of};
use mlc_backends::Executable;
use mlc_cuda::{LaunchedPlan, Tuning, launches_for};
use mlc_dsl::ir::{Program, Tensor};
use mlc_extract::kernel_selection::select_kernels;
use mlc_fuzz::Subject;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold;
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
    let run = |p: &Program, i: &[Tensor]| {
        let emulated = Arc::new(Emulated::default());
        let plan = select_kernels(p.clone(), &library, target);
        let code = launches_for(&plan, &library, tuning).map_err(|e| e.to_string())?;
        let loaded = LaunchedPlan::new(code, emulated.clone(), plan.program.consts.clone());
        let result = loaded.and_then(|e| e.run(i)).map_err(|e| e.to_string());
        assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
        result
    };
    let keep = |p: &Program| Ok(p.clone());
    let subject = Subject { library: &library, optimise: &keep, run: &run };
    let only = std::env::var("MLC_CUDA_CASE").ok();
    for &(name, with, without) in cases.iter().filter(|c| only.as_deref().is_none_or(|o| o == c.0))
    {
        let p = program_of(&library, name);
        let code = launches_for(&select_kernels(p.clone(), &library, target), &library, tuning);
        let code = code.unwrap_or_else(|e| panic!("{name}: {e}"));
        let texts: Vec<&str> = code.each.iter().map(|l| l.source.as_str()).collect();
        let text = texts.join("\n");
        if only.is_some() {
            println!("{text}");
        }
        assert!(text.contains(with), "{name}: no `{with}` in\n{text}");
        assert!(without.is_empty() || !text.contains(without), "{name}: `{without}` in\n{text}");
        for &style in styles {
            let Some(values) = inputs(&p, style, 1) else { continue };
            let held = hold(&subject, &p, &p, style, &values);
            held.unwrap_or_else(|(_, m)| panic!("{name}, {style:?}: {m}\n{text}"));
        }
    }
}
