//! Exclusive file locks, which are released when the process ends.

use std::fs::{File, TryLockError};
use std::io;

/// Outcome of [`try_lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The lock was free; this process holds it until it closes the file.
    Taken,
    /// Another process holds the lock, or this process holds it through another file handle.
    Busy,
    /// The file system does not support locks, as is the case for some network file systems;
    /// callers continue without a lock.
    Unsupported,
}

/// Takes the exclusive lock of an open file if it is free.
///
/// # Errors
/// Fails with the operating system's error, unless locks are not supported.
pub fn try_lock(file: &File) -> io::Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Taken),
        Err(TryLockError::WouldBlock) => Ok(Lock::Busy),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
            Ok(Lock::Unsupported)
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_again_when_its_file_is_closed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("lock");
        let open = || File::options().create(true).append(true).open(&path);
        let (first, second) = (open()?, open()?);
        assert_eq!((try_lock(&first)?, try_lock(&second)?), (Lock::Taken, Lock::Busy));
        drop(first);
        assert_eq!(try_lock(&second)?, Lock::Taken);
        Ok(())
    }
}
