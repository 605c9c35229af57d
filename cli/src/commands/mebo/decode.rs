use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args};
use phalanx_mebo::{Blob, Metric, ReadOptions, TextMetric};
use serde_json::json;

/// Prints the points of a blob.
///
/// Metrics come in the blob's order. Numbers are printed in the fewest digits that give the same number back; NaN and the
/// infinities have no JSON, so they become the texts "NaN", "Infinity" and "-Infinity".
#[derive(Args)]
#[command(group = ArgGroup::new("format").required(true))]
pub(crate) struct Decode {
    file: PathBuf,

    /// Only this metric: its name, or its id (decimal, or hex after 0x).
    #[arg(long, value_name = "NAME|ID")]
    metric: Option<String>,

    /// Prints numbers as the 16 hex digits of their bits: exact, whatever they are.
    #[arg(long)]
    bits: bool,

    /// One JSON object: {"metrics":[{"id","name","timestamps","values","tags"}]}.
    #[arg(long, group = "format")]
    json: bool,

    /// Rows of timestamp, metric, value, and tag where there are tags.
    #[arg(long, group = "format")]
    csv: bool,

    /// Undoes a defect of writers before 1.4.3, which doubled first timestamps; without it, what the bytes say is printed.
    #[arg(long)]
    repair_legacy: bool,
}

impl Decode {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bytes = super::read(&self.file)?;
        let options = ReadOptions { repair_legacy: self.repair_legacy, ..ReadOptions::default() };
        let file = || self.file.display().to_string();
        let blob = Blob::open_with(&bytes, options).with_context(file)?;
        let chosen = self.choose(&blob)?;
        // Everything once before anything is printed: no half of an output where the blob is broken.
        for metric in &chosen {
            metric.check().with_context(file)?;
        }
        let mut out = BufWriter::new(io::stdout().lock());
        match self.json {
            true => self.print_json(&chosen, &mut out)?,
            false => self.print_csv(&chosen, &mut out)?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    /// All metrics, or the one that was asked for.
    fn choose<'b>(&self, blob: &'b Blob<'b>) -> anyhow::Result<Vec<Either<'b>>> {
        let Some(wanted) = self.metric.as_deref() else {
            return Ok(match blob {
                Blob::Numeric(blob) => blob.metrics().map(Either::Numbers).collect(),
                Blob::Text(blob) => blob.metrics().map(Either::Texts).collect(),
            });
        };
        let id = super::parse_id(wanted).or_else(|| wanted.parse().ok());
        let found = match blob {
            Blob::Numeric(blob) => {
                id.and_then(|id| blob.find(id)).or_else(|| blob.find(wanted)).map(Either::Numbers)
            }
            Blob::Text(blob) => {
                id.and_then(|id| blob.find(id)).or_else(|| blob.find(wanted)).map(Either::Texts)
            }
        };
        match found {
            Some(metric) => Ok(vec![metric]),
            None => {
                bail!("{} has no metric {wanted:?}; `phalanx mebo inspect` lists them", self.file.display())
            }
        }
    }

    /// A name that is not stored is known all the same where the metric was found by it.
    fn name<'s>(&'s self, metric: &Either<'s>) -> Option<&'s str> {
        let wanted = self.metric.as_deref();
        metric.name().or(wanted.filter(|wanted| phalanx_mebo::Key::from(*wanted).id() == metric.id()))
    }

    fn print_json(&self, metrics: &[Either<'_>], out: &mut impl Write) -> anyhow::Result<()> {
        write!(out, "{{\"metrics\":[")?;
        for (metric, i) in metrics.iter().zip(0..) {
            let comma = if i == 0 { "" } else { "," };
            write!(
                out,
                "{comma}{{\"id\":\"{}\",\"name\":{}",
                super::id(metric.id()),
                json!(self.name(metric))
            )?;
            let (mut timestamps, mut values, mut tags) = (Vec::new(), Vec::new(), Vec::new());
            metric.for_each(self.bits, |timestamp, value, tag| {
                timestamps.push(timestamp.to_string());
                values.push(value.to_json());
                tags.extend(tag.map(|tag| json!(tag).to_string()));
                Ok(())
            })?;
            write!(out, ",\"timestamps\":[{}],\"values\":[{}]", timestamps.join(","), values.join(","))?;
            if metric.has_tags() {
                write!(out, ",\"tags\":[{}]", tags.join(","))?;
            }
            write!(out, "}}")?;
        }
        writeln!(out, "]}}")?;
        Ok(())
    }

    fn print_csv(&self, metrics: &[Either<'_>], out: &mut impl Write) -> anyhow::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        let tagged = metrics.iter().any(Either::has_tags);
        let header = ["timestamp", "metric", "value", "tag"];
        rows.write_record(&header[..if tagged { 4 } else { 3 }])?;
        for metric in metrics {
            let name = self.name(metric).map_or_else(|| super::id(metric.id()), str::to_owned);
            metric.for_each(self.bits, |timestamp, value, tag| {
                let (timestamp, value) = (timestamp.to_string(), value.to_text());
                let fields = [timestamp.as_str(), &name, &value, tag.unwrap_or_default()];
                rows.write_record(&fields[..if tagged { 4 } else { 3 }])?;
                Ok(())
            })?;
        }
        rows.flush()?;
        Ok(())
    }
}

/// A metric of either family.
enum Either<'b> {
    Numbers(Metric<'b>),
    Texts(TextMetric<'b>),
}

impl<'b> Either<'b> {
    fn id(&self) -> u64 {
        match self {
            Self::Numbers(metric) => metric.id(),
            Self::Texts(metric) => metric.id(),
        }
    }

    fn name(&self) -> Option<&'b str> {
        match self {
            Self::Numbers(metric) => metric.name(),
            Self::Texts(metric) => metric.name(),
        }
    }

    fn has_tags(&self) -> bool {
        match self {
            Self::Numbers(metric) => metric.has_tags(),
            Self::Texts(metric) => metric.has_tags(),
        }
    }

    /// Whether all of its points can be decoded.
    fn check(&self) -> Result<(), phalanx_mebo::Error> {
        match self {
            Self::Numbers(metric) => metric.points()?.try_for_each(|point| point.map(|_| ())),
            Self::Texts(metric) => metric.points()?.try_for_each(|point| point.map(|_| ())),
        }
    }

    fn for_each(
        &self,
        bits: bool,
        mut take: impl FnMut(i64, Printed<'b>, Option<&'b str>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Numbers(metric) => metric.points()?.try_for_each(|point| {
                let point = point?;
                let value = if bits { Printed::Bits(point.value) } else { Printed::Number(point.value) };
                take(point.timestamp, value, point.tag)
            }),
            Self::Texts(metric) => metric.points()?.try_for_each(|point| {
                let point = point?;
                take(point.timestamp, Printed::Text(point.value), point.tag)
            }),
        }
    }
}

/// A value on its way out.
enum Printed<'b> {
    Number(f64),
    Bits(f64),
    Text(&'b str),
}

impl Printed<'_> {
    fn to_text(&self) -> String {
        match self {
            Self::Number(value) if value.is_nan() => "NaN".to_owned(),
            Self::Number(value) if value.is_infinite() => {
                if *value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
            }
            Self::Number(value) => format!("{value:?}"),
            Self::Bits(value) => format!("{:016x}", value.to_bits()),
            Self::Text(text) => (*text).to_owned(),
        }
    }

    fn to_json(&self) -> String {
        match self {
            Self::Number(value) if value.is_finite() => self.to_text(),
            _ => json!(self.to_text()).to_string(),
        }
    }
}
