"""A server on asyncio that sends back what it gets, and a client that compares: exchange.py serve PORT, or
exchange.py HOST PORT FILE."""

import asyncio
import sys


async def echo(reader, writer):
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port):
    server = await asyncio.start_server(echo, None, port)
    async with server:
        await server.serve_forever()


async def exchange(host, port, file):
    reader, writer = await asyncio.open_connection(host, port)
    with open(file, "rb") as opened:
        data = opened.read()

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    answer, _ = await asyncio.gather(reader.read(-1), send())
    writer.close()
    return answer == data


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2])))
else:
    sys.exit(0 if asyncio.run(exchange(sys.argv[1], int(sys.argv[2]), sys.argv[3])) else 1)
