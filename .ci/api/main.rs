//! Prints the public API of a crate, an item a line: `api RUSTDOC_JSON`.

use std::error::Error;

/// Traits that the compiler gives or not, of which users see these.
const MARKERS: [&str; 3] = ["core::marker::Copy for ", "core::marker::Send for ", "core::marker::Sync for "];

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args_os().nth(1).ok_or("api RUSTDOC_JSON")?;
    for item in public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).build()?.items() {
        let line = item.to_string();
        let marker =
            [" core::marker::", " !core::marker::", "core::panic::unwind_safe::"].iter().any(|m| line.contains(m));
        if !(line.starts_with("impl") && marker) || MARKERS.iter().any(|m| line.contains(m)) {
            println!("{line}");
        }
    }
    Ok(())
}
