//! The library that was loaded, which need not be the one that was linked with: same soname, another version.

use std::ffi::{CStr, CString};
use std::io::{self, Write as _};
use std::ptr;

use ucx_sys::*;

#[test]
fn loaded_version_is_not_older_than_the_bindings() {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: the three may be written to.
    unsafe { ucp_get_version(&mut major, &mut minor, &mut release) };
    // SAFETY: takes nothing.
    let text = unsafe { ucp_get_version_string() };
    // SAFETY: a C string, which lives as long as the library.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    writeln!(io::stderr(), "library: UCX {text}, bindings {UCP_API_MAJOR}.{UCP_API_MINOR}").expect("stderr is open");
    assert!(text.starts_with(&format!("{major}.{minor}.{release}")), "{text}");
    assert!(UCP_VERSION(major, minor) >= UCP_API_VERSION, "{text}");
}

/// Later versions drop nothing the bindings name, deprecated or not.
#[test]
fn every_function_is_in_the_loaded_library() {
    let functions: Vec<&str> = include_str!("../src/bindings.rs")
        .lines()
        .filter_map(|line| Some(line.trim().strip_prefix("pub fn ")?.split_once('(')?.0))
        .collect();
    assert!(functions.len() > 80, "only {} functions found: has bindgen changed their form?", functions.len());
    let missing: Vec<_> = functions
        .into_iter()
        .filter(|name| {
            let name = CString::new(*name).expect("names have no zero byte");
            // SAFETY: a C string and the handle for what the program has loaded; the address is not called.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A context and a worker come and go, which takes `ucp_init`'s twin and the structs through the library.
#[test]
fn context_and_worker() {
    let params = ucp_params_t {
        field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
        features: u64::from(UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP),
        ..Default::default()
    };
    let mut context = ptr::null_mut();
    // SAFETY: the mask names the one field that is filled in, no configuration means the default.
    check(unsafe { ucp_init(&params, ptr::null(), &mut context) });

    let params = ucp_worker_params_t {
        field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
        thread_mode: UCS_THREAD_MODE_SERIALIZED,
        ..Default::default()
    };
    let mut worker = ptr::null_mut();
    // SAFETY: as above, in a context that lives.
    check(unsafe { ucp_worker_create(context, &params, &mut worker) });
    let mut fd = -1;
    // SAFETY: the worker lives, and its context has the wakeup feature.
    check(unsafe { ucp_worker_get_efd(worker, &mut fd) });
    assert!(fd >= 0);

    // SAFETY: nothing is in flight; the worker goes before its context.
    unsafe { ucp_worker_destroy(worker) };
    // SAFETY: its only worker is gone.
    unsafe { ucp_cleanup(context) };
}

#[test]
fn configuration_takes_what_it_knows() {
    let mut config = ptr::null_mut();
    // SAFETY: null stands for the default prefix and for no file.
    check(unsafe { ucp_config_read(ptr::null(), ptr::null(), &mut config) });
    // SAFETY: the configuration has just been read; the strings end in zero.
    check(unsafe { ucp_config_modify(config, c"TLS".as_ptr(), c"self,tcp".as_ptr()) });
    // SAFETY: it is released once.
    unsafe { ucp_config_release(config) };
}

#[track_caller]
fn check(status: ucs_status_t) {
    // SAFETY: any number may be asked for.
    let text = unsafe { ucs_status_string(status) };
    // SAFETY: a C string, which nobody writes to before it is printed here.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(status, UCS_OK, "{text:?}");
}
