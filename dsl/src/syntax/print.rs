//! Prints syntax trees in canonical form: the output of `fmt` and of generated laws.
//!
//! Clauses are in the order of the tree's fields. Parsing the output gives the same tree.

use super::pretty::{Doc, block, commas, enclosed, group, lay_out, nest, text};
use super::print_expr::{before_more, bound, condition, elems_docs, float, quoted, whole};
use crate::syntax::ast::{
    Architecture, AttrType, Binding, Def, ErrorClause, Expr, Extern, File, Fuse, Ident, Item,
    ItemKind, Kernel, Onnx, Op, OpTrait, Output, Param, ParamKind, Print, Rule, RuleTest, Side,
    Step, StepTarget, Steps, StoredType, Target, TensorType,
};

const WIDTH: usize = 100;

/// A whole text in canonical form, with its comments.
pub fn print_file(file: &File) -> String {
    let mut blocks: Vec<String> = Vec::new();
    let mut top = lines("//", &file.header);
    top.push_str(&lines("//!", &file.doc));
    blocks.push(top);
    blocks.extend(file.items.iter().map(print_item));
    blocks.push(lines("//", &file.trailer));
    blocks.retain(|block| !block.is_empty());
    blocks.join("\n")
}

/// An item in canonical form with its comments, ending in a line break.
pub fn print_item(item: &Item) -> String {
    let mut out = lines("//", &item.comments);
    out.push_str(&lines("///", &item.doc));
    let name = &item.name;
    let parts = match &item.kind {
        ItemKind::Op(op) => print_op(name, op),
        ItemKind::Def(def) => print_def(name, def),
        ItemKind::Rule(rule) => print_rule(name, rule),
        ItemKind::Fuse(fuse) => print_fuse(name, fuse),
        ItemKind::Extern(procedure) => print_extern(name, procedure),
        ItemKind::Onnx(onnx) => print_onnx(name, onnx),
        ItemKind::Target(target) => print_target(name, target),
        ItemKind::Architecture(one) => print_architecture(name, one),
    };
    let mut parts = parts.into_iter();
    let head = parts.next().into_iter();
    let clauses = parts.flat_map(|clause| [Doc::Hard, clause]).collect();
    let doc = Doc::Cat(head.chain([nest(Doc::Cat(clauses))]).collect());
    out.push_str(&lay_out(&doc, WIDTH));
    out.push('\n');
    out
}

fn lines(marker: &str, lines: &[String]) -> String {
    let mut out = String::new();
    for line in lines {
        out.push_str(marker);
        if !line.is_empty() {
            out.push(' ');
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

// Each function below gives the head of the item, then its clauses.

fn print_op(name: &Ident, op: &Op) -> Vec<Doc> {
    let mut out = vec![signature("op", name, &op.params, &op.outputs)];
    let mut traits = Vec::new();
    for property in &op.traits {
        traits.push(match property {
            OpTrait::Commutative => text("commutative"),
            OpTrait::Associative => text("associative"),
            OpTrait::Unit(value) => cat([text("unit "), before_more(value)]),
        });
    }
    if !traits.is_empty() {
        out.push(Doc::Fill(traits));
    }
    clause(&mut out, "where", op.wheres.iter().map(|b| binding(b, before_more)).collect());
    clause(&mut out, "if", op.conditions.iter().map(condition).collect());
    for meaning in &op.meanings {
        let head = enclosed(&format!("{}[", meaning.output.text), elems_docs(&meaning.index), "]");
        out.push(cat([head, text(" = "), before_more(&meaning.value)]));
    }
    out.extend(op.stored.iter().map(stored));
    out
}

fn print_def(name: &Ident, def: &Def) -> Vec<Doc> {
    let mut out = vec![signature("def", name, &def.params, &def.outputs)];
    wheres(&mut out, &def.wheres);
    body(&mut out, &def.lets, &def.body);
    conditions(&mut out, "if", &def.conditions);
    out.extend(def.stored.iter().map(stored));
    out
}

fn print_rule(name: &Ident, rule: &Rule) -> Vec<Doc> {
    let mut out = vec![text(format!("rule {}", name.text))];
    let arrow = text(if rule.both_ways { "<=> " } else { "=> " });
    let plain = |sides: &[Side]| matches!(sides, [one] if one.names.is_empty() && !one.each);
    let (left, right) = (sides(&rule.left), sides(&rule.right));
    if plain(&rule.left) && plain(&rule.right) {
        out.push(group(cat([left, Doc::Line, arrow, right])));
    } else {
        out.push(left);
        out.push(cat([arrow, right]));
    }
    given(&mut out, &rule.given);
    wheres(&mut out, &rule.wheres);
    conditions(&mut out, "if", &rule.conditions);
    conditions(&mut out, "when", &rule.hints);
    out.extend(rule.error.as_ref().map(error));
    out.extend(rule.tests.iter().map(test));
    out
}

fn print_fuse(name: &Ident, fuse: &Fuse) -> Vec<Doc> {
    let mut out = vec![signature("fuse", name, &fuse.params, &fuse.outputs)];
    wheres(&mut out, &fuse.wheres);
    body(&mut out, &fuse.lets, &fuse.body);
    let place =
        |(target, kernel): &(Ident, String)| text(format!("{}({})", target.text, quoted(kernel)));
    clause(&mut out, "on", fuse.on.iter().map(place).collect());
    conditions(&mut out, "if", &fuse.conditions);
    conditions(&mut out, "when", &fuse.hints);
    out.extend(fuse.error.as_ref().map(error));
    out
}

fn print_extern(name: &Ident, procedure: &Extern) -> Vec<Doc> {
    let mut out = vec![signature("extern", name, &procedure.params, &procedure.outputs)];
    wheres(&mut out, &procedure.wheres);
    conditions(&mut out, "if", &procedure.conditions);
    out.push(text(format!("reference {}", quoted(&procedure.reference))));
    out
}

fn print_onnx(name: &Ident, onnx: &Onnx) -> Vec<Doc> {
    let is_attr = |param: &&Param| matches!(param.kind, ParamKind::Attr(_));
    let inputs = onnx.params.iter().filter(|p| !is_attr(p)).map(onnx_param).collect();
    let attrs = onnx.params.iter().filter(is_attr).map(onnx_param).collect();
    let mut head = vec![inputs_and_attrs(&format!("onnx {}", name.text), inputs, attrs)];
    if !onnx.outputs.is_empty() {
        let names: Vec<&str> = onnx.outputs.iter().map(|name| name.text.as_str()).collect();
        head.push(text(format!(" -> {}", names.join(", "))));
    }
    head.push(text(format!(" since {}", onnx.since)));
    if let Some(until) = onnx.until {
        head.push(text(format!(" until {until}")));
    }
    if !onnx.domain.is_empty() {
        head.push(text(format!(" in {}", quoted(&onnx.domain))));
    }
    if onnx.opaque {
        head.push(text(" opaque".to_string()));
    }
    let mut out = vec![Doc::Cat(head)];
    conditions(&mut out, "if", &onnx.conditions);
    out.extend(onnx.lets.iter().map(print_let));
    let only = onnx.reads.len() == 1;
    let value = |expr: &Expr| if only { whole(expr) } else { before_more(expr) };
    for (i, alternative) in onnx.reads.iter().enumerate() {
        let mut parts = vec![value(&alternative.value)];
        if !alternative.conditions.is_empty() {
            let all = fill(alternative.conditions.iter().map(condition).collect());
            parts.push(cat([text("if "), all]));
        }
        out.push(cat([text(if i == 0 { "= " } else { "| " }), group(Doc::Hang(parts))]));
    }
    out.extend(onnx.prints.iter().map(|print| print_print(name, print)));
    out
}

fn print_print(name: &Ident, print: &Print) -> Doc {
    let inputs = print.inputs.iter().map(whole).collect();
    let attrs = print
        .attrs
        .iter()
        .map(|(key, value)| cat([text(format!("{} = ", key.text)), whole(value)]));
    let node = inputs_and_attrs(&name.text, inputs, attrs.collect());
    let result = print.result.as_ref().map_or(String::new(), |name| format!(" -> {}", name.text));
    let mut parts = vec![whole(&print.pattern), cat([text("as "), node, text(result)])];
    clause(&mut parts, "given", print.given.iter().map(param).collect());
    conditions(&mut parts, "if", &print.conditions);
    cat([text("prints "), group(Doc::Hang(parts))])
}

fn print_target(name: &Ident, target: &Target) -> Vec<Doc> {
    let extends = target.extends.iter().map(|base| format!(" extends {}", base.text));
    let devices: Vec<String> = target.devices.iter().map(|d| quoted(d)).collect();
    let on = if devices.is_empty() { String::new() } else { format!(" on {}", devices.join(", ")) };
    let head = format!("target {}", name.text) + &extends.collect::<String>() + &on;
    let mut out = vec![text(head)];
    for (key, value) in &target.entries {
        out.push(cat([text(format!("{} = ", key.text)), before_more(value)]));
    }
    out.extend(target.kernels.iter().map(kernel));
    out
}

fn stored(one: &StoredType) -> Doc {
    text(format!("of {} {}", one.format.text, one.number))
}

fn print_architecture(name: &Ident, one: &Architecture) -> Vec<Doc> {
    let options = commas(one.params.iter().map(param).collect());
    let names: Vec<String> = one.names.iter().map(|n| quoted(n)).collect();
    let of = format!(" of {} {}", one.format.text, names.join(", "));
    let head = block(&format!("architecture {}(", name.text), options, ")");
    let mut out = vec![cat([head, text(of)])];
    out.extend(one.steps.iter().map(steps));
    out
}

fn steps(steps: &Steps) -> Doc {
    let all = commas(steps.steps.iter().map(step).collect());
    let Some((count, times)) = &steps.each else {
        return cat([text("let "), Doc::Cat(all)]);
    };
    let lines = all.into_iter().flat_map(|step| [Doc::Hard, step]).collect();
    let head = [text(format!("each {} in ", count.text)), before_more(times), text(" let")];
    cat([Doc::Cat(head.into()), nest(Doc::Cat(lines))])
}

fn step(step: &Step) -> Doc {
    let name = match &step.target {
        StepTarget::Names(all) => names(all),
        StepTarget::Output(name) => quoted(name),
    };
    cat([text(format!("{name} = ")), whole(&step.value)])
}

fn kernel(kernel: &Kernel) -> Doc {
    let entry =
        |(key, value): &(Ident, Expr)| cat([text(format!("{} = ", key.text)), before_more(value)]);
    let mut parts = vec![text(format!("kernel {}", quoted(&kernel.name)))];
    for (word, names) in [(" covers ", &kernel.covers), (" of ", &kernel.types)] {
        if !names.is_empty() {
            parts.extend([text(word), fill(names.iter().map(|name| text(&name.text)).collect())]);
        }
    }
    if let Some(follow) = &kernel.epilogue {
        parts.push(text(" epilogue"));
        let names: Vec<Doc> = follow.iter().map(|name| text(&name.text)).collect();
        if !names.is_empty() {
            parts.extend([text(" "), fill(names)]);
        }
    }
    if let Some(layout) = &kernel.layout {
        parts.push(text(format!(" in {}", layout.text)));
    }
    if let Some(cost) = &kernel.cost {
        let classes = kernel.class_costs.iter().map(entry);
        let all = std::iter::once(before_more(cost)).chain(classes);
        parts.extend([text(" cost "), fill(all.collect())]);
    }
    if !kernel.takes.is_empty() {
        parts.extend([text(" takes "), fill(kernel.takes.iter().map(entry).collect())]);
    }
    Doc::Cat(parts)
}

fn cat<const N: usize>(docs: [Doc; N]) -> Doc {
    Doc::Cat(Vec::from(docs))
}

// Entries with commas, as many on a line as fit.
fn fill(entries: Vec<Doc>) -> Doc {
    nest(Doc::Fill(commas(entries)))
}

fn clause(out: &mut Vec<Doc>, word: &str, entries: Vec<Doc>) {
    if !entries.is_empty() {
        out.push(cat([text(format!("{word} ")), fill(entries)]));
    }
}

fn conditions(out: &mut Vec<Doc>, word: &str, conditions: &[Expr]) {
    clause(out, word, conditions.iter().map(condition).collect());
}

fn wheres(out: &mut Vec<Doc>, wheres: &[Binding]) {
    clause(out, "where", wheres.iter().map(|b| binding(b, whole)).collect());
}

fn given(out: &mut Vec<Doc>, given: &[Param]) {
    clause(out, "given", given.iter().map(param).collect());
}

fn body(out: &mut Vec<Doc>, lets: &[Binding], body: &Expr) {
    out.extend(lets.iter().map(print_let));
    out.push(cat([text("= "), whole(body)]));
}

fn print_let(one: &Binding) -> Doc {
    cat([text("let "), binding(one, whole)])
}

fn binding(binding: &Binding, value: fn(&Expr) -> Doc) -> Doc {
    cat([text(format!("{} = ", names(&binding.names))), value(&binding.value)])
}

fn names(names: &[Ident]) -> String {
    match names {
        [one] => one.text.clone(),
        many => {
            let many: Vec<&str> = many.iter().map(|name| name.text.as_str()).collect();
            format!("({})", many.join(", "))
        }
    }
}

fn sides(sides: &[Side]) -> Doc {
    match sides {
        [one] => side(one),
        many => fill(many.iter().map(side).collect()),
    }
}

fn side(side: &Side) -> Doc {
    let mut parts = Vec::new();
    if side.each {
        parts.push(text("each "));
    }
    if !side.names.is_empty() {
        parts.push(text(format!("{} = ", names(&side.names))));
    }
    parts.push(whole(&side.value));
    Doc::Cat(parts)
}

fn error(error: &ErrorClause) -> Doc {
    text(match error {
        ErrorClause::Exact => "error exact".to_string(),
        ErrorClause::Reorder => "error reorder".to_string(),
        ErrorClause::Approx { abs, rel } => {
            let bound = |name: &str, value: &Option<f64>| {
                value.map(|value| format!("{name}={}", float(value)))
            };
            let bounds: Vec<String> =
                [bound("abs", abs), bound("rel", rel)].into_iter().flatten().collect();
            if bounds.is_empty() {
                "error approx".to_string()
            } else {
                format!("error approx({})", bounds.join(", "))
            }
        }
    })
}

fn test(test: &RuleTest) -> Doc {
    match test {
        RuleTest::Check { name, low, high } if low == high => {
            cat([text(format!("check {} = ", name.text)), bound(low)])
        }
        RuleTest::Check { name, low, high } => {
            cat([text(format!("check {} in ", name.text)), bound(low), text(".."), bound(high)])
        }
        RuleTest::Picks { side, at } => {
            let extent = |(name, value): &(Ident, Expr)| {
                cat([text(format!("{}=", name.text)), whole(value)])
            };
            let mut parts = vec![text("picks "), whole(side)];
            if !at.is_empty() {
                parts.extend([text(" at "), fill(at.iter().map(extent).collect())]);
            }
            Doc::Cat(parts)
        }
        RuleTest::Never { sides: graph, reason } => {
            cat([text("never "), sides(graph), text(" "), text(quoted(reason))])
        }
    }
}

fn signature(word: &str, name: &Ident, params: &[Param], outputs: &[Output]) -> Doc {
    let head = format!("{word} {}(", name.text);
    let outputs = outputs.iter().map(|output| match &output.name {
        Some(name) => cat([text(format!("{}: ", name.text)), tensor_type(&output.ty)]),
        None => tensor_type(&output.ty),
    });
    cat([
        block(&head, commas(params.iter().map(param).collect()), ")"),
        text(" -> "),
        fill(outputs.collect()),
    ])
}

// `head(inputs; attributes)`.
fn inputs_and_attrs(head: &str, inputs: Vec<Doc>, attrs: Vec<Doc>) -> Doc {
    let mut entries = commas(inputs);
    if !attrs.is_empty() {
        match entries.pop() {
            Some(last) => entries.push(cat([last, text(";")])),
            None => entries.push(text(";")),
        }
        entries.extend(commas(attrs));
    }
    block(&format!("{head}("), entries, ")")
}

fn param(one: &Param) -> Doc {
    param_with(one, false)
}

fn onnx_param(one: &Param) -> Doc {
    param_with(one, true)
}

fn param_with(param: &Param, onnx: bool) -> Doc {
    let mut parts = Vec::new();
    if param.each {
        parts.push(text("each "));
    }
    let name = &format!("{}{}", param.name.text, if param.pack { "..." } else { "" });
    let mark = |optional: bool| if optional { "?" } else { "" };
    match &param.kind {
        ParamKind::Tensor { ty, optional, variadic } => {
            let mark = if *variadic { "..." } else { mark(*optional) };
            parts.push(text(format!("{name}{mark}")));
            let any = ty.dtype.text == "T" && ty.dims.is_none() && ty.domain.is_none();
            if !(onnx && any) {
                parts.extend([text(": "), tensor_type(ty)]);
            }
        }
        ParamKind::ConstInput { ty, optional } => {
            parts.push(text(format!("const {name}{}: ", mark(*optional))));
            parts.push(attr_type(ty));
        }
        ParamKind::Attr(ty) => {
            parts.push(text(name));
            if let Some(ty) = ty {
                parts.extend([text(": "), attr_type(ty)]);
            }
        }
    }
    if let Some(default) = &param.default {
        parts.extend([text(" = "), whole(default)]);
    }
    Doc::Cat(parts)
}

fn tensor_type(ty: &TensorType) -> Doc {
    let mut parts = match &ty.dims {
        None => vec![text(&ty.dtype.text)],
        // A type does not break: its line breaks before it.
        Some(dims) => {
            let dims = lay_out(&group(enclosed("[", elems_docs(dims), "]")), usize::MAX);
            vec![text(format!("{}{dims}", ty.dtype.text))]
        }
    };
    if let Some(domain) = &ty.domain {
        parts.extend([text(format!(" {} ", domain.op.sign())), bound(&domain.bound)]);
    }
    Doc::Cat(parts)
}

fn attr_type(ty: &AttrType) -> Doc {
    let mut parts = vec![text(&ty.name.text)];
    if let Some(of) = &ty.of {
        parts.push(text(format!("({})", of.text)));
    }
    if let Some((low, high)) = &ty.range {
        parts.push(text(" in "));
        parts.extend(low.as_ref().map(bound));
        parts.push(text(".."));
        parts.extend(high.as_ref().map(bound));
    }
    Doc::Cat(parts)
}
