//! Raw bindings to libucp.
