//! Finds libucp: asks `UCX_DIR`, then pkg-config, and otherwise says what was tried and how to install it.
//!
//! UCX is never built here: it belongs to the machine, as do the drivers it talks to. Its headers are not needed, for
//! the bindings are checked in.

use std::env;
use std::path::Path;
use std::process::{exit, Command};

/// The oldest UCX whose library has everything the bindings name.
const MIN_VERSION: &str = "1.13";

/// Shared libraries of UCX, in the order in which they need each other. Ours is ucp; the others are named as pkg-config
/// names them, as not every linker follows the needs of a library it is given.
const LIBRARIES: [&str; 4] = ["ucp", "uct", "ucs", "ucm"];

/// Everything the outcome depends on, `PKG_CONFIG*` being read by pkg-config itself.
const VARIABLES: [&str; 6] =
    ["UCX_DIR", "DOCS_RS", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in VARIABLES {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    // Documentation is made without linking, on machines without UCX.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    let os = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os != "linux" {
        fail(&format!("UCX runs on Linux only, and this is a build for {os}: leave the feature `ucx` out there."));
    }

    let found = match env::var("UCX_DIR") {
        // Whoever names a folder means it: no second choice behind their back.
        Ok(root) => from_folder(&root).map_err(|why| [why, "pkg-config: not asked, as UCX_DIR is set".to_owned()]),
        Err(_) => from_pkg_config().map_err(|why| ["UCX_DIR: not set".to_owned(), why]),
    };
    match found {
        Ok(link) => link.print(),
        Err(tried) => fail(&not_found(&tried)),
    }
}

/// Flags for the linker, and where UCX's headers are for tests/abi.rs.
struct Link {
    folders: Vec<String>,
    libraries: Vec<String>,
    include: String,
}

impl Link {
    fn print(&self) {
        for folder in &self.folders {
            println!("cargo:rustc-link-search=native={folder}");
        }
        for library in &self.libraries {
            println!("cargo:rustc-link-lib={library}");
        }
        // Not UCX_*: cargo sets it for the tests too, and UCX warns of every variable it does not know.
        println!("cargo:rustc-env=LIBUCP_HEADERS={}", self.include);
    }
}

/// The folder that holds `lib/libucp.so` (or `lib64`), be it a prefix of `make install` or the `libucx` of a pip wheel.
fn from_folder(root: &str) -> Result<Link, String> {
    let lib = ["lib", "lib64"]
        .map(|lib| Path::new(root).join(lib))
        .into_iter()
        .find(|lib| lib.join("libucp.so").exists())
        .ok_or_else(|| format!("UCX_DIR={root}: no libucp.so in its lib or lib64"))?;
    Ok(Link {
        folders: vec![lib.display().to_string()],
        libraries: LIBRARIES.map(str::to_owned).into(),
        include: Path::new(root).join("include").display().to_string(),
    })
}

/// Whatever pkg-config says of `ucx`, which names uct, ucs and ucm as required by it.
fn from_pkg_config() -> Result<Link, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let ask = |arguments: &[&str]| {
        let tried = format!("{program} {}", arguments.join(" "));
        let output = Command::new(&program)
            .args(arguments)
            .output()
            .map_err(|error| format!("{tried}: cannot run it: {error}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "\n      ");
            Err(format!("{tried}:\n      {}", if said.is_empty() { "failed and said nothing" } else { &said }))
        }
    };

    ask(&["--print-errors", "--exists", &format!("ucx >= {MIN_VERSION}")])?;
    let flags = ask(&["--libs", "ucx"])?;
    let flagged = |prefix| flags.split_whitespace().filter_map(move |flag| flag.strip_prefix(prefix));
    // The folder of a system library is left out of --libs, rightly: the linker looks there anyhow.
    let folders = flagged("-L").map(str::to_owned).collect();
    let mut libraries: Vec<String> = flagged("-l").map(str::to_owned).collect();
    for library in LIBRARIES {
        if !libraries.iter().any(|known| known == library) {
            libraries.push(library.to_owned());
        }
    }
    Ok(Link { folders, libraries, include: ask(&["--variable=includedir", "ucx"])? })
}

fn not_found(tried: &[String]) -> String {
    let tried: String = tried.iter().map(|line| format!("  - {line}\n")).collect();
    format!(
        "no UCX {MIN_VERSION} or later to link with.

Tried:
{tried}
To install it:
  Debian, Ubuntu   apt-get install libucx-dev
  Fedora, RHEL     dnf install ucx-devel
  conda            conda install -c conda-forge ucx, then set UCX_DIR=$CONDA_PREFIX
  pip              pip install libucx-cu12 (or -cu13), then set
                   UCX_DIR=$(python -c 'import libucx, os; print(os.path.dirname(libucx.__file__))')
  elsewhere        set UCX_DIR to the folder whose lib/ holds libucp.so,
                   or PKG_CONFIG_PATH to the one that holds ucx.pc

At run time a libucp.so outside the system's folders is found by LD_LIBRARY_PATH."
    )
}

/// Ends the build with a message of our own rather than a panic's.
fn fail(message: &str) -> ! {
    eprintln!("\nucx-sys: {message}\n");
    exit(1);
}
