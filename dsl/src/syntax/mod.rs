//! Text to syntax tree and back.

mod advice;
pub mod ast;
mod build;
mod explain;
mod items;
mod layout;
mod params;
mod parse;
mod print;
mod print_expr;
mod resolved;
mod same;
mod scan;
mod terms;

pub use parse::parse;
pub use print::{print_file, print_item};
pub use print_expr::print_expr;
pub use resolved::print_resolved;
pub use same::same;
pub use scan::is_reserved;
