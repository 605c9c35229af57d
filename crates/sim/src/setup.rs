//! The setup of a simulated cluster.

use std::time::Duration;

use phalanx_cluster_core::{Config, ProtocolRule};

use crate::rules::{EnvironmentRule, Rule};

/// The setup of a simulated cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The configuration of every worker.
    pub config: Config,
    /// The number of partitions, named `tool:0`, `tool:1`, ….
    pub partitions: usize,
    /// The age at which the log deletes a message.
    pub retention: Duration,
    /// The mean time between two messages of one partition; none for no traffic.
    pub traffic: Option<Duration>,
    /// The seed of the traffic, and of the duration of messages.
    pub seed: u64,
    /// The rule of the environment to run without, in a build that can.
    pub disabled_rule: Option<EnvironmentRule>,
}

impl Setup {
    /// Disables a rule of the protocol or of its environment. Returns whether this build can: only one with the feature
    /// `mutants` of the core does.
    pub fn disable_rule(&mut self, rule: Rule) -> bool {
        match rule {
            Rule::Protocol(rule) => self.config.disable_rule(rule),
            Rule::Environment(rule) => {
                self.disabled_rule = Some(rule);
                !self.enforces(rule)
            }
        }
    }

    /// Returns whether a rule of the environment is enforced: always, except in a test that disables it.
    pub fn enforces(&self, rule: EnvironmentRule) -> bool {
        !ProtocolRule::CAN_BE_DISABLED || self.disabled_rule != Some(rule)
    }
}

impl Default for Setup {
    fn default() -> Self {
        let retention = Duration::from_secs(7 * 24 * 3600);
        Self {
            config: Config::default(),
            partitions: 300,
            retention,
            traffic: None,
            seed: 1,
            disabled_rule: None,
        }
    }
}
