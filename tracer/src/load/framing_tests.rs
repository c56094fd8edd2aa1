//! Responses are written down first, then serialised and cut: what framing finds is compared with what was written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Feeds `pieces` as a connection would: what was not consumed is given again with the next piece.
fn follow(framing: &mut Framing, pieces: &[&[u8]]) -> Result<(Progress, Vec<u8>), FramingError> {
    follow_answer(framing, pieces, false)
}

fn follow_answer(
    framing: &mut Framing,
    pieces: &[&[u8]],
    answers_head: bool,
) -> Result<(Progress, Vec<u8>), FramingError> {
    let mut buffer = Vec::new();
    let mut body = Vec::new();
    let mut progress = Progress::Partial { consumed: 0 };
    for piece in pieces {
        assert!(matches!(progress, Progress::Partial { .. }), "whole before its last byte");
        buffer.extend_from_slice(piece);
        progress = framing.advance(&buffer, answers_head, |bytes| body.extend_from_slice(bytes))?;
        if let Progress::Partial { consumed } = progress {
            buffer.drain(..consumed);
        }
    }
    Ok((progress, body))
}

/// One response and nothing behind it.
fn whole(framing: &mut Framing, bytes: &[u8]) -> Result<(Answer, Vec<u8>), FramingError> {
    whole_answer(framing, bytes, false)
}

fn whole_answer(
    framing: &mut Framing,
    bytes: &[u8],
    answers_head: bool,
) -> Result<(Answer, Vec<u8>), FramingError> {
    match follow_answer(framing, &[bytes], answers_head)? {
        (Progress::Whole { consumed, .. }, _) if consumed < bytes.len() => {
            Err(FramingError::Extra(bytes.len() - consumed))
        }
        (Progress::Whole { answer, .. }, body) => Ok((answer, body)),
        (Progress::Partial { .. }, _) => panic!("not whole"),
    }
}

fn error_of(bytes: &[u8]) -> FramingError {
    whole(&mut Framing::default(), bytes).expect_err("refused")
}

#[test]
fn a_response_cut_at_every_byte_is_the_same_response() {
    let response: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx: y\r\n\r\nhello";
    let mut framing = Framing::default();
    for cut in 1..response.len() {
        let (progress, body) = follow(&mut framing, &[&response[..cut], &response[cut..]]).unwrap();
        let answer = Answer { status: 200, keeps_alive: true };
        assert!(matches!(progress, Progress::Whole { answer: a, .. } if a == answer), "cut at {cut}");
        assert_eq!(body, b"hello", "cut at {cut}");
    }
}

#[test]
fn a_head_that_differs_from_the_learnt_one_is_parsed() {
    let mut framing = Framing::default();
    for (status, length) in [(200, 2), (200, 2), (404, 3), (200, 2)] {
        let response =
            format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{}", "z".repeat(length));
        let (answer, body) = whole(&mut framing, response.as_bytes()).unwrap();
        assert_eq!((answer.status, body.len()), (status, length));
    }
}

#[test]
fn some_responses_have_no_body_whatever_their_head_says() {
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ),
    ] {
        let (answer, body) =
            whole_answer(&mut Framing::default(), head.as_bytes(), method == "HEAD").unwrap();
        assert!(answer.keeps_alive && body.is_empty(), "{head}");
    }
}

#[test]
fn a_response_without_a_length_ends_with_the_connection() {
    let mut framing = Framing::default();
    let (progress, body) = follow(&mut framing, &[b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"]).unwrap();
    assert!(matches!(progress, Progress::Partial { consumed: 2 }));
    assert_eq!(body, b"hello");
    assert_eq!(framing.close(), Ok(Answer { status: 200, keeps_alive: false }));

    let mut framing = Framing::default();
    follow(&mut framing, &[b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhel"]).unwrap();
    assert_eq!(framing.close(), Err(FramingError::Truncated));
}

#[test]
fn keep_alive_follows_version_and_connection_header() {
    for (head, keeps_alive) in [
        ("HTTP/1.1 204 X\r\n\r\n", true),
        ("HTTP/1.1 204 X\r\nConnection: x, Close\r\n\r\n", false),
        ("HTTP/1.0 204 X\r\n\r\n", false),
        ("HTTP/1.0 204 X\r\nconnection: Keep-Alive\r\n\r\n", true),
    ] {
        let (answer, _) = whole(&mut Framing::default(), head.as_bytes()).unwrap();
        assert_eq!(answer.keeps_alive, keeps_alive, "{head}");
    }
}

#[test]
fn wrong_framing_is_refused() {
    assert_eq!(error_of(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc"), FramingError::Extra(2));
    assert_eq!(error_of(b"HTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\n"), FramingError::Extra(18));
    assert!(matches!(error_of(b"\r\nHTTP/1.1 204 X\r\n\r\n"), FramingError::Head(_)));
    assert!(matches!(error_of(b"SSH-2.0-OpenSSH\r\n"), FramingError::Head(_)));
    assert!(matches!(
        error_of(b"HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello"),
        FramingError::ContentLength(_)
    ));
    let two = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello";
    assert!(matches!(error_of(two), FramingError::ContentLength(_)));
    let both = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(error_of(both), FramingError::TwoLengths);
    let old = b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(error_of(old), FramingError::CodingInHttp10);
    let chunked = |rest: &str| {
        error_of(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{rest}").as_bytes())
    };
    assert_eq!(chunked("xyz\r\n"), FramingError::ChunkSize);
    assert_eq!(chunked("\r\n\r\n"), FramingError::ChunkSize);
    assert_eq!(chunked("3\r\nabcd\r\n0\r\n\r\n"), FramingError::ChunkEnd);
    assert_eq!(chunked("0\r\nx: y\n\r\n"), FramingError::Trailer);
    assert_eq!(chunked("0\r\n\r\n!"), FramingError::Extra(1));
    assert_eq!(error_of(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), FramingError::Upgrade);
}

/// How a written response says its length.
#[derive(Clone, Debug)]
enum Written {
    Length,
    Chunked { chunk_sizes: Vec<usize>, extension: bool, trailer: bool },
    Close,
}

fn written() -> impl Strategy<Value = Written> {
    prop_oneof![
        Just(Written::Length),
        Just(Written::Close),
        (vec(1..40_usize, 1..8), any::<bool>(), any::<bool>()).prop_map(
            |(chunk_sizes, extension, trailer)| Written::Chunked { chunk_sizes, extension, trailer }
        ),
    ]
}

fn serialise(status: u16, interim: usize, body: &[u8], written: &Written) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(interim);
    bytes.extend(format!("HTTP/1.1 {status} Words of any kind\r\nDate: today\r\n").bytes());
    match written {
        Written::Length => {
            bytes.extend(format!("CONTENT-length: {}\r\n\r\n", body.len()).bytes());
            bytes.extend(body);
        }
        Written::Chunked { chunk_sizes, extension, trailer } => {
            bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            let (mut rest, mut sizes) = (body, chunk_sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                bytes
                    .extend(format!("{:X}{}\r\n", chunk.len(), if *extension { ";a=b" } else { "" }).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
                rest = after;
            }
            bytes.extend(if *trailer { &b"0\r\nsum: 1\r\nx: y\r\n\r\n"[..] } else { b"0\r\n\r\n" });
        }
        Written::Close => {
            bytes.extend(b"\r\n");
            bytes.extend(body);
        }
    }
    bytes
}

proptest! {
    #[test]
    fn framing_finds_what_was_written(
        responses in vec((200..600_u16, 0..3_usize, vec(any::<u8>(), 0..200), written()), 1..4),
        cuts in vec(1..30_usize, 1..20),
    ) {
        let mut framing = Framing::default();
        for (status, interim, body, written) in responses {
            prop_assume!(!matches!(status, 204 | 304));
            let bytes = serialise(status, interim, &body, &written);
            let mut pieces = Vec::new();
            let (mut rest, mut sizes) = (&bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(piece);
                rest = after;
            }
            let (progress, found) = follow(&mut framing, &pieces).unwrap();
            prop_assert_eq!(found, body);
            let answer = match progress {
                Progress::Whole { answer, .. } => answer,
                Progress::Partial { .. } => framing.close().unwrap(),
            };
            let closes = matches!(written, Written::Close);
            prop_assert_eq!(answer, Answer { status, keeps_alive: !closes });
            framing.restart();
        }
    }

    #[test]
    fn any_bytes_are_taken_without_panic(pieces in vec(vec(any::<u8>(), 0..50), 0..10), chunked in any::<bool>()) {
        let mut framing = Framing::default();
        let mut buffer = Vec::new();
        if chunked {
            buffer.extend(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        }
        for piece in pieces {
            buffer.extend(piece);
            match framing.advance(&buffer, false, |_| {}) {
                Ok(Progress::Partial { consumed }) => drop(buffer.drain(..consumed)),
                Ok(Progress::Whole { .. }) => buffer.clear(),
                Err(_) => break,
            }
        }
    }
}
