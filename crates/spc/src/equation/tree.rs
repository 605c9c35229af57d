//! An equation as it was written.

use super::error::Span;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) enum NodeKind {
    Number(f64),
    Trace(Trace),
    Call { name: String, name_span: Span, arguments: Vec<Node> },
    Negate(Box<Node>),
    Not(Box<Node>),
    Binary { sign: Sign, sign_span: Span, left: Box<Node>, right: Box<Node> },
}

/// `NAME[from..to] where condition`.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) svid: String,
    pub(super) window: Option<Window>,
    pub(super) condition: Option<Box<Node>>,
}

/// Microseconds from the start of the context, both ends included; an open end is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Add,
    Subtract,
    Multiply,
    Divide,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

impl Sign {
    /// What is not finite is unknown, and stays so: 1/0 is not larger than anything.
    pub(super) fn apply(self, left: f64, right: f64) -> f64 {
        if !(left.is_finite() && right.is_finite()) {
            return f64::NAN;
        }
        let truth = |truth: bool| f64::from(u8::from(truth));
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Equal => truth(left == right),
            Self::NotEqual => truth(left != right),
            Self::Less => truth(left < right),
            Self::LessOrEqual => truth(left <= right),
            Self::Greater => truth(left > right),
            Self::GreaterOrEqual => truth(left >= right),
            Self::And => truth(left != 0.0 && right != 0.0),
            Self::Or => truth(left != 0.0 || right != 0.0),
        }
    }

    pub(super) fn is_logical(self) -> bool {
        matches!(self, Self::And | Self::Or)
    }

    pub(super) fn is_comparison(self) -> bool {
        !self.is_logical() && !matches!(self, Self::Add | Self::Subtract | Self::Multiply | Self::Divide)
    }
}
