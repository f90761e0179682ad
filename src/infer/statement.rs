//! Pairs of terms as laws: which side is the left one, what its variables are called, and under which types, conditions and
//! error classes the verifier is asked.
//!
//! A statement is a text of the language. Never says whether it holds.

use super::operators::bare;
use super::terms::{Alike, Bank, Node, Pair, TermId};
use super::worlds::DimName;
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::DType;
use mlc_dsl::library::{DTypePattern, Library};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A pair of terms that may be a law.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which bank its terms are of.
    pub bank: usize,
    /// What is matched.
    pub left: TermId,
    /// What it equals.
    pub right: TermId,
    /// How the sides were found alike.
    pub alike: Alike,
    /// Both sides, with variables named in the order in which they occur.
    pub sides: (String, String),
    /// Simple and general ones first.
    pub rank: Rank,
    /// Of both sides.
    size: usize,
    /// The names of tensor variables, and of attributes, by their places in the world.
    names: Names,
}

/// Order of candidates: what is small for the variables that it speaks of, has few numbers, and needs no condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(usize, usize, Alike, usize, String);

#[derive(Clone, Debug, Default)]
struct Names {
    vars: BTreeMap<usize, String>,
    attrs: BTreeMap<usize, String>,
}

/// One way to ask the verifier about a candidate.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What each variable of the main type is declared with.
    pub family: String,
    /// Conditions, as written.
    pub conditions: Vec<String>,
    /// The error class, as written.
    pub class: &'static str,
}

impl Candidate {
    /// Of a pair, the larger side on the left. `None` if it can be no law: a side has what the other lacks, or nothing is matched.
    pub fn of(banks: &[Bank], bank: usize, pair: Pair) -> Option<Candidate> {
        let b = &banks[bank];
        let (t, o) = (b.term(pair.term), b.term(pair.other));
        let larger = t.size >= o.size;
        let ways = [(pair.term, pair.other), (pair.other, pair.term)];
        let ways = if larger { ways } else { [ways[1], ways[0]] };
        let (left, right) = ways.into_iter().find(|(l, r)| binds(b, *l, *r))?;
        let names = Names::of(b, left);
        let sides = (names.text(b, left), names.text(b, right));
        let (l, r) = (b.term(left), b.term(right));
        let numbers = numbers(b, left) + numbers(b, right);
        let text = format!("{} => {}", sides.0, sides.1);
        // Few equations of many variables hold by accident, and they are the most general.
        let plain = OFFSET + l.size + r.size + conditional(pair.alike) + numbers;
        let weight = plain.saturating_sub(3 * l.vars.count_ones() as usize);
        let rank = Rank(weight, l.size + r.size, pair.alike, b.world.dims.len(), text);
        let on_elements = matches!(pair.alike, Alike::Nonnegative | Alike::Moderate);
        if on_elements && l.size + r.size > CONDITIONAL {
            return None;
        }
        if is_accidental(b, left, right) {
            return None;
        }
        let distinct = sides.0 != sides.1;
        let (alike, size) = (pair.alike, l.size + r.size);
        distinct.then_some(Candidate { bank, left, right, alike, sides, rank, size, names })
    }

    /// What tells it from other candidates.
    pub fn key(&self, banks: &[Bank]) -> String {
        let b = &banks[self.bank];
        format!("{:?} {:?} {} => {}", b.world.main, b.world.dims, self.sides.0, self.sides.1)
    }

    /// True if the sides can change places: neither is larger, or they group the same variables otherwise.
    pub fn is_balanced(&self, banks: &[Bank]) -> bool {
        let b = &banks[self.bank];
        let (l, r) = (b.term(self.left), b.term(self.right));
        let regroups = l.vars.count_ones() >= 3 && matches!(r.node, Node::Apply(..));
        (l.size == r.size || regroups) && binds(b, self.right, self.left)
    }

    /// The ways to ask about it, the strongest first; each for several families of types, the narrowest first.
    pub fn variants(&self, banks: &[Bank], library: &Library) -> Vec<Vec<Variant>> {
        let b = &banks[self.bank];
        let families = self.families(b, library);
        let mut out = Vec::new();
        let mut ask = |conditions: &[String], class| {
            let many = if conditions.is_empty() { families.len() } else { 1 };
            let variant = |f: &Family| Variant {
                family: f.name.clone(),
                conditions: f.condition.iter().chain(conditions).cloned().collect(),
                class,
            };
            out.push(families.iter().take(many).map(variant).collect());
        };
        let floats = self.float_vars(b);
        let all =
            |asks: &dyn Fn(&str) -> String| floats.iter().map(|v| asks(v)).collect::<Vec<_>>();
        let nonnegative = |v: &str| format!("nonnegative({v})");
        let within = |v: &str| format!("within({v}, -8, 9)");
        let moderate = |v: &str| format!("within({v}, 0.1, 8)");
        let numbers = self.conditions_on_numbers(b);
        let mut conditions: Vec<Vec<String>> = Vec::new();
        let everywhere = matches!(self.alike, Alike::Everywhere | Alike::Finite);
        match self.alike {
            Alike::Everywhere | Alike::Finite => {
                conditions.push(vec![]);
                conditions.extend(numbers);
            }
            Alike::Scaled => conditions = numbers,
            Alike::Nonnegative => {
                conditions.extend(floats.iter().map(|v| vec![nonnegative(v)]));
                if floats.len() > 1 {
                    conditions.push(all(&nonnegative));
                }
                let last = numbers.last().filter(|_| !floats.is_empty());
                conditions.extend(last.map(|n| [&all(&nonnegative)[..], n].concat()));
            }
            Alike::Moderate => {
                let last = numbers.last().cloned().unwrap_or_default();
                conditions.push([all(&moderate), last].concat());
            }
        }
        let exact = !b.world.main.is_float();
        // What differs where numbers are not finite has other bits.
        let classes =
            if self.alike == Alike::Finite { &["reorder"][..] } else { &["exact", "reorder"] };
        for class in classes.iter().filter(|c| !exact || **c == "exact") {
            conditions.iter().for_each(|c| ask(c, class));
        }
        if everywhere && !exact && self.size <= LOOSE {
            if !floats.is_empty() {
                ask(&all(&within), "reorder");
            }
            ask(&[], "approx(abs=0.0)");
        }
        out
    }

    /// What may be asked of the numbers of a law, as those of the samples are: signs, an order, bounds that every type has.
    fn conditions_on_numbers(&self, b: &Bank) -> Vec<Vec<String>> {
        let at = self.alike.environment();
        let numbers: Vec<(&String, f64, AttrKind)> = self
            .names
            .attrs
            .iter()
            .filter_map(|(i, n)| Some((n, b.world.number(*i, at)?, b.world.attrs[*i].kind)))
            .collect();
        if numbers.is_empty() {
            return vec![];
        }
        if numbers.iter().all(|n| n.2 == AttrKind::Int) {
            let fits: Vec<String> = numbers
                .iter()
                .flat_map(|(n, ..)| [format!("{n} >= 0"), format!("{n} <= 127")])
                .collect();
            let ordered = in_order(&numbers);
            return vec![fits.clone(), ordered.clone(), [fits, ordered].concat()];
        }
        let signs: Vec<String> = numbers.iter().map(|(n, v, _)| sign(n, *v)).collect();
        let finite = numbers.iter().zip(&signs).flat_map(|((n, v, _), s)| {
            let end = if *v > 0.0 { format!("{n} < inf") } else { format!("{n} > -inf") };
            [s.clone(), end]
        });
        let finite: Vec<String> = finite.collect();
        let mut out: Vec<Vec<String>> = signs.iter().map(|s| vec![s.clone()]).collect();
        if signs.len() > 1 {
            out.push(in_order(&numbers));
            out.push(signs.clone());
        }
        out.push(finite);
        if self.alike == Alike::Finite {
            let bounded = |n: &(&String, f64, AttrKind)| format!("abs({}) < inf", n.0);
            out.insert(0, numbers.iter().map(bounded).collect());
        }
        out
    }

    /// The rule of a variant.
    pub fn rule(&self, banks: &[Bank], name: &str, variant: &Variant, arrow: &str) -> String {
        let b = &banks[self.bank];
        let right = self.right_side(b);
        let mut out = format!("rule {name}\n  {} {arrow} {right}\n  given ", bare(&self.sides.0));
        let mut given: Vec<String> = Vec::new();
        let mut vars: Vec<(&usize, &String)> = self.names.vars.iter().collect();
        vars.sort_by_key(|(i, n)| (b.world.vars[**i].dtype == DType::Bool, *n));
        for (i, n) in vars {
            let v = &b.world.vars[*i];
            let dims: Vec<String> =
                v.dims.iter().map(|d| b.world.dims[*d as usize].text()).collect();
            let of = if v.dtype == b.world.main { variant.family.as_str() } else { v.dtype.name() };
            given.push(format!("{n}: {of}[{}]", dims.join(", ")));
        }
        for (i, n) in &self.names.attrs {
            let asks = |c: &str| variant.conditions.iter().any(|x| *x == format!("{n} {c} 0"));
            let (positive, negative) = (asks(">"), asks("<"));
            match b.world.attrs[*i].kind {
                AttrKind::Float if positive => given.push(format!("{n}: float in 0.25..4")),
                AttrKind::Float if negative => given.push(format!("{n}: float in -4..-0.25")),
                AttrKind::Float => given.push(format!("{n}: float in -4..4")),
                AttrKind::Int => given.push(format!("{n}: int in 1..5")),
                // Its place tells its kind.
                _ => {}
            }
        }
        out.push_str(&given.join(", "));
        if !variant.conditions.is_empty() {
            let _ = write!(out, "\n  if {}", variant.conditions.join(", "));
        }
        let _ = write!(out, "\n  error {}", variant.class);
        out
    }

    /// The right side; a bare number as the tensor of it that has the left side's axes.
    fn right_side(&self, b: &Bank) -> String {
        let right = b.term(self.right);
        let Node::Number(_) = right.node else { return bare(&self.sides.1).to_string() };
        let of = b
            .world
            .vars
            .iter()
            .enumerate()
            .find(|(i, v)| self.names.vars.contains_key(i) && v.dtype == right.dtype);
        let to = match of {
            Some((i, _)) => format!("dtype({})", self.names.vars[&i]),
            None => right.dtype.name().to_string(),
        };
        let shape = match b.world.dims.as_slice() {
            [DimName::Segment(s)] => format!("|{s}|"),
            dims => {
                let size = |d: &DimName| match d {
                    DimName::Segment(s) => format!("..|{s}|"),
                    DimName::Axis(n) => format!("|{n}|"),
                };
                format!("[{}]", dims.iter().map(size).collect::<Vec<_>>().join(", "))
            }
        };
        format!("broadcast(cast({}, to={to}), map=[], shape={shape})", bare(&self.sides.1))
    }

    fn float_vars(&self, b: &Bank) -> Vec<String> {
        let float = |i: &usize| b.world.vars[*i].dtype.is_float();
        self.names.vars.iter().filter(|(i, _)| float(i)).map(|(_, n)| n.clone()).collect()
    }

    /// Families of types that every operator of both sides takes where the main type stands: first those of its types whose
    /// numbers have signs, then all of them, then wider ones.
    fn families(&self, b: &Bank, library: &Library) -> Vec<Family> {
        let main = b.world.main;
        let takes = |f: &&&str| [self.left, self.right].iter().all(|t| takes(b, library, *t, f));
        let wide: &[&str] = match main {
            DType::Bool => &["T"],
            d if d.is_float() => &["F", "N", "T"],
            _ => &["I", "N", "T"],
        };
        let family = |name: &str| Family { name: name.to_string(), condition: None };
        let mut out: Vec<Family> = wide.iter().filter(takes).map(|f| family(f)).collect();
        if main.is_int() && !out.is_empty() {
            let of = self.names.vars.iter().find(|(i, _)| b.world.vars[**i].dtype == main);
            let signed = of.map(|(_, n)| Family { name: "I".into(), condition: Some(signed(n)) });
            out.splice(0..0, signed);
        }
        if out.is_empty() || main == DType::Bool {
            out.insert(0, family(main.name()));
        }
        out
    }
}

/// What variables of the main type are declared with.
#[derive(Clone, Debug)]
struct Family {
    name: String,
    /// Which of its types are meant.
    condition: Option<String>,
}

/// That a variable has a type of integers below zero.
fn signed(variable: &str) -> String {
    let wide = |d: &&DType| d.is_int() && !d.is_small();
    let below = |d: &&DType| d.int_range().is_some_and(|(low, _)| low < 0);
    let types = DType::ALL.iter().filter(wide).filter(below);
    types.map(|d| format!("dtype({variable}) == {}", d.name())).collect::<Vec<_>>().join(" or ")
}

fn sign(name: &str, value: f64) -> String {
    if value > 0.0 { format!("{name} > 0") } else { format!("{name} < 0") }
}

/// That numbers are in the order that they have in the samples.
fn in_order(numbers: &[(&String, f64, AttrKind)]) -> Vec<String> {
    let mut sorted: Vec<_> = numbers.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    sorted.windows(2).map(|w| format!("{} < {}", w[0].0, w[1].0)).collect()
}

/// True if the operators of a term take every type of a family where it has the main type.
fn takes(b: &Bank, library: &Library, term: TermId, family: &str) -> bool {
    let main = b.world.main;
    match &b.term(term).node {
        Node::Var(_) => true,
        Node::Number(_) => family != "T" || b.term(term).dtype != main,
        Node::Apply(op, args, _) => {
            let call = library.call(b.ops[*op].call);
            let wide = |p: &DTypePattern| match p {
                DTypePattern::Fixed(_) => false,
                DTypePattern::Var(v) => match &v[..1] {
                    "T" => true,
                    "N" => family != "T",
                    of => of == family,
                },
            };
            call.inputs.iter().zip(args).all(|(i, a)| {
                (b.term(*a).dtype != main || wide(&i.ty.dtype)) && takes(b, library, *a, family)
            })
        }
    }
}

/// What keeps weights above zero.
const OFFSET: usize = 64;

/// What a condition counts for beside operators.
fn conditional(alike: Alike) -> usize {
    match alike {
        Alike::Everywhere | Alike::Finite => 0,
        Alike::Scaled => 1,
        Alike::Nonnegative => 2,
        Alike::Moderate => 3,
    }
}

/// Sides of more operators and variables are not looked at where they are equal under conditions on elements alone: most of those
/// conditions follow from none.
const CONDITIONAL: usize = 9;

/// Nor are laws that keep no error class, or do on bounded elements alone.
const LOOSE: usize = 8;

/// True if the sides differ in one operand of one operator, and have numbers: what holds of other numbers as well is found
/// with variables in their place.
fn is_accidental(b: &Bank, left: TermId, right: TermId) -> bool {
    let (Node::Apply(f, xs, p), Node::Apply(g, ys, q)) = (&b.term(left).node, &b.term(right).node)
    else {
        return false;
    };
    (f, p) == (g, q) && xs.iter().any(|x| ys.contains(x)) && numbers(b, left) > 0
}

/// True if a law of these sides would bind all that its right side has.
fn binds(b: &Bank, left: TermId, right: TermId) -> bool {
    let (l, r) = (b.term(left), b.term(right));
    let mut found = 0u32;
    bare_attrs(b, left, &mut found);
    matches!(l.node, Node::Apply(..)) && r.vars & !l.vars == 0 && (r.attrs | l.attrs) & !found == 0
}

/// Attribute variables that stand by themselves.
fn bare_attrs(b: &Bank, term: TermId, found: &mut u32) {
    let mut note = |i: usize| *found |= b.exprs[i].form.bare().map_or(0, |v| 1 << v);
    match &b.term(term).node {
        Node::Var(_) => {}
        Node::Number(i) => note(*i),
        Node::Apply(_, args, attrs) => {
            attrs.iter().flatten().for_each(|i| note(*i));
            args.iter().for_each(|a| bare_attrs(b, *a, found));
        }
    }
}

/// Literals and attribute variables in a term.
fn numbers(b: &Bank, term: TermId) -> usize {
    match &b.term(term).node {
        Node::Var(_) => 0,
        Node::Number(_) => 1,
        Node::Apply(_, args, _) => args.iter().map(|a| numbers(b, *a)).sum(),
    }
}

impl Names {
    /// Names for the variables of a left side: those of a kind in the order in which they occur.
    fn of(b: &Bank, left: TermId) -> Names {
        let mut names = Names::default();
        names.visit(b, left);
        names
    }

    fn visit(&mut self, b: &Bank, term: TermId) {
        match &b.term(term).node {
            Node::Var(i) => self.var(b, *i),
            Node::Number(i) => b.exprs[*i].form.each_var(&mut |v| self.attr(b, v)),
            Node::Apply(_, args, attrs) => {
                args.iter().for_each(|a| self.visit(b, *a));
                for i in attrs.iter().flatten() {
                    b.exprs[*i].form.each_var(&mut |v| self.attr(b, v));
                }
            }
        }
    }

    fn var(&mut self, b: &Bank, i: usize) {
        let vars = &b.world.vars;
        let alike = |j: &usize| (vars[*j].dtype, &vars[*j].dims) == (vars[i].dtype, &vars[i].dims);
        let taken = self.vars.keys().filter(|j| alike(j)).count();
        let free = (0..vars.len()).filter(alike).nth(taken).unwrap_or(i);
        self.vars.entry(i).or_insert_with(|| vars[free].name.clone());
    }

    fn attr(&mut self, b: &Bank, i: usize) {
        let attrs = &b.world.attrs;
        let alike = |j: &usize| attrs[*j].kind == attrs[i].kind;
        let taken = self.attrs.keys().filter(|j| alike(j)).count();
        let free = (0..attrs.len()).filter(alike).nth(taken).unwrap_or(i);
        self.attrs.entry(i).or_insert_with(|| attrs[free].name.clone());
    }

    fn text(&self, b: &Bank, term: TermId) -> String {
        let name = |v: usize| self.attrs.get(&v).unwrap_or(&b.world.attrs[v].name).clone();
        let expr = |i: usize| b.exprs[i].form.text(&name, &b.world.dims);
        match &b.term(term).node {
            Node::Var(i) => self.vars.get(i).unwrap_or(&b.world.vars[*i].name).clone(),
            Node::Number(i) => expr(*i),
            Node::Apply(op, args, attrs) => {
                let args: Vec<String> = args.iter().map(|a| self.text(b, *a)).collect();
                let params = &b.ops[*op].attrs;
                let attrs = params.iter().zip(attrs);
                let attrs = attrs.filter_map(|(p, a)| Some(format!("{p}={}", bare(&expr((*a)?)))));
                b.ops[*op].text(&args, &attrs.collect::<Vec<_>>())
            }
        }
    }
}
