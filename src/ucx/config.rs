//! [`Settings`]: the UCX settings of a context, by UCX's own names.
//!
//! UCX reads its settings from the environment (`UCX_...`). Ours are written into our own copy of that configuration,
//! never into the environment, and a default of ours never replaces what the user has put there.

use std::ffi::CString;
use std::ptr;

use super::context::loaded_version;
use super::error::UcxError;
use super::status::{check, Status};

/// Settings that make a pipe fast: the variable without `UCX_`, the name that versions before 1.14 understand in
/// `ucp_config_modify` (they know a transport's settings only by their bare names), and the value. Each is skipped if
/// the environment sets it.
const DEFAULTS: &[(&str, &str, &str)] = &[
    // Without it UCX leaves shared memory out as soon as peer failures are to be reported, and one host means TCP.
    ("MM_ERROR_HANDLING", "MM_ERROR_HANDLING", "y"),
    // 8 kB by default; large segments are several times faster over TCP.
    ("TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "256k"),
    ("TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "256k"),
];

/// What the user asked for; two pipes with equal settings share a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Name without `UCX_`, value; later ones win.
    pub(crate) chosen: Vec<(String, String)>,
}

/// A `ucp_config_t`, released on drop.
#[derive(Debug)]
pub(crate) struct Config {
    raw: *mut ucx_sys::ucp_config_t,
}

impl Config {
    /// Reads the environment, then our defaults where it is silent, then the user's settings.
    pub(crate) fn read(settings: &Settings) -> Result<Self, UcxError> {
        let mut raw = ptr::null_mut();
        // SAFETY: null prefix and file mean the defaults; `raw` receives the configuration.
        check("ucp_config_read", unsafe { ucx_sys::ucp_config_read(ptr::null(), ptr::null(), &mut raw) })?;
        let config = Self { raw };
        for (name, bare, value) in DEFAULTS {
            let chosen = settings.chosen.iter().any(|(n, _)| n == name);
            if !chosen && std::env::var_os(format!("UCX_{name}")).is_none() {
                let known_as = if loaded_version() < (1, 14) { bare } else { name };
                // A version that does not know the name is no error: it is only slower.
                if let Err(error) = config.modify(known_as, value) {
                    log::debug!("default not applied: {error}");
                }
            }
        }
        for (name, value) in &settings.chosen {
            config.modify(name.strip_prefix("UCX_").unwrap_or(name), value)?;
        }
        Ok(config)
    }

    fn modify(&self, name: &str, value: &str) -> Result<(), UcxError> {
        let c_name = CString::new(name).map_err(|_| UcxError::SettingText(name.to_owned()))?;
        let c_value = CString::new(value).map_err(|_| UcxError::SettingText(value.to_owned()))?;
        // SAFETY: a live configuration and two C strings that UCX copies.
        let status = Status(unsafe { ucx_sys::ucp_config_modify(self.raw, c_name.as_ptr(), c_value.as_ptr()) });
        if status.is_ok() {
            Ok(())
        } else {
            Err(UcxError::Setting { name: name.to_owned(), value: value.to_owned(), status })
        }
    }

    pub(super) fn as_ptr(&self) -> *const ucx_sys::ucp_config_t {
        self.raw
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read in `read`, released once.
        unsafe { ucx_sys::ucp_config_release(self.raw) }
    }
}
