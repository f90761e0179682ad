//! Evaluates the terms of a law to the values of both sides, member by member.
//!
//! Unbound attributes are chosen while the left side is built, when its operators and the types of
//! their arguments are known. Families are expanded member by member.

use super::facts::{Conjunct, LawFacts};
use super::instance::{InstanceRefusal, UNDECIDED};
use crate::sample::attrs::{self, AttrChoices, OpenApplication};
use crate::sample::draft::SampleDraft;
use crate::sample::repair::{self, CalleeNames, OwnNames, Repair};
use mlc_dsl::eval::{Env, EvalError, eval, truth};
use mlc_dsl::expr::{AttrKind, Expr, ExprKind};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Value};
use mlc_dsl::library::{AttrParam, CallId, Dim, LawSide, Name};
use mlc_dsl::random::Random;
use mlc_dsl::term::{TermId, TermKind};
use mlc_dsl::typing::infer::{resolve_dtype, unify};
use mlc_dsl::typing::instantiate::bind_dims;
use std::cell::Cell;
use std::collections::BTreeSet;

/// Where a walk stands.
pub(crate) struct SideEvaluator<'f, 'l> {
    facts: &'f LawFacts<'l>,
    /// The program so far.
    pub builder: Builder<'l>,
    /// The draft, with the attributes chosen so far.
    pub draft: SampleDraft,
    envs: Vec<Env>,
    /// Per member, per variable.
    vars: Vec<Vec<Value>>,
    /// Per term, per member.
    done: Vec<Vec<Vec<Value>>>,
    /// Per member: the shape of the family's output on the left.
    each_shape: Vec<Vec<Extent>>,
    /// Changes that may help where an application failed.
    pub fixes: Vec<Repair>,
    /// The conditions of that operator that do not hold, in the law's names.
    pub guards: Vec<Expr>,
    /// Per conjunct: whether it is to hold.
    pub wanted: Vec<bool>,
    /// The law's numbers, before they are rounded to their types.
    pub numbers: Vec<(DType, f64)>,
}

impl<'f, 'l> SideEvaluator<'f, 'l> {
    /// Nothing but the inputs.
    pub(crate) fn start(
        facts: &'f LawFacts<'l>,
        draft: SampleDraft,
        envs: Vec<Env>,
    ) -> Result<SideEvaluator<'f, 'l>, String> {
        let mut builder = Builder::new(facts.library);
        let members = draft.members;
        let mut vars: Vec<Vec<Value>> = vec![vec![]; members];
        for v in &facts.law.vars {
            let mut shared = None;
            for (m, env) in envs.iter().enumerate() {
                let ty = env.tensor(&v.name).cloned().ok_or("a variable has no type")?;
                let value = match shared {
                    Some(value) if !v.each => value,
                    _ if v.each => builder.input(&format!("{}{}", v.name, m + 1), ty),
                    _ => builder.input(&v.name, ty),
                };
                shared = Some(value);
                vars[m].push(value);
            }
        }
        let done = vec![Vec::new(); facts.law.terms.len()];
        let mut w = SideEvaluator {
            facts,
            builder,
            draft,
            envs,
            vars,
            done,
            each_shape: vec![],
            fixes: vec![],
            guards: vec![],
            wanted: vec![],
            numbers: vec![],
        };
        w.bind_axes();
        Ok(w)
    }

    /// The position of a declared axis follows from the types.
    fn bind_axes(&mut self) {
        for p in &self.facts.law.attrs {
            let Some(of) = p.ty.axis() else { continue };
            let at = (0..self.facts.law.vars.len()).find_map(|v| {
                let dims = self.facts.dims(v);
                let i = dims.iter().position(|d| matches!(d, Dim::Axis(n) if n == of))?;
                mlc_dsl::typing::infer::resolve_dims(&dims[..i], &self.envs[0]).ok()
            });
            if let Some(before) = at
                && self.envs[0].attr(&p.name).is_none()
            {
                self.bind(&p.name, Attr::int(before.len() as i64));
            }
        }
    }

    /// Which variable each input is.
    pub(crate) fn input_vars(&self) -> Vec<usize> {
        let mut out = Vec::new();
        for (i, v) in self.facts.law.vars.iter().enumerate() {
            let copies = if v.each { self.draft.members } else { 1 };
            out.extend(std::iter::repeat_n(i, copies));
        }
        out
    }

    /// The values of a side's outputs; a family's output is one per member.
    pub(crate) fn side(
        &mut self,
        sides: &[LawSide],
        rng: &mut Random,
    ) -> Result<Vec<(String, Value)>, String> {
        let mut needed: BTreeSet<TermId> = sides.iter().map(|s| s.root).collect();
        let mut stack: Vec<TermId> = needed.iter().copied().collect();
        while let Some(t) = stack.pop() {
            for &a in &self.facts.law.terms.get(t).args {
                if needed.insert(a) {
                    stack.push(a);
                }
            }
        }
        for t in needed {
            self.term(t, rng)?;
        }
        let mut out = Vec::new();
        for s in sides {
            let copies = if s.each { self.draft.members } else { 1 };
            for m in 0..copies {
                let name = if s.each { format!("{}{}", s.name, m + 1) } else { s.name.to_string() };
                out.push((name, self.value(s.root, m)?));
            }
            if s.each && self.each_shape.is_empty() {
                let n = out.len() - copies;
                let shapes = out[n..].iter().map(|(_, v)| self.builder.ty(*v).shape.clone());
                self.each_shape = shapes.collect();
            }
        }
        Ok(out)
    }

    fn value(&self, t: TermId, member: usize) -> Result<Value, String> {
        let per_member = &self.done[t.0 as usize];
        let values = per_member.get(if per_member.len() == 1 { 0 } else { member });
        values.and_then(|v| v.first()).copied().ok_or_else(|| "a term has no value".into())
    }

    fn term(&mut self, t: TermId, rng: &mut Random) -> Result<(), String> {
        let i = t.0 as usize;
        if !self.done[i].is_empty() {
            return Ok(());
        }
        let copies = if self.facts.dependent[i] { self.draft.members } else { 1 };
        for m in 0..copies {
            let values = self.evaluate(t, m, rng)?;
            if let (Some(dims), [v]) = (&self.facts.law.terms.get(t).dims, values.as_slice()) {
                let shape = self.builder.ty(*v).shape.clone();
                let members = if self.facts.dependent[i] { m..m + 1 } else { 0..self.envs.len() };
                for env in &mut self.envs[members] {
                    bind_dims(dims, &shape, env);
                }
            }
            self.done[i].push(values);
        }
        Ok(())
    }

    fn evaluate(&mut self, t: TermId, m: usize, rng: &mut Random) -> Result<Vec<Value>, String> {
        let term = self.facts.law.terms.get(t);
        let mut args = Vec::new();
        for &a in &term.args {
            args.push(self.value(a, m)?);
        }
        match &term.kind {
            TermKind::Var(i) => Ok(vec![self.vars[m][*i]]),
            TermKind::Scalar(e) => {
                let v = self.attr(e, m, rng)?;
                let v = v.as_f64().ok_or_else(|| format!("{v} is not a number"))?;
                let dtype = resolve_dtype(&term.dtype, &self.envs[m])?;
                // An extent that a run decides wraps around; a fraction is refused wherever it stands.
                if dtype.int_range().is_some() && v.fract() != 0.0 {
                    return Err(format!("{v} is no {dtype}"));
                }
                self.numbers.push((dtype, v));
                Ok(vec![self.builder.constant(Tensor::from_f64(dtype, vec![], &[v]))])
            }
            TermKind::Apply(call, attrs) => self.apply(*call, attrs, &term.args, &args, m, rng),
            TermKind::Output(i) => {
                let whole = args.first().ok_or("an output of nothing")?;
                Ok(vec![Value { node: whole.node, output: *i as u32 }])
            }
            TermKind::EachFold(call, attrs) => {
                let Some(&arg) = term.args.first() else { return Err("a fold of nothing".into()) };
                let mut folded = self.value(arg, 0)?;
                for m in 1..self.draft.members {
                    let pair = [folded, self.value(arg, m)?];
                    let values = self.apply(*call, attrs, &[], &pair, m, rng)?;
                    folded = *values.first().ok_or("a fold without result")?;
                }
                Ok(vec![folded])
            }
            TermKind::EachPart(axis) => self.part(args.first().copied(), axis, m, rng),
        }
    }

    fn part(
        &mut self,
        whole: Option<Value>,
        axis: &Expr,
        m: usize,
        rng: &mut Random,
    ) -> Result<Vec<Value>, String> {
        let axis = self.attr(axis, m, rng)?.as_i64().and_then(|a| usize::try_from(a).ok());
        let (Some(whole), Some(axis)) = (whole, axis) else {
            return Err("a part has no axis".into());
        };
        let extent = |s: &Vec<Extent>| s.get(axis).cloned().unwrap_or(Extent::from(1));
        let offset = self.each_shape[..m.min(self.each_shape.len())]
            .iter()
            .fold(Extent::from(0), |sum, s| &sum + &extent(s));
        let mut size = self.builder.ty(whole).shape.clone();
        let own = self.each_shape.get(m).map(extent);
        let slot = size.get_mut(axis).ok_or("a part along no axis")?;
        *slot = own.ok_or("the left side has no family")?;
        let n = size.len();
        let mut start = vec![Extent::from(0); n];
        start[axis] = offset;
        let attrs = [start, size, vec![Extent::from(1); n]].map(|a| Some(Attr::Ints(a)));
        let slice = self.builder.structural().slice.ok_or("`slice` is not declared")?;
        self.builder.apply(slice, &attrs, &[whole]).map_err(|e| e.to_string())
    }

    /// The value of an attribute expression; open names in it are chosen.
    fn attr(&mut self, e: &Expr, m: usize, rng: &mut Random) -> Result<Attr, String> {
        loop {
            match eval(e, &self.envs[m]) {
                Ok(a) => return Ok(a),
                Err(EvalError::Unbound(n)) => self.choose(&n, rng)?,
                Err(other) => return Err(other.to_string()),
            }
        }
    }

    fn declared(&self, name: &str) -> Option<&'l AttrParam> {
        self.facts.law.attrs.iter().find(|a| &*a.name == name)
    }

    fn choose(&mut self, name: &str, rng: &mut Random) -> Result<(), String> {
        let Some(p) = self.declared(name) else {
            return Err(EvalError::Unbound(name.to_string()).to_string());
        };
        let mut draw = || {
            let choices = AttrChoices {
                words: &self.facts.words,
                sizes: &self.facts.counts,
                stray: self.draft.stray,
                end: self.draft.end,
            };
            let v = attrs::value(&p.ty, &self.envs[0], 1, &choices, rng);
            v.ok_or_else(|| format!("`{name}` has no values"))
        };
        let mut v = draw()?;
        for _ in 0..attrs::TRIES {
            let mut env = self.envs[0].clone();
            env.bind_attr(&p.name, v.clone());
            if self.wanted().iter().all(|(c, want)| truth(c, &env) != Ok(Some(!want))) {
                break;
            }
            v = draw()?;
        }
        self.bind(&p.name, v);
        Ok(())
    }

    fn bind(&mut self, name: &Name, value: Attr) {
        for env in &mut self.envs {
            env.bind_attr(name, value.clone());
        }
        self.draft.attrs.push((name.clone(), value));
    }

    fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Expr>],
        arg_terms: &[TermId],
        args: &[Value],
        m: usize,
        rng: &mut Random,
    ) -> Result<Vec<Value>, String> {
        let callee = self.facts.library.call(call);
        let mut given: Vec<Option<Attr>> = Vec::with_capacity(attrs.len());
        let mut open: Vec<Option<AttrParam>> = vec![None; callee.attrs.len()];
        for (i, e) in attrs.iter().enumerate() {
            let unbound = e.as_ref().and_then(|e| match &e.kind {
                ExprKind::Name(n) if self.envs[m].attr(n).is_none() => self.declared(n),
                _ => None,
            });
            if let Some(e) = e {
                self.entries(e, &callee.attrs[i], args, m, rng)?;
            }
            match (e, unbound) {
                (Some(_), Some(p)) if eval_name(&p.name, &self.envs[m]).is_none() => {
                    open[i] = Some(p.clone());
                    given.push(None);
                }
                (Some(e), _) => given.push(Some(self.attr(e, m, rng)?)),
                (None, _) => given.push(None),
            }
        }
        if open.iter().any(Option::is_some) {
            let question = OpenApplication {
                call: callee,
                broadcast: self.builder.structural().broadcast == Some(call),
                types: args.iter().map(|&a| self.builder.ty(a).clone()).collect(),
                given,
                open,
                choices: AttrChoices {
                    words: &self.facts.words,
                    sizes: &self.facts.sizes,
                    stray: self.draft.stray,
                    end: self.draft.end,
                },
                style: self.draft.style,
                telling: self.draft.telling,
                conditions: self.wanted(),
                env: &self.envs[m],
                draws: Cell::default(),
            };
            let chosen = question.choose(rng);
            self.facts.drew(question.draws.get());
            let open = question.open;
            let fits = chosen.is_ok();
            let none = || format!("no attributes of `{}` fit", callee.name);
            let chosen = chosen.or_else(|unfit| unfit.ok_or_else(none))?;
            for (p, a) in open.iter().zip(&chosen) {
                if let (Some(p), Some(a)) = (p, a)
                    && self.envs[0].attr(&p.name).is_none()
                {
                    self.bind(&p.name, a.clone());
                }
            }
            if !fits {
                self.fixes = self.callee_repairs(call, attrs, &chosen, arg_terms, args, m);
                return Err(none());
            }
            given = chosen;
        }
        self.builder.apply(call, &given, args).map_err(|e| {
            self.fixes = self.callee_repairs(call, attrs, &given, arg_terms, args, m);
            e.to_string()
        })
    }

    /// Chooses the open names in a list so that the list may fit: extents of a shape multiply to the elements.
    fn entries(
        &mut self,
        e: &Expr,
        param: &AttrParam,
        args: &[Value],
        m: usize,
        rng: &mut Random,
    ) -> Result<(), String> {
        let open = |(spliced, n): (bool, &Name)| match self.envs[m].attr(n) {
            None => self.declared(n).map(|p| (spliced, p.name.clone())),
            Some(_) => None,
        };
        let names: Vec<(bool, Name)> =
            mlc_dsl::eval::list_patterns::names(e).into_iter().filter_map(open).collect();
        if names.is_empty() || param.ty.kind != AttrKind::Shape {
            return Ok(());
        }
        let elements = args.first().and_then(|&a| self.builder.ty(a).elements().as_const());
        let mut env = self.envs[m].clone();
        for (spliced, n) in &names {
            let unit = if *spliced { Attr::ints(vec![]) } else { Attr::int(1) };
            env.bind_attr(n, unit);
        }
        let known = eval(e, &env).ok().and_then(|a| a.as_i64s()).map(|v| v.iter().product::<i64>());
        let rest = match (elements, known) {
            (Some(n), Some(k)) if k > 0 && n % k == 0 => n / k,
            _ => return Ok(()),
        };
        for (n, v) in attrs::shares(&names, rest, rng) {
            self.bind(&n, v);
        }
        Ok(())
    }

    /// Changes to the law's names that may make an application well-typed.
    fn callee_repairs(
        &mut self,
        call: CallId,
        exprs: &[Option<Expr>],
        given: &[Option<Attr>],
        arg_terms: &[TermId],
        args: &[Value],
        m: usize,
    ) -> Vec<Repair> {
        let callee = self.facts.library.call(call);
        let own = OwnNames(self.facts);
        let mut names = CalleeNames { own, env: &self.envs[m], given: vec![], ranks: vec![] };
        let mut env = Env::default();
        for ((p, a), e) in callee.attrs.iter().zip(given).zip(exprs) {
            if let Some(a) = a {
                env.bind_attr(&p.name, a.clone());
            }
            names.given.extend(e.as_ref().map(|e| (p.name.clone(), e.clone())));
        }
        for (i, input) in callee.inputs.iter().enumerate() {
            if let Some(&a) = args.get(i) {
                let _ = unify(&input.ty, self.builder.ty(a), &mut env, &[]);
            }
            let own = arg_terms.get(i).and_then(|&t| self.facts.law.terms.get(t).dims.as_ref());
            if let (Some(declared), Some(own)) = (&input.ty.dims, own) {
                names.argument(declared, own);
            }
        }
        let _ = mlc_dsl::typing::infer::bind_wheres(&callee.wheres, &mut env);
        let failing = callee.conditions.iter().filter(|c| truth(c, &env) != Ok(Some(true)));
        let failing: Vec<&Expr> = failing.collect();
        let mut out: Vec<Repair> =
            failing.iter().flat_map(|c| repair::fixes(c, &env, &names)).collect();
        out.extend(names.unequal());
        let guards = failing.iter().filter_map(|c| names.restated(c)).collect();
        self.guards = guards;
        out
    }

    /// Attributes that only conditions or the right side mention.
    pub(crate) fn remaining(&mut self, rng: &mut Random) -> Result<(), String> {
        for p in &self.facts.law.attrs {
            if self.envs[0].attr(&p.name).is_none() && eval_name(&p.name, &self.envs[0]).is_none() {
                self.choose(&p.name, rng)?;
            }
        }
        Ok(())
    }

    fn wanted(&self) -> Vec<(&'f Expr, bool)> {
        let all = self.facts.conjuncts.iter().zip(&self.wanted);
        all.filter_map(|(c, want)| match c {
            Conjunct::Static(e) => Some((e, *want)),
            Conjunct::Element(..) => None,
        })
        .collect()
    }

    /// Whether every conjunct holds as wanted, of those that extents and the attributes chosen so far decide.
    pub(crate) fn decided_conditions(&self) -> Result<(), InstanceRefusal> {
        self.each_condition(|holds, want| holds != &Ok(Some(!want)))
    }

    /// Whether every conjunct holds as wanted.
    pub(crate) fn conditions(&self) -> Result<(), InstanceRefusal> {
        self.each_condition(|holds, want| holds == &Ok(Some(want)))
    }

    fn each_condition(
        &self,
        passes: impl Fn(&Result<Option<bool>, EvalError>, bool) -> bool,
    ) -> Result<(), InstanceRefusal> {
        for (i, c) in self.facts.conjuncts.iter().enumerate() {
            let Conjunct::Static(e) = c else { continue };
            let want = self.wanted.get(i).copied().unwrap_or(true);
            for env in &self.envs {
                let holds = truth(e, env);
                if passes(&holds, want) {
                    continue;
                }
                let fixes = match want {
                    true => repair::fixes(e, env, &OwnNames(self.facts)),
                    false => repair::breaks(e, env, &OwnNames(self.facts)),
                };
                let text = self.facts.conjunct_text(i);
                let reason = match holds {
                    Err(e) => format!("{UNDECIDED} `{text}`: {e}"),
                    Ok(_) if want => format!("`{text}` does not hold"),
                    Ok(_) => format!("`{text}` holds"),
                };
                return Err(InstanceRefusal::Left(reason, fixes, self.draft.attrs.clone()));
            }
        }
        Ok(())
    }
}

fn eval_name(name: &Name, env: &Env) -> Option<Extent> {
    env.axis(name).cloned()
}
