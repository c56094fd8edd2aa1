//! What the fields of an HTTP/1.1 head and the lines between chunks say of where a message ends (RFC 9112). Shared by
//! the driver's framing, which has every byte, and by attribution's, which has the first bytes of each call.

use std::str::from_utf8;

/// Fields a head may have.
pub(crate) const FIELDS_MAX: usize = 128;

/// How a head says its body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// There is none.
    #[default]
    None,
    /// So many bytes.
    Exactly(u64),
    /// In chunks.
    Chunked,
    /// All bytes to the end of the connection.
    UntilClose,
}

/// The fields of a head that bear on its message's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields<'a> {
    /// `Content-Length`.
    pub content_length: Option<u64>,
    /// The last element of `Transfer-Encoding`.
    pub last_coding: Option<&'a [u8]>,
    /// What `Connection` says of the connection's future, if anything.
    pub keeps_alive: Option<bool>,
}

impl<'a> Fields<'a> {
    /// Reads a parsed head; `Err` holds a `Content-Length` that is not one number.
    pub fn of(headers: &[httparse::Header<'a>]) -> Result<Self, String> {
        let mut fields = Self::default();
        for header in headers {
            let (name, value) = (header.name, header.value);
            if name.eq_ignore_ascii_case("content-length") {
                let length = number(value).ok_or_else(|| String::from_utf8_lossy(value).into_owned())?;
                if fields.content_length.replace(length).is_some_and(|earlier| earlier != length) {
                    return Err("two different ones".to_owned());
                }
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                fields.last_coding = tokens(value).last();
            } else if name.eq_ignore_ascii_case("connection") {
                for token in tokens(value) {
                    if token.eq_ignore_ascii_case(b"close") {
                        fields.keeps_alive = Some(false);
                    } else if token.eq_ignore_ascii_case(b"keep-alive") {
                        fields.keeps_alive = Some(true);
                    }
                }
            }
        }
        Ok(fields)
    }

    /// The body comes in chunks, as far as the fields say.
    pub fn is_chunked(&self) -> bool {
        self.last_coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
    }
}

/// The elements of a comma-separated field.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

fn number(value: &[u8]) -> Option<u64> {
    // `u64::from_str` alone would take a leading plus sign.
    let digits = from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok())
}

/// Bytes that are no chunk's size line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoChunkSize;

/// Length of the chunk's size line at the front of `bytes` and the size it gives; `None` when it is not all there.
pub(crate) fn chunk_size(bytes: &[u8]) -> Result<Option<(usize, u64)>, NoChunkSize> {
    // httparse reads a line without any digit as zero.
    if !bytes.first().is_none_or(u8::is_ascii_hexdigit) {
        return Err(NoChunkSize);
    }
    match httparse::parse_chunk_size(bytes) {
        // A line end inside an extension: the two sides might not agree on where the line ends.
        Ok(httparse::Status::Complete((length, _))) if bytes[..length - 2].contains(&b'\n') => {
            Err(NoChunkSize)
        }
        Ok(httparse::Status::Complete(line)) => Ok(Some(line)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(NoChunkSize),
    }
}
