//! What can be chosen on the command line: seeds, faults, a rule to leave out.

use std::ops::Range;
use std::str::FromStr;

use phalanx_sim::{Fault, RequestFault, Rule, Setup, UnknownRule};

/// `A..B`, without B.
pub(super) fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parse = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a whole number"));
    let (from, to) = text.split_once("..").ok_or("two numbers are needed, such as 0..100")?;
    let (from, to) = (parse(from)?, parse(to)?);
    if from >= to {
        return Err(format!("there is no seed from {from} up to but not including {to}"));
    }
    Ok(from..to)
}

/// The kinds of faults to inject.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) faults: Vec<Fault>,
    pub(super) request_faults: Vec<RequestFault>,
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut chosen = Self { faults: Vec::new(), request_faults: Vec::new() };
        match text {
            "none" => {}
            "all" => {
                (chosen.faults, chosen.request_faults) = (Fault::ALL.to_vec(), RequestFault::ALL.to_vec())
            }
            list => {
                for name in list.split(',').map(str::trim) {
                    if let Some(fault) = Fault::ALL.iter().find(|fault| fault.name() == name) {
                        chosen.faults.push(*fault);
                    } else if let Some(shake) = RequestFault::ALL.iter().find(|shake| shake.name() == name) {
                        chosen.request_faults.push(*shake);
                    } else {
                        return Err(format!("there is no fault {name:?}; there are: all, none, {}", names()));
                    }
                }
            }
        }
        Ok(chosen)
    }
}

fn names() -> String {
    let mut names: Vec<&str> = Fault::ALL
        .iter()
        .map(|fault| fault.name())
        .chain(RequestFault::ALL.iter().map(|shake| shake.name()))
        .collect();
    names.sort_unstable();
    names.join(", ")
}

/// Parses the name of a rule of the protocol or of its environment.
pub(super) fn rule(name: &str) -> Result<Rule, String> {
    let rule: Rule = name.parse().map_err(|error: UnknownRule| error.to_string())?;
    if !Setup::default().disable_rule(rule) {
        return Err("this build keeps every rule; one with the feature `mutants` can work without".to_owned());
    }
    Ok(rule)
}
