//! The names of an enum's variants, from its source: outside the crate no match on a non-exhaustive one can be complete.

use std::collections::BTreeSet;

pub(crate) fn of(source: &str, name: &str) -> BTreeSet<String> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).expect("the enum");
    let (body, _) = body.split_once("\n}\n").expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines.filter(|line| line.starts_with(char::is_uppercase)).map(first_word).collect()
}

/// Of a line of the source, or of the `Debug` form: the name of the variant.
pub(crate) fn first_word(text: &str) -> String {
    text.chars().take_while(|char| char.is_alphanumeric()).collect()
}
