//! What the first bytes of a read or write say: method, path, status.

use std::sync::Arc;

use ahash::HashMap;

/// Distinct paths interned; a path beyond that gets a string of its own.
const PATHS_INTERNED: usize = 4_096;

/// The first bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Method, or empty.
    pub method: Arc<str>,
    /// Path, or empty; ends in an ellipsis when the kept bytes ended first.
    pub path: Arc<str>,
}

impl RequestHead {
    /// Of a request whose head nobody could read.
    pub fn unknown() -> Self {
        // The empty string that all share: nothing is allocated for it.
        Self { method: Arc::default(), path: Arc::default() }
    }
}

/// Reads request heads, sharing the strings of those seen before.
pub struct HeadReader {
    strings: HashMap<Box<[u8]>, Arc<str>>,
    keeps_query: bool,
}

impl HeadReader {
    /// `keeps_query`: keep what follows the question mark.
    pub fn new(keeps_query: bool) -> Self {
        Self { strings: HashMap::default(), keeps_query }
    }

    /// Method and path of a request that begins with `head`.
    pub fn request(&mut self, head: &[u8]) -> RequestHead {
        let mut words = head.splitn(3, |&byte| byte == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let truncated = words.next().is_none();
        let line_end = target.iter().position(|&byte| byte == b'\r' || byte == b'\n').unwrap_or(target.len());
        let target = &target[..line_end];
        let path = match target.iter().position(|&byte| byte == b'?') {
            Some(query) if !self.keeps_query => &target[..query],
            _ => target,
        };
        let cut_short = truncated && path.len() == target.len() && !target.is_empty();
        let path = if cut_short {
            format!("{}…", String::from_utf8_lossy(path)).into()
        } else {
            self.intern(path)
        };
        RequestHead { method: self.intern(method), path }
    }

    fn intern(&mut self, bytes: &[u8]) -> Arc<str> {
        if let Some(string) = self.strings.get(bytes) {
            return string.clone();
        }
        let string: Arc<str> = String::from_utf8_lossy(bytes).into();
        if self.strings.len() < PATHS_INTERNED {
            self.strings.insert(bytes.into(), string.clone());
        }
        string
    }
}

/// Status code of a response that begins with `head`; zero when it begins none.
pub fn status(head: &[u8]) -> u16 {
    match head {
        [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            _,
            b' ',
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            ..,
        ] => u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_string_is_dropped_unless_asked_for() {
        let head = b"GET /users/42?token=secret HTTP/1.1\r\n";
        assert_eq!(&*HeadReader::new(false).request(head).path, "/users/42");
        assert_eq!(&*HeadReader::new(true).request(head).path, "/users/42?token=secret");
    }

    #[test]
    fn a_path_longer_than_the_kept_bytes_says_so() {
        let head = HeadReader::new(false).request(b"GET /aaaaaaaa");
        assert_eq!(&*head.path, "/aaaaaaaa…");
        // The question mark was seen: the path is whole.
        assert_eq!(&*HeadReader::new(false).request(b"GET /a?bbbbb").path, "/a");
    }

    #[test]
    fn a_status_is_read_and_nothing_else_is_one() {
        assert_eq!(status(b"HTTP/1.1 404 Not Found\r\n"), 404);
        assert_eq!(status(b"HTTP/1.0 200"), 200);
        for head in [&b"HTTP/2 200"[..], b"{\"a\":1}", b"HTTP/1.1 20", b""] {
            assert_eq!(status(head), 0, "{head:?}");
        }
    }
}
