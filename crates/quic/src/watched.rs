//! The send half with what is known of it for as long as nobody changes it.
//!
//! Who only receives is asked after every packet whether it has something to send, and when it wants to be called. Nothing of that
//! changes by what arrives, so the answers of last time do: whoever may change the send half makes them void by getting at it.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use units::Instant;
use wire::quic::PathId;

use crate::send::SendHalf;

/// A send half.
pub(crate) struct Watched {
    half: SendHalf,
    /// [`SendHalf::timeout`], once it was asked for.
    timeout: Cell<Option<Option<Instant>>>,
    /// The last plan found nothing due, and would again at any time.
    rests: bool,
}

impl Watched {
    pub(crate) fn new(half: SendHalf) -> Self {
        Self { half, timeout: Cell::new(None), rests: false }
    }

    pub(crate) fn into_inner(self) -> SendHalf {
        self.half
    }

    /// When [`SendHalf::on_timeout`] has something to do.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if let Some(known) = self.timeout.get() {
            debug_assert_eq!(known, self.half.timeout(), "nobody has changed it");
            return known;
        }
        let timeout = self.half.timeout();
        self.timeout.set(Some(timeout));
        timeout
    }

    /// Nothing but acknowledgements can be due, and nothing else of it waits for a time to come.
    #[inline]
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    /// A plan was asked for and `half` says that nothing is due: that holds until it changes.
    pub(crate) fn note_rest(&mut self) {
        self.rests = self.half.found_nothing_due();
    }

    /// As [`SendHalf::on_received`]. Of a lone path that has proved itself that changes neither what is due nor when.
    #[inline]
    pub(crate) fn on_received(&mut self, now: Instant, path: PathId, bytes: u64) {
        if self.half.waits_for_arrivals() {
            self.forget();
        }
        self.half.on_received(now, path, bytes);
    }

    /// As [`SendHalf::on_heard`], which changes neither what is due nor when.
    #[inline]
    pub(crate) fn on_heard(&mut self) {
        self.half.on_heard();
    }

    fn forget(&mut self) {
        self.timeout.set(None);
        self.rests = false;
    }
}

impl Deref for Watched {
    type Target = SendHalf;

    #[inline]
    fn deref(&self) -> &SendHalf {
        &self.half
    }
}

impl DerefMut for Watched {
    #[inline]
    fn deref_mut(&mut self) -> &mut SendHalf {
        self.forget();
        &mut self.half
    }
}
