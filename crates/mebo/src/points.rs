//! One point after the other, without a buffer of the caller's.

use crate::error::Error;
use crate::index::Column;
use crate::metric::Metric;
use crate::{tags, timestamps, values};

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'b, V = f64> {
    /// When, by convention in Unix microseconds.
    pub timestamp: i64,
    /// What: a number, or a text.
    pub value: V,
    /// What was said about it, where the blob has tags.
    pub tag: Option<&'b str>,
}

/// How many points are decoded at a time: enough to make the steps between the columns cheap, few enough for the stack.
const CHUNK: usize = 64;

/// The points of one metric, in order. After an error there are no more.
pub struct Points<'b> {
    metric: Metric<'b>,
    timestamps: timestamps::Decoder<'b>,
    timestamps_at: usize,
    values: values::Decoder<'b>,
    values_at: usize,
    tags: Option<(tags::Decoder<'b>, usize)>,
    /// Points not decoded yet.
    left: usize,
    times: [i64; CHUNK],
    numbers: [f64; CHUNK],
    /// The next of the chunk, and how many it has.
    next: usize,
    filled: usize,
}

impl<'b> Points<'b> {
    pub(crate) fn new(metric: Metric<'b>) -> Result<Self, Error> {
        let (timestamps, timestamps_at) = metric.timestamp_decoder()?;
        let (values, values_at) = metric.value_decoder()?;
        Ok(Self {
            metric,
            timestamps,
            timestamps_at,
            values,
            values_at,
            tags: metric.tag_decoder()?,
            left: metric.len(),
            times: [0; CHUNK],
            numbers: [0.0; CHUNK],
            next: 0,
            filled: 0,
        })
    }

    fn refill(&mut self) -> Result<(), Error> {
        let len = self.left.min(CHUNK);
        let times = self.timestamps.fill(&mut self.times[..len]);
        times.map_err(|error| self.metric.locate(Column::Timestamps, error, self.timestamps_at))?;
        let numbers = self.values.fill(&mut self.numbers[..len]);
        numbers.map_err(|error| self.metric.locate(Column::Values, error, self.values_at))?;
        self.left -= len;
        (self.next, self.filled) = (0, len);
        Ok(())
    }

    fn tag(&mut self) -> Result<Option<&'b str>, Error> {
        let Some((tags, start)) = &mut self.tags else { return Ok(None) };
        tags.next().map(Some).map_err(|error| self.metric.locate(Column::Tags, error, *start))
    }

    fn end(&mut self) {
        (self.next, self.filled, self.left) = (0, 0, 0);
    }
}

impl<'b> Iterator for Points<'b> {
    type Item = Result<Point<'b>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.filled {
            if self.left == 0 {
                return None;
            }
            if let Err(error) = self.refill() {
                self.end();
                return Some(Err(error));
            }
        }
        // Masked, so that no check is left in the loop; `next` is below `filled`, which is at most a chunk.
        let i = self.next % CHUNK;
        let (timestamp, value) = (self.times[i], self.numbers[i]);
        self.next += 1;
        let tag = match self.tags {
            None => None,
            Some(_) => match self.tag() {
                Ok(tag) => tag,
                Err(error) => {
                    self.end();
                    return Some(Err(error));
                }
            },
        };
        Some(Ok(Point { timestamp, value, tag }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left + self.filled - self.next;
        // An error ends it early.
        (left.min(1), Some(left))
    }
}

impl std::fmt::Debug for Points<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Points")
            .field("metric", &self.metric.id())
            .field("left", &self.size_hint().1)
            .finish()
    }
}
