// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes and their handlers.

use super::problem::Problem;
use super::queries::{EndOfInputQuery, KillQuery, LINES};
use super::streams::{ClientDisconnected, RequestBody, ResponseBody};
use super::tokens::Scope;
use super::{blocking, connections, program_routes, prometheus, request, token_routes};
use crate::api;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use pando_manager::cells::{CellPage, CellSignal, ManagedCell, ManagedCellSpec, Manager, ManagerError, OutputPiece, PageQuery, Reader};
use pando_manager::template::{OpenTemplate, TemplateName, TemplateRef};
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Maximal bytes of a request.
const REQUEST_MAX: usize = 64 << 20;
/// Bytes of a template's file beside its pages and their index.
const TEMPLATE_HEAD_MAX: u64 = 16 << 20;
/// The default output limit in bytes of a cell that is run to its end.
const RUN_OUTPUT_MAX: u64 = 16 << 20;
/// The default time that a program gets to end, in seconds.
const STOP_SECONDS: f64 = 10.0;
/// The most cells of a page for a client with a token.
const CONTROL_PAGE: usize = 1000;
/// Bytes of a file per write.
const PIECE: usize = 256 << 10;

#[derive(OpenApi)]
#[openapi(info(
    title = "Pando",
    description = "Cells as a service: on a Unix socket, by HTTP and JSON. All users who may open the socket may do all of this."
))]
struct Description;

/// All routes, with their description.
pub(super) fn router() -> OpenApiRouter<Arc<Manager>> {
    // After the first line, their bodies have no time limit.
    let streams = OpenApiRouter::new().routes(routes!(attach)).routes(routes!(program_routes::exec)).routes(routes!(program_routes::debug));
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(server))
        .routes(routes!(metrics))
        .routes(routes!(templates, make_template))
        .routes(routes!(template, remove_template))
        .routes(routes!(save_template, load_template))
        .routes(routes!(run))
        .routes(routes!(cells, make_cell))
        .routes(routes!(cell, remove_cell))
        .routes(routes!(wait))
        .routes(routes!(kill))
        .routes(routes!(stop))
        .routes(routes!(sleep))
        .routes(routes!(wake))
        .routes(routes!(set_timeout))
        .routes(routes!(program_routes::job_input))
        .routes(routes!(program_routes::kill_job))
        .routes(routes!(program_routes::resize_job))
        .routes(routes!(close_stream))
        .routes(routes!(output))
        .routes(routes!(input))
        .routes(routes!(program_routes::read_file, program_routes::write_file))
        .routes(routes!(program_routes::changes))
        .routes(routes!(program_routes::watch_files))
        .routes(routes!(freeze))
        .routes(routes!(fork))
        .routes(routes!(token_routes::tokens, token_routes::make_token))
        .routes(routes!(token_routes::remove_token))
        .layer(from_fn(connections::limit_body))
        .merge(streams)
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
}

/// The address for clients with a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlAddress(pub(super) Option<SocketAddr>);

type RouteResult<T> = Result<T, Problem>;

/// Returns the server's state.
#[utoipa::path(get, path = "/v1", responses((status = 200, body = api::Server)))]
async fn server(State(manager): State<Arc<Manager>>, Extension(control): Extension<ControlAddress>) -> Json<api::Server> {
    Json(api::Server { control: control.0.map(|address| address.to_string()), ..api::Server::from(&*manager) })
}

/// Returns metrics in the text format that Prometheus reads.
#[utoipa::path(get, path = "/v1/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text"), (status = 422, body = api::Problem)))]
async fn metrics(State(manager): State<Arc<Manager>>) -> RouteResult<Response> {
    blocking(move || {
        let (statistics, swap) = manager.statistics()?;
        let text = prometheus::text(&manager.summary(), &statistics, &swap).map_err(Problem::server)?;
        Ok(([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response())
    })
    .await
}

/// Lists the stored templates.
#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = Vec<api::Template>)))]
async fn templates(State(manager): State<Arc<Manager>>) -> RouteResult<Json<Vec<api::Template>>> {
    blocking(move || Ok(Json(manager.templates()?.into_iter().map(api::Template::from).collect()))).await
}

/// Creates a template: starts its program, waits until it is ready, and stores it.
#[utoipa::path(post, path = "/v1/templates", request_body = api::NewTemplate, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn make_template(
    State(manager): State<Arc<Manager>>,
    Json(new): Json<api::NewTemplate>,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let name = name(&new.name)?;
    let options = request::template(&new, name.clone())?;
    manager.create_template(options).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(manager.template(&name)?.into())))).await
}

/// Returns a template's description.
#[utoipa::path(get, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 200, body = api::Template), (status = 404, body = api::Problem)))]
async fn template(State(manager): State<Arc<Manager>>, Path(text): Path<String>) -> RouteResult<Json<api::Template>> {
    let name = name(&text)?;
    blocking(move || Ok(Json(manager.template(&name)?.into()))).await
}

/// Removes a template; its clones continue.
#[utoipa::path(delete, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_template(State(manager): State<Arc<Manager>>, Path(text): Path<String>) -> RouteResult<StatusCode> {
    let name = name(&text)?;
    manager.remove_template(name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Downloads the file of one of a template's variants, as `pando template save` writes it.
#[utoipa::path(get, path = "/v1/templates/{name}/file", params(("name" = String, Path)), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = api::Problem)))]
async fn save_template(State(manager): State<Arc<Manager>>, Path(text): Path<String>) -> RouteResult<Response> {
    let name = name(&text)?;
    let path = blocking(move || {
        refuse_inside(&manager)?;
        // A damaged template is not passed on.
        let path = manager.store().pick_variant(&name);
        manager.store().open(&TemplateRef::Stored(name))?;
        OpenTemplate::open(&path)?.check(&manager.environment().reporter)?;
        Ok(path)
    })
    .await?;
    let mut file = tokio::fs::File::open(path).await.map_err(Problem::server)?;
    let (mut outgoing, body) = ResponseBody::new();
    tokio::spawn(async move {
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece).await {
                Ok(0) => return,
                Ok(count) if outgoing.send(Bytes::copy_from_slice(&piece[..count])).await.is_err() => return,
                Ok(_) => {}
                Err(error) => return outgoing.abort(error),
            }
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Whether to replace an existing template.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ReplaceQuery {
    /// Replace the template of this name, if there is one.
    #[serde(default)]
    replace: bool,
}

/// Stores an uploaded template after checking that it is undamaged.
///
/// The file itself lists the host files that its clones see: upload only templates that you trust.
#[utoipa::path(put, path = "/v1/templates/{name}/file", params(("name" = String, Path), ReplaceQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn load_template(
    State(manager): State<Arc<Manager>>,
    Path(text): Path<String>,
    Query(query): Query<ReplaceQuery>,
    body: Body,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let name = name(&text)?;
    refuse_inside(&manager)?;
    let store = manager.store().clone();
    let incoming = blocking(move || Ok(store.temporary_file()?)).await?;
    let mut file = tokio::fs::File::from_std(incoming.reopen().map_err(Problem::server)?);
    let mut body = RequestBody::new(body);
    // A template that takes more could not be cloned here. Beside its pages there is its index.
    let most = manager.memory().bytes().saturating_add(manager.memory().bytes() / 8).saturating_add(TEMPLATE_HEAD_MAX);
    let mut received = 0;
    while let Some(bytes) = body.next().await? {
        received += bytes.len() as u64;
        if received > most {
            return Err(Problem::too_large(format!("more than {most} bytes: its clones would have no room here (--memory)")));
        }
        file.write_all(&bytes).await.map_err(Problem::server)?;
    }
    file.flush().await.map_err(Problem::server)?;
    manager.adopt_template(incoming, name.clone(), query.replace).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(manager.template(&name)?.into())))).await
}

/// Starts a cell from a template or a program, waits until it has ended, and returns its output.
#[utoipa::path(post, path = "/v1/run", request_body = api::NewCell, responses((status = 200, body = api::RunResult), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn run(State(manager): State<Arc<Manager>>, Json(mut new): Json<api::NewCell>) -> RouteResult<Json<api::RunResult>> {
    new.output_limit.get_or_insert(RUN_OUTPUT_MAX);
    let attached = manager.start_cell(request::attached_cell(new, true)?).await?;
    let outcome = attached.cell.wait_ended().await;
    Ok(Json(api::RunResult::new(outcome, &attached.cell)))
}

/// The cells to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CellsQuery {
    /// List the nested cells of each cell, too.
    #[serde(default)]
    descendants: bool,
    /// List cells with greater numbers only: the last number of the page before.
    #[serde(default)]
    after: u64,
    /// The number of cells of a page [default: all].
    limit: Option<usize>,
    /// List cells in this state only.
    #[param(inline)]
    state: Option<api::CellState>,
}

/// Lists the running cells and those that ended last, in the order of their numbers.
///
/// If there is another page, the header `link` leads to it (`rel="next"`). A page may have fewer cells than its limit, or none.
#[utoipa::path(get, path = "/v1/cells", params(CellsQuery), responses((status = 200, body = Vec<api::Cell>)))]
async fn cells(
    State(manager): State<Arc<Manager>>,
    scope: Option<Extension<Scope>>,
    Query(query): Query<CellsQuery>,
) -> RouteResult<Response> {
    let CellsQuery { descendants, after, limit, state } = query;
    let limit = if scope.is_some() { Some(limit.unwrap_or(CONTROL_PAGE).min(CONTROL_PAGE)) } else { limit };
    let page = blocking(move || {
        Ok(manager.page(PageQuery { after, limit, has_descendants: descendants }, |cell| {
            state.is_none_or(|state| api::CellState::of(cell) == state) && scope.as_ref().is_none_or(|scope| scope.contains(&cell.labels))
        }))
    });
    let CellPage { cells, next } = page.await?;
    let cells: Vec<api::Cell> = cells.into_iter().map(api::Cell::from).collect();
    let mut answer = Json(cells).into_response();
    if let Some(next) = next {
        let state = state.map_or_else(String::new, |state| format!("&state={state}"));
        let limit = limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
        let link = format!("</v1/cells?after={next}&descendants={descendants}{limit}{state}>; rel=\"next\"");
        answer.headers_mut().insert(header::LINK, link.parse().map_err(Problem::server)?);
    }
    Ok(answer)
}

/// Starts a cell from a template or a program, and returns while it runs.
#[utoipa::path(post, path = "/v1/cells", request_body = api::NewCell, responses((status = 201, body = api::Cell), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn make_cell(State(manager): State<Arc<Manager>>, Json(new): Json<api::NewCell>) -> RouteResult<(StatusCode, Json<api::Cell>)> {
    let cell = manager.start_cell(request::cell(new, false)?).await?.release();
    Ok((StatusCode::CREATED, Json(cell.summary().into())))
}

/// Returns a cell's description.
#[utoipa::path(get, path = "/v1/cells/{cell}", params(("cell" = String, Path, description = "The cell's number or name.")), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn cell(State(manager): State<Arc<Manager>>, Path(id): Path<String>) -> RouteResult<Json<api::Cell>> {
    Ok(Json(manager.find(&id)?.summary().into()))
}

/// Terminates a cell, and removes it with its output.
#[utoipa::path(delete, path = "/v1/cells/{cell}", params(("cell" = String, Path, description = "The cell's number or name.")), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_cell(State(manager): State<Arc<Manager>>, Path(id): Path<String>) -> RouteResult<StatusCode> {
    manager.remove_cell(manager.find(&id)?.id());
    Ok(StatusCode::NO_CONTENT)
}

/// The time to wait.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TimeoutQuery {
    /// Seconds [default: no limit].
    timeout: Option<f64>,
}

/// Waits until a cell has ended, or until the timeout; the outcome is missing if it still runs.
#[utoipa::path(get, path = "/v1/cells/{cell}/wait", params(("cell" = String, Path, description = "The cell's number or name."), TimeoutQuery), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn wait(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<TimeoutQuery>,
) -> RouteResult<Json<api::Cell>> {
    let cell = manager.find(&id)?;
    match query.timeout.map(Duration::try_from_secs_f64) {
        None => _ = cell.wait_ended().await,
        // A timeout is no error: the answer has no outcome.
        Some(Ok(time)) => _ = tokio::time::timeout(time, cell.wait_ended()).await,
        Some(Err(_)) => return Err(Problem::request("timeout: give seconds, such as 2.5")),
    }
    Ok(Json(cell.summary().into()))
}

/// Terminates a cell, or sends its program a signal; its output and outcome remain available.
#[utoipa::path(post, path = "/v1/cells/{cell}/kill", params(("cell" = String, Path, description = "The cell's number or name."), KillQuery), responses((status = 204), (status = 404, body = api::Problem)))]
async fn kill(
    State(manager): State<Arc<Manager>>,
    scope: Option<Extension<Scope>>,
    Path(id): Path<String>,
    Query(query): Query<KillQuery>,
) -> RouteResult<StatusCode> {
    if scope.is_some() && !matches!(query.signal, api::Signal::KILL | api::Signal::TERM | api::Signal::INT) {
        return Err(Problem::forbidden("signal: a token allows KILL, TERM and INT"));
    }
    let cell = manager.find(&id)?;
    match query.signal {
        api::Signal::KILL => cell.end_by(CellSignal::Kill, None).await,
        signal => cell.signal(signal.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The time that a program gets to end.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StopQuery {
    /// Seconds; a negative number is no limit [default: 10].
    timeout: Option<f64>,
}

/// Asks a cell's program to end by the stop signal of its image, or SIGTERM. Terminates the cell if it has not ended after the timeout.
/// Answers once it has ended. It is not started again.
#[utoipa::path(post, path = "/v1/cells/{cell}/stop", params(("cell" = String, Path, description = "The cell's number or name."), StopQuery), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn stop(State(manager): State<Arc<Manager>>, Path(id): Path<String>, Query(query): Query<StopQuery>) -> RouteResult<StatusCode> {
    let cell = manager.find(&id)?;
    let time = match query.timeout.unwrap_or(STOP_SECONDS) {
        ..0.0 => None,
        seconds => Some(Duration::try_from_secs_f64(seconds).map_err(|_| Problem::request("timeout: give seconds, such as 2.5"))?),
    };
    cell.end_by(CellSignal::Terminate, time).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts a cell to sleep that waits: its memory leaves for swap space.
///
/// A frame for it, input, its timer or a request wakes it up, and it goes on where it waited. Its connections, timers and files stay. A
/// cell with nested cells, or with output that was not read, does not sleep. The request fails if an event kept the cell awake, or has
/// woken it.
#[utoipa::path(post, path = "/v1/cells/{cell}/sleep", params(("cell" = String, Path, description = "The cell's number or name.")), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn sleep(State(manager): State<Arc<Manager>>, Path(id): Path<String>) -> RouteResult<StatusCode> {
    let cell = manager.find(&id)?;
    blocking(move || Ok(manager.sleep(&cell)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Wakes a cell up, and answers once its memory is back.
#[utoipa::path(post, path = "/v1/cells/{cell}/wake", params(("cell" = String, Path, description = "The cell's number or name.")), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn wake(State(manager): State<Arc<Manager>>, Path(id): Path<String>) -> RouteResult<StatusCode> {
    let cell = manager.find(&id)?;
    blocking(move || Ok(manager.wake(&cell)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The time limit.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TimeLimitQuery {
    /// Seconds from now on.
    seconds: f64,
}

/// Terminates a cell after this time, in place of its earlier time limit.
#[utoipa::path(post, path = "/v1/cells/{cell}/timeout", params(("cell" = String, Path, description = "The cell's number or name."), TimeLimitQuery), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn set_timeout(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<TimeLimitQuery>,
) -> RouteResult<StatusCode> {
    manager.find(&id)?.set_time_limit(request::time(query.seconds)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// One of its outputs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DiscardQuery {
    /// The output to close.
    #[param(inline)]
    stream: api::Source,
}

/// Closes the read end of one of a cell's outputs: a program that writes there again gets `SIGPIPE`, as with a pipe without a reader.
#[utoipa::path(post, path = "/v1/cells/{cell}/close-stream", params(("cell" = String, Path, description = "The cell's number or name."), DiscardQuery), responses((status = 204), (status = 404, body = api::Problem)))]
async fn close_stream(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<DiscardQuery>,
) -> RouteResult<StatusCode> {
    manager.find(&id)?.close_stream(query.stream.into());
    Ok(StatusCode::NO_CONTENT)
}

/// The part of the output to read.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    /// The position of the first byte in all output of the cell.
    #[serde(default)]
    from: u64,
    /// Begin with the last lines, this many, instead of `from`.
    tail: Option<u64>,
    /// Follow the output until the cell has ended.
    #[serde(default)]
    follow: bool,
    /// Make the cell wait for this reader, as for a pipe's, so that no output is dropped.
    #[serde(default)]
    whole: bool,
}

/// Streams a cell's output and its end: a line of JSON for each piece. The last 1 MiB is kept, or as much as its output limit.
#[utoipa::path(get, path = "/v1/cells/{cell}/output", params(("cell" = String, Path, description = "The cell's number or name."), OutputQuery), responses((status = 200, body = api::Piece, content_type = "application/x-ndjson"), (status = 404, body = api::Problem)))]
async fn output(
    State(manager): State<Arc<Manager>>,
    scope: Option<Extension<Scope>>,
    Path(id): Path<String>,
    Query(query): Query<OutputQuery>,
) -> RouteResult<Response> {
    if query.whole && scope.is_some() {
        return Err(Problem::forbidden("whole: with a token, a reader cannot make a cell wait: leave it out"));
    }
    let cell = manager.find(&id)?;
    let from = query.tail.map_or(query.from, |lines| cell.tail(lines));
    let (mut outgoing, body) = ResponseBody::new();
    tokio::spawn(async move {
        let reader = query.whole.then(|| Reader::new(&cell, from));
        // A disconnected client needs nothing.
        if let Ok(Some(ended)) = send_output(cell, from, query.follow, reader, &mut outgoing).await {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok(([(header::CONTENT_TYPE, LINES)], body).into_response())
}

/// Starts a cell from a template or a program, and runs it as long as the client reads the answer.
///
/// The request's first line describes the clone as JSON (`NewCell`), and the rest is its standard input. The answer's `location` is the
/// clone's path; each line of the answer is a piece of output, the last one the end. The cell is removed at its end. If the client
/// disconnects, the cell is terminated.
#[utoipa::path(post, path = "/v1/attach", request_body(content = api::NewCell, content_type = "application/x-ndjson"), responses((status = 201, body = api::Piece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn attach(State(manager): State<Arc<Manager>>, body: Body) -> RouteResult<Response> {
    let mut incoming = RequestBody::new(body);
    let spec = request::attached_cell(incoming.first_line().await?, false)?;
    let mut attached = manager.start_cell(ManagedCellSpec { is_read_completely: true, ..spec }).await?;
    let (cell, reader) = (Arc::clone(&attached.cell), attached.reader.take());
    let location = format!("/v1/cells/{}", cell.id());
    let (mut outgoing, body) = ResponseBody::new();
    tokio::spawn(write_input(Arc::clone(&cell), incoming));
    tokio::spawn(async move {
        let ended = send_output(cell, 0, true, reader, &mut outgoing).await;
        // The cell is removed before the client can read its end.
        drop(attached);
        if let Ok(Some(ended)) = ended {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok((StatusCode::CREATED, [(header::LOCATION, location), (header::CONTENT_TYPE, LINES.into())], body).into_response())
}

/// Creates a template from a cell and terminates the cell.
#[utoipa::path(post, path = "/v1/cells/{cell}/freeze", params(("cell" = String, Path, description = "The cell's number or name.")), request_body = api::Freeze, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn freeze(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Json(new): Json<api::Freeze>,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let (cell, name) = (manager.find(&id)?, name(&new.name)?);
    manager.freeze(cell, name.clone(), new.replace, new.force).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(manager.template(&name)?.into())))).await
}

/// Starts forks of a running cell.
///
/// They continue where its programs wait, with its memory, files, arguments and limits. The cell itself goes on. The forks draw other
/// random numbers. They have names, host names and time limits of their own, and no ports of the host. Ports
/// that are published by name they publish, too.
#[utoipa::path(post, path = "/v1/cells/{cell}/fork", params(("cell" = String, Path, description = "The cell's number or name.")), request_body = api::Fork, responses((status = 201, body = Vec<api::Cell>), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn fork(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Json(fork): Json<api::Fork>,
) -> RouteResult<(StatusCode, Json<Vec<api::Cell>>)> {
    let forks = manager.fork(manager.find(&id)?, request::forks(fork.count)?).await?;
    Ok((StatusCode::CREATED, Json(forks.into_iter().map(|fork| fork.release().summary().into()).collect())))
}

/// Writes bytes to a cell's standard input; answers once the cell has taken them.
#[utoipa::path(post, path = "/v1/cells/{cell}/input", params(("cell" = String, Path, description = "The cell's number or name."), EndOfInputQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
async fn input(
    State(manager): State<Arc<Manager>>,
    Path(id): Path<String>,
    Query(query): Query<EndOfInputQuery>,
    bytes: Bytes,
) -> RouteResult<StatusCode> {
    let cell = manager.find(&id)?;
    match cell.write_input(bytes, query.end).await {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::state(format!("cannot write to the input of cell {id}: the cell or its input has ended"))),
    }
}

/// Refuses to transfer templates of a service in a cell, which have no files.
fn refuse_inside(manager: &Manager) -> RouteResult<()> {
    if manager.is_nested() { Err(ManagerError::NotInside("the file of a template").into()) } else { Ok(()) }
}

fn name(text: &str) -> RouteResult<TemplateName> {
    text.parse().map_err(|error: String| Problem::request(error))
}

/// Writes a request's body to a cell's standard input. If the client disconnects early, the cell is terminated.
async fn write_input(cell: Arc<ManagedCell>, mut incoming: RequestBody) {
    loop {
        let (bytes, is_last) = match incoming.next().await {
            Ok(Some(bytes)) => (bytes, false),
            Ok(None) => (Bytes::new(), true),
            Err(_) => return cell.signal(CellSignal::Kill),
        };
        if !cell.write_input(bytes, is_last).await || is_last {
            return;
        }
    }
}

/// Sends a cell's output to a client from a position on. If `follows`, until the cell has ended, and returns the end; otherwise until there
/// is no more.
///
/// # Errors
/// The client has disconnected.
async fn send_output(
    mut cell: Arc<ManagedCell>,
    from: u64,
    follows: bool,
    reader: Option<Reader>,
    outgoing: &mut ResponseBody,
) -> Result<Option<api::Piece>, ClientDisconnected> {
    let mut position = from;
    while let Some(piece) = outgoing.unless_disconnected(ManagedCell::piece(&mut cell, position, follows)).await? {
        let OutputPiece::Bytes { position: start, bytes, .. } = &piece else { return Ok(Some(piece.into())) };
        let dropped = start.saturating_sub(position);
        position = start + bytes.len() as u64;
        if let Some(reader) = &reader {
            reader.advance(position);
        }
        let mut line = api::Piece::from(piece);
        if let api::Piece::Output { dropped_bytes, .. } = &mut line {
            *dropped_bytes = dropped;
        }
        outgoing.line(&line).await?;
    }
    Ok(None)
}
