//! Plots as the papers draw them: a panel for each workload, a line for each system, over threads or CPUs in steps of two.

use anyhow::{anyhow, Result};
use plotters::coord::Shift;
use plotters::prelude::*;

pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    /// Threads or CPUs, and what was measured; NaN: it was not.
    pub points: Vec<(f64, f64)>,
}

pub struct Plot<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub panels: Vec<Panel>,
}

const COLUMNS: usize = 3;
const WIDTH: u32 = 320;
const HEIGHT: u32 = 260;
const FONT: (&str, i32) = ("sans-serif", 12);
/// Okabe and Ito's colours, told apart by the colour-blind too.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

impl Plot<'_> {
    /// An SVG picture.
    pub fn draw(&self) -> Result<String> {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let mut svg = String::new();
        {
            let size = (WIDTH * columns as u32, HEIGHT * rows as u32 + 30);
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            let picture = area.fill(&WHITE).and_then(|()| area.titled(self.title, FONT));
            let places = picture.map_err(|error| anyhow!("plot: {error}"))?.split_evenly((rows, columns));
            for (panel, place) in self.panels.iter().zip(&places) {
                self.panel(panel, place).map_err(|error| anyhow!("plot of {}: {error}", panel.title))?;
            }
            area.present()?;
        }
        Ok(svg)
    }

    /// Each system once, in the order of their first line.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        names
    }

    fn panel<B: DrawingBackend>(
        &self,
        panel: &Panel,
        place: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let names = self.names();
        let measured =
            |line: &Line| line.points.iter().copied().filter(|point| point.1.is_finite()).collect::<Vec<_>>();
        let all: Vec<(f64, f64)> = panel.lines.iter().flat_map(measured).collect();
        let most = all.iter().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let first = all.iter().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let last = all.iter().map(|point| point.0).fold(first, f64::max);
        // One number of threads is a line of one point, in the middle.
        let range = if first < last { first..last } else { 0.5..2.0 };
        let mut chart = ChartBuilder::on(place)
            .caption(&panel.title, FONT)
            .margin(6)
            .x_label_area_size(34)
            .y_label_area_size(48)
            .build_cartesian_2d(range.log_scale().base(2.0), 0.0..most * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(self.x)
            .y_desc(self.y)
            .y_labels(6)
            .draw()?;
        for line in &panel.lines {
            let at = names.iter().position(|name| *name == line.name).unwrap_or_default();
            let colour = COLOURS[at % COLOURS.len()];
            let points = measured(line);
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?.label(&line.name).legend(legend);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_line_for_each_system_and_leaves_out_what_is_not_known() {
        let line = |name: &str, last| Line { name: name.to_string(), points: vec![(1.0, 2.0), (2.0, last)] };
        let panels = vec![Panel { title: "is & <w>".to_string(), lines: vec![line("a", 1.0), line("b", f64::NAN)] }];
        let svg = Plot { title: "t", x: "threads", y: "seconds", panels }.draw().unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("is &amp; &lt;w&gt;") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_plot_of_nothing_or_of_one_point_can_be_drawn() {
        let panel = |points| Panel { title: String::new(), lines: vec![Line { name: "a".into(), points }] };
        let panels = vec![panel(vec![(1.0, 0.0)]), panel(vec![(4.0, f64::NAN)]), panel(Vec::new())];
        assert!(!Plot { title: "t", x: "x", y: "y", panels }.draw().unwrap().contains("NaN"));
        assert!(Plot { title: "t", x: "x", y: "y", panels: Vec::new() }.draw().is_ok());
    }
}
