//! [`RecordKey`]: seals and opens the records of one direction of a connection.

use std::fmt;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::consts::U8;
use cbc::cipher::{
    Block, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit,
    KeyInit,
};
use des::{Des, TdesEde3};

use crate::record::{self, HEADER_LEN, IV_LEN, Record, RecordError, RecordKind};
use crate::stack::CipherLayer;

/// Block length of DES.
const BLOCK_LEN: usize = 8;

/// Part of the nonce of an AEAD that is the same for all records (RFC 5288, section 3).
const FIXED_IV_LEN: usize = 4;

/// Length of the tag of both AEADs.
const TAG_LEN: usize = 16;

/// The key of one direction of a connection.
pub struct RecordKey(Kind);

enum Kind {
    Des { cipher: Box<Des>, iv_key: [u8; 32] },
    TripleDes { cipher: Box<TdesEde3>, iv_key: [u8; 32] },
    Aead { key: Box<LessSafeKey>, fixed_iv: [u8; FIXED_IV_LEN] },
}

impl RecordKey {
    /// Creates a key from key material.
    pub(crate) fn new(layer: CipherLayer, mut material: blake3::OutputReader) -> Self {
        fn fill<const N: usize>(material: &mut blake3::OutputReader) -> [u8; N] {
            let mut bytes = [0; N];
            material.fill(&mut bytes);
            bytes
        }
        let aead = |algorithm, key: &[u8], fixed_iv| {
            let key = UnboundKey::new(algorithm, key).expect("the key has the length of the cipher's");
            Kind::Aead { key: Box::new(LessSafeKey::new(key)), fixed_iv }
        };
        Self(match layer {
            CipherLayer::Des => {
                let cipher = Box::new(Des::new(&fill::<8>(&mut material).into()));
                Kind::Des { cipher, iv_key: fill(&mut material) }
            }
            CipherLayer::TripleDes => {
                let cipher = Box::new(TdesEde3::new(&fill::<24>(&mut material).into()));
                Kind::TripleDes { cipher, iv_key: fill(&mut material) }
            }
            CipherLayer::Aes128Gcm => {
                let key = fill::<16>(&mut material);
                aead(&aead::AES_128_GCM, &key, fill(&mut material))
            }
            CipherLayer::ChaCha20Poly1305 => {
                let key = fill::<32>(&mut material);
                aead(&aead::CHACHA20_POLY1305, &key, fill(&mut material))
            }
        })
    }

    /// Returns the length of a record with `plaintext_len` bytes of the application.
    pub const fn sealed_len(layer: CipherLayer, plaintext_len: usize) -> usize {
        let ciphertext_len = match layer {
            CipherLayer::Des | CipherLayer::TripleDes => (plaintext_len / BLOCK_LEN + 1) * BLOCK_LEN,
            CipherLayer::Aes128Gcm | CipherLayer::ChaCha20Poly1305 => plaintext_len + TAG_LEN,
        };
        HEADER_LEN + IV_LEN + ciphertext_len
    }

    /// Appends the record `number` with this content. The same arguments give the same bytes.
    ///
    /// # Panics
    /// If the content is longer than [`record::PLAINTEXT_MAX`].
    pub fn seal<'a>(
        &self,
        number: u64,
        kind: RecordKind,
        content: impl Iterator<Item = &'a [u8]> + Clone,
        out: &mut Vec<u8>,
    ) {
        let len: usize = content.clone().map(<[u8]>::len).sum();
        assert!(len <= record::PLAINTEXT_MAX, "{len} bytes do not fit into a record");
        let expansion = match self.0 {
            Kind::Des { .. } | Kind::TripleDes { .. } => BLOCK_LEN - len % BLOCK_LEN,
            Kind::Aead { .. } => TAG_LEN,
        };
        let header = record::header(kind, IV_LEN + len + expansion);
        let iv = self.iv(number);
        out.extend_from_slice(&header);
        out.extend_from_slice(&iv);
        let from = out.len();
        content.for_each(|piece| out.extend_from_slice(piece));
        match &self.0 {
            Kind::Des { cipher, .. } => encrypt(&**cipher, &iv, from, expansion, out),
            Kind::TripleDes { cipher, .. } => encrypt(&**cipher, &iv, from, expansion, out),
            Kind::Aead { key, fixed_iv } => {
                let aad = Aad::from(header);
                let tag = key.seal_in_place_separate_tag(nonce(*fixed_iv, iv), aad, &mut out[from..]);
                out.extend_from_slice(tag.expect("no record is too long").as_ref());
            }
        }
    }

    /// Opens the record `number` and appends its content.
    ///
    /// # Errors
    /// If the record is not intact; then `out` is unchanged.
    pub fn open(&self, number: u64, record: &Record, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let from = out.len();
        record.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        let opened = match &self.0 {
            Kind::Des { cipher, .. } => decrypt(&**cipher, &record.iv, &mut out[from..]),
            Kind::TripleDes { cipher, .. } => decrypt(&**cipher, &record.iv, &mut out[from..]),
            Kind::Aead { key, fixed_iv } => open_aead(key, *fixed_iv, number, record, &mut out[from..]),
        };
        let opened = opened.and_then(|len| {
            // An end record has no content; one with content was a data record.
            if record.kind == RecordKind::End && len > 0 { Err(RecordError::Forged) } else { Ok(len) }
        });
        out.truncate(from + opened.unwrap_or(0));
        opened.map(|_| ())
    }

    /// Returns the IV of a record. The IV of CBC must not be predictable (RFC 3602, section 2), so
    /// it is derived with a key; the IV of an AEAD must not repeat.
    fn iv(&self, number: u64) -> [u8; IV_LEN] {
        match &self.0 {
            Kind::Des { iv_key, .. } | Kind::TripleDes { iv_key, .. } => {
                let hash = blake3::keyed_hash(iv_key, &number.to_be_bytes());
                *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
            }
            Kind::Aead { .. } => number.to_be_bytes(),
        }
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordKey")
    }
}

fn nonce(fixed_iv: [u8; FIXED_IV_LEN], iv: [u8; IV_LEN]) -> Nonce {
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[..FIXED_IV_LEN].copy_from_slice(&fixed_iv);
    nonce[FIXED_IV_LEN..].copy_from_slice(&iv);
    Nonce::assume_unique_for_key(nonce)
}

/// Pads the end of `out` from `from` by `padding` bytes (RFC 5652, section 6.3) and encrypts it.
fn encrypt<C>(cipher: &C, iv: &[u8; IV_LEN], from: usize, padding: usize, out: &mut Vec<u8>)
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U8> + Clone,
{
    out.resize(out.len() + padding, padding as u8);
    let (blocks, rest) = Block::<C>::slice_as_chunks_mut(&mut out[from..]);
    debug_assert!(rest.is_empty(), "the padding fills the last block");
    cbc::Encryptor::inner_iv_init(cipher.clone(), &(*iv).into()).encrypt_blocks(blocks);
}

/// Decrypts `bytes` and returns the length without the padding.
fn decrypt<C>(cipher: &C, iv: &[u8; IV_LEN], bytes: &mut [u8]) -> Result<usize, RecordError>
where
    C: BlockCipherDecrypt + BlockSizeUser<BlockSize = U8> + Clone,
{
    let len = bytes.len();
    if len == 0 || !len.is_multiple_of(BLOCK_LEN) {
        return Err(RecordError::Length(IV_LEN + len));
    }
    let decryptor = cbc::Decryptor::inner_iv_init(cipher.clone(), &(*iv).into());
    decryptor.decrypt_padded::<Pkcs7>(bytes).map(<[u8]>::len).map_err(|_| RecordError::Forged)
}

/// Opens a record of an AEAD in place and returns the length without the tag.
fn open_aead(
    key: &LessSafeKey,
    fixed_iv: [u8; FIXED_IV_LEN],
    number: u64,
    record: &Record,
    bytes: &mut [u8],
) -> Result<usize, RecordError> {
    if bytes.len() < TAG_LEN {
        return Err(RecordError::Length(IV_LEN + bytes.len()));
    }
    // The record was moved, repeated or omitted.
    if record.iv != number.to_be_bytes() {
        return Err(RecordError::Forged);
    }
    let opened = key.open_in_place(nonce(fixed_iv, record.iv), Aad::from(record.header), bytes);
    opened.map(|content| content.len()).map_err(|_| RecordError::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 81, table C1, which has no padding.
    #[test]
    fn des_cbc_gives_the_example_of_fips_81() {
        let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let iv = [0x12, 0x34, 0x56, 0x78, 0x90, 0xab, 0xcd, 0xef];
        let expected = [
            0xe5, 0xc7, 0xcd, 0xde, 0x87, 0x2b, 0xf2, 0x7c, 0x43, 0xe9, 0x34, 0x00, 0x8c, 0x38, 0x9c, 0x0f, 0x68, 0x37,
            0x88, 0x49, 0x9a, 0x7c, 0x05, 0xf6,
        ];
        let mut out = b"-Now is the time for all ".to_vec();
        encrypt(&Des::new(&key.into()), &iv, 1, BLOCK_LEN, &mut out);
        assert_eq!(out[1..25], expected);
        // Three equal keys make triple DES the same cipher (ANSI X9.52, keying option 3).
        let mut out = b"Now is the time for all ".to_vec();
        let three = [key, key, key].concat();
        let three: [u8; 24] = three.try_into().expect("three keys");
        encrypt(&TdesEde3::new(&three.into()), &iv, 0, BLOCK_LEN, &mut out);
        assert_eq!(out[..24], expected);
        assert_eq!(decrypt(&Des::new(&key.into()), &iv, &mut out), Ok(24));
        assert_eq!(out[..24], *b"Now is the time for all ");
    }
}
