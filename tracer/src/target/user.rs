//! The person who called sudo: targets run as them, and what is written belongs to them.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Whom to run a target as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAs {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// All group ids.
    pub groups: Vec<u32>,
    /// Login name.
    pub name: String,
    /// Home folder.
    pub home: PathBuf,
}

/// Who called sudo; `None` when this is no sudo, or root called it.
pub fn invoking_user() -> Option<RunAs> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = |variable| std::env::var(variable).ok()?.parse::<u32>().ok();
    let uid = id("SUDO_UID").filter(|uid| *uid != 0)?;
    user(uid, id("SUDO_GID")?)
}

/// Gives a file or folder `tracer` wrote, with all in it, to the invoking user. Does nothing without one.
pub fn give_to_user(path: &Path) -> Result<()> {
    invoking_user().map_or(Ok(()), |user| give(path, user.uid, user.gid))
}

pub(super) fn give(path: &Path, uid: u32, gid: u32) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).with_context(|| {
        format!("cannot give {} to user {uid}; change its owner with chown", path.display())
    })?;
    if path.is_dir() && !path.is_symlink() {
        for entry in path.read_dir().with_context(|| format!("cannot list {}", path.display()))? {
            give(&entry?.path(), uid, gid)?;
        }
    }
    Ok(())
}

/// Looks a user up. Ids without an entry in the user database get no further groups.
fn user(uid: u32, gid: u32) -> Option<RunAs> {
    let mut buffer = vec![0; 16 * 1024];
    // SAFETY: all zeroes is a valid `passwd`: integers and null pointers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the pointers are to live locals, and the length is the buffer's own.
    let result = unsafe { libc::getpwuid_r(uid, &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if result != 0 || found.is_null() {
        return Some(RunAs { uid, gid, groups: vec![gid], name: uid.to_string(), home: PathBuf::from("/") });
    }
    // SAFETY: the call succeeded, so both point to strings in `buffer`, which still lives.
    let (name, home) = unsafe { (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir)) };
    Some(RunAs {
        uid,
        gid,
        groups: groups(name.to_owned(), gid)?,
        name: name.to_string_lossy().into_owned(),
        home: OsString::from_vec(home.to_bytes().to_vec()).into(),
    })
}

fn groups(name: CString, gid: u32) -> Option<Vec<u32>> {
    let mut groups = vec![0; 65_536];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: `name` is a C string, and `count` says how many ids fit in `groups`.
    let result = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    groups.truncate(usize::try_from(count).ok()?);
    (result >= 0).then_some(groups)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn root_is_in_the_user_database() {
        let root = user(0, 0).unwrap();
        assert_eq!((root.name.as_str(), root.groups.contains(&0)), ("root", true));
    }

    #[test]
    fn an_unknown_user_has_one_group() {
        assert_eq!(user(3_999_999_999, 7).unwrap().groups, [7]);
    }

    #[test]
    fn a_folder_is_given_with_all_in_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let gid = if uid.is_root() { 7 } else { gid.as_raw() };
        give(folder.path(), uid.as_raw(), gid).unwrap();
        assert_eq!(folder.path().join("file").metadata().unwrap().gid(), gid);
    }
}
