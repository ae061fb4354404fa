//! smoltcp, with the offloads of the device in both directions.

use std::io::IoSlice;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::time::Instant;

use net::tun::{OFFLOAD_HEADER_BYTES, TUN_BUFFER_BYTES, Tun, TunDevice, tcp_offload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::serve::{GIVE, TAKE};
use crate::{DEVICE, KERNEL, MTU, PORT, STACK};

/// The buffers of the socket: as large as those of our stack become.
const BUFFER: usize = 4 << 20;

struct OffloadTun(Tun);

struct Read(Vec<u8>);

struct Write<'a> {
    tun: &'a mut Tun,
    segment: Option<u16>,
}

impl RxToken for Read {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0[OFFLOAD_HEADER_BYTES..])
    }
}

impl TxToken for Write<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        let (ip_len, header_len) = match wire::ip::Packet::parse(&packet) {
            Ok(parsed) => {
                let ip_len = len - parsed.payload.len();
                let pseudo = wire::checksum::pseudo_header(
                    parsed.source,
                    parsed.destination,
                    parsed.protocol,
                    parsed.payload.len() as u32,
                );
                let header_len = ip_len + usize::from(parsed.payload[12] >> 4) * 4;
                wire::tcp::fill_partial_checksum(&mut packet[ip_len..], pseudo);
                (ip_len, header_len)
            }
            Err(_) => return result,
        };
        let header = tcp_offload(false, ip_len as u16, header_len as u16, self.segment);
        self.tun.write(&[IoSlice::new(&header), IoSlice::new(&packet)]).expect("the device is up");
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size.map(Into::into);
    }
}

impl Device for OffloadTun {
    type RxToken<'a> = Read;
    type TxToken<'a> = Write<'a>;

    fn receive(&mut self, _now: smoltcp::time::Instant) -> Option<(Read, Write<'_>)> {
        let mut buffer = vec![0; TUN_BUFFER_BYTES];
        let len = self.0.read(&mut buffer).ok()?;
        buffer.truncate(len);
        Some((Read(buffer), Write { tun: &mut self.0, segment: None }))
    }

    fn transmit(&mut self, _now: smoltcp::time::Instant) -> Option<Write<'_>> {
        Some(Write { tun: &mut self.0, segment: None })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        (capabilities.medium, capabilities.max_transmission_unit) = (Medium::Ip, MTU.into());
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities.checksum.tcp = Checksum::None;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(65_000);
        capabilities
    }
}

pub(crate) fn serve() {
    let tun = Tun::open_up(DEVICE, &[(KERNEL, 24)], MTU).expect("a device");
    let mut device = OffloadTun(tun.clone());
    let start = Instant::now();
    let now = || smoltcp::time::Instant::from_micros(start.elapsed().as_micros() as i64);
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, now());
    interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(IpAddress::from(STACK), 24)).expect("one"));
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.set_congestion_control(tcp::CongestionControl::Cubic);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);
    let (mut what, data) = (None, vec![7; 256 << 10]);
    println!("ready");
    loop {
        interface.poll(now(), &mut device, &mut sockets);
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        if !socket.is_open() {
            what = None;
            socket.listen(PORT).expect("it is closed");
        }
        if socket.can_recv() {
            let first = socket.recv(|data| (data.len(), data[0])).expect("it can");
            what = what.or(Some(first));
        }
        match what {
            Some(TAKE) | None => {}
            Some(GIVE) if socket.can_send() => drop(socket.send_slice(&data)),
            Some(GIVE) => {}
            Some(_) => socket.close(),
        }
        if socket.state() == tcp::State::CloseWait {
            socket.close();
        }
        if socket.state() == tcp::State::TimeWait {
            // One socket serves one connection after the other.
            socket.abort();
        }
        interface.poll(now(), &mut device, &mut sockets);
        if let Some(delay) = interface.poll_delay(now(), &sockets) {
            let time = Timespec { tv_sec: delay.secs() as i64, tv_nsec: delay.micros() as i64 % 1_000_000 * 1000 };
            poll(&mut [PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)], Some(&time)).expect("Linux");
        } else {
            poll(&mut [PollFd::from_borrowed_fd(tun.as_fd(), PollFlags::IN)], None).expect("Linux");
        }
    }
}
