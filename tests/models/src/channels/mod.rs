//! Models the pool of channels to an isolated plugin's process. Several threads use the pool.
//!
//! No timeout expires in the models, so a thread that is never woken blocks forever, and loom
//! reports it.

#[path = "../../../../isolation/src/wire/channel_pool.rs"]
#[expect(dead_code, reason = "parts that the models do not use")]
mod channel_pool;
mod sync;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use channel_pool::ChannelPool;

/// A channel that only one thread at a time may use.
struct Channel(UnsafeCell<u32>);

// SAFETY: `UnsafeCell` is loom's, which fails the model if two threads access it at the same time.
unsafe impl Send for Channel {}

impl Channel {
    fn request(&self) {
        // SAFETY: loom passes a valid pointer, and fails the model if another thread accesses it.
        self.0.with_mut(|count| unsafe { *count += 1 });
    }
}

#[derive(Debug, PartialEq)]
struct CannotOpen;

/// Runs `threads` threads, including the calling thread. Each thread needs one of at most `max`
/// channels. The first `openings` attempts to open a channel succeed, and each channel is closed
/// after its first request. Returns the number of threads that got a channel.
fn successful_requests(threads: usize, max: usize, openings: usize) -> usize {
    let pool = Arc::new(ChannelPool::new(max));
    let (open, attempts, successes) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let request = {
        let successes = successes.clone();
        move || {
            let open_channel = || match attempts.fetch_add(1, Ordering::Relaxed) {
                n if n < openings => {
                    assert!(open.fetch_add(1, Ordering::Relaxed) < max, "more channels than the maximum");
                    Ok(Channel(UnsafeCell::new(0)))
                }
                _ => Err(CannotOpen),
            };
            if let Ok(channel) = pool.take(Duration::MAX, open_channel) {
                channel.unwrap().request();
                successes.fetch_add(1, Ordering::Relaxed);
                open.fetch_sub(1, Ordering::Relaxed);
                pool.put_back(None);
            }
        }
    };
    let others: Vec<_> = (1..threads).map(|_| thread::spawn(request.clone())).collect();
    request();
    others.into_iter().for_each(|other| other.join().unwrap());
    successes.load(Ordering::Relaxed)
}

#[test]
fn only_one_thread_at_a_time_uses_a_channel() {
    model(3, || {
        let pool = Arc::new(ChannelPool::new(1));
        let attempts = Arc::new(AtomicUsize::new(0));
        let request = move || {
            let open_channel = || {
                assert_eq!(attempts.fetch_add(1, Ordering::Relaxed), 0, "a second channel was opened");
                Ok::<_, CannotOpen>(Channel(UnsafeCell::new(0)))
            };
            let channel = pool.take(Duration::MAX, open_channel).unwrap().unwrap();
            channel.request();
            pool.put_back(Some(channel));
        };
        let others = [thread::spawn(request.clone()), thread::spawn(request.clone())];
        request();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn closed_channels_are_replaced_up_to_the_maximum() {
    model(3, || assert_eq!(successful_requests(3, 1, 3), 3));
    model(2, || assert_eq!(successful_requests(3, 2, 3), 3));
}

#[test]
fn all_waiting_threads_fail_when_no_channel_can_be_opened() {
    model(3, || assert_eq!(successful_requests(3, 1, 1), 1));
}
