//! Colours: on a terminal, and never where NO_COLOR is set.

use std::io::{self, IsTerminal as _};

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Bold,
    Faint,
    Good,
    Warning,
    Bad,
}

impl Paint {
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

    /// The text in this colour, if standard output is one that shows colours.
    pub(crate) fn on(self, text: &str) -> String {
        if self == Self::Plain || !shows_colours() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", self.code())
    }

    /// How bad an alarm is.
    pub(crate) fn of_severity(severity: &str) -> Self {
        match severity {
            "critical" => Self::Bad,
            "warning" => Self::Warning,
            _ => Self::Plain,
        }
    }

    /// How a worker does.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "STABLE" => Self::Good,
            "EMERGENCY" | "DEGRADED" => Self::Bad,
            silent if silent.starts_with("silent") => Self::Bad,
            "SHUTDOWN" | "LEFT" => Self::Faint,
            _ => Self::Warning,
        }
    }
}

/// Whether standard output is a terminal whose reader has not asked for plain text.
pub(crate) fn shows_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal()
        && !set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
