//! Draws a [`View`]: bars of CPUs and memory for each kernel, then the busiest threads, in as many columns and lines as there are.

use super::sample::{average, CpuUse, KernelUse, View};

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub colour: bool,
    /// Block characters rather than ASCII.
    pub blocks: bool,
}

/// Of bars and words, as ANSI escape sequences select it (ECMA-48, SGR).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Plain,
    Title,
    User,
    System,
    Memory,
    Idle,
    Alarm,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Plain => "",
            Colour::Title => "1",
            Colour::User => "32",
            Colour::System => "31",
            Colour::Memory => "36",
            Colour::Idle => "2",
            Colour::Alarm => "1;31",
        }
    }
}

/// A line that ends where the screen does.
struct Line {
    text: String,
    room: usize,
    style: Style,
}

impl Line {
    fn put(&mut self, colour: Colour, text: &str) -> &mut Self {
        let shown: String = text.chars().take(self.room).collect();
        self.room -= shown.chars().count();
        if !shown.is_empty() {
            match colour.code() {
                code if self.style.colour && !code.is_empty() => self.text += &format!("\x1b[{code}m{shown}\x1b[m"),
                _ => self.text += &shown,
            }
        }
        self
    }

    /// A bar of `width` characters, filled to these parts of the whole from the left.
    fn bar(&mut self, width: usize, parts: &[(f64, Colour, char)]) -> &mut Self {
        let (mut sum, mut filled) = (0.0, 0);
        for (part, colour, block) in parts {
            sum += part;
            let upto = ((sum * width as f64).round() as usize).min(width);
            let block = if self.style.blocks { *block } else { ascii(*block) };
            self.put(*colour, &String::from(block).repeat(upto.saturating_sub(filled)));
            filled = filled.max(upto);
        }
        let idle = if self.style.blocks { "░" } else { "." };
        self.put(Colour::Idle, &idle.repeat(width - filled))
    }
}

const USER: char = '█';
const SYSTEM: char = '▒';
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The characters of bars where there are no blocks.
fn ascii(block: char) -> char {
    if block == USER {
        '#'
    } else {
        '+'
    }
}

/// Of a line about a kernel: its number, per cent, memory in words, and the least that bars take.
const NUMBER: usize = 6;
const PERCENT: usize = 5;
const MEMORY_TEXT: usize = 12;
const LEAST_CPU_BAR: usize = 16;
const MOST_CPU_BAR: usize = 40;
const LEAST_MEMORY_BAR: usize = 8;
const MOST_MEMORY_BAR: usize = 16;
const GAP: usize = 2;

type Number = fn(&KernelUse) -> f64;

/// The numbers of a kernel; where the screen is narrow, the first of them.
const COLUMNS: [(&str, Number); 7] = [
    ("threads", |kernel| kernel.threads as f64),
    ("sent/s", |kernel| kernel.per_second.sent),
    ("recv/s", |kernel| kernel.per_second.received),
    ("faults/s", |kernel| kernel.per_second.faults_local),
    ("remote/s", |kernel| kernel.per_second.faults_remote),
    ("moved/s", |kernel| kernel.per_second.moved),
    ("bells/s", |kernel| kernel.per_second.doorbells),
];

/// How the width is shared out.
struct Layout {
    cpu_bar: usize,
    memory_bar: usize,
    columns: usize,
}

impl Layout {
    fn of(width: usize) -> Layout {
        let least = NUMBER + 1 + LEAST_CPU_BAR + PERCENT + GAP + LEAST_MEMORY_BAR + MEMORY_TEXT;
        let (mut rest, mut columns) = (width.saturating_sub(least), 0);
        for (title, _) in COLUMNS {
            match rest.checked_sub(title.len() + 1) {
                Some(left) => (rest, columns) = (left, columns + 1),
                None => break,
            }
        }
        let cpu_bar = (LEAST_CPU_BAR + rest).min(MOST_CPU_BAR);
        rest -= cpu_bar - LEAST_CPU_BAR;
        Layout { cpu_bar, memory_bar: (LEAST_MEMORY_BAR + rest).min(MOST_MEMORY_BAR), columns }
    }
}

/// At most `height` lines of at most `width` characters. `title` says which machine it is, and `note` what the person should know.
pub fn draw(view: &View, title: &str, note: &str, (width, height): (usize, usize), style: Style) -> Vec<String> {
    let mut lines: Vec<Line> = Vec::new();
    let line = || Line { text: String::new(), room: width, style };
    let (mut first, mut second) = (line(), line());
    first.put(Colour::Title, "cob top ").put(Colour::Plain, title).put(Colour::Alarm, note);
    second.put(Colour::Plain, &summary(view));
    lines.extend([first, second, line()]);

    let layout = Layout::of(width);
    lines.push(kernel_titles(&layout, line()));
    // Threads have a third of the screen at least.
    let room = height.saturating_sub(lines.len() + 2) * 2 / 3;
    let (shown, left_out) = busiest(&view.kernels, room.max(1));
    lines.extend(shown.iter().map(|kernel| kernel_line(kernel, &layout, line())));
    if left_out > 0 {
        let mut more = line();
        more.put(Colour::Idle, &format!("{left_out:>NUMBER$} more kernels, which do less"));
        lines.push(more);
    }
    lines.push(line());

    let mut titles = line();
    titles.put(Colour::Title, "   process   thread kernel  cpu state   cpu%             name");
    lines.push(titles);
    let room = height.saturating_sub(lines.len());
    for thread in view.threads.iter().take(room) {
        let mut row = line();
        let (process, id, kernel, cpu) = (thread.process, thread.id, thread.kernel, thread.cpu);
        row.put(Colour::Plain, &format!("{process:>10} {id:>8} {kernel:>6} {cpu:>4} "));
        row.put(if thread.state == 'R' { Colour::User } else { Colour::Idle }, &format!("{:>5}", thread.state));
        row.put(Colour::Plain, &format!(" {:>5.1}% ", thread.part * 100.0));
        row.bar(10, &[(thread.part, Colour::User, USER)]).put(Colour::Plain, &format!(" {}", thread.name));
        lines.push(row);
    }
    lines.truncate(height);
    lines.into_iter().map(|line| line.text).collect()
}

fn summary(view: &View) -> String {
    let running = || view.kernels.iter().filter(|kernel| kernel.is_running);
    let cpus: Vec<CpuUse> = running().flat_map(|kernel| kernel.cpus.iter().copied()).collect();
    let busy = average(&cpus);
    let (threads, load) = running().fold((0, 0), |sum, kernel| (sum.0 + kernel.threads, sum.1 + kernel.load));
    let (sent, faults) = running().map(|kernel| kernel.per_second).fold((0.0, 0.0), |(sent, faults), rates| {
        (sent + rates.sent, faults + rates.faults_local + rates.faults_remote)
    });
    let up = view.up_seconds;
    format!(
        "up {}:{:02}:{:02}  {} kernels  {} CPUs {:.0}% busy  {threads} threads, {load} run or wait for a CPU  {} messages/s  {} faults/s",
        up / 3600,
        up / 60 % 60,
        up % 60,
        running().count(),
        cpus.len(),
        busy * 100.0,
        short(sent),
        short(faults)
    )
}

fn kernel_titles(layout: &Layout, mut line: Line) -> Line {
    let cpu = format!("{:<1$}", "cpu", layout.cpu_bar + PERCENT + GAP);
    let memory = format!("{:<1$}", "memory", layout.memory_bar + MEMORY_TEXT);
    line.put(Colour::Title, &format!("{:>NUMBER$} {cpu}{memory}", "kernel"));
    for (title, _) in &COLUMNS[..layout.columns] {
        line.put(Colour::Title, &format!(" {title}"));
    }
    line
}

fn kernel_line(kernel: &KernelUse, layout: &Layout, mut line: Line) -> Line {
    line.put(Colour::Plain, &format!("{:>NUMBER$} ", kernel.id));
    if !kernel.is_running {
        let colour = if kernel.state == "dead" { Colour::Alarm } else { Colour::Idle };
        line.put(colour, &kernel.state);
        return line;
    }
    cpu_bars(&kernel.cpus, layout.cpu_bar, &mut line);
    line.put(Colour::Plain, &format!("{:>1$.0}%", kernel.busy() * 100.0, PERCENT - 1)).put(Colour::Plain, "  ");
    let part = kernel.used_kb as f64 / kernel.memory_kb.max(1) as f64;
    line.bar(layout.memory_bar, &[(part, Colour::Memory, USER)]);
    let memory = format!("{}/{}", size(kernel.used_kb), size(kernel.memory_kb));
    line.put(Colour::Plain, &format!("{memory:>MEMORY_TEXT$}"));
    for (title, number) in &COLUMNS[..layout.columns] {
        line.put(Colour::Plain, &format!(" {:>1$}", short(number(kernel)), title.len()));
    }
    line
}

/// A bar for each CPU, side by side; a character for each where there is not enough room, and for several CPUs where there is none for that.
fn cpu_bars(cpus: &[CpuUse], width: usize, line: &mut Line) {
    let count = cpus.len().max(1);
    let each = (width + 1) / count;
    if each < 4 {
        let together = count.div_ceil(width);
        let bars: Vec<f64> = cpus.chunks(together).map(average).collect();
        for busy in &bars {
            let level = ((busy * 8.0).round() as usize).min(8);
            let (colour, block) = match level {
                0 => (Colour::Idle, if line.style.blocks { '░' } else { '.' }),
                _ if line.style.blocks => (Colour::User, EIGHTHS[level - 1]),
                _ => (Colour::User, (b'0' + level as u8) as char),
            };
            line.put(colour, &String::from(block));
        }
        line.put(Colour::Plain, &" ".repeat(width - bars.len()));
        return;
    }
    let mut used = 0;
    for (index, cpu) in cpus.iter().enumerate() {
        if index > 0 {
            line.put(Colour::Plain, " ");
            used += 1;
        }
        line.bar(each - 1, &[(cpu.user, Colour::User, USER), (cpu.system, Colour::System, SYSTEM)]);
        used += each - 1;
    }
    line.put(Colour::Plain, &" ".repeat(width.saturating_sub(used)));
}

/// As many kernels as fit, ascending: the busiest, if not all do. And how many are left out.
fn busiest(kernels: &[KernelUse], room: usize) -> (Vec<KernelUse>, usize) {
    let mut all = kernels.to_vec();
    if all.len() <= room {
        return (all, 0);
    }
    all.sort_by(|a, b| b.busy().total_cmp(&a.busy()).then(a.id.cmp(&b.id)));
    all.truncate((room - 1).max(1));
    all.sort_by_key(|kernel| kernel.id);
    let left_out = kernels.len() - all.len();
    (all, left_out)
}

/// A number of at most five characters, as `cobctl top` has it up to 9999.
fn short(number: f64) -> String {
    match number {
        _ if number < 9999.5 => format!("{number:.0}"),
        _ if number < 999_500.0 => format!("{:.0}k", number / 1e3),
        _ if number < 9_950_000.0 => format!("{:.1}M", number / 1e6),
        _ => format!("{:.0}M", number / 1e6),
    }
}

fn size(kilobytes: u64) -> String {
    match kilobytes {
        0..10_240_000 => format!("{}M", kilobytes >> 10),
        _ => format!("{:.1}G", kilobytes as f64 / (1 << 20) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::ThreadUse;
    use super::*;

    const ASCII: Style = Style { colour: false, blocks: false };
    const ALL: Style = Style { colour: true, blocks: true };

    fn kernel(id: u16, cpus: &[(f64, f64)]) -> KernelUse {
        KernelUse {
            id,
            state: "running".to_string(),
            is_running: true,
            cpus: cpus.iter().map(|(user, system)| CpuUse { user: *user, system: *system }).collect(),
            memory_kb: 256 << 10,
            used_kb: 64 << 10,
            threads: 3,
            ..KernelUse::default()
        }
    }

    fn thread(id: u32, part: f64) -> ThreadUse {
        ThreadUse { id, process: 7, kernel: 1, cpu: 1, state: 'R', part, name: "sort".to_string() }
    }

    fn view(kernels: u16, cpus: usize, threads: u32) -> View {
        View {
            up_seconds: 3661,
            kernels: (0..kernels).map(|id| kernel(id, &vec![(0.5, 0.25); cpus])).collect(),
            threads: (0..threads).map(|id| thread(id, 0.5)).collect(),
        }
    }

    /// What is seen of a line: without the sequences that choose colours.
    fn seen(line: &str) -> String {
        let mut pieces = line.split('\x1b');
        let first = pieces.next().unwrap_or_default().to_string();
        pieces.fold(first, |text, piece| text + piece.split_once('m').expect("only colours").1)
    }

    #[test]
    fn a_usual_screen() {
        let lines = draw(&view(2, 1, 1), "4711 cob run sort", "", (80, 24), ASCII);
        let expected = [
            "cob top 4711 cob run sort",
            "up 1:01:01  2 kernels  2 CPUs 75% busy  6 threads, 0 run or wait for a CPU  0 me",
            "",
            "kernel cpu                            memory               threads sent/s recv/s",
            "     0 ############++++++......  75%  ##......    64M/256M       3      0      0",
        ];
        for (line, expected) in lines.iter().zip(expected) {
            assert_eq!(line.trim_end(), expected, "{lines:#?}");
        }
        assert_eq!(lines[6], "");
        assert!(lines[7].starts_with("   process   thread kernel  cpu state   cpu%"), "{lines:#?}");
        assert_eq!(lines[8], "         7        0      1    1     R  50.0% #####..... sort");
        assert_eq!(lines.len(), 9);
    }

    #[test]
    fn nothing_leaves_the_screen() {
        for (kernels, cpus, threads) in
            [(1, 1, 0), (4, 1, 3), (4, 4, 100), (2, 64, 5), (128, 1, 500), (1, 255, 9), (0, 0, 0)]
        {
            for (width, height) in [(80, 24), (1, 1), (0, 0), (20, 6), (200, 60), (43, 9), (132, 12)] {
                for style in [ASCII, ALL] {
                    let lines = draw(&view(kernels, cpus, threads), "title", " note", (width, height), style);
                    assert!(lines.len() <= height, "{kernels} {height} {}", lines.len());
                    for line in &lines {
                        assert!(seen(line).chars().count() <= width, "{width}: {line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn titles_stand_over_their_columns() {
        for width in [80, 100, 120, 200] {
            for cpus in [1, 2, 5, 17, 200] {
                let lines = draw(&view(1, cpus, 0), "", "", (width, 24), ASCII);
                let (titles, row) = (&lines[3], &lines[4]);
                assert_eq!(titles.len(), row.len(), "{titles}\n{row}");
            }
        }
    }

    #[test]
    fn of_too_many_kernels_the_busiest_are_shown_and_threads_keep_room() {
        let mut many = view(128, 1, 50);
        many.kernels[100].cpus[0].user = 0.75;
        many.kernels[3] = KernelUse { id: 3, state: "dead".to_string(), ..KernelUse::default() };
        let lines = draw(&many, "", "", (80, 24), ASCII);
        assert_eq!(lines.len(), 24);
        assert!(lines.iter().any(|line| line.starts_with("   100 ################")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("117 more kernels")), "{lines:#?}");
        assert!(lines.iter().filter(|line| line.ends_with(" sort")).count() >= 6, "{lines:#?}");
    }

    #[test]
    fn each_cpu_is_seen_as_long_as_there_is_room() {
        let bars = |cpus: &[(f64, f64)]| {
            let cpus: Vec<CpuUse> = cpus.iter().map(|(user, system)| CpuUse { user: *user, system: *system }).collect();
            let mut line = Line { text: String::new(), room: 100, style: ASCII };
            cpu_bars(&cpus, 16, &mut line);
            line.text
        };
        assert_eq!(bars(&[(0.5, 0.25)]), "########++++....");
        assert_eq!(bars(&[(1.0, 0.0), (0.0, 1.0)]), "####### +++++++ ");
        assert_eq!(bars(&[(1.0, 0.0), (0.0, 0.0), (0.5, 0.0), (0.0, 0.0), (0.25, 0.25)]), "8.4.4           ");
        assert_eq!(bars(&[(1.0, 0.0); 32]), "8888888888888888");
    }

    #[test]
    fn numbers_are_short() {
        let all: Vec<String> = [0.4, 9999.0, 12_345.0, 1_234_567.0, 123e6].map(short).to_vec();
        assert_eq!(all, ["0", "9999", "12k", "1.2M", "123M"]);
        assert_eq!((size(64 << 10), size(64 << 20)), ("64M".to_string(), "64.0G".to_string()));
    }
}
