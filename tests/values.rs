//! A received TensorDict is a value: whatever the pipe and the peer do afterwards, it stays as it came, and whatever
//! its owner does to it, nobody else notices. Over UCX, in shared memory and TCP, eager and rendezvous.

#![cfg(feature = "ucx")]

mod common;

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::thread;

use common::{pair, run, transports, Watchdog};
use tensordict_pipe::{tensordict, Device, Pipe, Placed, Tensor, TensorDict};

/// Elements of `x`: a message that UCX sends at once, and one that it announces first.
const SIZES: [usize; 2] = [5, 150_000];

fn sample(value: u32, len: usize) -> TensorDict {
    tensordict!([];
        "x" => vec![value as f32; len],
        "n" => { "y" => vec![i64::from(value); 3], "z" => vec![value as u8; 5] },
    )
    .expect("fits")
}

/// Another structure.
fn other(value: u32, len: usize) -> TensorDict {
    tensordict!([]; "w" => vec![value; len + 1], "label" => "other").expect("fits")
}

#[track_caller]
fn check_x(x: &[f32], value: u32, len: usize) {
    assert_eq!(x.len(), len);
    assert!(x.iter().all(|&x| x == value as f32), "{value}");
}

#[track_caller]
fn check_n(n: &TensorDict, value: u32) {
    assert_eq!(n.get("y").expect("there").as_slice::<i64>().expect("i64"), [i64::from(value); 3]);
    assert_eq!(n.get("z").expect("there").as_slice::<u8>().expect("u8"), [value as u8; 5]);
}

#[track_caller]
fn check(td: &TensorDict, value: u32, len: usize) {
    check_x(td.get("x").expect("there").as_slice::<f32>().expect("f32"), value, len);
    check_n(&td.dict("n").expect("there"), value);
}

/// Runs a test over both transports, in both modes, with messages of both sizes; `send` sends this many.
fn everywhere(count: u32, receive: impl Fn(&mut Pipe, usize)) {
    for options in transports() {
        for consolidated in [true, false] {
            for len in SIZES {
                let options = options.clone().consolidated(consolidated);
                let send = |pipe: &mut Pipe| {
                    (0..count).for_each(|value| pipe.send(&sample(value, len)).expect("sent"));
                };
                run(&options, send, |pipe| receive(pipe, len));
            }
        }
    }
}

#[test]
fn kept_ones_never_change() {
    let _watchdog = Watchdog::new();
    for keep in [1, 2, 10, 100] {
        let count = 2 * keep + 10;
        everywhere(count, |pipe, len| {
            let mut kept = VecDeque::new();
            for value in 0..count {
                kept.push_back(pipe.recv().expect("received"));
                if kept.len() > keep as usize {
                    check(&kept.pop_front().expect("kept"), value - keep, len);
                }
            }
            for (value, td) in (count - keep..).zip(&kept) {
                check(td, value, len);
            }
        });
    }
}

#[test]
fn what_is_taken_out_of_one_never_changes() {
    let _watchdog = Watchdog::new();
    everywhere(40, |pipe, len| {
        let mut tensors = Vec::new();
        let mut dicts = Vec::new();
        for value in 0..40 {
            let td = pipe.recv().expect("received");
            match value % 4 {
                0 => tensors.push((value, td.get("x").expect("there").to_tensor())),
                1 => dicts.push((value, td.dict("n").expect("there"))),
                2 => {
                    tensors.push((value, td.clone().get("x").expect("there").to_tensor().reshape([len, 1]).expect("x")))
                }
                _ => {}
            }
        }
        for (value, tensor) in tensors {
            check_x(tensor.as_slice().expect("f32"), value, len);
        }
        for (value, dict) in dicts {
            check_n(&dict, value);
        }
    });
}

#[test]
fn one_that_another_thread_holds_never_changes() {
    let _watchdog = Watchdog::new();
    everywhere(60, |pipe, len| {
        let (give, taken) = channel::<(u32, TensorDict)>();
        let holder = thread::spawn(move || {
            let mut held = VecDeque::new();
            for (value, td) in taken {
                check(&td, value, len);
                held.push_back((value, td));
                if held.len() > 7 {
                    let (value, td) = held.pop_front().expect("held");
                    check(&td, value, len);
                }
            }
            held.iter().for_each(|(value, td)| check(td, *value, len));
        });
        for value in 0..60 {
            give.send((value, pipe.recv().expect("received"))).expect("taken");
        }
        drop(give);
        holder.join().expect("the holder");
    });
}

#[test]
fn kept_ones_outlive_changes_of_the_schema_and_the_pipe() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for len in SIZES {
            let kept = run(
                &options,
                |pipe| {
                    for value in 0..20 {
                        pipe.send(&sample(value, len)).expect("sent");
                        pipe.send(&sample(value + 100, len)).expect("sent");
                        pipe.send(&other(value, len)).expect("sent");
                    }
                },
                |pipe| {
                    let recv = |_| [(); 3].map(|()| pipe.recv().expect("received"));
                    (0..20).map(recv).collect::<Vec<_>>()
                },
            );
            for (value, [one, two, three]) in (0..20).zip(&kept) {
                check(one, value, len);
                check(two, value + 100, len);
                assert!(*three == other(value, len));
            }
        }
    }
}

#[test]
fn what_the_receiver_writes_disturbs_nobody() {
    let _watchdog = Watchdog::new();
    everywhere(30, |pipe, len| {
        let mut written = Vec::new();
        for value in 0..30 {
            let mut td = pipe.recv().expect("received");
            check(&td, value, len);
            let kept = td.clone();
            td.get_mut("x").expect("there").as_slice_mut::<f32>().expect("f32").fill(-1.0);
            if value % 3 == 0 {
                td.insert("more", Tensor::scalar(value)).expect("fits");
            }
            if value % 3 == 1 {
                td.remove(("n", "y")).expect("there");
            }
            check(&kept, value, len);
            if value % 2 == 0 {
                drop(kept);
                td.get_mut("x").expect("there").as_slice_mut::<f32>().expect("f32").fill(-2.0);
            }
            written.push(td);
        }
        for (value, td) in (0..30_u32).zip(&written) {
            let expected = if value % 2 == 0 { -2.0 } else { -1.0 };
            assert!(td.get("x").expect("there").as_slice::<f32>().expect("f32").iter().all(|&x| x == expected));
            assert_eq!(td.contains("more"), value % 3 == 0);
            assert_eq!(td.contains(("n", "y")), value % 3 != 1);
            assert_eq!(td.get(("n", "z")).expect("there").as_slice::<u8>().expect("u8"), [value as u8; 5]);
        }
    });
}

#[test]
fn what_the_sender_writes_after_sending_is_not_received() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for consolidated in [true, false] {
            for packed in [true, false] {
                for len in SIZES {
                    let options = options.clone().consolidated(consolidated);
                    let send = |pipe: &mut Pipe| {
                        let td = sample(0, len);
                        let mut td = if packed { td.consolidate() } else { td };
                        for value in 0..50 {
                            td.get_mut("x").expect("there").as_slice_mut::<f32>().expect("f32").fill(value as f32);
                            td.get_mut(("n", "y")).expect("there").copy_from_slice(&[i64::from(value); 3]).expect("y");
                            td.get_mut(("n", "z")).expect("there").copy_from_slice(&[value as u8; 5]).expect("z");
                            pipe.send(&td).expect("sent");
                        }
                    };
                    run(&options, send, |pipe| {
                        (0..50).for_each(|value| check(&pipe.recv().expect("received"), value, len));
                    });
                }
            }
        }
    }
}

/// What is received is sent back while the next is received.
#[test]
fn one_that_is_sent_on_never_changes() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for len in SIZES {
            let send = |pipe: &mut Pipe| {
                for value in 0..30 {
                    let td = sample(value, len);
                    pipe.send(&td).expect("sent");
                    let mut back = pipe.recv().expect("sent back");
                    check(&back, value, len);
                    back.get_mut("x").expect("there").as_slice_mut::<f32>().expect("f32").fill(-1.0);
                    check(&td, value, len);
                }
            };
            run(&options, send, |pipe| {
                let mut kept = Vec::new();
                for _ in 0..30 {
                    kept.push(pipe.recv().expect("received"));
                    pipe.send(kept.last().expect("just pushed")).expect("sent back");
                }
                (0..).zip(&kept).for_each(|(value, td)| check(td, value, len));
            });
        }
    }
}

fn address(td: &TensorDict) -> *const u8 {
    td.consolidated_bytes().expect("consolidated").as_ptr()
}

#[test]
fn receiving_into_overwrites_exactly_when_the_layout_matches() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for len in SIZES {
            let send = |pipe: &mut Pipe| {
                (0..8).for_each(|value| pipe.send(&sample(value, len)).expect("sent"));
                pipe.send(&other(8, len)).expect("sent");
                (9..12).for_each(|value| pipe.send(&sample(value, len)).expect("sent"));
            };
            run(&options, send, |pipe| {
                let mut recv_into = |td: &mut TensorDict, value, placed| {
                    let before = td.is_consolidated().then(|| address(td));
                    assert_eq!(pipe.recv_into(td).expect("received"), placed, "{value}");
                    assert_eq!(before == Some(address(td)), placed == Placed::InPlace, "{value}");
                    check(td, value, len);
                };
                let mut td = sample(99, len).consolidate();
                recv_into(&mut td, 0, Placed::InPlace);
                recv_into(&mut td, 1, Placed::InPlace);

                let kept = td.clone();
                recv_into(&mut td, 2, Placed::Replaced);
                check(&kept, 1, len);

                let part = td.dict("n").expect("there");
                recv_into(&mut td, 3, Placed::Replaced);
                check_n(&part, 2);

                let tensor = td.get("x").expect("there").to_tensor();
                recv_into(&mut td, 4, Placed::Replaced);
                check_x(tensor.as_slice().expect("f32"), 3, len);

                let mut loose = sample(99, len);
                recv_into(&mut loose, 5, Placed::Replaced);
                recv_into(&mut loose, 6, Placed::InPlace);
                let mut unlike = other(99, len).consolidate();
                recv_into(&mut unlike, 7, Placed::Replaced);

                assert_eq!(pipe.recv_into(&mut td).expect("received"), Placed::Replaced);
                assert!(td == other(8, len));

                for value in 9..12 {
                    assert_eq!(pipe.recv_into(&mut loose).expect("received"), Placed::InPlace);
                    check(&loose, value, len);
                }
                assert!(pipe.recv_into(&mut loose).expect_err("closed").is_closed());
                check(&loose, 11, len);
                check(&unlike, 7, len);
                check(&kept, 1, len);
            });
        }
    }
}

#[test]
fn an_expired_receive_into_changes_nothing() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for len in SIZES {
            let options = options.clone().recv_timeout(std::time::Duration::from_millis(1));
            let (mut sender, mut receiver) = pair(&options);
            let mut td = sample(7, len).consolidate();
            for value in 0..5 {
                let place = address(&td);
                for _ in 0..3 {
                    assert!(receiver.recv_into(&mut td).expect_err("nothing comes").is_timeout());
                    check(&td, if value == 0 { 7 } else { value - 1 }, len);
                    assert_eq!(address(&td), place);
                }
                thread::scope(|scope| {
                    let sending = scope.spawn(|| sender.send(&sample(value, len)).expect("sent"));
                    while let Err(error) = receiver.recv_into(&mut td) {
                        // It may have expired under way; then the values of `td` are lost, but the message is not.
                        assert!(error.is_timeout(), "{error}");
                    }
                    sending.join().expect("the sender");
                });
                check(&td, value, len);
            }
            thread::scope(|scope| {
                let closing = scope.spawn(|| sender.close().expect("everything was received"));
                while !receiver.recv_into(&mut td).expect_err("nothing comes").is_closed() {}
                closing.join().expect("the sender");
            });
        }
    }
}

#[test]
fn the_device_of_the_sender_is_a_label() {
    let _watchdog = Watchdog::new();
    let mut td = sample(1, 5);
    td.set_device(Device::Cuda(1));
    let sent = td.consolidate();
    run(
        &Pipe::options(),
        |pipe| pipe.send(&sent).expect("sent"),
        |pipe| {
            let td = pipe.recv().expect("received");
            assert_eq!(td.device(), Some(&Device::Cuda(1)));
            check(&td, 1, 5);
        },
    );
}
