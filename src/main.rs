//! The command line; see `mlc_rewrite::cli`.

fn main() -> std::process::ExitCode {
    mlc_rewrite::cli::main()
}
