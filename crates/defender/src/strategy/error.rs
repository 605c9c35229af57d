//! What is wrong with a strategy file, and where.

use std::fmt;
use std::ops::Range;

/// A strategy file that was refused: the place, the reason, and what to write instead where that is clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyError {
    /// Line of the file, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line of the file, shown with a caret.
    source: String,
    width: usize,
}

impl StrategyError {
    /// An error about these bytes of the file.
    pub(super) fn at(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let floor = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end.max(span.start)));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let source = text[line_start..].lines().next().unwrap_or_default();
        let marked = text[start..end].lines().next().unwrap_or_default();
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            message: message.into(),
            hint: None,
            // A caret stands under its character only where every character before it has one column.
            source: source.chars().take(LONGEST_SOURCE).collect::<String>().replace('\t', " "),
            width: marked.chars().count().clamp(1, LONGEST_SOURCE),
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Of a longer line only the beginning is shown.
const LONGEST_SOURCE: usize = 200;

impl fmt::Display for StrategyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        write!(f, "\n  {}", self.source)?;
        if self.column <= LONGEST_SOURCE {
            let (indent, carets) = (" ".repeat(self.column - 1), "^".repeat(self.width));
            write!(f, "\n  {indent}{carets}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StrategyError {}
