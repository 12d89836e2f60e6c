//! Metadata of the consolidated formats: any bytes are read or refused; what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};

fuzz_target!(|json: &[u8]| {
    for format in [Format::Consolidated, Format::Stateless] {
        let limits = Limits::default().max_storage_bytes(1 << 20);
        let mut receiver = RecvSession::new(format, limits);
        if receiver.accept_header(json).is_err() {
            continue;
        }
        let buffer = receiver.buffer();
        let Ok(td) = receiver.finish(buffer) else { continue };
        // Python could not read everything that we can.
        let mut sender = SendSession::new(format);
        let Ok(message) = sender.encode(&td) else { continue };
        let header = message.header().expect("the first").as_bytes();
        receiver.accept_header(header).expect("our own metadata");
        assert_eq!(receiver.body_len(), Some(message.bodies()[0].bytes().len()));
        let buffer = receiver.buffer();
        assert!(receiver.finish(buffer).expect("as before") == td);
    }
});
