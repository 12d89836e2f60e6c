//! A resolver that hangs. In a file, and so in a program, of its own: it takes the place of libc's.
#![cfg(feature = "ucx")]

mod common;

use std::ffi::{c_char, c_int, CStr};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::Watchdog;
use tensordict_pipe::{Error, Phase, Pipe, Server};

const MOMENT: Duration = Duration::from_millis(50);

/// The names that it was asked for.
static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Never answers.
#[no_mangle]
extern "C" fn getaddrinfo(
    node: *const c_char,
    _service: *const c_char,
    _hints: *const libc::addrinfo,
    _found: *mut *mut libc::addrinfo,
) -> c_int {
    // SAFETY: std passes a name.
    let name = unsafe { CStr::from_ptr(node) };
    ASKED.lock().expect("no panic").push(name.to_string_lossy().into_owned());
    loop {
        thread::park();
    }
}

#[test]
fn the_deadline_of_resolve() {
    let _watchdog = Watchdog::new();
    let options = Pipe::options().connect_timeout(MOMENT);
    let named = |name| options.clone().bind(name);
    let calls: [(&str, &dyn Fn() -> Error); 4] = [
        ("peer.test", &|| options.connect("peer.test", 1).expect_err("no answer")),
        ("pipe.test", &|| named("pipe.test").listen(0).expect_err("no answer")),
        ("port.test", &|| named("port.test").listener(0).expect_err("no answer")),
        ("server.test", &|| named("server.test").server(0).expect_err("no answer")),
    ];
    for (name, call) in calls {
        let start = Instant::now();
        let error = call();
        assert!(start.elapsed() >= MOMENT);
        assert!(matches!(error, Error::Timeout { phase: Phase::Resolve, .. }), "{error:?}");
        assert!(error.to_string().starts_with(&format!("resolve {name}: no success within")), "{error}");
    }
    assert_eq!(*ASKED.lock().expect("no panic"), calls.map(|(name, _)| name));
    // Addresses need no resolver.
    Server::bind("127.0.0.1", 0).expect("a free port");
}
