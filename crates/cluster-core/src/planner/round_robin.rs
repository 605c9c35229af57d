//! In the order of the names, one each in turn.

use super::PlannerInput;
use super::fleet::Fleet;

/// Deals every partition out, whatever it weighs and whoever had it.
pub(super) fn place_all(fleet: &mut Fleet, items: &[PlannerInput<'_>]) {
    let mut names: Vec<&str> = items.iter().map(|item| item.name).collect();
    let mut seen = std::collections::HashMap::with_capacity(names.len());
    for name in names.drain(..) {
        let next = seen.len() as u32;
        seen.entry(name).or_insert(next);
    }
    let mut order: Vec<(&str, u32)> = seen.into_iter().collect();
    order.sort_unstable();
    let workers = fleet.workers.len();
    for (turn, (_, part)) in order.into_iter().enumerate() {
        fleet.parts[part as usize].owner = (turn % workers) as u32;
    }
    fleet.count_loads();
}
