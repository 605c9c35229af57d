//! Something that moves while a person waits.

use std::time::Duration;

use indicatif::ProgressBar;

/// How often it moves.
const TICK: Duration = Duration::from_millis(100);

/// Says on standard error what is waited for, until it is dropped. Nothing where standard error is no terminal.
pub(crate) struct Waiting(ProgressBar);

impl Waiting {
    pub(crate) fn until(what: String) -> Self {
        let spinner = ProgressBar::new_spinner().with_message(what);
        spinner.enable_steady_tick(TICK);
        Self(spinner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
