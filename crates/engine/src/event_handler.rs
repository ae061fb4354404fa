//! [`EventHandler`]: work that a driver's thread does between the turns of its protocol.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

/// Work of an application that a driver's thread does when a descriptor is readable, between the
/// turns of its protocol. Data that it sends leaves in the next turn, and no other thread is woken
/// for it.
///
/// The first driver of an endpoint calls it. It is not available under
/// [`Placement::Inline`](crate::Placement::Inline), which has no thread.
pub trait EventHandler: Debug + Send + Sync + 'static {
    /// Returns the descriptor. It stays open as long as the handler exists. An application that has
    /// several, or changes them, returns the descriptor of an `epoll` instance.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Returns whether to call the handler without an event. The driver queries this after each
    /// turn, before the thread sleeps: work that becomes due during the sleep must be an event of
    /// the descriptor.
    fn is_due(&self) -> bool;

    /// Handles an event of the descriptor, or work that is due. Events are announced once
    /// (`EPOLLET`): unread data is announced together with the next arrival.
    ///
    /// The thread holds no locks. It must not wait, neither for other threads nor for answers of
    /// this endpoint, and a call should take little longer than a turn, because no packets are
    /// received or sent during it.
    fn handle_event(&self);
}
