use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::pool::{Group, Owner};
use super::*;
use std::panic::AssertUnwindSafe;

const LONG: Duration = Duration::from_secs(60);

fn start(pool: &TaskPool, owner: Owner, group: &Arc<Group>, f: impl FnOnce() + Send + 'static) {
    pool.start(owner, group, Box::new(f)).unwrap();
}

#[test]
fn pool_of_any_width_runs_every_task_once() {
    for width in [1, 2, 5] {
        let pool = TaskPool::new(width);
        let (owner, group, count) = (pool.new_owner(), Arc::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let count = count.clone();
            start(&pool, owner, &group, move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(pool.wait(owner, &group, LONG).unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}

#[test]
fn waiting_thread_runs_only_tasks_of_its_owner() {
    let pool = TaskPool::new(1);
    let (ours, theirs) = (pool.new_owner(), pool.new_owner());
    let groups: [Arc<Group>; 3] = Default::default();
    let (send, receive) = channel();
    for (owner, group, name) in [(theirs, 0, "theirs"), (ours, 1, "ours, other group"), (ours, 2, "ours")] {
        let send = send.clone();
        start(&pool, owner, &groups[group], move || send.send(name).unwrap());
    }
    assert!(!pool.wait(ours, &groups[2], Duration::ZERO).unwrap(), "without time, no task runs");
    assert!(pool.wait(ours, &groups[2], LONG).unwrap());
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["ours, other group", "ours"]);
    assert!(!pool.wait(ours, &groups[0], Duration::from_millis(10)).unwrap());
    assert!(pool.wait(theirs, &groups[0], LONG).unwrap());
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["theirs"]);
}

#[test]
fn share_runs_the_function_on_several_threads_and_waits_for_all() {
    let pool = TaskPool::new(4);
    let (barrier, count) = (Barrier::new(4), AtomicUsize::new(0));
    let work = || {
        barrier.wait();
        std::thread::sleep(Duration::from_millis(5));
        count.fetch_add(1, Ordering::SeqCst);
    };
    pool.share(4, &work).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 4);
    let count = AtomicUsize::new(0);
    let work = || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    pool.share(1, &work).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1, "the caller alone");
}

#[test]
fn share_reports_panics_of_other_threads() {
    let pool = TaskPool::new(2);
    let (caller, barrier) = (std::thread::current().id(), Barrier::new(2));
    let work = || {
        barrier.wait();
        assert_eq!(std::thread::current().id(), caller, "another thread");
    };
    let error = pool.share(2, &work).unwrap_err();
    assert_eq!(error.message(), "a thread of the host panicked");
    let fails = std::panic::catch_unwind(AssertUnwindSafe(|| {
        pool.share(2, &|| {
            if std::thread::current().id() == caller {
                panic!("the caller");
            }
        })
    }));
    assert!(fails.is_err());
    pool.share(2, &|| ()).unwrap();
}

#[test]
fn last_reference_may_be_dropped_by_a_task() {
    let pool = TaskPool::new(3);
    let (owner, group) = (pool.new_owner(), Arc::<Group>::default());
    let (send, receive) = channel::<()>();
    let shared = pool.clone();
    start(&pool, owner, &group, move || {
        receive.recv().unwrap();
        drop(shared);
    });
    drop(pool);
    send.send(()).unwrap();
    let start = std::time::Instant::now();
    while !group.is_done() {
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    }
}
