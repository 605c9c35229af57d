//! An independent check of a declared state machine.

use std::time::Duration;

use phalanx_fsm::{Fsm, State};

/// A row of the second writing of a table: code, name, names of the next states.
pub type Row = (u8, &'static str, &'static [&'static str]);

/// Compares the machine `S` with `expected` (the first row is the initial state) and walks it.
///
/// Every listed edge is taken, every other pair of states is refused and changes nothing, every state is reachable
/// from the initial one, and from a terminal state nothing can be reached.
///
/// # Panics
///
/// With the first difference, by name.
#[track_caller]
pub fn assert_follows<S: State>(expected: &[Row]) {
    let declared: Vec<_> = S::MACHINE.states.iter().map(|decl| (decl.code, decl.name)).collect();
    let mut listed: Vec<_> = expected.iter().map(|&(code, name, _)| (code, name)).collect();
    assert_eq!(S::MACHINE.initial().name(), expected[0].1, "initial state");
    let mut sorted = declared.clone();
    sorted.sort_unstable();
    listed.sort_unstable();
    assert_eq!(sorted, listed, "states and codes of {}", S::MACHINE.name);
    sorted.dedup_by_key(|(code, _)| *code);
    assert_eq!(sorted.len(), declared.len(), "two states of {} share a code", S::MACHINE.name);

    for &(_, from_name, next) in expected {
        let from = S::from_name(from_name).expect("compared above");
        for to in S::MACHINE.states.iter().map(|decl| decl.state) {
            let legal = next.contains(&to.name());
            let mut fsm = Fsm::with_state(from, Duration::ZERO);
            let went = fsm.transition(Duration::from_secs(1), to, "walk").is_ok();
            assert_eq!(went, legal, "{from} -> {to}");
            assert_eq!(fsm.state(), if legal { to } else { from }, "{from} -> {to}");
            assert_eq!(fsm.history().len(), usize::from(legal), "{from} -> {to}");
        }
        assert_eq!(from.is_terminal(), next.is_empty(), "{from} is terminal");
        if next.is_empty() {
            assert_eq!(S::MACHINE.reachable_from(from).len(), 1, "{from} is terminal");
        }
    }
    assert_eq!(
        S::MACHINE.reachable_from(S::MACHINE.initial()).len(),
        declared.len(),
        "every state of {} is reachable",
        S::MACHINE.name
    );
}
