//! [`Activity`]: the activities of a driver's processor, for measurements and for simulated
//! processors.

/// An activity of the driver's processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Time between the driver's turns. Under `inline` the application and its calls run then;
    /// otherwise the time is almost zero.
    Application,
    /// Processing requests of the application: written chunks, opened streams, flow-control credit.
    Serve,
    /// System calls that receive.
    RecvCall,
    /// Managing receive buffers, and finding the connection of a batch.
    Route,
    /// Opening the packets of a batch (parallel) and processing their contents (serial).
    OpenAbsorb,
    /// Timers.
    Timers,
    /// Passing events and received data to the application, and updating the next deadline.
    HandOver,
    /// Planning packets.
    Plan,
    /// Copying, encrypting, protecting headers.
    Seal,
    /// Reporting a sealed batch as emitted.
    Report,
    /// System calls that send, and what the kernel does inside them.
    SendCall,
    /// System calls that only check whether a socket is ready.
    Poll,
    /// Sleeping, including falling asleep and waking up.
    Waiting,
    /// Time taken by another thread: the gap was longer than any activity takes. Between turns, the
    /// application may have been busy instead.
    TakenAway,
}

/// The processors that may run an activity for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActivityKind {
    /// One processor at a time.
    Serial,
    /// Any number of processors.
    Parallel,
    /// Partly serial and partly parallel: see the activity.
    Both,
    /// The operating system runs it, on one processor for each socket.
    System,
    /// Nothing runs.
    Idle,
}

impl Activity {
    /// Every activity, in the order of a turn.
    pub const ALL: [Self; 14] = [
        Self::Application,
        Self::Serve,
        Self::RecvCall,
        Self::Route,
        Self::OpenAbsorb,
        Self::Timers,
        Self::HandOver,
        Self::Plan,
        Self::Seal,
        Self::Report,
        Self::SendCall,
        Self::Poll,
        Self::Waiting,
        Self::TakenAway,
    ];

    /// Returns its name in files, and its label.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Application => ("application", "application and its calls"),
            Self::Serve => ("serve", "process requests of the application"),
            Self::RecvCall => ("recv_call", "receive system call"),
            Self::Route => ("route", "manage buffers, find the connection"),
            Self::OpenAbsorb => ("open_absorb", "open and absorb"),
            Self::Timers => ("timers", "timers"),
            Self::HandOver => ("hand_over", "pass events and data to the application"),
            Self::Plan => ("plan", "plan"),
            Self::Seal => ("seal", "seal"),
            Self::Report => ("report", "report as emitted"),
            Self::SendCall => ("send_call", "send system call"),
            Self::Poll => ("poll", "check for ready sockets"),
            Self::Waiting => ("waiting", "waiting"),
            Self::TakenAway => ("taken_away", "processor taken by other threads"),
        }
    }

    /// Returns its name in files, which never changes.
    pub const fn id(self) -> &'static str {
        self.names().0
    }

    /// Returns its label for output to the user.
    pub const fn label(self) -> &'static str {
        self.names().1
    }

    /// Returns the processors that may run it.
    pub const fn kind(self) -> ActivityKind {
        match self {
            Self::Seal => ActivityKind::Parallel,
            Self::OpenAbsorb => ActivityKind::Both,
            Self::RecvCall | Self::SendCall | Self::Poll => ActivityKind::System,
            Self::Waiting | Self::TakenAway => ActivityKind::Idle,
            _ => ActivityKind::Serial,
        }
    }
}
