//! The command `mlc-rewrite`, and how its process holds memory. The rest is in the library.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod large_blocks;

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: large_blocks::LargeBlocks = large_blocks::LargeBlocks;

fn main() -> ExitCode {
    mlc_rewrite::cli::main()
}
