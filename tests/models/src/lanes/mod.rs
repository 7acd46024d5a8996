//! The lanes on which an isolated plugin's process is asked: places that several threads take, make, give back and lose.
//!
//! Nobody's time is ever over here, so that who is not woken blocks for good.

#[path = "../../../../isolation/src/places.rs"]
#[expect(dead_code, reason = "what no model needs of it")]
mod places;
mod sync;

use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use places::Places;

/// A lane, on which one thread at a time asks.
struct Lane(UnsafeCell<u32>);

// SAFETY: what is written is in a cell of loom's, which says where somebody else is at it meanwhile.
unsafe impl Send for Lane {}

impl Lane {
    fn ask(&self) {
        // SAFETY: as above.
        self.0.with_mut(|asked| unsafe { *asked += 1 });
    }
}

#[derive(Debug, PartialEq)]
struct Gone;

/// How often `threads` threads, this one too, got a lane of so many, where one can be opened `openings` times, and each is gone after
/// the first question.
fn asked(threads: usize, most: usize, openings: usize) -> usize {
    let places = Arc::new(Places::new(most));
    let (open, opened, answered) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let ask = {
        let answered = answered.clone();
        move || {
            let make = || match opened.fetch_add(1, Ordering::Relaxed) {
                n if n < openings => {
                    assert!(open.fetch_add(1, Ordering::Relaxed) < most, "more than there may be");
                    Ok(Lane(UnsafeCell::new(0)))
                }
                _ => Err(Gone),
            };
            if let Ok(lane) = places.take(Duration::MAX, make) {
                lane.unwrap().ask();
                answered.fetch_add(1, Ordering::Relaxed);
                open.fetch_sub(1, Ordering::Relaxed);
                places.give_back(None);
            }
        }
    };
    let others: Vec<_> = (1..threads).map(|_| thread::spawn(ask.clone())).collect();
    ask();
    others.into_iter().for_each(|other| other.join().unwrap());
    answered.load(Ordering::Relaxed)
}

#[test]
fn a_lane_is_one_thread_s_at_a_time_and_whoever_waits_gets_it() {
    model(3, || {
        let places = Arc::new(Places::new(1));
        let made = Arc::new(AtomicUsize::new(0));
        let ask = move || {
            let make = || {
                assert_eq!(made.fetch_add(1, Ordering::Relaxed), 0, "the one there is was to be waited for");
                Ok::<_, Gone>(Lane(UnsafeCell::new(0)))
            };
            let lane = places.take(Duration::MAX, make).unwrap().unwrap();
            lane.ask();
            places.give_back(Some(lane));
        };
        let others = [thread::spawn(ask.clone()), thread::spawn(ask.clone())];
        ask();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn where_lanes_are_gone_after_a_question_others_are_opened_and_never_more_than_there_may_be() {
    model(3, || assert_eq!(asked(3, 1, 3), 3));
    model(2, || assert_eq!(asked(3, 2, 3), 3));
}

#[test]
fn where_none_can_be_opened_any_more_everybody_who_waits_is_told() {
    model(3, || assert_eq!(asked(3, 1, 1), 1));
}
