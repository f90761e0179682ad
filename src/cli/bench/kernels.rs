//! The kernels of a plan as `bench --kernels` shows them: a table, and a chart. Kernels that compute the same are one row.

use crate::explain::{first_names, seconds};
use crate::kernel_times::KernelTime;
use crate::svg::{Drawing, escaped};
use itertools::Itertools;
use std::fmt::{self, Display, Write};

/// Kernels that compute the same together.
struct Row<'a> {
    kernel: &'a str,
    computes: &'a str,
    nodes: Vec<&'a str>,
    count: usize,
    measured: f64,
    predicted: f64,
    /// The part of the roofline that they reach, where it is known of all.
    roofline: Option<f64>,
}

impl Row<'_> {
    /// As percent, or nothing.
    fn reached(&self) -> Option<String> {
        self.roofline.map(|part| format!("{:.0} %", 100.0 * part))
    }
}

impl Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count > 1 {
            write!(f, "{} x ", self.count)?;
        }
        write!(f, "{}: {}", self.kernel, self.computes)
    }
}

/// Those that take longest first.
fn rows(kernels: &[KernelTime]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for k in kernels {
        let same = |r: &&mut Row<'_>| r.kernel == k.kernel && r.computes == k.computes;
        match rows.iter_mut().find(same) {
            Some(r) => {
                let before = r.roofline.map(|part| part * r.measured);
                r.measured += k.measured;
                let both = before.zip(k.roofline).map(|(before, part)| before + part * k.measured);
                r.roofline = both.map(|both| both / r.measured);
                r.predicted += k.predicted;
                r.count += 1;
                r.nodes.extend(k.nodes.iter().map(String::as_str));
            }
            None => rows.push(Row {
                kernel: &k.kernel,
                computes: &k.computes,
                nodes: k.nodes.iter().map(String::as_str).collect(),
                count: 1,
                measured: k.measured,
                predicted: k.predicted,
                roofline: k.roofline,
            }),
        }
    }
    rows.sort_by(|a, b| b.measured.total_cmp(&a.measured));
    rows
}

/// The rows as text.
pub(crate) fn table(title: &str, kernels: &[KernelTime]) -> String {
    let rows = rows(kernels);
    let total: f64 = rows.iter().map(|r| r.measured).sum();
    let mut out = format!(
        "\n{title}: measured, share, of the roofline, estimated, estimated/measured, kernel\n"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:>10} {:>6.1} % {:>6} {:>10} {:>6.2}  {row}",
            seconds(row.measured),
            100.0 * part(row.measured, total),
            row.reached().unwrap_or_else(|| "-".into()),
            seconds(row.predicted),
            row.predicted / row.measured,
        );
        let nodes: Vec<String> = row.nodes.iter().map(|n| n.to_string()).unique().collect();
        if !nodes.is_empty() {
            let _ = writeln!(out, "{:NODES$}{}", "", first_names(&nodes, false));
        }
    }
    out
}

/// Where the nodes of a row's kernels stand.
const NODES: usize = 47;

/// Rows with a bar of their own.
const BARS: usize = 30;
/// Characters of a label.
const LABEL: usize = 48;

/// Extents in pixels; the labels' fit [`LABEL`] characters.
const MARGIN: f64 = 16.0;
const LABELS: f64 = 376.0;
const LONGEST: f64 = 400.0;
const FIGURES: f64 = 280.0;
const TOP: f64 = 44.0;
const STEP: f64 = 20.0;

/// A bar of a chart: what it is of, in short and in full, its seconds and its colour.
struct Bar {
    label: String,
    name: String,
    time: f64,
    /// The part of the roofline, as percent.
    reached: Option<String>,
    colour: &'static str,
}

/// A bar for each of the first rows, and one for all others.
fn bars(rows: &[Row<'_>]) -> Vec<Bar> {
    let (first, others) = rows.split_at(rows.len().min(BARS));
    let own = |r: &Row<'_>| Bar {
        label: label(r),
        name: r.to_string(),
        time: r.measured,
        reached: r.reached(),
        colour: "#1f77b4",
    };
    let mut bars: Vec<Bar> = first.iter().map(own).collect();
    if !others.is_empty() {
        let time = others.iter().map(|r| r.measured).sum();
        let name = String::from("others");
        bars.push(Bar { label: name.clone(), name, time, reached: None, colour: "#7f7f7f" });
    }
    bars
}

/// The rows as a chart in SVG: a bar for each, with its time and its share of all. The whole name is shown where a viewer
/// points at the bar.
pub(crate) fn chart(title: &str, kernels: &[KernelTime]) -> String {
    let bars = bars(&rows(kernels));
    let total = bars.iter().fold(0.0, |sum, b| sum + b.time);
    let longest = bars.iter().map(|b| b.time).fold(0.0, f64::max);
    let left = MARGIN + LABELS;
    let width = left + LONGEST + FIGURES + MARGIN;
    let mut out = Drawing::new(width, TOP + STEP * bars.len() as f64 + MARGIN);
    let title = format!("{title}: the kernels take {}", seconds(total));
    out.text(format_args!("x=\"{MARGIN}\" y=\"26\" font-size=\"15\""), &title);
    for (i, Bar { label, name, time, reached, colour }) in bars.iter().enumerate() {
        let y = TOP + STEP * i as f64;
        let (base, length) = (y + 12.0, LONGEST * part(*time, longest));
        let end = format!("x=\"{}\" y=\"{base}\" text-anchor=\"end\"", left - 8.0);
        out.text(format_args!("{end} font-family=\"monospace\" font-size=\"12\""), label);
        out.element(format_args!(
            "<rect x=\"{left}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" fill=\"{colour}\">\
             <title>{}</title></rect>",
            escaped(name)
        ));
        let mut figures = format!("{}, {:.1} %", seconds(*time), 100.0 * part(*time, total));
        if let Some(reached) = reached {
            let _ = write!(figures, ", {reached} of the roofline");
        }
        out.text(format_args!("x=\"{:.1}\" y=\"{base}\"", left + length + 8.0), &figures);
    }
    out.finish()
}

/// A part of a whole; none of nothing, where no kernel is launched.
fn part(time: f64, whole: f64) -> f64 {
    if whole > 0.0 { time / whole } else { 0.0 }
}

/// The beginning of a row's name, in which a kernel that is named as what it computes stands once.
fn label(row: &Row<'_>) -> String {
    let kernel = row.kernel;
    let name = row.to_string().replacen(&format!("{kernel}: {kernel}("), &format!("{kernel}("), 1);
    match name.char_indices().nth(LABEL) {
        None => name,
        Some(_) => name.chars().take(LABEL - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BARS, chart};
    use crate::kernel_times::KernelTime;

    fn time(kernel: &str, computes: &str, measured: f64) -> KernelTime {
        let (kernel, computes) = (kernel.to_string(), computes.to_string());
        KernelTime {
            kernel,
            computes,
            nodes: vec![],
            measured,
            predicted: measured,
            bytes: 0.0,
            flops: 0.0,
            roofline: Some(0.5),
        }
    }

    #[test]
    fn a_chart_has_a_bar_for_each_row() {
        let long = "where(x < 0.0 & y > 1.0, x, y), and so much more that it is cut";
        let kernels = [
            time("pointwise", long, 0.5e-3),
            time("conv", "conv(x, w)", 1.5e-3),
            time("conv", "conv(x, w)", 0.5e-3),
        ];
        let text = r##"<svg xmlns="http://www.w3.org/2000/svg" width="1088" height="100" font-family="sans-serif" font-size="13">
<rect width="1088" height="100" fill="white"/>
<text x="16" y="26" font-size="15">&lt;m&gt;.onnx, optimised, 2 threads: the kernels take 2.50 ms</text>
<text x="384" y="56" text-anchor="end" font-family="monospace" font-size="12">2 x conv(x, w)</text>
<rect x="392" y="44" width="400.0" height="16" fill="#1f77b4"><title>2 x conv: conv(x, w)</title></rect>
<text x="800.0" y="56">2.00 ms, 80.0 %, 50 % of the roofline</text>
<text x="384" y="76" text-anchor="end" font-family="monospace" font-size="12">pointwise: where(x &lt; 0.0 &amp; y &gt; 1.0, x, y), and …</text>
<rect x="392" y="64" width="100.0" height="16" fill="#1f77b4"><title>pointwise: where(x &lt; 0.0 &amp; y &gt; 1.0, x, y), and so much more that it is cut</title></rect>
<text x="500.0" y="76">500.00 µs, 20.0 %, 50 % of the roofline</text>
</svg>
"##;
        assert_eq!(chart("<m>.onnx, optimised, 2 threads", &kernels), text);
    }

    #[test]
    fn rows_beyond_the_first_share_a_bar() {
        let of = |count: usize| -> String {
            let kernel = |i: usize| time(&format!("k{i}"), "x", 1e-3);
            chart("m", &(0..count).map(kernel).collect::<Vec<_>>())
        };
        assert!(!of(BARS).contains("others"));
        let text = of(BARS + 10);
        assert!(text.contains(">others</text>") && text.contains("10.00 ms, 25.0 %"), "{text}");
        assert!(text.contains("k29: x") && !text.contains("k30: x"), "{text}");
    }

    #[test]
    fn kernels_that_take_no_time_have_no_share() {
        assert!(
            chart("m", &[time("view", "x", 0.0)])
                .contains(">0.00 µs, 0.0 %, 50 % of the roofline<")
        );
        assert!(chart("m", &[]).contains("take 0.00 µs"));
    }
}
