//! Sets of bytes in patterns, `[...]`, with rsync's syntax.

/// Bytes that a set matches. Never a slash.
pub(super) struct Set([bool; 256]);

impl Set {
    /// Parses a set after its `[`. Returns it with the text after its `]`; `None` if it is
    /// malformed.
    pub(super) fn parse(mut rest: &[u8]) -> Option<(Self, &[u8])> {
        let mut set = Self([false; 256]);
        let negated = rest.strip_prefix(b"!").or_else(|| rest.strip_prefix(b"^"));
        rest = negated.unwrap_or(rest);
        // The preceding byte, if a range can begin with it.
        let mut start = None;
        let mut is_first = true;
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            let class = if byte == b'[' { split_class(rest) } else { None };
            if let Some((class, after)) = class {
                let is_in = class_of(class)?;
                (0..=u8::MAX).filter(is_in).for_each(|byte| set.0[usize::from(byte)] = true);
                (rest, start, is_first) = (after, None, false);
                continue;
            }
            match (byte, start) {
                (b']', _) if !is_first => break,
                (b'-', Some(first)) if rest.first().is_some_and(|next| *next != b']') => {
                    let last = take_byte(&mut rest)?;
                    if last < first {
                        return None;
                    }
                    set.0[usize::from(first)..=usize::from(last)].fill(true);
                    start = None;
                }
                (b'\\', _) => {
                    let (&escaped, after) = rest.split_first()?;
                    (rest, start) = (after, Some(escaped));
                    set.0[usize::from(escaped)] = true;
                }
                (byte, _) => {
                    set.0[usize::from(byte)] = true;
                    start = Some(byte);
                }
            }
            is_first = false;
        }
        if negated.is_some() {
            set.0.iter_mut().for_each(|is_in| *is_in = !*is_in);
        }
        set.0[usize::from(b'/')] = false;
        Some((set, rest))
    }

    /// Writes the set as part of a regular expression over bytes.
    pub(super) fn put(&self, expression: &mut String) {
        // The complement, because an empty class can be written only this way.
        *expression += "[^";
        (0..=u8::MAX).filter(|byte| !self.0[usize::from(*byte)]).for_each(|byte| super::put_byte(expression, byte));
        *expression += "]";
    }
}

/// Takes the next byte, which may be escaped.
fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    if byte != b'\\' {
        return Some(byte);
    }
    let (&escaped, after) = rest.split_first()?;
    *rest = after;
    Some(escaped)
}

/// Returns the name of a class and the text after it, if the text after a `[` is `:name:]`. Like in
/// rsync, a `]` without a `:` before it makes the `[` an ordinary byte.
fn split_class(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = rest.strip_prefix(b":")?;
    let end = inner.iter().position(|byte| *byte == b']')?;
    Some((inner[..end].strip_suffix(b":")?, &inner[end + 1..]))
}

/// Returns a test of whether a byte is in the class, in the POSIX locale; `None` for an unknown
/// class.
fn class_of(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}
