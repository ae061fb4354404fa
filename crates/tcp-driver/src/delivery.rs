//! [`Delivery`]: passes received data to the application, wherever the receive half is.

use std::sync::Arc;

use tcp::Read;

use crate::application::TcpCell;

/// Destination of received data.
pub(crate) struct Delivery {
    pub(crate) cell: Arc<TcpCell>,
    /// Whether the end of the peer's data was passed on.
    pub(crate) has_passed_end: bool,
}

impl Delivery {
    pub(crate) const fn new(cell: Arc<TcpCell>) -> Self {
        Self { cell, has_passed_end: false }
    }

    /// Passes on the results of `read` while the inbox has space; all of them if the connection
    /// `has_ended` and is removed afterwards: that is at most its receive buffer.
    pub(crate) fn pass(&mut self, has_ended: bool, mut read: impl FnMut(usize) -> Read) {
        if self.has_passed_end {
            return;
        }
        let space = |cell: &TcpCell| if has_ended { usize::MAX } else { cell.inbox_space() };
        let mut left = space(&self.cell);
        while left > 0 {
            match read(left) {
                Read::Bytes(bytes) => {
                    left -= bytes.len();
                    self.cell.deliver(bytes);
                    if left == 0 {
                        left = space(&self.cell);
                    }
                }
                Read::End => {
                    self.has_passed_end = true;
                    return self.cell.note_end();
                }
                Read::Blocked | Read::Closed(_) => return,
            }
        }
    }
}
