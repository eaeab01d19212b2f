// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plots: lines over a logarithmic axis, as SVG.

use plotters::prelude::*;
use std::path::Path;

/// A line with its points.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plot {
    /// The name of its file, without extension.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The labels of the axes.
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) lines: Vec<Line>,
}

const SIZE: (u32, u32) = (800, 480);
const FONT: &str = "sans-serif";

impl Plot {
    /// Writes it into a directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> std::io::Result<()> {
        let mut text = String::new();
        self.draw(&mut text).map_err(std::io::Error::other)?;
        std::fs::write(directory.join(self.name).with_extension("svg"), text)
    }

    fn draw(&self, text: &mut String) -> Result<(), String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
        let (right, top) = (most(|point| point.0), most(|point| point.1) * 1.1);
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        let failed = |error: DrawingAreaErrorKind<_>| error.to_string();
        area.fill(&WHITE).map_err(failed)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, (FONT, 18))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((1.0..right.max(2.0)).log_scale(), 0.0..top)
            .map_err(failed)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw().map_err(failed)?;
        for (line, colour) in self.lines.iter().zip([BLUE, RED, BLACK]) {
            let series = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let drawn = chart.draw_series(series).map_err(failed)?;
            drawn.label(line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour));
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::LowerLeft).background_style(WHITE).border_style(BLACK).draw().map_err(failed)?;
        area.present().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Plot};

    #[test]
    fn a_plot_names_its_lines() {
        let directory = tempfile::tempdir().expect("a place");
        let line = |name, height| Line { name, points: vec![(1.0, height), (10.0, 2.0 * height)] };
        let plot = Plot { name: "some", title: "Some", x: "cells", y: "answers", lines: vec![line("ours", 5.0), line("theirs", 3.0)] };
        plot.write(directory.path()).expect("a file");
        let text = std::fs::read_to_string(directory.path().join("some.svg")).expect("it is there");
        assert!(["<svg", "ours", "theirs", "cells", "answers", "Some"].iter().all(|word| text.contains(word)), "{text}");
    }
}
