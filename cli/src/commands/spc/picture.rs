//! What is to be drawn of a chart, whether with letters or with lines.

use phalanx_spc::chart::{Center, Chart, Point, Statistic};

/// A chart as heights over points.
pub(super) struct Picture {
    pub(super) title: String,
    pub(super) marks: Vec<Mark>,
}

/// What stands over one point.
pub(super) struct Mark {
    pub(super) index: u64,
    /// One height, or the two sums of a CUSUM: upwards and downwards.
    pub(super) heights: Vec<f64>,
    pub(super) center: Option<f64>,
    pub(super) lcl: Option<f64>,
    pub(super) ucl: Option<f64>,
    pub(super) signals: bool,
}

impl Picture {
    pub(super) fn new(chart: &Chart) -> Self {
        let center = match chart.center {
            Some(Center::One(center)) => center,
            _ => None,
        };
        let mark = |point: &Point| {
            let (heights, center, lcl) = match point.statistic {
                Statistic::One(statistic) => (vec![statistic], point.center.or(center), point.lcl),
                // The lower sum hangs below the axis, with the mirrored limit.
                Statistic::Sums { high, low } => (vec![high, -low], Some(0.0), point.ucl.map(|ucl| -ucl)),
            };
            let signals = chart.signals.iter().any(|signal| signal.index == point.index);
            Mark { index: point.index, heights, center, lcl, ucl: point.ucl, signals }
        };
        Self { title: title(chart.chart).to_owned(), marks: chart.points.iter().map(mark).collect() }
    }

    /// The lowest and the highest of everything, with a little air.
    pub(super) fn span(&self) -> (f64, f64) {
        let all = self
            .marks
            .iter()
            .flat_map(|mark| mark.heights.iter().copied().chain(mark.center).chain(mark.lcl).chain(mark.ucl));
        let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), y| (l.min(y), h.max(y)));
        let air = if high > low { 0.04 * (high - low) } else { 1.0 };
        (low - air, high + air)
    }
}

/// The name of a chart for people.
pub(super) fn title(chart: &str) -> &str {
    match chart {
        "imr" => "Individuals",
        "mr" => "Moving range",
        "xbar-r" | "xbar-s" => "Means of subgroups",
        "r" => "Ranges",
        "s" => "Standard deviations",
        "ewma" => "EWMA",
        "cusum" => "CUSUM (upper sum above, lower sum below)",
        "p" => "Proportion of defectives (p)",
        "np" => "Number of defectives (np)",
        "c" => "Number of defects (c)",
        "u" => "Defects per unit (u)",
        "t2" => "Hotelling T²",
        other => other,
    }
}
