//! Permits: leases from a pool, shared fairly, taken back when the store cannot keep up.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The broker's rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Permits there are.
    pub pool: u32,
    /// How long a permit is good for without renewal.
    pub lease: Duration,
    /// How often the load is looked at.
    pub check_every: Duration,
    /// Write latency per record, as the 99th percentile, above which the store is overloaded.
    pub write_latency_max: Duration,
    /// How full the store's queue may be, from 0 to 1.
    pub saturation_max: f64,
    /// Which part of the permits is taken or given back at a time.
    pub step: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pool: 10,
            lease: Duration::from_secs(90),
            check_every: Duration::from_secs(5),
            write_latency_max: Duration::from_millis(30),
            saturation_max: 0.8,
            step: 0.2,
        }
    }
}

/// What was measured since the last check.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The 99th percentile of the write latency per record; `None` when nothing was written.
    pub write_latency_p99: Option<Duration>,
    /// How full the store's queue was, from 0 to 1.
    pub saturation: f64,
}

/// Why permits were taken back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Writes took too long.
    SlowWrites(Duration),
    /// The queue of the store was too full.
    QueueFull(f64),
    /// The holder did not renew its lease.
    LeaseExpired,
    /// Another provider waits for its share.
    FairShare,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SlowWrites(p99) => {
                write!(f, "writes take {:.1} ms per record", p99.as_secs_f64() * 1000.0)
            }
            Self::QueueFull(part) => write!(f, "the store's queue is {:.0} % full", part * 100.0),
            Self::LeaseExpired => f.write_str("the lease expired"),
            Self::FairShare => f.write_str("another provider waits for its share"),
        }
    }
}

/// What happens to the broker.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A provider wants up to that many permits.
    Ask(String, u32),
    /// A provider gives back what it holds and wants nothing more.
    Return(String),
    /// A provider is alive and still uses what it holds.
    Renew(String),
    /// The load, at a check that is due.
    Check(Load),
    /// Time passed.
    Tick,
}

/// What the shell must tell a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It got permits.
    Grant(String, u32),
    /// It lost permits.
    Revoke(String, u32, Reason),
}

/// What the statistics show of one provider's permits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Permits in hand.
    pub held: u32,
    /// Permits asked for.
    pub wanted: u32,
    /// Permits taken back so far.
    pub revoked: u64,
    /// Why, the last time.
    pub why: Option<Reason>,
}

#[derive(Clone, Debug)]
struct Claim {
    /// Place in the line; whoever has had its turn goes to the end.
    turn: u64,
    since: Duration,
    expires: Duration,
    statistics: Statistics,
}

/// The broker.
///
/// Permits are shared max-min fairly: one each in turn until the pool or the wishes are used up. Two bad checks in a
/// row take a fifth of what is held back, two good ones give a fifth of the pool back. While there are fewer permits
/// than providers that want one, they take turns of one lease each.
#[derive(Clone, Debug)]
pub struct Broker {
    config: Config,
    capacity: u32,
    claims: BTreeMap<String, Claim>,
    turns: u64,
    bad_checks: u32,
    good_checks: u32,
    next_check: Duration,
}

impl Broker {
    /// A broker with all its permits.
    pub fn new(now: Duration, config: Config) -> Self {
        Self {
            config,
            capacity: config.pool,
            claims: BTreeMap::new(),
            turns: 0,
            bad_checks: 0,
            good_checks: 0,
            next_check: now + config.check_every,
        }
    }

    /// Permits that may be held now; fewer than the pool after an overload.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether [`Input::Check`] is due.
    pub fn check_due(&self, now: Duration) -> bool {
        self.next_check <= now
    }

    /// When to call again: the next check or the end of a lease.
    pub fn next_deadline(&self) -> Duration {
        let held = self.claims.values().filter(|claim| claim.statistics.held > 0);
        held.map(|claim| claim.expires).fold(self.next_check, Duration::min)
    }

    /// What the statistics show of `provider`.
    pub fn statistics(&self, provider: &str) -> Statistics {
        self.claims.get(provider).map(|claim| claim.statistics.clone()).unwrap_or_default()
    }

    /// Takes one input and appends what the shell must tell the providers.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Ask(provider, wanted) => self.ask(now, provider, wanted),
            Input::Return(provider) => {
                if let Some(claim) = self.claims.get_mut(&provider) {
                    claim.statistics.held = 0;
                    claim.statistics.wanted = 0;
                }
            }
            Input::Renew(provider) => {
                if let Some(claim) = self.claims.get_mut(&provider) {
                    claim.expires = now + self.config.lease;
                }
            }
            Input::Check(load) => self.check(now, load, out),
            Input::Tick => {}
        }
        self.expire(now, out);
        self.share(now, &Reason::FairShare, out);
    }

    fn ask(&mut self, now: Duration, provider: String, wanted: u32) {
        self.turns += 1;
        let (turn, expires) = (self.turns, now + self.config.lease);
        let claim = self.claims.entry(provider).or_insert_with(|| Claim {
            turn,
            since: now,
            expires,
            statistics: Statistics::default(),
        });
        if claim.statistics.wanted == 0 {
            (claim.turn, claim.since) = (turn, now);
        }
        claim.expires = expires;
        claim.statistics.wanted = wanted.min(self.config.pool);
    }

    fn check(&mut self, now: Duration, load: Load, out: &mut Vec<Effect>) {
        self.next_check = now + self.config.check_every;
        match self.overload(load) {
            Some(reason) => {
                self.good_checks = 0;
                self.bad_checks += 1;
                if self.bad_checks >= 2 {
                    self.bad_checks = 0;
                    let held: u32 = self.claims.values().map(|claim| claim.statistics.held).sum();
                    self.capacity = held.saturating_sub(part_of(held, self.config.step));
                    self.share(now, &reason, out);
                }
            }
            None => {
                self.bad_checks = 0;
                self.good_checks += 1;
                if self.good_checks >= 2 {
                    self.good_checks = 0;
                    let more = part_of(self.config.pool, self.config.step);
                    self.capacity = (self.capacity + more).min(self.config.pool);
                }
            }
        }
        self.take_turns(now);
    }

    fn overload(&self, load: Load) -> Option<Reason> {
        match load.write_latency_p99 {
            Some(p99) if p99 > self.config.write_latency_max => Some(Reason::SlowWrites(p99)),
            _ if load.saturation > self.config.saturation_max => Some(Reason::QueueFull(load.saturation)),
            _ => None,
        }
    }

    /// While somebody goes without, whoever has held permits for a whole lease goes to the end of the line.
    fn take_turns(&mut self, now: Duration) {
        let starving = self.claims.values().any(|c| c.statistics.wanted > 0 && c.statistics.held == 0);
        if !starving {
            return;
        }
        for claim in self.claims.values_mut() {
            if claim.statistics.held > 0 && now.saturating_sub(claim.since) >= self.config.lease {
                self.turns += 1;
                claim.turn = self.turns;
            }
        }
    }

    fn expire(&mut self, now: Duration, out: &mut Vec<Effect>) {
        for (provider, claim) in &mut self.claims {
            let held = claim.statistics.held;
            if held > 0 && claim.expires <= now {
                claim.statistics.held = 0;
                claim.statistics.wanted = 0;
                claim.statistics.revoked += u64::from(held);
                claim.statistics.why = Some(Reason::LeaseExpired);
                out.push(Effect::Revoke(provider.clone(), held, Reason::LeaseExpired));
            }
        }
    }

    /// Gives everybody its share: first takes what is above it, then gives what is below.
    fn share(&mut self, now: Duration, reason: &Reason, out: &mut Vec<Effect>) {
        let shares = self.shares();
        for (provider, claim) in &mut self.claims {
            let statistics = &mut claim.statistics;
            let above = statistics.held.saturating_sub(shares[provider]);
            if above > 0 {
                statistics.held -= above;
                statistics.revoked += u64::from(above);
                statistics.why = Some(reason.clone());
                if statistics.held == 0 {
                    // It will ask again and stand at the end of the line.
                    statistics.wanted = 0;
                }
                out.push(Effect::Revoke(provider.clone(), above, reason.clone()));
            }
        }
        for (provider, claim) in &mut self.claims {
            let below = shares[provider].saturating_sub(claim.statistics.held);
            if below > 0 && claim.statistics.wanted > 0 {
                if claim.statistics.held == 0 {
                    claim.since = now;
                }
                claim.statistics.held += below;
                claim.expires = now + self.config.lease;
                out.push(Effect::Grant(provider.clone(), below));
            }
        }
    }

    fn shares(&self) -> BTreeMap<String, u32> {
        let mut line: Vec<(&String, u32)> =
            self.claims.iter().map(|(provider, claim)| (provider, claim.statistics.wanted)).collect();
        line.sort_by_key(|(provider, _)| self.claims[*provider].turn);
        let mut shares: BTreeMap<String, u32> = self.claims.keys().map(|id| (id.clone(), 0)).collect();
        let mut left = self.capacity;
        while left > 0 && line.iter().any(|(_, wanted)| *wanted > 0) {
            for (provider, wanted) in &mut line {
                if *wanted > 0 && left > 0 {
                    *wanted -= 1;
                    left -= 1;
                    *shares.get_mut(*provider).expect("every claim has a share") += 1;
                }
            }
        }
        shares
    }
}

/// At least one, unless there is nothing.
fn part_of(count: u32, part: f64) -> u32 {
    ((f64::from(count) * part).ceil() as u32).min(count)
}

#[cfg(test)]
#[path = "broker_test.rs"]
mod tests;
