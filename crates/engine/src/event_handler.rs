//! [`EventHandler`]: work that a driver's thread does between the turns of its protocol.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

/// Work of an application that the thread of a driver does when a descriptor is readable, between the turns of its
/// protocol. What it sends leaves in the next turn, and no other thread is woken for it.
///
/// The first driver of an endpoint calls it. [`Placement::Inline`](crate::Placement::Inline), which has no thread, takes
/// none.
pub trait EventHandler: Debug + Send + Sync + 'static {
    /// The descriptor. It stays open as long as the handler exists. An application that has several, or changes them,
    /// returns that of an `epoll` instance.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether to call it without an event. Asked after each turn, before the thread sleeps: what becomes due while it
    /// sleeps must be an event of the descriptor.
    fn is_due(&self) -> bool;

    /// Called after an event of the descriptor, and when it is due. Events are announced once (`EPOLLET`): data that are
    /// left unread are announced with the next that arrive.
    ///
    /// The thread holds no locks. It must not wait, neither for other threads nor for answers of this endpoint, and a
    /// call should take little longer than a turn: meanwhile no packets are received or sent.
    fn handle_event(&self);
}
