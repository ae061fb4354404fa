//! The payload that applications send: a function of item and offset, so that the receiver can
//! check every byte.
//!
//! Every item (a chunk, a stream, a message, a request, a response) begins with a header of
//! [`HEADER_BYTES`] bytes, which names the item. The rest are words computed from the name and the
//! offset. A byte at a wrong offset, a duplicate, or a byte of another item is detected with near
//! certainty.

/// Bytes of the header, and the minimum length of an item.
pub const HEADER_BYTES: u64 = 16;

/// The first bytes of every header.
const MAGIC: [u8; 4] = *b"LSC1";

/// Identifies an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemName {
    /// The part of the workload.
    pub part: u16,
    /// True for the response to a request.
    pub is_answer: bool,
    /// The number of the item within the part, from zero.
    pub item: u64,
}

impl ItemName {
    /// Returns the header: magic, part, 1 for a response, a zero byte, item number; in network byte
    /// order.
    pub fn header(self) -> [u8; HEADER_BYTES as usize] {
        let mut header = [0; HEADER_BYTES as usize];
        header[..4].copy_from_slice(&MAGIC);
        header[4..6].copy_from_slice(&self.part.to_be_bytes());
        header[6] = u8::from(self.is_answer);
        header[8..].copy_from_slice(&self.item.to_be_bytes());
        header
    }

    /// Returns the name in a header; `None` if the bytes are not a valid header.
    pub fn from_header(header: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let [m0, m1, m2, m3, p0, p1, answer, 0, item @ ..] = *header else { return None };
        if [m0, m1, m2, m3] != MAGIC || answer > 1 {
            return None;
        }
        Some(Self { part: u16::from_be_bytes([p0, p1]), is_answer: answer == 1, item: u64::from_be_bytes(item) })
    }

    /// Fills `out` with the item's bytes from `offset` on.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let head = out.len().min(to_whole_words(offset));
        let (head, whole) = out.split_at_mut(head);
        for (at, byte) in head.iter_mut().enumerate() {
            *byte = self.byte(offset + at as u64);
        }
        let from = offset + head.len() as u64;
        let (words, tail) = whole.as_chunks_mut::<8>();
        for (index, word) in (from / 8..).zip(&mut *words) {
            *word = self.word(index).to_le_bytes();
        }
        let from = from + (words.len() * 8) as u64;
        for (at, byte) in tail.iter_mut().enumerate() {
            *byte = self.byte(from + at as u64);
        }
    }

    /// Counts the bytes of `bytes` that differ from the item's bytes at `offset`.
    pub fn count_wrong(self, offset: u64, bytes: &[u8]) -> u64 {
        let (head, whole) = bytes.split_at(bytes.len().min(to_whole_words(offset)));
        let from = offset + head.len() as u64;
        let (words, tail) = whole.as_chunks::<8>();
        let mut wrong = self.count_wrong_bytes(offset, head);
        for (index, word) in (from / 8..).zip(words) {
            if u64::from_le_bytes(*word) != self.word(index) {
                wrong += self.count_wrong_bytes(index * 8, word);
            }
        }
        wrong + self.count_wrong_bytes(from + (words.len() * 8) as u64, tail)
    }

    fn count_wrong_bytes(self, offset: u64, bytes: &[u8]) -> u64 {
        (offset..).zip(bytes).filter(|(at, byte)| self.byte(*at) != **byte).count() as u64
    }

    fn byte(self, offset: u64) -> u8 {
        self.word(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// Returns word `index`, as a little-endian number.
    fn word(self, index: u64) -> u64 {
        if index < HEADER_BYTES / 8 {
            let header = self.header();
            let at = index as usize * 8;
            return u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        }
        let product = (index ^ self.key()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ (product >> 29)
    }

    fn key(self) -> u64 {
        let name = (u64::from(self.part) << 1 | u64::from(self.is_answer)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        name ^ self.item.wrapping_mul(0xa076_1d64_78bd_642f).rotate_left(17)
    }
}

/// Returns the number of bytes from `offset` to the next word boundary.
const fn to_whole_words(offset: u64) -> usize {
    ((8 - offset % 8) % 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ItemName = ItemName { part: 3, is_answer: false, item: 77 };

    fn bytes(name: ItemName, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        name.fill(offset, &mut bytes);
        bytes
    }

    #[test]
    fn pieces_concatenate_to_the_whole_for_every_cut() {
        let whole = bytes(NAME, 0, 100);
        for cut in 0..100 {
            let (head, tail) = (bytes(NAME, 0, cut), bytes(NAME, cut as u64, 100 - cut));
            assert_eq!([head, tail].concat(), whole, "cut at {cut}");
            assert_eq!(NAME.count_wrong(cut as u64, &whole[cut..]), 0);
        }
        assert_eq!(ItemName::from_header(whole[..16].try_into().unwrap()), Some(NAME));
    }

    #[test]
    fn misplaced_foreign_and_changed_bytes_are_detected() {
        let whole = bytes(NAME, 0, 4096);
        assert!(NAME.count_wrong(1, &whole) > 3900);
        assert!(NAME.count_wrong(64, &whole[..4000]) > 3900);
        for other in [ItemName { part: 4, ..NAME }, ItemName { is_answer: true, ..NAME }, ItemName { item: 78, ..NAME }]
        {
            assert!(other.count_wrong(0, &whole) > 3900, "{other:?}");
        }
        let mut changed = whole;
        changed[1000] ^= 1;
        assert_eq!(NAME.count_wrong(0, &changed), 1);
    }

    #[test]
    fn an_invalid_header_is_refused() {
        let mut header = NAME.header();
        header[7] = 1;
        assert_eq!(ItemName::from_header(&header), None);
        assert_eq!(ItemName::from_header(&[0; 16]), None);
    }
}
