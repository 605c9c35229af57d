//! How the fab is watched.

/// Runs that limits are learned from.
pub const BASELINE: u64 = 30;
/// The weight of the newest value in the moving average.
pub const EWMA_LAMBDA: f64 = 0.2;
/// The limits of the moving average, in its own deviations.
pub const EWMA_SIGMAS: f64 = 3.0;

/// The strategy file of the fab: three charts for every chamber.
pub const STRATEGY: &str = r#"# How the simulated fab is watched: three charts for every chamber, limits learned from its first 30 runs.

[[group]]
tools = ["*"]

# A level that jumps is beyond the limits at once if it jumps far, and within a few runs for the moving average if not.
[[group.chart]]
name = "rf-power"
equation = "mean(RF_POWER where STEP == 2)"
limits = { baseline = 30 }
rules = [
  { rule = "limits", severity = "critical" },
  { rule = "ewma", lambda = 0.2, sigmas = 3, severity = "warning" },
]

[[group.chart]]
name = "pressure"
equation = "mean(PRESSURE where STEP == 2)"
limits = { baseline = 30 }
rules = [
  { rule = "limits", severity = "critical" },
  { rule = "ewma", lambda = 0.2, sigmas = 3, severity = "warning" },
]

# A healthy sensor is never quiet: no noise at all is a stuck one.
[[group.chart]]
name = "temperature-noise"
equation = "std(ESC_TEMP where STEP == 2)"
limits = { baseline = 30 }
rules = [{ rule = "limits", severity = "critical" }]
"#;
