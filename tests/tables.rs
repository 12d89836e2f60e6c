//! The tables of the docs name tests; every one of them exists.
#![allow(missing_docs)]

use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
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
            let (file, test) = name.split_once("::").expect("just seen");
            let folder = if file.starts_with("src/") { "" } else { "tests/" };
            let source = fs::read_to_string(root().join(format!("{folder}{file}.rs")));
            let source = source.unwrap_or_else(|error| panic!("{page}: {row}: {name}: {error}"));
            let attribute = "#[test]\n";
            let there =
                source.split(attribute).skip(1).any(|rest| rest.trim_start().starts_with(&format!("fn {test}(")));
            let generated = source.contains("proptest!") && source.contains(&format!("fn {test}("));
            assert!(there || generated, "{page}: {row}: no test {name}");
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
