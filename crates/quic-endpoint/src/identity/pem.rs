//! Writes one PEM block (RFC 7468). The TLS library reads PEM and has no writer.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Characters in a full line (RFC 7468, section 2).
const LINE_LEN: usize = 64;

/// Returns the block called `label` that holds `der`.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let mut base64 = Vec::with_capacity(der.len().div_ceil(3) * 4);
    for group in der.chunks(3) {
        let word = group.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
        for position in 0..4 {
            let padding = position > group.len();
            base64.push(if padding { b'=' } else { ALPHABET[(word >> (18 - 6 * position)) as usize & 63] });
        }
    }
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in base64.chunks(LINE_LEN) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn the_reader_of_the_tls_library_agrees() {
        for len in [1, 2, 3, 47, 48, 49, 100] {
            let der: Vec<u8> = (0..len).map(|byte| byte as u8 ^ 0xa5).collect();
            let read = PrivatePkcs8KeyDer::from_pem_slice(super::encode("PRIVATE KEY", &der).as_bytes()).unwrap();
            assert_eq!(read.secret_pkcs8_der(), der);
        }
    }
}
