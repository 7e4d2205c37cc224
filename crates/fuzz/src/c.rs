//! A program in C, for whoever mends what it found: it needs gcc and nothing of this tree.

use crate::{
    describe::Calls,
    draw::gives_birth,
    program::{Program, Step, Word, ACTORS, ARENA},
};
use std::fmt::Write;

/// What every such program begins with.
const HEAD: &str = include_str!("../head.c");

/// The source of a program; `comment` says what it was found with.
pub fn write(calls: &Calls, program: &Program, comment: &str) -> String {
    let mut text = String::new();
    comment.lines().for_each(|line| text += &format!("// {line}\n"));
    text += "// gcc -O1 -static -no-pie -Wl,--section-start=.fuzz=0x10000000 THIS.c\n";
    text += HEAD;
    let actors: Vec<u8> =
        (0..ACTORS as u8).filter(|actor| *actor == 0 || program.of(*actor).next().is_some()).collect();
    actors.iter().for_each(|actor| _ = write!(text, "\nstatic void actor{actor}(void);"));
    text.push('\n');
    for actor in &actors {
        _ = write!(text, "\nstatic void actor{actor}(void) {{\n    long result;\n");
        program.of(*actor).for_each(|step| text += &written(calls, step, &actors));
        text += "    (void)result;\n}\n";
    }
    text += "\nint main(void) {\n    make_directory();\n    share();\n    prepare();\n    actor0();\n    syscall(SYS_exit, 0);\n}\n";
    text
}

fn written(calls: &Calls, step: &Step, actors: &[u8]) -> String {
    let mut text = String::new();
    for write in &step.writes {
        let bytes: String = write.bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let place = ARENA + u64::from(write.at);
        // A repeated byte is shorter said.
        _ = match write.bytes.first() {
            Some(first) if write.bytes.len() > 8 && write.bytes.iter().all(|byte| byte == first) => {
                writeln!(text, "    memset((void *){place:#x}, {first}, {});", write.bytes.len())
            }
            _ => writeln!(text, "    memcpy((void *){place:#x}, \"{bytes}\", {});", write.bytes.len()),
        };
    }
    for patch in &step.patches {
        let place = ARENA + u64::from(patch.at);
        _ = writeln!(text, "    memcpy((void *){place:#x}, (void *)&slot[{}], {});", patch.slot, patch.size);
    }
    let last = step.arguments.iter().rposition(|word| *word != Word::Value(0)).map_or(0, |last| last + 1);
    let arguments: String = step.arguments[..last].iter().map(|word| format!(", {}", argument(*word))).collect();
    let name = calls.name_of(step.number);
    let call = match step.birth.filter(|birth| actors.contains(birth)) {
        Some(birth) => {
            let all: String = step.arguments.iter().map(|word| format!(", {}", argument(*word))).collect();
            format!("born({birth}, actor{birth}, {}{all})", step.number)
        }
        None if gives_birth(step.number) => {
            let all: String = step.arguments.iter().map(|word| format!(", {}", argument(*word))).collect();
            format!("born(0, nobody, {}{all})", step.number)
        }
        None => format!("syscall({}{arguments})", step.number),
    };
    let takes: Vec<String> = step
        .takes
        .iter()
        .map(|take| match take.from {
            None => format!("slot[{}] = result", take.slot),
            Some((at, size)) => {
                format!("slot[{}] = *(int{}_t *){:#x}", take.slot, u32::from(size) * 8, ARENA + u64::from(at))
            }
        })
        .collect();
    _ = match takes.is_empty() {
        true => writeln!(text, "    {call}; // {name}"),
        false => {
            writeln!(text, "    if ((result = {call}) != -1) // {name}\n        {};", takes.join(", "))
        }
    };
    text
}

fn argument(word: Word) -> String {
    match word {
        Word::Slot(slot) => format!("slot[{slot}]"),
        Word::Value(value) if value < 10 => format!("{value}l"),
        Word::Value(value) if (value as i64) < 0 && (value as i64) > -1000 => format!("{}l", value as i64),
        Word::Value(value) => format!("{value:#x}l"),
    }
}
