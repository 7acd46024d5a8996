use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};

use super::pool::Group;
use super::*;
use std::panic::AssertUnwindSafe;

const LONG: Duration = Duration::from_secs(60);

fn start(tasks: &InstanceTasks, group: &Arc<Group>, f: impl FnOnce() + Send + 'static) {
    tasks.start(group, Box::new(f)).unwrap();
}

#[test]
fn pool_of_any_width_runs_every_task_once() {
    for width in [1, 2, 5] {
        let tasks = TaskPool::new(width).for_instance();
        let (group, count) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let count = count.clone();
            start(&tasks, &group, move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(tasks.wait(&group, LONG).unwrap());
        assert_eq!(count.load(Ordering::Relaxed), 100);
    }
}

#[test]
fn waiting_thread_runs_only_tasks_of_its_owner() {
    let pool = TaskPool::new(1);
    let (ours, theirs) = (pool.for_instance(), pool.for_instance());
    let groups: [Arc<Group>; 3] = Default::default();
    let (send, receive) = channel();
    for (owner, group, name) in [(&theirs, 0, "theirs"), (&ours, 1, "ours, other group"), (&ours, 2, "ours")]
    {
        let send = send.clone();
        start(owner, &groups[group], move || send.send(name).unwrap());
    }
    assert!(!ours.wait(&groups[2], Duration::ZERO).unwrap(), "without time, no task runs");
    assert!(ours.wait(&groups[2], LONG).unwrap());
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["ours, other group", "ours"]);
    assert!(!ours.wait(&groups[0], Duration::from_millis(10)).unwrap());
    assert!(theirs.wait(&groups[0], LONG).unwrap());
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), ["theirs"]);
}

#[test]
fn share_runs_the_function_on_several_threads_and_waits_for_all() {
    let tasks = TaskPool::new(4).for_instance();
    let (barrier, count) = (Barrier::new(4), AtomicUsize::new(0));
    let work = || {
        // Each of the four threads runs the function once.
        let n = count.fetch_add(1, Ordering::SeqCst);
        if n < 4 {
            barrier.wait();
            std::thread::sleep(Duration::from_millis(5));
            count.fetch_add(100, Ordering::SeqCst);
        }
        false
    };
    tasks.share(4, &work).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 404);
}

#[test]
fn shared_call_runs_before_tasks_that_have_not_begun() {
    let tasks = TaskPool::new(2).for_instance();
    let group = Arc::default();
    let (begin, begun) = channel::<()>();
    let (send, order) = channel();
    // The only thread of the pool is busy until the shared call has begun.
    start(&tasks, &group, move || begun.recv().unwrap());
    let of_task = send.clone();
    start(&tasks, &group, move || of_task.send("task").unwrap());
    let (of_call, begin) = (Mutex::new(send), Mutex::new(begin));
    let (done, is_done) = channel();
    let (done, is_done) = (Mutex::new(done), Mutex::new(is_done));
    let caller = std::thread::current().id();
    let call = || {
        if std::thread::current().id() == caller {
            begin.lock().unwrap().send(()).unwrap();
            is_done.lock().unwrap().recv().unwrap();
        } else {
            of_call.lock().unwrap().send("shared call").unwrap();
            done.lock().unwrap().send(()).unwrap();
        }
        false
    };
    tasks.share(2, &call).unwrap();
    assert!(tasks.wait(&group, LONG).unwrap());
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["shared call", "task"]);
}

#[test]
fn share_runs_the_function_until_it_returns_false() {
    for width in [1, 4] {
        let tasks = TaskPool::new(width).for_instance();
        let left = AtomicUsize::new(100);
        let work = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        tasks.share(20, &work).unwrap();
        assert_eq!(left.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn waiting_thread_helps_a_shared_call_of_its_instance() {
    let tasks = TaskPool::new(2).for_instance();
    let (barrier, group) = (Arc::new(Barrier::new(2)), Arc::<Group>::default());
    let ours = tasks.clone();
    // The task runs on the only thread of the pool. Its shared call needs a second thread.
    start(&tasks, &group, move || {
        let work = || {
            barrier.wait();
            false
        };
        ours.share(2, &work).unwrap();
    });
    while !tasks.wait(&group, LONG).unwrap() {}
}

#[test]
fn share_reports_panics_of_other_threads() {
    let tasks = TaskPool::new(2).for_instance();
    let (caller, barrier) = (std::thread::current().id(), Barrier::new(2));
    let work = || {
        barrier.wait();
        assert_eq!(std::thread::current().id(), caller, "another thread");
        false
    };
    let error = tasks.share(2, &work).unwrap_err();
    assert_eq!(error.message(), "a thread of the host panicked");
    let panicking = || tasks.share(2, &|| std::thread::current().id() == caller && panic!("the caller"));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(panicking)).is_err());
    tasks.share(2, &|| false).unwrap();
}

#[test]
fn last_reference_may_be_dropped_by_a_task() {
    let pool = TaskPool::new(3);
    let (tasks, group) = (pool.for_instance(), Arc::<Group>::default());
    let (send, receive) = channel::<()>();
    start(&tasks, &group, move || {
        receive.recv().unwrap();
        drop(pool);
    });
    drop(tasks);
    send.send(()).unwrap();
    let start = std::time::Instant::now();
    while !group.is_done() {
        assert!(start.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert!(!group.has_panicked(), "the thread cannot join itself");
}
