//! The API: pages, windows of time, the pace, and the watermark.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{LIST, check_format};
use crate::core::backoff::Fault;
use crate::record::{Item, SourceRef};
use crate::source::{Context, Cut, Done, Extract, Failure, Http, JsonArray, Step, body_failure, redact};
use crate::text::hex;

/// The most a page may hold.
const PAGE_LEN: u64 = 2000;
/// The longest window the API answers.
const WINDOW_MAX: Duration = Duration::from_secs(120 * 24 * 60 * 60);
/// Windows overlap, because changes may appear in the API a little after their date.
const OVERLAP: Duration = Duration::from_secs(60 * 60);
/// The span of time the pace is counted in.
const PACE_SPAN: Duration = Duration::from_secs(30);
const PACE: usize = 5;
const PACE_WITH_KEY: usize = 50;
/// How often a window may begin anew because it changed under way.
const RESTARTS_MAX: u32 = 3;
/// The most a page may weigh; two thousand large records are a tenth of it.
const BODY_LEN_MAX: u64 = 256 << 20;

/// Where to go on. Times are milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    /// Everything changed up to here is stored.
    watermark: Option<u64>,
    /// How far this run goes.
    until: Option<u64>,
    /// The window that is being read.
    window: Option<Window>,
    /// When requests were made, for the pace.
    requests: VecDeque<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Window {
    /// `None` in the first run, which reads everything.
    from: Option<u64>,
    to: u64,
    /// Records of it that are stored.
    index: u64,
    /// How many there are, as its first page said.
    total: Option<u64>,
    restarts: u32,
    /// The checksum of the last record that was read, which the next page must begin with.
    #[serde(default)]
    last: Option<String>,
}

pub(super) struct Api {
    url: String,
    key: Option<String>,
    http: Http,
    cursor: Cursor,
    page: VecDeque<Vec<u8>>,
    source: SourceRef,
}

impl Api {
    pub(super) fn new(url: &str, resume: Option<&str>, context: &Context) -> Self {
        let cursor = resume.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self {
            url: url.to_owned(),
            key: context.credential.clone(),
            http: context.http.clone(),
            cursor,
            page: VecDeque::new(),
            source: SourceRef { location: redact(url), checksum: None, fetched: context.now },
        }
    }

    /// The next page of the window, checked against what it declares.
    fn fetch(&mut self, window: &mut Window, now: Duration) -> Result<(), Failure> {
        let url = page_url(&self.url, window);
        let key = self.key.as_deref().map(|key| ("apiKey", key));
        self.cursor.requests.push_back(ms(now));
        let page = self.http.get(&url, key.as_slice(), now)?;
        let url = redact(&url);
        let mut body = Vec::new();
        let limited = std::io::Read::take(page.body, BODY_LEN_MAX);
        std::io::Read::read_to_end(&mut { limited }, &mut body)
            .map_err(|error| body_failure(&url, &error))?;
        let mut array = JsonArray::new(body.as_slice(), LIST);
        let mut items = VecDeque::new();
        let cut = |cut: Cut| Failure::retry(Fault::Broken(format!("{url}: {cut}")));
        while let Some(element) = array.next_element().map_err(cut)? {
            items.push_back(element);
        }
        check_format(&array).map_err(|error| Failure::Broken(format!("{url}: {error}")))?;
        let Some(total) = array.number("totalResults") else {
            return Err(Failure::Broken(format!("{url}: the answer has no totalResults")));
        };
        if let Some(before) = window.total.replace(total)
            && before != total
        {
            return Err(self.anew(window, &format!("the total changed from {before} to {total}")));
        }
        let left = total.saturating_sub(window.start());
        let declared = array.number("resultsPerPage").unwrap_or(left).min(left);
        let expected = if left > 0 { declared.max(1) } else { 0 };
        if items.len() as u64 != expected {
            return Err(Failure::retry(Fault::Incomplete(format!(
                "{url}: holds {} records where {expected} of {total} were due",
                items.len()
            ))));
        }
        // The page begins with the last record of the one before, unless records have moved since.
        if let Some(last) = &window.last
            && items.pop_front().map(|first| checksum(&first)).as_ref() != Some(last)
        {
            return Err(self.anew(window, "the records moved"));
        }
        if items.is_empty() && window.index < total {
            let what = format!("{url}: holds nothing beyond record {} of {total}", window.index);
            return Err(Failure::retry(Fault::Incomplete(what)));
        }
        self.source = SourceRef { location: url, checksum: Some(checksum(&body)), fetched: now };
        self.page = items;
        Ok(())
    }

    /// What lies behind us has changed, so that a record may have slipped through: the window begins anew.
    fn anew(&self, window: &Window, what: &str) -> Failure {
        let changed = format!("{}: {what} between pages", redact(&self.url));
        if window.restarts == RESTARTS_MAX {
            return Failure::Broken(format!("{changed}, {} times", RESTARTS_MAX + 1));
        }
        let anew =
            Window { index: 0, total: None, last: None, restarts: window.restarts + 1, ..window.clone() };
        let cursor = Cursor { window: Some(anew), ..self.cursor.clone() };
        Failure::Retry { fault: Fault::Incomplete(changed), retry_after: None, cursor: Some(text(&cursor)) }
    }

    /// When the pace allows the next request.
    fn pace(&mut self, now: Duration) -> Option<Duration> {
        let limit = if self.key.is_some() { PACE_WITH_KEY } else { PACE };
        let oldest = ms(now.saturating_sub(PACE_SPAN));
        while self.cursor.requests.front().is_some_and(|&at| at <= oldest) {
            self.cursor.requests.pop_front();
        }
        let over = self.cursor.requests.len().checked_sub(limit)?;
        self.cursor.requests.get(over).map(|&at| Duration::from_millis(at) + PACE_SPAN)
    }
}

impl Extract for Api {
    fn next(&mut self, max: usize, now: Duration) -> Result<Step, Failure> {
        let until = *self.cursor.until.get_or_insert(ms(now));
        if self.page.is_empty() {
            let window = self.cursor.window.clone().or_else(|| next_window(self.cursor.watermark, until));
            let Some(mut window) = window else {
                self.cursor.until = None;
                return Ok(Step::Done { gaps: None, cursor: text(&self.cursor) });
            };
            if let Some(wait) = self.pace(now) {
                return Ok(Step::Wait(wait));
            }
            self.cursor.window = Some(window.clone());
            self.fetch(&mut window, now).map_err(|failure| self.with_requests(failure))?;
            self.cursor.window = Some(window);
        }
        let Some(window) = &mut self.cursor.window else {
            return Err(Failure::Broken("a page without a window".to_owned()));
        };
        let take = max.min(self.page.len());
        let first = window.index;
        let items: Vec<Item> = self
            .page
            .drain(..take)
            .enumerate()
            .map(|(at, raw)| Item { position: first + at as u64, raw })
            .collect();
        window.index += items.len() as u64;
        if let Some(last) = items.last() {
            window.last = Some(checksum(&last.raw));
        }
        let page_done = self.page.is_empty();
        if page_done && Some(window.index) == window.total {
            // Complete, and its count fits: only now the watermark moves.
            self.cursor.watermark = Some(window.to);
            self.cursor.window = None;
        }
        Ok(Step::Items { items, source: self.source.clone(), cursor: text(&self.cursor), page_done })
    }

    /// In records of the window.
    fn done(&self) -> Option<Done> {
        let window = self.cursor.window.as_ref()?;
        window.total.map(|total| Done { done: window.index, total })
    }
}

impl Window {
    /// Where its next page begins: with the last record that is known, to see that it still stands there.
    fn start(&self) -> u64 {
        self.index - u64::from(self.last.is_some() && self.index > 0)
    }
}

impl Api {
    /// A failed request counts for the pace too, also after a restart.
    fn with_requests(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Retry { fault, retry_after, cursor: None } => {
                Failure::Retry { fault, retry_after, cursor: Some(text(&self.cursor)) }
            }
            other => other,
        }
    }
}

/// The window after `watermark`, or `None` when `until` is reached. The first one of all reads everything.
fn next_window(watermark: Option<u64>, until: u64) -> Option<Window> {
    let window = |from, to| Window { from, to, index: 0, total: None, restarts: 0, last: None };
    let Some(watermark) = watermark else { return Some(window(None, until)) };
    if watermark >= until {
        return None;
    }
    let from = watermark.saturating_sub(OVERLAP.as_millis() as u64);
    let to = until.min(from + WINDOW_MAX.as_millis() as u64);
    Some(window(Some(from), to))
}

fn page_url(base: &str, window: &Window) -> String {
    let joint = if base.contains('?') { '&' } else { '?' };
    let mut url = format!("{base}{joint}startIndex={}&resultsPerPage={PAGE_LEN}", window.start());
    if let Some(from) = window.from {
        url += &format!("&lastModStartDate={}&lastModEndDate={}", date(from), date(window.to));
    }
    url
}

/// As the API writes dates: milliseconds and an offset, whose colon and plus need no escape this way.
fn date(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn checksum(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn text(cursor: &Cursor) -> String {
    serde_json::to_string(cursor).expect("a cursor is plain data")
}

#[cfg(test)]
#[path = "api_test.rs"]
mod tests;
