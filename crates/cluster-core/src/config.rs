//! How a worker is set up.

use std::fmt;
use std::time::Duration;

use super::policy::Policy;
use super::{ProtocolRule, planner};

/// The settings of one worker. The defaults are those of the design.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The interval of heartbeats. Fence, crash and health follow from it.
    pub heartbeat_interval: Duration,
    /// How long a lease lasts.
    pub lease_term: Duration,
    /// What ends a lease whose holder does not.
    pub lease_expiry: LeaseExpiry,
    /// How often a lease is renewed.
    pub lease_renewal: Duration,
    /// A claim that has not changed for this long is nobody's.
    pub claim_expiry: Duration,
    /// How long a cold start waits for workers.
    pub cold_start_window: Duration,
    /// How long a planned change waits for more of its kind.
    pub scale_window: Duration,
    /// The time for which the partitions of a worker that left wait for its replacement, if the fleet size is known.
    pub replacement_grace_period: Duration,
    /// How many ids there are.
    pub max_workers: u32,
    /// How many workers there should be.
    pub fleet_size: Option<u32>,
    /// Whether this worker may lead.
    pub controller_enabled: bool,
    /// Whether a crash is acted on at once; otherwise it waits a planned window.
    pub crash_immediate: bool,
    /// Whether partitions have a log that is read and committed; otherwise only who owns what is decided.
    pub consumes_log: bool,
    /// How many messages are processed at once.
    pub max_concurrent: usize,
    /// The time limit of one message; also the longest wait of a new owner for the previous one.
    pub process_timeout: Duration,
    /// How long a leaving worker waits for what runs.
    pub drain_timeout: Duration,
    /// The poll interval of owned partitions.
    pub poll_interval: Duration,
    /// How often it is noted that a silent partition has nothing unread: well below the age at which the log forgets.
    pub watermark_interval: Duration,
    /// How often the leader looks for partitions that have messages and are not in the list.
    pub unlisted_scan_interval: Duration,
    /// How partitions are spread.
    pub planner: planner::Options,
    /// The rules of the protocol that this worker enforces: all of them, except in a test.
    pub policy: Policy,
}

/// What ends a lease whose holder neither renews it nor gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseExpiry {
    /// Any worker that has not heard the holder for as long as a crash takes: the holder has fenced itself by then.
    OnSilence,
    /// The election agent, after this long. No other worker gets it before; the holder counts from the sending of its
    /// request, so it stops sooner.
    AfterTerm(Duration),
}

impl Default for Config {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            heartbeat_interval: s(2),
            lease_term: s(10),
            lease_expiry: LeaseExpiry::OnSilence,
            lease_renewal: s(5),
            claim_expiry: s(30),
            cold_start_window: s(30),
            scale_window: s(10),
            replacement_grace_period: s(45),
            max_workers: 100,
            fleet_size: None,
            controller_enabled: true,
            crash_immediate: true,
            consumes_log: true,
            max_concurrent: 10,
            process_timeout: s(30),
            drain_timeout: s(25),
            poll_interval: s(10),
            watermark_interval: s(24 * 3600),
            unlisted_scan_interval: s(60),
            planner: planner::Options::default(),
            policy: Policy::default(),
        }
    }
}

/// Settings that do not fit together.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    /// A value that must not be zero is zero.
    Zero {
        /// The setting.
        name: &'static str,
    },
    /// The lease ends too soon after its renewal.
    LeaseTooShort {
        /// The renewal interval.
        renewal: Duration,
        /// The term.
        term: Duration,
    },
    /// A leader could lose its lease while its partitions are still its own.
    LeaseBeforeCrash {
        /// The term.
        term: Duration,
        /// Three heartbeat intervals.
        crash: Duration,
    },
    /// More workers are wanted than there are ids.
    FleetTooLarge {
        /// The fleet size.
        fleet_size: u32,
        /// The number of ids.
        max_workers: u32,
    },
    /// The threshold is not a part of the mean.
    Threshold(f64),
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { name } => write!(f, "{name} is 0; it must be longer"),
            Self::LeaseTooShort { renewal, term } => write!(
                f,
                "the lease is renewed every {renewal:?} and lasts {term:?}: it must last at least twice as long"
            ),
            Self::LeaseBeforeCrash { term, crash } => write!(
                f,
                "the lease lasts {term:?}, and a silent worker counts as crashed after {crash:?}: the lease must last \
                 longer"
            ),
            Self::FleetTooLarge { fleet_size, max_workers } => {
                write!(f, "the fleet size is {fleet_size} and there are {max_workers} ids")
            }
            Self::Threshold(threshold) => {
                write!(f, "the threshold is {threshold}; it must lie between 0 and 1")
            }
        }
    }
}

impl Config {
    /// The echo of one's own heartbeat may be this old for the broker to count as healthy.
    pub fn echo_limit(&self) -> Duration {
        self.heartbeat_interval.mul_f64(1.5)
    }

    /// A worker stops itself this long after the sending of its last acknowledged heartbeat.
    pub fn fence_after(&self) -> Duration {
        self.heartbeat_interval.mul_f64(2.25)
    }

    /// A worker not heard for this long has crashed.
    pub fn crash_after(&self) -> Duration {
        self.heartbeat_interval * 3
    }

    /// A claim is renewed this often, with the heartbeat that is next: it may miss twice before it is stale.
    pub fn claim_renewal(&self) -> Duration {
        self.claim_expiry / 3
    }

    /// How long a freed id is waited for.
    pub fn standby_wait(&self) -> Duration {
        self.heartbeat_interval.mul_f64(0.75)
    }

    /// Disables a rule. Returns whether this build can: only one with the feature `mutants` does.
    pub fn disable_rule(&mut self, rule: ProtocolRule) -> bool {
        let policy = Policy::without(rule);
        self.policy = policy.unwrap_or(self.policy);
        policy.is_some()
    }

    /// Says what does not fit together, with the numbers.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (name, time) in [
            ("the heartbeat interval", self.heartbeat_interval),
            ("the lease term", self.lease_term),
            ("the lease renewal", self.lease_renewal),
            ("the time after which a claim is stale", self.claim_expiry),
            ("the time for one message", self.process_timeout),
            ("the poll interval", self.poll_interval),
        ] {
            if time.is_zero() {
                return Err(ConfigError::Zero { name });
            }
        }
        if self.max_workers == 0 {
            return Err(ConfigError::Zero { name: "the number of ids" });
        }
        if self.max_concurrent == 0 {
            return Err(ConfigError::Zero { name: "the number of messages at once" });
        }
        if self.lease_term < self.lease_renewal * 2 {
            return Err(ConfigError::LeaseTooShort { renewal: self.lease_renewal, term: self.lease_term });
        }
        if self.lease_term <= self.crash_after() {
            return Err(ConfigError::LeaseBeforeCrash { term: self.lease_term, crash: self.crash_after() });
        }
        match self.fleet_size {
            Some(0) => return Err(ConfigError::Zero { name: "the fleet size" }),
            Some(fleet_size) if fleet_size > self.max_workers => {
                return Err(ConfigError::FleetTooLarge { fleet_size, max_workers: self.max_workers });
            }
            _ => {}
        }
        if !(0.0..=1.0).contains(&self.planner.threshold) {
            return Err(ConfigError::Threshold(self.planner.threshold));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_and_give_the_times_of_the_design() {
        let config = Config::default();
        assert_eq!(config.validate(), Ok(()));
        let ms = Duration::from_millis;
        assert_eq!(
            (config.standby_wait(), config.echo_limit(), config.fence_after(), config.crash_after()),
            (ms(1500), ms(3000), ms(4500), ms(6000))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let slow = Config { heartbeat_interval: Duration::from_secs(4), ..Config::default() };
        let error = slow.validate().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the lease lasts 10s, and a silent worker counts as crashed after 12s: the lease must last longer"
        );
        let many = Config { fleet_size: Some(101), ..Config::default() };
        assert_eq!(many.validate().unwrap_err().to_string(), "the fleet size is 101 and there are 100 ids");
        let hasty = Config { lease_renewal: Duration::from_secs(6), ..Config::default() };
        assert!(matches!(hasty.validate(), Err(ConfigError::LeaseTooShort { .. })));
    }
}
