//! Starting a process that waits at a gate before it becomes the server, and a guardian that outlives `tracer`.
//!
//! `std::process` cannot hold a child before its exec, so this forks by hand. After the fork a child of a threaded
//! process may only make async-signal-safe calls: all memory is prepared before, and nothing here allocates after.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, anyhow};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, setpgid, waitpid};
use rustix::thread::CpuSet;

use super::user::RunAs;

/// All that a child needs, laid out before the fork.
pub struct Plan {
    /// Full path of the program.
    pub program: CString,
    /// Arguments, the program's name first.
    pub arguments: Vec<CString>,
    /// `KEY=VALUE`, all of them.
    pub environment: Vec<CString>,
    /// Folder to start in.
    pub cwd: CString,
    /// CPU it is pinned to.
    pub core: Option<usize>,
    /// User it becomes.
    pub run_as: Option<RunAs>,
    /// Where stdout and stderr go.
    pub log: File,
}

/// What a child was doing when it failed, in the order in which it does them.
const STEPS: [&str; 6] = [
    "begin a process group",
    "pin itself to its CPU",
    "redirect its input and output",
    "become the invoking user",
    "enter its folder",
    "execute the program",
];

/// The gate before the exec.
pub struct Gate {
    open: File,
    failure: File,
}

impl Gate {
    /// Lets the child execute its program; returns when it has, or says why it could not.
    pub fn open(mut self) -> Result<()> {
        // A child that failed before the gate has closed it; the failure pipe says why.
        let _ = self.open.write_all(b"!");
        let mut failure = Vec::new();
        self.failure.read_to_end(&mut failure).context("cannot hear from the process just started")?;
        let Some((step, errno)) = failure.split_first() else { return Ok(()) };
        let errno = i32::from_ne_bytes(errno.try_into().unwrap_or_default());
        Err(anyhow!("it could not {}: {}", STEPS[usize::from(*step)], io::Error::from_raw_os_error(errno)))
    }
}

/// Forks a child that stands ready before its exec, in a process group of its own.
pub fn fork_paused(plan: &Plan) -> Result<(Pid, Gate)> {
    let failed = "cannot start a process";
    let null = File::open("/dev/null").context(failed)?;
    let (gate_read, gate_write) = pipe_with(PipeFlags::CLOEXEC).context(failed)?;
    let (failure_read, failure_write) = pipe_with(PipeFlags::CLOEXEC).context(failed)?;
    let pointers = |strings: &[CString]| {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect::<Vec<*const libc::c_char>>()
    };
    let child = Child {
        arguments: pointers(&plan.arguments),
        environment: pointers(&plan.environment),
        cpus: plan.core.map(super::cores::only),
        null: null.as_raw_fd(),
        gate_read: gate_read.as_raw_fd(),
        gate_write: gate_write.as_raw_fd(),
        failure: failure_write.as_raw_fd(),
        plan,
    };
    // SAFETY: the child only runs `Child::run`, which keeps to async-signal-safe calls and never returns.
    let pid = match unsafe { libc::fork() } {
        // SAFETY: this is the freshly forked child.
        0 => unsafe { child.run() },
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error).context(failed)?,
    };
    // Both sides do it, for either may be first; the loser's error means nothing.
    let _ = setpgid(Some(pid), Some(pid));
    Ok((pid, Gate { open: gate_write.into(), failure: failure_read.into() }))
}

struct Child<'p> {
    plan: &'p Plan,
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    cpus: Option<CpuSet>,
    null: RawFd,
    gate_read: RawFd,
    gate_write: RawFd,
    failure: RawFd,
}

impl Child<'_> {
    /// Never returns: it becomes the program, or reports the step that failed and exits.
    ///
    /// # Safety
    /// To be called in a freshly forked child only.
    unsafe fn run(&self) -> ! {
        // SAFETY: plain system calls on descriptors and memory that the fork copied.
        unsafe {
            let failed_step = self.prepare();
            if failed_step.is_none() {
                libc::close(self.gate_write);
                let mut byte = 0u8;
                while libc::read(self.gate_read, (&raw mut byte).cast(), 1) < 0 && errno() == libc::EINTR {}
                if byte == 0 {
                    libc::_exit(127); // `tracer` is gone.
                }
                libc::execve(self.plan.program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr());
            }
            let mut report = [failed_step.unwrap_or(STEPS.len() as u8 - 1); 5];
            report[1..].copy_from_slice(&errno().to_ne_bytes());
            libc::write(self.failure, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }

    /// Everything before the gate; gives the number of the step that failed.
    unsafe fn prepare(&self) -> Option<u8> {
        // SAFETY: as in `run`.
        unsafe {
            // The runtime ignores SIGPIPE, and an ignored signal stays so across exec.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());

            if libc::setpgid(0, 0) != 0 {
                return Some(0);
            }
            if self
                .cpus
                .is_some_and(|cpus| rustix::thread::sched_setaffinity(None, &cpus).is_err_and(set_errno))
            {
                return Some(1);
            }
            let log = self.plan.log.as_raw_fd();
            if libc::dup2(self.null, 0) < 0 || libc::dup2(log, 1) < 0 || libc::dup2(log, 2) < 0 {
                return Some(2);
            }
            if let Some(user) = &self.plan.run_as
                && (libc::setgroups(user.groups.len(), user.groups.as_ptr()) != 0
                    || libc::setgid(user.gid) != 0
                    || libc::setuid(user.uid) != 0)
            {
                return Some(3);
            }
            // As that user: what they may not enter, their server may not either.
            (libc::chdir(self.plan.cwd.as_ptr()) != 0).then_some(4)
        }
    }
}

fn errno() -> i32 {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// rustix returns the error; the report takes it from `errno`.
fn set_errno(error: rustix::io::Errno) -> bool {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = error.raw_os_error() };
    true
}

/// A process that kills a process group and removes its folder when `tracer` ends without having dismissed it: by
/// kill -9, say.
///
/// PR_SET_PDEATHSIG would not do: it follows the thread that forked, is cleared by a change of user, and leaves
/// grandchildren (nginx's worker) running.
pub struct Guardian {
    pid: Pid,
    line: Option<OwnedFd>,
}

impl Guardian {
    /// Begins to guard against this group and its temporary folder outliving `tracer`.
    pub fn of(group: Pid, folder: &Path) -> Result<Self> {
        let failed = "cannot start the process that guards against leaving servers behind";
        let folder = CString::new(folder.as_os_str().as_bytes()).context(failed)?;
        let remove = [c"rm".as_ptr(), c"-rf".as_ptr(), c"--".as_ptr(), folder.as_ptr(), ptr::null()];
        let (line_read, line_write) = pipe_with(PipeFlags::CLOEXEC).context(failed)?;
        // SAFETY: the child keeps to async-signal-safe calls and never returns.
        let pid = match unsafe { libc::fork() } {
            // SAFETY: this is the freshly forked child.
            0 => unsafe { guard(line_read.as_raw_fd(), group.as_raw_nonzero().get(), &remove) },
            pid => {
                Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error).context(failed)?
            }
        };
        Ok(Self { pid, line: Some(line_write) })
    }
}

impl Guardian {
    /// What it sees when `tracer` is killed.
    #[cfg(test)]
    pub fn hang_up(mut self) {
        self.line = None;
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

impl Drop for Guardian {
    /// Dismisses it.
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let _ = rustix::io::write(&line, b"!");
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Holds nothing of `tracer` but the line: a descriptor kept here would keep its probes attached and pipes open.
///
/// # Safety
/// To be called in a freshly forked child only.
unsafe fn guard(line: RawFd, group: libc::pid_t, remove: &[*const libc::c_char]) -> ! {
    // SAFETY: plain system calls on descriptors and locals.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        libc::setpgid(0, 0);
        // A name of its own: `killall tracer` must not take it too.
        libc::prctl(libc::PR_SET_NAME, c"server-guardian".as_ptr());
        libc::dup2(line, 0);
        libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && errno() == libc::EINTR {}
        if byte == 0 {
            libc::kill(-group, libc::SIGKILL);
            libc::execve(c"/bin/rm".as_ptr(), remove.as_ptr(), [ptr::null()].as_ptr());
        }
        libc::_exit(0)
    }
}

/// Sends a signal to a whole process group. One that is gone is no error.
pub fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}
