//! HTTP/3 on Litz: the traits of the `h3` crate, for [`litz::Connection`].
//!
//! `examples/http3.rs` is a server and a client. [`matrix`](crate::matrix) tries both with another
//! implementation.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use litz::{AcceptStreamError, Closed, OpenError, ReadError, WriteError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read at a time.
const READ_LEN: usize = 16 * 1024;

type Bidirectional = (litz::SendStream, litz::RecvStream);

/// A call of Litz that has not returned yet; none if it has.
type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Continues the call that is under way, or begins one.
fn poll_call<T, F>(pending: &mut Pending<T>, context: &mut Context<'_>, begin: impl FnOnce() -> F) -> Poll<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let result = ready!(pending.get_or_insert_with(|| Box::pin(begin())).as_mut().poll(context));
    *pending = None;
    Poll::Ready(result)
}

/// A connection for `h3::server` or `h3::client`.
pub struct Connection {
    opener: Opener,
    accept_bi: Pending<Result<Bidirectional, AcceptStreamError>>,
    accept_uni: Pending<Result<litz::RecvStream, AcceptStreamError>>,
}

impl Connection {
    /// The application protocol was negotiated: `h3` by ALPN.
    pub fn new(connection: litz::Connection) -> Self {
        Self { opener: Opener::new(connection), accept_bi: None, accept_uni: None }
    }
}

impl<B: Buf> quic::Connection<B> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let accepted = poll_call(&mut self.accept_uni, context, || {
            let connection = connection.clone();
            async move { connection.accept_uni_async().await }
        });
        accepted.map(|accepted| accepted.map(RecvStream).map_err(accept_error))
    }

    fn poll_accept_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let accepted = poll_call(&mut self.accept_bi, context, || {
            let connection = connection.clone();
            async move { connection.accept_bi_async().await }
        });
        accepted.map(|accepted| accepted.map(BidiStream::new).map_err(accept_error))
    }

    fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

impl<B: Buf> quic::OpenStreams<B> for Connection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(context)
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        self.opener.poll_open_send(context)
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        quic::OpenStreams::<B>::close(&mut self.opener, code, reason);
    }
}

/// Opens streams of a connection.
pub struct Opener {
    connection: litz::Connection,
    open_bi: Pending<Result<Bidirectional, OpenError>>,
    open_uni: Pending<Result<litz::SendStream, OpenError>>,
}

impl Opener {
    fn new(connection: litz::Connection) -> Self {
        Self { connection, open_bi: None, open_uni: None }
    }
}

impl Clone for Opener {
    /// Calls that are under way stay with the original.
    fn clone(&self) -> Self {
        Self::new(self.connection.clone())
    }
}

impl<B: Buf> quic::OpenStreams<B> for Opener {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        let connection = &self.connection;
        let opened = poll_call(&mut self.open_bi, context, || {
            let connection = connection.clone();
            async move { connection.open_bi_async().await }
        });
        opened.map(|opened| opened.map(BidiStream::new).map_err(open_error))
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        let connection = &self.connection;
        let opened = poll_call(&mut self.open_uni, context, || {
            let connection = connection.clone();
            async move { connection.open_uni_async().await }
        });
        opened.map(|opened| opened.map(SendStream::new).map_err(open_error))
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        self.connection.close(code.value(), &String::from_utf8_lossy(reason));
    }
}

/// The sending side of a stream.
pub struct SendStream<B: Buf> {
    stream: litz::SendStream,
    /// What `send_data` was given and the stream has not taken yet.
    writing: Option<WriteBuf<B>>,
}

impl<B: Buf> SendStream<B> {
    fn new(stream: litz::SendStream) -> Self {
        Self { stream, writing: None }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) {
            let len = ready!(Pin::new(&mut self.stream).poll_write(context, data.chunk())).map_err(io_error)?;
            data.advance(len);
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            let text = "send_data was called before poll_ready was ready".to_owned();
            let connection_error = ConnectionErrorIncoming::InternalError(text);
            return Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error });
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(context))?;
        Poll::Ready(self.stream.finish().map_err(write_error))
    }

    fn reset(&mut self, reset_code: u64) {
        self.stream.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

/// The receiving side of a stream.
pub struct RecvStream(litz::RecvStream);

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut bytes = vec![0; READ_LEN];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer)).map_err(io_error)?;
        let len = buffer.filled().len();
        bytes.truncate(len);
        Poll::Ready(Ok((len > 0).then(|| bytes.into())))
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.0.stop(error_code);
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.0.id())
    }
}

/// A stream in both directions.
pub struct BidiStream<B: Buf> {
    send: SendStream<B>,
    recv: RecvStream,
    data: PhantomData<B>,
}

impl<B: Buf> BidiStream<B> {
    fn new((send, recv): Bidirectional) -> Self {
        Self { send: SendStream::new(send), recv: RecvStream(recv), data: PhantomData }
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(context)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(context)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream<B>, RecvStream) {
        (self.send, self.recv)
    }
}

fn stream_id(id: litz::StreamId) -> StreamId {
    id.raw().try_into().expect("identifiers of streams have 62 bits")
}

fn closed_error(closed: Closed) -> ConnectionErrorIncoming {
    match closed {
        Closed::ByPeer { code, .. } => ConnectionErrorIncoming::ApplicationClose { error_code: code },
        Closed::TimedOut => ConnectionErrorIncoming::Timeout,
        closed => ConnectionErrorIncoming::Undefined(Arc::new(closed)),
    }
}

fn accept_error(error: AcceptStreamError) -> ConnectionErrorIncoming {
    match error {
        AcceptStreamError::ConnectionClosed(closed) => closed_error(closed),
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn of_connection(closed: Closed) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: closed_error(closed) }
}

fn open_error(error: OpenError) -> StreamErrorIncoming {
    match error {
        OpenError::ConnectionClosed(closed) => of_connection(closed),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        WriteError::ConnectionClosed(closed) => of_connection(closed),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

/// An error of a stream of Litz in its `AsyncRead` or `AsyncWrite`, which wrap it.
fn io_error(error: io::Error) -> StreamErrorIncoming {
    let inner = error.get_ref();
    if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<WriteError>()) {
        return write_error(error.clone());
    }
    if let Some(ReadError::Reset(error_code)) = inner.and_then(|inner| inner.downcast_ref::<ReadError>()) {
        return StreamErrorIncoming::StreamTerminated { error_code: *error_code };
    }
    if let Some(closed) = inner.and_then(|inner| inner.downcast_ref::<Closed>()) {
        return of_connection(closed.clone());
    }
    StreamErrorIncoming::Unknown(Box::new(error))
}
