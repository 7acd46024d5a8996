//! Vector clocks of streams, and the history of accesses to each block's bytes.
//!
//! The clock of a stream S contains one number for each stream T: how many operations of T are
//! ordered before the next operation of S. When S waits for an event, the clock at the record of
//! the event is joined into the clock of S. The host has one clock for all its threads, because the
//! simulator cannot detect how threads synchronize with each other. So the simulator does not
//! detect missing synchronization between threads, but it never reports a correct program.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::report::Site;

/// A vector clock of an operation: for each stream, by index, the number of operations on that
/// stream that are ordered before this operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<u64>);

impl Clock {
    pub(crate) fn get(&self, stream: usize) -> u64 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    /// Adds all work that is ordered before the operation with the clock `other`.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (time, other) in self.0.iter_mut().zip(&other.0) {
            *time = (*time).max(*other);
        }
    }

    /// Like [`Self::join`], but adds only the work of one stream.
    pub(crate) fn join_one(&mut self, other: &Self, stream: usize) {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] = self.0[stream].max(other.get(stream));
    }

    /// Whether `other` includes all work that this clock includes.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().enumerate().all(|(stream, time)| *time <= other.get(stream))
    }

    /// Advances the time of `stream`. Returns the new time.
    pub(crate) fn tick(&mut self, stream: usize) -> u64 {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        self.0[stream]
    }
}

/// An access to bytes by an operation on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub stream: usize,
    pub time: u64,
    pub site: Site,
}

impl Access {
    /// Whether the access is ordered before an operation with this clock.
    pub(crate) fn is_before(&self, clock: &Clock) -> bool {
        self.time <= clock.get(self.stream)
    }
}

/// An earlier access that is not ordered before a new access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    Write(Access),
    Read(Access),
}

impl Conflict {
    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Write(access) | Self::Read(access) => *access,
        }
    }
}

/// The accesses to the bytes of one block, stored for byte ranges that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct History(BTreeMap<u64, Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    end: u64,
    write: Option<Access>,
    /// The reads since the last write, at most one for each stream. No read in the list is ordered
    /// before another read in the list.
    reads: Vec<Access>,
}

impl History {
    /// The history of a new block. An allocation that was queued on a stream counts as a write of
    /// all bytes.
    pub(crate) fn new(bytes: u64, allocation: Option<Access>) -> Self {
        Self(BTreeMap::from([(0, Segment { end: bytes, write: allocation, reads: Vec::new() })]))
    }

    /// Records a read of `range`. Returns a write that is not ordered before the read, if there is
    /// one. `clock` includes the read itself.
    pub(crate) fn read(&mut self, range: Range<u64>, access: Access, clock: &Clock) -> Option<Conflict> {
        self.split(range.start);
        self.split(range.end);
        let mut conflict = None;
        for (_, segment) in self.0.range_mut(range.clone()) {
            if let Some(write) = segment.write.filter(|write| !write.is_before(clock)) {
                conflict = conflict.or(Some(Conflict::Write(write)));
            }
            segment.reads.retain(|read| !read.is_before(clock));
            segment.reads.push(access);
        }
        self.merge(range);
        conflict
    }

    /// Records a write of `range`. Returns an access that is not ordered before the write, if there
    /// is one. `clock` includes the write itself.
    pub(crate) fn write(&mut self, range: Range<u64>, access: Access, clock: &Clock) -> Option<Conflict> {
        self.split(range.start);
        self.split(range.end);
        let mut conflict = None;
        let mut starts = Vec::new();
        for (start, segment) in self.0.range_mut(range.clone()) {
            conflict = conflict.or_else(|| segment.conflict(clock));
            starts.push(*start);
        }
        starts.iter().for_each(|start| drop(self.0.remove(start)));
        if !range.is_empty() {
            let segment = Segment { end: range.end, write: Some(access), reads: Vec::new() };
            self.0.insert(range.start, segment);
        }
        self.merge(range);
        conflict
    }

    /// Returns an access to any byte of the block that `clock` does not include.
    pub(crate) fn conflict(&self, clock: &Clock) -> Option<Conflict> {
        self.0.values().find_map(|segment| segment.conflict(clock))
    }

    /// Splits the segment that contains `at`.
    fn split(&mut self, at: u64) {
        let Some((_, segment)) = self.0.range_mut(..at).next_back() else { return };
        if segment.end > at {
            let tail = segment.clone();
            segment.end = at;
            self.0.insert(at, tail);
        }
    }

    /// Merges adjacent segments with the same accesses, in and next to `range`.
    fn merge(&mut self, range: Range<u64>) {
        let first = self.0.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        let starts: Vec<u64> = self.0.range(first..=range.end).map(|(start, _)| *start).collect();
        for start in starts.into_iter().skip(1) {
            let Some((_, before)) = self.0.range(..start).next_back() else { continue };
            let Some(segment) = self.0.get(&start) else { continue };
            if before.end == start && before.write == segment.write && before.reads == segment.reads {
                let end = segment.end;
                self.0.remove(&start);
                if let Some((_, before)) = self.0.range_mut(..start).next_back() {
                    before.end = end;
                }
            }
        }
    }
}

impl Segment {
    fn conflict(&self, clock: &Clock) -> Option<Conflict> {
        let late = |access: &&Access| !access.is_before(clock);
        let write = self.write.as_ref().filter(late).map(|write| Conflict::Write(*write));
        write.or_else(|| self.reads.iter().find(late).map(|read| Conflict::Read(*read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(times: &[u64]) -> Clock {
        Clock(times.to_vec())
    }

    fn access(stream: usize, time: u64) -> Access {
        Access { stream, time, site: Site::default() }
    }

    #[test]
    fn read_must_be_ordered_after_the_last_write_of_its_bytes() {
        let mut history = History::new(100, None);
        assert_eq!(history.write(0..50, access(0, 1), &clock(&[1])), None);
        assert_eq!(history.write(50..100, access(1, 1), &clock(&[0, 1])), None);
        assert_eq!(history.read(0..50, access(0, 2), &clock(&[2])), None);
        assert_eq!(history.read(49..51, access(0, 3), &clock(&[3])), Some(Conflict::Write(access(1, 1))));
        assert_eq!(history.read(49..51, access(0, 3), &clock(&[3, 1])), None);
    }

    #[test]
    fn write_must_be_ordered_after_every_read_of_its_bytes() {
        let mut history = History::new(100, None);
        history.read(10..20, access(0, 1), &clock(&[1]));
        history.read(0..100, access(1, 1), &clock(&[0, 1]));
        let only_the_last = clock(&[0, 1, 1]);
        assert_eq!(history.conflict(&only_the_last), Some(Conflict::Read(access(0, 1))));
        assert_eq!(history.write(0..10, access(2, 1), &only_the_last), None);
        let conflict = history.write(0..11, access(2, 2), &clock(&[0, 1, 2]));
        assert_eq!(conflict, Some(Conflict::Read(access(0, 1))));
        assert_eq!(history.conflict(&clock(&[0, 1, 2])), Some(Conflict::Read(access(0, 1))));
    }

    #[test]
    fn adjacent_ranges_with_equal_accesses_are_merged() {
        let mut history = History::new(100, None);
        for time in 1..=10 {
            let range = (time - 1) * 10..time * 10;
            history.read(range, access(0, time), &clock(&[time]));
        }
        assert_eq!(history.0.len(), 10);
        history.read(0..100, access(0, 11), &clock(&[11]));
        assert_eq!(history.0.len(), 1);
        history.write(0..100, access(0, 12), &clock(&[12]));
        assert_eq!(history.0.len(), 1);
    }
}
