//! Values of single attributes that are tried of every law, each by itself.

use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{AttrKind, Expr};
use mlc_dsl::ir::Attr;
use mlc_dsl::library::{Law, Name};

/// Numbers and integers of a law that are no ordinary ones, those beyond its ranges among them: a range advises samples, but a
/// model may have any number.
pub(crate) fn special_values(law: &Law) -> Vec<(Name, Attr)> {
    let mut out = Vec::new();
    let bound = |e: Option<&Expr>| eval(e?, &Env::default()).ok().and_then(|a| a.as_i64());
    for p in &law.attrs {
        let range = p.ty.range.as_ref();
        let (low, high) =
            range.map_or((None, None), |(l, h)| (bound(l.as_ref()), bound(h.as_ref())));
        match p.ty.kind {
            AttrKind::Float => {
                let all = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -2.0];
                out.extend(all.map(|v| (p.name.clone(), Attr::float(v))));
            }
            AttrKind::Int => {
                let mut all = vec![-1, 0, 1];
                all.extend(low.into_iter().flat_map(|l| [l - 1, -l]));
                all.extend(high.into_iter().flat_map(|h| [h + 1, -h]));
                all.sort_unstable();
                all.dedup();
                out.extend(all.into_iter().map(|v| (p.name.clone(), Attr::int(v))));
            }
            _ => {}
        }
    }
    out
}
