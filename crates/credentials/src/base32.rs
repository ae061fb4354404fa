//! RFC 4648 base32 (section 6) in lower case and without padding: its letters need no quoting in a
//! shell and can be read aloud.

use std::fmt;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Reason why a text is not base32. The text itself is wrong: it was written or copied incorrectly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Base32Error {
    /// `character` at `index` (in characters) is not in the alphabet.
    Character {
        /// Position in the text.
        index: usize,
        /// The character.
        character: char,
    },
    /// No byte string has an encoding of this length, or the spare bits of the last character are
    /// not zero.
    Length,
}

impl fmt::Display for Base32Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character { index, character } => {
                write!(
                    f,
                    "character {} is {character:?}, but only a to z and 2 to 7 are used: copy it again",
                    index + 1
                )
            }
            Self::Length => f.write_str("the text is cut off or has too many characters: copy all of it again"),
        }
    }
}

impl std::error::Error for Base32Error {}

/// Encodes `bytes`: eight characters for five bytes, rounded up.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(buffer >> bits) as usize & 31]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(buffer << (5 - bits)) as usize & 31]));
    }
    text
}

/// Decodes `text`, in either case. Each byte string has exactly one text (up to case).
///
/// # Errors
/// Returns a [`Base32Error`] if the text is not a possible result of [`encode`].
pub fn decode(text: &str) -> Result<Vec<u8>, Base32Error> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for (index, character) in text.chars().enumerate() {
        let value = match character.to_ascii_lowercase() {
            letter @ 'a'..='z' => letter as u32 - 'a' as u32,
            digit @ '2'..='7' => digit as u32 - '2' as u32 + 26,
            _ => return Err(Base32Error::Character { index, character }),
        };
        buffer = (buffer << 5) | value;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    if bits >= 5 || buffer != 0 {
        return Err(Base32Error::Length);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_section_10_hold() {
        let vectors = [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
            ("foobar", "mzxw6ytboi"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
            assert_eq!(decode(&text.to_uppercase()).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn a_second_spelling_of_the_same_bytes_is_refused() {
        assert_eq!(decode("mz"), Err(Base32Error::Length), "spare bits set");
        assert_eq!(decode("mya"), Err(Base32Error::Length), "a character too many");
        assert_eq!(decode("m1"), Err(Base32Error::Character { index: 1, character: '1' }));
    }
}
