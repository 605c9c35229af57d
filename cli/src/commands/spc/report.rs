//! A chart as a table and a plot.

use comfy_table::{CellAlignment, Table, presets};
use phalanx_spc::capability::{Capability, Index};
use phalanx_spc::chart::{Center, Chart, Point, Reading, Statistic};
use phalanx_spc::numeric::short;

use super::picture::{Picture, title};
use super::plot;

pub(super) fn text(chart: &Chart) -> String {
    let mut text = one(chart);
    if let Some(companion) = &chart.companion {
        text.push('\n');
        text.push_str(&one(companion));
    }
    if let Some(capability) = &chart.capability {
        text.push('\n');
        text.push_str(&indices(capability));
    }
    text
}

fn one(chart: &Chart) -> String {
    let mut text = format!("{}\n{}\n\n", title(chart.chart), summary(chart));
    text.push_str(&points(chart));
    text.push_str("\n\n");
    text.push_str(&plot::draw(&Picture::new(chart)));
    text.push('\n');
    if chart.signals.is_empty() {
        text.push_str("no signals\n");
    }
    for signal in &chart.signals {
        text.push_str(&format!("{}: {}\n", signal.rule, signal.message));
    }
    text
}

fn summary(chart: &Chart) -> String {
    let mut parts = Vec::new();
    match &chart.center {
        Some(Center::One(Some(center))) => parts.push(format!("centre {}", short(*center))),
        Some(Center::Many(means)) => {
            let means: Vec<String> = means.iter().map(|mean| short(*mean)).collect();
            parts.push(format!("centre ({})", means.join(", ")));
        }
        _ => {}
    }
    let estimator = serde_json::to_value(chart.estimator).ok();
    let estimator = estimator.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
    match chart.sigma {
        Some(sigma) => parts.push(format!("sigma {} ({estimator})", short(sigma))),
        None => parts.push(format!("estimator {estimator}")),
    }
    for (name, limit) in [("lcl", chart.lcl), ("ucl", chart.ucl)] {
        match limit {
            Some(Some(limit)) => parts.push(format!("{name} {}", short(limit))),
            Some(None) => {}
            None => parts.push(format!("{name} by point")),
        }
    }
    if !chart.excluded.is_empty() {
        parts.push(format!("{} points left out of the baseline", chart.excluded.len()));
    }
    parts.join(", ")
}

fn points(chart: &Chart) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let sums = matches!(chart.points.first().map(|point| point.statistic), Some(Statistic::Sums { .. }));
    let mut header = vec!["point", "value"];
    header.extend(if sums { vec!["high", "low"] } else { vec!["statistic"] });
    header.extend(["lcl", "ucl", "signals"]);
    table.set_header(header);
    for point in &chart.points {
        table.add_row(row(chart, point));
    }
    let last = table.column_count().saturating_sub(1);
    for column in table.column_iter_mut().take(last) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn row(chart: &Chart, point: &Point) -> Vec<String> {
    let value = match &point.value {
        Reading::One(value) => short(*value),
        Reading::Many(values) => values.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" "),
    };
    let mut row = vec![point.index.to_string(), value];
    match point.statistic {
        Statistic::One(statistic) => row.push(short(statistic)),
        Statistic::Sums { high, low } => row.extend([short(high), short(low)]),
    }
    row.extend([point.lcl, point.ucl].map(|limit| limit.map_or_else(|| "-".to_owned(), short)));
    let here = chart.signals.iter().filter(|signal| signal.index == point.index);
    row.push(here.map(|signal| signal.rule.name()).collect::<Vec<_>>().join(" "));
    row
}

fn indices(capability: &Capability) -> String {
    let line = |name: &str, index: &Index| {
        let Index { value, lower, upper } = *index;
        format!("{name:<4} {value:.3}   (95 %: {lower:.3} to {upper:.3})\n")
    };
    let Capability { cp, cpk, pp, ppk } = capability;
    let all = [("Cp", cp.as_ref()), ("Cpk", Some(cpk)), ("Pp", pp.as_ref()), ("Ppk", Some(ppk))];
    let lines: String = all.iter().filter_map(|(name, index)| index.map(|index| line(name, index))).collect();
    format!("Capability\n{lines}")
}
