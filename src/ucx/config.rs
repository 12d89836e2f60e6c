//! [`Settings`]: the UCX settings of a context, by UCX's own names.
//!
//! UCX reads its settings from the environment (`UCX_...`). Ours are written into our own copy of that configuration,
//! never into the environment, and a default of ours never replaces what the user has put there.

use std::ffi::CString;
use std::net::SocketAddr;
use std::ptr;

use super::context::loaded_version;
use super::error::UcxError;
use super::status::{check, Status};

/// A setting that makes a pipe fast, and is safe with a peer that does not have it: UCX negotiates neither the
/// segment sizes of TCP nor the ring sizes of shared memory, and breaks if a sender's exceed the receiver's.
struct Preset {
    /// The variable without `UCX_`. If the environment sets it, that holds.
    name: &'static str,
    /// Variables that stand for this one, or decide it.
    also: &'static [&'static str],
    /// The name for `ucp_config_modify` before 1.14, which knows a transport's settings only by their bare names.
    bare: &'static str,
    /// The value before UCX 1.16, whose protocols were new, and the value since; `None` leaves UCX's own.
    old: Option<&'static str>,
    new: Option<&'static str>,
    /// The transports of which one must be allowed: UCX warns of settings that nothing reads.
    of: &'static [&'static str],
}

const SHARED_MEMORY: &[&str] = &["posix", "sysv", "xpmem"];
/// What else stands for them in `UCX_TLS`.
const SHARED_MEMORY_ALIASES: &[&str] = &["shm", "sm", "mm"];
const ANY: &[&str] = &[];
const TCP: &[&str] = &["tcp"];

const PRESETS: &[Preset] = &[
    // Without it UCX leaves shared memory out as soon as peer failures are to be reported, and one host means TCP.
    Preset {
        name: "MM_ERROR_HANDLING",
        also: &["POSIX_ERROR_HANDLING", "SYSV_ERROR_HANDLING"],
        bare: "MM_ERROR_HANDLING",
        old: Some("y"),
        new: Some("y"),
        of: SHARED_MEMORY,
    },
    // Receive buffers are made in batches of this many, not 512: a connection takes less than half the memory.
    Preset {
        name: "MM_RX_BUFS_GROW",
        also: &["POSIX_RX_BUFS_GROW", "SYSV_RX_BUFS_GROW"],
        bare: "MM_RX_BUFS_GROW",
        old: Some("128"),
        new: Some("128"),
        of: SHARED_MEMORY,
    },
    // 8 kB by default; four times slower at 20 kB. The default of the receiving end, 64 kB, is the most it may be.
    Preset {
        name: "TCP_TX_SEG_SIZE",
        also: &["TCP_RX_SEG_SIZE"],
        bare: "TX_SEG_SIZE",
        old: Some("64k"),
        new: Some("64k"),
        of: TCP,
    },
    // Otherwise a process aborts inside UCX if its peer dies between the handshake and the connect of the transport
    // (an assertion in `uct_tcp_ep_destroy_progress`), and waits in that connect for a host that does not answer.
    Preset { name: "TCP_CONN_NB", also: &[], bare: "CONN_NB", old: Some("y"), new: Some("y"), of: TCP },
    // UCX would send by rendezvous from 8 kB on, over TCP with every version, which is several times slower there.
    Preset { name: "RNDV_THRESH", also: &[], bare: "RNDV_THRESH", old: Some("512k"), new: Some("512k"), of: ANY },
    // As std's TcpListener does: otherwise a restarted listener finds its port in use for a minute.
    Preset { name: "TCP_CM_REUSEADDR", also: &[], bare: "CM_REUSEADDR", old: Some("y"), new: Some("y"), of: ANY },
];

/// Where shared memory may be used: otherwise a connection within a host has TCP lanes beside it, and each look at the
/// worker asks the kernel about them: 550 ns instead of 8. (TCP alone is faster with them.)
///
/// But a client without TCP lanes offers a peer on its host nothing else than shared memory, which a peer without
/// `MM_ERROR_HANDLING`, as Python is by default, does not take. Hence [`Settings::toggle_tcp_lanes`]. (Such a peer's
/// UCX breaks the connection off; 1.13 aborts the process. Its own lanes must not be left out either.)
const NO_TCP_LANES: Preset =
    Preset { name: "TCP_PUT_ENABLE", also: &[], bare: "PUT_ENABLE", old: Some("n"), new: Some("n"), of: TCP };

/// UCX would prepare rings and buffers in both kinds of shared memory and then use System V's: half of that memory (1.5
/// to 2 MB a connection) is for nothing, and `/dev/shm` is small in containers. Where System V's can be had.
const ONE_SHARED_MEMORY: Preset =
    Preset { name: "TLS", also: &[], bare: "TLS", old: Some("^posix"), new: Some("^posix"), of: ANY };

/// See [`check_usable`](super::address::check_usable).
const IPV6: Preset = Preset {
    name: "TCP_AF_PRIO",
    also: &[],
    bare: "AF_PRIO",
    old: Some("inet6,inet"),
    new: Some("inet6,inet"),
    of: TCP,
};

/// What the user asked for; two pipes with equal settings share a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Name without `UCX_`, value; later ones win.
    chosen: Vec<(String, String)>,
    /// For IPv6 addresses.
    pub(super) ipv6: bool,
    /// For peers that need TCP lanes beside shared memory.
    tcp_lanes: bool,
}

impl Settings {
    pub(crate) fn new(chosen: Vec<(String, String)>) -> Self {
        Self { chosen, ipv6: false, tcp_lanes: false }
    }

    /// With or without TCP lanes beside shared memory: without them at first.
    pub(crate) fn toggle_tcp_lanes(&mut self) {
        self.tcp_lanes = !self.tcp_lanes;
    }

    /// The same for a socket with this address.
    pub(super) fn for_address(&self, address: SocketAddr) -> Self {
        Self { ipv6: address.is_ipv6(), ..self.clone() }
    }

    /// What was chosen for `name`, or else the environment's value.
    pub(super) fn effective(&self, name: &str) -> Option<String> {
        let chosen = self.chosen.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        chosen.or_else(|| std::env::var(format!("UCX_{name}")).ok())
    }
}

/// Whether the transport list `tls`, in UCX's syntax, allows one of these; of none, always.
fn allows(tls: Option<&str>, transports: &[&str]) -> bool {
    let Some(tls) = tls.filter(|_| !transports.is_empty()) else { return true };
    let (negated, list) = tls.strip_prefix('^').map_or((false, tls), |list| (true, list));
    transports.iter().any(|transport| {
        let named = list.split(',').map(str::trim).any(|item| {
            let alias = SHARED_MEMORY_ALIASES.contains(&item) && SHARED_MEMORY.contains(transport);
            item == *transport || item == "all" || alias
        });
        named != negated
    })
}

/// Whether this process may make System V shared memory.
fn has_system_v() -> bool {
    // SAFETY: makes a segment that nobody else knows.
    let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o600) };
    // SAFETY: marks that segment, in which nothing is, for removal.
    id >= 0 && unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) } == 0
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
        let tls = settings.effective("TLS");
        let may_share_memory = allows(tls.as_deref(), SHARED_MEMORY)
            && settings.effective("MM_ERROR_HANDLING").is_none_or(|value| value.starts_with(['y', 'Y', '1']));
        let no_tcp_lanes = may_share_memory && !settings.tcp_lanes;
        let presets = PRESETS
            .iter()
            .chain(no_tcp_lanes.then_some(&NO_TCP_LANES))
            .chain(has_system_v().then_some(&ONE_SHARED_MEMORY))
            .chain(settings.ipv6.then_some(&IPV6));
        for preset in presets {
            let Some(value) = (if loaded_version() < (1, 16) { preset.old } else { preset.new }) else { continue };
            let mut names = preset.also.iter().chain([&preset.name]);
            if allows(tls.as_deref(), preset.of) && names.all(|name| settings.effective(name).is_none()) {
                let name = if loaded_version() < (1, 14) { preset.bare } else { preset.name };
                // A version that does not know the name is no error: it is only slower.
                if let Err(error) = config.modify(name, value) {
                    log::debug!("preset not applied: {error}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_lists_are_understood() {
        assert!(allows(None, TCP) && allows(Some("all"), TCP) && allows(Some("posix, tcp"), TCP));
        assert!(!allows(Some("^tcp"), TCP) && !allows(Some("shm"), TCP));
        for list in ["^tcp", "^posix", "shm", "mm", "sysv,tcp", "all"] {
            assert!(allows(Some(list), SHARED_MEMORY), "{list}");
        }
        for list in ["tcp", "^sm", "^all", "^posix,sysv,xpmem"] {
            assert!(!allows(Some(list), SHARED_MEMORY), "{list}");
        }
    }

    #[test]
    fn what_was_chosen_comes_before_the_environment() {
        let settings = Settings::new(vec![("TLS".into(), "tcp".into()), ("TLS".into(), "self".into())]);
        assert_eq!(settings.effective("TLS").as_deref(), Some("self"));
        assert_eq!(settings.effective("NO_SUCH_SETTING_ANYWHERE"), None);
    }
}
