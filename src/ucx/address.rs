//! Socket addresses: from names to all their addresses, and to and from C's `sockaddr_storage`.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::ptr;

use crossbeam_channel::{at, bounded, never, select};

use super::config::Settings;
use super::context::loaded_version;
use super::error::UcxError;
use crate::link::Deadline;

/// Every address that `host` has, in the resolver's order. Literals need no resolver; IPv6 scopes are allowed.
/// [`io::ErrorKind::TimedOut`] if the resolver does not answer by the deadline.
pub(crate) fn resolve(host: &str, port: u16, deadline: Deadline) -> io::Result<Vec<SocketAddr>> {
    // `[::1]` is how addresses with a port are written; the resolver wants it bare.
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).to_owned();
    if bare.parse::<IpAddr>().is_ok() {
        return usable((bare.as_str(), port).to_socket_addrs());
    }
    // Nothing stops a resolver that hangs, so its thread is left to itself then.
    let (answer, answered) = bounded(1);
    std::thread::Builder::new()
        .name("tdpipe-resolve".to_owned())
        .spawn(move || answer.send(usable((bare.as_str(), port).to_socket_addrs())))?;
    let expired = deadline.map_or_else(never, at);
    select! {
        recv(answered) -> found => found.map_err(|_| io::Error::other("the resolver panicked"))?,
        recv(expired) -> _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Each address once, IPv4 ones as such.
fn usable(found: io::Result<impl Iterator<Item = SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for mut address in found? {
        if let Some(v4) = as_v4(address) {
            address = v4;
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

/// The IPv4 address that `::ffff:a.b.c.d` stands for.
fn as_v4(address: SocketAddr) -> Option<SocketAddr> {
    let SocketAddr::V6(v6) = address else { return None };
    v6.ip().to_ipv4_mapped().map(|ip| SocketAddr::new(ip.into(), v6.port()))
}

/// Whether UCX can use `address`, as a peer's or as its own.
///
/// UCX keeps for the address of a TCP peer as much room as the address of the local interface takes, and writes the
/// peer's there whatever its length: an IPv6 peer of an interface with an IPv4 address overruns the heap. So for IPv6
/// the interfaces must show their IPv6 addresses, to which a preset sees. Link-local ones they never show, and that of
/// the loopback only since 1.14.
pub(crate) fn check_usable(address: SocketAddr, settings: &Settings) -> Result<(), UcxError> {
    let SocketAddr::V6(v6) = address else { return Ok(()) };
    let first =
        settings.effective("TCP_AF_PRIO").map(|list| list.split(',').next().unwrap_or_default().trim() == "inet6");
    let reason = if loaded_version() < (1, 14) {
        "this UCX does not keep enough memory for IPv6 addresses; use an IPv4 address, or UCX 1.14 or later"
    } else if v6.ip().is_unicast_link_local() {
        "UCX does not keep enough memory for link-local addresses; use a global or an IPv4 address"
    } else if first == Some(false) {
        "UCX_TCP_AF_PRIO must be unset, or name inet6 first"
    } else {
        return Ok(());
    };
    Err(UcxError::Ipv6 { address, reason })
}

/// An address in C's form, with its length.
pub(super) struct CAddress {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl CAddress {
    pub(super) fn as_ucs(&self) -> ucx_sys::ucs_sock_addr_t {
        ucx_sys::ucs_sock_addr_t { addr: ptr::from_ref(&self.storage).cast(), addrlen: self.len }
    }
}

impl From<SocketAddr> for CAddress {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: all zeroes is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let len = match address {
            SocketAddr::V4(v4) => {
                // SAFETY: all zeroes is a valid sockaddr_in.
                let mut sin: libc::sockaddr_in = unsafe { zeroed() };
                sin.sin_family = libc::AF_INET as libc::sa_family_t;
                sin.sin_port = v4.port().to_be();
                sin.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                // SAFETY: a sockaddr_storage has room and alignment for every address family.
                unsafe { ptr::write(ptr::from_mut(&mut storage).cast(), sin) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                // SAFETY: all zeroes is a valid sockaddr_in6.
                let mut sin6: libc::sockaddr_in6 = unsafe { zeroed() };
                sin6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                sin6.sin6_port = v6.port().to_be();
                sin6.sin6_flowinfo = v6.flowinfo();
                sin6.sin6_scope_id = v6.scope_id();
                sin6.sin6_addr.s6_addr = v6.ip().octets();
                // SAFETY: as above.
                unsafe { ptr::write(ptr::from_mut(&mut storage).cast(), sin6) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, len: len as libc::socklen_t }
    }
}

/// Reads an address that C has filled in; `None` for a family that is not the Internet's.
pub(super) fn from_c(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what the storage holds, and it is large enough.
            let sin = unsafe { ptr::read(ptr::from_ref(storage).cast::<libc::sockaddr_in>()) };
            let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { ptr::read(ptr::from_ref(storage).cast::<libc::sockaddr_in6>()) };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            let port = u16::from_be(sin6.sin6_port);
            Some(SocketAddrV6::new(ip, port, sin6.sin6_flowinfo, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_c() {
        for text in ["127.0.0.1:80", "255.1.2.3:65535", "[::1]:1", "[fe80::1%7]:13337"] {
            let address: SocketAddr = text.parse().expect("literal");
            assert_eq!(from_c(&CAddress::from(address).storage), Some(address));
        }
    }

    #[test]
    fn literals_and_names_resolve() {
        let resolve = |host| resolve(host, 5, None);
        assert_eq!(resolve("[::1]").expect("literal"), ["[::1]:5".parse().expect("literal")]);
        assert_eq!(resolve("10.1.2.3").expect("literal"), ["10.1.2.3:5".parse().expect("literal")]);
        assert_eq!(resolve("::ffff:10.1.2.3").expect("literal"), ["10.1.2.3:5".parse().expect("literal")]);
        assert!(resolve("no-such-host.invalid").is_err());
    }
}
