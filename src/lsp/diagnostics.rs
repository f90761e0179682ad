//! The checker's mistakes as an editor shows them, and what was found about laws.

use crate::Verdict;
use crate::documents::Lines;
use crate::workspace::Analysis;
use lsp_types::{
    Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString, Uri,
};
use mlc_dsl::diagnostics::span::Span;
use mlc_dsl::diagnostics::{Diag, Severity, plain};

/// Mistakes that are sent at most; an editor slows down with more.
const MOST: usize = 1000;

/// Who says so.
const SOURCE: &str = "mlc-rewrite";

/// What was found about a law that a document declares.
#[derive(Clone, Debug)]
pub struct Finding {
    /// As the rule or definition is called.
    pub law: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The mistakes of a document and what was found about its laws.
pub fn diagnostics(analysis: &Analysis, uri: &Uri, findings: &[Finding]) -> Vec<Diagnostic> {
    let text = analysis.text();
    let lines = Lines::of(text);
    let mistakes = analysis.diags.iter().take(MOST).map(|d| mistake(d, text, &lines, uri));
    let found = findings.iter().filter_map(|f| {
        let item = analysis.names().items.iter().find(|i| i.name.text == f.law)?;
        Some(finding(f, item.name.span, text, &lines))
    });
    mistakes.chain(found).collect()
}

fn mistake(diag: &Diag, text: &str, lines: &Lines, uri: &Uri) -> Diagnostic {
    let mut message = plain(&diag.message);
    if let Some((_, label)) = diag.labels.first().filter(|l| !l.1.is_empty()) {
        message.push_str(&format!(": {}", plain(label)));
    }
    if let Some(help) = &diag.help {
        message.push_str(&format!("\nhelp: {}", plain(help)));
    }
    let place = |span: Span| Location { uri: uri.clone(), range: lines.range(text, span) };
    let related = diag.labels.iter().skip(1).map(|(span, label)| DiagnosticRelatedInformation {
        location: place(*span),
        message: if label.is_empty() { "see here".into() } else { plain(label) },
    });
    let related: Vec<_> = related.collect();
    Diagnostic {
        range: lines.range(text, diag.span()),
        severity: Some(match diag.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
        }),
        code: Some(NumberOrString::String(diag.code.0.to_string())),
        source: Some(SOURCE.into()),
        message,
        related_information: (!related.is_empty()).then_some(related),
        ..Diagnostic::default()
    }
}

fn finding(found: &Finding, at: Span, text: &str, lines: &Lines) -> Diagnostic {
    let verdict = &found.verdict;
    let severity = match verdict.holds {
        true => DiagnosticSeverity::INFORMATION,
        false => DiagnosticSeverity::ERROR,
    };
    Diagnostic {
        range: lines.range(text, at),
        severity: Some(severity),
        code: verdict.code.clone().map(NumberOrString::String),
        source: Some(SOURCE.into()),
        message: verdict.text.clone(),
        ..Diagnostic::default()
    }
}
