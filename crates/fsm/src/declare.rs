//! The declaration: one table per machine, and the macro that writes it.

use std::collections::BTreeSet;
use std::fmt;

/// A set of states that form a machine. Implemented by [`machine!`](crate::machine), never by hand.
pub trait State: Copy + Eq + Ord + fmt::Debug + fmt::Display + 'static {
    /// The table this set of states was declared with.
    const MACHINE: &'static Machine<Self>;

    /// The state's place in the table, from 0.
    fn index(self) -> usize;

    /// The state's row in the table.
    fn declaration(self) -> &'static StateDecl<Self> {
        &Self::MACHINE.states[self.index()]
    }

    /// The name people read, such as `CLAIMING_ID`.
    fn name(self) -> &'static str {
        self.declaration().name
    }

    /// The number machines read, such as the value of a gauge.
    fn code(self) -> u8 {
        self.declaration().code
    }

    /// Whether the machine may go from here to `to` in one step.
    fn can_transition_to(self, to: Self) -> bool {
        self.declaration().next.contains(&to)
    }

    /// Whether nothing follows this state.
    fn is_terminal(self) -> bool {
        self.declaration().next.is_empty()
    }

    /// The state of that name, as [`name`](State::name) gives it.
    fn from_name(name: &str) -> Option<Self> {
        Self::MACHINE.states.iter().find(|decl| decl.name == name).map(|decl| decl.state)
    }
}

/// One row of the table: a state, and where it may go.
#[derive(Debug)]
pub struct StateDecl<S: 'static> {
    /// The state itself.
    pub state: S,
    /// The name people read.
    pub name: &'static str,
    /// The number machines read.
    pub code: u8,
    /// The states that may follow.
    pub next: &'static [S],
}

/// A whole machine, as declared. The first state of the table is the one a machine starts in.
#[derive(Debug)]
pub struct Machine<S: 'static> {
    /// What the machine is called, such as `worker`.
    pub name: &'static str,
    /// The table, in the order of the declaration.
    pub states: &'static [StateDecl<S>],
}

impl<S: State> Machine<S> {
    /// The state a machine starts in.
    pub fn initial(&self) -> S {
        self.states[0].state
    }

    /// Every legal transition, in the order of the declaration.
    pub fn transitions(&self) -> impl Iterator<Item = (S, S)> {
        self.states.iter().flat_map(|decl| decl.next.iter().map(|&to| (decl.state, to)))
    }

    /// The states that can be reached from `from` in any number of steps, itself included.
    pub fn reachable_from(&self, from: S) -> BTreeSet<S> {
        let mut reached = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            open.extend(state.declaration().next.iter().copied().filter(|&next| reached.insert(next)));
        }
        reached
    }
}

/// Declares a machine: an enum of states and the table that says where each may go.
///
/// A row reads `Variant = code, "NAME" => [next, states];`. The first row is the state the machine starts in; a row
/// with an empty list is terminal. Codes need not follow the order of the rows.
///
/// ```
/// use phalanx_fsm::{State, machine};
///
/// machine! {
///     /// A lamp.
///     pub enum Lamp: "lamp" {
///         /// Dark.
///         Off = 0, "OFF" => [On];
///         /// Bright.
///         On = 1, "ON" => [Off];
///     }
/// }
/// assert!(Lamp::Off.can_transition_to(Lamp::On));
/// assert_eq!(Lamp::from_name("ON"), Some(Lamp::On));
/// ```
#[macro_export]
macro_rules! machine {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident : $machine:literal {
            $( $(#[$state_meta:meta])* $state:ident = $code:literal, $name:literal => [$($next:ident),* $(,)?]; )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $enum {
            $( $(#[$state_meta])* $state, )+
        }

        impl $crate::State for $enum {
            const MACHINE: &'static $crate::Machine<Self> = &$crate::Machine {
                name: $machine,
                states: &[
                    $( $crate::StateDecl {
                        state: $enum::$state,
                        name: $name,
                        code: $code,
                        next: &[$($enum::$next),*],
                    }, )+
                ],
            };

            fn index(self) -> usize {
                self as usize
            }
        }

        impl ::std::fmt::Display for $enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::State::name(*self))
            }
        }
    };
}
