use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use phalanx_mebo::{Compression, Encoder, EncoderOptions, Key, Layout, TimestampEncoding, ValueEncoding};

/// Writes a blob from a CSV file of timestamp, metric, value.
///
/// The first line names the columns; a fourth, `tag`, may follow. Metrics are named, or all of them are ids (0x and 16 hex
/// digits, as `decode --csv` prints them). Timestamps are whole numbers, by convention Unix microseconds.
#[derive(Args)]
pub(crate) struct Encode {
    #[arg(value_name = "FILE.csv")]
    file: PathBuf,

    /// Where to write the blob.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[arg(long, default_value = "delta")]
    timestamps: Timestamps,

    #[arg(long, default_value = "gorilla")]
    values: Values,

    /// v1 keeps the order of the file and takes 7,281 points a metric; v2 sorts by id and takes any number.
    #[arg(long, default_value = "v1")]
    layout: LayoutArg,

    #[arg(long, default_value = "none")]
    compress: Compress,
}

/// Encoding of the timestamps.
#[derive(Clone, Copy, ValueEnum)]
enum Timestamps {
    Raw,
    Delta,
    Packed,
}

/// Encoding of the values.
#[derive(Clone, Copy, ValueEnum)]
enum Values {
    Raw,
    Gorilla,
    Chimp,
    Alp,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutArg {
    V1,
    V2,
}

/// Compression of both payloads.
#[derive(Clone, Copy, ValueEnum)]
enum Compress {
    None,
    Zstd,
    S2,
    Lz4,
}

impl Encode {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let series = read_csv(&self.file).with_context(|| self.file.display().to_string())?;
        let start = series.iter().flat_map(|series| &series.timestamps).min().copied().unwrap_or_default();
        let mut encoder = Encoder::new(start, self.options());
        let ids: Option<Vec<u64>> = series.iter().map(|series| metric_id(&series.metric)).collect();
        for (Series { metric, timestamps, values, tags }, i) in series.iter().zip(0..) {
            let key = ids.as_ref().map_or(Key::Name(metric), |ids| Key::Id(ids[i]));
            match tags.is_empty() {
                true => encoder.add(key, timestamps, values)?,
                false => encoder.add_tagged(key, timestamps, values, tags)?,
            }
        }
        let blob = encoder.finish().with_context(|| self.file.display().to_string())?;
        std::fs::write(&self.output, &blob)
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        let points: usize = series.iter().map(|series| series.timestamps.len()).sum();
        eprintln!(
            "{}: {} metrics, {points} points, {} bytes ({:.2} a point)",
            self.output.display(),
            series.len(),
            blob.len(),
            blob.len() as f64 / points as f64
        );
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> EncoderOptions {
        let compression = match self.compress {
            Compress::None => Compression::None,
            Compress::Zstd => Compression::Zstd,
            Compress::S2 => Compression::S2,
            Compress::Lz4 => Compression::Lz4,
        };
        EncoderOptions {
            layout: match self.layout {
                LayoutArg::V1 => Layout::V1,
                LayoutArg::V2 => Layout::V2,
            },
            timestamps: match self.timestamps {
                Timestamps::Raw => TimestampEncoding::Raw,
                Timestamps::Delta => TimestampEncoding::Delta,
                Timestamps::Packed => TimestampEncoding::DeltaPacked,
            },
            values: match self.values {
                Values::Raw => ValueEncoding::Raw,
                Values::Gorilla => ValueEncoding::Gorilla,
                Values::Chimp => ValueEncoding::Chimp,
                Values::Alp => ValueEncoding::Alp,
            },
            timestamp_compression: compression,
            value_compression: compression,
            ..EncoderOptions::default()
        }
    }
}

/// The id in what `decode --csv` prints for a metric without a name.
fn metric_id(metric: &str) -> Option<u64> {
    (metric.len() == 18).then(|| super::parse_id(metric)).flatten()
}

#[derive(Default)]
struct Series {
    metric: String,
    timestamps: Vec<i64>,
    values: Vec<f64>,
    /// Empty where the file has no such column.
    tags: Vec<String>,
}

/// The series of a file, in the order their metrics first appear.
fn read_csv(file: &std::path::Path) -> anyhow::Result<Vec<Series>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_path(file)?;
    let columns: Vec<String> = reader.headers()?.iter().map(str::to_owned).collect();
    let tagged = match columns.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["timestamp", "metric", "value"] => false,
        ["timestamp", "metric", "value", "tag"] => true,
        _ => bail!("the first line is {columns:?}, expected timestamp,metric,value (and perhaps tag)"),
    };
    let mut all: Vec<Series> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row)? {
        let line = row.position().map_or(0, csv::Position::line);
        // The reader has checked that every row is as long as the first.
        let timestamp = row[0]
            .trim()
            .parse()
            .with_context(|| format!("line {line}: the timestamp {:?} is not a whole number", &row[0]))?;
        let value = row[2]
            .trim()
            .parse()
            .with_context(|| format!("line {line}: the value {:?} is not a number", &row[2]))?;
        let place = match places.get(&row[1]) {
            Some(&place) => place,
            None => {
                places.insert(row[1].to_owned(), all.len());
                all.push(Series { metric: row[1].to_owned(), ..Series::default() });
                all.len() - 1
            }
        };
        let series = &mut all[place];
        series.timestamps.push(timestamp);
        series.values.push(value);
        if tagged {
            series.tags.push(row[3].to_owned());
        }
    }
    Ok(all)
}
