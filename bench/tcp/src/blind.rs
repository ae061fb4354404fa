//! The ceiling: it acknowledges each packet that the device gives, or sends super-packets as far as the
//! window permits, and knows nothing else. What it reads it does not look at. It relies on a device that
//! loses nothing.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use net::tun::{OFFLOAD_HEADER_BYTES, TUN_BUFFER_BYTES, Tun, TunDevice, tcp_offload};
use rustix::event::{PollFd, PollFlags, poll};
use units::Seq32;
use wire::ip::Protocol;
use wire::tcp::{Flags, Header, Options};
use wire::{checksum, ip};

use crate::serve::{CLOSE, GIVE};
use crate::{DEVICE, KERNEL, MTU, PORT, STACK};

/// Our window: 64 MB.
const SCALE: u8 = 10;

/// Bytes of data in a packet of the MTU, and in a super-packet.
const SEGMENT: usize = MTU as usize - 40;
const BURST: usize = SEGMENT * 44;

const IP_LEN: usize = 20;
const TCP_LEN: usize = 20;

/// The one connection.
struct Connection {
    remote: SocketAddr,
    /// The next number of ours, and what of ours is acknowledged.
    seq: Seq32,
    acked: Seq32,
    /// The next number of the peer's.
    ack: Seq32,
    /// The peer's window, and its scale.
    window: u32,
    scale: u8,
    what: Option<u8>,
}

pub(crate) fn serve() {
    let mut tun = Tun::open_up(DEVICE, &[(KERNEL, 24)], MTU).expect("a device");
    println!("ready");
    let (mut buffer, mut connection) = (vec![0; TUN_BUFFER_BYTES], None::<Connection>);
    let mut burst = vec![7; IP_LEN + TCP_LEN + BURST];
    loop {
        let mut is_idle = true;
        while let Ok(len) = tun.read(&mut buffer) {
            is_idle = false;
            take(&mut tun, &mut connection, &buffer[OFFLOAD_HEADER_BYTES..len]);
            if connection.as_ref().is_some_and(|connection| connection.what == Some(GIVE)) {
                break;
            }
        }
        if let Some(connection) = connection.as_mut().filter(|connection| connection.what == Some(GIVE)) {
            while (connection.seq - connection.acked.get()).get() as usize + BURST <= connection.window as usize {
                is_idle = false;
                send(&mut tun, connection, Flags::ACK, Options::default(), Some(&mut burst));
                connection.seq = connection.seq + BURST as u32;
            }
        }
        if is_idle {
            poll(&mut [PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)], None).expect("Linux");
        }
    }
}

fn take(tun: &mut Tun, known: &mut Option<Connection>, packet: &[u8]) {
    let Ok(parsed) = ip::Packet::parse(packet) else { return };
    if parsed.protocol != Protocol::TCP {
        return;
    }
    let (header, header_len) = Header::parse(parsed.payload).expect("it is the kernel's");
    let len = (parsed.payload.len() - header_len) as u32;
    if header.flags.contains(Flags::SYN) {
        let scale = header.options.window_scale.unwrap_or(0);
        let connection = known.insert(Connection {
            remote: (parsed.source, header.source_port).into(),
            seq: Seq32::new(1),
            acked: Seq32::new(1),
            ack: header.seq + 1,
            window: header.window.into(),
            scale,
            what: None,
        });
        let options = Options { mss: Some(SEGMENT as u16), window_scale: Some(SCALE), ..Options::default() };
        connection.seq = Seq32::new(0);
        send(tun, connection, Flags::SYN | Flags::ACK, options, None);
        connection.seq = Seq32::new(1);
        return;
    }
    let Some(connection) = known.as_mut().filter(|known| known.remote.port() == header.source_port) else { return };
    if header.flags.contains(Flags::RST) {
        *known = None;
        return;
    }
    if header.flags.contains(Flags::ACK) {
        (connection.acked, connection.window) = (header.ack, u32::from(header.window) << connection.scale);
    }
    if len > 0 {
        connection.what.get_or_insert(parsed.payload[header_len]);
        connection.ack = header.seq + len;
    }
    let has_fin = header.flags.contains(Flags::FIN);
    connection.ack = connection.ack + u32::from(has_fin);
    if connection.what == Some(CLOSE) && len > 0 {
        send(tun, connection, Flags::FIN | Flags::ACK, Options::default(), None);
        connection.seq = connection.seq + 1;
    } else if len > 0 || has_fin {
        send(tun, connection, Flags::ACK, Options::default(), None);
    }
}

/// Sends a segment; with `burst` a super-packet, of which only the headers are written.
fn send(tun: &mut Tun, connection: &Connection, flags: Flags, options: Options, burst: Option<&mut Vec<u8>>) {
    let header = Header {
        source_port: PORT,
        destination_port: connection.remote.port(),
        seq: connection.seq,
        ack: connection.ack,
        flags,
        window: u16::MAX,
        urgent: 0,
        options,
    };
    let data_len = if burst.is_some() { BURST } else { 0 };
    let mut bytes = Vec::with_capacity(100);
    let ip = ip::Header {
        source: STACK,
        destination: connection.remote.ip(),
        protocol: Protocol::TCP,
        hop_limit: 64,
        dscp: 0,
        ecn: None,
        id: 0,
        may_fragment: false,
    };
    ip.emit(header.len() + data_len, &mut bytes);
    header.emit(&mut bytes);
    let header_len = bytes.len();
    let pseudo =
        checksum::pseudo_header(STACK, connection.remote.ip(), Protocol::TCP, (header.len() + data_len) as u32);
    wire::tcp::fill_partial_checksum(&mut bytes[IP_LEN..], pseudo);
    let segment = burst.is_some().then_some(SEGMENT as u16);
    let offload = tcp_offload(false, IP_LEN as u16, header_len as u16, segment);
    let result = match burst {
        Some(burst) => {
            burst[..header_len].copy_from_slice(&bytes);
            tun.write(&[IoSlice::new(&offload), IoSlice::new(burst)])
        }
        None => tun.write(&[IoSlice::new(&offload), IoSlice::new(&bytes)]),
    };
    result.expect("the device takes everything");
}
