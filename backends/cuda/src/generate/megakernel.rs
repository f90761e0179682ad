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

/// Microseconds between the end of a launch of a recorded run and the beginning of the next one, and what starting a grid whose blocks may wait
/// for each other takes more than another one; published figures and estimates, not measured.
const BETWEEN: f64 = 1.3;
const TOGETHER: f64 = 1.0;
/// The same of a barrier of one block, of more, and for each of them.
const BARRIER_OF_ONE: f64 = 0.05;
const BARRIER: f64 = 0.6;
const ARRIVAL: f64 = 0.003;

/// Where launches one by one are estimated to be so many times faster, the other way is not tried.
const CLEARLY: f64 = 1.3;
/// Bytes of text of the phases of a run that is not forced to be one launch.
const TEXT: usize = 96 << 10;

/// Blocks of the merged grid.
fn blocks(launches: &[Launch], processors: u32) -> u32 {
    let most = launches.iter().map(|l| l.grid[0]).max().unwrap_or(1);
    most.min(RESIDENT * processors)
}

/// Whether launches that compute little are estimated to be faster as one; `None` if they clearly are not. Where a launch has more blocks than
/// the grid, these take turns that they would not have to take otherwise.
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

/// Whether the compiler takes seconds at most for the launches as one: a phase is a function that is compiled anew wherever it is called.
pub fn is_short(out: &Launches) -> bool {
    running(out).map(|l| l.source.len()).sum::<usize>() <= TEXT
}

fn running(out: &Launches) -> impl Iterator<Item = &Launch> {
    out.each.iter().filter(|l| l.has_blocks())
}

/// The text of a launch's function, taken apart.
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

/// The body of a function as that of a phase: its blocks have numbers of their own, and its shared arrays are parts of one. The bytes of
/// these.
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

/// The launches of a run as one, if their code allows it: the same number of threads, and shared arrays that fit together.
pub fn merged(out: &Launches, processors: u32) -> Option<Launch> {
    let launches: Vec<&Launch> = running(out).collect();
    // Functions that need more registers than others would have them spilled; memory that is asked for at the launch is one array.
    let usual = format!("KERNEL({THREADS}) ");
    let is_usual =
        |l: &Launch| l.source.contains(&usual) && l.block == THREADS && l.large_bytes() == 0;
    let all_alike =
        launches.iter().all(|l| is_usual(l) && l.grid[1..] == [1, 1] && !l.is_cooperative());
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
        kernel: launches[0].kernel,
        fallback: None,
    })
}
