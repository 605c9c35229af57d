//! Colors: on a terminal, and never if NO_COLOR is set.

use std::io::{self, IsTerminal as _};

/// Meaning of a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorRole {
    /// Ordinary text.
    Plain,
    /// Headings.
    Bold,
    /// Text of little importance.
    Faint,
    /// Good states.
    Good,
    /// States that need attention.
    Warning,
    /// Errors and violations.
    Bad,
}

impl ColorRole {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "31",
        }
    }

    /// Returns the text in this color, if standard output shows colors.
    pub fn apply(self, text: &str) -> String {
        if self == Self::Plain || !shows_colors() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }

    /// Returns the role of an alarm's severity.
    pub fn of_severity(severity: &str) -> Self {
        match severity {
            "critical" => Self::Bad,
            "warning" => Self::Warning,
            _ => Self::Plain,
        }
    }

    /// Returns the role of a worker's state.
    pub fn of_state(state: &str) -> Self {
        match state {
            "STABLE" => Self::Good,
            "EMERGENCY" | "DEGRADED" => Self::Bad,
            silent if silent.starts_with("silent") => Self::Bad,
            "SHUTDOWN" | "LEFT" => Self::Faint,
            _ => Self::Warning,
        }
    }
}

/// Returns whether standard output is a terminal and the user has not asked for plain text.
pub fn shows_colors() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
