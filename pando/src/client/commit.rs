// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando commit`: a container image of the files of a cell of `pando serve`.
//!
//! The service may not write to the store of images, so this process does: it reads the cell's changes from the service.

use crate::api;
use crate::completion;
use crate::connection::{Client, wait_for};
use crate::environment;
use crate::failure::Failure;
use crate::observer;
use crate::progress::ProgressLine;
use axum::body::Bytes;
use clap::Args;
use clap_complete::ArgValueCandidates;
use http_body_util::BodyExt;
use jiff::Timestamp;
use pando_manager::report::Progress;
use pando_manager::view::{image_store, prepare_image};
use pando_oci::{Commit, ConfigChange, Digest, ImageName, LoadProgress};
use std::io::{self, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Pieces of an archive that are received ahead.
const PIECES: usize = 16;

/// Options of `pando commit`.
#[derive(Debug, Args)]
pub(crate) struct CommitOptions {
    /// Describe the image: `pando image inspect` prints it
    #[arg(short = 'm', long, value_name = "TEXT")]
    message: Option<String>,

    /// Name the author
    #[arg(short = 'a', long, value_name = "TEXT")]
    author: Option<String>,

    /// Set a part of the image's configuration (repeatable): CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR, as
    /// in a Dockerfile
    #[arg(short = 'c', long = "change", value_name = "INSTRUCTION")]
    changes: Vec<ConfigChange>,

    /// The cell's number or name, as in `pando ps`; it was started from a container image, and runs
    #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::cells))]
    cell: String,

    /// The image's name
    #[arg(value_name = "NAME")]
    name: ImageName,
}

/// Makes an image of a cell, and prints its ID.
///
/// # Errors
/// There is no such cell, it does not run or does not see an image, or the store cannot be written.
pub(crate) fn commit(options: &CommitOptions) -> Result<u8, Failure> {
    let CommitOptions { message, author, changes, cell, name } = options;
    let id = make_image(Client::find_or_fail()?, cell, message.as_deref(), author.as_deref(), changes.clone(), name)?;
    writeln!(io::stdout(), "{id}")?;
    Ok(0)
}

/// Makes an image of a cell, and returns its ID.
///
/// # Errors
/// The same.
pub(crate) fn make_image(
    client: Client,
    cell: &str,
    message: Option<&str>,
    author: Option<&str>,
    changes: Vec<ConfigChange>,
    name: &ImageName,
) -> Result<Digest, Failure> {
    let found: api::Cell = wait_for(client.get(&format!("/v1/cells/{cell}")))?;
    let refused = |reason| Failure::NotCommitted { cell: cell.to_owned(), reason };
    if found.outcome.is_some() {
        return Err(refused("it has ended, and its files with it: commit a cell while it runs"));
    }
    let base = found.image_id.ok_or_else(|| refused("it sees the host's files or a root of its own: start it with `--image NAME`"))?;
    let store = image_store(&environment::caller())?;
    let line = ProgressLine::some_bytes("reading changes");
    let mut progress = |progress: LoadProgress| line.set(progress.bytes);
    let made = Commit { created: Timestamp::now().to_string(), message, author, changes: &changes };
    let archive = Archive::request(client, format!("/v1/cells/{}/changes", found.id))?;
    let image = store.commit(&format!("cell {cell}"), &base, archive, name, &made, &mut progress)?;
    line.end();
    prepare_image(&store, &image.id.to_string(), &observer::reporter())?;
    Ok(image.id)
}

/// The archive of a cell's changes, which a thread receives.
struct Archive {
    pieces: Receiver<io::Result<Bytes>>,
    rest: Bytes,
}

impl Archive {
    /// Requests it.
    ///
    /// # Errors
    /// The service refuses.
    fn request(client: Client, path: String) -> Result<Archive, Failure> {
        let (accepted, answer) = sync_channel(1);
        let (sender, pieces) = sync_channel(PIECES);
        let receive = move || {
            let received = wait_for(receive(&client, &path, &accepted, &sender));
            if let Err(error) = received {
                // Exactly one of them waits.
                let text = error.to_string();
                let _ = accepted.try_send(Err(error));
                let _ = sender.send(Err(io::Error::other(text)));
            }
        };
        std::thread::Builder::new().name("archive".into()).spawn(receive).map_err(Failure::Thread)?;
        answer.recv().map_err(|_| Failure::ConnectionLost(io::ErrorKind::UnexpectedEof.into()))??;
        Ok(Archive { pieces, rest: Bytes::new() })
    }
}

/// Receives the archive piece by piece.
async fn receive(
    client: &Client,
    path: &str,
    accepted: &SyncSender<Result<(), Failure>>,
    sender: &SyncSender<io::Result<Bytes>>,
) -> Result<(), Failure> {
    let mut body = client.open(path).await?.into_body();
    let _ = accepted.send(Ok(()));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::ConnectionLost(io::Error::other(error)))?;
        // The command has failed if nobody reads.
        if let Ok(bytes) = frame.into_data()
            && sender.send(Ok(bytes)).is_err()
        {
            break;
        }
    }
    Ok(())
}

impl Read for Archive {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.pieces.recv() {
                Ok(piece) => self.rest = piece?,
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.rest.len());
        buffer[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}
