//! The docs of what is public: each item has an example, on its own page or on one that its docs link to, which calls it
//! by name; each function that can fail has a section on its errors; each option says its default.
//!
//! This reads the source. The lint `unreachable_pub` sees to it that what says `pub` there is public.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The types whose setters are options.
const OPTIONS: &[&str] = &["PipeOptions", "Limits"];

/// A type, trait, function, constant or macro, or a method of a type or trait.
struct Item {
    place: String,
    name: String,
    /// What rustdoc shows on one page: the type or trait that it belongs to, or itself.
    page: String,
    is_method: bool,
    signature: String,
    docs: Docs,
}

/// A comment without its examples, and their code.
#[derive(Default)]
struct Docs {
    text: String,
    code: String,
}

impl Docs {
    fn new(lines: &[&str]) -> Self {
        let mut docs = Self::default();
        let (mut inside, mut compiles) = (false, false);
        for line in lines {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                inside = !inside;
                compiles = matches!(language, "" | "no_run");
            } else if !inside {
                docs.text += &format!("{line}\n");
            } else if compiles {
                docs.code += &format!("{line}\n");
            }
        }
        docs
    }

    /// The last names but one, and the last, of the paths in ``[`links`]`` and `](links)`.
    fn links(&self) -> impl Iterator<Item = &str> {
        let ends = self.text.split("[`").skip(1).filter_map(|rest| Some(rest.split_once("`]")?.0));
        let targets = self.text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        ends.chain(targets).flat_map(|path| path.rsplit("::").take(2))
    }
}

/// The public items of a formatted file: what is in its left column, and what is in the next one of types and traits.
fn items(file: &str, source: &str) -> Vec<Item> {
    let lines: Vec<&str> = source.lines().take_while(|line| *line != "mod tests {").collect();
    let (mut items, mut docs) = (Vec::new(), Vec::new());
    let (mut owner, mut is_trait, mut is_exported) = (String::new(), false, false);
    for (i, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let is_method = match line.len() - text.len() {
            0 => false,
            4 => true,
            _ => continue,
        };
        if let Some(doc) = text.strip_prefix("///") {
            docs.push(doc.strip_prefix(' ').unwrap_or(doc));
            continue;
        }
        if text.starts_with("#[") {
            is_exported |= text == "#[macro_export]";
            continue;
        }
        let docs = Docs::new(&std::mem::take(&mut docs));
        let is_exported = std::mem::take(&mut is_exported);
        if line.starts_with("impl") {
            owner = implemented(line);
        }
        is_trait &= *line != "}";
        let declared = match text.strip_prefix("pub ") {
            Some(rest) => rest,
            None if is_method && is_trait || is_exported => text,
            None => continue,
        };
        let declared = declared.strip_prefix("const ").filter(|rest| rest.starts_with("fn ")).unwrap_or(declared);
        let kinds: &[&str] = match is_method {
            true => &["fn "],
            false => &["fn ", "struct ", "enum ", "trait ", "const ", "type ", "macro_rules! "],
        };
        let Some(name) = kinds.iter().find_map(|kind| declared.strip_prefix(kind)).map(word) else { continue };
        if declared.starts_with("trait ") {
            (owner, is_trait) = (name.clone(), true);
        }
        let end = lines[i..].iter().position(|line| line.ends_with(['{', ';'])).map_or(i, |lines| i + lines);
        let page = if is_method { owner.clone() } else { name.clone() };
        let signature = lines[i..=end].concat();
        items.push(Item { place: format!("{file}:{}", i + 1), name, page, is_method, signature, docs });
    }
    items
}

/// The type of `impl<T> Trait for Type<T> {`.
fn implemented(line: &str) -> String {
    let unbound = line.strip_prefix("impl<").and_then(|rest| rest.split_once("> ")).map(|(_, rest)| rest);
    let rest = unbound.unwrap_or_else(|| line.trim_start_matches("impl "));
    word(rest.split_once(" for ").map_or(rest, |(_, of)| of))
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}

/// What the docs lack.
fn complaints(items: &[Item]) -> Vec<String> {
    let (mut code, mut own_docs) = (BTreeMap::<&str, String>::new(), BTreeMap::new());
    for item in items {
        *code.entry(&item.page).or_default() += &item.docs.code;
        if !item.is_method {
            own_docs.insert(&item.page, &item.docs);
        }
    }
    let mut complaints = Vec::new();
    for Item { place, name, page, is_method, signature, docs } in items {
        let mut complain = |what: &str| complaints.push(format!("{place}: {page}::{name}: {what}"));
        // A type is shown by what is on its page, or by the use of one of its methods.
        let names = items.iter().filter(|item| item.page == *page).map(|item| &item.name);
        let names: Vec<_> = if *is_method { vec![name] } else { names.collect() };
        let links = docs.links().chain(own_docs.get(page).into_iter().flat_map(|docs| docs.links()));
        let is_shown = links
            .chain([&page[..]])
            .filter_map(|page| code.get(page))
            .any(|code| names.iter().any(|name| has_word(code, name)));
        if docs.code.is_empty() && !is_shown {
            complain("no example");
        }
        let fails = signature.split_once("->").is_some_and(|(_, result)| result.contains("Result<"));
        if fails && !docs.text.contains("# Errors") {
            complain("no section on its errors");
        }
        if OPTIONS.contains(&&page[..]) && signature.contains("(mut self") && !docs.text.contains("Default: ") {
            complain("no default");
        }
    }
    complaints
}

fn collect(folder: &Path, found: &mut Vec<Item>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(items(&path.display().to_string(), &fs::read_to_string(&path).expect("text")));
        }
    }
}

#[test]
fn what_is_public_has_an_example_its_errors_and_its_defaults() {
    let mut items = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut items);
    assert!(items.len() > 250, "only {} items found", items.len());
    for (page, name) in
        [("Pipe", "send"), ("Path", "with_names"), ("tensordict", "tensordict"), ("Limits", "max_depth")]
    {
        assert!(items.iter().any(|item| item.page == page && item.name == name), "{page}::{name} is not found");
    }
    let complaints = complaints(&items);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn what_lacks_is_found() {
    let example = "/// ```\n/// let x = X::new().get(1);\n/// ```\n";
    let complaints_of = |source: &str| complaints(&items("x.rs", source)).join("\n");
    for (source, expected) in [
        ("/// An X.\npub struct X;\n".to_owned(), "x.rs:2: X::X: no example"),
        (
            format!("{example}pub struct X;\n\nimpl X {{\n    /// Puts.\n    pub fn put(&self) {{}}\n}}\n"),
            "X::put: no example",
        ),
        (format!("{example}pub trait X {{\n    /// Puts.\n    fn put(&self);\n}}\n"), "X::put: no example"),
        ("/// ```text\n/// X\n/// ```\npub const X: u8 = 0;\n".to_owned(), "X::X: no example"),
        ("/// X.\n#[macro_export]\nmacro_rules! x {\n".to_owned(), "x::x: no example"),
        (format!("{example}pub fn x(\n    y: u8,\n) -> Result<u8> {{\n"), "x::x: no section on its errors"),
        (format!("{example}pub fn x() -> Option<Result<u8>> {{\n"), "x::x: no section on its errors"),
        (
            format!("impl Limits {{\n    {}pub fn get(mut self) -> Self {{\n", example.replace("\n", "\n    ")),
            "get: no default",
        ),
    ] {
        let complaints = complaints_of(&source);
        assert!(complaints.contains(expected), "{source}: {complaints}");
    }
    for source in [
        format!("{example}pub struct X;\n\nimpl<T> X<T> {{\n    /// Gets.\n    pub const fn get(&self) {{}}\n}}\n"),
        format!("{example}pub struct X;\n\n/// Made by [`X`].\npub struct Y;\n\nimpl Y {{\n    /// Gets.\n    pub fn get(&self) {{}}\n}}\n"),
        format!("{example}///\n/// # Errors\n/// None.\npub fn x() -> Result<u8> {{\n"),
        "struct X;\n\nimpl X {\n    fn x() -> Result<u8> {\n        pub fn y() {}\n    }\n}\n".to_owned(),
        "pub(crate) fn x() {}\n\nmod tests {\n    pub fn y() {}\n}\n".to_owned(),
    ] {
        assert_eq!(complaints_of(&source), "", "{source}");
    }
}
