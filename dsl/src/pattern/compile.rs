//! Compiles laws to patterns: flattens sums and products, and makes implied broadcasts explicit.

use super::OPERANDS;
use super::normal::{Subst, substitute};
use super::tables::{self, Table};
use super::{
    Compiled, CompiledForms, LawContext, Pat, PatId, PatKind, Patterns, has_mark, is_normal,
};
use crate::eval::functions::Function;
use crate::expr::{AttrKind, BinaryOp, Expr, ExprKind, Mark};
use crate::library::{
    AttrParam, CallId, DTypePattern, Dim, Law, LawOrigin, Library, Name, OpClass,
};
use crate::term::{TermId, TermKind, Terms};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Nests of one operator in each other that a pattern may have: each can be met in several ways.
const NEST: usize = 3;

/// The patterns of laws, rewritten by the normalising ones among them. What the library has compiled is not compiled
/// again.
pub fn compile(library: &Library, laws: &[u32]) -> Vec<Arc<Compiled>> {
    let context = LawContext::of(library, laws);
    let normal: Vec<&Law> = context.normal.iter().map(|i| &library.laws[*i as usize]).collect();
    let forms = library
        .patterns
        .get::<Patterns>()
        .of(&context, laws, |i| forms(library, i, &normal, context.exact));
    forms.iter().flat_map(|f| f.iter().cloned()).collect()
}

/// The patterns of one law.
fn forms(library: &Library, index: u32, normal: &[&Law], exact: bool) -> CompiledForms {
    let law = &library.laws[index as usize];
    let one = |closed: HashSet<TermId>, tables: HashSet<TermId>| {
        let own = is_normal(law);
        let mut c = PatternCompiler {
            library,
            normal: if own { &[] } else { normal },
            law,
            pats: Vec::new(),
            depth: 0,
            exact,
            closed,
            tables,
            kept: HashSet::new(),
            refused: false,
            done: HashMap::new(),
            hopeless: false,
            nests: HashMap::new(),
        };
        let roots: Vec<PatId> =
            law.left.iter().map(|s| c.term(&law.terms, s.root, &Subst::none())).collect();
        let hopeless = c.hopeless || (0..c.pats.len()).any(|i| c.nest(PatId(i as u32)) > NEST);
        let numbered = has_mark(law, Mark::Numbered);
        let (sought, solved) = (None, vec![]);
        let mut compiled =
            Compiled { law: index, pats: c.pats, roots, normal: own, numbered, solved, sought };
        compiled.solved = compiled.solvable(law);
        ((!hopeless).then(|| Arc::new(compiled)), c.refused)
    };
    // A sum that occurs twice in a pattern may be shared in a program, whose views then do not open it.
    let (open, _) = one(HashSet::new(), HashSet::new());
    let (closed, differs) = one(shared(law), HashSet::new());
    // Exporters fold what depends on nothing but extents into constants.
    let tables = tables::tables(library, law);
    let tabled = (!tables.is_empty()).then(|| one(HashSet::new(), tables).0).flatten();
    let tabled = tabled.and_then(|c| sought(law, c));
    open.into_iter().chain(closed.filter(|_| differs)).chain(tabled).collect()
}

/// Laws that never match, with the reason: matching has no way to find an attribute variable, or looks at fewer operands.
pub fn unsolved(library: &Library) -> Vec<(u32, String)> {
    let laws: Vec<u32> = (0..library.laws.len() as u32).collect();
    let searched = |i: &u32| library.laws[*i as usize].origin != LawOrigin::Unfold;
    let compiled = compile(library, &laws);
    let mut out = Vec::new();
    for law in laws.into_iter().filter(searched) {
        let first = compiled.partition_point(|c| c.law < law);
        let forms: Vec<&Arc<Compiled>> =
            compiled[first..].iter().take_while(|c| c.law == law).collect();
        let open = |c: &&Arc<Compiled>| open_names(&library.laws[law as usize], c);
        if forms.is_empty() {
            let reason = format!(
                "a sum or product in it nests deeper, or has more operands, than the {OPERANDS} that are looked at"
            );
            out.push((law, reason));
        } else if forms.iter().all(|c| !open(c).is_empty()) {
            let list: Vec<String> = open(&forms[0]).iter().map(|n| format!("`{n}`")).collect();
            out.push((law, format!("{} occurs only in computed numbers", list.join(", "))));
        }
    }
    out
}

/// A form with tables, and the integer that they alone ask for. `None` if more than that is open.
fn sought(law: &Law, c: Arc<Compiled>) -> Option<Arc<Compiled>> {
    let open = open_names(law, &c);
    let [name] = open.as_slice() else { return open.is_empty().then_some(c) };
    let is_int = law.attrs.iter().any(|a| a.name == *name && a.ty.kind == AttrKind::Int);
    let sought = (is_int && !c.compared().contains(name)).then(|| name.clone())?;
    Some(Arc::new(Compiled { sought: Some(sought), ..Arc::unwrap_or_clone(c) }))
}

/// Attribute variables that a pattern asks for and nothing binds.
fn open_names(law: &Law, c: &Compiled) -> Vec<Name> {
    let (mut found, asked) = (c.names(), c.asked());
    found.extend(c.solved.iter().cloned());
    let derived = |a: &AttrParam| a.ty.axis().is_some();
    let open = law.attrs.iter().filter(|a| !derived(a) && !found.contains(&a.name));
    let open = open.map(|a| a.name.clone()).filter(|n| asked.contains(n));
    open.filter(|n| c.sought.as_ref() != Some(n)).collect()
}

/// Terms that occur more than once in what a law matches.
fn shared(law: &Law) -> HashSet<TermId> {
    let (mut seen, mut out) = (HashSet::new(), HashSet::new());
    let mut stack: Vec<TermId> = law.left.iter().map(|s| s.root).collect();
    while let Some(t) = stack.pop() {
        if seen.insert(t) {
            stack.extend(&law.terms.get(t).args);
        } else {
            out.insert(t);
        }
    }
    out
}

pub(super) struct PatternCompiler<'a> {
    pub(super) library: &'a Library,
    pub(super) normal: &'a [&'a Law],
    pub(super) law: &'a Law,
    pats: Vec<Pat>,
    pub(super) depth: usize,
    /// No law may round differently: nests stay as they are written.
    exact: bool,
    /// Terms whose sums are operands of their own.
    closed: HashSet<TermId>,
    /// Terms that are matched as tables.
    tables: HashSet<TermId>,
    /// The patterns of `closed`.
    kept: HashSet<PatId>,
    /// A nest stayed closed.
    refused: bool,
    /// A sum or product has more operands than any view: nothing matches.
    hopeless: bool,
    /// How deep closed nests of a pattern stand in each other.
    nests: HashMap<PatId, usize>,
    /// The patterns of the law's own terms, so that a part that is used twice is compiled once.
    done: HashMap<TermId, PatId>,
}

impl PatternCompiler<'_> {
    fn push(&mut self, kind: PatKind, dims: Vec<Dim>, dtype: DTypePattern) -> PatId {
        self.pats.push(Pat { kind, dims, dtype });
        PatId(self.pats.len() as u32 - 1)
    }

    fn pat(&self, id: PatId) -> &Pat {
        &self.pats[id.0 as usize]
    }

    /// Compiles a term. Within the right side of a normalising law (`subst.dims` is set) everything
    /// has the dimensions of the node that is rewritten, or none.
    pub(super) fn term(&mut self, terms: &Terms, id: TermId, subst: &Subst) -> PatId {
        if !subst.is_none() {
            return self.compiled(terms, id, subst);
        }
        if let Some(known) = self.done.get(&id) {
            return *known;
        }
        let p = match self.tables.contains(&id) {
            true => {
                let t = terms.get(id);
                let table = Table::of(terms, id);
                self.push(
                    PatKind::Table(Arc::new(table)),
                    t.dims.clone().unwrap_or_default(),
                    t.dtype.clone(),
                )
            }
            false => self.compiled(terms, id, subst),
        };
        self.done.insert(id, p);
        p
    }

    fn compiled(&mut self, terms: &Terms, id: TermId, subst: &Subst) -> PatId {
        let t = terms.get(id);
        let own = t.dims.clone().unwrap_or_default();
        let dims = match &subst.dims {
            Some(d) if !own.is_empty() => d.clone(),
            _ => own,
        };
        let dtype = subst.dtype.clone().unwrap_or_else(|| t.dtype.clone());
        match &t.kind {
            TermKind::Var(i) => match subst.vars.get(*i) {
                Some(Some(p)) => *p,
                _ => self.push(PatKind::Var(*i), dims, dtype),
            },
            TermKind::Scalar(e) => {
                self.push(PatKind::Scalar(substitute(e, &subst.attrs)), dims, dtype)
            }
            TermKind::Output(i) => {
                let whole = self.term(terms, t.args[0], subst);
                self.push(PatKind::Output(*i, whole), dims, dtype)
            }
            // Families stand on right sides only; their one argument is matched as it is.
            TermKind::EachFold(..) | TermKind::EachPart(_) => self.term(terms, t.args[0], subst),
            TermKind::Apply(call, attrs) => {
                let args: Vec<PatId> = t.args.iter().map(|&a| self.term(terms, a, subst)).collect();
                let attrs: Vec<Option<Expr>> =
                    attrs.iter().map(|a| a.as_ref().map(|e| substitute(e, &subst.attrs))).collect();
                let p = self.apply(*call, attrs, args, dims, dtype);
                let sum = matches!(self.pat(p).kind, PatKind::Flat(c, ..)
                    if self.library.call(c).arithmetic() == Some(BinaryOp::Add));
                if sum && subst.dims.is_none() && self.closed.contains(&id) {
                    self.kept.insert(p);
                }
                p
            }
        }
    }

    /// An application in normal form.
    fn apply(
        &mut self,
        call: CallId,
        attrs: Vec<Option<Expr>>,
        args: Vec<PatId>,
        dims: Vec<Dim>,
        dtype: DTypePattern,
    ) -> PatId {
        let implied = self.implied(call, &attrs);
        if let (true, [arg], Some(Some(map))) = (implied, args.as_slice(), attrs.first()) {
            return self.push(PatKind::Broadcast(*arg, map.clone()), dims, dtype);
        }
        if let Some(e) = self.number(call, &args) {
            let scalar = self.push(PatKind::Scalar(e), vec![], dtype.clone());
            return self.broadcast(scalar, dims, dtype);
        }
        if let Some(table) = self.table(call, &attrs, &args) {
            return self.push(PatKind::Table(Arc::new(table)), dims, dtype);
        }
        if let Some(p) = self.rewrite(call, &attrs, &args, &dims, &dtype) {
            return p;
        }
        let c = self.library.call(call);
        if c.commutative && c.associative && args.len() == 2 {
            return self.flat(call, args, dims, dtype);
        }
        if c.class == OpClass::Pointwise
            && let Some((map, inner, below)) = self.lifted(&args)
        {
            let p = self.apply(call, attrs, below, inner, dtype.clone());
            return self.push(PatKind::Broadcast(p, map), dims, dtype);
        }
        self.push(PatKind::Apply(call, attrs, args), dims, dtype)
    }

    /// A pointwise operator of tables and numbers is a table.
    fn table(&self, call: CallId, attrs: &[Option<Expr>], args: &[PatId]) -> Option<Table> {
        let is_table = |a: &PatId| matches!(self.pat(*a).kind, PatKind::Table(_));
        let pointwise = self.library.call(call).class == OpClass::Pointwise;
        if !pointwise || !attrs.is_empty() || !args.iter().any(is_table) {
            return None;
        }
        let part = |a: &PatId| match &self.pat(*a).kind {
            PatKind::Table(t) => Some((**t).clone()),
            _ => Some(Table::number(self.as_scalar(*a)?.clone())),
        };
        Some(Table::apply(call, args.iter().map(part).collect::<Option<_>>()?))
    }

    /// The tables among the operands of a sum or product as one: they are constants, which are folded.
    fn one_table(
        &mut self,
        call: CallId,
        operands: Vec<PatId>,
        dims: &[Dim],
        dtype: &DTypePattern,
    ) -> Vec<PatId> {
        let of = |p: &PatId| match &self.pat(*p).kind {
            PatKind::Table(t) => Some((**t).clone()),
            _ => None,
        };
        let tables: Vec<Table> = operands.iter().filter_map(of).collect();
        if tables.len() < 2 {
            return operands;
        }
        let mut out: Vec<PatId> = operands.iter().copied().filter(|p| of(p).is_none()).collect();
        let table = Arc::new(Table::apply(call, tables));
        out.push(self.push(PatKind::Table(table), dims.to_vec(), dtype.clone()));
        out
    }

    /// If all operands are broadcasts of one kind, or numbers: the places, the inner dimensions and
    /// the inner operands. Laws pull broadcasts out of pointwise operators; so do patterns.
    fn lifted(&mut self, args: &[PatId]) -> Option<(Expr, Vec<Dim>, Vec<PatId>)> {
        let mut found: Option<(Expr, Vec<Dim>)> = None;
        for &a in args {
            if self.as_scalar(a).is_some() {
                continue;
            }
            let PatKind::Broadcast(inner, map) = &self.pat(a).kind else { return None };
            let dims = self.pat(*inner).dims.clone();
            match &found {
                Some((_, known)) if *known != dims => return None,
                Some(_) => {}
                None => found = Some((map.clone(), dims)),
            }
        }
        let (map, dims) = found?;
        let mut below = Vec::new();
        for &a in args {
            let dtype = self.pat(a).dtype.clone();
            below.push(match (&self.pat(a).kind, self.as_scalar(a).cloned()) {
                (_, Some(e)) => {
                    let scalar = self.push(PatKind::Scalar(e), vec![], dtype.clone());
                    self.broadcast(scalar, dims.clone(), dtype)
                }
                (PatKind::Broadcast(inner, _), None) => *inner,
                (_, None) => return None,
            });
        }
        Some((map, dims, below))
    }

    /// True for a broadcast that named axes imply, as opposed to one that a law speaks of.
    pub(super) fn implied(&self, call: CallId, attrs: &[Option<Expr>]) -> bool {
        self.library.find("broadcast") == Some(call)
            && matches!(attrs.first(), Some(Some(Expr { kind: ExprKind::List(_), .. })))
    }

    /// A number in the place of a tensor of these dimensions.
    fn broadcast(&mut self, scalar: PatId, dims: Vec<Dim>, dtype: DTypePattern) -> PatId {
        if dims.is_empty() {
            return scalar;
        }
        let map = Expr::new(ExprKind::List(vec![]));
        self.push(PatKind::Broadcast(scalar, map), dims, dtype)
    }

    /// The expression behind a number, broadcast or not.
    pub(super) fn as_scalar(&self, p: PatId) -> Option<&Expr> {
        match &self.pat(p).kind {
            PatKind::Scalar(e) => Some(e),
            PatKind::Broadcast(p, _) => self.as_scalar(*p),
            _ => None,
        }
    }

    /// Operands and numbers of a flattened operator.
    fn flat(
        &mut self,
        call: CallId,
        args: Vec<PatId>,
        dims: Vec<Dim>,
        dtype: DTypePattern,
    ) -> PatId {
        let arithmetic = self.library.call(call).arithmetic();
        let op = arithmetic.unwrap_or(BinaryOp::Mul);
        let mut operands = Vec::new();
        let mut scalar: Option<Expr> = None;
        let mut merge = |e: Expr| {
            scalar = Some(match scalar.take() {
                None => e,
                Some(s) => {
                    let s = Box::new(Expr::call(Function::Float, vec![s]));
                    Expr::new(ExprKind::Binary(op, s, Box::new(e)))
                }
            });
        };
        // What no view has room for stays a nest.
        let room = |a: &PatId| match &self.pat(*a).kind {
            PatKind::Flat(c, inner, _) if *c == call => inner.len(),
            _ => 1,
        };
        let opens = !self.exact && args.iter().map(room).sum::<usize>() <= OPERANDS;
        let kept = |a: &PatId| self.kept.contains(a);
        self.hopeless |= !self.exact && !opens && !args.iter().any(kept);
        for a in args {
            if arithmetic.is_some()
                && let Some(e) = self.as_scalar(a)
            {
                merge(e.clone());
                continue;
            }
            match self.pat(a).kind.clone() {
                PatKind::Flat(c, ..) if c == call && self.kept.contains(&a) => {
                    self.refused = true;
                    operands.push(a);
                }
                PatKind::Flat(c, inner, s) if c == call && opens => {
                    operands.extend(inner);
                    s.into_iter().for_each(&mut merge);
                }
                _ => operands.push(a),
            }
        }
        let operands = self.grouped(call, operands, &dtype);
        let operands = self.one_table(call, operands, &dims, &dtype);
        if let [only] = operands.as_slice()
            && let PatKind::Broadcast(inner, map) = self.pat(*only).kind.clone()
        {
            // The number moves below the broadcast, too.
            let below = self.pat(inner).dims.clone();
            let p = match scalar {
                None => inner,
                Some(_) => {
                    self.push(PatKind::Flat(call, vec![inner], scalar), below, dtype.clone())
                }
            };
            return self.push(PatKind::Broadcast(p, map), dims, dtype);
        }
        let mut operands = operands;
        operands.sort_by_key(|&p| self.breadth(p));
        self.push(PatKind::Flat(call, operands, scalar), dims, dtype)
    }

    /// How many sums or products of one operator, each an operand of the next, a pattern has at its root.
    fn nest(&mut self, p: PatId) -> usize {
        if let Some(known) = self.nests.get(&p) {
            return *known;
        }
        let PatKind::Flat(call, operands, _) = self.pat(p).kind.clone() else { return 0 };
        let same = |a: &&PatId| matches!(self.pat(**a).kind, PatKind::Flat(c, ..) if c == call);
        let inner: Vec<PatId> = operands.iter().filter(same).copied().collect();
        let deepest = inner.into_iter().map(|a| self.nest(a)).max().unwrap_or(0);
        self.nests.insert(p, deepest + 1);
        deepest + 1
    }

    /// How much a pattern matches: narrow ones are tried first.
    fn breadth(&self, p: PatId) -> u8 {
        match &self.pat(p).kind {
            PatKind::Apply(..) | PatKind::Output(..) => 0,
            PatKind::Flat(..) => 1,
            PatKind::Broadcast(inner, _) => 2 + self.breadth(*inner),
            PatKind::Scalar(_) => 4,
            PatKind::Table(_) => 5,
            PatKind::Var(_) => 9,
        }
    }

    /// Operands that are broadcasts of one kind become one broadcast of their sum or product.
    fn grouped(&mut self, call: CallId, operands: Vec<PatId>, dtype: &DTypePattern) -> Vec<PatId> {
        let mut out: Vec<PatId> = Vec::new();
        for p in operands {
            let PatKind::Broadcast(b, map) = self.pat(p).kind.clone() else {
                out.push(p);
                continue;
            };
            let below = self.pat(b).dims.clone();
            let twin = out.iter().position(|&q| match &self.pat(q).kind {
                PatKind::Broadcast(a, _) => self.pat(*a).dims == below,
                _ => false,
            });
            let Some(i) = twin else {
                out.push(p);
                continue;
            };
            let PatKind::Broadcast(a, _) = self.pat(out[i]).kind.clone() else { continue };
            let dims = self.pat(p).dims.clone();
            let joined = self.flat(call, vec![a, b], below, dtype.clone());
            out[i] = self.push(PatKind::Broadcast(joined, map), dims, dtype.clone());
        }
        out
    }
}
