//! The text of a scenario file, and errors that point into it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use serde::de::DeserializeOwned;

/// A scenario file as read.
pub struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| {
            format!("cannot read the scenario {}; give the path of a TOML file", path.display())
        })?;
        Ok(Self { path: path.to_owned(), text })
    }

    /// Folder that relative paths in the file start from.
    pub fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Parses the text; an error names the line, and the nearest known key for an unknown one.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.text).map_err(|error| self.explain(&error))
    }

    /// `FILE:LINE` of a place in the text.
    pub fn place(&self, span: &Range<usize>) -> String {
        let line = 1 + self.text[..span.start.min(self.text.len())].matches('\n').count();
        format!("{}:{line}", self.path.display())
    }

    /// An error at a place in the text.
    pub fn error(&self, span: &Range<usize>, message: impl std::fmt::Display) -> Error {
        anyhow!("{}: {message}", self.place(span))
    }

    fn explain(&self, error: &toml::de::Error) -> Error {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().trim().replace('\n', ", ");
        // Serde has no other way to say it: "unknown field `x`, expected one of `a`, `b`".
        let Some(unknown) = message.strip_prefix("unknown field ") else {
            return self.error(&span, message);
        };
        let mut names = unknown.split('`').skip(1).step_by(2);
        let key = names.next().unwrap_or_default();
        let known: Vec<&str> = names.collect();
        let advice = match nearest(key, &known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the keys here are: {}", known.join(", ")),
        };
        self.error(&span, format_args!("unknown key `{key}`; {advice}"))
    }
}

/// The known name at most two edits (and less than half of its letters) away, if any.
fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let (edits, best) = known.iter().map(|candidate| (edits(name, candidate), *candidate)).min()?;
    (edits <= 2 && edits * 2 < best.len()).then_some(best)
}

/// Levenshtein distance.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{edits, nearest};

    #[test]
    fn edit_distance() {
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("conections", "connections"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn a_nearest_name_must_be_near() {
        assert_eq!(nearest("conections", &["name", "connections"]), Some("connections"));
        assert_eq!(nearest("colour", &["name", "connections"]), None);
        assert_eq!(nearest("xy", &["ab"]), None);
    }
}
