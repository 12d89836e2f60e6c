//! What the environment does to a pipe: variables of UCX, a missing library, a fork. Each in a process of its own.
#![cfg(feature = "ucx")]

mod common {
    #[allow(dead_code)] // each test file uses a part
    pub(crate) mod child;
}

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::child::{role, say, Child};
use tensordict_pipe::{Error, Pipe, TensorDict};

/// What a pair of pipes in a process with these variables says: its transports, or the error.
fn pair_with(env: &[(&str, &str)]) -> String {
    let child = Child::start("pair", "", env);
    let said = child.hear();
    child.succeed();
    println!("{env:?}: {said}");
    said
}

#[test]
fn shared_memory_is_the_default_on_one_host() {
    let said = pair_with(&[]);
    assert!(said.contains("/memory") && !said.contains("tcp/"), "{said}");
}

#[test]
fn the_users_transports_are_respected() {
    let said = pair_with(&[("UCX_TLS", "tcp")]);
    assert!(said.starts_with("tcp/"), "{said}");
    let said = pair_with(&[("UCX_TLS", "tcp,posix")]);
    assert_eq!(said, "posix/memory");
}

#[test]
fn the_users_settings_come_before_our_presets() {
    // With it off, UCX leaves shared memory out.
    let said = pair_with(&[("UCX_MM_ERROR_HANDLING", "n")]);
    assert!(said.starts_with("tcp/"), "{said}");
}

#[test]
fn transports_that_do_not_exist_are_named() {
    let said = pair_with(&[("UCX_TLS", "foo")]);
    for part in ["cannot set up UCX", "UCX_TLS is foo", "unset", "ucx_info -d"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn devices_that_do_not_exist_are_named() {
    let said = pair_with(&[("UCX_NET_DEVICES", "eth99"), ("UCX_TLS", "tcp")]);
    for part in ["cannot set up UCX", "UCX_NET_DEVICES is eth99"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn an_option_comes_before_the_environment() {
    let child = Child::start("tcp-pair", "", &[("UCX_TLS", "foo")]);
    let said = child.hear();
    assert!(said.starts_with("tcp/"), "{said}");
    child.succeed();
}

#[test]
fn we_set_no_variables() {
    let child = Child::start("variables", "", &[]);
    let (before, after) = (child.hear(), child.hear());
    assert_eq!(before, after);
    child.succeed();
}

#[test]
fn without_libucp_the_loader_names_it() {
    // A copy of this program that needs another libucp, which nobody has.
    let mut program = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
    let name = b"\0libucp.so.0\0";
    let place = program.windows(name.len()).position(|bytes| bytes == name).expect("it needs libucp");
    program[place + name.len() - 2] = b'X';
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without-libucp");
    std::fs::write(&path, program).expect("writable");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("writable");
    let output = Command::new(path).output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    assert!(!output.status.success());
    assert!(said.contains("error while loading shared libraries: libucp.so.X"), "{said}");
}

#[test]
fn in_a_forked_child_every_call_is_an_error_and_drop_does_nothing() {
    let child = Child::start("fork", "", &[]);
    for call in ["send", "recv", "try_recv", "close", "listen", "connect"] {
        let said = child.hear();
        println!("{said}");
        assert!(said.starts_with(&format!("{call}: this process is a fork")), "{said}");
    }
    assert_eq!(child.hear(), "dropped");
    assert_eq!(child.hear(), "the parent's pipe goes on");
    child.succeed();
}

/// The roles of children.
#[test]
#[ignore = "what the children of other tests run"]
fn child() {
    let Some((role, _)) = role() else { return };
    let variables = || format!("{:?}", std::env::vars().collect::<Vec<_>>());
    match role.as_str() {
        "pair" => say_transports(pair(&[])),
        "tcp-pair" => say_transports(pair(&[("TLS", "tcp")])),
        "variables" => {
            say(variables());
            part(pair(&[]).expect("a pair"));
            say(variables());
        }
        "fork" => fork(),
        _ => panic!("no role {role}"),
    }
}

fn say_transports(pair: Result<(Pipe, Pipe), Error>) {
    match pair {
        Ok(pair) => {
            say(pair.0.transports().join(" "));
            part(pair);
        }
        Err(error) => say(error),
    }
}

/// Closes both ends, which wait for each other.
fn part((a, b): (Pipe, Pipe)) {
    let other = thread::spawn(move || a.close());
    b.close().expect("closed");
    other.join().expect("no panic").expect("closed");
}

/// Both ends of a pipe.
fn pair(settings: &[(&str, &str)]) -> Result<(Pipe, Pipe), Error> {
    let mut options = Pipe::options().bind("127.0.0.1").connect_timeout(Duration::from_secs(10));
    for (name, value) in settings {
        options = options.ucx(*name, *value);
    }
    let listening = options.listener(0)?;
    let port = listening.local_addr().port();
    let client = thread::spawn(move || options.connect("127.0.0.1", port));
    let server = listening.accept()?;
    Ok((server, client.join().expect("no panic")?))
}

#[allow(unsafe_code)]
fn fork() {
    let (mut a, mut b) = pair(&[]).expect("a pair");
    let td = TensorDict::new([7]);
    // SAFETY: the child calls only the pipe, prints and leaves; no lock of another thread is held, as there is none
    // that does anything.
    if unsafe { libc::fork() } == 0 {
        let show = |call: &str, result: Result<(), Error>| match result {
            Ok(()) => say(format_args!("{call}: no error")),
            Err(error) => say(format_args!("{call}: {error}")),
        };
        show("send", a.send(&td));
        show("recv", b.recv().map(drop));
        show("try_recv", b.try_recv().map(drop));
        show("close", a.close());
        show("listen", Pipe::listen(0).map(drop));
        show("connect", Pipe::connect("127.0.0.1", 1).map(drop));
        drop(b);
        say("dropped");
        // SAFETY: ends the process without destructors.
        unsafe { libc::_exit(0) }
    }
    let mut status = 0;
    // SAFETY: waits for the only child.
    unsafe { libc::wait(&mut status) };
    assert_eq!(status, 0);
    a.send(&td).expect("send");
    assert_eq!(b.recv().expect("recv").batch_size()[..], [7]);
    say("the parent's pipe goes on");
    part((a, b));
}
