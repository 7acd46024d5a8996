//! A session's plugins: made by whoever asks first, replaced where one failed, while others choose among them.

#[path = "../../../../host/src/instances/list.rs"]
mod list;
mod sync;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use list::{Instances, List};

/// An instance: which plugin's, how many came before it, and what its maker wrote into it.
struct Instance {
    plugin: u32,
    written: UnsafeCell<u32>,
}

// SAFETY: what is written is in a cell of loom's, which says where somebody reads it meanwhile.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    fn new(plugin: u32, generation: u32) -> Arc<Self> {
        let written = UnsafeCell::new(0);
        // SAFETY: nobody else has it yet.
        written.with_mut(|written| unsafe { *written = generation });
        Arc::new(Self { plugin, written })
    }

    fn generation(&self) -> u32 {
        // SAFETY: its maker wrote before anybody had it, or loom says that they did not.
        self.written.with(|written| unsafe { *written })
    }
}

/// A list that has the first instance of each of two plugins.
fn made() -> (Arc<List<Instance>>, Instances<Instance>) {
    let list = Arc::new(List::default());
    let first = list.get_or_make(|| vec![Instance::new(0, 0), Instance::new(1, 0)]);
    (list, first)
}

/// The generations of what there is: one of each plugin, in order, wherever this is asked.
fn generations(list: &List<Instance>) -> [u32; 2] {
    let now = list.get_or_make(|| panic!("they were made before"));
    let [first, second] = &*now else { panic!("{} instances", now.len()) };
    assert_eq!([first.plugin, second.plugin], [0, 1], "one was lost, or is in another's place");
    [first.generation(), second.generation()]
}

#[test]
fn they_are_made_once_and_who_asks_meanwhile_gets_those() {
    model(5, || {
        let (list, n_made) = (Arc::new(List::default()), Arc::new(AtomicUsize::new(0)));
        let ask = |list: &List<Instance>, n_made: &AtomicUsize| {
            assert!(!list.is_made_here(), "it has not asked yet");
            let all = list.get_or_make(|| {
                assert!(list.is_made_here(), "it would wait for itself, and is not told so");
                n_made.fetch_add(1, Ordering::Relaxed);
                vec![Instance::new(0, 7)]
            });
            assert!(!list.is_made_here(), "they are made, or another thread makes them");
            assert_eq!(all[0].generation(), 7);
            all
        };
        let other = thread::spawn({
            let (list, n_made) = (list.clone(), n_made.clone());
            move || ask(&list, &n_made)
        });
        let mine = ask(&list, &n_made);
        assert!(Arc::ptr_eq(&mine[0], &other.join().unwrap()[0]), "two who asked have different ones");
        assert_eq!(n_made.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn who_chooses_while_one_is_replaced_finds_the_old_or_the_new_and_then_the_new() {
    model(5, || {
        let (list, first) = made();
        let other = thread::spawn({
            let (list, first) = (list.clone(), first.clone());
            move || list.replace(&first[0], &Instance::new(0, 1))
        });
        let [before, beside] = generations(&list);
        assert!(before <= 1 && beside == 0);
        other.join().unwrap();
        assert_eq!(generations(&list), [1, 0]);
        assert_eq!(first[0].generation(), 0, "who chose before keeps what it chose");
    });
}

#[test]
fn two_that_are_replaced_at_once_are_both_replaced_and_one_by_one_of_its_two() {
    model(5, || {
        let (list, first) = made();
        let replace = |list: &List<Instance>, first: &Instances<Instance>, plugin: u32, generation| {
            list.replace(&first[plugin as usize], &Instance::new(plugin, generation));
        };
        let other = thread::spawn({
            let (list, first) = (list.clone(), first.clone());
            move || {
                replace(&list, &first, 1, 1);
                replace(&list, &first, 0, 2);
            }
        });
        replace(&list, &first, 0, 1);
        other.join().unwrap();
        let [own, others] = generations(&list);
        assert!((own == 1 || own == 2) && others == 1, "{own} and {others}");
    });
}
