//! Programs under `litz run` that send several queries about names in one call, and receive several answers.

use super::names::Named;

/// Entries of sendmmsg(2) and recvmmsg(2).
const BATCHES: &str = "
import ctypes, errno, mmap, select, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
class Area(ctypes.Structure):
    _fields_ = [('at', ctypes.c_void_p), ('len', ctypes.c_size_t)]
class Entry(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('name_len', ctypes.c_uint), ('areas', ctypes.c_void_p),
        ('count', ctypes.c_size_t), ('control', ctypes.c_void_p), ('control_len', ctypes.c_size_t),
        ('flags', ctypes.c_int), ('gap', ctypes.c_int), ('len', ctypes.c_uint)]
assert ctypes.sizeof(Entry) == 64
kept = []
def memory(data, space=0):
    kept.append(ctypes.create_string_buffer(data, max(len(data), space, 1)))
    return ctypes.addressof(kept[-1])
def name(host, port):
    return memory(struct.pack('=H', socket.AF_INET) + struct.pack('>H', port) + socket.inet_aton(host) + bytes(8), 128)
def fill(entry, data, at, space=0):
    entry.name, entry.name_len, entry.count, entry.len = at, 16 if at else 0, 1, 77
    kept.append(Area(memory(data, space), space or len(data)))
    entry.areas = ctypes.addressof(kept[-1])
def entries(packets):
    many = (Entry * len(packets))()
    for entry, (data, at) in zip(many, packets):
        fill(entry, data, at)
    return many
def spaces(count, space=512, control=0):
    many = (Entry * count)()
    for entry in many:
        fill(entry, b'', memory(b'', 128), space)
        entry.name_len = 128
        if control:
            entry.control, entry.control_len = memory(b'', control), control
    return many
def call(what, s, many, count=None, flags=0, time=None):
    ctypes.set_errno(0)
    count = ctypes.c_uint(len(many) if count is None else count)
    result = getattr(libc, what)(s.fileno(), many, count, flags, *([time] if what == 'recvmmsg' else []))
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]
def data_of(entry):
    return ctypes.string_at(Area.from_address(entry.areas).at, entry.len)
def name_of(entry):
    text = ctypes.string_at(entry.name, 8)
    assert entry.name_len == 16 and text[:2] == struct.pack('=H', socket.AF_INET)
    return socket.inet_ntoa(text[4:8]), struct.unpack('>H', text[2:4])[0]
def query(number, kind=1):
    labels = b'\\x02db\\x03far\\x07example\\0'
    return struct.pack('>6H', number, 0x100, 1, 0, 0, 0) + labels + struct.pack('>2H', kind, 1)
def wait(s):
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(60_000)
def new():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server, answers = ('192.0.2.53', 53), {1: socket.inet_aton('10.79.0.1'), 28: socket.inet_pton(socket.AF_INET6, 'fd79::1')}
at = name(*server)
def assert_answers(many, expected):
    found = {}
    for entry in many:
        data = data_of(entry)
        assert name_of(entry) == server, name_of(entry)
        found[struct.unpack('>H', data[:2])[0]] = data
    assert sorted(found) == sorted(expected), found
    for number, kind in expected.items():
        assert found[number].endswith(answers[kind]), found[number]
def drain(s):
    try:
        while True:
            s.recv(512, socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass

# Addresses of both families in one call, as resolvers ask for them.
s = new()
many = entries([(query(1, 1), at), (query(2, 28), at)])
assert call('sendmmsg', s, many) == 2 and [entry.len for entry in many] == [32, 32]
many = spaces(2, control=64)
assert call('recvmmsg', s, many) == 2
assert_answers(many, {1: 1, 2: 28})
assert [(entry.flags, entry.control_len) for entry in many] == [(0, 0), (0, 0)]

# What is there, without waiting for more.
assert call('recvmmsg', s, spaces(2), flags=socket.MSG_DONTWAIT) == 'EAGAIN'
for flags, blocks in [(socket.MSG_DONTWAIT, True), (0, False), (0x10000, True)]:
    s.setblocking(blocks)
    assert call('sendmmsg', s, entries([(query(3), at)])) == 1
    if flags != 0x10000:
        wait(s)
    many = spaces(3)
    assert call('recvmmsg', s, many, flags=flags) == 1, flags
    assert_answers(many[:1], {3: 1})
    assert [entry.len for entry in many[1:]] == [77, 77]
s.setblocking(True)
# An answer that is cut, and one that stays.
assert call('sendmmsg', s, entries([(query(4), at)])) == 1
for flags in [socket.MSG_PEEK, 0]:
    many = spaces(1, space=4)
    assert call('recvmmsg', s, many, flags=flags) == 1 and data_of(many[0]) == b'\\0\\x04\\x81\\x80'
    assert many[0].flags == socket.MSG_TRUNC and name_of(many[0]) == server

# Times.
def time(seconds, nanos):
    kept.append((ctypes.c_int64 * 2)(seconds, nanos))
    return kept[-1]
for given in [(0, 0), (1000, 0), (2**63 - 1, 999_999_999)]:
    left = time(*given)
    assert call('sendmmsg', s, entries([(query(5), at)])) == 1
    # One packet only, also where there is space for more, if no time is left.
    assert call('recvmmsg', s, spaces(2 if given == (0, 0) else 1), time=left) == 1
    assert left[0] <= given[0] and 0 <= left[1] < 1_000_000_000
    assert (left[0], left[1]) == (0, 0) if given == (0, 0) else left[0] >= 900, list(left)
for wrong in [(-1, 0), (0, -1), (0, 1_000_000_000)]:
    assert call('recvmmsg', s, spaces(1), time=time(*wrong)) == 'EINVAL', wrong
assert call('recvmmsg', s, spaces(1), time=ctypes.c_void_p(1)) == 'EFAULT'

# A signal ends the wait: with what there is, or with an error.
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
assert call('recvmmsg', s, spaces(1)) == 'EINTR'
signal.setitimer(signal.ITIMER_REAL, 0)
assert call('sendmmsg', s, entries([(query(6), at)])) == 1
wait(s)
many = spaces(2)
signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
# On a busy machine, a signal may come before the call has begun.
while (got := call('recvmmsg', s, many)) == 'EINTR':
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
assert got == 1
assert_answers(many[:1], {6: 1})
# So does the time of the socket.
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 100_000))
assert call('recvmmsg', s, spaces(1)) == 'EAGAIN'
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 0))

# Packets for others: the program calls again for them, and the kernel sends all that follows.
other = new()
other.bind(('127.0.0.1', 0))
to = name(*other.getsockname())
many = entries([(query(7), at), (b'hello', to), (query(8), at)])
assert call('sendmmsg', s, many) == 1 and [entry.len for entry in many] == [32, 77, 77]
rest = entries([(b'hello', to), (query(8), at)])
assert call('sendmmsg', s, rest) == 1 and [entry.len for entry in rest] == [5, 77]
assert other.recvfrom(512) == (b'hello', ('127.0.0.1', s.getsockname()[1]))
assert call('sendmmsg', s, entries([(query(9), None)])) == 'EDESTADDRREQ'
wait(s)
drain(s)
# Their senders keep their names.
other.sendto(b'hello', ('127.0.0.1', s.getsockname()[1]))
many = spaces(1)
assert call('recvmmsg', s, many) == 1 and data_of(many[0]) == b'hello' and name_of(many[0]) == other.getsockname()

# No packets, and entries that are not there.
for what in ['sendmmsg', 'recvmmsg']:
    assert call(what, s, ctypes.c_void_p(1), 0) == 0
    for count in [1, 2**32 - 1]:
        assert call(what, s, ctypes.c_void_p(1), count) == 'EFAULT'
page = mmap.mmap(-1, 2 * mmap.PAGESIZE)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
last = (Entry * 2).from_address(start + mmap.PAGESIZE - 128)
u = new()
for entry, kind in zip(last, [1, 28]):
    fill(entry, query(kind, kind), at)
assert call('sendmmsg', u, last, 2**32 - 1) == 2 and [entry.len for entry in last] == [32, 32]
for entry in last:
    fill(entry, b'', memory(b'', 128), 512)
    entry.name_len = 128
found = 0
while found < 2:
    wait(u)
    one = (Entry * (2 - found)).from_address(ctypes.addressof(last[found]))
    # The end of the memory is the end of the call.
    found += call('recvmmsg', u, one, 2**32 - 1, socket.MSG_DONTWAIT)
assert_answers(last, {1: 1, 28: 28})

# Parts that are not there: the first packet's are errors, later ones end the call.
def broken(**parts):
    many = entries([(query(10), at)])
    for part, value in parts.items():
        setattr(many[0], part, value)
    return many[0]
def after_good(bad):
    many = entries([(query(11), at), (b'', None)])
    many[1] = bad
    return many
for parts, expected in [({'name': 1}, ['EFAULT']), ({'name_len': 3}, ['EINVAL']), ({'name_len': 2**32 - 1}, ['EINVAL']),
        ({'areas': 1}, ['EFAULT', 'ENETUNREACH']), ({'count': 2000}, ['EMSGSIZE']), ({'count': 2**63}, ['EMSGSIZE'])]:
    many = (Entry * 1)(broken(**parts))
    assert call('sendmmsg', s, many) in expected, (parts, call('sendmmsg', s, many))
    many = after_good(broken(**parts))
    assert call('sendmmsg', s, many) == 1 and [entry.len for entry in many] == [32, 77], parts
wait(s)
drain(s)
t = new()
assert call('sendmmsg', t, entries([(query(12), at)])) == 1
wait(t)
for part, value, expected in [('areas', 1, 'EFAULT'), ('count', 2000, 'EMSGSIZE'), ('count', 2**63, 'EMSGSIZE')]:
    many = spaces(1)
    setattr(many[0], part, value)
    assert call('recvmmsg', t, many) == expected, part
many = spaces(2)
many[1].areas = 1
assert call('recvmmsg', t, many) == 1
assert_answers(many[:1], {12: 1})

# A connected socket, whose packets need no address.
c = new()
c.connect(server)
assert call('sendmmsg', c, entries([(query(13), None), (query(14, 28), None)])) == 2
many = spaces(2)
assert call('recvmmsg', c, many) == 2
assert_answers(many, {13: 1, 14: 28})
# Without a place for the sender, the kernel receives.
assert call('sendmmsg', c, entries([(query(15), None)])) == 1
many = spaces(1)
many[0].name, many[0].name_len = None, 0
assert call('recvmmsg', c, many) == 1 and data_of(many[0]).endswith(answers[1])

# Sockets that are none of UDP.
for kind in [socket.SOCK_DGRAM, socket.SOCK_STREAM]:
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    assert call('sendmmsg', a, entries([(b'one', None), (b'two', None)])) == 2
    many = spaces(2, space=3)
    assert call('recvmmsg', b, many) == 2 and [data_of(entry) for entry in many] == [b'one', b'two']
    assert call('recvmmsg', b, spaces(1), flags=socket.MSG_DONTWAIT) == 'EAGAIN'
class Missing:
    def fileno(self):
        return 1000
for what in ['sendmmsg', 'recvmmsg']:
    assert call(what, Missing(), entries([(query(16), at)])) == 'EBADF'
# More than Litz takes of one call.
many = entries([(query(number), at) for number in range(100)])
done = call('sendmmsg', s, many)
assert 0 < done < 100 and [entry.len for entry in many] == [32] * done + [77] * (100 - done), done
wait(s)
print('good')";

#[test]
fn queries_that_are_sent_in_one_call_are_answered() {
    let Some(named) = Named::new() else { return };
    for more in [&["--dns", "far"][..], &[]] {
        let (status, output, errors) = named.run(more, &["python3", "-c", BATCHES]);
        assert!(status == 0 && output == "good\n", "{more:?} {status} {output} {errors}");
    }
}
