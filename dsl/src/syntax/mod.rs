//! Parser and printer of `.rules` texts.

mod advice;
pub mod ast;
mod build;
mod equality;
mod foreign;
mod items;
pub mod names;
mod params;
mod parse;
mod parse_errors;
mod pretty;
mod print;
mod print_expr;
mod print_resolved;
mod print_signature;
mod scan;
mod terms;

pub use equality::same;
pub use params::CLASSES;
pub use parse::parse;
pub use print::{print_file, print_item};
pub use print_expr::print_expr;
pub use print_resolved::print_resolved;
pub(crate) use print_resolved::{written_domain, written_type};
pub use print_signature::signature_of;
pub use scan::{is_reserved, reserved_words};
