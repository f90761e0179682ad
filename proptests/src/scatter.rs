//! A scatter plot as SVG: two axes of one logarithmic scale, a colour per group, the diagonal.

use mlc_rewrite::svg::Drawing;

/// Points of one colour.
pub struct Group {
    /// What the legend says.
    pub name: String,
    /// Predicted and measured.
    pub points: Vec<(f64, f64)>,
}

const SIDE: f64 = 620.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 30.0;
const COLOURS: [&str; 12] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
    "#bcbd22", "#17becf", "#003f5c", "#ffa600",
];

/// The plot; values are seconds, shown in milliseconds.
pub fn svg(title: &str, groups: &[Group]) -> String {
    let all = || groups.iter().flat_map(|g| &g.points).flat_map(|p| [p.0, p.1]);
    let low = all().fold(f64::INFINITY, f64::min).log10().floor();
    let high = all().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let at = |v: f64| SIDE * (v.log10() - low) / (high - low);
    let (w, h) = (LEFT + SIDE + 190.0, TOP + SIDE + 60.0);
    let mut out = Drawing::new(w, h);
    out.text(format_args!("x=\"{LEFT}\" y=\"20\" font-size=\"15\""), title);
    let bottom = TOP + SIDE;
    for e in low as i32..=high as i32 {
        let d = at(10f64.powi(e));
        let (x, y) = (LEFT + d, bottom - d);
        let label = 10f64.powi(e + 3);
        let right = LEFT + SIDE;
        out.element(format_args!(
            "<path d=\"M{x:.1} {TOP}V{bottom}M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            bottom + 18.0,
            LEFT - 6.0,
            y + 4.0
        ));
    }
    out.element(format_args!(
        "<path d=\"M{LEFT} {bottom}L{} {TOP}\" stroke=\"#888\" stroke-dasharray=\"4\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">predicted, ms</text>\
         <text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">measured, ms</text>",
        LEFT + SIDE,
        LEFT + SIDE / 2.0,
        bottom + 42.0,
        TOP + SIDE / 2.0
    ));
    for (i, g) in groups.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        for (p, m) in &g.points {
            let (x, y) = (LEFT + at(*p), bottom - at(*m));
            out.element(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\" fill-opacity=\"0.6\"/>"
            ));
        }
        let (x, y) = (LEFT + SIDE + 16.0, TOP + 14.0 + 20.0 * i as f64);
        out.element(format_args!(
            "<circle cx=\"{x}\" cy=\"{}\" r=\"5\" fill=\"{colour}\"/>",
            y - 4.0
        ));
        out.text(format_args!("x=\"{}\" y=\"{y}\"", x + 12.0), &g.name);
    }
    out.finish()
}
