//! A bar per provider on a terminal, plain lines elsewhere. All of it on standard error.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use phalanx_etl::core::EventKind;
use phalanx_etl::engine::Progress;

/// Not every batch is news to somebody who reads a log.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// While it is not known how much there is.
const SPINNER: &str = "{prefix:>6} {spinner} {elapsed} {wide_msg}";
const BAR: &str = "{prefix:>6} [{bar:24}] {percent:>3} % {elapsed} {wide_msg}";

pub(super) enum Display {
    Bars(MultiProgress, BTreeMap<String, ProgressBar>),
    Lines(BTreeMap<String, Instant>),
}

impl Display {
    pub(super) fn new() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bars(MultiProgress::new(), BTreeMap::new())
        } else {
            Self::Lines(BTreeMap::new())
        }
    }

    pub(super) fn update(&mut self, progress: &Progress) {
        let id = &progress.provider;
        match self {
            Self::Bars(bars, by_id) => {
                let new = || bars.add(ProgressBar::no_length().with_style(style(SPINNER)));
                let bar = by_id.entry(id.clone()).or_insert_with(|| new().with_prefix(id.clone()));
                draw(bar, progress);
            }
            Self::Lines(last) => {
                let due = last.get(id).is_none_or(|at| at.elapsed() >= LINE_EVERY);
                if due || news(progress).is_some() || progress.ended.is_some() {
                    last.insert(id.clone(), Instant::now());
                    eprintln!("{id}: {}", text(progress));
                }
            }
        }
    }
}

fn draw(bar: &ProgressBar, progress: &Progress) {
    if let Some(done) = progress.done {
        if bar.length().is_none() {
            bar.set_style(style(BAR));
        }
        bar.set_length(done.total);
        bar.set_position(done.done);
    }
    bar.set_message(text(progress));
    match &progress.ended {
        Some((outcome, _)) if outcome.satisfies() => bar.finish(),
        Some(_) => bar.abandon(),
        None => bar.tick(),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is sound").progress_chars("=> ")
}

/// What happened besides work.
fn news(progress: &Progress) -> Option<&(EventKind, String)> {
    progress.events.iter().rev().find(|(kind, _)| *kind != EventKind::Checkpoint)
}

fn text(progress: &Progress) -> String {
    let counts = progress.counts;
    let text = format!(
        "{} read, {} stored, {} unchanged, {} dead letters",
        counts.read, counts.stored, counts.unchanged, counts.dead_lettered
    );
    if let Some((outcome, why)) = &progress.ended {
        format!("{text}: {outcome}, {why}")
    } else if let Some((kind, detail)) = news(progress) {
        format!("{text}: {kind} {detail}").trim_end().to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};
    use phalanx_etl::core::Outcome;
    use phalanx_etl::source::Done;

    use super::*;

    /// A terminal that remembers all that was written to it.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("nobody panicked").push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn progress(provider: &str, done: Option<Done>, ended: Option<Outcome>) -> Progress {
        Progress {
            provider: provider.to_owned(),
            counts: phalanx_etl::store::Counts { read: 7, stored: 7, ..Default::default() },
            done,
            events: vec![],
            ended: ended.map(|outcome| (outcome, "why".to_owned())),
        }
    }

    #[test]
    fn a_bar_fills_as_far_as_the_source_is_read_and_each_provider_has_one() {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
        let mut display = Display::Bars(MultiProgress::with_draw_target(target), BTreeMap::new());
        display.update(&progress("asvs", None, None));
        display.update(&progress("cve", Some(Done { done: 1, total: 4 }), None));
        display.update(&progress("cve", Some(Done { done: 2, total: 4 }), Some(Outcome::Failed)));
        display.update(&progress("asvs", Some(Done { done: 1, total: 4 }), Some(Outcome::Completed)));
        let written = paper.0.lock().unwrap().clone();
        let bar = |filled: usize| format!("[{}>{}]", "=".repeat(filled), " ".repeat(23 - filled));
        assert!(written.contains(&format!("cve {}  50 %", bar(12))), "where it failed: {written:?}");
        assert!(written.contains(&format!("asvs [{}] 100 %", "=".repeat(24))), "{written:?}");
        assert!(
            written.contains("7 read, 7 stored, 0 unchanged, 0 dead letters: failed, why"),
            "{written:?}"
        );
    }
}
