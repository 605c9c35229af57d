//! Reads settings: everything that is wrong is said at once.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

/// Reads values and collects what is wrong with them.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) wrong: Vec<String>,
}

impl Reader {
    pub(crate) fn parsed<T: FromStr>(
        &mut self,
        name: &str,
        given: Option<&String>,
        allowed: &str,
        default: T,
        ok: impl Fn(&T) -> bool,
    ) -> T {
        let Some(text) = given.filter(|text| !text.is_empty()) else { return default };
        match text.trim().parse::<T>() {
            Ok(value) if ok(&value) => value,
            _ => {
                self.wrong.push(format!("{name} is {text:?}; allowed is {allowed}"));
                default
            }
        }
    }

    /// A length of time in seconds; fractions are fine.
    pub(crate) fn seconds(&mut self, name: &str, given: Option<&String>, default: Duration) -> Duration {
        let ok = |seconds: &f64| (0.001..=31_536_000.0).contains(seconds);
        let seconds =
            self.parsed(name, given, "a number of seconds from 0.001 to a year", default.as_secs_f64(), ok);
        Duration::from_secs_f64(seconds)
    }

    pub(crate) fn count<T: FromStr + PartialOrd + Display + Copy>(
        &mut self,
        name: &str,
        given: Option<&String>,
        default: T,
        least: T,
        most: T,
    ) -> T {
        let allowed = format!("a whole number from {least} to {most}");
        self.parsed(name, given, &allowed, default, |value| *value >= least && *value <= most)
    }

    pub(crate) fn switch(&mut self, name: &str, given: Option<&String>, default: bool) -> bool {
        self.parsed(name, given, "true or false", default, |_| true)
    }

    /// The two belong together.
    pub(crate) fn pair(&mut self, names: [&str; 2], given: [Option<String>; 2]) -> Option<(String, String)> {
        match given {
            [Some(one), Some(other)] => Some((one, other)),
            [None, None] => None,
            [Some(_), None] => {
                self.wrong.push(format!("{} is set and {} is not; set both or none", names[0], names[1]));
                None
            }
            [None, Some(_)] => {
                self.wrong.push(format!("{} is set and {} is not; set both or none", names[1], names[0]));
                None
            }
        }
    }
}

/// What was given, if it says anything.
pub(crate) fn text(given: &Option<String>) -> Option<String> {
    given.clone().filter(|text| !text.trim().is_empty())
}
