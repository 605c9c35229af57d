//! A new strategy without a restart: a bad one is refused and the old one stays in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::{MAX_FILE, Strategy, StrategyError};
use crate::digest;

/// The strategy in force.
///
/// ```
/// use phalanx_defender::strategy::{Holder, Reload, Strategy};
/// # let text = "[[group]]\ntools=['*']\n[[group.chart]]\nname='a'\nequation='mean(X)'\nlimits={baseline=30}\nrules=[]";
/// let holder = Holder::new(Strategy::parse(text)?);
/// let before = holder.current();
/// assert!(matches!(holder.offer("nonsense"), Reload::Refused(_)));
/// assert_eq!(holder.current().version(), before.version());
/// assert_eq!(holder.refused(), 1);
/// # Ok::<(), phalanx_defender::strategy::StrategyError>(())
/// ```
#[derive(Debug)]
pub struct Holder(Mutex<Held>);

#[derive(Debug)]
struct Held {
    strategy: Arc<Strategy>,
    loaded: u64,
    refused: u64,
    refusal: Option<StrategyError>,
}

/// What became of a new text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It means what is in force already; only comments, white space or order differ.
    Same,
    /// It is in force.
    Loaded {
        /// The version until now.
        from: Arc<str>,
        /// The version from now on.
        to: Arc<str>,
    },
    /// It is wrong: what was in force stays.
    Refused(StrategyError),
}

impl Holder {
    /// Begins with a strategy that is good.
    pub fn new(strategy: Strategy) -> Self {
        Self(Mutex::new(Held { strategy: Arc::new(strategy), loaded: 0, refused: 0, refusal: None }))
    }

    /// The strategy in force. Whoever works with it keeps it until the work is done.
    pub fn current(&self) -> Arc<Strategy> {
        self.held(|held| held.strategy.clone())
    }

    /// Takes a new text into force, if it is good and means something else.
    pub fn offer(&self, text: &str) -> Reload {
        let parsed = Strategy::parse(text);
        self.held(|held| match parsed {
            Ok(new) if new.version() == held.strategy.version() => {
                held.refusal = None;
                Reload::Same
            }
            Ok(new) => {
                held.loaded += 1;
                held.refusal = None;
                let (from, to) = (held.strategy.version().clone(), new.version().clone());
                held.strategy = Arc::new(new);
                Reload::Loaded { from, to }
            }
            Err(error) => {
                held.refused += 1;
                held.refusal = Some(error.clone());
                Reload::Refused(error)
            }
        })
    }

    /// How often a new strategy came into force.
    pub fn loaded(&self) -> u64 {
        self.held(|held| held.loaded)
    }

    /// How often a new text was refused.
    pub fn refused(&self) -> u64 {
        self.held(|held| held.refused)
    }

    /// What is wrong with the newest text, if it is not in force.
    pub fn refusal(&self) -> Option<StrategyError> {
        self.held(|held| held.refusal.clone())
    }

    fn held<T>(&self, look: impl FnOnce(&mut Held) -> T) -> T {
        // Every change is one assignment after the other, none of which panics.
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Looks whether a file has changed. It is asked again and again; nothing here waits.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    stamp: Option<(SystemTime, u64)>,
    content: Option<[u8; 16]>,
    /// Whether the last look failed, so that a file that is away is told once.
    away: bool,
}

impl FileWatch {
    /// Watches a file; the first look gives its text.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), stamp: None, content: None, away: false }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text, if it is another one than at the last look. A file that cannot be read is an error once, until it can
    /// be read again.
    ///
    /// A file whose time and length are as before is not read, unless its time is so young (against `now`) that it may
    /// have been written twice within the resolution of the clock.
    pub fn look(&mut self, now: SystemTime) -> io::Result<Option<String>> {
        let text = self.read(now);
        match text {
            Err(error) if std::mem::replace(&mut self.away, true) => {
                let _told_before = error;
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(text) => {
                self.away = false;
                Ok(text)
            }
        }
    }

    fn read(&mut self, now: SystemTime) -> io::Result<Option<String>> {
        let meta = std::fs::metadata(&self.path)?;
        if meta.len() > MAX_FILE as u64 {
            let message = format!("the file has {} bytes, {MAX_FILE} is the most", meta.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let modified = meta.modified()?;
        let stamp = Some((modified, meta.len()));
        let settled = now.duration_since(modified).is_ok_and(|age| age.as_secs() >= 2);
        if settled && self.stamp == stamp {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&self.path)?;
        let content = Some(digest::digest(&[&text]));
        self.stamp = settled.then_some(()).and(stamp);
        Ok((std::mem::replace(&mut self.content, content) != content).then_some(text))
    }
}
