//! Files that have no name until they are whole, so that a killed process leaves nothing of them behind.

use std::fs::{File, Permissions};
use std::io::{self, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::TempDir;

/// Makes a file without a name on the file system of `folder`; it goes when it is closed.
pub fn create(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    // With the permissions of a file made the usual way: the umask still applies.
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o666);
    match options.open(folder) {
        // Not every file system can; there it is unlinked as soon as it is made.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => tempfile::tempfile_in(folder),
        result => result,
    }
}

/// Gives the file its name, at which nothing may be yet.
pub fn name(mut file: File, path: &Path) -> io::Result<()> {
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, &descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        // An unlinked file gets no name again (or there is no /proc): its content gets one.
        Err(rustix::io::Errno::NOENT) => {
            file.rewind()?;
            io::copy(&mut file, &mut File::create_new(path)?).map(|_bytes| ())
        }
        result => Ok(result?),
    }
}

/// Makes a hidden folder beside `path`, to be filled and moved there.
pub fn folder_beside(path: &Path) -> io::Result<TempDir> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    tempfile::Builder::new()
        .prefix(&format!(".{}.", name.to_string_lossy()))
        .suffix(".partial")
        // As `mkdir` would make it: the umask still applies.
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(super::disk::folder_of(path))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn it_is_seen_once_it_has_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = create(folder.path()).unwrap();
        file.write_all(b"whole").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let (path, usual) = (folder.path().join("it"), folder.path().join("usual"));
        name(file, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        File::create(&usual).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&usual));
    }

    #[test]
    fn one_that_was_unlinked_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        let mut file = tempfile::NamedTempFile::new_in(folder.path()).unwrap().into_file();
        file.write_all(b"whole").unwrap();
        name(file, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        fs::write(&path, "precious").unwrap();
        assert!(name(create(folder.path()).unwrap(), &path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
