//! Whether a body is the expected one, told piece by piece as it arrives.

use sha2::{Digest, Sha256};

use super::plan::ExpectedBody;

/// How a body differs from the expected one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body differs from byte {offset_bytes} on: expected {expected:?}, got {got:?}")]
    Differs { offset_bytes: u64, expected: String, got: String },
    #[error("expected a body of {expected_bytes} bytes, got {got_bytes}")]
    Length { expected_bytes: u64, got_bytes: u64 },
    #[error("expected a body with SHA-256 {expected}, got {got_bytes} bytes with {got}")]
    Hash { expected: String, got: String, got_bytes: u64 },
}

/// Follows a body.
#[derive(Debug, Default)]
pub(super) struct BodyCheck {
    got_bytes: u64,
    error: Option<BodyError>,
    hash: Option<Box<Sha256>>,
}

impl BodyCheck {
    /// Bytes quoted in an error.
    const QUOTED_BYTES: usize = 40;

    /// Takes the next piece.
    pub fn piece(&mut self, expected: &ExpectedBody, piece: &[u8]) {
        match expected {
            ExpectedBody::Bytes(bytes) => self.compare(bytes, piece),
            ExpectedBody::Length(_) => {}
            ExpectedBody::Sha256(_) => self.hash.get_or_insert_default().update(piece),
        }
        self.got_bytes += piece.len() as u64;
    }

    fn compare(&mut self, expected: &[u8], piece: &[u8]) {
        let rest = &expected[expected.len().min(self.got_bytes as usize)..];
        if self.error.is_some() || rest.starts_with(piece) {
            return;
        }
        let same_bytes = rest.iter().zip(piece).take_while(|(left, right)| left == right).count();
        let quote = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[same_bytes..bytes.len().min(same_bytes + Self::QUOTED_BYTES)])
                .into_owned()
        };
        self.error = Some(BodyError::Differs {
            offset_bytes: self.got_bytes + same_bytes as u64,
            expected: quote(rest),
            got: quote(piece),
        });
    }

    /// The body is whole.
    pub fn finish(self, expected: &ExpectedBody) -> Result<(), BodyError> {
        let got_bytes = self.got_bytes;
        match expected {
            ExpectedBody::Bytes(_) if self.error.is_some() => self.error.map_or(Ok(()), Err),
            ExpectedBody::Bytes(bytes) => same_length(bytes.len() as u64, got_bytes),
            ExpectedBody::Length(bytes) => same_length(*bytes, got_bytes),
            ExpectedBody::Sha256(hash) => {
                let got: [u8; 32] = self.hash.unwrap_or_default().finalize().into();
                if got == *hash {
                    return Ok(());
                }
                Err(BodyError::Hash { expected: hex(hash), got: hex(&got), got_bytes })
            }
        }
    }
}

fn same_length(expected_bytes: u64, got_bytes: u64) -> Result<(), BodyError> {
    if expected_bytes == got_bytes { Ok(()) } else { Err(BodyError::Length { expected_bytes, got_bytes }) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &ExpectedBody, pieces: &[&str]) -> Result<(), BodyError> {
        let mut check = BodyCheck::default();
        pieces.iter().for_each(|piece| check.piece(expected, piece.as_bytes()));
        check.finish(expected)
    }

    #[test]
    fn a_body_is_compared_over_its_pieces() {
        let hello = ExpectedBody::Bytes(b"hello".to_vec());
        assert_eq!(check(&ExpectedBody::Bytes(vec![]), &[]), Ok(()));
        assert_eq!(check(&hello, &["he", "", "llo"]), Ok(()));
        assert_eq!(check(&hello, &["he"]), Err(BodyError::Length { expected_bytes: 5, got_bytes: 2 }));
        let differs = |offset_bytes, expected: &str, got: &str| {
            Err(BodyError::Differs { offset_bytes, expected: expected.into(), got: got.into() })
        };
        assert_eq!(check(&hello, &["he", "lpo", "x"]), differs(3, "lo", "po"));
        assert_eq!(check(&hello, &["hello", "!", "!"]), differs(5, "", "!"));
    }

    #[test]
    fn a_length_and_a_hash_say_enough() {
        assert_eq!(check(&ExpectedBody::Length(5), &["he", "lpo"]), Ok(()));
        let length = BodyError::Length { expected_bytes: 5, got_bytes: 6 };
        assert_eq!(check(&ExpectedBody::Length(5), &["hello", "!"]), Err(length));
        let hash =
            ExpectedBody::sha256("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824").unwrap();
        assert_eq!(check(&hash, &["hel", "lo"]), Ok(()));
        let error = check(&hash, &["hullo"]).unwrap_err().to_string();
        assert!(error.contains("SHA-256 2cf24dba") && error.contains("5 bytes"), "{error}");
        assert!(ExpectedBody::sha256("2cf2").is_err());
    }
}
