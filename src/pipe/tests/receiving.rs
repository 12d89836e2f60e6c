//! Deadlines in the middle of messages, and receiving in place.

use super::*;
use crate::error::Phase;
use crate::link::loopback::Fault;

#[track_caller]
fn assert_expired<T: std::fmt::Debug>(result: &Result<T>) {
    let error = result.as_ref().expect_err("nothing is there yet");
    assert!(matches!(error, Error::Timeout { phase: Phase::Recv, .. }) && !error.is_final(), "{error}");
}

fn stream() -> [TensorDict; 6] {
    [a(1.0), a(2.0), b(3), empty(), a(4.0), a(5.0)]
}

#[test]
fn a_receive_that_expires_goes_on_where_it_stopped() {
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        for (td, packets) in stream().iter().zip(recorded(setting, &stream())) {
            for packet in &packets {
                assert_expired(&end.poll());
                assert_expired(&end.poll());
                feed(&link, packet);
            }
            assert!(end.poll().expect("all of it is there") == *td, "{setting:?}");
        }
        assert_expired(&end.poll());
    }
}

#[test]
fn a_receive_under_way_at_its_deadline_is_taken_up_again() {
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        for (td, packets) in stream().iter().zip(recorded(setting, &stream())) {
            for packet in &packets {
                for _ in 0..2 {
                    end.link().inject(Fault::Underway);
                    assert_expired(&end.poll());
                }
                feed(&link, packet);
            }
            assert!(end.poll().expect("all of it is there") == *td, "{setting:?}");
        }
    }
}

#[test]
fn a_receive_into_may_expire_anywhere() {
    for setting in SETTINGS {
        for underway in [false, true] {
            let (mut end, link) = end_and_link(setting);
            let mut into = a(9.0).consolidate();
            for (td, packets) in stream().iter().zip(recorded(setting, &stream())) {
                for packet in &packets {
                    if underway {
                        end.link().inject(Fault::Underway);
                    }
                    assert_expired(&end.poll_into(&mut into));
                    feed(&link, packet);
                }
                end.poll_into(&mut into).expect("all of it is there");
                assert!(into == *td, "{setting:?}");
            }
        }
    }
}

#[test]
fn an_expired_receive_into_leaves_everything_as_it_was() {
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        // On the wire values come before tensors: another order, the same layout.
        let mut into = b(9).consolidate();
        let place = address(&into);
        let unchanged = |into: &TensorDict| {
            assert!(*into == b(9) && into.keys().eq(["y", "name"]), "{setting:?}: {into}");
            assert_eq!(address(into), place);
        };
        assert_expired(&end.poll_into(&mut into));
        unchanged(&into);
        let packets = recorded(setting, &[b(1), a(2.0), b(3)]);
        packets[0].iter().for_each(|packet| feed(&link, packet));
        drop(end.recv().expect("the schema, so that the next one can be received in place"));
        for _ in 0..2 {
            assert_expired(&end.poll_into(&mut into));
            unchanged(&into);
        }
        // Parts of another schema come, between two of ours the first of them into the storage.
        let (last, start) = packets[1].split_last().expect("messages");
        for packet in start {
            feed(&link, packet);
            assert_expired(&end.poll_into(&mut into));
            unchanged(&into);
        }
        feed(&link, last);
        assert!(end.recv().expect("received") == a(2.0));
        packets[2].iter().for_each(|packet| feed(&link, packet));
        let placed = if setting.1 == Format::Consolidated { Placed::InPlace } else { Placed::Replaced };
        assert_eq!(end.recv_into(&mut into).expect("received"), placed);
        assert!(into == b(3));
    }
}

#[test]
fn a_receive_into_overwrites_when_the_layout_matches() {
    for kinds in [false, true] {
        let (mut one, mut other) = ends((kinds, Format::Consolidated));
        let mut into = a(9.0).consolidate();
        let place = address(&into);
        for x in [1.0, 2.0, 3.0] {
            other.send(&a(x)).expect("sent");
            // A pipe of kinds knows only after the first message that another of this schema comes.
            assert_eq!(one.recv_into(&mut into).expect("received"), Placed::InPlace);
            assert!(into == a(x));
            assert_eq!(address(&into), place, "the same storage");
        }
        let received = {
            other.send(&a(4.0)).expect("sent");
            one.recv().expect("received")
        };
        let mut into = received;
        let place = address(&into);
        other.send(&a(5.0)).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), Placed::InPlace, "one of the pipe's own");
        assert_eq!((into == a(5.0), address(&into)), (true, place));
        leave(one, other);
    }
}

#[test]
fn a_receive_into_replaces_what_does_not_match_or_is_shared() {
    for kinds in [false, true] {
        let (mut one, mut other) = ends((kinds, Format::Consolidated));
        for (i, mut into) in [a(9.0), b(9), b(9).consolidate(), empty()].into_iter().enumerate() {
            for x in [1.0, 2.0] {
                other.send(&a(x)).expect("sent");
                let placed = if x == 1.0 { Placed::Replaced } else { Placed::InPlace };
                assert_eq!(one.recv_into(&mut into).expect("received"), placed, "{i}");
                assert!(into == a(x));
            }
        }

        let mut into = a(9.0).consolidate();
        let clone = into.clone();
        other.send(&a(1.0)).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), Placed::Replaced, "a clone shares it");
        assert!(into == a(1.0) && clone == a(9.0));

        let tensor = into.get("x").expect("there").to_tensor();
        other.send(&a(2.0)).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), Placed::Replaced, "a tensor shares it");
        assert!(into == a(2.0) && tensor.as_slice::<f32>().expect("f32")[0] == 1.0);

        let part = into.dict("n").expect("there");
        other.send(&a(3.0)).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), Placed::Replaced, "a nested dict shares it");
        assert!(into == a(3.0) && part == a(2.0).dict("n").expect("there"));

        drop((clone, tensor, part));
        other.send(&a(4.0)).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), Placed::InPlace, "nobody shares it any more");
        leave(one, other);
    }
}

#[test]
fn leaf_by_leaf_a_receive_into_replaces() {
    for kinds in [false, true] {
        let (mut one, mut other) = ends((kinds, Format::LeafByLeaf));
        let mut into = a(9.0).consolidate();
        for x in [1.0, 2.0] {
            other.send(&a(x)).expect("sent");
            assert_eq!(one.recv_into(&mut into).expect("received"), Placed::Replaced);
            assert!(into == a(x));
            into = into.consolidate();
        }
        leave(one, other);
    }
}

#[test]
fn labels_belong_to_the_layout() {
    let (mut one, mut other) = ends((true, Format::Consolidated));
    let mut locked = a(1.0);
    locked.lock();
    let mut into = a(9.0).consolidate();
    for (td, placed) in [
        (&locked, Placed::Replaced),
        (&locked, Placed::InPlace),
        (&a(2.0), Placed::Replaced),
        (&a(3.0), Placed::InPlace),
    ] {
        other.send(td).expect("sent");
        assert_eq!(one.recv_into(&mut into).expect("received"), placed);
        assert!(into == *td && into.is_locked() == td.is_locked());
    }
    leave(one, other);
}

/// Ends without a goodbye.
fn leave(one: End, other: End) {
    one.link().cut();
    drop((one, other));
}
