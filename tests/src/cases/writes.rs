//! How responses leave: calls, buffers, bytes.

use anyhow::Result;
use tracer::recording::{WRITES_KEPT, WriteCall, syscall_name};

use super::{
    Case, Checks,
    stage::{One, Stage},
};

pub(super) const CASES: &[Case] = &[
    Case::new("write", |checks| {
        leaving(checks, &["out=write:0", "out=write:1", "out=write:1000&out=write:7"])
    }),
    Case::new("writev", |checks| {
        leaving(
            checks,
            &["out=writev:64:2", "out=writev:512:13", "out=writev:9000:257", "out=writev:9000:1024"],
        )
    }),
    Case::new("send", |checks| leaving(checks, &["out=send:100", "out=send:100&out=send:200&out=send:300"])),
    Case::new("sendmsg", |checks| {
        leaving(checks, &["out=sendmsg:100", "out=sendmsg:100:5", "out=sendmsg:9000:1024"])
    }),
    Case::new("sendfile", |checks| {
        leaving(checks, &["out=write:0&out=sendfile:9000", "out=writev:10:2&out=sendfile:100000"])
    }),
    Case::new("splice", |checks| {
        leaving(checks, &["out=write:0&out=splice:9000", "out=send:5&out=splice:60000"])
    }),
    Case::new("without-a-head", |checks| leaving(checks, &["out=sendfile:3000", "out=splice:3000"])),
    Case::new("many-writes", |checks| leaving(checks, &[&["out=write:10"; 40].join("&")])),
    Case::new("chunked", |checks| {
        leaving(checks, &["chunked&out=write:10", "chunked&out=writev:100:9&out=write:20&out=write:0"])
    }),
    Case::new("large", |checks| {
        leaving(checks, &["out=write:65536", "out=write:1048576", "out=writev:10485760:3"])
    }),
];

/// Times each response is asked for.
const TIMES: u64 = 10;

fn leaving(checks: &mut Checks, scripts: &[&str]) -> Result<()> {
    let mut stage = Stage::traced(&["--mode", "threads"])?;
    let mut client = stage.client()?;
    let requests = TIMES * scripts.len() as u64;
    for id in 0..requests {
        stage.get(&mut client, id, scripts[id as usize % scripts.len()])?;
    }
    let seen = stage.finish(requests as usize, requests)?;
    let ones = seen.each(0..requests);
    checks.equal("requests", requests as usize, ones.len());
    every_write(checks, &ones);
    checks.equal("went wrong", "nothing".to_owned(), seen.complaints());
    Ok(())
}

/// Calls, buffers and bytes of each response, and its first calls in full.
pub(super) fn every_write(checks: &mut Checks, ones: &[One<'_>]) {
    let moved = |one: &One<'_>| one.writes().filter(|write| write.result > 0).count() as u32;
    let bytes = |one: &One<'_>| one.writes().map(|write| write.result.max(0) as u64).sum::<u64>();
    checks.each("writes", ones.iter().map(|one| (moved(one), one.request.writes)));
    checks.each("bytes out", ones.iter().map(|one| (bytes(one), one.request.bytes_out)));
    checks.each("calls", ones.iter().map(|one| (calls(one), said_calls(one.request.kept_writes()))));
}

/// Name, buffers and result of the first calls.
fn calls(one: &One<'_>) -> String {
    let call =
        |write: &crate::metronome::log::Stamp| format!("{}:{}={}", write.what, write.buffers, write.result);
    one.writes().take(WRITES_KEPT).map(call).collect::<Vec<_>>().join(" ")
}

fn said_calls(writes: &[WriteCall]) -> String {
    let call =
        |write: &WriteCall| format!("{}:{}={}", syscall_name(write.call.into()), write.iovecs, write.result);
    writes.iter().map(call).collect::<Vec<_>>().join(" ")
}
