//! What the pages (README, `docs/`) name must exist: links, files, types and messages, and commands with their options.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;

use super::check::entries;

/// Names of files end like this.
const FILES: [&str; 8] = ["rs", "md", "c", "h", "s", "txt", "toml", "py"];

/// What there is.
struct There {
    /// The names of all files, from the root of the project.
    files: BTreeSet<String>,
    /// Words of the sources that look like types ([`is_type`]).
    types: BTreeSet<String>,
    command: Command,
}

/// # Errors
///
/// What is named and is not there, a line each.
pub fn run(project: &Path) -> Result<(), String> {
    let mut pages: Vec<PathBuf> = Vec::new();
    let mut files = BTreeSet::new();
    gather(project, project, &mut files)?;
    let types = types(project, &files)?;
    for name in files.iter().filter(|name| name.ends_with(".md") && (!name.contains('/') || name.starts_with("docs/")))
    {
        pages.push(project.join(name));
    }
    let there = There { files, types, command: crate::cli::command() };
    let mut wrong = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        let beside = page.parent().unwrap_or(project);
        for missing in missing(&text, beside, &there) {
            wrong.push(format!("{}: {missing}", page.strip_prefix(project).unwrap_or(&page).display()));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

/// The names of all files of the tree, without what is built.
fn gather(project: &Path, directory: &Path, files: &mut BTreeSet<String>) -> Result<(), String> {
    for entry in entries(directory)? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && !entry.is_symlink() {
            if name != "target" && name != ".git" {
                gather(project, &entry, files)?;
            }
        } else if let Ok(inside) = entry.strip_prefix(project) {
            files.insert(inside.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The words that look like types, of all sources.
fn types(project: &Path, files: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    let mut types = BTreeSet::new();
    let is_source = |name: &&String| is_file(name) && !name.ends_with(".md");
    for name in files.iter().filter(is_source) {
        let text = fs::read(project.join(name)).map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8_lossy(&text);
        types.extend(words(&text).filter(|word| is_type(word)).map(str::to_string));
    }
    Ok(types)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
}

/// `SuchAName`: of a type, a message or a variant.
fn is_type(word: &str) -> bool {
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    let is_lower = |char: char| char.is_ascii_lowercase();
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && capitals > 1
        && word.contains(is_lower)
        && !word.contains('_')
}

fn missing(text: &str, beside: &Path, there: &There) -> Vec<String> {
    let There { files, types, command } = there;
    let mut wrong = Vec::new();
    let mut in_block = false;
    for part in text.split("](").skip(1) {
        let link = part.split([')', '#']).next().unwrap_or_default();
        if !link.is_empty() && !link.contains("://") && !beside.join(link).exists() {
            wrong.push(format!("no {link}"));
        }
    }
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            let commands = line.match_indices("./cob ").map(|(at, _)| &line[at..]);
            wrong.extend(commands.filter_map(|code| unknown_command(code, command)));
            continue;
        }
        // Each second part of a line is code.
        for code in line.split('`').skip(1).step_by(2) {
            wrong.extend(unknown_command(code, command));
            let unknown = words(code).filter(|word| is_type(word) && !types.contains(*word));
            wrong.extend(unknown.map(|word| format!("nothing is called {word}")));
            let words = code.split([' ', '(', ')', ',', '=']);
            let words = words.map(|word| word.split("::").next().unwrap_or_default().trim_end_matches(['.', ':']));
            for word in words.filter(|word| is_file(word)) {
                let ending = format!("/{word}");
                if !files.contains(word) && !files.iter().any(|file| file.ends_with(&ending)) {
                    wrong.push(format!("no {word}"));
                }
            }
        }
    }
    wrong
}

/// A name of a file of ours: relative, and ending as such do.
fn is_file(word: &str) -> bool {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_-./".contains(char);
    let ending = word.rsplit_once('.').map(|(stem, ending)| (!stem.is_empty(), ending));
    !word.starts_with(['/', '.'])
        && word.chars().all(plain)
        && ending.is_some_and(|(has, it)| has && FILES.contains(&it))
}

/// `./cob ...`: its commands and options.
fn unknown_command(code: &str, command: &Command) -> Option<String> {
    let rest = code.strip_prefix("./cob ").or_else(|| code.strip_prefix("cob "))?;
    let mut command = command;
    for word in rest.split([' ', '|', '\\']).map(|word| word.trim_matches(['[', ']', '.'])) {
        if word == "--" || command.get_arguments().any(|argument| argument.is_allow_hyphen_values_set()) {
            break;
        }
        if let Some(option) = word.strip_prefix("--") {
            let known = |argument: &clap::Arg| argument.get_long() == Some(option);
            if !["help", "version"].contains(&option) && !command.get_arguments().any(known) {
                return Some(format!("cob {} has no --{option}", command.get_name()));
            }
        } else if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        } else if command.get_name() == "cob" && word.chars().all(|char| char.is_ascii_lowercase()) {
            return Some(format!("there is no cob {word}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_our_pages_name_is_there() {
        assert_eq!(run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")), Ok(()));
    }

    #[test]
    fn what_is_not_there_is_found() {
        let files = BTreeSet::from(["crates/vm/src/space.rs".to_string(), "README.md".to_string()]);
        let there =
            There { files, types: BTreeSet::from(["FaultRequest".to_string()]), command: crate::cli::command() };
        let look = |text: &str| missing(text, Path::new(env!("CARGO_MANIFEST_DIR")), &there);
        let good = "[a](Cargo.toml#b) [c](https://d) `vm/src/space.rs` `space.rs::tests` `README.md` `/etc/x.toml` `a.b.rs.png` \
                    `./cob run --kernels 4 -- ls --color` `./cob test guest NAME` `cob test [check\\|unit]` `./cob sim memory --any 1`";
        assert_eq!(look(good), Vec::<String>::new());
        assert_eq!(look("[a](Cargo.tom) `vm/src/spaces.rs`"), ["no Cargo.tom", "no vm/src/spaces.rs"]);
        assert_eq!(look("`./cob runs` `./cob run --kernel 4`"), ["there is no cob runs", "cob run has no --kernel"]);
        assert_eq!(look("```sh\nseq 9 | ./cob runs\n```\n./cob run"), ["there is no cob runs"]);
        assert_eq!(
            look("`FaultRequest { .. }` `vm::FaultQuestion` `EINVAL` `HAS_Frame`"),
            ["nothing is called FaultQuestion"]
        );
    }
}
