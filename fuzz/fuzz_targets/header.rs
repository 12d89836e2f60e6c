//! Headers of the leaf-by-leaf format: any bytes are read or refused; what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
use tensordict_pipe::Storage;

fuzz_target!(|json: &[u8]| {
    let limits = Limits::default().max_storage_bytes(1 << 20);
    let mut receiver = RecvSession::new(Format::LeafByLeaf, limits);
    if receiver.accept_header(json).is_err() {
        return;
    }
    let storages: Vec<_> = receiver.leaf_lens().iter().map(|&len| Storage::zeroed(len)).collect();
    let Ok(td) = receiver.finish_leaves(&storages) else { return };
    let mut sender = SendSession::new(Format::LeafByLeaf);
    let Ok(message) = sender.encode(&td) else { return };
    receiver.accept_header(message.header().expect("always").as_bytes()).expect("our own header");
    assert!(message.bodies().iter().map(|body| body.bytes().len()).eq(receiver.leaf_lens().iter().copied()));
    let storages: Vec<_> = receiver.leaf_lens().iter().map(|&len| Storage::zeroed(len)).collect();
    assert!(receiver.finish_leaves(&storages).expect("as before") == td);
});
