// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell in which a recipe's steps run. It ends with its connection.

use super::copies::{CopiedContent, CopiedFile};
use super::report::BuildReport;
use crate::api::{self, JobPiece, NewJob, Piece, Source};
use crate::connection::{Client, JsonLines, lines};
use crate::failure::Failure;
use axum::body::Bytes;
use http_body_util::channel::Sender;
use hyper::{Method, header};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

/// Root, under whom the steps run.
const ROOT: &str = "0:0";
/// Arguments of one command; an even number.
const PATHS: usize = 200;
/// Creates the directories that do not exist, from pairs of permissions and paths.
const MAKE_DIRECTORIES: &str = r#"while [ $# -gt 0 ]; do [ -d "$2" ] || mkdir -p -m "$1" -- "$2" || exit; shift 2; done"#;
/// The permissions of directories that lead to copied files.
const DIRECTORY_MODE: u32 = 0o755;
/// The bytes of notes of one request.
const NOTES_MAX: usize = 16 << 20;

/// A cell.
pub(super) struct BuildCell<'a> {
    client: &'a Client,
    /// Its path in the service.
    path: String,
    input: Sender<Bytes, Infallible>,
    output: JsonLines,
    requests: u32,
}

impl BuildCell<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// The service refuses.
    pub(super) async fn start<'a>(client: &'a Client, request: &api::NewCell) -> Result<BuildCell<'a>, Failure> {
        let (input, answer) = client.post_with_channel("/v1/attach", request).await?;
        let path = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()).unwrap_or_default().to_owned();
        Ok(BuildCell { client, path, input, output: JsonLines::of(answer), requests: 0 })
    }

    /// Its number.
    pub(super) fn number(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Executes a program to its end, and reports its output. Returns the reason if it has failed.
    ///
    /// # Errors
    /// The service refuses, or the connection breaks off.
    pub(super) async fn execute(
        &self,
        words: Vec<String>,
        environment: BTreeMap<String, String>,
        report: &BuildReport,
    ) -> Result<Option<String>, Failure> {
        let job = NewJob { arguments: words, environment, directory: Some("/".into()), user: Some(ROOT.into()), ..NewJob::default() };
        let answer = self.client.post_without_input(&format!("{}/exec", self.path), &job).await?;
        let mut end = None;
        lines(answer, async |piece| {
            match piece {
                JobPiece::Output { data, .. } => report.output(&data.bytes().unwrap_or_default())?,
                JobPiece::Ended { exit_code, message } => end = Some((exit_code, message)),
            }
            Ok(())
        })
        .await?;
        match end {
            Some((0, _)) => Ok(None),
            Some((_, message)) => Ok(Some(message)),
            None => Err(Failure::ConnectionLost(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Copies files of the host, with their permissions. Directories that exist in the cell keep theirs. Returns the reason if that fails.
    ///
    /// # Errors
    /// A file cannot be read, or the service refuses.
    pub(super) async fn copy(&self, files: &[CopiedFile], report: &BuildReport) -> Result<Option<String>, Failure> {
        let parent = |path: &str| Path::new(path).parent().map(|parent| parent.display().to_string());
        // Parents come first.
        let parents = files.iter().filter_map(|file| parent(&file.path));
        let mut directories: BTreeMap<String, u32> = parents.map(|path| (path, DIRECTORY_MODE)).collect();
        let mut modes: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let mut links = Vec::new();
        for file in files {
            match &file.content {
                CopiedContent::Link(target) => {
                    links.push((vec!["ln".into(), "-sfn".into(), "--".into(), target.clone()], vec![file.path.clone()]));
                }
                CopiedContent::Directory(mode) => drop(directories.insert(file.path.clone(), *mode)),
                CopiedContent::File(mode) => modes.entry(*mode).or_default().push(file.path.clone()),
            }
        }
        let words = ["/bin/sh", "-c", MAKE_DIRECTORIES, "mkdir"].map(str::to_owned).to_vec();
        let directories = directories.into_iter().flat_map(|(path, mode)| [format!("{mode:o}"), path]).collect();
        if let Some(failed) = self.execute_each(&[(words, directories)], report).await? {
            return Ok(Some(failed));
        }
        for file in files.iter().filter(|file| matches!(file.content, CopiedContent::File(_))) {
            let content = std::fs::read(&file.local).map_err(|source| Failure::File { path: file.local.clone(), source })?;
            let path = percent_encoding::utf8_percent_encode(&file.path, percent_encoding::NON_ALPHANUMERIC);
            self.client.put(&format!("{}/file?path={path}", self.path), content.into()).await?;
        }
        let modes: Vec<_> =
            modes.into_iter().map(|(mode, paths)| (vec!["chmod".into(), format!("{mode:o}"), "--".into()], paths)).collect();
        match self.execute_each(&links, report).await? {
            None => self.execute_each(&modes, report).await,
            failed => Ok(failed),
        }
    }

    /// Executes commands, each with some of its paths at a time.
    async fn execute_each(&self, commands: &[(Vec<String>, Vec<String>)], report: &BuildReport) -> Result<Option<String>, Failure> {
        for (words, paths) in commands {
            for some in paths.chunks(PATHS) {
                let failed = self.execute([words.as_slice(), some].concat(), BTreeMap::new(), report).await?;
                if let Some(message) = failed {
                    return Ok(Some(format!("cannot copy files into the cell: {}: {message}", words[0])));
                }
            }
        }
        Ok(None)
    }

    /// Sends a request to the session in the cell, and waits for its result. Returns the error of the code if it has failed.
    ///
    /// # Errors
    /// The cell ends, or the connection breaks off.
    pub(super) async fn ask_session(&mut self, mut request: Value, report: &BuildReport) -> Result<Option<String>, Failure> {
        self.requests += 1;
        let nonce = format!("build-{}", self.requests);
        request["nonce"] = json!(nonce);
        // A failure shows in the output.
        let _ = self.input.send_data(format!("{request}\n").into()).await;
        let mut notes = Vec::new();
        while let Some(piece) = self.output.next().await? {
            match piece {
                Piece::Output { stream: Source::Notes, data, .. } => notes.extend(data.bytes().unwrap_or_default()),
                Piece::Output { data, .. } => report.output(&data.bytes().unwrap_or_default())?,
                Piece::Ended { outcome } => return Ok(Some(outcome.message)),
            }
            if notes.len() > NOTES_MAX {
                return Ok(Some(format!("its notes have more than {NOTES_MAX} bytes")));
            }
            while let Some(end) = notes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = notes.drain(..=end).collect();
                let note: Value = serde_json::from_slice(&line).unwrap_or_default();
                if note["nonce"] == nonce.as_str() {
                    let text = |name: &str| note["error"][name].as_str().unwrap_or_default().to_owned();
                    return Ok(note["error"].is_object().then(|| format!("{}: {}", text("name"), text("value"))));
                }
            }
        }
        Err(Failure::ConnectionLost(std::io::ErrorKind::UnexpectedEof.into()))
    }

    /// Makes a template of the cell, which ends it.
    ///
    /// # Errors
    /// The service refuses.
    pub(super) async fn freeze(self, name: String) -> Result<(), Failure> {
        let freeze = api::Freeze { name, force: false, replace: true };
        let _: api::Template = self.client.request(Method::POST, &format!("{}/freeze", self.path), &freeze).await?;
        Ok(())
    }
}
