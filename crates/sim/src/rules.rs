//! Rules that a run can disable, to see that each is needed: those of the protocol, and those of its environment.

use std::fmt;
use std::str::FromStr;

use phalanx_cluster_core::ProtocolRule;

/// A rule that the protocol relies on and that the worker itself cannot enforce. The application and the broker enforce it;
/// in the simulator that is the model of the result store, the handler, the publisher, the buckets and the rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnvironmentRule {
    /// The handler reads its state at exactly the committed position.
    StateAtCommitted,
    /// In the result store a lower fencing token never replaces a higher one.
    HigherTokenWins,
    /// Readers of the result store follow only the fencing token that counts.
    ReadersFollowToken,
    /// The publisher gives every message an id that names its partition.
    MessageIds,
    /// The broker does not expire claims after seconds.
    NoShortTtl,
    /// A rollout treats a standby as ready.
    StandbyIsReady,
}

impl EnvironmentRule {
    /// Every rule of the environment.
    pub const ALL: [Self; 6] = [
        Self::StateAtCommitted,
        Self::HigherTokenWins,
        Self::ReadersFollowToken,
        Self::MessageIds,
        Self::NoShortTtl,
        Self::StandbyIsReady,
    ];
}

/// A rule that a run can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A rule of the protocol.
    Protocol(ProtocolRule),
    /// A rule of its environment.
    Environment(EnvironmentRule),
}

impl Rule {
    /// Returns every rule of the protocol and of its environment.
    pub fn all() -> impl Iterator<Item = Self> {
        let environment = EnvironmentRule::ALL.into_iter().map(Self::Environment);
        ProtocolRule::ALL.into_iter().map(Self::Protocol).chain(environment)
    }
}

impl From<ProtocolRule> for Rule {
    fn from(rule: ProtocolRule) -> Self {
        Self::Protocol(rule)
    }
}

impl From<EnvironmentRule> for Rule {
    fn from(rule: EnvironmentRule) -> Self {
        Self::Environment(rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(rule) => write!(f, "{rule:?}"),
            Self::Environment(rule) => write!(f, "{rule:?}"),
        }
    }
}

/// A name that no rule has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownRule(String);

impl std::error::Error for UnknownRule {}

impl fmt::Display for UnknownRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = Rule::all().map(|rule| rule.to_string()).collect();
        write!(f, "there is no rule {:?}; there are: {}", self.0, names.join(", "))
    }
}

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, UnknownRule> {
        let rule = Self::all().find(|rule| rule.to_string() == name);
        rule.ok_or_else(|| UnknownRule(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<String> = Rule::all().map(|rule| rule.to_string()).collect();
        assert_eq!(names.len(), ProtocolRule::ALL.len() + EnvironmentRule::ALL.len());
        for rule in Rule::all() {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert_eq!("Nonsense".parse::<Rule>(), Err(UnknownRule("Nonsense".to_owned())));
    }
}
