//! Tests tasks on the threads of a host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crossdock_memory::{Code, Error, Result};
use crossdock_plugin_api::Tasks;
use crossdock_test_support::TestHost;

fn tasks(host: &TestHost) -> Tasks {
    Tasks::from_host(&host.host()).unwrap()
}

#[test]
fn every_job_runs_once() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let count = Arc::new(AtomicUsize::new(0));
    let job = || {
        let count = count.clone();
        move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    };
    let first = tasks.start((0..100).map(|_| job())).unwrap();
    let second = tasks.start((0..50).map(|_| job())).unwrap();
    second.wait(|| Ok(())).unwrap();
    first.wait(|| Ok(())).unwrap();
    tasks.start(Vec::<fn() -> Result<()>>::new()).unwrap().wait(|| Ok(())).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 150);
}

#[test]
fn wait_returns_the_error_of_a_job_that_fails_or_panics() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let fail = |i: usize| move || if i == 3 { Err(Error::bad_data("three")) } else { Ok(()) };
    let error = tasks.start((0..5).map(fail)).unwrap().wait(|| Ok(())).unwrap_err();
    assert_eq!(error.message(), "three");
    let panics: [fn() -> Result<()>; 1] = [|| panic!("on purpose")];
    let error = tasks.start(panics).unwrap().wait(|| Ok(())).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::INTERNAL, "a task of the plugin panicked"));
    tasks.start([|| Ok(())]).unwrap().wait(|| Ok(())).unwrap();
}

#[test]
fn dropping_a_group_waits_for_running_jobs_and_drops_the_others() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let n_done = Arc::new(AtomicUsize::new(0));
    let job = || {
        let n_done = n_done.clone();
        move || {
            std::thread::sleep(Duration::from_millis(20));
            n_done.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    };
    drop(tasks.start((0..1000).map(|_| job())).unwrap());
    assert!(n_done.load(Ordering::SeqCst) < 1000, "jobs that had not begun ran");
    assert_eq!(Arc::strong_count(&n_done), 1, "a job outlives its group");
}

#[test]
fn check_of_the_waiting_thread_ends_the_wait() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let (release, released) = channel::<()>();
    let released = std::sync::Mutex::new(released);
    let (started, has_started) = channel();
    let job = move || {
        started.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        Ok(())
    };
    let group = tasks.start([job]).unwrap();
    // If the host has only one thread, no other thread runs the job.
    if tasks.width() > 1 {
        has_started.recv().unwrap();
        assert!(!group.is_done());
        // The wait has ended with the error before the group waits for its job.
        let cancelled = || {
            release.send(()).unwrap();
            Err(Error::cancelled("enough"))
        };
        assert_eq!(group.wait(cancelled).unwrap_err().message(), "enough");
    }
}

#[test]
fn tasks_that_wait_for_tasks_do_not_block_each_other() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let count = Arc::new(AtomicUsize::new(0));
    let outer = |_: usize| {
        let (tasks, count) = (tasks.clone(), count.clone());
        move || {
            let inner = |_: usize| {
                let count = count.clone();
                move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            };
            tasks.start((0..4).map(inner))?.wait(|| Ok(()))
        }
    };
    tasks.start((0..64).map(outer)).unwrap().wait(|| Ok(())).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 256);
}

#[test]
fn tasks_run_on_several_threads() {
    let host = TestHost::new();
    let tasks = tasks(&host);
    let n = tasks.width();
    let barrier = Arc::new(Barrier::new(n));
    let job = |_: usize| {
        let barrier = barrier.clone();
        move || {
            barrier.wait();
            Ok(())
        }
    };
    // The jobs would wait forever for each other if fewer threads ran them.
    tasks.start((0..n).map(job)).unwrap().wait(|| Ok(())).unwrap();
}
