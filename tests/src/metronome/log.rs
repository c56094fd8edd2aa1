//! What the metronome did, one line each, appended by all of its threads and processes to one file.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result};
use rustix::thread::gettid;

use super::clock::{Moment, Span};

/// One thing done, from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A step's name, or the name of the system call that was made on the connection.
    pub what: Cow<'static, str>,
    /// Before.
    pub begin: Moment,
    /// After.
    pub end: Moment,
    /// By which thread.
    pub thread_id: u32,
    /// Of which process.
    pub process_id: u32,
    /// What the call returned: bytes, or a negative errno. Zero for what is no call on the connection.
    pub result: i64,
    /// Buffers given to the call.
    pub buffers: u32,
}

impl Stamp {
    /// What the thread did meanwhile.
    pub fn span(&self) -> Span {
        self.begin.until(&self.end)
    }

    /// A read of the connection.
    pub fn is_read(&self) -> bool {
        self.what == "read"
    }

    /// A write to the connection.
    pub fn is_write(&self) -> bool {
        matches!(&*self.what, "write" | "writev" | "sendto" | "sendmsg" | "sendfile" | "splice")
    }
}

/// Stamps of one request, in order, kept until the response is out.
#[derive(Debug, Default)]
pub struct Stamps(Vec<Stamp>);

impl Stamps {
    /// Does something and stamps it. `result` and `buffers` of the call it made, if it made one.
    pub fn call<T>(
        &mut self,
        what: &'static str,
        buffers: usize,
        work: impl FnOnce() -> rustix::io::Result<T>,
        result: impl FnOnce(&T) -> usize,
    ) -> rustix::io::Result<T> {
        let begin = Moment::before();
        let done = work();
        let end = Moment::after();
        let returned = match &done {
            Ok(value) => result(value) as i64,
            Err(error) => -i64::from(error.raw_os_error()),
        };
        self.push(what, begin, end, returned, buffers);
        done
    }

    /// Does something that is no call on the connection, and stamps it.
    pub fn work<T>(&mut self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let begin = Moment::before();
        let done = work();
        let end = Moment::after();
        self.push(what, begin, end, 0, 0);
        done
    }

    /// Adds what was stamped otherwise.
    pub fn push(&mut self, what: &'static str, begin: Moment, end: Moment, result: i64, buffers: usize) {
        self.0.push(Stamp {
            what: what.into(),
            begin,
            end,
            thread_id: gettid().as_raw_nonzero().get() as u32,
            process_id: std::process::id(),
            result,
            buffers: buffers as u32,
        });
    }
}

/// The log, shared by every thread and inherited by every process.
#[derive(Clone, Debug)]
pub struct Log(Arc<File>);

impl Log {
    /// Appends to a file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Arc::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    /// Writes a request's stamps down and forgets them. One write: lines of two requests never mix. An empty line ends
    /// them, for a reader may see a write that crosses a page by halves.
    pub fn write(&self, id: u64, stamps: &mut Stamps) -> std::io::Result<()> {
        let mut text = String::new();
        for stamp in stamps.0.drain(..) {
            let (begin, end) = (stamp.begin, stamp.end);
            let _ = writeln!(
                text,
                "{id} {} {} {} {} {} {} {} {} {} {} {}",
                stamp.what,
                begin.at_ns,
                begin.cpu_ns,
                begin.run_queue_ns,
                end.at_ns,
                end.cpu_ns,
                end.run_queue_ns,
                stamp.thread_id,
                stamp.process_id,
                stamp.result,
                stamp.buffers
            );
        }
        text.push('\n');
        (&*self.0).write_all(text.as_bytes())
    }
}

/// Reads a log: the stamps of each request.
pub fn read(path: &Path) -> Result<BTreeMap<u64, Vec<Stamp>>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut requests = BTreeMap::<u64, Vec<Stamp>>::new();
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    for line in whole.lines().filter(|line| !line.is_empty()) {
        let (id, stamp) = parse(line).with_context(|| format!("no line of a log: {line:?}"))?;
        requests.entry(id).or_default().push(stamp);
    }
    Ok(requests)
}

fn parse(line: &str) -> Option<(u64, Stamp)> {
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let what = words.next()?.to_owned().into();
    let numbers: Vec<i64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[at, cpu, queue, end_at, end_cpu, end_queue, tid, pid, result, buffers] = numbers.as_slice() else {
        return None;
    };
    let moment = |at: i64, cpu: i64, queue: i64| Moment {
        at_ns: at as u64,
        cpu_ns: cpu as u64,
        run_queue_ns: queue as u64,
    };
    let stamp = Stamp {
        what,
        begin: moment(at, cpu, queue),
        end: moment(end_at, end_cpu, end_queue),
        thread_id: tid as u32,
        process_id: pid as u32,
        result,
        buffers: buffers as u32,
    };
    Some((id, stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Log::open(&path).unwrap();
        let mut stamps = Stamps::default();
        stamps.work("spin", || ());
        let _ = stamps.call("writev", 3, || Err::<usize, _>(rustix::io::Errno::AGAIN), |_| 0);
        let expected = stamps.0.clone();
        log.write(7, &mut stamps).unwrap();
        assert_eq!(read(&path).unwrap(), [(7, expected)].into());
    }
}
