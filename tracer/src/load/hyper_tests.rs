//! The driver's framing beside hyper's client, on responses with a byte out of place.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    framing::{Framing, FramingError, Progress},
    fuzzing::frame_anything,
};
use crate::hyper_client;

/// Status and body of one response.
type Response = (u16, Vec<u8>);

/// What the driver makes of these bytes and the end of the connection.
fn by_us(method: &str, bytes: &[u8]) -> Result<Response, FramingError> {
    let (mut framing, mut body) = (Framing::default(), Vec::new());
    let answer = match framing.advance(bytes, method == "HEAD", |part| body.extend_from_slice(part))? {
        Progress::Whole { answer, .. } => answer,
        Progress::Partial { .. } => framing.close()?,
    };
    Ok((answer.status, body))
}

fn response() -> impl Strategy<Value = Vec<u8>> {
    let status = select(&["200 OK", "201 Created", "204 No Content", "304 Not Modified", "404 Not Found"]);
    let chunks = vec(vec(any::<u8>(), 1..30), 0..4);
    (status, any::<bool>(), chunks, 0..3_u8).prop_map(|(status, is_told, chunks, framed_by)| {
        let mut bytes = if is_told { b"HTTP/1.1 100 Continue\r\n\r\n".to_vec() } else { Vec::new() };
        bytes.extend(format!("HTTP/1.1 {status}\r\nserver: x\r\n").bytes());
        match framed_by {
            0 => {
                let body = chunks.concat();
                bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                bytes.extend(body);
            }
            1 => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in chunks {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            }
            _ => {
                bytes.extend(b"\r\n");
                bytes.extend(chunks.concat());
            }
        }
        bytes
    })
}

/// The response without the empty lines at its beginning and between its interim head and the next.
fn without_empty_lines_before_heads(bytes: &[u8]) -> Vec<u8> {
    let bytes = without_empty_lines(bytes);
    let mut headers = [httparse::EMPTY_HEADER; 8];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes))
            if response.code.is_some_and(|code| (100..200).contains(&code)) =>
        {
            let (interim, rest) = bytes.split_at(head_bytes);
            [interim, without_empty_lines(rest)].concat()
        }
        _ => bytes.to_vec(),
    }
}

fn without_empty_lines(bytes: &[u8]) -> &[u8] {
    let first = bytes.iter().position(|byte| !b"\r\n".contains(byte));
    &bytes[first.unwrap_or(bytes.len())..]
}

/// A byte out of place, mostly one that means something, and where the response is cut off.
fn fault() -> impl Strategy<Value = (usize, u8, usize)> {
    let byte = prop_oneof![select(b"\r\n :;,0159af/HTPGECc\0\xff"), any::<u8>()];
    (0..250_usize, byte, prop_oneof![3 => Just(usize::MAX), 1 => 0..250_usize])
}

fn spoilt(mut bytes: Vec<u8>, (at, byte, length): (usize, u8, usize)) -> Vec<u8> {
    if let Some(there) = bytes.get_mut(at) {
        *there = byte;
    }
    bytes.truncate(length);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Where the driver finds a whole response hyper finds the same one; what it refuses, hyper refuses, unless the
    /// driver is stricter on purpose.
    #[test]
    fn the_driver_reads_what_hyper_reads(
        response in response(), fault in fault(), method in select(&["GET", "HEAD"]),
    ) {
        let bytes = spoilt(response, fault);
        let (ours, hypers) = (by_us(method, &bytes), hyper_client::response(method, &bytes));
        let shown = format!("{:?}, ours {ours:?}, hyper {hypers:?}", String::from_utf8_lossy(&bytes));
        match ours {
            // Not three digits that mean a status (RFC 9112, section 4): no response to hyper; to the driver one that is
            // never expected, so an error of class status.
            Ok((0..100, _)) => prop_assert_eq!(None, hypers, "{}", shown),
            Ok(ours) => prop_assert_eq!(Some(ours), hypers, "{}", shown),
            // Only what the client asked for may be switched to (RFC 9110, section 7.8), and the driver asks for nothing.
            // hyper leaves the refusal to its caller.
            Err(FramingError::Upgrade) => prop_assert!(hypers.is_none_or(|(status, _)| status == 101), "{}", shown),
            // A response to HEAD, a 204 and a 304 end with their head, whatever its fields say (RFC 9112, section 6.3,
            // rule 1), so hyper reads neither length nor coding. They are wrong all the same (RFC 9110, section 8.6; RFC
            // 9112, section 6.1), and the driver says so. Anywhere else rule 5 makes the length an error.
            Err(FramingError::ContentLength(_) | FramingError::CodingInHttp10) if method == "HEAD" => {
                prop_assert!(hypers.is_none_or(|(_, body)| body.is_empty()), "{}", shown);
            }
            Err(FramingError::ContentLength(_)) => {
                prop_assert!(hypers.is_none_or(|(status, body)| matches!(status, 204 | 304) && body.is_empty()), "{}", shown);
            }
            // Only a server is to ignore empty lines before a start line (RFC 9112, section 2.2); hyper's client does it,
            // too. But for those lines both read the same.
            Err(FramingError::Head(httparse::Error::NewLine)) => {
                let ours = by_us(method, &without_empty_lines_before_heads(&bytes)).ok();
                prop_assert_eq!(ours, hypers, "{}", shown);
            }
            Err(error) => prop_assert_eq!(None, hypers, "{}: {}", error, shown),
        }
    }

    #[test]
    fn responses_are_the_same_however_they_are_cut(
        responses in vec(response(), 1..4), fault in fault(), settings in any::<u8>(), piece_bytes in 1..40_u8,
    ) {
        let mut data = vec![settings, piece_bytes];
        data.extend(spoilt(responses.concat(), fault));
        frame_anything(&data);
    }
}
