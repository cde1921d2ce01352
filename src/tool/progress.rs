//! Progress of what may last: on standard error, where that is a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// How often a bar is drawn: what is measured beside it must not notice.
const PER_SECOND: u8 = 4;
/// How long something may last before its name is shown, and how often it shows from then on that it goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar of so many steps.
pub fn bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(PER_SECOND));
    styled(bar, "{bar:40} {pos}/{len} {msg} {eta}")
}

/// A bar of so much time, with what it is for.
pub fn timed(seconds: f64, what: &'static str) -> ProgressBar {
    let steps = (1e3 * seconds) as u64;
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(PER_SECOND));
    styled(bar, "{bar:40} {msg} {eta}").with_message(what)
}

/// Shows `what` while it lasts, until dropped.
pub fn waiting(what: &'static str) -> Waiting {
    let spinner = styled(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}").with_message(what);
    spinner.enable_steady_tick(PATIENCE);
    Waiting(spinner)
}

/// Something that lasts.
pub struct Waiting(ProgressBar);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
