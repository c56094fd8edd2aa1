//! The driver's framing of whatever bytes there are: the body of the fuzz target under `fuzz/`, and of a property test.

use super::framing::{Answer, Framing, FramingError, Progress};

/// What a connection said: its whole responses, each with its body, and how it ended.
type Said = (Vec<(Answer, Vec<u8>)>, Result<Answer, FramingError>);

/// Reads `data` as the responses of a connection that then closes: at once, and in pieces. Both must say the same.
///
/// # Panics
/// When they do not: that is what this is for.
pub fn frame_anything(data: &[u8]) {
    let Some((&[settings, piece_bytes], bytes)) = data.split_first_chunk() else { return };
    let answers_head = settings & 1 == 1;
    let at_once = follow(bytes, bytes.len().max(1), answers_head);
    let in_pieces = follow(bytes, usize::from(piece_bytes).max(1), answers_head);
    assert_eq!(at_once, in_pieces, "in pieces of {piece_bytes}");
}

fn follow(bytes: &[u8], piece_bytes: usize, answers_head: bool) -> Said {
    let mut framing = Framing::default();
    let (mut buffer, mut body, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        loop {
            let (answer, consumed) = match framing.advance(&buffer, answers_head, |part| body.extend(part)) {
                Ok(Progress::Whole { answer, consumed }) => (Some(answer), consumed),
                Ok(Progress::Partial { consumed }) => (None, consumed),
                Err(error) => return (whole, Err(error)),
            };
            assert!(consumed <= buffer.len(), "{consumed} of {} bytes", buffer.len());
            buffer.drain(..consumed);
            match answer {
                Some(answer) => whole.push((answer, std::mem::take(&mut body))),
                None => break,
            }
        }
    }
    let end = framing.close();
    if let Ok(answer) = end {
        whole.push((answer, body));
    }
    (whole, end)
}
