//! The lanes on which one process asks another one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::link::{LOOK_AFTER, Lane, Message};
use crate::places::Places;

/// No process has a use for more questions at once.
pub const MOST_LANES: usize = 64;

/// Those that are open, and the socket over which they are opened.
pub struct Lanes {
    control: Lane,
    lanes: Places<Lane>,
    most: usize,
    stall: Duration,
}

impl Lanes {
    /// Who finds no lane idle, and as many as there may be, waits for one no longer.
    const BUSY: Duration = Duration::from_secs(60);

    /// Over the socket that both were started with, as many as `most`. A message that stops on its way for longer than `stall` is
    /// an error; waiting for one is none.
    pub fn new(control: Lane, most: usize, stall: Duration) -> Self {
        Self { control: control.stall_for(stall), lanes: Places::new(most), most, stall }
    }

    /// Says something that has no answer.
    pub fn tell(&self, bytes: &[u8]) -> io::Result<()> {
        self.lanes.alone(|| self.control.send(bytes, &[], &[]))
    }

    /// Whether who asks now waits for no lane.
    pub fn has_room(&self) -> bool {
        self.lanes.has_room()
    }

    /// Asks. While there is no answer yet, `wait` is called again and again, and ends it by an error.
    pub fn ask<E: From<io::Error>>(
        &self,
        bytes: &[u8],
        after: &[u8],
        files: &[BorrowedFd<'_>],
        wait: impl FnMut() -> Result<(), E>,
    ) -> Result<Message, E> {
        let lane = self.lane()?;
        let answer = answer_on(&lane, bytes, after, files, wait);
        // One that failed is gone before it is counted so.
        let lane = answer.is_ok().then_some(lane);
        self.lanes.give_back(lane);
        answer
    }

    fn lane(&self) -> io::Result<Lane> {
        let busy = || {
            let words = format!("{} questions are open, which is as many as can be", self.most);
            io::Error::new(io::ErrorKind::ResourceBusy, words)
        };
        self.lanes.take(Self::BUSY, || self.open())?.ok_or_else(busy)
    }

    fn open(&self) -> io::Result<Lane> {
        let (ours, theirs) = Lane::pair()?;
        let ours = ours.stall_for(self.stall);
        self.control.send(&[], &[], &[theirs.as_fd()])?;
        Ok(ours)
    }

    /// Ends everything that is asked, and the other side's waiting.
    pub fn close(&self) {
        self.control.close();
    }
}

fn answer_on<E: From<io::Error>>(
    lane: &Lane,
    bytes: &[u8],
    after: &[u8],
    files: &[BorrowedFd<'_>],
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<Message, E> {
    lane.send_while(bytes, after, files, &mut wait)?;
    while !lane.is_ready_within(LOOK_AFTER)? {
        wait()?;
    }
    Ok(lane.receive_while(&mut wait)?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;

    fn nothing() -> Result<(), io::Error> {
        Ok(())
    }

    /// Ends of the lanes that are opened over `control`.
    fn opened(control: &Lane) -> Lane {
        control.receive().unwrap().unwrap().files.pop().unwrap().into()
    }

    #[test]
    fn who_finds_every_lane_taken_waits_for_one() {
        let (ours, theirs) = Lane::pair().unwrap();
        let lanes = Lanes::new(ours, 1, Duration::from_secs(60));
        std::thread::scope(|scope| {
            let ask = |words: &'static [u8]| {
                let lanes = &lanes;
                scope.spawn(move || lanes.ask(words, &[], &[], nothing).map(|answer| answer.bytes))
            };
            let first = ask(b"first");
            let lane = opened(&theirs);
            assert_eq!(lane.receive().unwrap().unwrap().bytes, b"first");
            let second = ask(b"second");
            assert!(!theirs.is_ready_within(Duration::from_millis(50)).unwrap(), "another lane was opened");
            lane.send(b"1", &[], &[]).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), b"1");
            assert_eq!(lane.receive().unwrap().unwrap().bytes, b"second");
            // One that is gone makes room for another.
            drop(lane);
            assert!(second.join().unwrap().is_err());
            let third = ask(b"third");
            let lane = opened(&theirs);
            assert_eq!(lane.receive().unwrap().unwrap().bytes, b"third");
            lane.send(b"3", &[], &[]).unwrap();
            assert_eq!(third.join().unwrap().unwrap(), b"3");
        });
    }

    #[test]
    fn whoever_waits_for_a_lane_that_can_not_be_opened_any_more_is_told_at_once() {
        let (ours, theirs) = Lane::pair().unwrap();
        let lanes = Lanes::new(ours, 1, Duration::from_secs(60));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let ask = || scope.spawn(|| lanes.ask(b"a question", &[], &[], nothing).map(drop));
            let first = ask();
            let lane = opened(&theirs);
            lane.receive().unwrap().unwrap();
            let waiting: Vec<_> = (0..3).map(|_| ask()).collect();
            std::thread::sleep(Duration::from_millis(100));
            drop((theirs, lane));
            assert!(first.join().unwrap().is_err());
            waiting.into_iter().for_each(|asked| assert!(asked.join().unwrap().is_err()));
        });
        assert!(begun.elapsed() < Lanes::BUSY / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_message_that_stops_on_its_way_is_waited_for_no_longer_than_whoever_asks_will() {
        let (ours, theirs) = Lane::pair().unwrap();
        let lanes = Lanes::new(ours, 1, Duration::from_secs(10));
        let stuck = AtomicBool::new(false);
        let gives_up = |bytes: &[u8]| {
            let (begun, mut looks) = (Instant::now(), 0);
            let wait = || {
                looks += usize::from(stuck.load(Ordering::Relaxed));
                if looks < 5 { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            };
            let error: io::Error = lanes.ask(bytes, &[], &[], wait).err().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(5), "{error} after {:?}", begun.elapsed());
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let lane = opened(&theirs);
                assert_eq!(lane.receive().unwrap().unwrap().bytes, b"question");
                let socket = UnixStream::from(OwnedFd::from(lane));
                // One byte of a hundred.
                (&socket).write_all(&[100, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
                stuck.store(true, Ordering::Relaxed);
                assert_eq!((&socket).read(&mut [0]).unwrap(), 0, "whoever asked has gone");
            });
            gives_up(b"question");
        });
        // Nobody reads so much.
        gives_up(&vec![1; 8 << 20]);
    }
}
