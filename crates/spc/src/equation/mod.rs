//! The language of indicators.
//!
//! ```text
//! mean(RF_POWER[10s..50s])                  a function over a window, from the start of the context, both ends included
//! max(TEMP) - min(TEMP)                     arithmetic of results
//! slope(PRESSURE where STEP == 3)           only while another SVID says so (by its last value until then)
//! quantile("Gas flow 1"[5s..], 0.95)        unusual names in quotes, open ends
//! ```
//!
//! An equation is read, checked and compiled once ([`Equation::parse`]); then it says which SVIDs it needs
//! ([`Equation::svids`]) and is evaluated over their columns ([`Equation::evaluate`]). Where there is nothing to
//! calculate with it says why ([`Reason`]), and never invents a number.

mod aggregate;
mod choose;
mod column;
mod compile;
mod error;
mod function;
mod parse;
mod token;
mod tree;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use column::{Column, ColumnError};
pub use error::EquationError;
pub use function::Function;

use aggregate::{Needs, Summary};
use compile::Program;

/// The longest equation, in bytes.
pub const MAX_LENGTH: usize = 4096;

/// How deep parentheses, functions and signs may nest.
pub const MAX_DEPTH: usize = 64;

/// A compiled equation.
///
/// ```
/// use phalanx_spc::equation::{Column, Equation, Outcome};
/// let equation = Equation::parse("mean(TEMP[1s..2s] where STEP == 3)").unwrap();
/// assert_eq!(equation.svids(), ["TEMP", "STEP"]);
/// let times = [0, 1_000_000, 2_000_000];
/// let temp = Column::new(&times, &[20.0, 30.0, 50.0]).unwrap();
/// let step = Column::new(&times[..1], &[3.0]).unwrap();
/// assert_eq!(equation.evaluate(0, &[Some(temp), Some(step)]), Outcome::Value(40.0));
///
/// let error = Equation::parse("men(TEMP)").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "line 1, column 1: unknown function `men`; did you mean `mean`?\n  men(TEMP)\n  ^^^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Equation {
    text: String,
    program: Program,
}

/// What an equation comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A finite number; of a comparison 1 or 0.
    Value(f64),
    /// There is none.
    NoValue(Reason),
}

impl Outcome {
    /// The number, where there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(*value),
            Self::NoValue(_) => None,
        }
    }
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Reason {
    Missing { svid: String },
    Empty { svid: String },
    TooFew { svid: String, function: Function, needed: u64, found: u64 },
    NonFinite { svid: String },
    NoTime { svid: String },
    Undefined,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { svid } => write!(f, "there is no trace of {svid}"),
            Self::Empty { svid } => {
                write!(f, "no point of {svid} lies in the window and meets the condition")
            }
            Self::TooFew { svid, function, needed, found } => {
                write!(f, "{} needs {needed} points of {svid}, there is {found}", function.name())
            }
            Self::NonFinite { svid } => write!(f, "a value of {svid} is not a finite number"),
            Self::NoTime { svid } => {
                write!(f, "all points of {svid} have the same time, so they have no slope")
            }
            Self::Undefined => {
                write!(f, "the result is not a finite number (a division by zero, or too large)")
            }
        }
    }
}

impl Equation {
    /// Reads, checks and compiles an equation.
    pub fn parse(text: &str) -> Result<Self, EquationError> {
        let program = parse::parse(text).and_then(|tree| compile::compile(&tree));
        let program = program.map_err(|flaw| flaw.locate(text))?;
        Ok(Self { text: text.to_owned(), program })
    }

    /// The equation as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The SVIDs it needs, in the order in which [`Equation::evaluate`] takes their columns.
    pub fn svids(&self) -> &[String] {
        &self.program.svids
    }

    /// Evaluates over the columns of [`Equation::svids`]; `start` is when the context began, in the microseconds of the
    /// columns. A column that is none, or beyond the end of the slice, is missing.
    pub fn evaluate(&self, start: i64, columns: &[Option<Column<'_>>]) -> Outcome {
        match self.calculate(start, columns) {
            Ok(value) if value.is_finite() => Outcome::Value(value),
            Ok(_) => Outcome::NoValue(Reason::Undefined),
            Err(reason) => Outcome::NoValue(reason),
        }
    }

    fn calculate(&self, start: i64, columns: &[Option<Column<'_>>]) -> Result<f64, Reason> {
        let program = &self.program;
        let mut results = vec![f64::NAN; program.requests.len()];
        let (mut runs, mut values) = (Vec::new(), Vec::new());
        for (position, choice) in program.choices.iter().enumerate() {
            choose::choose(choice, start, &program.svids, columns, &mut runs)?;
            let Some(column) = columns[choice.svid] else { continue };
            let svid = || program.svids[choice.svid].clone();
            let requests = || program.requests.iter().enumerate().filter(|(_, one)| one.choice == position);
            let mut needs = Needs::default();
            requests().for_each(|(_, request)| needs.add(request.function));
            let mut summary = Summary::new(needs, &column, &runs, values);
            if summary.count == 0 {
                return Err(Reason::Empty { svid: svid() });
            }
            if !summary.is_finite {
                return Err(Reason::NonFinite { svid: svid() });
            }
            for (slot, request) in requests() {
                let (needed, found) = (request.function.least(), summary.count);
                if found < needed {
                    return Err(Reason::TooFew { svid: svid(), function: request.function, needed, found });
                }
                let result = summary.result(request.function, request.q);
                if request.function == Function::Slope && result.is_nan() {
                    return Err(Reason::NoTime { svid: svid() });
                }
                results[slot] = result;
            }
            values = summary.into_values();
        }
        let load = |slot: usize| {
            // A function whose result is too large must not come back as a number by way of a comparison.
            Some(results[slot]).filter(|result| result.is_finite()).ok_or(Reason::Undefined)
        };
        compile::run(&program.steps, &mut Vec::new(), load)
    }
}

impl FromStr for Equation {
    type Err = EquationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Equation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
