//! Blobs of texts (§11): rows of a timestamp, a text and perhaps a tag.

use crate::bytes::{Cursor, Endian};
use crate::compression::Payload;
use crate::error::{Error, Section};
use crate::header::{HEADER_LEN, TextHeader, TimestampEncoding};
use crate::index::{Column, Entry, Index};
use crate::limits::ReadOptions;
use crate::names::{Key, Names};
use crate::points::Point;
use crate::varint;

/// Bytes of an index entry.
const ENTRY_LEN: usize = 16;

/// A blob of texts over time.
///
/// ```no_run
/// # let bytes = Vec::new();
/// let blob = phalanx_mebo::TextBlob::open(&bytes)?;
/// for metric in blob.metrics() {
///     for point in metric.points()? {
///         let point = point?;
///         println!("{} {}", point.timestamp, point.value);
///     }
/// }
/// # Ok::<(), phalanx_mebo::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextBlob<'a> {
    bytes: &'a [u8],
    header: TextHeader,
    index: Index,
    names: Option<Names>,
    data: Payload,
}

impl<'a> TextBlob<'a> {
    /// Opens a blob: checks its structure, decodes nothing.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::open_with(bytes, ReadOptions::default())
    }

    /// Opens a blob with limits of your own.
    pub fn open_with(bytes: &'a [u8], options: ReadOptions) -> Result<Self, Error> {
        let header = TextHeader::read(bytes)?;
        let mut cursor = Cursor::new(bytes, HEADER_LEN, header.endian);
        let names = match header.has_names {
            true => Some(Names::read(&mut cursor, header.metric_count)?),
            false => None,
        };
        let index = read_index(&mut cursor, &header, options.limits.points_per_metric)?;
        let names = match names {
            Some(names) => {
                let ids: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
                Some(names.match_ids(bytes, &ids, false)?)
            }
            None => None,
        };
        let start = header.data_offset as usize;
        if start > bytes.len() {
            return Err(Error::truncated(
                20,
                format!("the data is said to start at byte {start}, the blob ends after {}", bytes.len()),
            ));
        }
        if start < cursor.at() {
            return Err(Error::corrupt(
                20,
                format!(
                    "the data is said to start at byte {start}, inside what ends at byte {}",
                    cursor.at()
                ),
            ));
        }
        let limit = options.limits.decompressed_bytes;
        let data = Payload::new(header.compression, Section::Data, start, bytes.len(), limit);
        if data.is_plain() {
            check_size(&header, data.stored_len())?;
        }
        Ok(Self { bytes, header, index, names, data })
    }

    /// The header.
    pub fn header(&self) -> &TextHeader {
        &self.header
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.index.entries().len()
    }

    /// Whether there are no metrics.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the whole blob.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All metrics, in the order they were added.
    pub fn metrics(&self) -> impl ExactSizeIterator<Item = TextMetric<'_>> {
        (0..self.len()).map(|index| TextMetric { blob: self, index })
    }

    /// The metric with an id or a name; of several with the same id, the last.
    pub fn find<'k>(&self, key: impl Into<Key<'k>>) -> Option<TextMetric<'_>> {
        let key = key.into();
        let places = self.index.find(key.id());
        let found = match (key, &self.names) {
            (Key::Name(name), Some(names)) => {
                places.iter().find(|&&i| names.get(self.bytes, i as usize) == Some(name))
            }
            _ => places.last(),
        };
        found.map(|&i| TextMetric { blob: self, index: i as usize })
    }

    fn data(&self) -> Result<&[u8], Error> {
        self.data.bytes(self.bytes, |plain| check_size(&self.header, plain.len()))
    }
}

fn check_size(header: &TextHeader, len: usize) -> Result<(), Error> {
    let size = header.data_size;
    match len.cmp(&(size as usize)) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            Err(Error::truncated(24, format!("the data has {len} bytes, the header says {size}")))
        }
        std::cmp::Ordering::Greater => {
            Err(Error::corrupt(24, format!("the data has {len} bytes, the header says {size}")))
        }
    }
}

/// Offsets are absolute here, not differences, and the size of the data is known: all of it can be checked at once.
fn read_index(cursor: &mut Cursor<'_>, header: &TextHeader, points_most: u32) -> Result<Index, Error> {
    const WHAT: &str = "the index";
    let start = cursor.at();
    cursor.clone().take((header.metric_count as usize).saturating_mul(ENTRY_LEN), WHAT)?;
    let mut entries: Vec<Entry> = Vec::with_capacity(header.metric_count as usize);
    for i in 0..header.metric_count {
        let at = cursor.at();
        let id = cursor.u64(WHAT)?;
        let count = u32::from(cursor.u16(WHAT)?);
        let reserved = cursor.u16(WHAT)?;
        let offset = u64::from(cursor.u32(WHAT)?);
        if reserved != 0 {
            return Err(Error::unsupported(
                at + 10,
                format!("reserved bytes of an index entry hold {reserved:#x}, not 0"),
            ));
        }
        if count > points_most {
            return Err(Error::too_large(
                at + 8,
                format!(
                    "metric {i} has {count} points, the limit is {points_most} (Limits::points_per_metric)"
                ),
            ));
        }
        let least = entries.last().map_or(0, |before| before.values);
        if offset < least || offset > header.data_size.into() {
            return Err(Error::corrupt(
                at + 12,
                format!(
                    "metric {i} starts at byte {offset}, between {least} and {} was to be expected",
                    header.data_size
                ),
            ));
        }
        entries.push(Entry { id, count, timestamps: 0, values: offset, tags: 0 });
    }
    let index = Index::new(entries, start, ENTRY_LEN);
    let row = match header.timestamp_encoding {
        TimestampEncoding::Raw => 10,
        _ => 2,
    } + usize::from(header.has_tags);
    for (entry, i) in index.entries().iter().zip(0..) {
        let len = index.range(i, Column::Values, header.data_size as usize).len();
        let least = entry.count as usize * row;
        if len < least {
            return Err(Error::truncated(
                index.place(i),
                format!("metric {i} has {len} bytes, {} points need at least {least}", entry.count),
            ));
        }
    }
    Ok(index)
}

/// One metric of a [`TextBlob`]. Cheap to copy; nothing is decoded before one of its methods does.
#[derive(Debug, Clone, Copy)]
pub struct TextMetric<'b> {
    blob: &'b TextBlob<'b>,
    index: usize,
}

impl<'b> TextMetric<'b> {
    /// The metric's id: chosen by its owner, or the hash of its name.
    pub fn id(&self) -> u64 {
        self.entry().id
    }

    /// The metric's name, where the blob stores names.
    pub fn name(&self) -> Option<&'b str> {
        self.blob.names.as_ref()?.get(self.blob.bytes, self.index)
    }

    /// How many points it has.
    pub fn len(&self) -> usize {
        self.entry().count as usize
    }

    /// Whether it has no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its points have tags.
    pub fn has_tags(&self) -> bool {
        self.blob.header.has_tags
    }

    /// Bytes of its rows before compression.
    pub fn rows_size(&self) -> usize {
        self.blob.index.range(self.index, Column::Values, self.blob.header.data_size as usize).len()
    }

    /// The points one after the other.
    pub fn points(&self) -> Result<TextPoints<'b>, Error> {
        let data = self.blob.data()?;
        let range = self.blob.index.range(self.index, Column::Values, data.len());
        Ok(TextPoints {
            metric: *self,
            start: range.start,
            rows: &data[range],
            at: 0,
            left: self.len(),
            time: self.blob.header.start_time,
        })
    }

    /// Appends all points to the caller's buffers. After an error the buffers are as they were.
    pub fn decode_into(&self, timestamps: &mut Vec<i64>, values: &mut Vec<&'b str>) -> Result<(), Error> {
        let before = (timestamps.len(), values.len());
        for point in self.points()? {
            match point {
                Ok(point) => {
                    timestamps.push(point.timestamp);
                    values.push(point.value);
                }
                Err(error) => {
                    timestamps.truncate(before.0);
                    values.truncate(before.1);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The point at `index`; those before it are passed one by one.
    ///
    /// # Panics
    ///
    /// If the metric has no such point, as indexing a slice does.
    pub fn point(&self, index: usize) -> Result<Point<'b, &'b str>, Error> {
        assert!(index < self.len(), "point {index} of a metric of {} points", self.len());
        let mut points = self.points()?;
        for _ in 0..index {
            points.row()?;
        }
        points.row()
    }

    fn entry(&self) -> &'b Entry {
        &self.blob.index.entries()[self.index]
    }
}

/// The points of one metric of texts, in order. After an error there are no more.
#[derive(Debug, Clone)]
pub struct TextPoints<'b> {
    metric: TextMetric<'b>,
    rows: &'b [u8],
    /// Where the rows start in the data.
    start: usize,
    at: usize,
    left: usize,
    /// The point before, which a delta counts from; for the first one, the blob's start time.
    time: i64,
}

impl<'b> TextPoints<'b> {
    fn row(&mut self) -> Result<Point<'b, &'b str>, Error> {
        let row = self.read_row();
        row.map_err(|error| self.metric.blob.data.locate(error, self.start))
    }

    fn read_row(&mut self) -> Result<Point<'b, &'b str>, Error> {
        const WHAT: &str = "a row";
        let header = &self.metric.blob.header;
        let mut cursor = match header.timestamp_encoding {
            TimestampEncoding::Raw => {
                let mut cursor = Cursor::new(self.rows, self.at, header.endian);
                match cursor.u8(WHAT)? {
                    8 => self.time = cursor.u64(WHAT)? as i64,
                    len => {
                        return Err(Error::corrupt(
                            self.at,
                            format!("a raw timestamp of {len} bytes, not 8"),
                        ));
                    }
                }
                cursor
            }
            _ => {
                let (stored, next) = varint::read(self.rows, self.at).map_err(|fault| match fault {
                    varint::Fault::Ends => {
                        Error::truncated(self.rows.len(), "the rows end before the last point")
                    }
                    varint::Fault::Overflows => Error::corrupt(self.at, "a timestamp has more than 64 bits"),
                })?;
                self.time = self.time.wrapping_add(varint::unzigzag(stored));
                Cursor::new(self.rows, next, Endian::Little)
            }
        };
        let value_len = cursor.u8(WHAT)?;
        let tag_len = if header.has_tags { Some(cursor.u8(WHAT)?) } else { None };
        let value = text(&mut cursor, value_len)?;
        let tag = tag_len.map(|len| text(&mut cursor, len)).transpose()?;
        self.at = cursor.at();
        Ok(Point { timestamp: self.time, value, tag })
    }
}

fn text<'b>(cursor: &mut Cursor<'b>, len: u8) -> Result<&'b str, Error> {
    let at = cursor.at();
    str::from_utf8(cursor.take(len.into(), "a text")?)
        .map_err(|error| Error::corrupt(at + error.valid_up_to(), "a text is not UTF-8"))
}

impl<'b> Iterator for TextPoints<'b> {
    type Item = Result<Point<'b, &'b str>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let row = self.row();
        self.left = if row.is_ok() { self.left - 1 } else { 0 };
        Some(row)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.min(1), Some(self.left))
    }
}
