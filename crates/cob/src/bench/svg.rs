//! Plots as the papers draw them: a panel for each workload, a line for each system, over threads or CPUs in steps of two.

use std::fmt::Write;

pub struct Panel {
    pub title: String,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    /// Threads or CPUs, and what was measured.
    pub points: Vec<(f64, f64)>,
}

pub struct Plot<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub panels: Vec<Panel>,
}

const COLUMNS: usize = 3;
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 28.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 40.0;
const HEADING: f64 = 56.0;
/// Okabe and Ito's colours, told apart by the colour-blind too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Plot<'_> {
    pub fn draw(&self) -> String {
        let names = self.names();
        let columns = self.panels.len().clamp(1, COLUMNS);
        let width = (WIDTH * columns as f64).max(26.0 + 190.0 * names.len() as f64);
        let height = HEADING + HEIGHT * self.panels.len().div_ceil(columns) as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        put(&mut svg, 16.0, 20.0, "start", self.title);
        for (at, name) in names.iter().enumerate() {
            let x = 16.0 + 190.0 * at as f64;
            let colour = COLOURS[at % COLOURS.len()];
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"34\" width=\"18\" height=\"4\" fill=\"{colour}\"/>");
            put(&mut svg, x + 24.0, 41.0, "start", name);
        }
        for (at, panel) in self.panels.iter().enumerate() {
            let (x, y) = (WIDTH * (at % columns) as f64, HEADING + HEIGHT * (at / columns) as f64);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            self.panel(&mut svg, panel, &names);
            svg.push_str("</g>\n");
        }
        svg + "</svg>\n"
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

    fn panel(&self, svg: &mut String, panel: &Panel, names: &[&str]) {
        let points = || panel.lines.iter().flat_map(|line| &line.points).filter(|point| point.1.is_finite());
        let step = step(points().map(|point| point.1).fold(0.0, f64::max));
        let most = step * (points().map(|point| point.1).fold(0.0, f64::max) / step).ceil().max(1.0);
        let mut places: Vec<f64> = points().map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let range = places.first().zip(places.last()).map_or((0.0, 0.0), |(a, b)| (a.log2(), b.log2()));
        let x = |at: f64| {
            let part = if range.1 > range.0 { (at.log2() - range.0) / (range.1 - range.0) } else { 0.5 };
            LEFT + part * (WIDTH - LEFT - RIGHT)
        };
        let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
        put(svg, WIDTH / 2.0, 16.0, "middle", &panel.title);
        put(svg, WIDTH / 2.0, HEIGHT - 10.0, "middle", &format!("{}; up: {}", self.x, self.y));
        for tick in 0..=(most / step).round() as u32 {
            let value = step * f64::from(tick);
            let at = y(value);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
            put(svg, LEFT - 4.0, at + 4.0, "end", &short(value));
        }
        for place in &places {
            put(svg, x(*place), HEIGHT - BOTTOM + 14.0, "middle", &short(*place));
        }
        for line in &panel.lines {
            let at = names.iter().position(|name| *name == line.name).unwrap_or_default();
            let colour = COLOURS[at % COLOURS.len()];
            let shown = line.points.iter().filter(|point| point.1.is_finite());
            let shown: Vec<String> = shown.map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                shown.join(" ")
            );
            for point in &shown {
                let (x, y) = point.split_once(',').unwrap_or_default();
                let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, about a fifth of the whole.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / 5.0).log10().floor());
    let wanted = most / 5.0 / power;
    power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| *step >= wanted).unwrap_or(10.0)
}

fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn put(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!([0.0, 1.0, 7.0, 16.0, 100.0].map(step), [1.0, 0.2, 2.0, 5.0, 20.0]);
        assert_eq!(short(0.25), "0.25");
        assert_eq!(short(20.0), "20");
    }

    #[test]
    fn a_plot_has_a_line_for_each_system_and_leaves_out_what_is_not_known() {
        let line = |name: &str, last| Line { name: name.to_string(), points: vec![(1.0, 2.0), (2.0, last)] };
        let panels = vec![Panel { title: "is & <w>".to_string(), lines: vec![line("a", 1.0), line("b", f64::NAN)] }];
        let svg = Plot { title: "t", x: "threads", y: "seconds", panels }.draw();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (2, 3));
        assert!(svg.contains("is &amp; &lt;w>") && !svg.contains("NaN"));
        // One number of threads is a line of one point.
        let panels =
            vec![Panel { title: String::new(), lines: vec![Line { name: "a".into(), points: vec![(1.0, 0.0)] }] }];
        assert!(!Plot { title: "t", x: "x", y: "y", panels }.draw().contains("NaN"));
    }
}
