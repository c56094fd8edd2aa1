//! The one thing both sides ask of payload bytes: do they begin an HTTP/1 request?

/// True when `head` begins with an HTTP request method and a space, or is a true prefix of such a start.
///
/// RFC 9110 section 9.1 methods, and PATCH (RFC 5789). One byte is enough for a prefix: Go reads one byte first.
pub fn begins_request(head: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] =
        [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"CONNECT ", b"TRACE "];
    !head.is_empty() && METHODS.iter().any(|method| method.iter().zip(head).all(|(m, h)| m == h))
}

/// The first four bytes, big-endian, of the methods that mark an unknown socket as one that serves requests.
#[inline(always)]
pub const fn is_method_word(word: u32) -> bool {
    matches!(
        &word.to_be_bytes(),
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"PATC" | b"OPTI" | b"CONN" | b"TRAC"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_single_byte_may_begin_a_request() {
        assert!(begins_request(b"G"));
        assert!(!begins_request(b"x"));
        assert!(!begins_request(b""));
    }

    #[test]
    fn a_response_or_tls_or_body_begins_none() {
        for head in [&b"HTTP/1.1 200 OK"[..], b"\x16\x03\x01\x02\x00", b"{\"a\":1}", b"GETX/", b"get / "] {
            assert!(!begins_request(head), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn what_begins_a_request_has_a_method_word(rest in "[ -~]{0,20}") {
            for method in ["GET ", "POST ", "PUT ", "HEAD ", "DELETE ", "PATCH ", "OPTIONS ", "CONNECT ", "TRACE "] {
                let head = [method, &rest].concat();
                prop_assert!(begins_request(head.as_bytes()));
                let word: [u8; 4] = head.as_bytes()[..4].try_into().unwrap();
                prop_assert!(is_method_word(u32::from_be_bytes(word)));
            }
        }
    }
}
