// SPDX-License-Identifier: MIT OR Apache-2.0
//! Additional programs in running cells. A request's first line describes the program, and the rest is its input. The answer is its
//! output.

use super::problem::Problem;
use super::request;
use super::streams::{ClientDisconnected, RequestBody, ResponseBody};
use crate::api::{self, JobPiece};
use crate::options;
use axum::body::{Body, Bytes};
use pando_kernel::{ConsoleOutput, Stream};
use pando_launch::{Command, Job, JobEnd, Task, TerminalSize};
use pando_manager::cells::{ManagedCell, ProgramConfiguration, StartedJob};
use pando_manager::outcome::{SIGKILL, TIMED_OUT, of_signal};
use pando_manager::view::{self, User, UserAccount};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

/// How long a cell may take to end a program whose time limit has expired.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Bytes of a job's error output that are reported.
const OUTPUT_KEPT: usize = 4096;
/// Bytes of a cell's list of users, or groups, that are read.
const LIST_MAX: usize = 1 << 20;
/// Variables of a program in a cell whose own program has none of these.
const PATH: (&str, &str) = ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
const HOME: (&str, &str) = ("HOME", "/root");

/// Starts a program in a cell and connects its streams. If the client disconnects, the program is killed. Returns its number and its
/// output.
///
/// # Errors
/// The first line is invalid, or the cell has ended.
pub(super) async fn exec(cell: &ManagedCell, body: Body) -> Result<(u32, Body), Problem> {
    let mut incoming = RequestBody::new(body);
    let new: api::NewJob = incoming.first_line().await?;
    let time = new.timeout.map(request::time).transpose()?;
    // The cell may not answer: its libOS is not trusted, and its programs may stand still.
    let late = time.map(|time| Instant::now() + time + GRACE_PERIOD);
    let account = match &new.user {
        Some(user) => {
            let unanswered = || Problem::state("the time limit of the program expired: the cell does not answer");
            Some(before(late, account(cell, user)).await.ok_or_else(unanswered)??)
        }
        None => None,
    };
    let StartedJob { job, notified } = cell.start_job(&command(&new, cell.configuration().unwrap_or_default(), account)?)?;
    let (number, (outgoing, answer)) = (job.number(), ResponseBody::new());
    let limit = new.output_limit.unwrap_or(u64::MAX);
    let timeout_task = time.map(|time| tokio::spawn(kill_after(time, Arc::clone(&job))));
    if new.detach {
        job.port().close_input();
        tokio::spawn(async move {
            before(late, discard_output(&job, notified)).await;
            timeout_task.inspect(JoinHandle::abort);
        });
        return Ok((number, Body::empty()));
    }
    tokio::spawn(copy_input(Arc::clone(&job), notified.clone(), incoming, new.keep_input));
    tokio::spawn(async move {
        // A disconnected client gets no answer.
        let _ = copy_output(job, notified, outgoing, (timeout_task.as_ref(), late, limit)).await;
        timeout_task.inspect(JoinHandle::abort);
    });
    Ok((number, answer))
}

/// The result of an operation, if it ends before this time.
async fn before<T>(late: Option<Instant>, operation: impl Future<Output = T>) -> Option<T> {
    match late {
        Some(late) => timeout_at(late, operation).await.ok(),
        None => Some(operation.await),
    }
}

/// Reads the output of a program until it has ended.
async fn discard_output(job: &Job, mut notified: watch::Receiver<()>) {
    while next_piece(job, &mut notified).await.is_some() {}
}

/// The next piece of a job's output, and its stream. Waits for one. `None`: the job has ended.
async fn next_piece(job: &Job, notified: &mut watch::Receiver<()>) -> Option<(Stream, Vec<u8>)> {
    // Other tasks run even if there is always more.
    consume_budget().await;
    loop {
        match job.port().try_receive() {
            ConsoleOutput::Bytes(stream, bytes) => return Some((stream, bytes)),
            // The job, which notifies, still exists.
            ConsoleOutput::Nothing => _ = notified.changed().await,
            ConsoleOutput::End => return None,
        }
    }
}

/// The next piece of a job's standard output. Adds to `errors` what it wrote to standard error before, the last bytes. `None`: the job has
/// ended.
pub(super) async fn next_output(job: &Job, notified: &mut watch::Receiver<()>, errors: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        match next_piece(job, notified).await? {
            (Stream::Stdout, bytes) => return Some(bytes),
            (_, bytes) => keep_last(errors, &bytes),
        }
    }
}

/// Finds a user by the lists of users and groups in a cell.
async fn account(cell: &ManagedCell, user: &str) -> Result<UserAccount, Problem> {
    let wrong = |reason: String| Problem::request(format!("user: {reason}"));
    let wanted = options::user_name(user).map_err(wrong)?;
    let (users, groups) = (read_list(cell, "/etc/passwd").await?, read_list(cell, "/etc/group").await?);
    // A user without an entry has the group of its number.
    let found = view::resolve(&wanted, &users, &groups, |user| user).map_err(|reason| wrong(format!("the cell: {reason}")))?;
    Ok(UserAccount::find(&users, found))
}

/// Reads a short text file of a cell; empty if it cannot be read.
///
/// # Errors
/// The cell has ended, or has the maximal number of programs.
async fn read_list(cell: &ManagedCell, path: &str) -> Result<String, Problem> {
    let StartedJob { job, mut notified } = cell.start_job(&transfer_command(Task::Read, path)?)?;
    let guard = KillOnDrop(job);
    let (mut text, mut errors) = (Vec::new(), Vec::new());
    while text.len() < LIST_MAX
        && let Some(bytes) = next_output(&guard.0, &mut notified, &mut errors).await
    {
        text.extend(bytes);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Writes bytes to the standard input of a program in a cell. `is_last`: none follow.
///
/// # Errors
/// The program does not read them.
pub(super) async fn write_input(started: StartedJob, mut bytes: Bytes, is_last: bool) -> Result<(), Problem> {
    let StartedJob { job, mut notified } = started;
    if !feed(&job, &mut notified, &mut bytes).await {
        return Err(Problem::state(format!("cannot write to program {}: it has closed its standard input", job.number())));
    }
    if is_last {
        job.port().close_input();
    }
    Ok(())
}

/// Streams the content of a file in a cell.
///
/// # Errors
/// The file cannot be read, or the cell has ended.
pub(super) async fn read_file(cell: &ManagedCell, path: &str) -> Result<Body, Problem> {
    stream_output(cell.start_job(&transfer_command(Task::Read, path)?)?, path).await
}

/// Streams the changes of a cell's root file system as a tar archive. The cell's programs do not run until it was read.
///
/// # Errors
/// The changes cannot be read, or the cell has ended.
pub(super) async fn read_changes(cell: &ManagedCell) -> Result<Body, Problem> {
    let command = Command { task: Task::Layer, path: b"/".to_vec(), directory: b"/".to_vec(), ..Command::default() };
    stream_output(cell.start_job(&command)?, "the changes of the root file system").await
}

/// Streams the output of a job that transfers a file. `name` stands in errors.
async fn stream_output(started: StartedJob, name: &str) -> Result<Body, Problem> {
    let StartedJob { job, mut notified } = started;
    let guard = KillOnDrop(job);
    let mut errors = Vec::new();
    let first = next_output(&guard.0, &mut notified, &mut errors).await;
    if first.is_none() {
        check_transfer(&guard.0, name).map_err(|problem| problem.with_output(&String::from_utf8_lossy(&errors)))?;
    }
    let (mut outgoing, answer) = ResponseBody::new();
    tokio::spawn(async move {
        match send_file(&guard.0, notified, first, &mut outgoing).await {
            Ok(true) | Err(ClientDisconnected) => {}
            Ok(false) => outgoing.abort(std::io::Error::other("the file could not be read to its end")),
        }
    });
    Ok(answer)
}

/// Sends a file's content. Returns whether it is complete.
async fn send_file(
    job: &Job,
    mut notified: watch::Receiver<()>,
    first: Option<Vec<u8>>,
    outgoing: &mut ResponseBody,
) -> Result<bool, ClientDisconnected> {
    let (mut next, mut errors) = (first, Vec::new());
    while let Some(piece) = next {
        outgoing.send(piece).await?;
        next = outgoing.unless_disconnected(next_output(job, &mut notified, &mut errors)).await?;
    }
    Ok(job.end() == Some(JobEnd::Exited(0)))
}

/// Writes a request's bytes to a file in a cell.
///
/// # Errors
/// The file cannot be written, or the cell has ended.
pub(super) async fn write_file(cell: &ManagedCell, path: &str, body: Body) -> Result<(), Problem> {
    let StartedJob { job, mut notified } = cell.start_job(&transfer_command(Task::Write, path)?)?;
    let guard = KillOnDrop(job);
    let copying = copy_input(Arc::clone(&guard.0), notified.clone(), RequestBody::new(body), false);
    let output = async {
        let mut output = Vec::new();
        while let Some((_, bytes)) = next_piece(&guard.0, &mut notified).await {
            keep_last(&mut output, &bytes);
        }
        output
    };
    let copying = async {
        copying.await;
        std::future::pending::<Infallible>().await
    };
    // After an error, do not wait for the rest of the body.
    let output = tokio::select! {
        output = output => output,
        never = copying => match never {},
    };
    check_transfer(&guard.0, path).map_err(|problem| problem.with_output(&String::from_utf8_lossy(&output)))
}

/// The command of a file transfer, which runs no program.
pub(super) fn transfer_command(task: Task, path: &str) -> Result<Command, Problem> {
    if !path.starts_with('/') {
        return Err(Problem::request("path: give an absolute path of the cell"));
    }
    Ok(Command { task, path: path.into(), directory: b"/".to_vec(), ..Command::default() })
}

/// Keeps the last bytes of a job's error output.
fn keep_last(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(bytes);
    output.drain(..output.len().saturating_sub(OUTPUT_KEPT));
}

/// Checks whether a file transfer succeeded.
pub(super) fn check_transfer(job: &Job, path: &str) -> Result<(), Problem> {
    match job.end() {
        Some(JobEnd::Exited(0)) => Ok(()),
        Some(JobEnd::Lost) | None => Err(Problem::state("the cell has ended")),
        Some(_) => Err(Problem::file(path)),
    }
}

/// The command of a request, with what the cell's own program has where the request says nothing.
fn command(new: &api::NewJob, own: ProgramConfiguration, account: Option<UserAccount>) -> Result<Command, Problem> {
    let api::NewJob { arguments, environment: given, directory, user: _, terminal, timeout: _, output_limit: _, keep_input: _, detach: _ } =
        new;
    let name = arguments.first().filter(|name| !name.is_empty()).ok_or_else(|| Problem::request("arguments: the program is missing"))?;
    let mut environment: BTreeMap<String, String> = [PATH, HOME].map(|(name, value)| (name.into(), value.into())).into();
    environment.extend(own.environment);
    if let Some(other) = account.as_ref().filter(|account| account.user() != own.user) {
        // Its name and home are not those of the program's user.
        ["USER", "LOGNAME"].iter().for_each(|name| _ = environment.remove(*name));
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        environment.extend(other.variables().filter_map(text));
    }
    environment.extend(given.clone());
    let User { user, group } = account.map_or(own.user, |account| account.user());
    Ok(Command {
        task: terminal.map_or(Task::Run, |size| Task::RunInTerminal(terminal_size(size))),
        path: name.as_bytes().into(),
        directory: directory.as_ref().map_or(own.directory.into_os_string().into_vec(), |directory| directory.clone().into_bytes()),
        arguments: arguments.iter().map(|argument| argument.as_bytes().into()).collect(),
        environment: environment.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        user,
        group,
    })
}

/// The size of a terminal in a request.
pub(super) fn terminal_size(api::TerminalSize { rows, columns }: api::TerminalSize) -> TerminalSize {
    TerminalSize { rows, columns }
}

/// Writes a request's body to the job's standard input. `is_kept`: more input follows.
async fn copy_input(job: Arc<Job>, mut notified: watch::Receiver<()>, mut incoming: RequestBody, is_kept: bool) {
    loop {
        let mut bytes = match incoming.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) if is_kept => return,
            Ok(None) => return job.port().close_input(),
            // The body is incomplete: the program must not take that for the end of input.
            Err(_) => return job.signal(SIGKILL),
        };
        if !feed(&job, &mut notified, &mut bytes).await {
            return;
        }
    }
}

/// Writes bytes to a job's standard input. `false`: it has stopped reading.
async fn feed(job: &Job, notified: &mut watch::Receiver<()>, bytes: &mut Bytes) -> bool {
    while !bytes.is_empty() {
        notified.mark_unchanged();
        match job.port().try_send(bytes) {
            None => return false,
            Some(0) if notified.changed().await.is_err() => return false,
            Some(count) => *bytes = bytes.split_off(count),
        }
    }
    true
}

/// Kills a job when its client has gone, and closes its output.
pub(super) struct KillOnDrop(pub(super) Arc<Job>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if self.0.end().is_none() {
            self.0.signal(SIGKILL);
            // Processes that have left its group would wait for a reader.
            [Stream::Stdout, Stream::Stderr].into_iter().for_each(|stream| self.0.port().close_stream(stream));
        }
    }
}

/// Kills a job when its time limit expires.
async fn kill_after(time: Duration, job: Arc<Job>) {
    tokio::time::sleep(time).await;
    job.signal(SIGKILL);
}

/// Sends the job's output and its end to the client. `timeout_task` is the task of its time limit, if it has one; from `late` on the cell
/// is not waited for. `limit` is the most bytes of its output: a program that writes more is killed.
async fn copy_output(
    job: Arc<Job>,
    mut notified: watch::Receiver<()>,
    mut outgoing: ResponseBody,
    (timeout_task, late, limit): (Option<&JoinHandle<()>>, Option<Instant>, u64),
) -> Result<(), ClientDisconnected> {
    let guard = KillOnDrop(job);
    let mut left = limit;
    let mut has_exceeded = false;
    // There may be output without end, too.
    while late.is_none_or(|late| Instant::now() < late)
        && let Some((stream, mut bytes)) = outgoing.unless_disconnected(before(late, next_piece(&guard.0, &mut notified))).await?.flatten()
    {
        if bytes.len() as u64 > left && !std::mem::replace(&mut has_exceeded, true) {
            guard.0.signal(SIGKILL);
        }
        bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= bytes.len() as u64;
        if !bytes.is_empty() {
            outgoing.line(&JobPiece::Output { stream: stream.into(), data: api::TextOrBytes::of(bytes) }).await?;
        }
    }
    let (exit_code, message) = match guard.0.end() {
        Some(_) if has_exceeded => (of_signal(SIGKILL), format!("it wrote more than its output limit of {limit} bytes")),
        Some(JobEnd::Signalled(SIGKILL)) if timeout_task.is_some_and(JoinHandle::is_finished) => {
            (TIMED_OUT, "its time limit expired".into())
        }
        Some(JobEnd::Exited(status)) => (status, format!("exited with status {status}")),
        Some(JobEnd::Signalled(signal)) => (of_signal(signal), format!("ended by signal {signal}")),
        None if late.is_some_and(|late| Instant::now() >= late) => {
            (TIMED_OUT, "its time limit expired, and the cell does not answer".into())
        }
        Some(JobEnd::Lost) | None => (of_signal(SIGKILL), "its cell has ended".into()),
    };
    outgoing.line(&JobPiece::Ended { exit_code, message }).await
}
