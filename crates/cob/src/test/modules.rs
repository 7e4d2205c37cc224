//! Which modules of a crate use which, read from the source: a crate whose modules stand in layers can be understood from below,
//! and cut.
//!
//! A node is what lies directly in `src`: a file or a folder. An edge is a path that begins with `crate::` or `super::` and leads into another
//! node; what `lib.rs` exports counts for the module that it comes from. Tests don't count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Crates whose modules use each other in circles yet.
const IN_CIRCLES: [&str; 8] = ["fabric", "fuzz", "linux", "machine", "platform", "process", "sim", "vm"];

/// For each module those that it uses, with the paths that say so.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Prints the modules of each crate, those first that use none of the others.
///
/// # Errors
///
/// A crate has a circle and is not in [`IN_CIRCLES`], or has none and is: what makes it, by path.
pub fn run(crates: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    for name in super::check::entries(crates)? {
        let source = name.join("src");
        if !source.join("lib.rs").is_file() {
            continue;
        }
        let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let graph = graph(&source)?;
        let (layers, circle) = layers(&graph);
        let layers: Vec<String> = layers.iter().map(|layer| layer.join(" ")).collect();
        println!("        {name}: {}", layers.join(" < "));
        match (circle.is_empty(), IN_CIRCLES.contains(&name.as_str())) {
            (true, true) => wrong.push(format!("{name} has no circle any more: take it out of IN_CIRCLES")),
            (false, true) => println!("        {name}, in circles: {}", circle.join(" ")),
            (true, false) => (),
            (false, false) => wrong.push(format!("{name}:\n{}", edges_inside(&graph, &circle))),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n")),
    }
}

fn edges_inside(graph: &Graph, circle: &[String]) -> String {
    let mut lines = Vec::new();
    for (from, uses) in graph.iter().filter(|(from, _)| circle.contains(from)) {
        for (to, paths) in uses.iter().filter(|(to, _)| circle.contains(to)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            lines.push(format!("  {from} uses {to}: {}", paths.join(", ")));
        }
    }
    lines.join("\n")
}

/// The modules in layers, each using only those before; and those that are left, since they use each other in a circle, or such.
fn layers(graph: &Graph) -> (Vec<Vec<String>>, Vec<String>) {
    let mut layers: Vec<Vec<String>> = Vec::new();
    let mut done = BTreeSet::new();
    loop {
        let ready = |module: &&String| !done.contains(*module) && graph[*module].keys().all(|used| done.contains(used));
        let layer: Vec<String> = graph.keys().filter(ready).cloned().collect();
        if layer.is_empty() {
            break;
        }
        done.extend(layer.iter().cloned());
        layers.push(layer);
    }
    // Those that only use a circle are in none.
    let mut left: BTreeSet<&String> = graph.keys().filter(|module| !done.contains(*module)).collect();
    while let Some(top) =
        left.iter().find(|module| !left.iter().any(|other| graph[*other].contains_key(**module))).copied()
    {
        left.remove(top);
    }
    (layers, left.into_iter().cloned().collect())
}

fn graph(source: &Path) -> Result<Graph, String> {
    let library = tokens(&source.join("lib.rs"))?;
    let mut exports = BTreeMap::new();
    for (path, name) in exported(library) {
        exports.insert(name, path);
    }
    let mut graph = Graph::new();
    for entry in super::check::entries(source)? {
        let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name != "lib"
            && name != "main"
            && !is_test(&name)
            && (entry.is_dir() || entry.extension().is_some_and(|it| it == "rs"))
        {
            graph.entry(name).or_default();
        }
    }
    for module in graph.keys().cloned().collect::<Vec<_>>() {
        let mut files = Vec::new();
        gather(source, &mut vec![module.clone()], &mut files)?;
        for (place, file) in files {
            for path in paths(tokens(&file)?) {
                let Some(target) = absolute(&place, &path) else { continue };
                let Some(first) = target.first() else { continue };
                let used = if graph.contains_key(first) { Some(first) } else { exports.get(first) };
                if let Some(used) = used.filter(|used| **used != module && graph.contains_key(*used)).cloned() {
                    let said = graph.entry(module.clone()).or_default().entry(used).or_default();
                    said.insert(target.join("::"));
                }
            }
        }
    }
    Ok(graph)
}

fn is_test(name: &str) -> bool {
    name == "tests" || name == "testing" || name.ends_with("_tests")
}

/// The files of a module and of those in it, with the module path of each.
fn gather(
    source: &Path,
    place: &mut Vec<String>,
    files: &mut Vec<(Vec<String>, std::path::PathBuf)>,
) -> Result<(), String> {
    let base = source.join(place.join("/"));
    let file = base.with_extension("rs");
    if file.is_file() {
        files.push((place.clone(), file));
    }
    if base.is_dir() {
        for entry in super::check::entries(&base)? {
            let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name == "mod" {
                files.push((place.clone(), entry));
            } else if !is_test(&name) && (entry.is_dir() || entry.extension().is_some_and(|it| it == "rs")) {
                place.push(name);
                // A module with a folder is met twice, as the file and as the folder.
                if !files.iter().any(|(there, _)| there == place) {
                    gather(source, place, files)?;
                }
                place.pop();
            }
        }
    }
    Ok(())
}

fn tokens(file: &Path) -> Result<Vec<TokenTree>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let stream: TokenStream = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(without_tests(stream))
}

/// Without the items under `#[cfg(test)]`.
fn without_tests(stream: TokenStream) -> Vec<TokenTree> {
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut skips = false;
    for token in stream {
        if skips {
            // An item ends with its braces or a semicolon.
            skips = match &token {
                TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
                TokenTree::Punct(punct) => punct.as_char() != ';',
                _ => true,
            };
            continue;
        }
        match &token {
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Bracket
                    && group.stream().to_string().replace(' ', "") == "cfg(test)" =>
            {
                kept.pop();
                skips = true;
            }
            _ => kept.push(token),
        }
    }
    kept
}

/// All paths that begin with `crate` or `super`, those of a tree of `use` one by one.
fn paths(tokens: Vec<TokenTree>) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(ident) if ident == "crate" || ident == "super" => {
                at = follow(&tokens, at, Vec::new(), &mut found)
            }
            TokenTree::Group(group) => {
                found.extend(paths(without_tests(group.stream())));
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

/// The path that begins at `at`, behind `prefix`; gives where it ends.
fn follow(tokens: &[TokenTree], mut at: usize, prefix: Vec<String>, found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix;
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(ident)) => path.push(ident.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace && !path.is_empty() => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                for part in inside.split(is_comma).filter(|part| !part.is_empty()) {
                    follow(part, 0, path.clone(), found);
                }
                return at + 1;
            }
            // `::*`: of the module itself.
            _ => break,
        }
        at += 1;
        if !is_colons(tokens, at) {
            break;
        }
        at += 2;
    }
    found.push(path);
    at.max(1)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    colon(at) && colon(at + 1)
}

/// `crate` and `super` taken away; None: it leads out of the crate.
fn absolute(place: &[String], path: &[String]) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    if ups == 0 {
        return Some(path[1..].to_vec());
    }
    let base = place.get(..place.len().checked_sub(ups)?)?;
    Some(base.iter().chain(&path[ups..]).cloned().collect())
}

/// What `lib.rs` exports of its modules: from which, and under what name.
fn exported(tokens: Vec<TokenTree>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if !matches!(&tokens[at], TokenTree::Ident(ident) if ident == "use") {
            continue;
        }
        let mut trees = Vec::new();
        names(&tokens[at + 1..], None, &mut trees);
        found.extend(trees);
    }
    found
}

/// The names of a tree of `use`, each with the first part of its path.
fn names(tokens: &[TokenTree], first: Option<String>, found: &mut Vec<(String, String)>) {
    let (mut first, mut last, mut at) = (first, None, 0);
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(ident) if ident == "crate" || ident == "self" => (),
            TokenTree::Ident(ident) => {
                first.get_or_insert(ident.to_string());
                last = Some(ident.to_string());
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                inside.split(is_comma).for_each(|part| names(part, first.clone(), found));
                return;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            _ => (),
        }
        at += 1;
    }
    if let (Some(first), Some(last)) = (first, last) {
        found.push((first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn our_crates_have_no_circles_but_those_listed() {
        assert_eq!(run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..")), Ok(()));
    }

    #[test]
    fn layers_and_a_circle_through_what_the_library_exports() {
        let dir = crate_of(&[
            ("lib.rs", "mod low; mod a; mod b; mod top; pub use a::{Thing, inner::Other as Name}; pub use low::*;"),
            ("low.rs", "pub struct Low; #[cfg(test)] mod tests { use crate::top::Top; }"),
            ("a/mod.rs", "mod inner; use super::low::Low;"),
            ("a/inner.rs", "fn f() { let _ = super::super::b::g(); }"),
            ("b.rs", "use crate::{low, Name};"),
            ("top.rs", "use crate::b::{self, g as h}; my_macro!(crate::a::Thing);"),
        ]);
        let graph = graph(dir.path()).unwrap();
        let uses = |module: &str| graph[module].keys().cloned().collect::<Vec<_>>();
        assert_eq!((uses("low"), uses("a")), (vec![], vec!["b".into(), "low".into()]));
        assert_eq!((uses("b"), uses("top")), (vec!["a".into(), "low".into()], vec!["a".into(), "b".into()]));
        let (layers, circle) = layers(&graph);
        assert_eq!(layers, [["low"]]);
        assert_eq!(circle, ["a", "b"], "top only uses the circle");
    }
}
