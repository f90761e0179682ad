//! Random programs of every family of loop shapes, run by the emulator against the reference interpreter.
//!
//! Blocks at the ends of values of more elements than 32 bits count are run by themselves, in memory of which the system has what they touch.
//!
//! `MLC_CUDA_SEEDS=N` takes N seeds of every family, from `MLC_CUDA_FIRST` on; `MLC_CUDA_FAMILY` names one family. What fails is printed
//! as the text of a definition.

use mlc_backends::Executable;
use mlc_cuda::{LaunchedPlan, Launches, Place, Tuning, launches, launches_for};
use mlc_cuda_emulator::{Region, Unit};
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs, tame};
use mlc_fuzz::oracle::hold_run;
use mlc_proptests::emulated::Emulated;
use mlc_proptests::shapes::{FAMILIES, text};
use mlc_proptests::{library_with, program_of};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::Arc;

/// Seeds of every family if the environment says nothing.
const SEEDS: u64 = 1;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v}")))
}

/// Runs a program as launches for a device of so many multiprocessors.
fn run(
    library: &Library,
    p: &Program,
    i: &[Tensor],
    processors: u32,
) -> Result<Vec<Tensor>, String> {
    let plan = select_kernels(p.clone(), library, library.target("cuda").expect("shipped"));
    let tuning = Tuning { processors, ..Tuning::default() };
    let code = launches_for(&plan, library, tuning).map_err(|e| e.to_string())?;
    let emulated = Arc::new(Emulated::default());
    let loaded = LaunchedPlan::new(code, emulated.clone(), plan.program.consts.clone());
    let result = loaded.and_then(|e| e.run(i)).map_err(|e| e.to_string());
    assert_eq!(emulated.left(), 0, "memory or modules are left on the device");
    result
}

#[test]
fn random_programs_of_every_loop_shape_compute_what_the_reference_does() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let (first, seeds) = (number("MLC_CUDA_FIRST").unwrap_or(0), number("MLC_CUDA_SEEDS"));
    let seeds = first..first + seeds.unwrap_or(SEEDS);
    let only = std::env::var("MLC_CUDA_FAMILY").ok();
    let families = FAMILIES.iter().map(|f| f.0);
    let families = families.filter(|f| only.as_deref().is_none_or(|o| o == *f));
    let cases: Vec<(&str, u64)> =
        families.flat_map(|f| seeds.clone().map(move |s| (f, s))).collect();
    let name = |(family, seed): &(&str, u64)| format!("{family}_{seed}");
    let texts: Vec<String> =
        cases.iter().map(|c| text(c.0, &name(c), c.1).expect("a family")).collect();
    let library = library_with(&texts.join("\n"));
    let mut wrong = vec![];
    for (case, text) in cases.iter().zip(&texts) {
        let p = program_of(&library, &name(case));
        let processors = [132, 1, 8][case.1 as usize % 3];
        let run = |p: &Program, i: &[Tensor]| run(&library, p, i, processors);
        for style in [Style::Normal, Style::Whole] {
            let values = inputs(&p, style, case.1).expect("known extents");
            let values = [tame(&values), values];
            let runs = if p.inputs.iter().any(|i| i.1.dtype.is_int()) {
                &values[..]
            } else {
                &values[1..]
            };
            let failed = runs.iter().find_map(|v| hold_run(&library, &p, style, v, &run).err());
            if let Some(message) = failed {
                let told = format!("{style:?}, {processors} processors: {message}\n{text}");
                println!("{told}");
                wrong.push(told);
                break;
            }
        }
    }
    println!("{} programs compared", cases.len() - wrong.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Zeros, which take memory once they are touched.
struct Zeros(*mut u8, Layout);

impl Zeros {
    fn new(bytes: u64) -> Zeros {
        // With more than this alignment the zeros would be written.
        let layout = Layout::from_size_align(bytes.max(1) as usize, 16).expect("an allocation");
        // SAFETY: the layout has bytes.
        let at = unsafe { alloc_zeroed(layout) };
        assert!(!at.is_null(), "{bytes} bytes of address space");
        Zeros(at, layout)
    }

    /// The element so many from the end, of a type of so many bytes; it is this far into the memory.
    fn before_end(&self, bytes: u64, size: usize, back: usize) -> *mut u8 {
        self.0.wrapping_add(bytes as usize - size * back)
    }
}

impl Drop for Zeros {
    fn drop(&mut self) {
        // SAFETY: it was allocated so.
        unsafe { dealloc(self.0, self.1) };
    }
}

/// Elements counted from the end of a value, and what they are; all others are 0.
type Ends<'a> = &'a [(usize, f64)];

/// Runs the first blocks and the last ones of all launches on inputs with these ends; the elements of the result there.
fn ends(code: &Launches, given: &[Ends<'_>], wanted: Ends<'_>) -> Vec<f64> {
    let unit = Unit::compile(&code.unit()).expect("compiles");
    let key = |place: Place| match place {
        Place::Arena(_) => Place::Arena(0),
        Place::Kept(_) => Place::Kept(0),
        other => other,
    };
    let within = |place: Place| match place {
        Place::Arena(at) | Place::Kept(at) => at,
        _ => 0,
    };
    let mut memory: HashMap<String, Zeros> = HashMap::new();
    for a in code.each.iter().flat_map(|l| &l.arguments) {
        let bytes = match key(a.place) {
            Place::Arena(_) => code.arena,
            Place::Kept(_) => code.kept,
            _ => a.bytes,
        };
        memory.entry(format!("{:?}", key(a.place))).or_insert_with(|| Zeros::new(bytes));
    }
    for (i, (port, ends)) in code.inputs.iter().zip(given).enumerate() {
        let bytes = (port.shape.iter().product::<usize>() * port.dtype.size()) as u64;
        for &(back, v) in ends.iter() {
            let element = Tensor::from_f64(port.dtype, vec![1], &[v]);
            let to = memory[&format!("{:?}", Place::Input(i))].before_end(
                bytes,
                port.dtype.size(),
                back,
            );
            // SAFETY: the element is inside.
            unsafe { to.copy_from_nonoverlapping(element.bytes().as_ptr(), port.dtype.size()) };
        }
    }
    for l in &code.each {
        let region = |a: &mlc_cuda::Argument| Region {
            pointer: memory[&format!("{:?}", key(a.place))]
                .0
                .wrapping_add(within(a.place) as usize),
            bytes: a.bytes as usize,
        };
        let regions: Vec<Region> = l.arguments.iter().map(region).collect();
        let all = u64::from(l.grid[0]);
        let first = if all > 128 { 0..1 } else { 0..0 };
        for blocks in [first, all.saturating_sub(if all > 128 { 2 } else { all })..all] {
            // SAFETY: every region is allocated.
            let done =
                unsafe { unit.launch_blocks(&l.function, l.grid, blocks, l.block, &regions) };
            done.unwrap_or_else(|e| panic!("{e}\n{}", l.source));
        }
    }
    let (port, place) = &code.outputs[0];
    let bytes = (port.shape.iter().product::<usize>() * port.dtype.size()) as u64;
    let read = |&(back, _): &(usize, f64)| {
        let from = memory[&format!("{place:?}")].before_end(bytes, port.dtype.size(), back);
        // SAFETY: the element is inside.
        let raw = unsafe { std::slice::from_raw_parts(from, port.dtype.size()) };
        let element = Tensor::new(port.dtype, vec![1], raw.to_vec().into()).expect("an element");
        element.to_f64()[0]
    };
    wanted.iter().map(read).collect()
}

#[test]
fn positions_may_have_more_than_32_bits() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let text = "
        def elements(x: u8[70001, 40000]) -> u8[70001, 40000] = x + 1
        def odd(x: u8[70001, 40001]) -> u8[70001, 40001] = x + 1
        def turned(x: u8[70010, 40010]) -> u8[40010, 70010] = transpose(x, perm=[1, 0])
        def part(x: u8[70001, 40001]) -> u8[3, 5] = slice(x, start=[69998, 39996], size=[3, 5], step=[1, 1])
        def rows(x: f16[600001, 4096]) -> f16[600001] = sum(x, axes=[1])
        def short(x: f16[60000001, 40]) -> f16[60000001, 40] = softmax(x, axis=1)
        def columns(x: f16[20, 120000001]) -> f16[120000001] = max(x, axes=[0])
        def product(x: f16[70001, 16], w: f16[16, 40000]) -> f16[70001, 40000] = x @ w
        def plain(x: f32[70001, 16], w: f32[16, 40000]) -> f32[70001, 40000] = x @ w
        def tall(x: f16[70000001, 40], w: f16[40, 64]) -> f16[70000001, 64] = x @ w
        def few(x: f16[2, 32], w: f16[32, 70000001]) -> f16[2, 70000001] = x @ w
        def batches(x: f16[3000001, 16, 16], w: f16[3000001, 16, 64]) -> f16[3000001, 16, 64] = x @ w
        def running(x: u8[70001, 40000]) -> u8[70001, 40000] = cumsum(x, axis=1)
        def down(x: u8[40, 70000001]) -> u8[40, 70000001] = cumsum(x, axis=0)
        def gathered(x: u8[70001, 40001], i: i64[2]) -> u8[2, 40001] = gather(x, i, axis=0)
        def windows(x: f16[1, 70001, 200, 200], w: f16[70001, 1, 3, 3]) -> f16[1, 70001, 200, 200]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=70001)
        def image(x: f32[600001, 16, 16, 16], w: f32[16, 16, 3, 3]) -> f32[600001, 16, 16, 16]
          = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])
        def heads(q: f16[600001, 8, 64], k: f16[600001, 64, 64], v: f16[600001, 64, 64]) -> f16[600001, 8, 64]
          = attention(q, k, v, scale=0.25)
        def joined(x: u8[70001, 39960], y: u8[70001, 41]) -> u8[70001, 40001] = concat(x, y, axis=1)
    ";
    let pair: Ends = &[(1, 5.0), (2, 7.0)];
    let cases: &[(&str, &[Ends], Ends)] = &[
        ("elements", &[pair], &[(1, 6.0), (2, 8.0), (3, 1.0)]),
        ("odd", &[pair], &[(1, 6.0), (2, 8.0), (3, 1.0)]),
        ("turned", &[pair], &[(1, 5.0), (70_011, 7.0), (2, 0.0)]),
        ("part", &[pair], &[(1, 5.0), (2, 7.0), (3, 0.0)]),
        ("rows", &[pair], &[(1, 12.0), (2, 0.0)]),
        ("short", &[&[(1, f64::INFINITY)]], &[(2, f64::NAN), (41, 1.0 / 40.0)]),
        ("columns", &[pair], &[(1, 5.0), (2, 7.0)]),
        ("product", &[pair, &[(1, 2.0), (40_001, 3.0)]], &[(1, 31.0), (2, 0.0)]),
        ("plain", &[pair, &[(1, 2.0), (40_001, 3.0)]], &[(1, 31.0), (2, 0.0)]),
        ("tall", &[pair, &[(1, 2.0), (65, 3.0)]], &[(1, 31.0), (2, 0.0)]),
        ("few", &[pair, &[(1, 2.0), (70_000_002, 3.0)]], &[(1, 31.0), (2, 0.0)]),
        ("batches", &[pair, &[(1, 2.0), (65, 3.0)]], &[(1, 31.0), (2, 0.0)]),
        ("running", &[pair], &[(1, 12.0), (2, 7.0), (3, 0.0)]),
        ("down", &[pair], &[(1, 5.0), (2, 7.0), (3, 0.0)]),
        ("gathered", &[pair, &[(1, 70_000.0)]], &[(1, 5.0), (2, 7.0), (40_002, 0.0)]),
        ("windows", &[pair, &[(5, 2.0), (1, 3.0)]], &[(1, 10.0), (202, 15.0), (203, 21.0)]),
        ("image", &[pair, &[(5, 2.0), (1, 3.0)]], &[(1, 10.0), (18, 15.0), (19, 21.0)]),
        ("heads", &[&[], &[], &[(1, 64.0)]], &[(1, 1.0), (2, 0.0)]),
        ("joined", &[&[(1, 3.0)], pair], &[(1, 5.0), (2, 7.0), (42, 3.0)]),
    ];
    let library = library_with(text);
    let only = std::env::var("MLC_CUDA_CASE").ok();
    for &(name, given, wanted) in cases.iter().filter(|c| only.as_deref().is_none_or(|o| o == c.0))
    {
        let plan = select_kernels(
            program_of(&library, name),
            &library,
            library.target("cuda").expect("shipped"),
        );
        let code = launches(&plan, &library).unwrap_or_else(|e| panic!("{name}: {e}"));
        let found = ends(&code, given, wanted);
        let rounded = |v: f64| Tensor::from_f64(code.outputs[0].0.dtype, vec![1], &[v]).to_f64()[0];
        let same = found
            .iter()
            .zip(wanted)
            .all(|(f, (_, w))| *f == rounded(*w) || f.is_nan() && w.is_nan());
        assert!(same, "{name}: {found:?}, not {wanted:?}");
    }
}
