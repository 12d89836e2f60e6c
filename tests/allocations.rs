//! In the steady state neither end of a stream allocates. Counts in its own process, on the test's own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{tensordict, Tensor, TensorDict};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

fn sample() -> TensorDict {
    tensordict!([2];
        "obs" => Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).expect("sized"),
        "info" => { "reward" => vec![0.5_f64, 1.0], "deep" => { "flag" => vec![true, false] } },
        "task" => "walk",
    )
    .expect("fits")
}

struct Link {
    sender: SendSession,
    receiver: RecvSession,
}

impl Link {
    fn new() -> Self {
        let receiver = RecvSession::new(Format::Consolidated, Limits::default());
        Self { sender: SendSession::new(Format::Consolidated), receiver }
    }

    fn pass(&mut self, td: &TensorDict) -> TensorDict {
        self.pass_into(td, None)
    }

    fn pass_into(&mut self, td: &TensorDict, target: Option<&mut TensorDict>) -> TensorDict {
        let message = self.sender.encode(td).expect("sendable");
        if let Some(header) = message.header() {
            self.receiver.accept_header(header.as_bytes()).expect("our own header");
        }
        let mut buffer =
            target.and_then(|target| self.receiver.matching_buffer(target)).unwrap_or_else(|| self.receiver.buffer());
        let body = message.bodies()[0].bytes();
        buffer.bytes_mut().expect("nobody else has it")[..body.len()].copy_from_slice(body);
        self.sender.commit();
        self.receiver.finish(buffer).expect("a TensorDict")
    }
}

#[test]
fn dropping_each_item_allocates_nothing() {
    for td in [sample(), sample().consolidate()] {
        let mut link = Link::new();
        drop(link.pass(&td));
        let count = allocations(|| (0..100).for_each(|_| drop(link.pass(&td))));
        assert_eq!(count, 0);
    }
}

#[test]
fn keeping_the_last_item_allocates_nothing() {
    let td = sample();
    let mut link = Link::new();
    let mut last = link.pass(&td);
    last = std::hint::black_box((link.pass(&td), last)).0;
    let count = allocations(|| {
        for _ in 0..100 {
            last = link.pass(&td);
        }
    });
    assert_eq!(count, 0);
    assert!(last == td);
}

#[test]
fn writing_the_next_values_allocates_nothing() {
    for mut td in [sample(), sample().consolidate()] {
        let mut link = Link::new();
        drop(link.pass(&td));
        let count = allocations(|| {
            for step in 0..100_u8 {
                td.get_mut("obs").expect("there").as_slice_mut::<f32>().expect("f32")[0] = f32::from(step);
                let arrived = link.pass(&td);
                let first = arrived.get("obs").expect("there").as_slice::<f32>().expect("f32")[0];
                assert_eq!(first, f32::from(step));
            }
        });
        assert_eq!(count, 0);
    }
}

#[test]
fn receiving_in_place_uses_the_same_storage() {
    let td = sample();
    let mut link = Link::new();
    let mut target = link.pass(&td);
    let address = target.get("obs").expect("there").bytes().as_ptr();
    let count = allocations(|| {
        for _ in 0..100 {
            let arrived = link.pass_into(&td, Some(&mut target));
            target = arrived;
        }
    });
    assert_eq!(target.get("obs").expect("there").bytes().as_ptr(), address);
    assert_eq!(count, 0);

    // Not when it is shared, nor when its structure is another.
    let shared = target.clone();
    assert!(link.receiver.matching_buffer(&mut target).is_none());
    drop(shared);
    let mut other = sample();
    other.insert("more", vec![1_u8, 2]).expect("fits");
    assert!(link.receiver.matching_buffer(&mut other.consolidate()).is_none());
    assert!(link.receiver.matching_buffer(&mut sample()).is_none(), "not consolidated");
    assert!(link.receiver.matching_buffer(&mut sample().consolidate()).is_some(), "made here");
    assert!(link.receiver.matching_buffer(&mut target).is_some());
    assert!(target.is_empty(), "until the message replaces it");
}
