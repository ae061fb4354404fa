//! The contenders and their congestion controllers.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::litz::{self, Shape};
#[cfg(feature = "noq")]
use super::noq;
use super::side::{Drive, Serve};
use super::tcp::{self, Transport};
use crate::contender::Failure;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// Litz over all links: several threads, one stream per segment, as files are sent
    LitzFile,
    /// Litz over all links: one ordered stream
    LitzStream,
    /// Litz over the best link: one ordered stream, multipath negotiated
    LitzBest,
    /// Litz over all links: messages
    LitzMessage,
    /// Litz over the best link: messages
    LitzMessageBest,
    /// Litz over the best link: one ordered stream, multipath not negotiated
    LitzPlain,
    /// Kernel Multipath TCP over all links
    Mptcp,
    /// Kernel TCP over the best link
    TcpBest,
    /// noq over all links: one ordered stream
    #[cfg(feature = "noq")]
    Noq,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    Cubic,
    Bbr,
}

impl Contender {
    /// These and noq, if it is built in.
    pub fn with_noq(contenders: Vec<Self>) -> Vec<Self> {
        #[cfg(feature = "noq")]
        let contenders = [contenders, vec![Self::Noq]].concat();
        contenders
    }

    /// How many of `links` the contender gets.
    pub const fn links(self, links: usize) -> usize {
        match self {
            Self::LitzBest | Self::LitzMessageBest | Self::LitzPlain | Self::TcpBest => 1,
            _ => links,
        }
    }

    /// How Litz is used; `None` for the others.
    const fn shape(self) -> Option<Shape> {
        match self {
            Self::LitzFile => Some(Shape::File),
            Self::LitzStream | Self::LitzBest => Some(Shape::Stream),
            Self::LitzPlain => Some(Shape::PlainStream),
            Self::LitzMessage | Self::LitzMessageBest => Some(Shape::Messages),
            _ => None,
        }
    }

    const fn transport(self) -> Option<Transport> {
        match self {
            Self::Mptcp => Some(Transport::Mptcp),
            Self::TcpBest => Some(Transport::Tcp),
            _ => None,
        }
    }

    /// The serving process: prints its addresses with `ready`, serves until the connection ends,
    /// returns what it received.
    pub fn serve(self, serve: &Serve) -> Result<super::side::Received, Failure> {
        if let Some(shape) = self.shape() {
            return litz::serve(shape, serve);
        }
        if let Some(transport) = self.transport() {
            return tcp::serve(transport, serve);
        }
        #[cfg(feature = "noq")]
        if self == Self::Noq {
            return noq::serve(serve);
        }
        Err("this contender is not built in".into())
    }

    /// The driving process.
    pub fn drive(self, drive: &Drive, remotes: &[SocketAddr]) -> Result<super::side::Sent, Failure> {
        if let Some(shape) = self.shape() {
            return litz::drive(shape, drive, remotes);
        }
        if let Some(transport) = self.transport() {
            return tcp::drive(transport, drive, remotes);
        }
        #[cfg(feature = "noq")]
        if self == Self::Noq {
            return noq::drive(drive, remotes);
        }
        Err("this contender is not built in".into())
    }
}
