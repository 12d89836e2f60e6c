//! How pipes end: broken, closed by one or by both, and what is said of it.

use std::thread;

use super::*;
use crate::error::Phase;
use crate::link::loopback::Fault;
use crate::link::{Lane, Link, Message, Payload, RecvFailure, Target};
use crate::pipe::kind;

const CLOSED: &str = "the pipe with the peer is closed";
const BETWEEN: &str = "the peer is gone between two messages: loopback";
const WITHIN: &str = "the peer is gone in the middle of a message: loopback";

#[test]
fn a_cut_after_any_message_is_an_error_at_both_ends() {
    let tds = [a(1.0), b(2), a(3.0), a(4.0), empty()];
    for setting in SETTINGS {
        let sizes: Vec<usize> = recorded(setting, &tds).iter().map(Vec::len).collect();
        for cut in 0..sizes.iter().sum() {
            let (mut one, mut other) = ends(setting);
            one.link().inject(Fault::CutSend(cut));
            let whole = tds.iter().take_while(|td| one.send(td).is_ok()).count();
            let before: usize = sizes[..whole].iter().sum();
            assert!((before..before + sizes[whole]).contains(&cut), "{setting:?}, {cut}");

            let lost = "the peer is gone while sending to it: loopback";
            assert_error(&one.send(&a(5.0)), lost);
            assert_error(&one.send(&a(5.0)), lost);
            for td in &tds[..whole] {
                assert!(other.recv().expect("it had arrived") == *td);
            }
            // Python says no goodbye, so a cut between two messages looks like one.
            let text = match (before == cut, setting.0) {
                (false, _) => WITHIN,
                (true, true) => BETWEEN,
                (true, false) => CLOSED,
            };
            assert_error(&other.recv(), text);
            if text == CLOSED {
                assert_error(&other.recv(), text);
                assert_error(&other.send(&a(5.0)), text);
            } else {
                other.assert_finished(text);
            }
            assert_error(&one.recv(), if setting.0 { BETWEEN } else { CLOSED });
        }
    }
}

#[test]
fn a_send_that_fails_is_final() {
    for setting in SETTINGS {
        let (mut one, mut other) = ends(setting);
        one.send(&a(1.0)).expect("open");
        one.link().inject(Fault::FailSend);
        let error = one.send(&a(2.0)).expect_err("a fault");
        assert!(matches!(error, Error::Transport { operation: "send", .. }) && error.is_final(), "{error}");
        one.assert_finished("send with the peer failed: loopback");
        assert!(other.recv().expect("it had arrived") == a(1.0));
    }
}

#[test]
fn a_cut_ends_a_receive_that_waits() {
    for setting in SETTINGS {
        let (mut one, other) = ends(setting);
        let waiting = thread::spawn(move || one.recv().map(drop));
        other.link().cut();
        let error = waiting.join().expect("no panic").expect_err("cut");
        assert_eq!(error.is_closed(), !setting.0, "{error}");
    }
}

#[test]
fn a_cut_while_the_first_part_arrives_is_no_proper_end() {
    for setting in SETTINGS {
        let (mut end, link) = end_and_link(setting);
        end.link().inject(Fault::Underway);
        assert!(end.poll().expect_err("not yet").is_timeout());
        link.cut();
        assert_error(&end.recv(), WITHIN);
        end.assert_finished(WITHIN);
    }
}

#[test]
fn what_the_peer_had_sent_can_be_received_after_a_send_has_failed() {
    for setting in SETTINGS {
        let (mut one, mut other) = ends(setting);
        other.send(&a(1.0)).expect("sent");
        other.send(&a(2.0)).expect("sent");
        other.link().cut();
        one.send(&b(1)).expect_err("cut");
        assert!(one.recv().expect("it had arrived") == a(1.0));
        assert!(one.recv().expect("it had arrived") == a(2.0));
        one.recv().expect_err("cut");
    }
}

#[test]
fn an_expired_send_is_final() {
    for setting in SETTINGS {
        let sent = recorded(setting, &[a(1.0)])[0].len();
        for stall in 0..sent {
            let (mut end, _link) = end_and_link(setting);
            end.link().inject(Fault::StallSend(stall));
            let error = end.send(&a(1.0)).expect_err("stalled");
            assert!(matches!(error, Error::Timeout { phase: Phase::Send, .. }) && error.is_final(), "{error}");
            end.assert_finished(&error.to_string());
        }
    }
}

#[test]
fn a_pipe_without_goodbyes_just_closes() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        let (mut one, mut other) = ends((false, format));
        one.send(&a(1.0)).expect("sent");
        one.close().expect("nobody to wait for");
        assert!(other.recv().expect("sent before") == a(1.0));
        assert_error(&other.recv(), CLOSED);
        assert_error(&other.send(&a(1.0)), CLOSED);
        other.close().expect("a proper end");
        other.close().expect("twice is nothing");
    }
}

#[test]
fn a_goodbye_waits_until_everything_was_received() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        let (mut one, mut other) = ends((true, format));
        for i in 0..5 {
            one.send(&b(i)).expect("sent");
        }
        let closing = thread::spawn(move || one.close());
        for i in 0..5 {
            assert!(!closing.is_finished(), "message {i} has not been read");
            assert!(other.recv().expect("received") == b(i));
        }
        assert_error(&other.recv(), CLOSED);
        closing.join().expect("no panic").expect("all was received");
        assert_error(&other.recv(), CLOSED);
        assert_error(&other.poll(), CLOSED);
        assert_error(&other.send(&a(1.0)), CLOSED);
        other.close().expect("a proper end");
    }
}

#[test]
fn both_ends_may_close_at_once() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        for _ in 0..100 {
            let (mut one, mut other) = ends((true, format));
            one.send(&a(1.0)).expect("sent");
            assert!(other.recv().expect("received") == a(1.0));
            let closing = thread::spawn(move || other.close());
            one.close().expect("a proper end");
            closing.join().expect("no panic").expect("a proper end");
        }
    }
}

fn unread(result: Result<()>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(Error::Unread { unread, .. }) => unread,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn each_end_learns_what_the_other_did_not_read() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        for (read_by_one, read_by_other) in [(0, 0), (1, 0), (0, 2), (3, 1), (3, 4)] {
            let (mut one, mut other) = ends((true, format));
            (0..3).for_each(|i| other.send(&b(i)).expect("sent"));
            (0..4).for_each(|i| one.send(&b(i)).expect("sent"));
            (0..read_by_one).for_each(|_| drop(one.recv().expect("received")));
            (0..read_by_other).for_each(|_| drop(other.recv().expect("received")));
            let closing = thread::spawn(move || other.close());
            assert_eq!(unread(one.close()), 4 - read_by_other);
            assert_eq!(unread(closing.join().expect("no panic")), 3 - read_by_one);
        }
    }
}

#[test]
fn who_receives_a_goodbye_learns_what_was_not_read() {
    let (mut one, mut other) = ends((true, Format::Consolidated));
    (0..4).for_each(|i| one.send(&b(i)).expect("sent"));
    drop(other.recv().expect("received"));
    let closing = thread::spawn(move || other.close());
    assert_error(&one.recv(), CLOSED);
    closing.join().expect("no panic").expect("it was sent nothing that one did not read");
    assert_eq!(unread(one.close()), 3);
    assert_eq!(unread(one.close()), 3);
}

#[test]
fn a_receive_into_is_untouched_by_a_goodbye() {
    let (mut one, mut other) = ends((true, Format::Consolidated));
    let mut into = a(9.0).consolidate();
    other.send(&a(1.0)).expect("sent");
    assert_eq!(one.recv_into(&mut into).expect("received"), Placed::InPlace);
    let closing = thread::spawn(move || other.close());
    assert_error(&one.recv_into(&mut into), CLOSED);
    assert!(into == a(1.0), "the last message");
    closing.join().expect("no panic").expect("a proper end");
}

#[test]
fn a_goodbye_in_the_middle_of_a_message_is_an_error() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        let packets = recorded((true, format), &[a(1.0)]).concat();
        let body = if format == Format::Consolidated { "the storage" } else { "a leaf" };
        for (n, due) in [(1, "the metadata"), (2, body)] {
            for (end, bytes, name) in [
                (kind::GOODBYE, counts(0, 0), "a goodbye of 16 bytes"),
                (kind::FINISHED, length(0).to_vec(), "the end of one direction of 8 bytes"),
            ] {
                // The first leaf has 2 bytes.
                let bytes = if n == 2 && format == Format::LeafByLeaf { &bytes[..2] } else { &bytes };
                let (mut one, link) = end_and_link((true, format));
                packets[..n].iter().for_each(|packet| feed(&link, packet));
                link.send_raw(end, bytes);
                let name = name.replace("16 bytes", &format!("{} bytes", bytes.len()));
                let name = name.replace("8 bytes", &format!("{} bytes", bytes.len()));
                let text = format!("the peer broke the protocol: {due} was due, and {name} came");
                assert_error(&one.recv(), &text);
                one.assert_finished(&text);
            }
        }
    }
}

#[test]
fn an_end_that_counts_otherwise_is_an_error() {
    let setting = (true, Format::Consolidated);
    for (end, bytes) in [(kind::GOODBYE, counts(3, 0)), (kind::FINISHED, length(3).to_vec())] {
        let (mut one, link) = end_and_link(setting);
        recorded(setting, &[a(1.0)]).concat().iter().for_each(|packet| feed(&link, packet));
        drop(one.recv().expect("received"));
        link.send_raw(end, &bytes);
        let text = "the peer broke the protocol: it ends after 3 messages, and 1 came";
        assert_error(&one.recv(), text);
        one.assert_finished(text);
    }
    for (end, due, name) in [
        (kind::GOODBYE, "a goodbye", "a goodbye"),
        (kind::FINISHED, "the end of one direction", "the end of one direction"),
    ] {
        let (mut one, link) = end_and_link(setting);
        link.send_raw(end, &[0; 7]);
        let text = format!("the peer broke the protocol: {due} was due, and {name} of 7 bytes came");
        assert_error(&one.recv(), &text);
        one.assert_finished(&text);
    }
}

fn finish(end: &End) -> Result<()> {
    end.connection.finish_sending(Timer::new(Some(PATIENCE)))
}

#[test]
fn one_direction_may_end_before_the_other() {
    for format in [Format::Consolidated, Format::LeafByLeaf] {
        let (mut one, mut other) = ends((true, format));
        one.send(&a(1.0)).expect("sent");
        let finishing = thread::spawn(move || {
            finish(&one).expect("all was received");
            one
        });
        let mut into = a(9.0).consolidate();
        other.recv_into(&mut into).expect("received");
        for _ in 0..2 {
            assert_error(&other.recv_into(&mut into), CLOSED);
            assert!(into == a(1.0), "the last message");
        }
        let mut one = finishing.join().expect("no panic");
        for i in 0..3 {
            other.send(&b(i)).expect("the other direction goes on");
            assert!(one.recv().expect("received") == b(i));
        }
        let closing = thread::spawn(move || other.close());
        assert_error(&one.recv(), CLOSED);
        closing.join().expect("no panic").expect("a proper end");
        one.close().expect("a proper end");
    }
}

#[test]
fn both_directions_may_end_one_by_one() {
    let (one, mut other) = ends((true, Format::Consolidated));
    let finishing = thread::spawn(move || {
        finish(&one).expect("all was received");
        one
    });
    assert_error(&other.recv(), CLOSED);
    let mut one = finishing.join().expect("no panic");
    let finishing = thread::spawn(move || {
        finish(&other).expect("all was received");
        other
    });
    assert_error(&one.recv(), CLOSED);
    let other = finishing.join().expect("no panic");
    one.close().expect("a proper end");
    other.close().expect("a proper end");
}

#[test]
fn who_stays_longer_learns_what_was_not_read() {
    for read in 0..=2 {
        for told in [false, true] {
            let (one, mut other) = ends((true, Format::Consolidated));
            let finishing = thread::spawn(move || {
                finish(&one).expect("all was received");
                one
            });
            assert_error(&other.recv(), CLOSED);
            let mut one = finishing.join().expect("no panic");
            for i in 0..2 {
                other.send(&b(i)).expect("sent");
            }
            for _ in 0..read {
                drop(one.recv().expect("received"));
            }
            one.close().expect("its own messages were all received");
            drop(one);
            if told {
                other.send(&b(2)).expect_err("nobody is there");
            }
            assert_eq!(unread(other.close()), 2 - read);
        }
    }
}

/// One closes while the other ends its direction and receives, each in a thread of its own as halves do.
#[test]
fn an_end_of_one_direction_may_meet_a_goodbye() {
    for _ in 0..100 {
        let (one, mut other) = ends((true, Format::Consolidated));
        let connection = Arc::clone(&other.connection);
        let closing = thread::spawn(move || one.close());
        let finishing = thread::spawn(move || connection.finish_sending(Timer::new(Some(PATIENCE))));
        assert_error(&other.recv(), CLOSED);
        closing.join().expect("no panic").expect("a proper end");
        if let Err(error) = finishing.join().expect("no panic") {
            assert!(!error.is_timeout(), "{error}");
        }
        other.close().expect("a proper end");
    }
}

#[test]
fn a_python_peer_knows_no_end_of_one_direction() {
    let (end, _link) = end_and_link((false, Format::Consolidated));
    assert!(matches!(finish(&end), Err(Error::Unsupported { .. })));
}

fn say(link: &Loopback, kind: Kind, bytes: &[u8]) {
    link.send(&[Message { lane: Lane::Control, kind, payload: Payload::Small(bytes) }], None).expect("open");
}

#[test]
fn the_messages_of_a_goodbye() {
    let (mut end, link) = end_and_link((true, Format::Consolidated));
    end.send(&a(1.0)).expect("sent");
    (0..3).for_each(|_| drop(link.recv_raw().expect("sent")));
    let closing = thread::spawn(move || end.close());
    let goodbye = link.recv(Lane::Data, Target::Small, Timer::new(Some(PATIENCE)).deadline).expect("a goodbye");
    assert_eq!((goodbye.kind, goodbye.len, &goodbye.small[..]), (kind::GOODBYE, 16, &counts(1, 0)[..]));
    let leaving = link.recv(Lane::Control, Target::Small, Timer::new(Some(PATIENCE)).deadline).expect("on both lanes");
    assert_eq!((leaving.kind, leaving.len, &leaving.small[..8]), (kind::LEAVING, 8, &length(0)[..]));
    say(&link, kind::RECEIVED, &length(1));
    closing.join().expect("no panic").expect("answered");

    let (mut end, link) = end_and_link((true, Format::Consolidated));
    link.send_raw(kind::GOODBYE, &counts(0, 0));
    say(&link, kind::LEAVING, &length(0));
    assert_error(&end.recv(), CLOSED);
    let received = link.recv(Lane::Control, Target::Small, Timer::new(Some(PATIENCE)).deadline).expect("an answer");
    assert_eq!((received.kind, received.len, &received.small[..8]), (kind::RECEIVED, 8, &length(0)[..]));
}

#[test]
fn a_wrong_answer_to_a_goodbye_is_an_error() {
    for (kind, bytes) in [(Kind(9), &length(0)[..]), (kind::RECEIVED, &[0; 7]), (kind::LEAVING, &[])] {
        let (end, link) = end_and_link((true, Format::Consolidated));
        say(&link, kind, bytes);
        let (kind, len) = (kind.0, bytes.len());
        let text = format!("the peer broke the protocol: an answer of kind {kind} and {len} bytes to a goodbye");
        assert_error(&end.close(), &text);
    }
}

#[test]
fn a_goodbye_that_nobody_answers_ends_at_its_deadline() {
    let (mut end, _link) = end_and_link((true, Format::Consolidated));
    end.send(&a(1.0)).expect("sent");
    let error = end.connection.close(Timer::new(Some(Duration::ZERO))).expect_err("not answered");
    assert!(matches!(error, Error::Timeout { phase: Phase::Close, .. }), "{error}");
    assert_error(&end.recv(), CLOSED);
    assert_error(&end.send(&a(1.0)), CLOSED);
}

#[test]
fn a_peer_that_dies_before_it_answers_is_gone() {
    let (end, link) = end_and_link((true, Format::Consolidated));
    let closing = thread::spawn(move || end.close());
    link.recv(Lane::Data, Target::Small, Timer::new(Some(PATIENCE)).deadline).expect("a goodbye");
    link.cut();
    let text = "the peer is gone before it had received everything: loopback";
    assert_error(&closing.join().expect("no panic"), text);
}

#[test]
fn dropping_an_end_is_a_goodbye() {
    let (mut one, mut other) = ends((true, Format::Consolidated));
    one.send(&a(1.0)).expect("sent");
    let dropping = thread::spawn(move || drop(one));
    assert!(other.recv().expect("received") == a(1.0));
    assert_error(&other.recv(), CLOSED);
    dropping.join().expect("no panic");
}

#[test]
fn a_closed_link_says_so() {
    let (end, link) = end_and_link((true, Format::Consolidated));
    link.close(None).expect("open");
    let received = link.recv(Lane::Data, Target::Small, None);
    assert!(matches!(received, Err(RecvFailure::Error(crate::link::LinkError::Closed))), "{received:?}");
    drop(end);
}
