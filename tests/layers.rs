//! The layers of the crate: who may know whom. Reads the source and fails where a file reaches beyond its layer, where
//! unsafe code stands outside its two places, and where anything but `ucx` names the C library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a layer may import beside itself and `std`.
struct Layer {
    name: &'static str,
    layers: &'static [&'static str],
    crates: &'static [&'static str],
    /// It does no I/O, knows no time and starts nothing.
    pure: bool,
}

/// From the bottom upwards. A module of the crate that is not here is an error: it has to find its place.
const LAYERS: &[Layer] = &[
    Layer { name: "storage", layers: &[], crates: &[], pure: true },
    Layer {
        name: "data",
        layers: &["storage"],
        crates: &["bytemuck", "half", "indexmap", "num_complex", "thiserror"],
        pure: true,
    },
    Layer { name: "wire", layers: &["data", "storage"], crates: &["indexmap", "thiserror"], pure: true },
    Layer { name: "link", layers: &["storage"], crates: &["sha1", "thiserror"], pure: false },
    Layer {
        name: "ucx",
        layers: &["link", "storage"],
        crates: &["crossbeam_channel", "getrandom", "libc", "log", "parking_lot", "thiserror", "ucx_sys"],
        pure: false,
    },
    Layer { name: "error", layers: &["wire"], crates: &["thiserror"], pure: false },
    Layer { name: "options", layers: &["data", "error", "wire"], crates: &[], pure: false },
    Layer {
        name: "pipe",
        layers: &["data", "error", "link", "options", "storage", "ucx", "wire"],
        crates: &["crossbeam_channel", "log", "parking_lot"],
        pure: false,
    },
    Layer {
        name: "server",
        layers: &["data", "error", "link", "options", "pipe", "ucx"],
        crates: &["crossbeam_channel", "log", "parking_lot"],
        pure: false,
    },
    Layer {
        name: "interop",
        layers: &["data", "storage"],
        crates: &["candle_core", "half", "ndarray", "num_complex", "safetensors", "serde_json", "thiserror"],
        pure: false,
    },
    // Nothing but documentation.
    Layer { name: "python", layers: &[], crates: &[], pure: true },
];

/// What one file may have beyond its layer: the in-memory link is for tests.
const EXCEPTIONS: &[(&str, &str)] = &[("link/loopback.rs", "crossbeam_channel"), ("link/loopback.rs", "parking_lot")];

/// Not for pure layers.
const IMPURE: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync::mpsc",
    "std::thread",
    "std::time",
];

fn may_be_unsafe(file: &str) -> bool {
    file.starts_with("storage/") || file.starts_with("ucx/")
}

/// Tests may use threads.
fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

#[test]
fn every_file_keeps_to_its_layer() {
    let sources = Sources::read(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(sources.files.len() > 50, "only {} files found", sources.files.len());
    let violations: Vec<String> = sources.files.iter().flat_map(|(file, text)| sources.check(file, text)).collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// The source, and what has to be known of it to understand a path.
struct Sources {
    /// By their paths below `src`.
    files: BTreeMap<String, String>,
    /// The dependencies, as they are named in paths.
    crates: BTreeSet<String>,
    /// The layer of what `crate::Name` means.
    names: BTreeMap<String, String>,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect(&root.join("src"), &root.join("src"), &mut files);
        let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
        Self::new(files, &manifest)
    }

    fn new(files: BTreeMap<String, String>, manifest: &str) -> Self {
        let mut names = BTreeMap::new();
        for (file, text) in &files {
            let tokens = tokens(text);
            if file == "lib.rs" {
                for path in paths(&tokens).iter().filter(|path| layer(&path.names[0]).is_some()) {
                    names.extend(path.names[1..].last().map(|name| (name.clone(), path.names[0].clone())));
                }
            }
            for window in tokens.windows(3).filter(|window| window[0].text == "macro_rules") {
                names.insert(window[2].text.clone(), module(file)[0].clone());
            }
        }
        let dependencies = manifest.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next());
        let lines = dependencies.unwrap_or_default().lines();
        let crates = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.replace('-', "_")).collect();
        Self { files, crates, names }
    }

    /// What is wrong with a file.
    fn check(&self, file: &str, text: &str) -> Vec<String> {
        let tokens = tokens(text);
        let mut violations = Vec::new();
        let mut complain = |line: usize, what: &str| violations.push(format!("src/{file}:{line}: {what}"));

        for (i, token) in tokens.iter().enumerate() {
            let next = tokens.get(i + 1).map_or("", |token| token.text.as_str());
            match (token.text.as_str(), next) {
                ("unsafe", _) if !may_be_unsafe(file) => complain(token.line, "unsafe code"),
                ("unsafe_code", _) if file != "lib.rs" => complain(token.line, "a lint level for unsafe code"),
                ("ucx_sys", _) if !file.starts_with("ucx/") => complain(token.line, "names ucx_sys"),
                ("extern", "crate") | ("include", "!") => complain(token.line, "what it brings in cannot be seen here"),
                ("[", "path") => complain(token.line, "a module in another place than its name says"),
                _ => {}
            }
        }
        if file == "lib.rs" {
            return violations;
        }

        let Some(own) = layer(&module(file)[0]) else {
            complain(1, "a module that has no layer; give it one in tests/layers.rs");
            return violations;
        };
        for path in paths(&tokens) {
            match self.resolve(file, &path) {
                Meaning::Crate(name) => {
                    let allowed = own.crates.contains(&&*name) || EXCEPTIONS.contains(&(file, &*name));
                    if !allowed {
                        complain(path.line, &format!("{} may not use the crate {name}", own.name));
                    }
                }
                Meaning::Std(name) => {
                    let under = |prefix: &&&str| name == **prefix || name.starts_with(&format!("{prefix}::"));
                    if let Some(impure) = IMPURE.iter().find(under).filter(|_| own.pure && !is_test(file)) {
                        complain(path.line, &format!("{} may not use {impure}", own.name));
                    }
                }
                Meaning::Layer(name) => {
                    if name != own.name && !own.layers.contains(&&*name) {
                        complain(path.line, &format!("{} may not use {name}", own.name));
                    }
                }
                Meaning::Unknown(name) => complain(path.line, &format!("crate::{name} is of no known layer")),
                Meaning::Local => {}
            }
        }
        violations
    }

    fn resolve(&self, file: &str, path: &Found) -> Meaning {
        let mut here = module(file);
        here.extend(path.inside.iter().cloned());
        let first = path.names[0].as_str();
        let absolute: Vec<String> = match first {
            "crate" => path.names[1..].to_vec(),
            "self" | "super" => {
                let ups = path.names.iter().take_while(|name| *name == "super").count();
                here.truncate(here.len().saturating_sub(ups));
                let rest = path.names.iter().skip_while(|name| *name == "super" || *name == "self");
                here.into_iter().chain(rest.cloned()).collect()
            }
            "std" | "core" | "alloc" => {
                return Meaning::Std([&["std".to_owned()], &path.names[1..]].concat().join("::"));
            }
            name if self.crates.contains(name) => return Meaning::Crate(name.to_owned()),
            _ => return Meaning::Local,
        };
        match absolute.first() {
            None => Meaning::Local,
            Some(name) if layer(name).is_some() => Meaning::Layer(name.clone()),
            Some(name) => match self.names.get(name) {
                Some(layer) => Meaning::Layer(layer.clone()),
                None => Meaning::Unknown(name.clone()),
            },
        }
    }
}

/// What a path leads to.
enum Meaning {
    Layer(String),
    Crate(String),
    Std(String),
    /// Something that the file has imported or defined.
    Local,
    Unknown(String),
}

fn layer(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    for path in entries.collect::<BTreeSet<PathBuf>>() {
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below").to_str().expect("a name").replace('\\', "/");
            files.insert(name, fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The module of a file.
fn module(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').map(str::to_owned).collect()
}

struct Token {
    text: String,
    line: usize,
}

/// Names and signs; no comments, texts, numbers and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    while let Some(first) = rest.chars().next() {
        let name_len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment_len(rest)
        } else if let Some(len) = text_len(rest) {
            len
        } else if first == '\'' {
            char_or_lifetime_len(rest)
        } else if is_name(first) {
            if !first.is_numeric() {
                tokens.push(Token { text: rest[..name_len].to_owned(), line });
            }
            name_len
        } else {
            if !first.is_whitespace() {
                tokens.push(Token { text: first.to_string(), line });
            }
            first.len_utf8()
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    for (i, pair) in text.as_bytes().windows(2).enumerate() {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 2;
        }
    }
    text.len()
}

/// The length of a string literal of any kind.
fn text_len(text: &str) -> Option<usize> {
    let unprefixed = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - unprefixed.len();
    if let Some(raw) = unprefixed.strip_prefix('r').filter(|_| prefix <= 1) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let len = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(text.len() - body.len() + len);
    }
    let body = unprefixed.strip_prefix('"').filter(|_| prefix <= 1)?;
    let mut escaped = false;
    let end = body.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    Some(prefix + 1 + end.map_or(body.len(), |at| at + 1))
}

fn char_or_lifetime_len(text: &str) -> usize {
    let body = &text[1..];
    if let Some(escape) = body.strip_prefix('\\') {
        let first = escape.chars().next().map_or(0, char::len_utf8);
        return 2 + first + escape[first..].find('\'').map_or(0, |at| at + 1);
    }
    let mut chars = body.chars();
    let first = chars.next().map_or(0, char::len_utf8);
    if chars.next() == Some('\'') {
        2 + first
    } else {
        1
    }
}

/// A path in the source, spelled out.
struct Found {
    names: Vec<String>,
    line: usize,
    /// The modules in the file around it.
    inside: Vec<String>,
}

/// All paths of at least two names, and all imports; groups are spelled out.
fn paths(tokens: &[Token]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut inside: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let is_separator = |i: usize| text(i) == ":" && text(i + 1) == ":";
    for i in 0..tokens.len() {
        match text(i) {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inside.retain(|(_, at)| *at <= depth);
            }
            "mod" if text(i + 2) == "{" => inside.push((text(i + 1).to_owned(), depth + 1)),
            _ => {}
        }
        let continues = i >= 2 && is_separator(i - 2) && (i == 2 || is_name(text(i - 3)) || text(i - 3) == ">");
        let is_member = i >= 1 && matches!(text(i - 1), "." | "$");
        if !is_name(text(i)) || continues || is_member {
            continue;
        }
        let mut spelled = Vec::new();
        spell(tokens, i, &[], &mut spelled);
        let imported = i >= 1 && text(i - 1) == "use";
        for names in spelled.into_iter().filter(|names| names.len() > 1 || imported) {
            let inside = inside.iter().map(|(name, _)| name.clone()).collect();
            found.push(Found { names, line: tokens[i].line, inside });
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Spells the path or the group at `i` out, after `prefix`; gives the place after it.
fn spell(tokens: &[Token], mut i: usize, prefix: &[String], spelled: &mut Vec<Vec<String>>) -> usize {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let mut names = prefix.to_vec();
    if text(i) == "{" {
        i += 1;
        while !matches!(text(i), "}" | "") {
            let after = spell(tokens, i, &names, spelled);
            // Over commas and renames.
            i = after.max(i + 1);
            while !matches!(text(i), "}" | "," | "") {
                i += 1;
            }
            i += usize::from(text(i) == ",");
        }
        return i + 1;
    }
    loop {
        names.push(text(i).to_owned());
        if !(text(i + 1) == ":" && text(i + 2) == ":") {
            spelled.push(names);
            return i + 1;
        }
        match text(i + 3) {
            "{" => return spell(tokens, i + 3, &names, spelled),
            next if is_name(next) || next == "*" => i += 3,
            _ => {
                spelled.push(names);
                return i + 3;
            }
        }
    }
}

/// What the check says of one file with this content, among others.
fn verdict(file: &str, text: &str) -> Vec<String> {
    let lib = "mod data; mod ucx; pub use data::{DType, TensorDict}; pub use {pipe::Pipe, wire::*};";
    let macros = "macro_rules! tensordict { () => { $crate::TensorDict::new([]) } }";
    let files = [("lib.rs", lib), ("data/macros.rs", macros), (file, text)];
    let manifest = "[dependencies]\n# One.\nucx-sys = { path = \"ucx-sys\" }\nlog = \"0.4\"\nparking_lot = \"0.12\"\nhalf = \"2\"\n\n[dev-dependencies]\nproptest = \"1\"\n";
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    Sources::new(files.into(), manifest).check(file, text)
}

#[test]
fn what_breaks_a_layer_is_found() {
    for (file, text, expected) in [
        ("data/dict.rs", "use crate::wire::Limits;", "data may not use wire"),
        ("data/dict.rs", "\n\nuse crate::{storage::Storage, ucx::{Worker, Status}};", "3: data may not use ucx"),
        ("data/dict.rs", "use super::super::link::Link;", "data may not use link"),
        ("data/mod.rs", "use super::wire;", "data may not use wire"),
        ("data/dict.rs", "mod tests { use super::super::super::pipe::Pipe; }", "data may not use pipe"),
        ("data/dict.rs", "fn f() -> crate::Pipe { todo!() }", "data may not use pipe"),
        ("data/dict.rs", "use log::debug;", "data may not use the crate log"),
        ("data/dict.rs", "fn f() { ::log::debug!(\"x\") }", "data may not use the crate log"),
        ("data/dict.rs", "use log;", "data may not use the crate log"),
        ("data/dict.rs", "use std::{fmt, time::{Duration, Instant}};", "data may not use std::time"),
        ("wire/recv.rs", "fn f() { std::thread::sleep(x) }", "wire may not use std::thread"),
        ("wire/recv.rs", "use std::net::TcpStream as Stream;", "wire may not use std::net"),
        ("wire/json/mod.rs", "use crate::link::Link;", "wire may not use link"),
        ("wire/json/mod.rs", "use super::super::error::Error;", "wire may not use error"),
        ("wire/send.rs", "pub use half::f16;", "wire may not use the crate half"),
        ("link/mod.rs", "use parking_lot::Mutex;", "link may not use the crate parking_lot"),
        ("link/mod.rs", "use crate::data::Tensor;", "link may not use data"),
        ("ucx/link.rs", "use crate::wire::Format;", "ucx may not use wire"),
        ("ucx/link.rs", "use crate::DType;", "ucx may not use data"),
        ("ucx/link.rs", "fn f() { crate::tensordict!([]) }", "ucx may not use data"),
        ("ucx/link.rs", "use crate::pipe::Pipe;", "ucx may not use pipe"),
        ("storage/mod.rs", "use crate::data::DType;", "storage may not use data"),
        ("storage/mod.rs", "use half::f16;", "storage may not use the crate half"),
        ("pipe/mod.rs", "use crate::server::Server;", "pipe may not use server"),
        ("pipe/mod.rs", "fn f() { ucx_sys::ucp_init() }", "names ucx_sys"),
        ("options.rs", "use ucx_sys as sys;", "names ucx_sys"),
        ("lib.rs", "pub use ucx_sys::*;", "names ucx_sys"),
        ("pipe/mod.rs", "unsafe { x() }", "unsafe code"),
        ("link/mod.rs", "unsafe impl Send for X {}", "unsafe code"),
        ("wire/mod.rs", "#![allow(unsafe_code)]", "a lint level for unsafe code"),
        ("wire/mod.rs", "#[path = \"../ucx/mod.rs\"] mod other;", "a module in another place"),
        ("wire/mod.rs", "include!(\"../ucx/mod.rs\");", "cannot be seen here"),
        ("wire/mod.rs", "extern crate log;", "cannot be seen here"),
        ("novel/mod.rs", "", "a module that has no layer"),
        ("data/dict.rs", "use crate::novel::X;", "crate::novel is of no known layer"),
    ] {
        let violations = verdict(file, text);
        assert!(violations.iter().any(|violation| violation.contains(expected)), "{file}: {text}: {violations:?}");
    }
}

#[test]
fn what_keeps_to_its_layer_is_not_complained_of() {
    for (file, text) in [
        ("storage/mod.rs", "use std::{alloc::Layout, sync::Arc}; unsafe impl Send for Block {}"),
        ("data/dict.rs", "use half::f16; use super::node::Node; use crate::storage::Storage; use crate::DType;"),
        ("data/dict.rs", "mod tests { use super::*; use proptest::prelude::*; use crate::tensordict; }"),
        ("data/macros.rs", "macro_rules! tensordict { () => { $crate::Pipe::new([]) } }"),
        ("data/dict.rs", "// use crate::ucx::Worker; unsafe\n/* use log; /* unsafe */ ucx_sys */"),
        ("data/dict.rs", r##"const X: &str = "unsafe \" log::x"; const Y: &str = r#"ucx_sys " unsafe"#;"##),
        ("data/dict.rs", r"fn f<'log>(c: char) -> bool { matches!(c, '\'' | '\u{41}' | '{' | '}' | b'\\') }"),
        ("data/dict.rs", "fn f(log: u8, half: &mut Half) -> u8 { half.log(); Half::Here; log }"),
        ("wire/recv.rs", "use crate::data::{Node, TensorDict}; use super::json::Reader; use self::pool::Pool;"),
        ("link/mod.rs", "use std::time::Instant; use crate::storage::Storage;"),
        ("link/loopback.rs", "use parking_lot::Mutex;"),
        ("ucx/link.rs", "use crate::link::Link; use super::worker::Worker; unsafe { ucx_sys::f(log::max_level()) }"),
        ("pipe/mod.rs", "use crate::{data::TensorDict, ucx::UcxLink, wire::Format}; use log::debug;"),
        ("server.rs", "use crate::pipe::Pipe; use std::net::SocketAddr; use crate::Pipe;"),
        ("lib.rs", "#![deny(unsafe_code)] #[allow(unsafe_code)] mod ucx; pub use pipe::Pipe;"),
    ] {
        assert_eq!(verdict(file, text), Vec::<String>::new(), "{file}: {text}");
    }
}
