//! Lists of alarms: of a chamber, or of all chambers day by day.

use futures_util::future::{try_join, try_join_all};
use jiff::Timestamp;
use scylla::value::CqlTimestamp;

use super::link::Link;
use super::rows::{AlarmRow, Said, all, date, day};
use crate::record::{Acknowledgement, Alarm, Chamber};
use crate::store::encoding::{After, Time};
use crate::store::{ALARMS_KEPT, AlarmPage, StoreError, seen};

/// Days asked for at once: most have few alarms, many have none.
const DAYS_AT_ONCE: usize = 16;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

type Result<T> = std::result::Result<T, StoreError>;

pub(super) async fn list(
    link: &Link,
    chamber: Option<&Chamber>,
    since: Timestamp,
    page: Option<&str>,
    limit: usize,
) -> Result<AlarmPage> {
    // A page of nothing would go on for ever.
    let limit = limit.max(1);
    let since = Time::from(since).ms;
    let after = page.map(After::read).transpose()?;
    let one_more = limit.saturating_add(1);
    let mut rows = match chamber {
        Some(chamber) => of_chamber(link, chamber, since, after.as_ref(), one_more).await?,
        None => of_all(link, since, after.as_ref(), one_more).await?,
    };
    let more = rows.len() > limit;
    rows.truncate(limit);
    let facts = try_join_all(rows.into_iter().map(|row| complete(link, row))).await?;
    // The last row says where to go on, also where it is one that does not count.
    let next = facts.last().filter(|_| more).map(|(alarm, _, _)| {
        After { raised_ms: Time::from(alarm.raised_at).ms, id: alarm.id.clone() }.token()
    });
    let alarms = facts.into_iter().filter(|(_, _, counts)| *counts);
    Ok(AlarmPage { alarms: alarms.map(|(alarm, said, _)| seen(alarm, said)).collect(), next })
}

/// An alarm that is not there is one question.
pub(super) async fn one(link: &Link, id: &str) -> Result<Option<(Alarm, Option<Acknowledgement>)>> {
    type Place = (String, String, CqlTimestamp);
    let Some((tool, chamber, raised)) = all::<Place>(link.run(|s| &s.alarm_by_id, (id,)).await?)?.pop()
    else {
        return Ok(None);
    };
    let found = link.run(|s| &s.alarm, (&*tool, &*chamber, raised, id)).await?;
    let Some(row) = all::<AlarmRow>(found)?.pop() else { return Ok(None) };
    let (alarm, said, counts) = complete(link, row).await?;
    Ok(counts.then(|| seen(alarm, said)))
}

/// What people said of it, and whether the attempt that wrote it counts: a later attempt at the same message that did not
/// write it has taken it back.
async fn complete(link: &Link, row: AlarmRow) -> Result<(Alarm, Option<Acknowledgement>, bool)> {
    let (position, take) = (row.position, row.take);
    let alarm = row.read()?;
    let chamber = (alarm.chamber.tool(), alarm.chamber.chamber(), position);
    let (said, newest) =
        try_join(link.run(|s| &s.acknowledgement, (&*alarm.id,)), link.run(|s| &s.take_at, chamber)).await?;
    let said = all::<Said>(said)?.pop().map(Said::read).transpose()?;
    let counts = all::<(i64,)>(newest)?.pop().is_none_or(|(newest,)| newest <= take);
    Ok((alarm, said, counts))
}

fn rows(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

async fn of_chamber(
    link: &Link,
    chamber: &Chamber,
    since: i64,
    after: Option<&After>,
    limit: usize,
) -> Result<Vec<AlarmRow>> {
    let (tool, name) = (chamber.tool(), chamber.chamber());
    let mut found = Vec::new();
    if let Some(after) = after {
        let values = (tool, name, CqlTimestamp(after.raised_ms), &*after.id, rows(limit));
        found = all(link.run(|s| &s.alarms_at, values).await?)?;
    }
    if found.len() < limit {
        let until = after.map_or(i64::MAX, |after| after.raised_ms - 1);
        let values = (tool, name, CqlTimestamp(since), CqlTimestamp(until), rows(limit - found.len()));
        found.extend(all::<AlarmRow>(link.run(|s| &s.alarms, values).await?)?);
    }
    Ok(found)
}

/// From the newest day there can be (clocks of tools run ahead) back to `since`, or to where alarms have expired.
async fn of_all(link: &Link, since: i64, after: Option<&After>, limit: usize) -> Result<Vec<AlarmRow>> {
    let now = Time::from(Timestamp::now()).ms;
    let kept = i64::try_from(ALARMS_KEPT.as_millis()).unwrap_or(i64::MAX);
    let since = since.max(now - kept - DAY_MS);
    let mut found = Vec::new();
    let mut until = now + DAY_MS;
    if let Some(after) = after {
        let values = (date(day(after.raised_ms)), CqlTimestamp(after.raised_ms), &*after.id, rows(limit));
        found = all(link.run(|s| &s.alarms_of_day_at, values).await?)?;
        until = until.min(after.raised_ms - 1);
    }
    let days: Vec<i64> = (day(since)..=day(until)).rev().collect();
    for some in days.chunks(DAYS_AT_ONCE) {
        if found.len() >= limit {
            break;
        }
        let left = rows(limit - found.len());
        let of_day = async |day: &i64| {
            let values = (date(*day), CqlTimestamp(since), CqlTimestamp(until), left);
            all::<AlarmRow>(link.run(|s| &s.alarms_of_day, values).await?)
        };
        found.extend(try_join_all(some.iter().map(of_day)).await?.into_iter().flatten());
    }
    found.truncate(limit);
    Ok(found)
}
