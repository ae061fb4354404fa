//! Lines of bounded length from the other end.

use std::io::{self, BufRead};

/// Reads a line without its end, of at most `len_max` bytes; `None` at the end of the input.
///
/// # Errors
/// That of the input, and `InvalidData` for a longer line.
pub(super) fn read_line(input: &mut impl BufRead, len_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok((!line.is_empty()).then_some(line));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(available.len());
        if line.len() + taken > len_max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line is longer than {len_max} bytes")));
        }
        line.extend_from_slice(&available[..taken]);
        input.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_their_ends_and_bounded() {
        let mut input = io::BufReader::with_capacity(2, b"ab\n\ncde".as_slice());
        let mut next = || read_line(&mut input, 3).unwrap();
        assert_eq!((next(), next(), next(), next()), (Some(b"ab".into()), Some(b"".into()), Some(b"cde".into()), None));
        let mut input = io::BufReader::with_capacity(2, b"abcd\n".as_slice());
        assert_eq!(read_line(&mut input, 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
