//! A machine on paper: Mermaid, a table, JSON.

use std::fmt::Write as _;

use crate::{Machine, State};

/// The machine as a Mermaid `stateDiagram-v2`.
///
/// ```
/// # phalanx_fsm::machine! { enum Lamp: "lamp" { Off = 0, "OFF" => [On]; On = 1, "ON" => []; } }
/// use phalanx_fsm::{State, render};
/// assert_eq!(
///     render::mermaid(Lamp::MACHINE),
///     "stateDiagram-v2\n    [*] --> OFF\n    OFF --> ON\n    ON --> [*]\n"
/// );
/// ```
pub fn mermaid<S: State>(machine: &Machine<S>) -> String {
    let mut out = format!("stateDiagram-v2\n    [*] --> {}\n", machine.initial());
    for decl in machine.states {
        for next in decl.next {
            line(&mut out, format_args!("    {} --> {next}", decl.name));
        }
        if decl.next.is_empty() {
            line(&mut out, format_args!("    {} --> [*]", decl.name));
        }
    }
    out
}

/// The machine as a Markdown table: code, state, and where it may go.
pub fn table<S: State>(machine: &Machine<S>) -> String {
    let rows: Vec<[String; 3]> = machine
        .states
        .iter()
        .map(|decl| {
            let next: Vec<_> = decl.next.iter().map(|next| next.name()).collect();
            let next = if next.is_empty() { "none".to_owned() } else { next.join(", ") };
            [decl.code.to_string(), decl.name.to_owned(), next]
        })
        .collect();
    let head = ["code", "state", "may go to"];
    let width = |column: usize| {
        rows.iter().map(|row| row[column].len()).chain([head[column].len()]).max().unwrap_or_default()
    };
    let (code, state, next) = (width(0), width(1), width(2));
    let mut out = String::new();
    line(&mut out, format_args!("| {:>code$} | {:<state$} | {:<next$} |", head[0], head[1], head[2]));
    line(&mut out, format_args!("| {:->code$}: | {:-<state$} | {:-<next$} |", "", "", "", code = code - 1));
    for row in &rows {
        line(&mut out, format_args!("| {:>code$} | {:<state$} | {:<next$} |", row[0], row[1], row[2]));
    }
    out
}

/// The machine as one JSON object:
/// `{"machine":…,"states":[{"name":…,"code":…,"terminal":…}],"transitions":[{"from":…,"to":…}]}`.
///
/// ```
/// # phalanx_fsm::machine! { enum Lamp: "lamp" { Off = 0, "OFF" => [On]; On = 1, "ON" => []; } }
/// use phalanx_fsm::{State, render};
/// assert_eq!(
///     render::json(Lamp::MACHINE),
///     r#"{"machine":"lamp","states":[{"name":"OFF","code":0,"terminal":false},{"name":"ON","code":1,"terminal":true}],"transitions":[{"from":"OFF","to":"ON"}]}"#
/// );
/// ```
pub fn json<S: State>(machine: &Machine<S>) -> String {
    let states: Vec<_> = machine
        .states
        .iter()
        .map(|decl| {
            let (name, code, terminal) = (quoted(decl.name), decl.code, decl.state.is_terminal());
            format!(r#"{{"name":{name},"code":{code},"terminal":{terminal}}}"#)
        })
        .collect();
    let transitions: Vec<_> = machine
        .transitions()
        .map(|(from, to)| format!(r#"{{"from":{},"to":{}}}"#, quoted(from.name()), quoted(to.name())))
        .collect();
    format!(
        r#"{{"machine":{},"states":[{}],"transitions":[{}]}}"#,
        quoted(machine.name),
        states.join(","),
        transitions.join(",")
    )
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

/// A JSON string. Names are literals in our own source, so quotes, backslashes and control characters are all that
/// needs care.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::machine! {
        enum Job: "a \"job\"" {
            Busy = 10, "BUSY" => [Done];
            Done = 2, "DONE" => [];
        }
    }

    #[test]
    fn a_table_is_aligned_and_says_where_nothing_follows() {
        assert_eq!(
            table(Job::MACHINE),
            "| code | state | may go to |\n\
             | ---: | ----- | --------- |\n\
             |   10 | BUSY  | DONE      |\n\
             |    2 | DONE  | none      |\n"
        );
    }

    #[test]
    fn quotes_in_a_name_stay_valid_json() {
        assert!(json(Job::MACHINE).starts_with(r#"{"machine":"a \"job\"","#));
    }
}
