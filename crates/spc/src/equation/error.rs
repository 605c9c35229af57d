//! What is wrong with an equation, and where.

use std::fmt;

/// A part of the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    pub(super) fn to(self, last: Self) -> Self {
        Self { start: self.start, end: last.end }
    }
}

/// An equation that was refused: the place, the reason, and what to write instead where that is clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EquationError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line of the text, shown with a caret.
    source: String,
    width: usize,
}

/// An error before it knows its text.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Flaw {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn locate(self, text: &str) -> EquationError {
        let start = self.span.start.min(text.len());
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let source = text[line_start..].lines().next().unwrap_or_default();
        let room = source.len().saturating_sub(start - line_start);
        let marked = &text[start..start + (self.span.end.max(start) - start).min(room)];
        EquationError {
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            message: self.message,
            hint: self.hint,
            // A caret stands under its character only where every character before it has one column.
            source: source.replace('\t', " "),
            width: marked.chars().count().max(1),
        }
    }
}

impl fmt::Display for EquationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        let (indent, carets) = (" ".repeat(self.column - 1), "^".repeat(self.width));
        write!(f, "\n  {}\n  {indent}{carets}", self.source)
    }
}

impl std::error::Error for EquationError {}
