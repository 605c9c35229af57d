use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use phalanx_spc::equation::{Column, Equation, Outcome};
use serde_json::json;

use super::input::Sheet;

/// Evaluates an equation on traces.
///
/// The file has the columns timestamp (whole microseconds), metric and value. The context begins with its earliest
/// timestamp. Functions: mean, std, var, min, max, range, median, quantile, first, last, count, duration, area, slope,
/// rms; windows like TEMP[10s..50s], conditions like TEMP where STEP == 3.
#[derive(Args)]
pub(crate) struct Eval {
    /// For example 'mean(RF_POWER[10s..50s])'.
    equation: String,

    /// The traces, CSV with the columns timestamp, metric and value.
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The points of a metric, by time.
type Points = (Vec<i64>, Vec<f64>);

impl Eval {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let equation = Equation::parse(&self.equation)?;
        let (start, traces) = traces(&Sheet::read(&self.csv)?)?;
        let mut columns = Vec::new();
        for svid in equation.svids() {
            let points = traces.get(svid);
            columns.push(points.map(|(times, values)| Column::new(times, values)).transpose()?);
        }
        let outcome = equation.evaluate(start, &columns);
        let text = match (&outcome, self.json) {
            (Outcome::Value(value), true) => json!({"equation": equation.text(), "value": value}).to_string(),
            (Outcome::NoValue(reason), true) => {
                json!({"equation": equation.text(), "value": null, "reason": reason.to_string()}).to_string()
            }
            (Outcome::Value(value), false) => value.to_string(),
            (Outcome::NoValue(reason), false) => format!("no value: {reason}"),
        };
        writeln!(io::stdout(), "{text}")?;
        Ok(ExitCode::SUCCESS)
    }
}

fn traces(sheet: &Sheet) -> anyhow::Result<(i64, BTreeMap<String, Points>)> {
    let (timestamp, metric, value) =
        (sheet.column("timestamp")?, sheet.column("metric")?, sheet.column("value")?);
    let mut rows = sheet.rows(|cells| {
        let time: i64 = cells[timestamp].parse().map_err(|_| {
            anyhow!("the timestamp `{}` is not a whole number of microseconds", &cells[timestamp])
        })?;
        // Values that are not finite are part of traces; the equation says what comes of them.
        let value: f64 =
            cells[value].parse().map_err(|_| anyhow!("the value `{}` is not a number", &cells[value]))?;
        Ok((time, cells[metric].to_owned(), value))
    })?;
    rows.sort_by_key(|(_, row)| row.0);
    let start = rows.first().map_or(0, |(_, row)| row.0);
    let mut traces: BTreeMap<String, Points> = BTreeMap::new();
    for (_, (time, metric, value)) in rows {
        let (times, values) = traces.entry(metric).or_default();
        times.push(time);
        values.push(value);
    }
    Ok((start, traces))
}
