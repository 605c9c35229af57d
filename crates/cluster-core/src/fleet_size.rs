//! How many workers there should be: a person's command, or what every worker's configuration agrees on.

use super::config::Config;
use super::health::HealthyClock;
use super::roster::Roster;
use super::types::AssignmentMap;

/// The value in force. A command wins; a configured value counts when all who are heard agree on it; until then the map
/// says what held before.
pub(super) fn in_force(
    command: Option<u32>,
    config: &Config,
    roster: &Roster,
    clock: &HealthyClock,
    map: Option<&AssignmentMap>,
) -> Option<u32> {
    if command.is_some() {
        return command;
    }
    let heard = roster.live(config.crash_after(), clock);
    let agreed = heard.map(|(_, seen)| seen.fleet_size).all(|size| size == config.fleet_size);
    if agreed { config.fleet_size } else { map.and_then(|map| map.fleet_size) }
}
