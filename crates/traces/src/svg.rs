//! A picture of a trace that needs no manual: a row for each CPU, grouped by kernel, one for each disk and for the ready threads of each CPU, if there are such events, and a row for each thread; time goes to the right. In both a thread has one colour, so that one
//! sees where it goes. Words appear where the pointer rests. What is narrower than a pixel is drawn together, so the picture of a long trace is not larger than that of a short one.

use crate::{
    file::Trace,
    levels::{Level, Levels},
    names::message_name,
    report::wait_name,
    states::is_thread,
    Doing, Filter, States, Stretch,
};
use anyhow::Result;
use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
};
use trace::{Point, IDLE, KERNEL_WORK};

const LEFT: f64 = 190.0;
const WIDTH: f64 = 1200.0;
const ROW: f64 = 22.0;
const BAR: f64 = 16.0;
const TOP: f64 = 64.0;
/// Threads with a row; the busiest.
const MOST_THREADS: usize = 40;
/// Messages and moves that are drawn; of more, every so manieth message.
const MOST_ARROWS: usize = 400;
/// Pixels below which stretches of a row are drawn together.
const PIXEL: f64 = 1.0;

/// Hues of Tableau's palette: told apart by most people. Without those that mean something else here.
const COLOURS: [&str; 8] = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#9c755f", "#ff9da7", "#1f5f8b"];
const KERNEL_COLOUR: &str = "#8a8a8a";
const READY_COLOUR: &str = "#ffd34d";
const WAIT_COLOUR: &str = "#e8e8e8";
const MOVE_COLOUR: &str = "#d62728";
const DISK_COLOUR: &str = "#4e79a7";
/// No thread could go on: the CPU stalls. One could: as it should be. More could.
const READY_COLOURS: [&str; 3] = ["#d62728", "#59a14f", "#ffd34d"];

/// Stretches of a row: from, to, and what.
type Bars<T> = Vec<(u64, u64, T)>;

/// Everything that is drawn, in ns.
#[derive(Default)]
struct Picture {
    first: Option<u64>,
    last: u64,
    cpus: BTreeMap<(u16, u16), Bars<u32>>,
    threads: BTreeMap<u32, Bars<Doing>>,
    busy: HashMap<u32, u64>,
    /// Moves of threads: tid, when and from which CPU it left, and the kernel that it went to.
    moves: Vec<(u32, u64, u16)>,
    /// Messages: from CPU and time, to CPU and time, kind.
    messages: Vec<(u16, u64, u16, u64, u16)>,
    markers: Vec<(u64, String)>,
    levels: BTreeMap<Level, Bars<u32>>,
}

/// Writes the picture.
pub fn write(trace: &Trace, filter: Filter, to: &mut impl Write) -> Result<()> {
    let mut picture = Picture::default();
    let mut states = States::default();
    let mut levels = Levels::default();
    let mut sent: HashMap<_, (u16, u64)> = HashMap::new();
    for event in trace.events()?.filtered(filter) {
        let event = event?;
        picture.first.get_or_insert(event.time);
        let (cpu, kernel) = (event.place.cpu, event.place.kernel);
        match event.point {
            Point::ThreadLeave => picture.moves.push((event.tid("tid"), event.time, event.number("to") as u16)),
            Point::MessageSend => {
                let key =
                    [kernel.into(), event.number("to"), event.number("kind"), event.number("role"), event.number("id")];
                sent.insert(key, (cpu, event.time));
            }
            Point::MessageReceive => {
                let key = [
                    event.number("from"),
                    kernel.into(),
                    event.number("kind"),
                    event.number("role"),
                    event.number("id"),
                ];
                if let Some((from, at)) = sent.remove(&key) {
                    picture.messages.push((from, at, cpu, event.time, event.number("kind") as u16));
                }
            }
            Point::Marker => picture.markers.push((event.time, event.text())),
            _ => {}
        }
        levels.take(&event, &mut |level, value| picture.level(level, event.time, value));
        states.take(&event, &mut |stretch| picture.stretch(stretch));
    }
    picture.last = states.now();
    picture.levels.values_mut().for_each(|bars| end_bar(bars, picture.last));
    states.end(&mut |stretch| picture.stretch(stretch));
    picture.draw(trace, &states, to)
}

impl Picture {
    fn stretch(&mut self, stretch: Stretch) {
        match stretch {
            Stretch::Cpu { cpu, kernel, tid, from, to } => {
                self.cpus.entry((kernel, cpu)).or_default().push((from, to, tid));
                if is_thread(tid) {
                    *self.busy.entry(tid).or_default() += to - from;
                }
            }
            Stretch::Thread { tid, doing, from, to, .. } => {
                self.threads.entry(tid).or_default().push((from, to, doing));
            }
        }
    }

    fn level(&mut self, level: Level, time: u64, value: u32) {
        let bars = self.levels.entry(level).or_default();
        end_bar(bars, time);
        bars.push((time, time, value));
    }

    /// Each disk and each CPU's ready threads: the higher the bar, the more there are.
    fn draw_levels(&self, to: &mut impl Write, top: f64) -> Result<()> {
        for (index, (level, bars)) in self.levels.iter().enumerate() {
            let y = top + index as f64 * ROW;
            let most = bars.iter().map(|(.., value)| *value).max().unwrap_or(0).max(1);
            writeln!(to, r#"<text x="10" y="{}">{}</text>"#, y + 12.0, level.name())?;
            let shown = bars.iter().filter(|(.., value)| *value > 0 || matches!(level, Level::Ready { .. }));
            let shown = shown.map(|&(from, until, value)| match level {
                Level::Disk(_) => (from, until, DISK_COLOUR, BAR * f64::from(value) / f64::from(most), value),
                Level::Ready { .. } => {
                    (from, until, READY_COLOURS[value.min(2) as usize], BAR * f64::from(value.clamp(1, 4)) / 4.0, value)
                }
            });
            self.bars(to, y, shown, |value| match level {
                Level::Disk(_) => format!("{value} requests at once"),
                Level::Ready { .. } => format!("{value} threads could go on"),
            })?;
        }
        Ok(())
    }

    fn x(&self, time: u64) -> f64 {
        let first = self.first.unwrap_or(0);
        let span = self.last.saturating_sub(first).max(1) as f64;
        LEFT + time.saturating_sub(first) as f64 / span * WIDTH
    }

    fn draw(&self, trace: &Trace, states: &States, to: &mut impl Write) -> Result<()> {
        let mut threads: Vec<u32> = self.threads.keys().copied().collect();
        threads.sort_by_key(|tid| (std::cmp::Reverse(self.busy.get(tid).copied().unwrap_or(0)), *tid));
        let left_out = threads.len().saturating_sub(MOST_THREADS);
        threads.truncate(MOST_THREADS);
        threads.sort_unstable();
        let colour = |tid: u32| match tid {
            KERNEL_WORK => KERNEL_COLOUR,
            tid => threads.iter().position(|known| *known == tid).map_or("#555555", |at| COLOURS[at % COLOURS.len()]),
        };
        let rows = self.cpus.len() as f64;
        let levels_top = TOP + rows * ROW + 32.0;
        let threads_top = levels_top + self.levels.len() as f64 * ROW + 12.0;
        let height = threads_top + threads.len() as f64 * ROW + 60.0;
        let all = LEFT + WIDTH + 20.0;
        writeln!(
            to,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {all} {height}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(to, r#"<rect width="{all}" height="{height}" fill="white"/>"#)?;
        let span = ms(self.last.saturating_sub(self.first.unwrap_or(0)));
        writeln!(to, r#"<text x="10" y="20" font-size="14">{} - {span}</text>"#, escaped(trace.about()))?;
        self.legend(to)?;
        let mut row_of = HashMap::new();
        for (index, ((kernel, cpu), stretches)) in self.cpus.iter().enumerate() {
            let y = TOP + index as f64 * ROW;
            row_of.insert(*cpu, y);
            writeln!(to, r#"<text x="10" y="{}">kernel {kernel}, CPU {cpu}</text>"#, y + 12.0)?;
            let bars = stretches.iter().filter(|(.., tid)| *tid != IDLE);
            let bars = bars.map(|&(from, until, tid)| (from, until, colour(tid), BAR, tid));
            self.bars(to, y, bars, |tid| states.names.thread(tid))?;
        }
        self.arrows(to, &row_of)?;
        self.scale(to, TOP + rows * ROW + 4.0)?;
        self.draw_levels(to, levels_top)?;
        for (index, tid) in threads.iter().enumerate() {
            let y = threads_top + index as f64 * ROW;
            writeln!(
                to,
                r#"<text x="10" y="{}" fill="{}">{}</text>"#,
                y + 12.0,
                colour(*tid),
                escaped(&states.names.thread(*tid))
            )?;
            let own = colour(*tid);
            let bars = self.threads[tid].iter().map(|&(from, until, doing)| match doing {
                Doing::User { .. } => (from, until, own, BAR, doing),
                Doing::InCall { .. } | Doing::InFault { .. } => (from, until, own, BAR * 0.6, doing),
                Doing::Ready => (from, until, READY_COLOUR, BAR * 0.6, doing),
                Doing::Moves { .. } => (from, until, MOVE_COLOUR, BAR, doing),
                Doing::Waits { .. } => (from, until, WAIT_COLOUR, BAR * 0.35, doing),
            });
            self.bars(to, y, bars, |doing| thread_words(&doing))?;
        }
        let bottom = threads_top + threads.len() as f64 * ROW + 4.0;
        self.scale(to, bottom)?;
        for (at, text) in self.markers.iter().take(MOST_ARROWS) {
            let x = self.x(*at);
            writeln!(
                to,
                r##"<path d="M{x:.1} {TOP} V{bottom:.1}" stroke="#000" stroke-dasharray="2 3" stroke-width="0.7"><title>{}</title></path>"##,
                escaped(text)
            )?;
        }
        if left_out > 0 {
            writeln!(
                to,
                r#"<text x="10" y="{}">{left_out} threads that used less are not shown</text>"#,
                bottom + 36.0
            )?;
        }
        writeln!(to, "</svg>")?;
        Ok(())
    }

    fn legend(&self, to: &mut impl Write) -> Result<()> {
        let parts = [
            ("#4e79a7", BAR, "runs"),
            ("#4e79a7", BAR * 0.6, "in a system call or fault"),
            (READY_COLOUR, BAR * 0.6, "waits for a CPU"),
            (WAIT_COLOUR, BAR * 0.35, "waits"),
            (MOVE_COLOUR, BAR, "moves to another kernel"),
            (KERNEL_COLOUR, BAR, "the kernel's own work"),
        ];
        let mut x = 10.0;
        for (colour, height, words) in parts {
            writeln!(
                to,
                r#"<rect x="{x}" y="{}" width="18" height="{height}" fill="{colour}"/>"#,
                32.0 + (BAR - height) / 2.0
            )?;
            writeln!(to, r#"<text x="{}" y="44">{words}</text>"#, x + 24.0)?;
            x += 44.0 + words.len() as f64 * 6.6;
        }
        writeln!(
            to,
            r##"<path d="M{x} 34 l18 12" stroke="#999" stroke-width="0.8"/><text x="{}" y="44">message</text>"##,
            x + 24.0
        )?;
        Ok(())
    }

    /// Bars of a row. Those that are narrower than a pixel are drawn as one, in the colour of what had most of it.
    fn bars<'a, T: Copy>(
        &self,
        to: &mut impl Write,
        y: f64,
        bars: impl Iterator<Item = (u64, u64, &'a str, f64, T)>,
        words: impl Fn(T) -> String,
    ) -> Result<()> {
        let mut narrow: Vec<(f64, f64, &str, f64, T, u64)> = Vec::new();
        for (from, until, colour, height, what) in bars {
            let (start, end) = (self.x(from), self.x(until));
            if end - start >= PIXEL {
                self.narrow(to, y, &mut narrow, &words)?;
                let text = format!("{}, {}", words(what), ms(until - from));
                bar(to, (start, end), y, (colour, height, 1.0), &text)?;
                continue;
            }
            if narrow.first().is_some_and(|first| end - first.0 > PIXEL) {
                self.narrow(to, y, &mut narrow, &words)?;
            }
            narrow.push((start, end, colour, height, what, until - from));
        }
        self.narrow(to, y, &mut narrow, &words)
    }

    fn narrow<T: Copy>(
        &self,
        to: &mut impl Write,
        y: f64,
        narrow: &mut Vec<(f64, f64, &str, f64, T, u64)>,
        words: &impl Fn(T) -> String,
    ) -> Result<()> {
        let mut time: HashMap<&str, u64> = HashMap::new();
        narrow.iter().for_each(|(_, _, colour, _, _, ns)| *time.entry(colour).or_default() += ns);
        let most = narrow.iter().max_by_key(|(_, _, colour, ..)| (time[colour], *colour));
        if let (Some(first), Some(most)) = (narrow.first(), most) {
            // Of many there is no one thing to say.
            let text = if narrow.len() == 1 { format!("{}, {}", words(most.4), ms(most.5)) } else { String::new() };
            // As dark as the part of the pixel that is used.
            let used: f64 = narrow.iter().map(|(start, end, ..)| end - start).sum();
            bar(to, (first.0, first.0 + PIXEL), y, (most.2, most.3, (used / PIXEL).clamp(0.25, 1.0)), &text)?;
        }
        narrow.clear();
        Ok(())
    }

    fn arrows(&self, to: &mut impl Write, rows: &HashMap<u16, f64>) -> Result<()> {
        let every = self.messages.len().div_ceil(MOST_ARROWS).max(1);
        for (from, at, cpu, then, kind) in self.messages.iter().step_by(every) {
            let (Some(y1), Some(y2)) = (rows.get(from), rows.get(cpu)) else { continue };
            let (x1, x2) = (self.x(*at), self.x(*then));
            writeln!(
                to,
                r##"<path d="M{x1:.1} {:.1} L{x2:.1} {:.1}" stroke="#999" stroke-width="0.6" opacity="0.7"><title>{}, {}</title></path>"##,
                y1 + BAR / 2.0,
                y2 + BAR / 2.0,
                message_name(*kind),
                ms(then.saturating_sub(*at))
            )?;
        }
        if every > 1 {
            writeln!(
                to,
                r#"<text x="{LEFT}" y="58" font-size="10">of {} messages one in {every} is drawn</text>"#,
                self.messages.len()
            )?;
        }
        for (tid, at, kernel) in self.moves.iter().take(MOST_ARROWS) {
            let x = self.x(*at);
            let row = self.cpus.keys().find(|(of, _)| of == kernel).and_then(|(_, cpu)| rows.get(cpu));
            let Some(y) = row else { continue };
            writeln!(
                to,
                r#"<path d="M{x:.1} {:.1} l5 -7 h-10 z" fill="{MOVE_COLOUR}"><title>thread {tid} moves to kernel {kernel}</title></path>"#,
                y + 4.0
            )?;
        }
        Ok(())
    }

    fn scale(&self, to: &mut impl Write, y: f64) -> Result<()> {
        let first = self.first.unwrap_or(0);
        let span = self.last.saturating_sub(first).max(1);
        // A round step, so that there are five to twelve of them.
        let mut step = 10u64.pow((span / 5).max(1).ilog10());
        while span / step > 12 {
            step *= if (span / step) > 24 { 5 } else { 2 };
        }
        writeln!(to, r##"<path d="M{LEFT} {y:.1} H{:.1}" stroke="#555"/>"##, LEFT + WIDTH)?;
        for tick in (0..=span / step).map(|tick| tick * step) {
            let x = self.x(first + tick);
            writeln!(
                to,
                r##"<path d="M{x:.1} {y:.1} v5" stroke="#555"/><text x="{x:.1}" y="{:.1}" text-anchor="middle" font-size="10">{}</text>"##,
                y + 17.0,
                ms(tick)
            )?;
        }
        Ok(())
    }
}

/// The last one goes on until now.
fn end_bar(bars: &mut Bars<u32>, now: u64) {
    if let Some((_, until, _)) = bars.last_mut() {
        *until = now;
    }
}

fn thread_words(doing: &Doing) -> String {
    match doing {
        Doing::User { cpu } => format!("runs on CPU {cpu}"),
        Doing::InCall { cpu, call } => format!("{} on CPU {cpu}", crate::syscall_name(*call)),
        Doing::InFault { cpu } => format!("page fault on CPU {cpu}"),
        other => format!("waits for {}", wait_name(other)),
    }
}

fn bar(
    to: &mut impl Write,
    (from, until): (f64, f64),
    y: f64,
    (colour, height, opacity): (&str, f64, f64),
    text: &str,
) -> Result<()> {
    let y = y + (BAR - height) / 2.0;
    let width = (until - from).max(0.3);
    let opacity = if opacity < 1.0 { format!(r#" opacity="{opacity:.1}""#) } else { String::new() };
    let title = if text.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(text)) };
    writeln!(
        to,
        r#"<rect x="{from:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"{opacity}>{title}</rect>"#
    )?;
    Ok(())
}

fn ms(ns: u64) -> String {
    match ns {
        0 => "0".into(),
        1_000_000_000.. => format!("{:.3} s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.1} us", ns as f64 / 1e3),
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}
