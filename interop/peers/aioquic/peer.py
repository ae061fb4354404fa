"""aioquic as a peer: see ../README.md for the protocol and the arguments."""

import argparse
import asyncio
import hashlib
import json
import socket
import sys
import time

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

ALPN = "litz-interop"
PERIOD = 65521
# What is given to aioquic at a time: it keeps everything that it has not sent.
CHUNK = 256 * 1024
BUFFER_MAX = 4 * CHUNK
WINDOW = 8 * 1024 * 1024
DATAGRAM_SIZE = 1400
VERSIONS = {"1": 1, "2": 0x6B3343CF}

PATTERN = bytes((i * 2654435761 & 0xFFFFFFFF) >> 24 for i in range(PERIOD))
LONG = PATTERN * (CHUNK // PERIOD + 2)


def pattern(offset, length):
    start = offset % PERIOD
    return LONG[start : start + length]


def versions(text):
    return [VERSIONS[word] for word in text.split(",")]


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Incoming:
    """A stream as it arrives."""

    def __init__(self, done):
        self.hash = hashlib.sha256()
        self.bytes = 0
        self.line = None
        self.head = b""
        self.done = done
        self.keep = None


class Peer(QuicConnectionProtocol):
    def __init__(self, quic, stream_handler=None):
        super().__init__(quic)
        self.incoming = {}
        self.outgoing = {}
        self.is_client = quic.configuration.is_client
        self.closed_with = None
        self.resumed = self.early = False
        self.progress = None

    # What arrives.

    def quic_event_received(self, event):
        if isinstance(event, events.HandshakeCompleted):
            self.resumed, self.early = event.session_resumed, event.early_data_accepted
        elif isinstance(event, events.ConnectionTerminated):
            self.closed_with = event
            for stream in self.incoming.values():
                if stream.done is not None and not stream.done.done():
                    stream.done.set_exception(ConnectionError(f"{event.error_code} {event.reason_phrase}"))
        elif isinstance(event, events.StreamDataReceived):
            self.on_data(event.stream_id, event.data, event.end_stream)

    def on_data(self, number, data, end):
        stream = self.incoming.get(number)
        if stream is None:
            if self.is_client:
                return
            stream = self.incoming[number] = Incoming(None)
        if stream.done is None and stream.line is None:
            stream.head += data
            line, newline, data = stream.head.partition(b"\n")
            if not newline:
                return
            stream.line = line.decode().split()
        stream.hash.update(data)
        stream.bytes += len(data)
        if stream.keep is not None:
            stream.keep += data
        if self.progress is not None:
            self.progress(stream)
        if not end:
            return
        if stream.done is not None:
            if not stream.done.done():
                stream.done.set_result(stream)
            return
        del self.incoming[number]
        kind, count = stream.line[0], int(stream.line[1])
        if kind == "GET":
            self.outgoing[number] = [0, count]
        else:
            self._quic.send_stream_data(number, stream.hash.hexdigest().encode(), end_stream=True)

    # What is sent: little at a time, whenever aioquic has sent what it had.

    def transmit(self):
        super().transmit()
        while self.feed():
            super().transmit()

    def feed(self):
        fed = False
        for number, state in list(self.outgoing.items()):
            sender = self._quic._streams[number].sender
            while state[0] < state[1] and len(sender._buffer) < BUFFER_MAX:
                length = min(CHUNK, state[1] - state[0])
                self._quic.send_stream_data(number, pattern(state[0], length))
                state[0] += length
                fed = True
            if state[0] == state[1]:
                self._quic.send_stream_data(number, b"", end_stream=True)
                del self.outgoing[number]
                fed = True
        return fed

    # Requests of a client.

    def request(self, line, upload=0, keep=False):
        number = self._quic.get_next_available_stream_id()
        stream = self.incoming[number] = Incoming(self._loop.create_future())
        if keep:
            stream.keep = b""
        if upload:
            self._quic.send_stream_data(number, line)
            self.outgoing[number] = [0, upload]
        else:
            self._quic.send_stream_data(number, line, end_stream=True)
        return stream


def client_socket():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind(("127.0.0.1", 0))
    return sock


class Moved(asyncio.DatagramProtocol):
    """A new socket of a connection that exists."""

    def __init__(self, peer):
        self.peer = peer

    def connection_made(self, transport):
        self.peer._transport = transport

    def datagram_received(self, data, addr):
        self.peer.datagram_received(data, addr)


class Client:
    def __init__(self, options):
        host, port = options.server.rsplit(":", 1)
        self.address, self.options = (host, int(port)), options
        self.ticket, self.token, self.peer = None, b"", None

    async def connect(self, early=0):
        configuration = QuicConfiguration(
            alpn_protocols=[ALPN],
            server_name="localhost",
            max_data=WINDOW,
            max_stream_data=WINDOW,
            max_datagram_size=DATAGRAM_SIZE,
            idle_timeout=20,
            session_ticket=self.ticket,
            token=self.token,
            supported_versions=self.options.versions,
            # Every server has version 1. One that prefers another version goes on in that.
            original_version=1 if 1 in self.options.versions else None,
        )
        configuration.load_verify_locations(self.options.ca)
        quic = QuicConnection(
            configuration=configuration,
            session_ticket_handler=lambda ticket: setattr(self, "ticket", ticket),
            token_handler=lambda token: setattr(self, "token", token),
        )
        loop = asyncio.get_running_loop()
        _, self.peer = await loop.create_datagram_endpoint(lambda: Peer(quic), sock=client_socket())
        self.peer.connect(self.address, transmit=not early)
        started, stream = time.monotonic(), None
        if early:
            stream = self.peer.request(b"GET %d\n" % early)
            self.peer.transmit()
        await self.peer.wait_connected()
        version = int(next(name for name, number in VERSIONS.items() if number == quic._version))
        say("connected", resumed=self.peer.resumed, early=self.peer.early, version=version)
        if stream is not None:
            await self.answered("get", [stream], started)

    async def answered(self, event, streams, started):
        self.peer.transmit()
        digest, total = hashlib.sha256(), 0
        for stream in streams:
            await stream.done
            total += stream.bytes
            digest.update(stream.hash.digest())
        digest = streams[0].hash if len(streams) == 1 else digest
        say(event, bytes=total, sha256=digest.hexdigest(), seconds=time.monotonic() - started)

    async def move(self, probe):
        """aioquic has no probe of its own: a client that moves changes its connection ID."""
        if probe:
            self.peer._quic.change_connection_id()
        old = self.peer._transport
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: Moved(self.peer), sock=client_socket())
        old.close()
        self.peer._quic.send_ping(1)
        self.peer.transmit()

    async def moving(self, event, count):
        started, moved = time.monotonic(), asyncio.Event()
        stream = self.peer.request(b"GET %d\n" % count)
        self.peer.progress = lambda stream: stream.bytes >= count // 4 and moved.set()
        self.peer.transmit()
        await asyncio.wait([asyncio.ensure_future(moved.wait()), stream.done], return_when=asyncio.FIRST_COMPLETED)
        self.peer.progress = None
        await self.move(probe=event == "migrate")
        await self.answered(event, [stream], started)

    async def step(self, name, count):
        started = time.monotonic()
        if name == "get":
            await self.answered(name, [self.peer.request(b"GET %d\n" % count)], started)
        elif name == "put":
            stream = self.peer.request(b"PUT %d\n" % count, upload=count, keep=True)
            self.peer.transmit()
            await stream.done
            say(name, bytes=count, sha256=stream.keep.decode(), seconds=time.monotonic() - started)
        elif name == "streams":
            await self.answered(name, [self.peer.request(b"GET 1000\n") for _ in range(count)], started)
        elif name in ("migrate", "rebind"):
            await self.moving(name, count)
        elif name == "key-update":
            self.peer.request_key_update()
            say(name)
        elif name == "pause":
            say("paused")
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        elif name in ("reconnect", "early"):
            # The ticket comes after the handshake; a request later it is here.
            self.peer.close()
            await self.peer.wait_closed()
            await self.connect(early=count)
        else:
            say("unsupported", text=name)

    async def run(self):
        try:
            await self.connect()
            for step in self.options.steps:
                name, _, count = step.partition("=")
                await self.step(name, int(count or 0))
            self.peer.close()
            await asyncio.wait_for(self.peer.wait_closed(), 5)
        except ConnectionError as error:
            closed = self.peer.closed_with
            text = f"{closed.error_code} {closed.reason_phrase}" if closed else str(error)
            say("closed", kind="other", text=text)


async def run_server(options):
    configuration = QuicConfiguration(
        alpn_protocols=[ALPN],
        is_client=False,
        max_data=WINDOW,
        max_stream_data=WINDOW,
        max_datagram_size=DATAGRAM_SIZE,
        idle_timeout=20,
        supported_versions=options.versions,
    )
    configuration.load_cert_chain(options.cert, options.key)
    tickets = {}
    server = await serve(
        "127.0.0.1",
        options.port,
        configuration=configuration,
        create_protocol=Peer,
        retry=options.retry,
        session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
        session_ticket_fetcher=lambda label: tickets.pop(label, None),
    )
    sock = server._transport.get_extra_info("socket")
    say("listening", port=sock.getsockname()[1])
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main():
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("--cert", required=True)
    server.add_argument("--key", required=True)
    server.add_argument("--port", type=int, default=0)
    server.add_argument("--retry", action="store_true")
    server.add_argument("--reset-key", help="has no effect: aioquic sends no stateless resets")
    client = roles.add_parser("client")
    client.add_argument("--server", required=True)
    client.add_argument("--ca", required=True)
    client.add_argument("steps", nargs="*")
    for role in (server, client):
        role.add_argument("--versions", type=versions, default=versions("1"))
    options = parser.parse_args()
    asyncio.run(run_server(options) if options.role == "server" else Client(options).run())


if __name__ == "__main__":
    main()
