//! Types of settings: unit, range and parsing.

use std::fmt::{Debug, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A type of setting.
pub trait Kind: Copy + Debug + Sync {
    /// Type of the parsed value.
    type Value;

    /// Whether values must not be shown.
    const IS_SECRET: bool = false;

    /// Returns the allowed values; empty if any text is allowed.
    fn allowed(&self) -> String;

    /// Parses a value; `None` if it is not allowed.
    fn parse(&self, text: &str) -> Option<Self::Value>;

    /// Returns whether the text is a value at all. One that is not counts as not set.
    fn is_given(&self, text: &str) -> bool {
        !text.is_empty()
    }
}

/// Any text.
#[derive(Clone, Copy, Debug)]
pub struct Text;

/// Any text that must not be shown, such as a password.
#[derive(Clone, Copy, Debug)]
pub struct Secret;

/// Path of a file or folder.
#[derive(Clone, Copy, Debug)]
pub struct File;

/// Duration in seconds, from a millisecond to a year; fractions are allowed.
#[derive(Clone, Copy, Debug)]
pub struct Seconds;

/// Whole number within a range.
#[derive(Clone, Copy, Debug)]
pub struct Whole<T> {
    /// Smallest value.
    pub min: T,
    /// Largest value.
    pub max: T,
}

/// Fraction of the mean.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

/// `true` or `false`.
#[derive(Clone, Copy, Debug)]
pub struct Switch;

/// Number of replicas at NATS.
#[derive(Clone, Copy, Debug)]
pub struct Replicas;

/// One of these words, in upper or lower case.
#[derive(Clone, Copy, Debug)]
pub struct Choice(pub &'static [&'static str]);

impl Kind for Text {
    type Value = String;

    fn allowed(&self) -> String {
        String::new()
    }

    fn parse(&self, text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn is_given(&self, text: &str) -> bool {
        !text.trim().is_empty()
    }
}

impl Kind for Secret {
    type Value = String;

    const IS_SECRET: bool = true;

    fn allowed(&self) -> String {
        Text.allowed()
    }

    fn parse(&self, text: &str) -> Option<String> {
        Text.parse(text)
    }

    fn is_given(&self, text: &str) -> bool {
        Text.is_given(text)
    }
}

impl Kind for File {
    type Value = PathBuf;

    fn allowed(&self) -> String {
        Text.allowed()
    }

    fn parse(&self, text: &str) -> Option<PathBuf> {
        Text.parse(text).map(PathBuf::from)
    }

    fn is_given(&self, text: &str) -> bool {
        Text.is_given(text)
    }
}

impl Kind for Seconds {
    type Value = Duration;

    fn allowed(&self) -> String {
        "a number of seconds from 0.001 to a year".to_owned()
    }

    fn parse(&self, text: &str) -> Option<Duration> {
        let seconds = text.trim().parse().ok()?;
        (0.001..=31_536_000.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
    }
}

impl<T: FromStr + PartialOrd + Display + Debug + Copy + Sync> Kind for Whole<T> {
    type Value = T;

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }

    fn parse(&self, text: &str) -> Option<T> {
        text.trim().parse().ok().filter(|value| (self.min..=self.max).contains(value))
    }
}

impl Kind for Fraction {
    type Value = f64;

    fn allowed(&self) -> String {
        format!("a part of the mean from {} to {}", self.min, self.max)
    }

    fn parse(&self, text: &str) -> Option<f64> {
        text.trim().parse().ok().filter(|value| (self.min..=self.max).contains(value))
    }
}

impl Kind for Switch {
    type Value = bool;

    fn allowed(&self) -> String {
        "true or false".to_owned()
    }

    fn parse(&self, text: &str) -> Option<bool> {
        text.trim().parse().ok()
    }
}

impl Kind for Replicas {
    type Value = usize;

    fn allowed(&self) -> String {
        "1 or 3".to_owned()
    }

    fn parse(&self, text: &str) -> Option<usize> {
        text.trim().parse().ok().filter(|count| matches!(count, 1 | 3))
    }
}

impl Kind for Choice {
    type Value = &'static str;

    fn allowed(&self) -> String {
        match self.0 {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            words => words.concat(),
        }
    }

    fn parse(&self, text: &str) -> Option<&'static str> {
        self.0.iter().copied().find(|word| word.eq_ignore_ascii_case(text.trim()))
    }
}
