//! What a block of attention consists of besides its mainloops, which are written once: for extents that are numbers in the code, and for
//! those that are arguments of the function.

use super::kernel::least;
use super::tiling::{AttentionTiling, MultiplyUnit};
use super::{decode, masked_tiles, simt, split_kv, tensor_cores};
use crate::generate::emit::StatementWriter;

/// A tile of a factor: the expressions of its first line where that is not the block's, and of the first step of its lines.
#[derive(Clone, Copy, Debug)]
pub enum Tile<'a> {
    /// Of Q.
    Query { from: &'a str },
    /// Of K.
    Key { first: &'a str, from: &'a str },
    /// Of V, whose lines are keys, too.
    Value,
}

/// Names the sum, or the score, of a lane.
pub type NameOf<'a> = &'a dyn Fn(&str) -> String;

/// Writes a block.
pub trait AttentionWriter: StatementWriter {
    /// The tile sizes. Of the extents in it, those of the columns and of the depth are the ones of a run.
    fn tiling(&self) -> AttentionTiling;

    /// The type of index variables.
    fn index_type(&self) -> &'static str;

    /// Sets the registers of a thread.
    fn limit_registers(&mut self, registers: u32);

    /// How many queries there are.
    fn queries(&mut self) -> String;

    /// How many keys there are.
    fn keys(&mut self) -> String;

    /// Into how many parts the keys are cut, and how many there are at most.
    fn parts(&mut self) -> (String, i64);

    /// The number of the block among those of a part, and how many these are.
    fn block_of_part(&mut self) -> (String, String);

    /// Whether all tiles of so many keys are whole.
    fn are_whole(&self, keys: i64) -> bool;

    /// Begins to copy a tile to this place of the shared array `tile`, or loads it if it is not in memory as it is.
    fn begin_tile(&mut self, tile: Tile<'_>, to: &str);

    /// Loads the rows as floats, in lines of so many steps.
    fn load_rows(&mut self, steps: i64);

    /// Elements of a tile's line that a thread reads at once from memory, at most so many.
    fn width(&mut self, tile: Tile<'_>, most: i64) -> i64;

    /// Reads so many elements of a line, at `place` and `deep`, to `{to}.at[…]`.
    fn read(&mut self, tile: Tile<'_>, width: i64, to: &str);

    /// Turns products of the row `down` and `width` keys from `across` on into scores: `score` names the variable with a product,
    /// which becomes the score, or minus infinity outside.
    fn scores(&mut self, width: i64, score: NameOf<'_>);

    /// Stores `width` results of a row `down` from the column `across` on, which are inside: `sum` names a sum of all keys, `total` the
    /// sum of the row's exponentials.
    fn finish(&mut self, width: i64, sum: NameOf<'_>, total: &str);

    /// The largest of the scores that masks replace or lower, if there are masks.
    fn hidden(&self) -> Option<f64>;

    /// Declares `counts`: whether an element of the tile at `keys` is not masked. These threads share the tile.
    fn declare_counts(&mut self, own: &str, threads: u32);
}

/// Writes the loop over the keys and what follows it; the position of the block and its range of keys (`begin`, `end`) are declared, and
/// where it leaves its parts.
pub fn write(e: &mut impl AttentionWriter) {
    let c = e.tiling();
    match (c.decode, c.units) {
        (Some(few), _) => decode::write(e, few),
        (None, MultiplyUnit::Half(_) | MultiplyUnit::Tf32) => tensor_cores::write(e),
        (None, MultiplyUnit::Real) => simt::write(e),
    }
    if c.parts > 1 {
        split_kv::combine(e);
    }
}

/// Advances `keys` to the next tile that is not masked out.
pub fn find_tile(e: &mut impl AttentionWriter) {
    if e.hidden().is_some() {
        let keys = e.tiling().keys;
        e.open(&format!("for (; keys < end; keys += {keys})"));
        masked_tiles::leave_out(e);
        e.line("break;");
        e.close();
    }
}

/// Writes what an element outside has: minus infinity.
pub fn outside(e: &mut impl AttentionWriter, width: i64, score: NameOf<'_>) {
    e.line("#pragma unroll");
    let outside = format!("{} = {};", score("lane"), least());
    e.line(format!("for (int lane = 0; lane < {width}; ++lane) {outside}"));
}

/// Stores `width` sums of a row `down` from the column `across` on: `sum` names one, `total` the sum of the row's exponentials,
/// `most` its largest element.
pub fn results(
    e: &mut impl AttentionWriter,
    width: i64,
    sum: NameOf<'_>,
    [total, most]: [&str; 2],
) {
    open_inside(e);
    match e.tiling().parts {
        1 => e.finish(width, sum, total),
        _ => split_kv::store(e, width, sum, [total, most]),
    }
    e.close();
}

/// Opens the bounds check of the row `down` and the column `across`.
pub fn open_inside(e: &mut impl AttentionWriter) {
    let (queries, columns) = (e.queries(), e.tiling().sizes.columns);
    e.open(&format!("if (down < {queries} && across < {columns})"));
}
