//! What a command records of its connections: `--trace-scheduler`, `--journal` and `--qlog`.

use litz::TransportConfig;

use super::connect::base_transport;
use super::journals::Journals;
use super::scheduler_trace::Trace;
use super::transport_options::TransportOptions;
use super::warning::Warning;

/// The files in which connections are recorded.
pub(crate) struct Recording {
    trace: Option<Trace>,
    journals: Option<Journals>,
}

impl Recording {
    /// Creates the files and folders that the options name.
    ///
    /// # Errors
    /// If they cannot be created or written to: a message for the user.
    pub(crate) fn begin(options: &TransportOptions) -> Result<Self, String> {
        Self::with(Self::open_trace(options)?, options)
    }

    /// The file of the path choices alone, for a command that gives up rights before its first thread starts,
    /// which the journals need.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn open_trace(options: &TransportOptions) -> Result<Option<Trace>, String> {
        options.trace_scheduler.as_deref().map(Trace::create).transpose()
    }

    /// As [`begin`](Self::begin), after [`open_trace`](Self::open_trace).
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn with(trace: Option<Trace>, options: &TransportOptions) -> Result<Self, String> {
        Ok(Self { trace, journals: Journals::of(options)? })
    }

    /// The transport configuration that the options request, of connections that are recorded.
    pub(crate) fn transport(&self, options: &TransportOptions) -> TransportConfig {
        base_transport(options, self.trace.as_ref(), self.journals.as_ref())
    }

    /// Waits until the records of ended connections are on disk, and tells the user about errors.
    pub(crate) fn finish(&self, options: &TransportOptions) {
        for error in self.trace.iter().flat_map(Trace::take_errors) {
            Warning::Trace.print(options.json, options.quiet, &error);
        }
        for error in self.journals.iter().flat_map(Journals::take_errors) {
            Warning::Journal.print(options.json, options.quiet, &error);
        }
    }
}
