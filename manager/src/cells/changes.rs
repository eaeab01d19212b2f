// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifications of changes, for any number of tasks that wait for a condition. One takes 32 bytes; a cell that sleeps keeps several.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::sync::Notify;

/// Notifies the tasks that wait for a change of something.
#[derive(Debug, Default)]
pub(super) struct Changes(Notify);

impl Changes {
    /// Lets the tasks that wait look again.
    pub(super) fn notify(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `look` returns a value. It is called at first, and after each change. A change during the call counts.
    pub(super) async fn wait_for<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut notified = pin!(self.0.notified());
            notified.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            notified.await;
        }
    }
}

impl Changes {
    /// The same for changes of several things. It allocates.
    pub(super) async fn wait_for_any<T, const N: usize>(all: [&Changes; N], mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut notified = all.map(|changes| Box::pin(changes.0.notified()));
            for one in &mut notified {
                one.as_mut().enable();
            }
            if let Some(found) = look() {
                return found;
            }
            poll_fn(|context| match notified.iter_mut().any(|one| one.as_mut().poll(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Changes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn no_change_is_missed_also_during_a_look() {
        let (changes, count) = (Arc::new(Changes::default()), AtomicU32::new(0));
        // Each look changes it, so that the next one follows.
        let look = || {
            let looks = count.fetch_add(1, Ordering::Relaxed);
            changes.notify();
            (looks == 10).then_some(looks)
        };
        assert_eq!(changes.wait_for(look).await, 10);
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (changes, mut is_first) = (Arc::clone(&changes), true);
                tokio::spawn(async move {
                    let other = Changes::default();
                    Changes::wait_for_any([&other, &changes], || (!std::mem::take(&mut is_first)).then_some(())).await;
                })
            })
            .collect();
        tokio::task::yield_now().await;
        changes.notify();
        for task in waiting {
            task.await.expect("it ends");
        }
    }
}
