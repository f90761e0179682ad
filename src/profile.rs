//! Target profiles: cost figures of a machine, and fitted costs of its kernels, as TOML.
//!
//! Bad input is an error that says where, why and what to write instead.

use crate::error::{Error, ErrorKind};
use crate::pipeline::costing::Costing;
use mlc_dsl::ir::DType;
use mlc_dsl::library::TargetItem;
use mlc_extract::cost::fit::{Caches, FEATURES, Fit, KernelClass, N, Row};
use mlc_extract::{Fits, MemoryLevel, Profile, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

/// A profile as written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    /// How people call it.
    name: String,
    /// Seconds from asking for a kernel until it starts.
    launch: f64,
    /// Operations per second; `any`, or an element type.
    operations: BTreeMap<String, Operations>,
    /// Elements per second that windows bring in again; they take no time if this is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fetched: Option<f64>,
    /// Nearest first; the last has no size.
    memory: Vec<Memory>,
    /// Bytes of the caches that fits were made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    caches: Option<CacheSizes>,
    /// Fitted kernels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    kernels: BTreeMap<String, FittedKernel>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    quick: f64,
    slow: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<f64>,
    bandwidth: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct CacheSizes {
    near: f64,
    far: f64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FittedKernel {
    samples: usize,
    error: f64,
    low: f64,
    high: f64,
    /// Seconds per unit of each feature.
    seconds: BTreeMap<String, f64>,
    /// The largest sampled value of each feature.
    most: BTreeMap<String, f64>,
    /// Fits of classes of shapes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    classes: BTreeMap<String, FittedKernel>,
}

/// Longest profile, in bytes.
const LONGEST: u64 = 4 << 20;

/// Reads a profile.
pub fn read(path: &Path) -> Result<Costing, Error> {
    let text = mlc_files::text(path, LONGEST).map_err(|e| mlc_files::error("read", path, e))?;
    parse(&text, &path.display().to_string())
}

/// A profile's text; `place` is its file.
pub fn parse(text: &str, place: &str) -> Result<Costing, Error> {
    // What is wrong is shown with its line of the file, and that line holds anything.
    let wrong = |reason: String| {
        let lines: Vec<String> = reason.trim_end().lines().map(mlc_dsl::told).collect();
        let message = format!("{place}: {}", lines.join("\n"));
        Error::new(ErrorKind::Setting, message).at(place).with_help(HELP)
    };
    let file: ProfileFile = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
    file.checked().map_err(wrong)
}

/// What a profile looks like.
const HELP: &str = "a profile has `name`, `launch`, `[operations.any]` with `quick` and `slow`, and `[[memory]]` \
    levels with `bytes` and `bandwidth`; see examples/server.toml";

fn positive(what: &str, v: f64) -> Result<f64, String> {
    let is_one = v.is_finite() && v > 0.0;
    if is_one { Ok(v) } else { Err(format!("`{what}` is {v}, not a positive number")) }
}

fn not_negative(what: &str, v: f64) -> Result<f64, String> {
    let is_one = v.is_finite() && v >= 0.0;
    if is_one { Ok(v) } else { Err(format!("`{what}` is {v}, a number below zero or none")) }
}

impl ProfileFile {
    fn checked(self) -> Result<Costing, String> {
        let mut rates = BTreeMap::new();
        let mut any = None;
        for (key, o) in &self.operations {
            let rate = Rate {
                flops_per_s: positive(&format!("operations.{key}.quick"), o.quick)?,
                slow_per_s: positive(&format!("operations.{key}.slow"), o.slow)?,
            };
            match DType::from_str(key) {
                _ if key == "any" => any = Some(rate),
                Ok(d) => drop(rates.insert(d, rate)),
                Err(_) => {
                    let reason = "neither `any` nor an element type";
                    return Err(format!("`operations.{key}`: {reason}"));
                }
            }
        }
        let rate = any.ok_or("`operations.any` is missing")?;
        let profile = Profile {
            name: self.name.clone(),
            rate,
            dtypes: rates,
            fetched_per_s: self.fetched.map_or(Ok(f64::INFINITY), |v| positive("fetched", v))?,
            levels: self.levels()?,
            launch_s: not_negative("launch", self.launch)?,
        };
        let fits = if self.kernels.is_empty() { None } else { Some(self.fits()?) };
        let source = format!("profile `{}`", self.name);
        Ok(Costing { profile: Some(profile), fits, source, ..Costing::default() })
    }

    fn levels(&self) -> Result<Vec<MemoryLevel>, String> {
        if self.memory.is_empty() {
            return Err("there is no `[[memory]]` level".into());
        }
        let last = self.memory.len() - 1;
        let mut out: Vec<MemoryLevel> = Vec::new();
        for (i, m) in self.memory.iter().enumerate() {
            let bytes = match m.bytes {
                Some(b) if i < last => positive("memory.bytes", b)?,
                Some(_) => {
                    return Err(
                        "the last level of `memory` holds everything: it has no `bytes`".into()
                    );
                }
                None if i == last => f64::INFINITY,
                None => return Err(format!("level {} of `memory` has no `bytes`", i + 1)),
            };
            if out.last().is_some_and(|l| l.bytes >= bytes) {
                return Err(format!(
                    "level {} of `memory` is not larger than the one before",
                    i + 1
                ));
            }
            out.push(MemoryLevel {
                bytes,
                bytes_per_s: positive("memory.bandwidth", m.bandwidth)?,
            });
        }
        Ok(out)
    }

    fn fits(&self) -> Result<Fits, String> {
        let c =
            self.caches.as_ref().ok_or("fitted kernels need `[caches]` with `near` and `far`")?;
        let caches =
            Caches { near: positive("caches.near", c.near)?, far: positive("caches.far", c.far)? };
        let fit = |(name, k): (&String, &FittedKernel)| Ok((name.clone(), k.fit(name)?));
        let kernels = self.kernels.iter().map(fit).collect::<Result<_, String>>()?;
        Ok(Fits { caches, kernels })
    }
}

impl FittedKernel {
    fn fit(&self, name: &str) -> Result<Fit, String> {
        let mut classes = BTreeMap::new();
        for (class, k) in &self.classes {
            let named = KernelClass::named(class).ok_or_else(|| {
                format!("`kernels.{name}.classes` has no class `{class}` of shapes")
            })?;
            classes.insert(named, k.fit(&format!("{name}.classes.{class}"))?);
        }
        Ok(Fit {
            coefficients: row(name, &self.seconds)?,
            most: row(name, &self.most)?,
            low: positive(&format!("kernels.{name}.low"), self.low)?,
            high: positive(&format!("kernels.{name}.high"), self.high)?,
            error: not_negative(&format!("kernels.{name}.error"), self.error)?,
            samples: self.samples,
            classes,
        })
    }

    fn of(f: &Fit) -> FittedKernel {
        FittedKernel {
            samples: f.samples,
            error: f.error,
            low: f.low,
            high: f.high,
            seconds: named(&f.coefficients),
            most: named(&f.most),
            classes: f.classes.iter().map(|(c, f)| (c.to_string(), FittedKernel::of(f))).collect(),
        }
    }
}

fn named(r: &Row) -> BTreeMap<String, f64> {
    let pairs = FEATURES.iter().zip(r).filter(|(_, v)| **v > 0.0);
    pairs.map(|(f, v)| (f.to_string(), *v)).collect()
}

fn row(kernel: &str, values: &BTreeMap<String, f64>) -> Result<Row, String> {
    let mut out = [0.0; N];
    for (key, v) in values {
        let at = FEATURES.iter().position(|f| f == key);
        let at = at.ok_or_else(|| {
            format!("kernels.{kernel}: `{key}` is no feature; those are {}", FEATURES.join(", "))
        })?;
        out[at] = not_negative(&format!("kernels.{kernel}.{key}"), *v)?;
    }
    Ok(out)
}

/// Fitted costs as a profile, beside the figures of the target's text.
pub fn written(fits: &Fits, target: &TargetItem, name: &str) -> Result<String, Error> {
    let p = Profile::of(target);
    let any = Operations { quick: p.rate.flops_per_s, slow: p.rate.slow_per_s };
    let memory = p.levels.iter().map(|l| Memory {
        bytes: l.bytes.is_finite().then_some(l.bytes),
        bandwidth: l.bytes_per_s,
    });
    let file = ProfileFile {
        name: name.to_string(),
        launch: p.launch_s,
        operations: BTreeMap::from([("any".to_string(), any)]),
        fetched: p.fetched_per_s.is_finite().then_some(p.fetched_per_s),
        memory: memory.collect(),
        caches: Some(CacheSizes { near: fits.caches.near, far: fits.caches.far }),
        kernels: fits.kernels.iter().map(|(k, f)| (k.clone(), FittedKernel::of(f))).collect(),
    };
    toml::to_string(&file).map_err(|e| Error::unexpected(e.to_string()))
}
