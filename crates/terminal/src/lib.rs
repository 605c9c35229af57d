//! Text for terminals: colors by meaning, and control charts as plots.

mod color;
mod plot;

pub use self::color::{ColorRole, shows_colors};
pub use self::plot::{PlotLine, Point, plot, plot_lines};
