//! Progress bars on standard error for tasks that take more than a second, with the remaining time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What takes no longer needs no bar.
const SOON: Duration = Duration::from_secs(1);
/// Steps of a stage whose parts are fractions.
const STEPS: u64 = 1000;

/// A bar that counts to `length`, if that is not 0, and appears after a second. Silent where standard error is no
/// terminal, or if it is not wanted.
pub fn bar(unit: &str, length: u64, wanted: bool) -> ProgressBar {
    let template = match length {
        0 => format!("{{elapsed_precise}} {{spinner}} {{pos}} {unit}"),
        _ => format!("{{elapsed_precise}} {{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left"),
    };
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    let bar = match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    if wanted {
        appear(&bar);
    }
    bar
}

/// Shows the bar once a second has passed, if it is still there.
fn appear(bar: &ProgressBar) {
    let weak = bar.downgrade();
    std::thread::spawn(move || {
        std::thread::sleep(SOON);
        if let Some(bar) = weak.upgrade().filter(|b| !b.is_finished()) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    });
}

/// Shows the stages of a long call from now on, if that is wanted.
pub fn watch(wanted: bool) {
    if !wanted {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden())
        .with_finish(ProgressFinish::AndClear);
    appear(&bar);
    let stage: Arc<Mutex<Option<Stage>>> = Arc::default();
    mlc_explore::progress::set_watcher(Some(Box::new(move |name, done| {
        let part = done.map(|d| d.clamp(0.0, 1.0));
        {
            let Ok(mut stage) = stage.lock() else { return };
            let now = Instant::now();
            match stage.as_mut().filter(|s| s.name == name) {
                Some(known) if known.part == part => {}
                Some(known) => (known.part, known.moved) = (part, now),
                None => {
                    *stage = Some(Stage { name: name.to_string(), begun: now, part, moved: now })
                }
            }
        }
        let template = match part {
            Some(_) => "{elapsed_precise} {bar:30} {msg}{left}",
            None => "{elapsed_precise} {spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            // Drawn anew with every tick: between two reports time passes, too.
            let stage = stage.clone();
            bar.set_style(style.with_key("left", move |_: &ProgressState, out: &mut dyn Write| {
                let told = stage.lock().ok().and_then(|s| s.as_ref()?.left(Instant::now()));
                let _ = out.write_str(&told.unwrap_or_default());
            }));
        }
        bar.set_position((part.unwrap_or(0.0) * STEPS as f64) as u64);
        bar.set_message(name.to_string());
    })));
}

/// A stage of a long call.
struct Stage {
    name: String,
    begun: Instant,
    /// What is done of it, if that is known.
    part: Option<f64>,
    /// When that last changed.
    moved: Instant,
}

/// The part of a stage that is done before anything is said of the rest.
const LEAST: f64 = 0.01;

impl Stage {
    /// What it may still take: as long, for what is left, as what is done took; and no less than it has stood still, for then it
    /// does not go on as it did.
    fn left(&self, now: Instant) -> Option<String> {
        let part = self.part.filter(|p| *p >= LEAST)?;
        let took = self.moved.duration_since(self.begun).as_secs_f64();
        let still = now.duration_since(self.moved).as_secs_f64();
        let left = (took / part * (1.0 - part) - still).max(still);
        Some(format!(", about {:.0} s left", left.ceil()))
    }
}

/// Ends the display of stages.
pub fn done() {
    mlc_explore::progress::set_watcher(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_stands_still_is_told_to_take_longer() {
        let begun = Instant::now();
        let at = |s: f64| begun + Duration::from_secs_f64(s);
        let stage = |part| Stage { name: "exploring".into(), begun, part, moved: at(9.0) };
        let told = |s: f64| stage(Some(0.9)).left(at(s)).expect("known");
        assert_eq!(told(9.0), ", about 1 s left");
        // Six seconds after one second was left it is not one second.
        assert_eq!(told(15.0), ", about 6 s left");
        assert_eq!(stage(Some(0.1)).left(at(9.0)).expect("known"), ", about 81 s left");
        assert_eq!(stage(Some(0.1)).left(at(19.0)).expect("known"), ", about 71 s left");
        assert_eq!(stage(None).left(at(9.0)), None);
        assert_eq!(stage(Some(0.0)).left(at(9.0)), None);
        assert_eq!(stage(Some(1e-6)).left(at(9.0)), None);
    }
}
