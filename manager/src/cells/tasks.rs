// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocking work, and locks.

use super::ManagerError;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs blocking work on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ManagerError> + Send + 'static,
) -> Result<T, ManagerError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ManagerError::internal(error)))
}

/// Locks a mutex. Poisoning is ignored: the data is consistent at every step, even after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
