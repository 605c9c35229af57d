//! When a feed is to be read again: at an interval, or as a cron expression says. Times are UTC.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Date;

/// When to begin.
///
/// ```
/// use std::time::Duration;
/// use phalanx_etl::core::schedule::Schedule;
///
/// let half_past_three: Schedule = "30 3 * * *".parse()?;
/// assert_eq!(half_past_three.next_after(Duration::ZERO), Some(Duration::from_secs(3 * 3600 + 1800)));
/// let often: Schedule = "1h30m".parse()?;
/// assert_eq!(often.next_after(Duration::ZERO), Some(Duration::from_secs(5400)));
/// assert_eq!("never".parse::<Schedule>()?.next_after(Duration::ZERO), None);
/// # Ok::<(), phalanx_etl::core::schedule::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Never,
    Every(Duration),
    Cron(Cron),
}

/// Which minutes, hours, days of the month, months and days of the week (0 is Sunday), a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both sorts of days are narrowed: then either will do.
    either_day: bool,
}

/// Why a schedule or a duration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is neither.
    #[error(
        "`{0}` is no schedule: write an interval such as 30m, 2h or 1d, five fields of cron such as `15 3 * * *`, or never"
    )]
    NoSchedule(String),
    /// It is no duration.
    #[error("`{0}` is no duration: write 90s, 30m, 2h, 1d or 1h30m")]
    NoDuration(String),
    /// A field of cron is wrong.
    #[error(
        "`{field}` is no {name} of cron: it takes {least} to {most}, *, lists, ranges and steps such as 1-5 or */10"
    )]
    Field {
        /// What it is for.
        name: &'static str,
        /// What was written.
        field: String,
        /// The least it takes.
        least: u32,
        /// The most it takes.
        most: u32,
    },
    /// Such a day never comes.
    #[error("`{0}` never comes: no month of these has such a day")]
    NeverComes(String),
}

/// After so many days every date that exists has come, also the 29th of February on any day of the week.
const DAYS_MAX: i64 = 366 * 41;

impl Schedule {
    /// The first time after `now`, both since the epoch; `None` where it never comes.
    pub fn next_after(&self, now: Duration) -> Option<Duration> {
        match &self.rule {
            Rule::Never => None,
            Rule::Every(interval) => Some(now + *interval),
            Rule::Cron(cron) => cron.next_after(now),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let fields: Vec<&str> = text.split_whitespace().collect();
        let rule = match fields.as_slice() {
            ["never"] => Rule::Never,
            [interval] => match duration(interval) {
                Ok(interval) if !interval.is_zero() => Rule::Every(interval),
                _ => return Err(Error::NoSchedule(text.to_owned())),
            },
            [minutes, hours, days, months, weekdays] => {
                let cron = Cron::new(minutes, hours, days, months, weekdays)?;
                if cron.next_after(Duration::ZERO).is_none() {
                    return Err(Error::NeverComes(text.to_owned()));
                }
                Rule::Cron(cron)
            }
            _ => return Err(Error::NoSchedule(text.to_owned())),
        };
        Ok(Self { text: fields.join(" "), rule })
    }
}

/// A duration as people write it: `90s`, `30m`, `2h`, `1d`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, Error> {
    let wrong = || Error::NoDuration(text.to_owned());
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|one: char| !one.is_ascii_digit()).ok_or_else(wrong)?;
        let count: u32 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = match rest.as_bytes()[digits] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            _ => return Err(wrong()),
        };
        sum = Duration::from_secs(unit)
            .checked_mul(count)
            .and_then(|more| sum.checked_add(more))
            .ok_or_else(wrong)?;
        rest = &rest[digits + 1..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(sum) }
}

impl Cron {
    fn new(minutes: &str, hours: &str, days: &str, months: &str, weekdays: &str) -> Result<Self, Error> {
        let weekday_bits = field("day of the week", weekdays, 0, 7, &WEEKDAYS, 0)?;
        Ok(Self {
            minutes: field("minute", minutes, 0, 59, &[], 0)?,
            hours: field("hour", hours, 0, 23, &[], 0)?,
            days: field("day of the month", days, 1, 31, &[], 0)?,
            months: field("month", months, 1, 12, &MONTHS, 1)?,
            // 7 is Sunday as well.
            weekdays: (weekday_bits | weekday_bits >> 7) & 0x7f,
            either_day: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    fn next_after(&self, now: Duration) -> Option<Duration> {
        // The next whole minute.
        let start = now.as_secs() / 60 + 1;
        let (first_day, first_minute) = (i64::try_from(start / 1_440).ok()?, start % 1_440);
        for day in first_day..first_day + DAYS_MAX {
            if self.comes_on(day)? {
                let from = if day == first_day { first_minute } else { 0 };
                let fits = |minute: &u64| has(self.hours, minute / 60) && has(self.minutes, minute % 60);
                if let Some(minute) = (from..1_440).find(fits) {
                    return Some(Duration::from_secs((day.unsigned_abs() * 1_440 + minute) * 60));
                }
            }
        }
        None
    }

    /// Whether it comes on that day since the epoch; `None` after the end of the calendar.
    fn comes_on(&self, day: i64) -> Option<bool> {
        let date = Date::constant(1970, 1, 1).checked_add(jiff::Span::new().try_days(day).ok()?).ok()?;
        let of_month = has(self.days, date.day().unsigned_abs().into());
        let of_week = has(self.weekdays, date.weekday().to_sunday_zero_offset().unsigned_abs().into());
        let day_fits = if self.either_day { of_month || of_week } else { of_month && of_week };
        Some(day_fits && has(self.months, date.month().unsigned_abs().into()))
    }
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn has(bits: u64, bit: u64) -> bool {
    bits >> bit & 1 == 1
}

/// The bits of one field; `names` stand for numbers from `first_name` on.
fn field(
    name: &'static str,
    text: &str,
    least: u32,
    most: u32,
    names: &[&str],
    first_name: u32,
) -> Result<u64, Error> {
    let wrong = || Error::Field { name, field: text.to_owned(), least, most };
    let number = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let number = match named {
            Some(at) => at as u32 + first_name,
            None => text.parse().map_err(|_| wrong())?,
        };
        if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
    };
    let mut bits = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                (range, Some(step.parse().ok().filter(|&step: &usize| step > 0).ok_or_else(wrong)?))
            }
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            // `5/10` is from 5 on.
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        if first > last {
            return Err(wrong());
        }
        (first..=last).step_by(step.unwrap_or(1)).for_each(|bit| bits |= 1 << bit);
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Duration {
        let time: jiff::Timestamp = text.parse().unwrap();
        Duration::from_secs(time.as_second().unsigned_abs())
    }

    #[track_caller]
    fn assert_next(schedule: &str, now: &str, next: &str) {
        let schedule: Schedule = schedule.parse().unwrap();
        assert_eq!(schedule.next_after(at(now)), Some(at(next)), "{schedule} after {now}");
    }

    #[test]
    fn every_field_of_cron_narrows_when_it_comes() {
        assert_next("* * * * *", "2024-05-06T07:08:09Z", "2024-05-06T07:09:00Z");
        assert_next("*/15 * * * *", "2024-05-06T07:45:00Z", "2024-05-06T08:00:00Z");
        assert_next("5/20 * * * *", "2024-05-06T07:26:00Z", "2024-05-06T07:45:00Z");
        assert_next("30 3 * * *", "2024-05-06T03:30:00Z", "2024-05-07T03:30:00Z");
        assert_next("0 9-17/4 * * *", "2024-05-06T09:00:00Z", "2024-05-06T13:00:00Z");
        assert_next("0 0 1,15 * *", "2024-05-06T00:00:00Z", "2024-05-15T00:00:00Z");
        assert_next("0 0 1 jan *", "2024-05-06T00:00:00Z", "2025-01-01T00:00:00Z");
        assert_next("59 23 31 12 *", "2024-12-31T23:58:59Z", "2024-12-31T23:59:00Z");
    }

    #[test]
    fn days_of_the_week_have_names_and_sunday_two_numbers() {
        // The 6th of May 2024 was a Monday.
        assert_next("0 0 * * mon", "2024-05-06T00:00:00Z", "2024-05-13T00:00:00Z");
        assert_next("0 0 * * 0", "2024-05-06T00:00:00Z", "2024-05-12T00:00:00Z");
        assert_next("0 0 * * 7", "2024-05-06T00:00:00Z", "2024-05-12T00:00:00Z");
        assert_next("0 0 * * MON-FRI", "2024-05-10T00:00:00Z", "2024-05-13T00:00:00Z");
    }

    #[test]
    fn a_day_of_the_month_and_one_of_the_week_are_either_or() {
        assert_next("0 0 10 * mon", "2024-05-06T00:00:00Z", "2024-05-10T00:00:00Z");
        assert_next("0 0 10 * mon", "2024-05-10T00:00:00Z", "2024-05-13T00:00:00Z");
        assert_next("0 0 */10 * mon", "2024-05-06T00:00:00Z", "2024-07-01T00:00:00Z");
    }

    #[test]
    fn the_29th_of_february_comes_in_leap_years_and_the_30th_never() {
        assert_next("0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z");
        assert_next("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z");
        let never = "0 0 30 2 *".parse::<Schedule>().unwrap_err();
        assert_eq!(never, Error::NeverComes("0 0 30 2 *".to_owned()));
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_what_would_be() {
        for wrong in ["", "0", "0s", "2w", "h", "5", "1 2 3", "@daily", "99999999999d", "-1h"] {
            assert!(matches!(wrong.parse::<Schedule>(), Err(Error::NoSchedule(_))), "{wrong}");
        }
        for wrong in
            ["60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *"]
        {
            assert!(matches!(wrong.parse::<Schedule>(), Err(Error::Field { .. })), "{wrong}");
        }
        let error = "61 * * * *".parse::<Schedule>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`61` is no minute of cron: it takes 0 to 59, *, lists, ranges and steps such as 1-5 or */10"
        );
    }

    #[test]
    fn durations_are_sums_of_units() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs());
        assert_eq!((seconds("90s"), seconds("1h30m"), seconds("2d")), (Ok(90), Ok(5_400), Ok(172_800)));
        assert_eq!(seconds("ten"), Err(Error::NoDuration("ten".to_owned())));
    }
}
