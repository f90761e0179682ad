//! Operators of image models that are neither convolutions nor pooling: resampling, regions, boxes.

pub(crate) mod non_max_suppression;
pub(crate) mod resample;
pub(crate) mod roi_pooling;
