//! What the build script answers on machines unlike this one, and what it says where there is no UCX.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

#[test]
fn names_what_it_tried_and_how_to_install() {
    let output = build(&[("PKG_CONFIG_PATH", "/nonexistent"), ("PKG_CONFIG_LIBDIR", "/nonexistent")]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    for part in ["UCX_DIR: not set", "pkg-config", "ucx >= 1.13", "apt-get install libucx-dev", "dnf install ucx-devel"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn says_when_pkg_config_itself_is_missing() {
    let output = build(&[("PKG_CONFIG", "/nonexistent/pkg-config")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/pkg-config --print-errors"), "{}", stderr(&output));
}

#[test]
fn refuses_a_version_that_is_too_old() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return; // the test above is all that can be seen here
    }
    let folder = folder("old");
    fs::write(folder.join("ucx.pc"), "Name: ucx\nDescription: old\nVersion: 1.12.1\nLibs: -lucp\n").expect("writable");
    let folder = folder.to_str().expect("utf-8");
    let output = build(&[("PKG_CONFIG_PATH", folder), ("PKG_CONFIG_LIBDIR", folder)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1.12.1"), "{}", stderr(&output));
}

#[test]
fn takes_the_folder_it_is_given() {
    for lib in ["lib", "lib64"] {
        let root = folder(lib);
        fs::create_dir_all(root.join(lib)).expect("writable");
        fs::write(root.join(lib).join("libucp.so"), "").expect("writable");
        let output = build(&[("UCX_DIR", root.to_str().expect("utf-8"))]);
        assert!(output.status.success(), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("cargo:rustc-link-search=native={}", root.join(lib).display())), "{said}");
        for library in ["ucp", "uct", "ucs", "ucm"] {
            assert!(said.contains(&format!("cargo:rustc-link-lib={library}\n")), "{library}: {said}");
        }
    }
}

#[test]
fn a_wrong_folder_is_not_replaced_by_another() {
    let output = build(&[("UCX_DIR", "/nonexistent")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("UCX_DIR=/nonexistent: no libucp.so"), "{}", stderr(&output));
}

#[test]
fn other_systems_are_refused_in_a_sentence() {
    let output = build(&[("CARGO_CFG_TARGET_OS", "macos")]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    assert!(said.contains("Linux only") && said.contains("macos"), "{said}");
}

#[test]
fn documentation_needs_no_ucx() {
    let output = build(&[("DOCS_RS", "1"), ("UCX_DIR", "/nonexistent"), ("CARGO_CFG_TARGET_OS", "macos")]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("rustc-link"));
}

/// Runs the build script in an environment that has nothing but a PATH and these variables.
fn build(variables: &[(&str, &str)]) -> Output {
    static SCRIPT: OnceLock<PathBuf> = OnceLock::new();
    let script = SCRIPT.get_or_init(|| {
        let script = folder("script").join("build");
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let status = Command::new(rustc).arg("--edition=2021").arg(source).arg("-o").arg(&script).status();
        assert!(status.expect("rustc runs").success());
        script
    });
    let mut command = Command::new(script);
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).env("CARGO_CFG_TARGET_OS", "linux");
    command.envs(variables.iter().copied()).output().expect("the build script runs")
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("build-script-{name}"));
    fs::create_dir_all(&folder).expect("the folder for tests' files can be written to");
    folder
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
