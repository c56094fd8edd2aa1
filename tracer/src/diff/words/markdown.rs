//! Markdown for a pull request: the answer in sight, the tables folded away.

use super::{
    super::Judgement,
    outline::{Block, outline},
};

/// The judgement as Markdown.
pub fn markdown(judgement: &Judgement) -> String {
    let mut page = String::new();
    let mut is_open = false;
    for block in outline(judgement) {
        match block {
            Block::Answer(answer) => {
                let (word, rest) = answer.split_once(": ").unwrap_or((&answer, ""));
                page.push_str(&format!("**{}**: {}\n\n", escaped(word), escaped(rest)));
            }
            Block::Entry(name, sentence) => page.push_str(&format!("- {name}: {}\n", escaped(&sentence))),
            Block::Heading(heading) => {
                close(&mut page, &mut is_open);
                page.push_str(&format!("\n#### {}\n\n", escaped(&heading)));
            }
            Block::Table { title, header, rows } => {
                close(&mut page, &mut is_open);
                page.push_str(&format!("\n<details><summary>{}</summary>\n\n", escaped(&title)));
                is_open = true;
                page.push_str(&table(&header, &rows));
            }
        }
    }
    close(&mut page, &mut is_open);
    page
}

fn close(page: &mut String, is_open: &mut bool) {
    if std::mem::take(is_open) {
        page.push_str("\n</details>\n");
    }
}

fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = line(header.iter().map(|cell| (*cell).to_owned()).collect());
    let aligned = (0..header.len()).map(|column| if column == 0 { ":--" } else { "--:" }.to_owned());
    table.push_str(&line(aligned.collect()));
    for row in rows {
        table.push_str(&line(row.iter().map(|cell| escaped(cell)).collect()));
    }
    table
}

/// Names and paths come from elsewhere: none of them may become markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '#' | '\\' => {
                escaped.push('\\');
                escaped.push(character);
            }
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
