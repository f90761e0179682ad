//! Names of enum values of the library on the command line.

use crate::device::BackendKind;
use crate::pipeline::options::Objective;
use crate::pipeline::options::{Fp, Solver};
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// Names the values of a type, each with a line of help.
macro_rules! values {
    ($($t:ty { $($value:ident: $name:literal, $help:literal;)* })*) => {$(
        impl ValueEnum for $t {
            fn value_variants<'a>() -> &'a [$t] {
                &[$(<$t>::$value),*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(match self {
                    $(<$t>::$value => PossibleValue::new($name).help($help),)*
                })
            }
        }
    )*};
}

values! {
    Fp {
        Exact: "exact", "Same bits";
        Reorder: "reorder", "Same real function, differently rounded";
        Approx: "approx", "Other functions within the laws' stated bounds";
    }
    Solver {
        Greedy: "greedy", "Greedy over the DAG with local improvement, and a quick lower bound";
        Anytime: "anytime", "Exact search and neighbourhoods in turns, until the optimum is proven or the budget is spent";
        Exact: "exact", "Branch and bound alone, until the optimum is proven or the budget is spent";
    }
    Objective {
        Latency: "latency", "Estimated seconds";
        Memory: "memory", "Planned bytes of all buffers; estimated seconds where these are equal";
        Size: "size", "Bytes of the constants that the result stores; estimated seconds where these are equal";
    }
    BackendKind {
        Reference: "reference", "The f64 interpreter of meanings";
        Cpu: "cpu", "This machine's processor";
        Cuda: "cuda", "An NVIDIA device";
    }
}
