//! Progress bars on standard error for tasks that take more than a second, with the remaining time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use std::sync::Mutex;
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
    let stage = Mutex::new((String::new(), Instant::now()));
    mlc_explore::progress::set_watcher(Some(Box::new(move |name, done| {
        let Ok(mut stage) = stage.lock() else { return };
        if stage.0 != name {
            *stage = (name.to_string(), Instant::now());
        }
        let part = done.map(|d| d.clamp(0.0, 1.0));
        let left = part.filter(|p| *p > 0.0).map(|p| {
            let all = stage.1.elapsed().as_secs_f64() / p;
            format!(", at most {:.0} s left", all * (1.0 - p))
        });
        let template = match part {
            Some(_) => "{elapsed_precise} {bar:30} {msg}",
            None => "{elapsed_precise} {spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_position((part.unwrap_or(0.0) * STEPS as f64) as u64);
        bar.set_message(format!("{name}{}", left.unwrap_or_default()));
    })));
}

/// Ends the display of stages.
pub fn done() {
    mlc_explore::progress::set_watcher(None);
}
