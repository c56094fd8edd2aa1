//! Whether what a server needs is installed.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::Server;

impl Server {
    /// Fails, naming the place and the fix, when its folder, its program or something it requires is missing.
    pub fn check_installed(&self) -> Result<()> {
        if !self.cwd.is_dir() {
            bail!(self.missing(&format!("its folder {} does not exist", self.cwd.display())));
        }
        self.program()?;
        for required in &self.requires {
            let exists = self.folder.join(required).exists();
            if !exists && (required.components().count() > 1 || self.in_path(required).is_none()) {
                bail!(self.missing(&format!("{} is missing", required.display())));
            }
        }
        Ok(())
    }

    /// Full path of the program: as a shell in `cwd` would find it.
    pub fn program(&self) -> Result<PathBuf> {
        let program = Path::new(&self.command[0]);
        let found = if program.components().count() > 1 {
            Some(self.cwd.join(program)).filter(|path| is_executable(path))
        } else {
            self.in_path(program)
        };
        found.ok_or_else(|| {
            let place =
                if program.components().count() > 1 { "is not an executable file" } else { "is not in PATH" };
            anyhow!(self.missing(&format!("its program `{}` {place}", self.command[0])))
        })
    }

    /// The program of that name in the `PATH` the server will have.
    fn in_path(&self, program: &Path) -> Option<PathBuf> {
        let own = self.env.iter().find(|(key, _)| key == "PATH").map(|(_, value)| OsString::from(value));
        let path = own.or_else(|| std::env::var_os("PATH"))?;
        std::env::split_paths(&path)
            .map(|folder| self.cwd.join(folder).join(program))
            .find(|path| is_executable(path))
    }

    /// The sentence about something missing, with the fix.
    fn missing(&self, what: &str) -> String {
        let place =
            if self.declared_at.is_empty() { String::new() } else { format!("{}: ", self.declared_at) };
        let fix = match &self.setup {
            Some(setup) => format!("set it up first: {setup}"),
            None => "install it, or correct the scenario".to_owned(),
        };
        format!("{place}the server `{}` cannot start: {what}; {fix}", self.name)
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
