//! Megakernel: all launches of a run as one, with grid barriers in between, for plans of small kernels where launch overhead dominates.
//!
//! A launch becomes a phase: a function whose blocks are distributed over the blocks of the grid. All blocks of the grid must be resident
//! at once, so there are no more of them than fit. Phases communicate through global memory alone.

use super::WAIT;
use crate::autotune::library_candidate::LibraryKind;
use crate::launch::{Argument, Launch, Launches, SharedArray};

/// Threads of a block in all launches that are merged.
pub const THREADS: u32 = 256;
/// Blocks of a multiprocessor: as many as launch bounds promise, see `KERNEL` in `prelude.cuh`.
const RESIDENT: u32 = 2;
/// Launches and pointers at most.
const MOST: usize = 256;
const POINTERS: usize = 128;
/// Bytes of shared memory that a block has.
const SHARED: u64 = 48 << 10;

/// Microseconds between launches of a captured graph, and what a cooperative launch takes more than another one; published figures and
/// estimates, not measured.
const BETWEEN: f64 = 1.3;
const TOGETHER: f64 = 1.0;
/// Microseconds of a grid barrier: of one block, of more, and for each of them.
const BARRIER_OF_ONE: f64 = 0.05;
const BARRIER: f64 = 0.6;
const ARRIVAL: f64 = 0.003;

/// The megakernel is not tried where separate launches are estimated to be so many times faster.
const CLEARLY: f64 = 1.3;
/// Bytes of source of the phases at most, unless a megakernel is forced.
const TEXT: usize = 96 << 10;

/// Blocks of the megakernel.
fn blocks(launches: &[Launch], processors: u32) -> u32 {
    let most = launches.iter().map(|l| l.grid[0]).max().unwrap_or(1);
    most.min(RESIDENT * processors)
}

/// Whether small launches are estimated to be faster as a megakernel; `None` if they clearly are not. Blocks beyond those of the grid
/// would run in turns.
pub fn prospect(out: &Launches, processors: u32) -> Option<bool> {
    let launches: Vec<Launch> = running(out).cloned().collect();
    let grid = blocks(&launches, processors);
    let are_small = launches.iter().all(|l| l.grid[0] <= grid);
    let barrier = if grid == 1 { BARRIER_OF_ONE } else { BARRIER + ARRIVAL * f64::from(grid) };
    let between = launches.len().saturating_sub(1) as f64;
    let (apart, as_one) = (between * BETWEEN, between * barrier + TOGETHER);
    // Beside convolutions by a library the clock still decides.
    let is_alone =
        out.library_candidates.iter().all(|a| a.work.kind() == LibraryKind::Convolutions);
    let is_open = are_small && is_alone && as_one < CLEARLY * apart;
    is_open.then_some(as_one < apart)
}

/// Whether the megakernel compiles in seconds: a phase is inlined wherever it is called.
pub fn is_short(out: &Launches) -> bool {
    running(out).map(|l| l.source.len()).sum::<usize>() <= TEXT
}

fn running(out: &Launches) -> impl Iterator<Item = &Launch> {
    out.each.iter().filter(|l| l.has_blocks())
}

/// The source of a launch's function, parsed.
struct Function<'a> {
    parameters: Vec<&'a str>,
    body: &'a str,
}

fn taken_apart(l: &Launch) -> Option<Function<'_>> {
    let start = l.source.find(&format!(" {}(", l.function))?;
    let text = &l.source[start + l.function.len() + 2..];
    let (parameters, body) = text.split_once(") {\n")?;
    let (_, body) = body.split_once(WAIT)?;
    let parameters = parameters.split(", ").collect();
    Some(Function { parameters, body: body.strip_suffix("}\n")? })
}

/// The body of a function as that of a phase, with block indices of its own and its shared arrays in one pool; the bytes of the pool.
fn phase(body: &str) -> Option<(String, u64)> {
    let mut at = 0u64;
    let mut lines = vec![];
    for line in body.lines() {
        let Some((before, array)) = line.split_once("SHARED(") else {
            lines.push(line.replace("blockIdx.x", "own_block"));
            continue;
        };
        let SharedArray { parts: [ty, name, count], bytes, after } = SharedArray::read(array)?;
        lines.push(format!("{before}PART({ty}, {name}, {count}, {at});{after}"));
        at += bytes.next_multiple_of(16);
    }
    (at <= SHARED).then(|| (lines.join("\n") + "\n", at))
}

/// The megakernel of a run, if its launches allow it: the same number of threads, and shared arrays that fit.
pub fn merged(out: &Launches, processors: u32) -> Option<Launch> {
    let launches: Vec<&Launch> = running(out).collect();
    // Functions that need more registers than others would have them spilled; memory that is asked for at the launch is one array.
    let usual = format!("KERNEL({THREADS}) ");
    let is_usual =
        |l: &Launch| l.source.contains(&usual) && l.block == THREADS && l.large_bytes() == 0;
    let all_alike =
        launches.iter().all(|l| is_usual(l) && l.grid[1..] == [1, 1] && !l.is_cooperative());
    let all_alike = all_alike && launches.iter().all(|l| l.numbers.is_empty());
    if !all_alike || !(2..=MOST).contains(&launches.len()) {
        return None;
    }
    let mut arguments: Vec<Argument> = vec![];
    let mut names = vec![];
    let (mut functions, mut written, mut phases) = (String::new(), vec![], String::new());
    let mut shared = 16;
    for (number, l) in launches.iter().enumerate() {
        let function = taken_apart(l)?;
        if !written.contains(&l.function.as_str()) {
            written.push(&l.function);
            let parameters: Vec<String> =
                function.parameters.iter().map(|p| p.replacen("GLOBAL(", "PLAIN(", 1)).collect();
            let (body, bytes) = phase(function.body)?;
            shared = shared.max(bytes);
            let parameters = parameters.join(", ");
            functions += &format!("PHASE_OF(phase_{}, {parameters}) {{\n{body}}}\n", l.function);
        }
        let mut given = vec![];
        for a in &l.arguments {
            let same = |b: &Argument| b.place == a.place && b.dtype == a.dtype;
            let at = arguments.iter().position(same).unwrap_or_else(|| {
                arguments.push(*a);
                names.push(super::spelling::stored(a.dtype));
                arguments.len() - 1
            });
            let known = &mut arguments[at];
            known.bytes = known.bytes.max(a.bytes);
            known.written |= a.written;
            given.push(format!("p{at}"));
        }
        if number > 0 {
            phases += "  wait_for_grid(grid);\n";
        }
        let blocks = l.grid[0];
        phases += &format!(
            "  PHASE({number}) for (unsigned own_block = blockIdx.x; own_block < {blocks}; own_block += gridDim.x) {{\n    phase_{}({}, own_block);\n    __syncthreads();\n  }}\n",
            l.function,
            given.join(", ")
        );
    }
    if arguments.len() > POINTERS {
        return None;
    }
    let typed = |(i, ty): (usize, &&str)| {
        let constant = if arguments[i].written { "" } else { "const " };
        format!("PLAIN({constant}{ty}) p{i}")
    };
    let mut parameters: Vec<String> = names.iter().enumerate().map(typed).collect();
    parameters.push("PLAIN(unsigned) grid".into());
    arguments.push(Argument::grid());
    let all: Vec<Launch> = launches.iter().map(|l| (*l).clone()).collect();
    let source = format!(
        "// The launches of a run as one, whose blocks wait for each other in between.\nPOOL({shared})\n{functions}KERNEL({THREADS}) merged({}) {{\n{phases}}}\n",
        parameters.join(", ")
    );
    Some(Launch {
        function: "merged".into(),
        source,
        grid: [blocks(&all, processors), 1, 1],
        block: THREADS,
        arguments,
        numbers: vec![],
        kernel: launches[0].kernel,
        fallback: None,
    })
}
