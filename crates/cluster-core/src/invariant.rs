//! Assertions about the state of a worker.
//!
//! A violated assertion is a bug of this crate, never the effect of a fault outside. It panics in every build, with its
//! place in the message. Tests and the simulator fail. In production the shell catches the panic, carries out no effect of
//! that step, reports the violation, and starts the worker again; all other workers treat that as a crash.

/// Panics with the place and the message: this state is impossible.
macro_rules! violated {
    ($($message:tt)+) => {
        panic!("{}:{}: {}", file!(), line!(), format_args!($($message)+))
    };
}

/// Panics with the place and the message unless the condition holds.
macro_rules! invariant {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            violated!($($message)+);
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_violated_invariant_names_its_place_and_its_values() {
        let one = std::hint::black_box(1);
        let violation = std::panic::catch_unwind(|| invariant!(one > 2, "{one} is not above 2")).unwrap_err();
        let text = violation.downcast_ref::<String>().expect("a message");
        assert!(text.starts_with("crates/cluster-core/src/invariant.rs:"), "{text}");
        assert!(text.ends_with(": 1 is not above 2"), "{text}");
    }
}
