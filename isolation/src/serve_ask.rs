//! Questions of an isolated plugin's process to its host.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Progress, Result};

use crate::lanes::Lanes;
use crate::link::fits;
use crate::outgoing::Outgoing;
use crate::rooms::RoomParts;
use crate::wire::{self, Failure, Grant, Wish};

/// Progress is told no more often.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// Asks the host.
pub struct Ask(pub Lanes);

impl Ask {
    /// What is granted, and the bytes that come with it.
    pub fn ask(&self, wish: &Wish, after: &[u8]) -> Result<(Grant, Vec<u8>)> {
        let (grant, rest, _) = self.ask_with(wish, after, &Outgoing::default())?;
        Ok((grant, rest))
    }

    pub fn ask_with(
        &self,
        wish: &Wish,
        after: &[u8],
        files: &Outgoing,
    ) -> Result<(Grant, Vec<u8>, Vec<OwnedFd>)> {
        let wish = wire::write(wish)?;
        fits(wish.len().saturating_add(after.len()))?;
        let mut answer = self.0.ask(&wish, after, &files.seal()?, || Ok::<(), Error>(()))?;
        let (grant, rest) = wire::read_head::<std::result::Result<Grant, Failure>>(&answer.bytes)?;
        let head = answer.bytes.len() - rest.len();
        Ok((grant?, answer.bytes.split_off(head), answer.files))
    }

    /// Gives rooms back that were asked for, and that the host may not have taken anything from.
    pub fn end_rooms(&self, rooms: &[RoomParts]) {
        rooms.iter().for_each(|room| self.tell(&Wish::EndRoom(room.number)));
    }

    /// The same where an answer does not matter: where the host is gone, so is this process soon.
    pub fn tell(&self, wish: &Wish) {
        let _ = self.ask(wish, &[]);
    }

    /// The same for what may be lost where the host is busy with as much as can be asked of it.
    pub fn mention(&self, wish: &Wish) {
        if self.0.has_room() {
            self.tell(wish);
        }
    }

    /// Tells how far a call is.
    pub fn progress(self: Arc<Self>, call: u64) -> Arc<Progress> {
        let last = Mutex::new(None::<Instant>);
        Arc::new(move |done, total| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() < TELL_AFTER) && done != total {
                return;
            }
            *last = Some(Instant::now());
            self.mention(&Wish::Progress { call, done, total });
        })
    }
}
