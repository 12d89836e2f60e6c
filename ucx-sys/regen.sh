#!/usr/bin/env bash
# Makes src/bindings.rs, and is the only way it is made.
#
#   ./regen.sh [HEADERS]     HEADERS: the folder that holds ucp/api/ucp.h (default /usr/include)
#
# The headers must be those of the oldest UCX we support, $api below: UCX only ever appends to its structs and marks
# what is filled in by a mask, so bindings to the oldest run on every later libucp.so.0, and not the other way round.
# What we want of later versions is written by hand in src/later.rs.
#
# Needs bindgen ($bindgen below: cargo install bindgen-cli --version $bindgen --locked), libclang and rustfmt.
set -euo pipefail

api=1.13
bindgen=0.72.1

cd "$(dirname "$0")"
headers=${1:-/usr/include}

fail() { echo "regen.sh: $*" >&2; exit 1; }

[ -f "$headers/ucp/api/ucp.h" ] || fail "no ucp/api/ucp.h in $headers"
grep -qE "define UCP_API_VERSION +UCP_VERSION\(${api/./, }\)" "$headers/ucp/api/ucp_version.h" ||
    fail "the headers in $headers are not those of UCX $api"
[ "$(bindgen --version)" = "bindgen $bindgen" ] || fail "needs bindgen $bindgen, found: $(bindgen --version || true)"

options=(
    --rust-edition 2021 --rust-target 1.85 --use-core --merge-extern-blocks
    --formatter rustfmt --rustfmt-configuration-file "$(cd .. && pwd)/rustfmt.toml"
    --no-doc-comments # UCX's own documentation is the reference; its text is not ours to copy
    --raw-line "// UCX $api, by bindgen $bindgen; made by regen.sh, never edited by hand."
    --raw-line "use libc::{sockaddr, sockaddr_storage, socklen_t, FILE};"

    # C may hand us a number that its header of today does not name: enums are integers with named constants.
    --default-enum-style consts --no-prepend-enum-name
    # Parameter structs are filled in part and say so in `field_mask`: `..Default::default()` is all zeros.
    --with-derive-default --no-derive-debug

    # All of ucp, and of ucs the types that ucp uses (bindgen follows them) and these.
    --allowlist-function 'ucp_.*|ucs_status_string'
    --allowlist-type '(enum_)?ucp_.*|ucs_status_.*|ucs_thread_mode_t|ucs_memory_type_t?|ucs_config_print_flags_t'
    --allowlist-var 'UCP_.*|UCS_(OK|INPROGRESS|ERR_.*|CPU_SETSIZE)'
    # Of ucp_compat.h, deprecated since long, only the type that ucp_listener_params_t needs.
    --blocklist-function "$(sed -nE 's/^[a-z].*\b(ucp_[a-z0-9_]+)\(.*$/\1/p' "$headers/ucp/api/ucp_compat.h" | paste -sd'|')"
    # From the libc crate instead, so that callers need no casts.
    --blocklist-type 'sockaddr|sockaddr_storage|socklen_t|__socklen_t|sa_family_t|FILE|_IO_.*|__off(64)?_t'
)

bindgen "${options[@]}" --output src/bindings.rs wrapper.h -- -I"$headers"
echo "src/bindings.rs: $(wc -l < src/bindings.rs) lines, from $headers"
