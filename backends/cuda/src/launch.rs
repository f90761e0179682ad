//! What a plan becomes for a device: translation units of CUDA C++, and launches of their functions in order.
//!
//! Plain data, in between the generator and whatever executes it. Fixed extents are numbers in the code; open ones, and what
//! is computed from them, are numbers that a function takes behind its pointers.

use super::autotune::library_candidate::LibraryCandidate;
use super::code::Code;
use mlc_dsl::ir::{ConstId, DType};
use std::collections::HashMap;
use std::ops::Range;

/// Where a pointer argument points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An input of the program.
    Input(usize),
    /// A constant of the program.
    Constant(ConstId),
    /// A constant of the program with its last two axes transposed.
    Transposed(ConstId),
    /// The arena, at this byte offset.
    Arena(u64),
    /// Memory that persists between runs, at this byte offset: values that depend on constants alone.
    Kept(u64),
    /// An output of the program.
    Output(usize),
    /// The fault record of the device (index out of range): [`FAULT_WORDS`] words of 64 bits, zero before a run.
    Fault,
    /// The counter of grid barriers: [`GRID_BYTES`] bytes, zero before the first run.
    Grid,
    /// The counters by which a block finds that it is the last of its tile: zero before and after every launch.
    Counts,
}

/// Bytes of the counter of grid barriers.
pub const GRID_BYTES: u64 = 4;

impl Place {
    /// Whether its beginning is aligned to 16 bytes. Allocations of a device are.
    pub fn is_aligned(&self) -> bool {
        match self {
            Place::Arena(at) | Place::Kept(at) => at % 16 == 0,
            Place::Input(_) | Place::Constant(_) | Place::Transposed(_) | Place::Output(_) => true,
            Place::Fault | Place::Grid | Place::Counts => true,
        }
    }
}

/// Words of a fault record: whether there is one, the node, the axis (-1 if the index exists for no element), the
/// index and the extent, as `out_of_range` in `functions.cuh` writes them.
pub const FAULT_WORDS: usize = 5;

/// A pointer argument of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Where it points.
    pub place: Place,
    /// Bytes that the function may touch from there on.
    pub bytes: u64,
    /// The type of the elements there.
    pub dtype: DType,
    /// Whether the function writes it.
    pub written: bool,
}

impl Argument {
    /// The counter of grid barriers.
    pub fn grid() -> Argument {
        Argument { place: Place::Grid, bytes: GRID_BYTES, dtype: DType::U32, written: true }
    }

    /// The counters by which the last block of a tile is found, one per tile.
    pub fn counts(tiles: usize) -> Argument {
        let bytes = 4 * tiles as u64;
        Argument { place: Place::Counts, bytes, dtype: DType::U32, written: true }
    }

    /// The fault record of the device.
    pub fn fault() -> Argument {
        let bytes = 8 * FAULT_WORDS as u64;
        Argument { place: Place::Fault, bytes, dtype: DType::U64, written: true }
    }
}

/// One launch of a generated function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The name of the function; unique in a plan.
    pub function: String,
    /// Its source, without the prelude. Equal sources have equal names.
    pub source: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Its pointer arguments.
    pub arguments: Vec<Argument>,
    /// The numbers that it takes behind them, of 64 bits each: open extents, and what is computed from them.
    pub numbers: Vec<i64>,
    /// The kernel of the plan that it belongs to.
    pub kernel: usize,
    /// Launched instead where the device refuses a cooperative launch.
    pub fallback: Option<Box<Launch>>,
}

impl Launch {
    /// Whether it is a cooperative launch: it has grid barriers, so all blocks must be resident at once.
    pub fn is_cooperative(&self) -> bool {
        self.arguments.iter().any(|a| a.place == Place::Grid)
    }

    /// Bytes of shared memory of a block, as its source declares them; `None` if that cannot be told.
    pub fn shared_bytes(&self) -> Option<u64> {
        let mut each = self.source.split("SHARED(").skip(1).map(SharedArray::read);
        each.try_fold(0u64, |sum, array| sum.checked_add(array?.bytes))
    }

    /// Those of them that are dynamic: requested at the launch.
    pub fn large_bytes(&self) -> u64 {
        let arrays = self.source.split("LARGE_SHARED(").skip(1).map(SharedArray::read);
        arrays.flatten().map(|array| array.bytes).sum()
    }

    /// False if it computes nothing; devices refuse such launches.
    pub fn has_blocks(&self) -> bool {
        !self.grid.contains(&0)
    }
}

/// An array in shared memory, as a function's source declares it.
pub struct SharedArray<'a> {
    /// The type of its elements, its name and its length.
    pub parts: [&'a str; 3],
    /// Its bytes.
    pub bytes: u64,
    /// The source after it.
    pub after: &'a str,
}

impl SharedArray<'_> {
    /// Parses one, from after `SHARED(` on.
    pub fn read(text: &str) -> Option<SharedArray<'_>> {
        let (array, after) = text.split_once(");")?;
        let parts: [&str; 3] = array.split(", ").collect::<Vec<_>>().try_into().ok()?;
        let bytes = size_of(parts[0])?.checked_mul(parts[2].parse().ok()?)?;
        Some(SharedArray { parts, bytes, after })
    }
}

/// Bytes of an element of a shared array.
fn size_of(ty: &str) -> Option<u64> {
    Some(match ty {
        "bool" | "unsigned char" | "signed char" => 1,
        "unsigned short" | "short" => 2,
        "float" | "int" | "unsigned" => 4,
        "double" | "long long" | "unsigned long long" => 8,
        _ => return None,
    })
}

/// An input or output of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the program.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its extents.
    pub shape: Vec<usize>,
}

/// Launches with another tiling that may replace launches of a run, if the device finds them right and faster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The launches that are replaced. A library candidate replaces the same launches or none of them.
    pub launches: Range<usize>,
    /// What replaces them.
    pub replacement: Vec<Launch>,
    /// How they differ, for a note.
    pub description: String,
    /// Whether they use warpgroup instructions (`wgmma`).
    pub by_warpgroups: bool,
}

/// A plan as launches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launches {
    /// Launches of the setup, before the first run: they compute what depends on constants alone.
    pub once: Vec<Launch>,
    /// The launches of a run, in order.
    pub each: Vec<Launch>,
    /// All launches of a run as one, where that is chosen, or may be.
    pub megakernel: Option<Launch>,
    /// If timing is to decide whether the megakernel is used: the estimate, which decides where the device has no clock.
    pub megakernel_estimate: Option<bool>,
    /// Library operations that may replace launches of a run, in the order of these.
    pub library_candidates: Vec<LibraryCandidate>,
    /// Other tilings that may replace launches of a run, in the order of these.
    pub variants: Vec<Variant>,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes that are kept between runs.
    pub kept: u64,
    /// Constants that some launch reads.
    pub constants: Vec<ConstId>,
    /// Those that one reads with their last two axes transposed.
    pub transposed: Vec<ConstId>,
    /// The inputs of the program.
    pub inputs: Vec<Port>,
    /// The outputs, and where each one comes from: an output of its own, or an input or a constant that it is equal to.
    pub outputs: Vec<(Port, Place)>,
    /// What a reader should know of how they were made.
    pub notes: Vec<String>,
    /// Names of the node numbers in fault records: the operator and, if there is one, the imported node's name.
    pub nodes: Vec<String>,
}

impl Launches {
    /// Replaces launches by a variant.
    pub fn replace(&mut self, variant: &Variant) {
        let Range { start, end } = variant.launches;
        let moved =
            |at: usize| if at >= end { at - end + start + variant.replacement.len() } else { at };
        let others = self.variants.iter_mut().map(|v| &mut v.launches);
        for range in self.library_candidates.iter_mut().map(|a| &mut a.launches).chain(others) {
            *range = moved(range.start)..moved(range.end);
        }
        self.each.splice(start..end, variant.replacement.iter().cloned());
    }

    /// Adds lines below the first comment of every function, given the kernels of the plan that launch it, in the order of their
    /// first launches.
    pub fn annotate(&mut self, lines: &dyn Fn(&[usize]) -> Vec<String>) {
        let mut kernels: HashMap<String, Vec<usize>> = HashMap::new();
        for launch in self.once.iter().chain(&self.each) {
            let known = kernels.entry(launch.function.clone()).or_default();
            if !known.contains(&launch.kernel) {
                known.push(launch.kernel);
            }
        }
        for launch in self.once.iter_mut().chain(&mut self.each) {
            let Some((first, rest)) = launch.source.split_once('\n') else { continue };
            let told = lines(&kernels[&launch.function]);
            let told: String = told.iter().map(|l| format!("// {l}\n")).collect();
            launch.source = format!("{first}\n{told}{rest}");
        }
    }

    /// The functions of all launches.
    pub fn code(&self) -> Code<'_> {
        let rest = self.library_candidates.iter().filter_map(|a| a.epilogue.as_ref());
        let others = self.variants.iter().flat_map(|v| &v.replacement);
        let all =
            self.once.iter().chain(&self.each).chain(rest).chain(&self.megakernel).chain(others);
        let all = all.flat_map(|l| std::iter::once(l).chain(l.fallback.as_deref()));
        let mut code = Code::default();
        all.for_each(|l| code.add(&l.function, &l.source));
        code
    }

    /// The functions of all launches as one translation unit.
    pub fn unit(&self) -> String {
        self.code().unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(function: &str, source: &str) -> Launch {
        Launch {
            function: function.into(),
            source: source.into(),
            grid: [1; 3],
            block: 1,
            arguments: vec![],
            numbers: vec![],
            kernel: 0,
            fallback: None,
        }
    }

    #[test]
    fn what_takes_the_place_of_launches_moves_those_behind_it() {
        let named = |names: &str| names.chars().map(|c| launch(&c.to_string(), "")).collect();
        let variant = |launches: Range<usize>, names: &str| Variant {
            launches,
            replacement: named(names),
            description: String::new(),
            by_warpgroups: false,
        };
        let all = vec![variant(1..2, "xy"), variant(3..5, "z")];
        let mut launches = Launches { each: named("abcdef"), variants: all, ..Launches::default() };
        for (at, names) in ["axycdef", "axyczf"].into_iter().enumerate() {
            launches.replace(&launches.variants[at].clone());
            let found: String = launches.each.iter().map(|l| l.function.as_str()).collect();
            assert_eq!(found, names);
        }
        assert_eq!(launches.variants[1].launches, 4..5);
    }

    #[test]
    fn memory_that_is_shared_is_told() {
        let source = "SHARED(float, a, 10); LARGE_SHARED(unsigned short, b, 100);";
        let launch = launch("f", source);
        assert_eq!((launch.shared_bytes(), launch.large_bytes()), (Some(240), 200));
    }
}
