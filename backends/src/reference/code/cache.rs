//! A cache of typed and compiled applications: many runs apply the same operators to tensors of the same types.

use super::super::Engine;
use super::super::accelerated::{affine, tables};
use super::super::array::Elements;
use super::compile::{self, MeaningCode, MeaningParam, OpenCode};
use mlc_dsl::eval::Env;
use mlc_dsl::expr::{Expr, ExprKind, IndexVar};
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{CallId, CallKind, Callable, Library};
use mlc_dsl::typing::infer::infer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Applications that are kept at a time.
const KEPT: usize = 1 << 12;

/// Steps that an application takes beside those of its elements: it is typed, and its results are new tensors.
const APPLICATION: f64 = 256.0;

/// The error of a run that would take more steps than it may.
pub const TOO_LONG: &str = "it takes too many steps";

/// What runs over the operators of one library share. Nothing that is computed depends on it, but a run may be refused as too long.
pub struct CodeCache<'l> {
    library: &'l Library,
    known: RefCell<HashMap<Key, Rc<CompiledMeaning>>>,
    /// Steps that a run may take: values of an element or of a term of a reduction.
    most: f64,
    /// Those that are left to this run.
    left: Cell<f64>,
    /// Those that all runs have taken.
    spent: Cell<f64>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    call: CallId,
    engine: Engine,
    attrs: Vec<Option<Attr>>,
    args: Vec<(DType, Vec<usize>)>,
}

/// An application, ready to run on elements.
pub struct CompiledMeaning {
    /// The types of the results.
    pub types: Vec<Type>,
    /// What the declaration's names stand for.
    pub env: Env,
    /// The code of each result of an operator with a meaning.
    pub codes: Vec<MeaningCode>,
    /// The tables that each code reads behind its inputs.
    pub tables: Vec<Vec<Elements>>,
    /// Values of elements and of terms of reductions that it computes.
    steps: f64,
}

impl<'l> CodeCache<'l> {
    /// Nothing is compiled yet.
    pub fn new(library: &'l Library) -> CodeCache<'l> {
        CodeCache::bounded(library, f64::INFINITY)
    }

    /// The same for runs of so many steps.
    pub fn bounded(library: &'l Library, most: f64) -> CodeCache<'l> {
        CodeCache {
            library,
            known: RefCell::default(),
            most,
            left: Cell::new(most),
            spent: Cell::default(),
        }
    }

    /// A run begins.
    pub(crate) fn begin(&self) {
        self.left.set(self.most);
    }

    /// Takes the steps of an application out of those that are left to the run.
    fn spend(&self, steps: f64) -> Result<(), String> {
        let left = self.left.get() - steps - APPLICATION;
        self.left.set(left);
        if left < 0.0 {
            return Err(TOO_LONG.into());
        }
        self.spent.set(self.spent.get() + steps + APPLICATION);
        Ok(())
    }

    /// The steps that all runs have taken.
    pub fn spent(&self) -> f64 {
        self.spent.get()
    }

    /// Where the operators are declared.
    pub fn library(&self) -> &'l Library {
        self.library
    }

    /// The application of an operator to values of these types.
    pub(crate) fn get(
        &self,
        engine: Engine,
        call: CallId,
        attrs: &[Option<Attr>],
        args: Vec<(DType, Vec<usize>)>,
    ) -> Result<Rc<CompiledMeaning>, String> {
        let key = Key { call, engine, attrs: attrs.to_vec(), args };
        if let Some(known) = self.known.borrow().get(&key) {
            self.spend(known.steps)?;
            return Ok(known.clone());
        }
        let callable = self.library.call(call);
        let mut compiled = compiled(callable, engine, attrs, &key.args)?;
        self.spend(compiled.steps)?;
        if engine == Engine::Fast && callable.recurrence.is_none() {
            for (code, tables) in compiled.codes.iter_mut().zip(&mut compiled.tables) {
                (*code, *tables) = tables::tabulated(code.clone(), key.args.len());
            }
        }
        let compiled = Rc::new(compiled);
        let mut known = self.known.borrow_mut();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// An application to values of these element types and extents.
pub fn compiled(
    callable: &Callable,
    engine: Engine,
    attrs: &[Option<Attr>],
    args: &[(DType, Vec<usize>)],
) -> Result<CompiledMeaning, String> {
    let ty = |(dtype, shape): &(DType, Vec<usize>)| {
        Type::new(*dtype, shape.iter().map(|&d| Extent::from(d)).collect())
    };
    let types: Vec<Type> = args.iter().map(ty).collect();
    let refs: Vec<&Type> = types.iter().collect();
    let app = infer(callable, &refs, attrs).map_err(|e| e.to_string())?;
    let mut codes = Vec::new();
    let mut steps = 0.0;
    if let CallKind::Op(meanings) = &callable.kind {
        let own = own_results(callable, &app.types)?;
        let names = callable.inputs.iter().map(|i| &i.name);
        let names = names.chain(callable.outputs.iter().map(|o| &o.0));
        let params: Vec<MeaningParam> = names
            .zip(args.iter().chain(&own))
            .map(|(name, (dtype, shape))| MeaningParam { name, dtype: *dtype, shape })
            .collect();
        for (i, ((name, pattern), ty)) in callable.outputs.iter().zip(&app.types).enumerate() {
            let meaning =
                meanings.get(i).ok_or_else(|| format!("output `{name}` has no meaning"))?;
            let shape = ty.known_shape();
            let shape = shape.ok_or_else(|| format!("the result's type {ty} is not known"))?;
            let elements: f64 = shape.iter().map(|&n| n as f64).product();
            steps += elements * (1.0 + terms(&meaning.value, &app.env));
            let dims = pattern.dims.as_deref();
            let recurrence = callable.recurrence.as_ref();
            let env = &app.env;
            let code = compile::meaning(meaning, dims, ty.dtype, &shape, &params, env, recurrence)?;
            codes.push(match engine {
                Engine::Fast => affine::accelerate(&code),
                Engine::Plain | Engine::Noisy(_) => code,
            });
        }
    }
    let tables = vec![Vec::new(); codes.len()];
    Ok(CompiledMeaning { types: app.types, env: app.env, codes, tables, steps })
}

/// The code of each result of an operator with a meaning where extents may be open.
///
/// # Errors
/// It does not fit such types, or it needs an extent's number.
pub fn open_codes(
    callable: &Callable,
    attrs: &[Option<Attr>],
    args: &[&Type],
) -> Result<Vec<OpenCode>, String> {
    let app = infer(callable, args, attrs).map_err(|e| e.to_string())?;
    let CallKind::Op(meanings) = &callable.kind else { return Ok(vec![]) };
    let names = callable.inputs.iter().map(|i| &*i.name);
    let params: Vec<(&str, &Type)> = names.zip(args.iter().copied()).collect();
    let mut codes = Vec::with_capacity(meanings.len());
    for (((_, pattern), ty), meaning) in callable.outputs.iter().zip(&app.types).zip(meanings) {
        let dims = pattern.dims.as_deref();
        codes.push(compile::open_meaning(meaning, dims, ty, &params, &app.env)?);
    }
    Ok(codes)
}

/// Terms of reductions that one element has.
fn terms(e: &Expr, env: &Env) -> f64 {
    let inside: f64 = e.parts().into_iter().map(|p| terms(p, env)).sum();
    let ExprKind::Reduce(r) = &e.kind else { return inside };
    let number = |e: &Extent| e.as_const().unwrap_or(1) as f64;
    let values = |v: &IndexVar| match env.seg(&v.name) {
        Some(extents) if v.segment => extents.iter().map(number).product(),
        _ => env.axis(&v.name).map_or(1.0, number),
    };
    r.over.iter().map(values).product::<f64>() * (1.0 + inside)
}

/// The types of the results, if the equations read them.
fn own_results(callable: &Callable, types: &[Type]) -> Result<Vec<(DType, Vec<usize>)>, String> {
    let of = |t: &Type| {
        let shape = t.known_shape().ok_or_else(|| format!("the result's type {t} is not known"))?;
        Ok((t.dtype, shape))
    };
    match callable.recurrence {
        Some(_) => types.iter().map(of).collect(),
        None => Ok(vec![]),
    }
}
