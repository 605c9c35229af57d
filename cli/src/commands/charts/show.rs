//! A chart, or what charts there are.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use phalanx_terminal::{ColorRole, Point, plot};
use serde_json::{Value, json};

use crate::client::{Client, OutputArgs, ServiceArgs, path};
use crate::commands::show::{self, field, list, text, when};
use crate::commands::table::Table;

/// Plots a control chart; without an indicator, lists the charts of the chamber with their last points.
#[derive(Args)]
pub(super) struct Show {
    tool: String,
    chamber: String,
    /// Which chart.
    indicator: Option<String>,
    /// How many of the newest points.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=1000))]
    points: u16,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.service.client()?;
        match &self.indicator {
            Some(indicator) => self.one(&client, indicator)?,
            None => self.all(&client)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn chart(&self, client: &Client, indicator: &str, points: u16) -> anyhow::Result<Value> {
        let path = path("/api/v1/charts", &[&self.tool, &self.chamber, indicator]);
        client.get(&format!("{path}?limit={points}"))
    }

    fn one(&self, client: &Client, indicator: &str) -> anyhow::Result<()> {
        let chart = self.chart(client, indicator, self.points)?;
        if self.output.json {
            return Ok(show::json(&chart)?);
        }
        let points: Vec<Point> = list(&chart, "points").iter().rev().map(read_point).collect();
        let mut out = io::stdout().lock();
        writeln!(out, "{}", ColorRole::Bold.apply(&format!("{}:{} {indicator}", self.tool, self.chamber)))?;
        writeln!(out, "{}", plot(&points, 16, ColorRole::apply))?;
        if let Some(newest) = list(&chart, "points").first() {
            writeln!(out, "newest: {} at {}", field(newest, "value"), when(newest, "timestamp"))?;
        }
        Ok(())
    }

    fn all(&self, client: &Client) -> anyhow::Result<()> {
        let answer = client.get(&path("/api/v1/charts", &[&self.tool, &self.chamber]))?;
        let mut charts = Vec::new();
        for indicator in list(&answer, "indicators") {
            charts.push(self.chart(client, &text(indicator), 1)?);
        }
        if self.output.json {
            return Ok(show::json(&json!({ "charts": charts }))?);
        }
        let mut out = io::stdout().lock();
        if charts.is_empty() {
            writeln!(out, "{}:{} has no points on any chart yet", self.tool, self.chamber)?;
            return Ok(());
        }
        let mut table =
            Table::new(&["chart", "last value", "centre", "lower limit", "upper limit", "at", "what"]);
        for chart in &charts {
            let point = &chart["points"][0];
            let (paint, what) = match (point["violation"] == true, point["learning"] == true) {
                (true, _) => (ColorRole::Bad, "violation"),
                (_, true) => (ColorRole::Faint, "learning"),
                _ => (ColorRole::Plain, ""),
            };
            let [value, center, lcl, ucl] = ["value", "center", "lcl", "ucl"].map(|name| field(point, name));
            let cells = [value, center, lcl, ucl, when(point, "timestamp")];
            let cells = std::iter::once(field(chart, "indicator")).chain(cells);
            table.styled_row(paint, cells.chain([what.to_owned()]));
        }
        writeln!(out, "{table}")?;
        Ok(())
    }
}

/// Reads a point of the service's response.
fn read_point(point: &Value) -> Point {
    let number = |name: &str| point[name].as_f64();
    Point {
        value: number("value"),
        center: number("center"),
        lcl: number("lcl"),
        ucl: number("ucl"),
        learning: point["learning"] == true,
        violation: point["violation"] == true,
    }
}
