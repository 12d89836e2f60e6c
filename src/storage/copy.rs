//! [`copy`] and [`stream`]: bytes into and out of memory that another process reads or writes.

use std::mem::MaybeUninit;

/// glibc's `memcpy` turns to `rep movsb` at 2,112 bytes, where the processor claims to be good at it. On AMD's that
/// takes twice as long as vector instructions where another core of the chiplet had the bytes last. Shorter pieces never
/// get there.
const PIECE: usize = 2048;

/// A cache line. To stream less would cost a read of the rest.
const LINE: usize = 64;

/// Copies as many bytes as both have.
#[inline]
pub(crate) fn copy(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    let len = from.len().min(to.len());
    if len <= PIECE || !moves_strings() {
        copy_whole(&from[..len], &mut to[..len]);
    } else {
        from[..len].chunks(PIECE).zip(to[..len].chunks_mut(PIECE)).for_each(|(from, to)| copy_whole(from, to));
    }
}

#[inline]
fn copy_whole(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    debug_assert_eq!(from.len(), to.len());
    // SAFETY: both have as many bytes, and nobody else has those of `to`.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().cast(), from.len()) };
}

/// Whether `memcpy` may use `rep movsb`.
#[inline]
fn moves_strings() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("ermsb");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The same past our caches, for a reader so far away that fetching the lines from there would take it longer.
pub(crate) fn stream(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    let len = from.len().min(to.len());
    let head = to.as_ptr().align_offset(LINE).min(len);
    let whole = (len - head) / LINE * LINE;
    copy(&from[..head], &mut to[..head]);
    stream_lines(&from[head..head + whole], &mut to[head..head + whole]);
    copy(&from[head + whole..], &mut to[head + whole..]);
}

#[cfg(target_arch = "x86_64")]
fn stream_lines(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    let (from, to) = (from.chunks_exact(size_of::<__m128i>()), to.chunks_exact_mut(size_of::<__m128i>()));
    for (from, to) in from.zip(to) {
        // SAFETY: one vector; every x86-64 has SSE2.
        let vector = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
        // SAFETY: room for one, aligned because the first begins a line.
        unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), vector) };
    }
    // The transport's next store says that the bytes are there, so they have to be.
    // SAFETY: as above.
    unsafe { _mm_sfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn stream_lines(from: &[u8], to: &mut [MaybeUninit<u8>]) {
    copy(from, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_and_no_other() {
        let from: Vec<u8> = (0..6_000_u32).map(|i| ((i * 31) >> 3) as u8 | 1).collect();
        for way in [copy, stream] {
            for len in [0, 1, LINE, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5_000] {
                for (a, b) in [(0, 0), (1, 0), (17, 41)] {
                    let mut to = vec![MaybeUninit::new(0); 6_000];
                    way(&from[a..a + len], &mut to[b..b + len]);
                    // SAFETY: all were set above.
                    let to: Vec<u8> = to.into_iter().map(|byte| unsafe { byte.assume_init() }).collect();
                    assert!(to[b..b + len] == from[a..a + len], "{len} from {a} to {b}");
                    assert!(to[..b].iter().chain(&to[b + len..]).all(|&x| x == 0), "{len} from {a} to {b}");
                }
            }
        }
    }
}
