// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of files in a cell, as lines of JSON. The cell's records are not trusted.

use super::jobs::{KillOnDrop, check_transfer, next_output, transfer_command};
use super::problem::Problem;
use super::streams::{ClientDisconnected, ResponseBody};
use crate::api::{FileEvent, FileEventKind, TextOrBytes};
use axum::body::Body;
use pando_launch::{Command, Task};
use pando_manager::cells::{ManagedCell, StartedJob};
use rustix::fs::inotify::ReadFlags;

/// Bytes of a record before its path.
const HEAD: usize = 12;
/// Bytes of the longest path.
const PATH_MAX: usize = 8192;
/// The argument for directories below the path.
const RECURSIVE: &[u8] = b"recursive";

/// The names of the events of inotify.
const KINDS: [(ReadFlags, FileEventKind); 8] = [
    (ReadFlags::MODIFY, FileEventKind::Write),
    (ReadFlags::ATTRIB, FileEventKind::Attributes),
    (ReadFlags::MOVED_FROM, FileEventKind::MovedFrom),
    (ReadFlags::MOVED_TO, FileEventKind::MovedTo),
    (ReadFlags::CREATE, FileEventKind::Create),
    (ReadFlags::DELETE.union(ReadFlags::DELETE_SELF), FileEventKind::Remove),
    (ReadFlags::MOVE_SELF, FileEventKind::MovedFrom),
    (ReadFlags::QUEUE_OVERFLOW, FileEventKind::Overflow),
];

/// The bytes of incomplete records.
#[derive(Default)]
struct EventParser(Vec<u8>);

impl EventParser {
    /// The next complete record. `None`: there is none yet.
    ///
    /// # Errors
    /// The bytes are no record.
    fn next(&mut self) -> Result<Option<FileEvent>, ()> {
        let Some(head) = self.0.first_chunk::<HEAD>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (mask, cookie, length) = (ReadFlags::from_bits_retain(word(0)), word(4), word(8) as usize);
        if length > PATH_MAX {
            return Err(());
        }
        let Some(path) = self.0.get(HEAD..HEAD + length) else { return Ok(None) };
        let path = TextOrBytes::of(path.to_vec());
        self.0.drain(..HEAD + length);
        let event = KINDS.iter().find(|(events, _)| mask.intersects(*events)).map_or(FileEventKind::Started, |(_, kind)| *kind);
        Ok(Some(FileEvent { event, path, is_directory: mask.contains(ReadFlags::ISDIR), cookie }))
    }
}

/// Streams what happens to a file or directory of a cell.
///
/// # Errors
/// It does not exist, or the cell has ended.
pub(super) async fn watch(cell: &ManagedCell, path: &str, is_recursive: bool) -> Result<Body, Problem> {
    let arguments = is_recursive.then(|| RECURSIVE.to_vec()).into_iter().collect();
    let StartedJob { job, mut notified } = cell.start_job(&Command { arguments, ..transfer_command(Task::Watch, path)? })?;
    let guard = KillOnDrop(job);
    let (mut records, mut errors) = (EventParser::default(), Vec::new());
    // The first record reports that the watch has begun.
    let first = loop {
        let Some(bytes) = next_output(&guard.0, &mut notified, &mut errors).await else {
            let ended = check_transfer(&guard.0, path).err().unwrap_or_else(|| Problem::file(path));
            return Err(ended.with_output(&String::from_utf8_lossy(&errors)));
        };
        records.0.extend(bytes);
        match records.next() {
            Ok(Some(event)) => break event,
            Ok(None) => {}
            Err(()) => return Err(Problem::file(path)),
        }
    };
    let (mut outgoing, answer) = ResponseBody::new();
    tokio::spawn(async move {
        let sent: Result<(), ClientDisconnected> = async {
            outgoing.line(&first).await?;
            loop {
                match records.next() {
                    Ok(Some(event)) => outgoing.line(&event).await?,
                    Err(()) => {
                        outgoing.abort(std::io::Error::other("the cell's events are damaged"));
                        return Ok(());
                    }
                    Ok(None) => match outgoing.unless_disconnected(next_output(&guard.0, &mut notified, &mut errors)).await? {
                        Some(bytes) => records.0.extend(bytes),
                        None => return Ok(()),
                    },
                }
            }
        }
        .await;
        // A disconnected client needs nothing.
        let _ = sent;
    });
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::{EventParser, FileEventKind};

    #[test]
    fn records_are_read_from_any_pieces_and_damaged_ones_refused() {
        let mut records = EventParser::default();
        let bytes: Vec<u8> = [0x100_u32 | 0x4000_0000, 7, 2].iter().flat_map(|word| word.to_le_bytes()).chain(*b"/a").collect();
        for byte in &bytes[..13] {
            records.0.push(*byte);
            assert!(matches!(records.next(), Ok(None)));
        }
        records.0.push(bytes[13]);
        let event = records.next().expect("it is one").expect("it is complete");
        assert!(
            event.event == FileEventKind::Create && event.is_directory && event.cookie == 7 && event.path.bytes() == Some(b"/a".to_vec())
        );
        records.0.extend([0xff; 12]);
        assert!(records.next().is_err());
    }
}
