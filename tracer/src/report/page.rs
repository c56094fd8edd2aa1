//! Text of at most 100 columns: wrapped lines and aligned tables.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// No line is longer.
pub(crate) const WIDTH: usize = 100;

/// Further indent of the lines a long line continues on.
const CONTINUATION: usize = 4;
/// A number and its per cent sign stay on one line.
const GLUED_PERCENT: &str = "\u{a0}%";
/// Indent of tables; their cells have a blank on either side.
const INDENT: &str = "   ";
/// Width of the column of names.
const NAMES: usize = 17;

/// A text that grows line by line.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// One line, wrapped between words where it must be.
    pub(crate) fn line(&mut self, indent: usize, text: &str) {
        self.wrapped(&" ".repeat(indent), indent + CONTINUATION, text);
    }

    /// A line with a name in front of it, in a column of its own.
    pub(crate) fn entry(&mut self, name: &str, text: &str) {
        self.wrapped(&format!("  {name:<NAMES$}"), 2 + NAMES, text);
    }

    fn wrapped(&mut self, head: &str, continuation: usize, text: &str) {
        let mut line = head.to_owned();
        let mut used = line.chars().count();
        let mut gap = 0;
        for word in printable(text)
            .replace(" %", GLUED_PERCENT)
            .split(' ')
            .filter(|word| !word.is_empty())
        {
            let mut word: Vec<char> = word.chars().collect();
            while used + gap + word.len() > WIDTH {
                if gap == 0 {
                    // The word alone is too long for a line.
                    line.extend(word.drain(..WIDTH - used));
                }
                self.push(&line);
                line = " ".repeat(continuation);
                (used, gap) = (continuation, 0);
            }
            line.push_str(&" ".repeat(gap));
            line.extend(&word);
            used += gap + word.len();
            gap = 1;
        }
        self.push(&line);
    }

    /// A table under a title; the first column is aligned left, the others right.
    pub(crate) fn table(&mut self, title: &str, header: &[&str], rows: Vec<Vec<String>>) {
        self.blank();
        self.line(2, title);
        self.push(&table(header, rows));
    }

    /// An empty line.
    pub(crate) fn blank(&mut self) {
        self.0.push('\n');
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.0
    }

    fn push(&mut self, text: &str) {
        self.0
            .push_str(text.replace(GLUED_PERCENT, " %").trim_end());
        self.0.push('\n');
    }
}

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width((WIDTH - INDENT.len()) as u16)
        .set_header(header)
        .add_rows(
            rows.iter()
                .map(|row| row.iter().map(|cell| printable(cell))),
        );
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines = table
        .lines()
        .map(|line| format!("{INDENT}{}", line.trim_end()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Paths and names come from elsewhere: nothing of them may steer a terminal.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_and_words_are_wrapped() {
        let mut page = Page::default();
        page.line(2, &"word ".repeat(30));
        page.line(0, &"x".repeat(250));
        page.entry("name", &format!("short {}", "y".repeat(99)));
        let text = page.into_text();
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert_eq!(text.matches("word").count(), 30);
        assert_eq!(text.matches('x').count(), 250);
        assert_eq!(text.matches('y').count(), 99);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        let mut page = Page::default();
        page.line(0, "/\u{1b}[2J\r");
        page.table("title", &["name"], vec![vec!["\u{7}".into()]]);
        assert!(
            !page
                .into_text()
                .contains(|c: char| c.is_control() && c != '\n')
        );
    }
}
