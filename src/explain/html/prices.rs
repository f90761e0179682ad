//! What kernels take under other circumstances: apart from each other, at another bandwidth, with other launches.

use mlc_dsl::ir::{DType, NodeKind, Program, Type};
use mlc_dsl::plan::Kernel;
use mlc_extract::Work;
use mlc_extract::cost::target::{REFERENCE, TargetPrices, VIEW};
use serde::Serialize;

/// Multiples of bandwidth and of a launch that are tried: powers of two up to that one, and what lies between.
const MOST: i32 = 7;

/// Kernels that are run one after the other.
#[derive(Clone, Default)]
pub(in crate::explain) struct Kernels(Vec<(String, DType, Work)>);

/// What another choice takes, and where it would be no slower.
#[derive(Debug, Serialize)]
pub(in crate::explain) struct Other {
    /// Estimated seconds of the choice, by the same account as of the other one.
    pub own: f64,
    /// Estimated seconds of the other one.
    pub other: f64,
    /// At this multiple of the bandwidth both take the same; nothing if at none that is tried.
    pub bandwidth: Option<f64>,
    /// At this multiple of a launch.
    pub launch: Option<f64>,
}

impl Kernels {
    /// Adds a kernel of a plan.
    pub fn push(&mut self, program: &Program, kernel: &Kernel, prices: &TargetPrices<'_>) {
        let work = prices.works().kernel(program, kernel);
        let dtype = kernel.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
        self.0.push((kernel.name.clone(), dtype, work));
    }

    /// The operators of a kernel, each in a kernel of its own; nothing if it has but one, or the target has no kernel for one
    /// of them.
    pub fn apart(program: &Program, kernel: &Kernel, prices: &TargetPrices<'_>) -> Option<Kernels> {
        let mut out = Kernels::default();
        for node in kernel.nodes.iter().map(|n| program.node(*n)) {
            let NodeKind::Apply(call, attrs) = &node.kind else { continue };
            let args: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
            let site = prices.site(*call, attrs, &args, &node.types)?;
            if prices.is_view(site.kernel) {
                continue;
            }
            let bytes = |t: &Type| prices.works().size().bytes(t);
            let read = args.iter().map(|t| bytes(t)).sum();
            let written = node.types.iter().map(bytes).sum();
            let launches = site.work.launches + 1.0;
            let work = Work { read, written, launches, ..site.work };
            let dtype = node.types.first().map_or(DType::F32, |t| t.dtype);
            out.0.push((prices.kernel_name(site.kernel).to_string(), dtype, work));
        }
        (out.0.len() > 1).then_some(out)
    }

    /// Estimated seconds at these multiples of the bandwidth and of a launch.
    fn seconds(&self, prices: &TargetPrices<'_>, bandwidth: f64, launch: f64) -> f64 {
        let one = |(name, dtype, work): &(String, DType, Work)| {
            let work = Work {
                read: work.read / bandwidth,
                written: work.written / bandwidth,
                fixed: work.fixed / bandwidth,
                launches: work.launches * launch,
                ..*work
            };
            prices.model().seconds(name, *dtype, &work)
        };
        self.0.iter().map(one).sum()
    }

    /// How it compares to another choice.
    pub fn against(&self, other: &Kernels, prices: &TargetPrices<'_>) -> Other {
        let gap = |bandwidth, launch| {
            other.seconds(prices, bandwidth, launch) - self.seconds(prices, bandwidth, launch)
        };
        Other {
            own: self.seconds(prices, 1.0, 1.0),
            other: other.seconds(prices, 1.0, 1.0),
            bandwidth: flip(&|f| gap(f, 1.0)),
            launch: flip(&|f| gap(1.0, f)),
        }
    }
}

/// The factor nearest to one at which a gap closes.
fn flip(gap: &dyn Fn(f64) -> f64) -> Option<f64> {
    let positive = gap(1.0) > 0.0;
    let closes = |f: f64| (gap(f) > 0.0) != positive;
    for power in 1..=MOST {
        for sign in [1, -1] {
            let beyond = 2f64.powi(sign * power);
            if closes(beyond) {
                let (mut near, mut far) = (2f64.powi(sign * (power - 1)), beyond);
                for _ in 0..30 {
                    let middle = (near * far).sqrt();
                    if closes(middle) { far = middle } else { near = middle }
                }
                return Some(far);
            }
        }
    }
    None
}

/// What limits a kernel by the figures of its price.
pub(in crate::explain) fn limit(
    program: &Program,
    kernel: &Kernel,
    prices: &TargetPrices<'_>,
) -> (&'static str, Work) {
    let work = prices.works().kernel(program, kernel);
    if kernel.name == VIEW {
        return ("a view", work);
    }
    if kernel.name == REFERENCE {
        return ("the reference interpreter", work);
    }
    let dtype = kernel.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
    let roofline = |work: Work| prices.model().roofline(dtype, &work);
    let launch = roofline(Work { launches: work.launches, ..Work::default() });
    let compute = roofline(Work { read: 0.0, written: 0.0, fetched: 0.0, launches: 0.0, ..work });
    let memory = roofline(Work { flops: 0.0, slow: 0.0, launches: 0.0, ..work });
    let most = compute.max(memory);
    let limit = match () {
        () if launch >= most => "the launch",
        () if compute >= memory => "arithmetic",
        () => "memory traffic",
    };
    (limit, work)
}

#[cfg(test)]
mod tests {
    use super::flip;

    #[test]
    fn the_nearest_factor_closes_the_gap() {
        let near = |f: Option<f64>, to: f64| assert!((f.expect("closes") / to - 1.0).abs() < 1e-6);
        near(flip(&|f| 3.0 - f), 3.0);
        near(flip(&|f| f - 0.3), 0.3);
        assert_eq!(flip(&|_| 1.0), None);
    }
}
