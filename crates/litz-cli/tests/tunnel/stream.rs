//! A connection of programs that know nothing of the tunnel, with data in both directions at all times.

use std::process::Stdio;

use super::{Running, World};

/// Sends numbered lines to a server that answers with the same bytes, one each 5 ms, until FILE.stop is
/// there: ADDRESS FILE. Writes to FILE how many came back, and fails unless all do, unchanged.
const STREAM: &str = "
import os, socket, sys, threading, time
address, file = sys.argv[1:3]
s = socket.create_connection((address, 5007), timeout=30)
s.settimeout(None)
wrong = []
def read():
    back, rest = 0, b''
    try:
        while data := s.recv(65536):
            lines = (rest + data).split(b'\\n')
            rest = lines.pop()
            for line in lines:
                if line != b'%d' % back:
                    wrong.append((back, line))
                back += 1
            open(file + '.new', 'w').write(str(back))
            os.rename(file + '.new', file)
    except OSError as error:
        wrong.append(error)
    return back
def count():
    global back
    back = read()
reader = threading.Thread(target=count)
reader.start()
sent = 0
while not os.path.exists(file + '.stop'):
    s.sendall(b'%d\\n' % sent)
    sent += 1
    time.sleep(0.005)
s.shutdown(socket.SHUT_WR)
reader.join()
assert not wrong and back == sent, (back, sent, wrong[:3])
";

/// The program of the client.
pub(super) struct Stream {
    program: Running,
    file: String,
}

impl Stream {
    /// Starts it, to [`World::echo`] at this address.
    pub(super) fn start(world: &World, address: &str) -> Self {
        let file = world.path("stream").display().to_string();
        // An earlier one may have left them.
        let _none = ["", ".stop"].map(|end| std::fs::remove_file(format!("{file}{end}")));
        let mut command = World::in_namespace(&world.client, "python3", &["-c", STREAM, address, &file]);
        let program = Running(command.stderr(Stdio::piped()).spawn().expect("python3 starts"));
        Self { program, file }
    }

    /// Lines that came back.
    fn lines(&self) -> u64 {
        std::fs::read_to_string(&self.file).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Waits until so many more lines came back.
    pub(super) fn await_progress(&mut self, more: u64) {
        let wanted = self.lines() + more;
        while self.lines() < wanted {
            let ended = self.program.0.try_wait().expect("it was started");
            assert!(ended.is_none(), "the stream ended after {} lines: {}", self.lines(), self.errors());
            std::thread::yield_now();
        }
    }

    /// Ends the connection in order, and expects that all lines came back.
    pub(super) fn finish(mut self) {
        std::fs::write(format!("{}.stop", self.file), "").expect("a file");
        let is_whole = self.program.0.wait().expect("it was started").success();
        assert!(is_whole, "{}", self.errors());
    }

    fn errors(&mut self) -> String {
        let errors = self.program.0.stderr.take().map(std::io::read_to_string);
        errors.and_then(Result::ok).unwrap_or_default()
    }
}
