//! The versions of the runtimes, as they tell them themselves.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{scenario::Server, target::user::invoking_user};

/// Runtimes known to answer `--version` and do nothing else.
const ASKED: [&str; 3] = ["node", "bun", "bun.exe"];

/// Name and version of each runtime of the servers; one that cannot be asked is not there.
pub(super) fn versions(servers: &[Server]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for server in servers.iter().filter(|server| !server.runtime.is_empty()) {
        if found.iter().any(|(name, _)| *name == server.runtime) {
            continue;
        }
        let program = server.program().ok().filter(|path| is_asked(path));
        if let Some(version) = program.and_then(|path| version(&path)) {
            found.push((server.runtime.clone(), version));
        }
    }
    found
}

fn is_asked(program: &Path) -> bool {
    program.file_name().is_some_and(|name| ASKED.iter().any(|asked| name == *asked))
}

fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = invoking_user() {
        use std::os::unix::process::CommandExt;
        command.uid(user.uid).gid(user.gid);
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
