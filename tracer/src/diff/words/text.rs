//! Text of at most 100 columns.

use super::{
    super::Judgement,
    outline::{Block, outline},
};
use crate::report::Page;

/// The judgement as text.
pub fn text(judgement: &Judgement) -> String {
    let mut page = Page::default();
    for block in outline(judgement) {
        match block {
            Block::Answer(answer) => {
                page.line(0, &answer);
                page.blank();
            }
            Block::Entry(name, sentence) => page.entry(name, &sentence),
            Block::Heading(heading) => {
                page.blank();
                page.line(0, &heading);
            }
            Block::Table { title, header, rows } => page.table(&title, &header, rows),
        }
    }
    page.into_text()
}
