//! [`Context`]: a UCP context, shared by all pipes of the process that have the same settings.

use std::ffi::CStr;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::config::{Config, Settings};
use super::error::UcxError;
use super::status::Status;

/// The oldest UCX whose API this crate was compiled for.
const COMPILED: (u32, u32) = (ucx_sys::UCP_API_MAJOR, ucx_sys::UCP_API_MINOR);

#[derive(Debug)]
pub(crate) struct Context {
    raw: ucx_sys::ucp_context_h,
    settings: Settings,
}

// SAFETY: a context made with `mt_workers_shared` may be used by any thread (UCX's own lock).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Contexts that are alive. A context takes milliseconds and megabytes, so pipes share.
static SHARED: Mutex<Vec<(Settings, Weak<Context>)>> = Mutex::new(Vec::new());

impl Context {
    /// The context for these settings: the one in use, or a new one.
    pub(crate) fn shared(settings: &Settings) -> Result<Arc<Self>, UcxError> {
        let mut shared = SHARED.lock();
        shared.retain(|(_, context)| context.strong_count() > 0);
        if let Some(context) = shared.iter().find(|(s, _)| s == settings).and_then(|(_, c)| c.upgrade()) {
            return Ok(context);
        }
        let context = Arc::new(Self::new(settings)?);
        shared.push((settings.clone(), Arc::downgrade(&context)));
        Ok(context)
    }

    fn new(settings: &Settings) -> Result<Self, UcxError> {
        super::fork::watch();
        check_version()?;
        let config = Config::read(settings)?;
        let features = ucx_sys::UCP_FEATURE_TAG | ucx_sys::UCP_FEATURE_STREAM | ucx_sys::UCP_FEATURE_WAKEUP;
        let params = ucx_sys::ucp_params_t {
            field_mask: u64::from(ucx_sys::UCP_PARAM_FIELD_FEATURES | ucx_sys::UCP_PARAM_FIELD_MT_WORKERS_SHARED),
            features: u64::from(features),
            mt_workers_shared: 1,
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: filled parameters, a live configuration, and a place for the result.
        let status = Status(unsafe { ucx_sys::ucp_init(&params, config.as_ptr(), &mut raw) });
        match status {
            Status::OK => Ok(Self { raw, settings: settings.clone() }),
            Status::NO_DEVICE => Err(no_transport(status, settings)),
            status => Err(UcxError::Status { operation: "ucp_init", status }),
        }
    }

    pub(super) fn as_ptr(&self) -> ucx_sys::ucp_context_h {
        self.raw
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !super::fork::in_child() {
            // SAFETY: every worker holds the context, so none is left.
            unsafe { ucx_sys::ucp_cleanup(self.raw) }
        }
    }
}

pub(super) fn no_transport(status: Status, settings: &Settings) -> UcxError {
    let setting = |name: &str| settings.effective(name).unwrap_or_else(|| "unset".to_owned());
    UcxError::NoTransport { status, tls: setting("TLS"), devices: setting("NET_DEVICES") }
}

/// The version of the UCX that is loaded, such as `1.21.0`.
pub(crate) fn loaded_version_text() -> String {
    // SAFETY: returns a static string.
    let text = unsafe { ucx_sys::ucp_get_version_string() };
    // SAFETY: a NUL-terminated static string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// The major and minor version of the UCX that is loaded.
pub(super) fn loaded_version() -> (u32, u32) {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: writes three numbers.
    unsafe { ucx_sys::ucp_get_version(&mut major, &mut minor, &mut release) };
    (major, minor)
}

/// A newer minor version keeps the ABI (same soname); an older one lacks functions, another major one is unknown.
fn check_version() -> Result<(), UcxError> {
    let (major, minor) = COMPILED;
    fits(loaded_version()).then_some(()).ok_or_else(|| UcxError::Version {
        loaded: loaded_version_text(),
        major,
        minor,
    })
}

fn fits((major, minor): (u32, u32)) -> bool {
    major == COMPILED.0 && minor >= COMPILED.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_minor_versions_fit_and_nothing_else() {
        let (major, minor) = COMPILED;
        assert!(fits((major, minor)) && fits((major, minor + 8)));
        assert!(!fits((major, minor - 1)) && !fits((major + 1, minor)) && !fits((major - 1, minor)));
    }

    #[test]
    fn equal_settings_share_a_context() {
        let a = Context::shared(&Settings::default()).expect("context");
        let b = Context::shared(&Settings::default()).expect("context");
        assert!(Arc::ptr_eq(&a, &b));
        let tcp = Settings::new(vec![("TLS".into(), "tcp".into())]);
        assert!(!Arc::ptr_eq(&a, &Context::shared(&tcp).expect("context")));
    }
}
