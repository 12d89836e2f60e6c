//! Holds the bindings against the headers of the UCX that is installed, by a C program that prints what the C compiler
//! makes of them: sizes, offsets, constants and macros.
//!
//! `src/bindings.rs` carries the numbers of its own layout as compile-time assertions. So rustc has already proved the
//! Rust side equal to these numbers, and they are read from the text here: there is no second list that could miss a
//! field. The headers may be newer than the bindings; then a struct may have grown at its end, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use ucx_sys::*;

const BINDINGS: &str = include_str!("../src/bindings.rs");

/// Constants that mean "the end of the list" or the version, and so move with it.
const MOVES_WITH_VERSION: [&str; 3] = ["UCP_API_MINOR", "UCS_MEMORY_TYPE_LAST", "UCS_MEMORY_TYPE_UNKNOWN"];

/// What to print in C, as an expression of an integer type, and what Rust holds it to be.
struct Check {
    expression: String,
    rust: i128,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Equal whatever the version.
    Fixed,
    /// Equal for headers of the version of the bindings, at least as large in later ones.
    Grows,
    /// Equal for headers of the version of the bindings.
    Versioned,
}

impl Check {
    fn new(expression: impl Into<String>, rust: impl TryInto<i128>, kind: Kind) -> Self {
        let rust = rust.try_into().unwrap_or_else(|_| unreachable!("no integer here is that large"));
        Self { expression: expression.into(), rust, kind }
    }

    fn holds(&self, c: i128, same_version: bool) -> bool {
        match self.kind {
            Kind::Grows if !same_version => c >= self.rust,
            Kind::Versioned if !same_version => true,
            _ => c == self.rust,
        }
    }
}

#[test]
fn layout_and_constants_are_those_of_the_installed_headers() {
    let include = match headers() {
        Ok(include) => include,
        Err(why) => return skip(&why),
    };
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if let Err(error) = Command::new(&compiler).arg("--version").output() {
        return skip(&format!("no C compiler: {compiler}: {error} (set CC to name another)"));
    }

    let version = ask(&compiler, &include, "version", &["UCP_API_MAJOR".into(), "UCP_API_MINOR".into()]);
    let (major, minor) = (version[0], version[1]);
    let same_version = (major, minor) == (i128::from(UCP_API_MAJOR), i128::from(UCP_API_MINOR));
    assert!(
        (major, minor) >= (i128::from(UCP_API_MAJOR), i128::from(UCP_API_MINOR)),
        "UCX {major}.{minor} is older than the bindings"
    );

    let mut checks = layouts();
    checks.extend(integer_types());
    checks.extend(constants());
    checks.extend(macros());
    if (major, minor) >= (1, 14) {
        checks.extend(later());
    }
    let expressions: Vec<String> = checks.iter().map(|check| check.expression.clone()).collect();
    let wrong: String = checks
        .iter()
        .zip(ask(&compiler, &include, "probe", &expressions))
        .filter(|&(check, c)| !check.holds(c, same_version))
        .map(|(check, c)| format!("\n  {}: C {c}, Rust {}", check.expression, check.rust))
        .collect();
    assert!(wrong.is_empty(), "not as in the headers of UCX {major}.{minor} in {}:{wrong}", include.display());
    say(&format!("{} facts hold in the headers of UCX {major}.{minor} in {}", checks.len(), include.display()));
}

/// Sizes, alignments and offsets of every struct and union, from the assertions in the bindings.
fn layouts() -> Vec<Check> {
    // An assertion may be wrapped; none holds a semicolon but at its end.
    let text = BINDINGS.split_whitespace().collect::<Vec<_>>().join(" ");
    let unnamed = unnamed_types();
    let c_type = |name: &str| match unnamed.get(name) {
        Some((parent, field)) => format!("__typeof__((({parent} *)0)->{field})", parent = named(parent, "struct")),
        None => named(name, "struct"),
    };
    let mut checks = Vec::new();
    for assertion in text.split("[\"").skip(1) {
        let (what, rest) = assertion.split_once("\"]").expect("an assertion names what it asserts");
        let (_, number) = rest.split_once(" - ").expect("an assertion subtracts the number");
        let (number, _) = number.split_once("usize").expect("the number is a usize");
        let number: i128 = number.parse().expect("the number is one");
        checks.push(match what.split_once(' ') {
            Some(("Size", name)) => {
                let name = name.trim_start_matches("of ");
                // The unions hold pointers and integers, which cannot grow; what an array is made of must not.
                let kind = if unnamed.contains_key(name) || name == "ucp_dt_iov" { Kind::Fixed } else { Kind::Grows };
                Check::new(format!("sizeof({})", c_type(name)), number, kind)
            }
            Some(("Alignment", name)) => {
                Check::new(format!("__alignof__({})", c_type(name.trim_start_matches("of "))), number, Kind::Fixed)
            }
            Some(("Offset", field)) => {
                let (name, field) =
                    field.trim_start_matches("of field: ").split_once("::").expect("a field belongs to a struct");
                // bindgen evades Rust's keywords by an underscore.
                let field = field.strip_suffix('_').unwrap_or(field);
                Check::new(format!("offsetof({}, {field})", c_type(name)), number, Kind::Fixed)
            }
            _ => panic!("an assertion of a kind unknown here: {what}"),
        });
    }
    assert!(checks.len() > 150, "only {} assertions found: has bindgen changed their form?", checks.len());
    checks
}

/// The types that have no name in C, and the field they are the type of.
fn unnamed_types() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    BINDINGS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.strip_suffix(',')?.split_once(": "))
        .filter_map(|(field, name)| Some((name, (name.split_once("__bindgen_ty_")?.0, field))))
        .collect()
}

/// Size and sign of every type that is an integer in Rust.
fn integer_types() -> Vec<Check> {
    let aliases = BINDINGS.lines().filter_map(|line| line.strip_prefix("pub type ")?.strip_suffix(';'));
    let mut checks = Vec::new();
    for (name, target) in aliases.filter_map(|alias| alias.split_once(" = ")) {
        let (size, signed) = match target.trim_start_matches("::core::ffi::") {
            "c_schar" => (size_of::<std::ffi::c_schar>(), true),
            "c_uint" => (size_of::<std::ffi::c_uint>(), false),
            "c_ulong" => (size_of::<std::ffi::c_ulong>(), false),
            "u64" => (size_of::<u64>(), false),
            _ => continue,
        };
        if !name.starts_with("_bindgen_ty_") {
            let c = named(name, "enum");
            checks.push(Check::new(format!("sizeof({c})"), size, Kind::Fixed));
            checks.push(Check::new(format!("({c})-1 < 0"), i128::from(signed), Kind::Fixed));
        }
    }
    let status = checks.iter().find(|check| check.expression == "sizeof(ucs_status_t)");
    assert_eq!(status.expect("the status is an integer").rust, 1);
    checks
}

/// Every constant.
fn constants() -> Vec<Check> {
    let constants = BINDINGS.lines().filter_map(|line| line.strip_prefix("pub const ")?.strip_suffix(';'));
    let checks: Vec<_> = constants
        .filter_map(|constant| {
            let (name, rest) = constant.split_once(": ")?;
            let (_, value) = rest.split_once(" = ")?;
            let kind = if MOVES_WITH_VERSION.contains(&name) { Kind::Versioned } else { Kind::Fixed };
            Some(Check::new(name, value.parse::<i128>().expect("constants are integers"), kind))
        })
        .collect();
    assert!(checks.len() > 150, "only {} constants found: has bindgen changed their form?", checks.len());
    checks
}

/// The twins in `src/inline.rs`, over statuses and addresses from all over their ranges.
fn macros() -> Vec<Check> {
    let fixed = |expression: String, rust: i128| Check::new(expression, rust, Kind::Fixed);
    let mut checks = vec![
        fixed("UCP_VERSION(1, 21)".into(), UCP_VERSION(1, 21).into()),
        fixed("ucp_dt_make_iov()".into(), ucp_dt_make_iov().into()),
        Check::new("UCP_API_VERSION", UCP_API_VERSION, Kind::Versioned),
    ];
    for size in [1, 3, 8, 4096, 1 << 40] {
        checks.push(fixed(format!("ucp_dt_make_contig({size}ul)"), ucp_dt_make_contig(size).into()));
    }
    for bit in [0, 1, 31, 32, 63] {
        checks.push(fixed(format!("UCS_BIT({bit})"), UCS_BIT(bit).into()));
        checks.push(fixed(format!("UCS_MASK({bit})"), UCS_MASK(bit).into()));
    }
    for status in -100..=1 {
        let c = format!("(ucs_status_t)({status})");
        checks.push(fixed(format!("UCS_STATUS_IS_ERR({c})"), UCS_STATUS_IS_ERR(status).into()));
        checks.push(fixed(format!("UCS_IS_LINK_ERROR({c})"), UCS_IS_LINK_ERROR(status).into()));
        checks.push(fixed(format!("UCS_IS_ENDPOINT_ERROR({c})"), UCS_IS_ENDPOINT_ERROR(status).into()));
        checks.push(fixed(format!("(uintptr_t)UCS_STATUS_PTR({c})"), UCS_STATUS_PTR(status).addr() as i128));
    }
    for address in (-130_isize..=300).chain([0x7f12_3456_7000, isize::MAX, isize::MIN]) {
        let ptr = std::ptr::without_provenance_mut(address as usize);
        let c = format!("(void *){:#x}ul", address as usize);
        checks.push(fixed(format!("UCS_PTR_IS_ERR({c})"), UCS_PTR_IS_ERR(ptr).into()));
        checks.push(fixed(format!("UCS_PTR_IS_PTR({c})"), UCS_PTR_IS_PTR(ptr).into()));
        checks.push(fixed(format!("UCS_PTR_RAW_STATUS({c})"), UCS_PTR_RAW_STATUS(ptr).into()));
        checks.push(fixed(format!("UCS_PTR_STATUS({c})"), UCS_PTR_STATUS(ptr).into()));
    }
    checks
}

/// `src/later.rs`, for headers that have it.
fn later() -> Vec<Check> {
    vec![
        Check::new("UCP_EP_ATTR_FIELD_TRANSPORTS", UCP_EP_ATTR_FIELD_TRANSPORTS, Kind::Fixed),
        Check::new("UCP_EP_ATTR_FIELD_USER_DATA", UCP_EP_ATTR_FIELD_USER_DATA, Kind::Fixed),
        Check::new("sizeof(ucp_ep_attr_t)", size_of::<ucp_ep_attr_1_14>(), Kind::Grows),
        Check::new("offsetof(ucp_ep_attr_t, transports)", offset_of!(ucp_ep_attr_1_14, transports), Kind::Fixed),
        Check::new("offsetof(ucp_ep_attr_t, user_data)", offset_of!(ucp_ep_attr_1_14, user_data), Kind::Fixed),
        Check::new("sizeof(ucp_transports_t)", size_of::<ucp_transports_t>(), Kind::Fixed),
        Check::new("offsetof(ucp_transports_t, entries)", offset_of!(ucp_transports_t, entries), Kind::Fixed),
        Check::new("offsetof(ucp_transports_t, num_entries)", offset_of!(ucp_transports_t, num_entries), Kind::Fixed),
        Check::new("offsetof(ucp_transports_t, entry_size)", offset_of!(ucp_transports_t, entry_size), Kind::Fixed),
        Check::new("sizeof(ucp_transport_entry_t)", size_of::<ucp_transport_entry_t>(), Kind::Grows),
        Check::new(
            "offsetof(ucp_transport_entry_t, transport_name)",
            offset_of!(ucp_transport_entry_t, transport_name),
            Kind::Fixed,
        ),
        Check::new(
            "offsetof(ucp_transport_entry_t, device_name)",
            offset_of!(ucp_transport_entry_t, device_name),
            Kind::Fixed,
        ),
    ]
}

/// How C spells a type of this name: bindgen gives a `struct x` the name `x`, and a typedef ends in `_t`, but for one.
fn named(name: &str, keyword: &str) -> String {
    if name.ends_with("_t") || name == "ucp_req_attr_field" {
        name.to_owned()
    } else {
        format!("{keyword} {name}")
    }
}

/// Where the build script found the headers.
fn headers() -> Result<PathBuf, String> {
    let include = option_env!("LIBUCP_HEADERS").ok_or("the build script looked for no UCX (DOCS_RS is set)")?;
    let header = Path::new(include).join("ucp/api/ucp.h");
    if header.exists() {
        Ok(include.into())
    } else {
        Err(format!("no headers: {} does not exist", header.display()))
    }
}

/// Compiles and runs a program that prints the value of each expression.
fn ask(compiler: &str, include: &Path, name: &str, expressions: &[String]) -> Vec<i128> {
    let mut source = "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <ucp/api/ucp.h>\n\
                      #define SAY(x) (((x) < 0) ? printf(\"-%llu\\n\", -(unsigned long long)(x)) \
                      : printf(\"%llu\\n\", (unsigned long long)(x)))\n"
        .to_owned();
    source.push_str("int main(void) {\n");
    for expression in expressions {
        writeln!(source, "    SAY({expression});").expect("a String takes everything");
    }
    source.push_str("    return 0;\n}\n");

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (program, file) = (folder.join(format!("abi-{name}")), folder.join(format!("abi-{name}.c")));
    fs::write(&file, source).expect("the folder for tests' files can be written to");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-w", "-I"]).arg(include).arg(&file).arg("-o").arg(&program);
    let compiled = command.output().expect("the compiler has run before");
    assert!(compiled.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().expect("the probe runs");
    assert!(output.status.success(), "{}: {}", program.display(), output.status);
    let values: Vec<i128> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("an integer")).collect();
    assert_eq!(values.len(), expressions.len());
    values
}

fn skip(why: &str) {
    say(&format!("SKIPPED, bindings not compared with C: {why}"));
}

/// Past the test harness, which shows the output of failures only.
fn say(text: &str) {
    writeln!(io::stderr(), "abi: {text}").expect("stderr is open");
}
