//! Models the plugin instances of a session. The first thread that needs the instances creates
//! them. An instance is replaced after a failure while other threads use the list.

#[path = "../../../../host/src/instances/list.rs"]
mod list;
mod sync;

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use list::{Instances, List};

/// An instance, with the index of its plugin and its generation. The generation is written after
/// the instance was created.
struct Instance {
    plugin: u32,
    written: UnsafeCell<u32>,
}

// SAFETY: loom's cell reports concurrent access.
unsafe impl Send for Instance {}
// SAFETY: loom's cell reports concurrent access.
unsafe impl Sync for Instance {}

impl Instance {
    fn new(plugin: u32, generation: u32) -> Arc<Self> {
        let written = UnsafeCell::new(0);
        // SAFETY: no other thread has the instance yet.
        written.with_mut(|written| unsafe { *written = generation });
        Arc::new(Self { plugin, written })
    }

    fn generation(&self) -> u32 {
        // SAFETY: the generation was written before the instance was shared; otherwise loom reports
        // the access.
        self.written.with(|written| unsafe { *written })
    }
}

/// A list with the first instances of two plugins.
fn filled() -> (Arc<List<Instance>>, Instances<Instance>) {
    let list = Arc::new(List::default());
    let first = list.get_or_create(|| vec![Instance::new(0, 0), Instance::new(1, 0)]);
    (list, first)
}

/// The generations of the current instances, one for each plugin, in order.
fn generations(list: &List<Instance>) -> [u32; 2] {
    let now = list.get_or_create(|| panic!("the instances exist"));
    let [first, second] = &*now else { panic!("{} instances", now.len()) };
    assert_eq!([first.plugin, second.plugin], [0, 1], "an instance is missing or in the wrong place");
    [first.generation(), second.generation()]
}

#[test]
fn instances_are_created_once_and_shared() {
    model(5, || {
        let (list, n_created) = (Arc::new(List::default()), Arc::new(AtomicUsize::new(0)));
        let ask = |list: &List<Instance>, n_created: &AtomicUsize| {
            assert!(!list.is_creating_here(), "no creation runs on this thread");
            let all = list.get_or_create(|| {
                assert!(list.is_creating_here(), "this thread would wait for itself");
                n_created.fetch_add(1, Ordering::Relaxed);
                vec![Instance::new(0, 7)]
            });
            assert!(!list.is_creating_here(), "creation is over, or on another thread");
            assert_eq!(all[0].generation(), 7);
            all
        };
        let other = thread::spawn({
            let (list, n_created) = (list.clone(), n_created.clone());
            move || ask(&list, &n_created)
        });
        let own = ask(&list, &n_created);
        assert!(Arc::ptr_eq(&own[0], &other.join().unwrap()[0]), "two threads got different instances");
        assert_eq!(n_created.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn readers_get_the_old_or_new_instance_and_later_only_the_new() {
    model(5, || {
        let (list, first) = filled();
        let other = thread::spawn({
            let (list, first) = (list.clone(), first.clone());
            move || list.replace(&first[0], &Instance::new(0, 1))
        });
        let [replaced, unchanged] = generations(&list);
        assert!(replaced <= 1 && unchanged == 0);
        other.join().unwrap();
        assert_eq!(generations(&list), [1, 0]);
        assert_eq!(first[0].generation(), 0, "an earlier reader keeps its instances");
    });
}

#[test]
fn concurrent_replacements_both_take_effect() {
    model(5, || {
        let (list, first) = filled();
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
        let [first, second] = generations(&list);
        assert!((first == 1 || first == 2) && second == 1, "{first} and {second}");
    });
}
