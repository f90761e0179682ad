//! What code is generated for besides the plan: the device, the precision and which kernel forms may be used.

/// When a form of code is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Never.
    Never,
    /// Where it is estimated to be faster.
    #[default]
    WhenFaster,
    /// Wherever it is possible.
    Always,
}

/// When warpgroups multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Warpgroups {
    /// Never: the device has no such instructions, or code is for none.
    #[default]
    Never,
    /// Where a session finds it to be right and faster.
    Offered,
    /// Wherever it is possible.
    Always,
}

/// What code is generated for, besides the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Multiprocessors of the device: work is cut such that all of them have some.
    pub processors: u32,
    /// Whether factors of products in 32 bits may be rounded to the 19 bits of `tf32`, as tensor cores take them.
    pub tf32: bool,
    /// When the launches of a run become a megakernel.
    pub megakernel: Policy,
    /// When a recurrent layer runs as a persistent kernel on all multiprocessors.
    pub persistent_rnn: Policy,
    /// When products use warpgroup instructions (`wgmma`).
    pub warpgroups: Warpgroups,
    /// Whether other tilings of products are offered, of which a session takes the one that the device's clock says.
    pub offers_tilings: bool,
}

impl Default for Tuning {
    /// A device of 132 multiprocessors; products in full precision.
    fn default() -> Tuning {
        Tuning {
            processors: 132,
            tf32: false,
            megakernel: Policy::WhenFaster,
            persistent_rnn: Policy::WhenFaster,
            warpgroups: Warpgroups::Never,
            offers_tilings: false,
        }
    }
}

/// What the code of one form of a plan is generated for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeTarget {
    pub tuning: Tuning,
    /// Whether all blocks have the same number of threads, as a megakernel needs.
    pub uniform_blocks: bool,
}
