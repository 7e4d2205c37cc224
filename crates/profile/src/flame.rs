//! A flame graph (Gregg 2011): a box for each function in each chain of calls, as wide as its share of the time, on the box of its caller. A click widens a box to the whole
//! picture, and the search field marks functions by name and says how much of the time they have. What is narrower than a third of a pixel is left out.

use crate::samples::{Chain, Doing, FunctionId, Functions};
use std::{
    collections::BTreeMap,
    io::{Result, Write},
};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 12.0;
const LEAST: f64 = 0.3;

/// Builds a picture.
#[derive(Default)]
pub struct Flame {
    per_kernel: bool,
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    count: u64,
    children: BTreeMap<Label, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// A kernel, a program.
    Text(String),
    Function(FunctionId),
}

impl Flame {
    /// `per_kernel`: each kernel has its own part of the picture.
    pub fn new(per_kernel: bool) -> Flame {
        Flame { per_kernel, nodes: vec![Node::default()] }
    }

    /// Adds a sample; those of idle CPUs are left out.
    pub fn take(&mut self, chain: &Chain<'_>) {
        if chain.doing == Doing::Idle {
            return;
        }
        self.nodes[0].count += chain.ticks;
        let mut at = 0;
        if self.per_kernel {
            at = self.child(at, Label::Text(format!("kernel {}", chain.place.kernel)), chain.ticks);
        }
        at = self.child(at, Label::Text(chain.comm.to_string()), chain.ticks);
        for frame in chain.frames.iter().rev() {
            at = self.child(at, Label::Function(frame.function), chain.ticks);
        }
    }

    fn child(&mut self, parent: usize, label: Label, ticks: u64) -> usize {
        let next = self.nodes.len();
        let at = *self.nodes[parent].children.entry(label).or_insert(next);
        if at == next {
            self.nodes.push(Node::default());
        }
        self.nodes[at].count += ticks;
        at
    }

    /// Writes the picture. `title`: what was run.
    pub fn write(&self, functions: &Functions, title: &str, to: &mut impl Write) -> Result<()> {
        let all = self.nodes[0].count.max(1) as f64;
        // What is drawn: node, label, level, and the sum of what is left of it. Not by recursion: programs call deeply.
        let mut boxes = Vec::new();
        let mut left = vec![(0, None, 0usize, 0u64)];
        while let Some((node, label, level, before)) = left.pop() {
            if self.nodes[node].count as f64 / all * WIDTH < LEAST {
                continue;
            }
            boxes.push((node, label, level, before));
            let mut from = before;
            for (label, child) in &self.nodes[node].children {
                left.push((*child, Some(label), level + 1, from));
                from += self.nodes[*child].count;
            }
        }
        let levels = boxes.iter().map(|(_, _, level, _)| level + 1).max().unwrap_or(1);
        let height = TOP + levels as f64 * ROW + BOTTOM;
        writeln!(
            to,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">"#
        )?;
        writeln!(to, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##)?;
        writeln!(to, r#"<text x="10" y="22" font-size="16">{}</text>"#, escaped(title))?;
        let about = "A box is a function on its caller; its width is its share of the time. Blue: the kernels. Click: closer. Ctrl-F: search.";
        writeln!(to, r##"<text x="10" y="42" fill="#555555">{about}</text>"##)?;
        writeln!(to, r##"<text id="found" x="{}" y="42" fill="#b000b0" text-anchor="end"></text>"##, WIDTH - 10.0)?;
        writeln!(to, r#"<g id="boxes">"#)?;
        for (node, label, level, before) in boxes {
            let (x, width) = (before as f64 / all * WIDTH, self.nodes[node].count as f64 / all * WIDTH);
            let y = height - BOTTOM - (level + 1) as f64 * ROW;
            let (name, object, colour) = match label {
                None => ("all".to_string(), String::new(), "#dddddd".to_string()),
                Some(Label::Text(text)) => (text.clone(), String::new(), "#d8d8d8".to_string()),
                Some(Label::Function(id)) => {
                    let function = functions.get(*id);
                    let colour = colour(&function.name, function.is_of_kernel());
                    (function.name.clone(), format!(" ({})", function.object_name()), colour)
                }
            };
            let (name, object) = (escaped(&name), escaped(&object));
            let share = self.nodes[node].count as f64 / all * 100.0;
            writeln!(
                to,
                r#"<g data-x="{x:.2}" data-w="{width:.2}"><title>{name}{object}: {} samples, {share:.2} %</title><rect x="{x:.2}" y="{y}" width="{width:.2}" height="{}" fill="{colour}"/><text x="{:.2}" y="{}">{}</text></g>"#,
                self.nodes[node].count,
                ROW - 1.0,
                x + 3.0,
                y + 13.0,
                fitting(&name, width),
            )?;
        }
        writeln!(to, "</g>")?;
        writeln!(to, "<script><![CDATA[\n{SCRIPT}\n]]></script>\n</svg>")
    }
}

/// A name as it fits a box, or nothing.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / 7.0).max(0.0) as usize;
    // A name with an entity in it is cut between its characters.
    let plain = name.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    match plain.chars().count() {
        count if count <= room => name.to_string(),
        _ if room < 3 => String::new(),
        _ => escaped(&plain.chars().take(room - 1).chain(['…']).collect::<String>()),
    }
}

/// The same function has the same colour in every picture.
fn colour(name: &str, kernel: bool) -> String {
    let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    let (some, more) = (hash % 50, hash / 64 % 60);
    let [red, green, blue] = match kernel {
        true => [120 + some, 170 + more / 2, 235],
        false => [235, 120 + more + some, 70 + some],
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    let plain = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    // What XML can't have.
    plain.chars().filter(|char| !char.is_control()).collect()
}

const SCRIPT: &str = r##"
const W = 1200, boxes = [...document.querySelectorAll("#boxes > g")];
const name = g => g.firstChild.textContent;
function show(from, width) {
  for (const g of boxes) {
    const x = (g.dataset.x - from) * W / width, w = g.dataset.w * W / width;
    const seen = x + w > 0.01 && x < W - 0.01;
    g.style.display = seen ? "" : "none";
    if (!seen) continue;
    const left = Math.max(0, x), right = Math.min(W, x + w), [, rect, text] = g.children;
    rect.setAttribute("x", left); rect.setAttribute("width", right - left);
    text.setAttribute("x", left + 3);
    const whole = name(g).replace(/( \([^)]*\))?: \d+ samples, [\d.]+ %$/, ""), room = Math.floor((right - left - 6) / 7);
    text.textContent = whole.length <= room ? whole : room < 3 ? "" : whole.slice(0, room - 1) + "…";
  }
}
boxes.forEach(g => g.addEventListener("click", () => show(+g.dataset.x, +g.dataset.w)));
window.addEventListener("keydown", event => {
  if (event.key === "Escape") show(0, W);
  if (!(event.ctrlKey || event.metaKey) || event.key !== "f") return;
  event.preventDefault();
  const wanted = prompt("Functions whose name has (regular expression):") || "";
  let pattern = null;
  try { pattern = wanted && new RegExp(wanted, "i"); } catch (error) { alert(error); }
  let end = -1, sum = 0;
  const hits = boxes.filter(g => pattern && pattern.test(name(g)));
  boxes.forEach(g => { g.children[1].style.fill = hits.includes(g) ? "#e040e0" : ""; });
  for (const g of hits.sort((a, b) => a.dataset.x - b.dataset.x || b.dataset.w - a.dataset.w)) {
    const x = +g.dataset.x, w = +g.dataset.w;
    if (x >= end - 0.005) { sum += w; end = x + w; }
  }
  document.getElementById("found").textContent = pattern ? `${wanted}: ${(sum * 100 / W).toFixed(2)} %` : "";
});
"##;
