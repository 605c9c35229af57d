use super::*;
use crate::source::{Limits, Timeouts};

const DAY: u64 = 24 * 60 * 60 * 1000;

fn api(cursor: &Cursor, key: Option<&str>) -> Api {
    let context = Context {
        http: Http::new(Timeouts::default(), Limits::default()),
        limits: Limits::default(),
        now: Duration::ZERO,
        credential: key.map(str::to_owned),
    };
    Api::new("http://localhost/cve", Some(&text(cursor)), &context)
}

/// The windows that are walked from `watermark` to `until`.
fn windows(watermark: u64, until: u64) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let mut watermark = watermark;
    while let Some(window) = next_window(Some(watermark), until) {
        all.push((window.from.unwrap(), window.to));
        watermark = window.to;
    }
    all
}

#[test]
fn a_gap_of_121_days_is_walked_in_two_windows_that_overlap() {
    let (start, hour) = (1000 * DAY, OVERLAP.as_millis() as u64);
    assert_eq!(
        windows(start, start + 121 * DAY),
        [(start - hour, start - hour + 120 * DAY), (start - 2 * hour + 120 * DAY, start + 121 * DAY)]
    );
}

#[test]
fn no_window_is_longer_than_120_days_and_none_leaves_a_hole() {
    for days in [1, 119, 120, 121, 500, 3000] {
        let all = windows(5000 * DAY, (5000 + days) * DAY);
        assert!(all.iter().all(|(from, to)| to - from <= 120 * DAY), "{days}");
        assert!(all.windows(2).all(|pair| pair[1].0 < pair[0].1), "{days}");
        assert_eq!(all.last().unwrap().1, (5000 + days) * DAY);
    }
    assert_eq!(windows(5000 * DAY, 5000 * DAY), []);
}

#[test]
fn the_first_run_reads_everything_and_later_ones_name_both_dates() {
    let first = next_window(None, 20_000 * DAY).unwrap();
    assert_eq!(page_url("http://x", &first), "http://x?startIndex=0&resultsPerPage=2000");
    let later = Window { index: 4000, ..next_window(Some(20_000 * DAY), 20_001 * DAY).unwrap() };
    assert_eq!(
        page_url("http://x", &later),
        "http://x?startIndex=4000&resultsPerPage=2000&lastModStartDate=2024-10-03T23:00:00.000Z\
         &lastModEndDate=2024-10-05T00:00:00.000Z"
    );
}

#[test]
fn the_pace_is_five_in_any_thirty_seconds_and_fifty_with_a_key() {
    let at = Duration::from_secs;
    let cursor =
        |count: u64| Cursor { requests: (0..count).map(|n| (100 + n) * 1000).collect(), ..Cursor::default() };
    assert_eq!(api(&cursor(4), None).pace(at(105)), None);
    assert_eq!(api(&cursor(5), None).pace(at(105)), Some(at(130)));
    assert_eq!(api(&cursor(5), None).pace(at(130)), None, "the oldest is thirty seconds ago");
    assert_eq!(api(&cursor(5), Some("key")).pace(at(105)), None);
    let fifty = Cursor { requests: vec![100_000; 50].into(), ..Cursor::default() };
    assert_eq!(api(&fifty, Some("key")).pace(at(105)), Some(at(130)));
}
