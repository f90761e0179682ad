//! Builds the syntax tree of an item from its parse: the kinds of items.

use pest::iterators::Pair;

use super::build::TreeBuilder;
use super::params::ParamContext;
use super::parse::Rule;
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::{
    Alternative, Architecture, Def, Expr, Extern, Fuse, Ident, ItemKind, Kernel, Meaning, Onnx, Op,
    OpTrait, Param, Print, Rule as Law, RuleTest, Span, Step, StepTarget, Steps, StoredType,
    Target,
};

type Parts<'i> = Vec<Pair<'i, Rule>>;

/// A clause that an item has at most once.
struct Once<T> {
    value: Option<T>,
    at: Option<Span>,
}

impl<T> Once<T> {
    fn new() -> Once<T> {
        Once { value: None, at: None }
    }
}

impl TreeBuilder {
    /// The tree of one item, or `None` if too much of it is missing.
    pub(super) fn item(&mut self, pair: Pair<'_, Rule>) -> Option<(Ident, ItemKind)> {
        let rule = pair.as_rule();
        let parts: Parts<'_> = pair.into_inner().collect();
        let name = parts.iter().find(|p| p.as_rule() == Rule::ident)?;
        let name = self.ident(name);
        let kind = match rule {
            Rule::op => ItemKind::Op(self.op(parts)),
            Rule::def => ItemKind::Def(self.def(parts, &name)?),
            Rule::law => ItemKind::Rule(self.law(parts)),
            Rule::fuse => ItemKind::Fuse(self.fuse(parts, &name)?),
            Rule::procedure => ItemKind::Extern(self.procedure(parts, &name)?),
            Rule::onnx => ItemKind::Onnx(self.onnx(parts, &name)?),
            Rule::target => ItemKind::Target(self.target(parts)),
            Rule::architecture => ItemKind::Architecture(self.architecture(parts, &name)?),
            _ => return None,
        };
        (!self.failed).then_some((name, kind))
    }

    fn once<T>(&mut self, slot: &mut Once<T>, at: Span, clause: &str, value: Option<T>) {
        if let Some(first) = slot.at {
            self.report(
                Diag::error(Code("S011"), format!("a second {clause}"), at)
                    .also(first, "the first one")
                    .help("an item has at most one"),
            );
            return;
        }
        (slot.at, slot.value) = (Some(at), value);
    }

    fn need<T>(&mut self, slot: Once<T>, name: &Ident, clause: &str, example: &str) -> Option<T> {
        if slot.at.is_none() {
            let message = format!("`{}` has no {clause}", name.text);
            self.report(
                Diag::error(Code("S012"), message, name.span).help(format!("add {example}")),
            );
        }
        slot.value
    }

    fn op(&mut self, parts: Parts<'_>) -> Op {
        let mut op = Op {
            params: Vec::new(),
            outputs: Vec::new(),
            traits: Vec::new(),
            wheres: Vec::new(),
            conditions: Vec::new(),
            meanings: Vec::new(),
            stored: Vec::new(),
        };
        for part in parts {
            match part.as_rule() {
                Rule::params => op.params = self.params(part, false),
                Rule::outputs => op.outputs = self.outputs(part),
                Rule::op_trait => op.traits.extend(self.op_trait(part)),
                Rule::where_clause => self.bindings(part, &mut op.wheres),
                Rule::if_clause => op.conditions.extend(self.exprs(part)),
                Rule::meaning => op.meanings.extend(self.meaning(part)),
                Rule::stored_clause => op.stored.extend(self.stored(part)),
                _ => {}
            }
        }
        op
    }

    fn op_trait(&mut self, pair: Pair<'_, Rule>) -> Option<OpTrait> {
        match pair.clone().into_inner().next()?.as_rule() {
            Rule::kw_commutative => Some(OpTrait::Commutative),
            Rule::kw_associative => Some(OpTrait::Associative),
            _ => self.first_expr(pair).map(OpTrait::Unit),
        }
    }

    fn meaning(&mut self, pair: Pair<'_, Rule>) -> Option<Meaning> {
        let (mut output, mut index) = (None, Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => output = Some(self.ident(&part)),
                Rule::index => index = self.elems(part),
                Rule::expr => {
                    return output.map(|output| Meaning { output, index, value: self.expr(part) });
                }
                _ => {}
            }
        }
        None
    }

    fn def(&mut self, parts: Parts<'_>, name: &Ident) -> Option<Def> {
        let (mut params, mut outputs, mut wheres) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lets, mut conditions, mut body) = (Vec::new(), Vec::new(), Once::new());
        let mut stored = Vec::new();
        for part in parts {
            match part.as_rule() {
                Rule::params => params = self.params(part, false),
                Rule::outputs => outputs = self.outputs(part),
                Rule::where_clause => self.bindings(part, &mut wheres),
                Rule::let_clause => self.bindings(part, &mut lets),
                Rule::if_clause => conditions.extend(self.exprs(part)),
                Rule::body => self.body(part, &mut body),
                Rule::stored_clause => stored.extend(self.stored(part)),
                _ => {}
            }
        }
        let body = self.need(body, name, "body", "`= …`, its body")?;
        Some(Def { params, outputs, wheres, lets, body, conditions, stored })
    }

    fn body(&mut self, part: Pair<'_, Rule>, body: &mut Once<Expr>) {
        let at = self.span(&part);
        let value = self.first_expr(part);
        self.once(body, at, "body", value);
    }

    fn law(&mut self, parts: Parts<'_>) -> Law {
        let mut law = Law {
            left: Vec::new(),
            both_ways: false,
            right: Vec::new(),
            given: Vec::new(),
            wheres: Vec::new(),
            conditions: Vec::new(),
            hints: Vec::new(),
            error: None,
            tests: Vec::new(),
        };
        let mut error = Once::new();
        let mut turned = false;
        for part in parts {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::one_way => turned = true,
                Rule::both_ways => (turned, law.both_ways) = (true, true),
                Rule::sides if turned => law.right = self.sides(part),
                Rule::sides => law.left = self.sides(part),
                Rule::given_clause => law.given.extend(self.given(part)),
                Rule::where_clause => self.bindings(part, &mut law.wheres),
                Rule::if_clause => law.conditions.extend(self.exprs(part)),
                Rule::when_clause => law.hints.extend(self.exprs(part)),
                Rule::error_clause => {
                    let class = self.error_class(part);
                    self.once(&mut error, at, "`error`", class);
                }
                Rule::check_clause => {
                    for check in part.into_inner().filter(|p| p.as_rule() == Rule::check) {
                        law.tests.extend(self.check(check));
                    }
                }
                Rule::picks_clause => {
                    let at = self.named_values(part.clone());
                    let side = self.first_expr(part);
                    law.tests.extend(side.map(|side| RuleTest::Picks { side, at }));
                }
                Rule::never_clause => law.tests.push(self.never(part)),
                _ => {}
            }
        }
        law.error = error.value;
        law
    }

    fn given(&mut self, pair: Pair<'_, Rule>) -> Vec<Param> {
        let inner = pair.into_inner().filter(|p| p.as_rule() == Rule::param);
        inner.map(|p| self.param(p, ParamContext::Given)).collect()
    }

    fn never(&mut self, pair: Pair<'_, Rule>) -> RuleTest {
        let (mut sides, mut reason) = (Vec::new(), String::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::sides => sides = self.sides(part),
                Rule::string => reason = self.string(&part),
                _ => {}
            }
        }
        RuleTest::Never { sides, reason }
    }

    fn fuse(&mut self, parts: Parts<'_>, name: &Ident) -> Option<Fuse> {
        let (mut params, mut outputs, mut wheres) = (Vec::new(), Vec::new(), Vec::new());
        let mut lets = Vec::new();
        let (mut on, mut conditions, mut hints) = (Vec::new(), Vec::new(), Vec::new());
        let (mut body, mut error) = (Once::new(), Once::new());
        for part in parts {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::params => params = self.params(part, false),
                Rule::outputs => outputs = self.outputs(part),
                Rule::where_clause => self.bindings(part, &mut wheres),
                Rule::let_clause => self.bindings(part, &mut lets),
                Rule::if_clause => conditions.extend(self.exprs(part)),
                Rule::when_clause => hints.extend(self.exprs(part)),
                Rule::body => self.body(part, &mut body),
                Rule::error_clause => {
                    let class = self.error_class(part);
                    self.once(&mut error, at, "`error`", class);
                }
                Rule::on_clause => {
                    for place in part.into_inner().filter(|p| p.as_rule() == Rule::place) {
                        on.extend(self.place(place));
                    }
                }
                _ => {}
            }
        }
        let body = self.need(body, name, "body", "`= …`, what the kernel computes")?;
        let error = error.value;
        Some(Fuse { params, outputs, wheres, lets, body, on, conditions, hints, error })
    }

    fn place(&mut self, pair: Pair<'_, Rule>) -> Option<(Ident, String)> {
        let mut target = None;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => target = Some(self.ident(&part)),
                Rule::string => return target.map(|target| (target, self.string(&part))),
                _ => {}
            }
        }
        None
    }

    fn inner_strings(&mut self, pair: Pair<'_, Rule>) -> Vec<String> {
        let strings = pair.into_inner().filter(|p| p.as_rule() == Rule::string);
        strings.map(|p| self.string(&p)).collect()
    }

    fn inner_string(&mut self, pair: Pair<'_, Rule>) -> Option<String> {
        let mut inner = pair.into_inner();
        inner.find(|p| p.as_rule() == Rule::string).map(|p| self.string(&p))
    }

    fn procedure(&mut self, parts: Parts<'_>, name: &Ident) -> Option<Extern> {
        let (mut params, mut outputs) = (Vec::new(), Vec::new());
        let (mut wheres, mut conditions) = (Vec::new(), Vec::new());
        let mut reference = Once::new();
        for part in parts {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::params => params = self.params(part, false),
                Rule::outputs => outputs = self.outputs(part),
                Rule::where_clause => self.bindings(part, &mut wheres),
                Rule::if_clause => conditions.extend(self.exprs(part)),
                Rule::reference_clause => {
                    let text = self.inner_string(part);
                    self.once(&mut reference, at, "`reference`", text);
                }
                _ => {}
            }
        }
        let example = "`reference \"…\"`, the name of its Rust function";
        let reference = self.need(reference, name, "reference", example)?;
        Some(Extern { params, outputs, wheres, conditions, reference })
    }

    fn onnx(&mut self, parts: Parts<'_>, name: &Ident) -> Option<Onnx> {
        let (mut params, mut outputs) = (Vec::new(), Vec::new());
        let (mut lets, mut prints, mut conditions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut since, mut until) = (Once::new(), Once::new());
        let (mut domain, mut reads, mut opaque) = (Once::new(), Once::new(), Once::new());
        for part in parts {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::params => params = self.params(part, true),
                Rule::onnx_outputs => outputs = self.names(part),
                Rule::since_clause => {
                    let version = self.version(part);
                    self.once(&mut since, at, "`since`", version);
                }
                Rule::until_clause => {
                    let version = self.version(part);
                    self.once(&mut until, at, "`until`", version);
                }
                Rule::domain_clause => {
                    let text = self.inner_string(part);
                    self.once(&mut domain, at, "domain", text);
                }
                Rule::opaque_clause => self.once(&mut opaque, at, "`opaque`", Some(())),
                Rule::if_clause => conditions.extend(self.exprs(part)),
                Rule::let_clause => self.bindings(part, &mut lets),
                Rule::reads => {
                    let alternatives = self.alternatives(part);
                    self.once(&mut reads, at, "reading", Some(alternatives));
                }
                Rule::prints_clause => prints.extend(self.prints(part, name)),
                _ => {}
            }
        }
        let since = self.need(since, name, "first version", "`since 13`, the first opset")?;
        let domain = domain.value.unwrap_or_default();
        let reads = reads.value.unwrap_or_default();
        let (until, opaque) = (until.value, opaque.value.is_some());
        Some(Onnx {
            params,
            outputs,
            since,
            until,
            domain,
            opaque,
            conditions,
            lets,
            reads,
            prints,
        })
    }

    fn version(&mut self, pair: Pair<'_, Rule>) -> Option<u32> {
        let mut inner = pair.into_inner();
        inner.find(|p| p.as_rule() == Rule::version).map(|p| self.small_int(&p))
    }

    fn alternatives(&mut self, pair: Pair<'_, Rule>) -> Vec<Alternative> {
        let mut out = Vec::new();
        for pair in pair.into_inner().filter(|p| p.as_rule() == Rule::alternative) {
            let clause = pair.clone().into_inner().find(|p| p.as_rule() == Rule::if_clause);
            let conditions = clause.map(|p| self.exprs(p)).unwrap_or_default();
            out.extend(self.first_expr(pair).map(|value| Alternative { value, conditions }));
        }
        out
    }

    fn prints(&mut self, pair: Pair<'_, Rule>, item: &Ident) -> Option<Print> {
        let pattern = self.first_expr(pair.clone())?;
        let mut print = Print {
            pattern,
            inputs: Vec::new(),
            attrs: Vec::new(),
            result: None,
            given: Vec::new(),
            conditions: Vec::new(),
        };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident if part.as_str() != item.text => {
                    let at = self.span(&part);
                    let message = format!("`{}` cannot print as `{}`", item.text, part.as_str());
                    self.report(
                        Diag::error(Code("S017"), message, at)
                            .also(item.span, "the operator of this item")
                            .help(format!("write `as {}(…)`", item.text)),
                    );
                }
                Rule::print_args => {
                    print.inputs = self.exprs(part.clone());
                    print.attrs = self.named_values(part);
                }
                Rule::print_result => print.result = self.names(part).into_iter().next(),
                Rule::given_clause => print.given.extend(self.given(part)),
                Rule::if_clause => print.conditions.extend(self.exprs(part)),
                _ => {}
            }
        }
        Some(print)
    }

    fn target(&mut self, parts: Parts<'_>) -> Target {
        let mut target =
            Target { extends: None, devices: Vec::new(), entries: Vec::new(), kernels: Vec::new() };
        for part in parts {
            match part.as_rule() {
                Rule::extends => target.extends = Some(self.inner_ident(part)),
                Rule::devices => target.devices = self.inner_strings(part),
                Rule::entry => target.entries.extend(self.named_values(part)),
                Rule::kernel => target.kernels.push(self.kernel(part)),
                _ => {}
            }
        }
        target
    }

    fn stored(&mut self, pair: Pair<'_, Rule>) -> Option<StoredType> {
        let format = self.inner_ident(pair.clone());
        let number = pair.into_inner().find(|p| p.as_rule() == Rule::int)?;
        Some(StoredType { format, number: self.int(&number) })
    }

    fn architecture(&mut self, parts: Parts<'_>, name: &Ident) -> Option<Architecture> {
        let (mut params, mut sources, mut steps) = (Vec::new(), None, Vec::new());
        for part in parts {
            match part.as_rule() {
                Rule::params => params = self.params(part, false),
                Rule::read_from => {
                    sources = Some((self.inner_ident(part.clone()), self.inner_strings(part)));
                }
                Rule::steps => steps.extend(self.steps(part)),
                _ => {}
            }
        }
        let (format, names) = sources?;
        let steps = self.some_steps(steps, name)?;
        Some(Architecture { params, format, names, steps })
    }

    fn some_steps(&mut self, steps: Vec<Steps>, name: &Ident) -> Option<Vec<Steps>> {
        if steps.is_empty() {
            let message = format!("`{}` has no step", name.text);
            self.report(
                Diag::error(Code("S012"), message, name.span)
                    .help("add `let \"y\" = …`, an output"),
            );
            return None;
        }
        Some(steps)
    }

    /// The steps of one clause; without `each` they are clauses of their own.
    fn steps(&mut self, pair: Pair<'_, Rule>) -> Vec<Steps> {
        let (mut count, mut times, mut steps) = (None, None, Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::ident => count = Some(self.ident(&part)),
                Rule::expr => times = Some(self.expr(part)),
                Rule::step => steps.extend(self.step(part)),
                _ => {}
            }
        }
        match count.zip(times) {
            Some(each) => vec![Steps { each: Some(each), steps }],
            None => steps.into_iter().map(|s| Steps { each: None, steps: vec![s] }).collect(),
        }
    }

    fn step(&mut self, pair: Pair<'_, Rule>) -> Option<Step> {
        let mut target = None;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::names => target = Some(StepTarget::Names(self.names(part))),
                Rule::string => target = Some(StepTarget::Output(self.string(&part))),
                Rule::expr => {
                    return target.map(|target| Step { target, value: self.expr(part) });
                }
                _ => {}
            }
        }
        None
    }

    fn kernel(&mut self, pair: Pair<'_, Rule>) -> Kernel {
        let mut kernel = Kernel {
            name: String::new(),
            covers: vec![],
            types: vec![],
            epilogue: None,
            layout: None,
            cost: None,
            class_costs: vec![],
            takes: vec![],
        };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::string => kernel.name = self.string(&part),
                Rule::ident => kernel.covers.push(self.ident(&part)),
                Rule::element_types => {
                    let names = part.into_inner().filter(|p| p.as_rule() == Rule::ident);
                    kernel.types = names.map(|p| self.ident(&p)).collect();
                }
                Rule::epilogue => {
                    let names = part.into_inner().filter(|p| p.as_rule() == Rule::ident);
                    kernel.epilogue = Some(names.map(|p| self.ident(&p)).collect());
                }
                Rule::layout => kernel.layout = Some(self.inner_ident(part)),
                Rule::expr => kernel.cost = Some(self.expr(part)),
                Rule::class_cost => kernel.class_costs.extend(self.named_values(part)),
                Rule::entry => kernel.takes.extend(self.named_values(part)),
                _ => {}
            }
        }
        kernel
    }
}
