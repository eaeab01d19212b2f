// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes of programs and files in running cells, and their handlers.

use super::problem::Problem;
use super::queries::{EndOfInputQuery, KillQuery, LINES};
use super::{debugger, jobs, watch};
use crate::api;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pando_manager::cells::Manager;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

type RouteResult<T> = Result<T, Problem>;

/// Starts an additional program in a running cell.
///
/// The request's first line describes it as JSON (`NewJob`), and the rest is its standard input. Each line of the answer is a piece of
/// output, the last one the end. If the client disconnects, the program is killed. The answer's `location` is the program's path.
#[utoipa::path(post, path = "/v1/cells/{cell}/exec", params(("cell" = String, Path, description = "The cell's number or name.")), request_body(content = api::NewJob, content_type = "application/x-ndjson"), responses((status = 200, body = api::JobPiece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem)))]
pub(super) async fn exec(State(manager): State<Arc<Manager>>, Path(id): Path<String>, body: Body) -> RouteResult<Response> {
    let cell = manager.find(&id)?;
    let (number, output) = jobs::exec(&cell, body).await?;
    let location = format!("/v1/cells/{}/jobs/{number}", cell.id());
    Ok(([(header::LOCATION, location), (header::CONTENT_TYPE, LINES.into())], output).into_response())
}

/// Writes bytes to the standard input of an additional program, which was started with `keep_input`; answers once they are taken.
#[utoipa::path(post, path = "/v1/cells/{cell}/jobs/{job}/input", params(("cell" = String, Path, description = "The cell's number or name."), ("job" = u32, Path, description = "The program's number."), EndOfInputQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = "4XX", body = api::Problem)))]
pub(super) async fn job_input(
    State(manager): State<Arc<Manager>>,
    Path((id, job)): Path<(String, u32)>,
    Query(query): Query<EndOfInputQuery>,
    bytes: Bytes,
) -> RouteResult<StatusCode> {
    jobs::write_input(manager.find(&id)?.job(job)?, bytes, query.end).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends an additional program and its processes a signal.
#[utoipa::path(post, path = "/v1/cells/{cell}/jobs/{job}/kill", params(("cell" = String, Path, description = "The cell's number or name."), ("job" = u32, Path, description = "The program's number."), KillQuery), responses((status = 204), (status = "4XX", body = api::Problem)))]
pub(super) async fn kill_job(
    State(manager): State<Arc<Manager>>,
    Path((id, job)): Path<(String, u32)>,
    Query(query): Query<KillQuery>,
) -> RouteResult<StatusCode> {
    manager.find(&id)?.job(job)?.job.signal(query.signal.number());
    Ok(StatusCode::NO_CONTENT)
}

/// Sets the size of the terminal of an additional program.
#[utoipa::path(post, path = "/v1/cells/{cell}/jobs/{job}/resize", params(("cell" = String, Path, description = "The cell's number or name."), ("job" = u32, Path, description = "The program's number."), api::TerminalSize), responses((status = 204), (status = "4XX", body = api::Problem)))]
pub(super) async fn resize_job(
    State(manager): State<Arc<Manager>>,
    Path((id, job)): Path<(String, u32)>,
    Query(size): Query<api::TerminalSize>,
) -> RouteResult<StatusCode> {
    manager.find(&id)?.job(job)?.job.resize(jobs::terminal_size(size));
    Ok(StatusCode::NO_CONTENT)
}

/// The file.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct File {
    /// An absolute path in the cell.
    path: String,
}

/// Returns the content of a file in a running cell.
#[utoipa::path(get, path = "/v1/cells/{cell}/file", params(("cell" = String, Path, description = "The cell's number or name."), File), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = "4XX", body = api::Problem)))]
pub(super) async fn read_file(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(file): Query<File>,
) -> RouteResult<Response> {
    let content = jobs::read_file(&*manager.find(&id)?, &file.path).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], content).into_response())
}

/// Writes a file in a running cell once the whole body has arrived; it replaces an existing file atomically.
#[utoipa::path(put, path = "/v1/cells/{cell}/file", params(("cell" = String, Path, description = "The cell's number or name."), File), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = "4XX", body = api::Problem)))]
pub(super) async fn write_file(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(file): Query<File>,
    body: Body,
) -> RouteResult<StatusCode> {
    jobs::write_file(&*manager.find(&id)?, &file.path, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The files to watch.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// An absolute path in the cell.
    path: String,
    /// Watch the directories below it, too.
    #[serde(default)]
    recursive: bool,
}

/// Streams what happens to a file or a directory of a running cell, and to the names in it: a line of JSON for each event.
///
/// The first line says that the watch has begun. It ends when the client disconnects.
#[utoipa::path(get, path = "/v1/cells/{cell}/watch", params(("cell" = String, Path, description = "The cell's number or name."), WatchQuery), responses((status = 200, body = api::FileEvent, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem)))]
pub(super) async fn watch_files(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<WatchQuery>,
) -> RouteResult<Response> {
    let events = watch::watch(&*manager.find(&id)?, &query.path, query.recursive).await?;
    Ok(([(header::CONTENT_TYPE, LINES)], events).into_response())
}

/// The process to debug.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DebugQuery {
    /// Its number in the cell [default: the first process].
    process: Option<u64>,
}

/// Attaches a debugger to a running cell: the request's body is the bytes of gdb's remote protocol from gdb, the answer those for gdb.
///
/// The cell is halted when the answer begins. When gdb detaches or the client disconnects, all breakpoints are removed, and the cell goes
/// on. A cell that sleeps wakes up. One client at a time can debug a cell.
#[utoipa::path(post, path = "/v1/cells/{cell}/debug", params(("cell" = String, Path, description = "The cell's number or name."), DebugQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = "4XX", body = api::Problem)))]
pub(super) async fn debug(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<DebugQuery>,
    body: Body,
) -> RouteResult<Response> {
    let answer = debugger::debug(&manager.find(&id)?, query.process, body).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], answer).into_response())
}

/// Returns the changes of a running cell's root file system, as a layer of a container image: a tar archive with whiteouts.
///
/// The cell's programs do not run until it was read. Volumes, temporary directories, `/dev`, `/proc`, `/sys` and the files that name hosts
/// are left out.
#[utoipa::path(get, path = "/v1/cells/{cell}/changes", params(("cell" = String, Path, description = "The cell's number or name.")), responses((status = 200, body = Vec<u8>, content_type = "application/x-tar"), (status = "4XX", body = api::Problem)))]
pub(super) async fn changes(State(manager): State<Arc<Manager>>, Path(id): Path<String>) -> RouteResult<Response> {
    let content = jobs::read_changes(&*manager.find(&id)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], content).into_response())
}
