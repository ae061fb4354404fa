//! Who does the turns of an engine's processors: threads of their own, or the engine's owner, step by step.

use std::io;
use std::thread::JoinHandle;

use units::Instant;

/// What a processor beside the driver does, again and again.
pub(crate) trait Hand: Send {
    /// Turns until nobody has work for it any more, with sleep between them: what its thread does.
    fn run(self: Box<Self>);

    /// One turn, without sleep. One for which there is nothing to do does nothing.
    fn turn(&mut self);

    /// When it wants its next turn; `now` if there is something to do already.
    fn due_at(&self, now: Instant) -> Option<Instant>;
}

/// Takes on the processors of an engine that starts.
pub(crate) enum Crew {
    /// Each gets a thread.
    Threads,
    /// They are left to the engine's owner, in the order in which they started.
    Stepped(Vec<Box<dyn Hand>>),
}

impl Crew {
    /// The thread that the processor got, if it got one.
    ///
    /// # Errors
    /// If the system gives no thread.
    #[expect(clippy::disallowed_methods, reason = "this is where processors are given out")]
    pub(crate) fn take_on(&mut self, name: &str, hand: impl Hand + 'static) -> io::Result<Option<JoinHandle<()>>> {
        let hand: Box<dyn Hand> = Box::new(hand);
        match self {
            Self::Threads => std::thread::Builder::new().name(name.to_owned()).spawn(move || hand.run()).map(Some),
            Self::Stepped(hands) => {
                hands.push(hand);
                Ok(None)
            }
        }
    }
}
