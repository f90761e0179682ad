//! Runs as one launch, whose blocks wait for each other: on the emulator, which passes over all blocks once for each phase and tells of
//! races within one, they compute what the reference interpreter does. Chosen where launches are many and small.

use mlc_backends::{Backend, Executable};
use mlc_cuda::{Cuda, LaunchedPlan, Launches, Policy, Tuning, launches, launches_for};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold_run;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::shapes::SEVERAL_LAUNCHES as TEXT;
use mlc_proptests::{library_with, program_of};
use std::sync::Arc;

fn code(library: &Library, p: &Program, tuning: Tuning) -> Launches {
    let plan = select_kernels(p.clone(), library, library.target("cuda").expect("shipped"));
    launches_for(&plan, library, tuning).expect("known extents")
}

#[test]
fn a_run_as_one_launch_computes_what_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(TEXT);
    for name in ["stack", "halves", "image", "deep", "picked", "row"] {
        let p = program_of(&library, name);
        for processors in [1, 3] {
            let tuning = Tuning { processors, megakernel: Policy::Always, ..Tuning::default() };
            let run = |p: &Program, i: &[Tensor]| {
                let code = code(&library, p, tuning);
                let one = code.megakernel.as_ref().ok_or("it is not one launch")?;
                // Sums over parts of the depth are added by blocks that come last, in a phase as in a launch.
                let is_cut = one.source.contains("comes_last");
                assert_eq!(is_cut, name == "deep", "{name}, {processors}");
                assert!(one.grid[0] <= 2 * processors, "{name}: {:?}", one.grid);
                let emulated = Arc::new(Emulated::default());
                let loaded = LaunchedPlan::new(code, emulated.clone(), p.consts.clone());
                let loaded = loaded.map_err(|e| e.to_string())?;
                let first = loaded.run(i).map_err(|e| e.to_string())?;
                let again = loaded.run(i).map_err(|e| e.to_string())?;
                let bytes =
                    |all: &[Tensor]| all.iter().map(|t| t.bytes().to_vec()).collect::<Vec<_>>();
                assert_eq!(bytes(&first), bytes(&again), "{name}");
                assert_eq!(emulated.together(), 2, "{name}");
                assert!(loaded.notes().iter().any(|n| n.ends_with("launches as one")), "{name}");
                drop(loaded);
                assert_eq!(emulated.left(), 0, "{name}: memory or modules are left on the device");
                Ok(first)
            };
            for style in [Style::Normal, Style::Whole] {
                let values = inputs(&p, style, 1).expect("known extents");
                let held = hold_run(&library, &p, style, &values, &run);
                held.unwrap_or_else(|m| panic!("{name}, {style:?}, {processors}: {m}"));
            }
        }
    }
}

#[test]
fn an_index_out_of_range_is_told_of_one_launch_too() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(TEXT);
    let p = program_of(&library, "picked");
    let tuning = Tuning { megakernel: Policy::Always, ..Tuning::default() };
    let code = code(&library, &p, tuning);
    assert!(code.megakernel.is_some());
    let mut values = inputs(&p, Style::Normal, 1).expect("known extents");
    let mut places = vec![0; 20];
    places[7] = 40;
    values[1] = Tensor::from_i64(values[1].dtype(), vec![20], &places);
    let loaded = LaunchedPlan::new(code, Arc::new(Emulated::default()), p.consts.clone());
    let e = loaded.expect("is ready").run(&values).expect_err("is out of range");
    assert!(e.to_string().contains("index 40 is out of range for axis 0"), "{e}");
}

#[test]
fn small_launches_are_merged_and_large_ones_are_not() {
    let library = library_with(TEXT);
    let merged = |name: &str, megakernel: Policy| {
        let tuning = Tuning { megakernel, ..Tuning::default() };
        code(&library, &program_of(&library, name), tuning).megakernel.is_some()
    };
    assert!(merged("row", Policy::WhenFaster));
    assert!(!merged("row", Policy::Never));
    assert!(!merged("large", Policy::WhenFaster));
    // A launch alone is one already.
    assert!(
        !merged("queries", Policy::WhenFaster)
            || code(&library, &program_of(&library, "queries"), Tuning::default()).each.len() > 1
    );
    let plan = select_kernels(
        program_of(&library, "row"),
        &library,
        library.target("cuda").expect("shipped"),
    );
    assert!(launches(&plan, &library).expect("known extents").megakernel.is_some());
}

#[test]
fn sessions_choose_it_by_themselves() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let library = library_with(TEXT);
    let p = program_of(&library, "row");
    let plan = select_kernels(p.clone(), &library, library.target("cuda").expect("shipped"));
    let emulated = Arc::new(Emulated::default());
    let session = Cuda::new(emulated.clone()).compile(&plan, library.clone()).expect("compiles");
    session.run(&inputs(&p, Style::Normal, 1).expect("known extents")).expect("runs");
    assert_eq!(emulated.together(), 1);
}
