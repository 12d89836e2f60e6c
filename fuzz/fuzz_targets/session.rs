//! A stream as a peer may send it: flags, lengths, metadata and storages in any order, and items that are kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tensordict_pipe::wire::{Format, Limits, RecvSession};
use tensordict_pipe::TensorDict;

// The input is read as: a flag; if new metadata follow, their length (two bytes) and they themselves. A byte after that
// with its highest bit set makes the item be kept. The storage is filled with the number of the message.
fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let mut session = RecvSession::new(Format::Consolidated, Limits::default().max_storage_bytes(1 << 16));
    let mut kept: Vec<(TensorDict, u8)> = Vec::new();
    for number in 0..=u8::MAX {
        let Some((&flag, rest)) = input.split_first() else { break };
        input = rest;
        match session.accept_flag(flag) {
            Err(_) => break,
            Ok(false) => {}
            Ok(true) => {
                let Some((len, rest)) = input.split_first_chunk::<2>() else { break };
                let Ok(len) = session.check_header_len(u16::from_le_bytes(*len).into()) else { break };
                let Some((json, rest)) = rest.split_at_checked(len) else { break };
                input = rest;
                if session.accept_header(json).is_err() {
                    break;
                }
            }
        }
        let mut buffer = match kept.last_mut().and_then(|(td, _)| session.matching_buffer(td)) {
            Some(buffer) => {
                kept.pop();
                buffer
            }
            None => session.buffer(),
        };
        assert!(buffer.len() >= session.body_len().expect("there is a schema"));
        buffer.bytes_mut().expect("nobody else has it").fill(number);
        match session.finish(buffer) {
            Err(error) => assert!(error.is_recoverable(), "{error}"),
            Ok(td) if input.first().is_some_and(|byte| byte & 0x80 != 0) => kept.push((td, number)),
            Ok(_) => {}
        }
        for (td, number) in &kept {
            for (_, entry) in td.leaves() {
                if let tensordict_pipe::Entry::Tensor(view) = entry {
                    assert!(view.bytes().iter().all(|byte| byte == number), "a kept item never changes");
                }
            }
        }
    }
});
