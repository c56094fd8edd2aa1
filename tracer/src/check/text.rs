//! A verdict in words and as JSON.

use super::{Sample, SampleWrite, Verdict};
use crate::recording::EAGAIN;
use crate::report::{Page, counted, thousands};

/// The verdict as text of at most 100 columns.
pub fn text(verdict: &Verdict) -> String {
    let mut page = Page::default();
    if let Some(reason) = &verdict.no_verdict {
        page.line(0, &format!("no verdict: {reason}"));
    }
    for finding in &verdict.findings {
        let outcome = match (finding.held, &verdict.no_verdict) {
            (true, None) => "held",
            (true, Some(_)) => "would hold",
            (false, _) => "BROKEN",
        };
        page.line(0, &format!("{outcome}: {}: {}", finding.promise, finding.says));
        if let Some(sample) = &finding.sample {
            show(&mut page, sample);
        }
    }
    page.into_text()
}

/// The verdict as JSON, indented, with a line end.
pub fn json(verdict: &Verdict) -> String {
    let mut json = serde_json::to_string_pretty(verdict).expect("a verdict has only string keys");
    json.push('\n');
    json
}

fn show(page: &mut Page, sample: &Sample) {
    let status = if sample.status == 0 { "?".to_owned() } else { sample.status.to_string() };
    page.line(
        2,
        &format!(
            "for example {} {} -> {status}, connection {} request {}: {} bytes in {}",
            sample.method,
            sample.path,
            sample.connection_id,
            sample.index,
            thousands(sample.bytes_out),
            counted(sample.writes.into(), "write")
        ),
    );
    for write in &sample.calls {
        page.line(4, &write_line(write));
    }
    let kept = sample.calls.iter().filter(|write| write.result > 0).count() as u64;
    let later = u64::from(sample.writes).saturating_sub(kept);
    if later > 0 {
        page.line(4, &format!("{} not kept", counted(later, "later write")));
    }
    let refused = sample.calls.iter().any(|write| write.result == -EAGAIN);
    if sample.writes > 1 && !refused {
        page.line(4, "no EAGAIN among them: nothing says that the send buffer was full");
    }
}

fn write_line(write: &SampleWrite) -> String {
    let outcome = match write.result {
        moved @ 0.. => counted(moved as u64, "byte"),
        failed if failed == -EAGAIN => "EAGAIN".to_owned(),
        failed => format!("failed, errno {}", failed.unsigned_abs()),
    };
    let buffers = match write.iovecs {
        0 => String::new(),
        iovecs => format!(", {}", counted(iovecs.into(), "iovec")),
    };
    let full = if write.after_eagain { "; EAGAIN before it: the send buffer was full" } else { "" };
    format!("{}: {outcome}{buffers}{full}", write.call)
}
