use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::*;

/// Data passed to a stream, in order; true marks chunks passed without a copy.
type Taken = Arc<Mutex<Vec<(bool, Bytes)>>>;

struct Stream(Taken);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push((false, Bytes::copy_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SendStream for Stream {
    fn write_chunk(&mut self, chunk: Bytes) -> io::Result<()> {
        self.0.lock().unwrap().push((true, chunk));
        Ok(())
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

fn begin(writer: &mut RecordWriter, taken: &Taken, file: u32) {
    writer.begin(|| Ok(Box::new(Stream(Arc::clone(taken)))), file, 9).unwrap();
}

fn chunk(writer: &mut RecordWriter, len: usize, value: u8) {
    let fill = |bytes: &mut [u8]| {
        bytes.fill(value);
        Ok::<(), ()>(())
    };
    writer.chunk(len, fill, |seen| assert!(seen.iter().all(|byte| *byte == value))).unwrap().unwrap();
}

/// Returns the chunks of the only record on the stream, by length and value.
fn read(taken: &Taken) -> Vec<(usize, u8)> {
    let bytes: Vec<u8> = taken.lock().unwrap().iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
    let mut reader = RecordReader::open(Box::new(Cursor::new(bytes))).unwrap().unwrap();
    assert_eq!(reader.next().unwrap(), Some((3, 9)));
    let (mut buffer, mut chunks) = (vec![0; CHUNK_LEN_MAX], Vec::new());
    loop {
        match reader.part(&mut buffer).unwrap() {
            Part::Chunk(len) => {
                assert!(buffer[..len].iter().all(|byte| *byte == buffer[0]));
                chunks.push((len, buffer[0]));
            }
            end => {
                assert_eq!(end, Part::End([7; 32]));
                assert_eq!(reader.next().unwrap(), None);
                return chunks;
            }
        }
    }
}

#[test]
fn whole_chunks_are_sent_without_a_copy_and_stay_unchanged_while_a_stream_holds_them() {
    let (mut writer, taken) = (RecordWriter::new(), Taken::default());
    begin(&mut writer, &taken, 3);
    (0..5).for_each(|value| chunk(&mut writer, CHUNK_LEN_MAX, value));
    writer.end(&[7; 32]).unwrap();
    writer.finish().unwrap();
    let expected: Vec<_> = (0..5).map(|value| (CHUNK_LEN_MAX, value)).collect();
    assert_eq!(read(&taken), expected);
    assert!(taken.lock().unwrap().iter().all(|(is_shared, _)| *is_shared));
}

#[test]
fn buffers_released_by_streams_are_reused() {
    let mut writer = RecordWriter::new();
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let taken = Taken::default();
        begin(&mut writer, &taken, 3);
        chunk(&mut writer, CHUNK_LEN_MAX, 1);
        writer.end(&[7; 32]).unwrap();
        writer.finish().unwrap();
        addresses.extend(taken.lock().unwrap().iter().map(|(_, bytes)| bytes.as_ptr() as usize));
    }
    assert_eq!(addresses.len(), 2, "one out, one in work");
}

#[test]
fn few_bytes_are_copied_and_hold_no_buffer() {
    let (mut writer, taken) = (RecordWriter::new(), Taken::default());
    begin(&mut writer, &taken, 3);
    chunk(&mut writer, 100, 5);
    writer.end(&[7; 32]).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&taken), [(100, 5)]);
    assert!(taken.lock().unwrap().iter().all(|(is_shared, _)| !*is_shared));
}
