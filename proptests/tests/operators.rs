//! Every operator by itself: the CPU computes what the reference interpreter does.

use mlc_dsl::library::CallId;
use mlc_fuzz::input_values::{Style, inputs, tame};
use mlc_fuzz::oracle::hold;
use mlc_fuzz::{Generator, Subject};
use mlc_proptests::library;
use mlc_rewrite::pipeline::selfcheck;
use mlc_rewrite::show;

/// Applications per operator and style of input.
const SEEDS: u64 = 6;

#[test]
fn the_cpu_computes_every_operator_as_the_reference_does() {
    let library = library();
    let generator = Generator::new(library);
    let run = |p: &_, i: &[_]| selfcheck::run(p, library, i, 1).map_err(|e| e.to_string());
    let keep = |p: &mlc_dsl::ir::Program| Ok(p.clone());
    let subject = Subject { library, optimise: &keep, run: &run };
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
                    runs.iter().filter_map(|v| hold(&subject, &p, &p, style, v).err());
                let (stage, message) = failures.next()?;
                let text = show::program(&p, library, "case");
                Some(format!(
                    "{} (seed {seed}, {style:?}, {stage:?}): {message}\n{text}",
                    call.name
                ))
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
