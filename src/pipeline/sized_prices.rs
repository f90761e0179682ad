//! Prices at several sizes: what a plan takes at each, and one figure of these.

use mlc_dsl::ir::{NodeId, Program};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::Size;
use mlc_extract::cost::target::TargetPrices;
use mlc_extract::kernels::selection::{by_kernel, select_kernels_with_incumbent};

/// The prices of a place to run for each size that a program is priced at.
pub struct SizedPrices<'a> {
    library: &'a Library,
    /// Never empty.
    prices: Vec<TargetPrices<'a>>,
    /// What a second at each size counts for.
    weights: Vec<f64>,
}

impl<'a> SizedPrices<'a> {
    /// The same prices at each of the sizes that differ in a program, and at the default size if there are none.
    pub fn new(
        library: &'a Library,
        sizes: &[Size],
        program: &Program,
        prices: impl Fn() -> TargetPrices<'a>,
    ) -> SizedPrices<'a> {
        let sizes = Size::of_program(sizes, program).iter();
        let mut all: Vec<_> = sizes.map(|s| prices().at(s.clone())).collect();
        if all.is_empty() {
            all.push(prices());
        }
        SizedPrices { library, weights: vec![1.0 / all.len() as f64; all.len()], prices: all }
    }

    /// Makes each size count as much as the others for a plan that takes so long at them.
    pub fn weigh(&mut self, at_sizes: &[f64]) {
        let (mean, count) = (self.seconds(at_sizes), at_sizes.len() as f64);
        if at_sizes.iter().all(|s| *s > 0.0) {
            self.weights = at_sizes.iter().map(|s| mean / (count * s)).collect();
        }
    }

    /// The prices at the first size.
    pub fn first(&self) -> &TargetPrices<'a> {
        &self.prices[0]
    }

    /// The sizes.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = &Size> {
        self.prices.iter().map(|p| p.works().size())
    }

    /// One figure for several sizes: the mean over the sizes of what part a plan takes of the time of the one that was
    /// [weighed](Self::weigh), times the mean of that time. No size outweighs the others because more is to be done there.
    pub fn seconds(&self, at_sizes: &[f64]) -> f64 {
        at_sizes.iter().zip(&self.weights).map(|(s, w)| s * w).sum()
    }

    /// Estimated seconds of a plan at each size.
    pub fn at_sizes(&self, plan: &Plan) -> Vec<f64> {
        match self.prices.as_slice() {
            [_] => vec![plan.cost],
            all => all.iter().map(|p| by_kernel(plan, self.library, p).iter().sum()).collect(),
        }
    }

    /// [One figure](Self::seconds) of each kernel of a plan.
    pub fn by_kernel(&self, plan: &Plan) -> Vec<f64> {
        let all = self.prices.iter().map(|p| by_kernel(plan, self.library, p));
        let all: Vec<Vec<f64>> = all.collect();
        let of = |k: usize| self.seconds(&all.iter().map(|a| a[k]).collect::<Vec<_>>());
        (0..plan.kernels.len()).map(of).collect()
    }

    /// The kernels of a program that each size prefers, without repetition; `chosen` are kernels that were chosen for it before.
    pub fn select(&self, program: &Program, chosen: &[Vec<NodeId>]) -> Vec<Plan> {
        let mut out: Vec<Plan> = Vec::with_capacity(self.prices.len());
        for prices in &self.prices {
            let plan = select_kernels_with_incumbent(program.clone(), chosen, self.library, prices);
            if out.iter().all(|known| known.kernels != plan.kernels) {
                out.push(plan);
            }
        }
        out
    }
}
