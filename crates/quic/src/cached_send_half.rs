//! The send half with a cache of its answers.
//!
//! A driver asks after every packet whether something is to be sent, and when the next timer fires.
//! On a connection that only receives, arrivals do not change these answers, so the last ones are
//! kept. Mutable access to the send half clears them.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use units::Instant;
use wire::quic::PathId;

use crate::send::SendHalf;

/// A send half and its last answers.
pub(crate) struct CachedSendHalf {
    half: SendHalf,
    /// The last answer of [`SendHalf::timeout`].
    timeout: Cell<Option<Option<Instant>>>,
    /// The last plan found nothing due, and the next one would not either, at any time.
    is_idle: bool,
}

impl CachedSendHalf {
    pub(crate) fn new(half: SendHalf) -> Self {
        Self { half, timeout: Cell::new(None), is_idle: false }
    }

    pub(crate) fn into_inner(self) -> SendHalf {
        self.half
    }

    /// When [`SendHalf::on_timeout`] has something to do.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        if let Some(known) = self.timeout.get() {
            debug_assert_eq!(known, self.half.timeout(), "the send half has not changed");
            return known;
        }
        let timeout = self.half.timeout();
        self.timeout.set(Some(timeout));
        timeout
    }

    /// True if nothing but acknowledgements can be due, now or later.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Notes after a plan whether nothing was due. That holds until the send half changes.
    pub(crate) fn note_idle(&mut self) {
        self.is_idle = self.half.found_nothing_due();
    }

    /// As [`SendHalf::on_received`]. On a single validated path this changes neither what is due
    /// nor when.
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
        self.is_idle = false;
    }
}

impl Deref for CachedSendHalf {
    type Target = SendHalf;

    #[inline]
    fn deref(&self) -> &SendHalf {
        &self.half
    }
}

impl DerefMut for CachedSendHalf {
    #[inline]
    fn deref_mut(&mut self) -> &mut SendHalf {
        self.forget();
        &mut self.half
    }
}
