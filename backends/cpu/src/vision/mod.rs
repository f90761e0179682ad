//! Operators of vision models besides convolution and pooling: resampling, RoI align, non-max suppression.

pub(crate) mod non_max_suppression;
pub(crate) mod resample;
pub(crate) mod roi_pooling;
