//! The tables of the docs name tests; every one of them exists. So does one for each error of a pipe.
#![allow(missing_docs)]

#[path = "common/variants.rs"]
mod variants;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The source of the test `file::name`.
fn source_of(name: &str) -> Option<String> {
    let (file, test) = name.split_once("::")?;
    let folder = if file.starts_with("src/") { "" } else { "tests/" };
    let source = fs::read_to_string(root().join(format!("{folder}{file}.rs"))).ok()?;
    let head = format!("fn {test}(");
    let from = match source.split("#[test]\n").skip(1).find(|rest| rest.trim_start().starts_with(&head)) {
        Some(from) => from,
        None if source.contains("proptest!") => &source[source.find(&head)?..],
        None => return None,
    };
    from.split("\n}\n").next().map(str::to_owned)
}

/// Checks the last cell of each row, in which `other` knows the names that are no tests; how many rows there were.
fn check(page: &str, other: impl Fn(&str) -> bool) -> usize {
    let text = fs::read_to_string(root().join(page)).expect("the page");
    let lines: Vec<_> = text.lines().map(|line| line.trim_start_matches("//!").trim()).collect();
    let mut rows = 0;
    for (header, row) in lines.iter().zip(lines.iter().skip(1)).filter(|(_, row)| row.starts_with('|')) {
        let cells = |row: &str| row.trim_matches('|').split('|').map(str::trim).map(str::to_owned).collect::<Vec<_>>();
        let (cells, before) = (cells(row), cells(header));
        // The head of a table, and the line below it.
        if !header.starts_with('|') || cells.iter().all(|cell| cell == "---") {
            continue;
        }
        assert_eq!(cells.len(), before.len(), "{page}: {row}");
        let last = cells.last().expect("a cell");
        let (tests, others): (Vec<_>, Vec<_>) = quoted(last).partition(|name| name.contains("::"));
        for name in &tests {
            assert!(source_of(name).is_some(), "{page}: {row}: no test {name}");
        }
        assert!(!tests.is_empty(), "{page}: {row}: no test is named");
        others.iter().for_each(|name| assert!(other(name), "{page}: {row}: no {name}"));
        rows += 1;
    }
    rows
}

#[test]
fn every_test_of_the_constructs_exists() {
    let scenarios = fs::read_to_string(root().join("tests/interop/run")).expect("the script");
    let scenario = |name: &str| {
        let name = name.strip_suffix("-by-leaf").unwrap_or(name);
        scenarios.contains(&format!("scenario \"{name}$dash\" "))
            || scenarios.contains(&format!("differs \"{name}$dash\" "))
    };
    let golden = |name: &str| {
        ["consolidated", "leaves"].iter().any(|folder| {
            ["expected", "metadata"]
                .iter()
                .any(|kind| root().join(format!("tests/golden/{folder}/{name}.{kind}.json")).exists())
        })
    };
    let rows = check("src/constructs.md", |name| golden(name) || scenario(name));
    assert!(rows > 30, "{rows}");
}

#[test]
fn every_test_of_the_python_table_exists() {
    let rows = check("src/python.rs", |_| false);
    assert!(rows > 30, "{rows}");
}

/// An error of a pipe, a test that reaches it, and by what the test knows it: `Error::...` unless said otherwise.
const ERRORS: [(&str, &str, &str); 16] = [
    ("Closed", "goodbyes::one_direction_ends_before_the_other", ".is_closed()"),
    ("ServerClosed", "server::closing_ends_every_accept", ""),
    ("Timeout", "unplugged::nobody_comes", ""),
    ("Disconnected", "src/pipe/tests/ending::a_cut_after_any_message_is_an_error_at_both_ends", "the peer is gone"),
    ("Unread", "goodbyes::both_close_at_once_and_learn_what_was_not_read", "unread("),
    ("Resolve", "unplugged::a_name_that_does_not_resolve_is_told_at_once", ""),
    ("Refused", "unplugged::further_clients_are_refused_at_once_for_as_long_as_the_pipe_lives", ""),
    ("AddrInUse", "unplugged::a_port_in_use_is_told_and_a_way_out", ""),
    ("Encode", "src/pipe/tests/messages::what_cannot_be_sent_changes_nothing", ""),
    ("Decode", "src/pipe/tests/hostile::metadata_that_are_no_metadata", ""),
    ("Protocol", "stateless::the_modes_must_agree", ""),
    ("Transport", "src/pipe/tests/ending::a_send_that_fails_is_final", ""),
    ("Setup", "unplugged::an_address_of_another_host_cannot_be_listened_on", ""),
    ("Options", "unplugged::a_device_that_this_build_does_not_have", ""),
    ("Unsupported", "src/pipe/tests/ending::a_python_peer_knows_no_end_of_one_direction", ""),
    ("Forked", "env::in_a_forked_child_every_call_is_an_error_and_drop_does_nothing", "this process is a fork"),
];

#[test]
fn every_error_of_a_pipe_has_a_test() {
    for (error, test, mark) in ERRORS {
        let source = source_of(test).unwrap_or_else(|| panic!("{error}: no test {test}"));
        let known = if mark.is_empty() { source.contains(&format!("Error::{error}")) } else { source.contains(mark) };
        assert!(known, "{error}: not in {test}");
    }
    let listed: BTreeSet<_> = ERRORS.iter().map(|(error, ..)| (*error).to_owned()).collect();
    assert_eq!(listed, variants::of(include_str!("../src/error.rs"), "Error"));
}
