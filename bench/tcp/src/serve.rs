//! What a stack does with a connection: its first byte says it.

use std::io::{self, Read, Write};

/// Everything that comes is read and dropped.
pub(crate) const TAKE: u8 = b't';
/// Bytes are sent until the peer ends the connection.
pub(crate) const GIVE: u8 = b'g';
/// The connection is closed.
pub(crate) const CLOSE: u8 = b'c';

/// Bytes of a read or write.
pub(crate) const CHUNK: usize = 256 << 10;

/// Serves a connection of the kernel's sockets.
pub(crate) fn serve_socket(mut stream: std::net::TcpStream) -> io::Result<()> {
    let mut what = [0];
    stream.read_exact(&mut what)?;
    let mut memory = vec![0; CHUNK];
    match what[0] {
        TAKE => while stream.read(&mut memory)? > 0 {},
        GIVE => loop {
            stream.write_all(&memory)?;
        },
        _ => {}
    }
    Ok(())
}
