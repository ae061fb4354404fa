//! [`Stack`]: the layers above and below TCP.

use std::fmt;
use std::str::FromStr;

/// A cipher above TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CipherLayer {
    /// DES-CBC (FIPS 46-2, FIPS 81). Historical: its keys can be found by exhaustive search.
    Des,
    /// Triple DES in the order encrypt, decrypt, encrypt with three keys (ANSI X9.52), in CBC mode.
    /// Historical.
    TripleDes,
    /// AES-128-GCM (RFC 5116).
    Aes128Gcm,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
}

/// A digest between TCP and IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DigestLayer {
    /// Keyed MD5 (RFC 1828). Historical: collisions can be computed.
    Md5,
    /// Keyed BLAKE3.
    Blake3,
}

impl CipherLayer {
    /// All ciphers.
    pub const ALL: [Self; 4] = [Self::Des, Self::TripleDes, Self::Aes128Gcm, Self::ChaCha20Poly1305];

    /// Returns its name in a stack.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Des => "des",
            Self::TripleDes => "3des",
            Self::Aes128Gcm => "aes128",
            Self::ChaCha20Poly1305 => "chacha20",
        }
    }

    /// Returns whether it offers no protection today.
    pub const fn is_historical(self) -> bool {
        matches!(self, Self::Des | Self::TripleDes)
    }
}

impl DigestLayer {
    /// All digests.
    pub const ALL: [Self; 2] = [Self::Md5, Self::Blake3];

    /// Returns its name in a stack.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Blake3 => "blake3",
        }
    }

    /// Returns whether it offers no protection today.
    pub const fn is_historical(self) -> bool {
        matches!(self, Self::Md5)
    }
}

/// The layers of a stack. Its text form lists them from the top: `des/tcp/md5/ip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Stack {
    /// The cipher above TCP.
    pub cipher: Option<CipherLayer>,
    /// The digest between TCP and IP.
    pub digest: Option<DigestLayer>,
}

impl Stack {
    /// TCP on IP.
    pub const PLAIN: Self = Self { cipher: None, digest: None };

    /// The stacks of Nahum et al. 1996, in the order of their cost.
    pub const PAPER: [Self; 4] = [
        Self::PLAIN,
        Self { cipher: None, digest: Some(DigestLayer::Md5) },
        Self { cipher: Some(CipherLayer::Des), digest: Some(DigestLayer::Md5) },
        Self { cipher: Some(CipherLayer::TripleDes), digest: Some(DigestLayer::Md5) },
    ];

    /// The same stacks with modern algorithms.
    pub const TODAY: [Self; 3] = [
        Self { cipher: None, digest: Some(DigestLayer::Blake3) },
        Self { cipher: Some(CipherLayer::Aes128Gcm), digest: Some(DigestLayer::Blake3) },
        Self { cipher: Some(CipherLayer::ChaCha20Poly1305), digest: Some(DigestLayer::Blake3) },
    ];

    /// Returns whether it has a layer that offers no protection today. Such a stack must not reach
    /// a network.
    pub fn is_historical(self) -> bool {
        self.cipher.is_some_and(CipherLayer::is_historical) || self.digest.is_some_and(DigestLayer::is_historical)
    }

    /// Returns whether it is TCP on IP without layers.
    pub fn is_plain(self) -> bool {
        self == Self::PLAIN
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cipher) = self.cipher {
            write!(f, "{}/", cipher.id())?;
        }
        f.write_str("tcp/")?;
        if let Some(digest) = self.digest {
            write!(f, "{}/", digest.id())?;
        }
        f.write_str("ip")
    }
}

/// Reason why a text is not a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackError {
    /// The last layer is not IP.
    NoIp,
    /// There is no TCP layer.
    NoTcp,
    /// No layer has this name.
    Unknown(String),
    /// The layer is on the wrong side of TCP.
    Misplaced(String),
    /// There are two layers on one side of TCP.
    TooMany {
        /// The second layer.
        layer: String,
        /// Whether it is above TCP.
        is_above: bool,
    },
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIp => f.write_str("the last layer must be ip, as in des/tcp/md5/ip"),
            Self::NoTcp => f.write_str("there is no tcp among the layers: write it above ip, as in tcp/ip"),
            Self::Unknown(layer) => {
                let names = |names: &[&str]| names.join(", ");
                let (ciphers, digests) = (CipherLayer::ALL.map(CipherLayer::id), DigestLayer::ALL.map(DigestLayer::id));
                write!(
                    f,
                    "there is no layer {layer:?}: above tcp one of {}, below tcp one of {}",
                    names(&ciphers),
                    names(&digests)
                )
            }
            Self::Misplaced(layer) if cipher(layer).is_some() => {
                write!(f, "{layer} is a cipher: it goes above tcp, as in {layer}/tcp/ip")
            }
            Self::Misplaced(layer) if digest(layer).is_some() => {
                write!(f, "{layer} is a digest: it goes between tcp and ip, as in tcp/{layer}/ip")
            }
            Self::Misplaced(layer) => write!(f, "{layer} is in the wrong place: the order is CIPHER/tcp/DIGEST/ip"),
            Self::TooMany { layer, is_above: true } => {
                write!(f, "{layer} is a second layer above tcp: at most one cipher is possible")
            }
            Self::TooMany { layer, is_above: false } => {
                write!(f, "{layer} is a second layer between tcp and ip: at most one digest is possible")
            }
        }
    }
}

impl std::error::Error for StackError {}

fn cipher(name: &str) -> Option<CipherLayer> {
    CipherLayer::ALL.into_iter().find(|layer| layer.id() == name)
}

fn digest(name: &str) -> Option<DigestLayer> {
    DigestLayer::ALL.into_iter().find(|layer| layer.id() == name)
}

impl FromStr for Stack {
    type Err = StackError;

    fn from_str(text: &str) -> Result<Self, StackError> {
        let layers: Vec<&str> = text.split('/').map(str::trim).collect();
        let is_known =
            |layer: &str| ["tcp", "ip"].contains(&layer) || cipher(layer).is_some() || digest(layer).is_some();
        if let Some(unknown) = layers.iter().find(|layer| !is_known(layer)) {
            return Err(StackError::Unknown((*unknown).to_owned()));
        }
        let Some(("ip", layers)) = layers.split_last().map(|(last, rest)| (*last, rest)) else {
            return Err(StackError::NoIp);
        };
        let at = layers.iter().position(|layer| *layer == "tcp").ok_or(StackError::NoTcp)?;
        let (above, below) = (&layers[..at], &layers[at + 1..]);
        Ok(Self { cipher: only(above, true, cipher)?, digest: only(below, false, digest)? })
    }
}

/// Returns the only layer on one side of TCP, if there is one.
fn only<T>(layers: &[&str], is_above: bool, find: impl Fn(&str) -> Option<T>) -> Result<Option<T>, StackError> {
    let mut found = None;
    for layer in layers {
        let layer_found = find(layer).ok_or_else(|| StackError::Misplaced((*layer).to_owned()))?;
        if found.replace(layer_found).is_some() {
            return Err(StackError::TooMany { layer: (*layer).to_owned(), is_above });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_is_read_as_it_is_written() {
        let sides = |stack: Stack| (stack.cipher.map(CipherLayer::id), stack.digest.map(DigestLayer::id));
        for cipher in CipherLayer::ALL.into_iter().map(Some).chain([None]) {
            for digest in DigestLayer::ALL.into_iter().map(Some).chain([None]) {
                let stack = Stack { cipher, digest };
                assert_eq!(stack.to_string().parse(), Ok(stack), "{:?}", sides(stack));
            }
        }
        let texts = Stack::PAPER.map(|stack| stack.to_string());
        assert_eq!(texts, ["tcp/ip", "tcp/md5/ip", "des/tcp/md5/ip", "3des/tcp/md5/ip"]);
        let texts = Stack::TODAY.map(|stack| stack.to_string());
        assert_eq!(texts, ["tcp/blake3/ip", "aes128/tcp/blake3/ip", "chacha20/tcp/blake3/ip"]);
    }

    #[test]
    fn the_stacks_of_the_paper_are_historical_but_for_the_plain_one() {
        assert_eq!(Stack::PAPER.map(Stack::is_historical), [false, true, true, true]);
        assert_eq!(Stack::TODAY.map(Stack::is_historical), [false; 3]);
        assert!("des/tcp/ip".parse::<Stack>().is_ok_and(Stack::is_historical));
        assert!("aes128/tcp/md5/ip".parse::<Stack>().is_ok_and(Stack::is_historical));
    }

    #[test]
    fn an_error_says_what_to_do() {
        let cases = [
            ("", "there is no layer \"\": above tcp one of des, 3des, aes128, chacha20, below tcp one of md5, blake3"),
            ("tcp", "the last layer must be ip, as in des/tcp/md5/ip"),
            ("ip", "there is no tcp among the layers: write it above ip, as in tcp/ip"),
            ("md5/tcp/ip", "md5 is a digest: it goes between tcp and ip, as in tcp/md5/ip"),
            ("tcp/des/ip", "des is a cipher: it goes above tcp, as in des/tcp/ip"),
            ("tcp/tcp/ip", "tcp is in the wrong place: the order is CIPHER/tcp/DIGEST/ip"),
            ("des/aes128/tcp/ip", "aes128 is a second layer above tcp: at most one cipher is possible"),
            ("tcp/md5/md5/ip", "md5 is a second layer between tcp and ip: at most one digest is possible"),
            ("tcp/ip/md5", "the last layer must be ip, as in des/tcp/md5/ip"),
        ];
        for (text, message) in cases {
            assert_eq!(text.parse::<Stack>().map_err(|error| error.to_string()), Err(message.to_owned()), "{text}");
        }
        assert_eq!("rot13/tcp/ip".parse::<Stack>(), Err(StackError::Unknown("rot13".to_owned())));
    }
}
