// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes and their handlers.

use super::cell::{CellRequest, Reader};
use super::problem::Problem;
use super::streams::{Incoming, Outgoing};
use super::{Service, blocking, connections, jobs, request};
use crate::api::{self, TextOrBytes};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use pando_manager::template::{OpenTemplate, TemplateName, TemplateRef};
use serde::Deserialize;
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
/// An answer in lines of JSON.
const LINES: &str = "application/x-ndjson";
/// Bytes of a file per write.
const PIECE: usize = 256 << 10;

#[derive(OpenApi)]
#[openapi(info(
    title = "Pando",
    description = "Cells as a service: on a Unix socket, by HTTP and JSON. All users who may open the socket may do all of this."
))]
struct Description;

/// All routes, with their description.
pub(super) fn router() -> OpenApiRouter<Arc<Service>> {
    // After the first line, their bodies have no time limit.
    let streams = OpenApiRouter::new().routes(routes!(attach)).routes(routes!(exec));
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(server))
        .routes(routes!(templates, make_template))
        .routes(routes!(template, remove_template))
        .routes(routes!(save_template, load_template))
        .routes(routes!(run))
        .routes(routes!(cells, make_cell))
        .routes(routes!(cell, remove_cell))
        .routes(routes!(wait))
        .routes(routes!(kill))
        .routes(routes!(close_stream))
        .routes(routes!(output))
        .routes(routes!(input))
        .routes(routes!(read_file, write_file))
        .routes(routes!(freeze))
        .layer(from_fn(connections::limit_body))
        .merge(streams)
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
}

type RouteResult<T> = Result<T, Problem>;

/// Returns the server's state.
#[utoipa::path(get, path = "/v1", responses((status = 200, body = api::Server)))]
async fn server(State(service): State<Arc<Service>>) -> Json<api::Server> {
    Json(service.told())
}

/// Lists the stored templates.
#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = Vec<api::Template>)))]
async fn templates(State(service): State<Arc<Service>>) -> RouteResult<Json<Vec<api::Template>>> {
    blocking(move || {
        let all = service.store.all()?;
        // A damaged template does not hide the others.
        Ok(Json(all.into_iter().filter_map(|(name, _)| told(&service, &name).ok()).collect()))
    })
    .await
}

/// Creates a template: starts its program, waits until it is ready, and stores it.
#[utoipa::path(post, path = "/v1/templates", request_body = api::NewTemplate, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn make_template(
    State(service): State<Arc<Service>>,
    Json(asked): Json<api::NewTemplate>,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let name = name(&asked.name)?;
    let options = request::template(&asked, name.clone())?;
    service.pool.make(options).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(told(&service, &name)?)))).await
}

/// Returns a template's description.
#[utoipa::path(get, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 200, body = api::Template), (status = 404, body = api::Problem)))]
async fn template(State(service): State<Arc<Service>>, Path(asked): Path<String>) -> RouteResult<Json<api::Template>> {
    let name = name(&asked)?;
    blocking(move || Ok(Json(told(&service, &name)?))).await
}

/// Removes a template; its clones continue.
#[utoipa::path(delete, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_template(State(service): State<Arc<Service>>, Path(asked): Path<String>) -> RouteResult<StatusCode> {
    let name = name(&asked)?;
    let held = service.pool.turn(&name).await;
    blocking(move || {
        let _held = held;
        service.store.remove(&name)?;
        service.pool.tidy();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Downloads the file of one of a template's variants, as `pando template save` writes it.
#[utoipa::path(get, path = "/v1/templates/{name}/file", params(("name" = String, Path)), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = api::Problem)))]
async fn save_template(State(service): State<Arc<Service>>, Path(asked): Path<String>) -> RouteResult<Response> {
    let name = name(&asked)?;
    let path = blocking(move || {
        // A damaged template is not passed on.
        let path = service.store.pick_variant(&name);
        service.store.open(&TemplateRef::Stored(name))?;
        OpenTemplate::open(&path)?.check(&service.environment.reporter)?;
        Ok(path)
    })
    .await?;
    let mut file = tokio::fs::File::open(path).await.map_err(Problem::server)?;
    let (mut outgoing, body) = Outgoing::new();
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
    State(service): State<Arc<Service>>,
    Path(asked): Path<String>,
    Query(place): Query<ReplaceQuery>,
    body: Body,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let name = name(&asked)?;
    let store = service.store.clone();
    let incoming = blocking(move || Ok(store.temporary_file()?)).await?;
    let mut file = tokio::fs::File::from_std(incoming.reopen().map_err(Problem::server)?);
    let mut body = Incoming::new(body);
    // A template that takes more could not be cloned here. Beside its pages there is its index.
    let most = service.memory.bytes().saturating_add(service.memory.bytes() / 8).saturating_add(TEMPLATE_HEAD_MAX);
    let mut received = 0;
    while let Some(bytes) = body.next().await? {
        received += bytes.len() as u64;
        if received > most {
            return Err(Problem::too_large(format!("more than {most} bytes: its clones would have no room here (--memory)")));
        }
        file.write_all(&bytes).await.map_err(Problem::server)?;
    }
    file.flush().await.map_err(Problem::server)?;
    // So that a concurrent recreation of the old one does not replace it.
    let held = service.pool.turn(&name).await;
    blocking(move || {
        let _held = held;
        service.store.adopt(incoming, &name, place.replace, &service.environment.reporter)?;
        Ok((StatusCode::CREATED, Json(told(&service, &name)?)))
    })
    .await
}

/// Clones a template, waits until the clone has ended, and returns its output.
#[utoipa::path(post, path = "/v1/run", request_body = api::NewCell, responses((status = 200, body = api::RunResult), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn run(State(service): State<Arc<Service>>, Json(mut asked): Json<api::NewCell>) -> RouteResult<Json<api::RunResult>> {
    asked.output_limit.get_or_insert(RUN_OUTPUT_MAX);
    let wanted = service.start(request::cell(asked, true)?).await?;
    let outcome = wanted.cell.ended().await;
    Ok(Json(wanted.cell.ran(outcome)))
}

/// Lists the running cells and those that ended last.
#[utoipa::path(get, path = "/v1/cells", responses((status = 200, body = Vec<api::Cell>)))]
async fn cells(State(service): State<Arc<Service>>) -> Json<Vec<api::Cell>> {
    Json(service.cells().iter().map(|cell| cell.told()).collect())
}

/// Clones a template, and returns while the clone runs.
#[utoipa::path(post, path = "/v1/cells", request_body = api::NewCell, responses((status = 201, body = api::Cell), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn make_cell(State(service): State<Arc<Service>>, Json(asked): Json<api::NewCell>) -> RouteResult<(StatusCode, Json<api::Cell>)> {
    let cell = service.start(request::cell(asked, false)?).await?.release();
    Ok((StatusCode::CREATED, Json(cell.told())))
}

/// Returns a cell's description.
#[utoipa::path(get, path = "/v1/cells/{cell}", params(("cell" = u64, Path)), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn cell(State(service): State<Arc<Service>>, Path(id): Path<u64>) -> RouteResult<Json<api::Cell>> {
    Ok(Json(service.find(id)?.told()))
}

/// Terminates a cell, and removes it with its output.
#[utoipa::path(delete, path = "/v1/cells/{cell}", params(("cell" = u64, Path)), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_cell(State(service): State<Arc<Service>>, Path(id): Path<u64>) -> RouteResult<StatusCode> {
    service.find(id)?.signal(api::Signal::Kill);
    service.forget(id);
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
#[utoipa::path(get, path = "/v1/cells/{cell}/wait", params(("cell" = u64, Path), TimeoutQuery), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn wait(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Query(patience): Query<TimeoutQuery>,
) -> RouteResult<Json<api::Cell>> {
    let cell = service.find(id)?;
    match patience.timeout.map(Duration::try_from_secs_f64) {
        None => _ = cell.ended().await,
        // A timeout is no error: the answer has no outcome.
        Some(Ok(time)) => _ = tokio::time::timeout(time, cell.ended()).await,
        Some(Err(_)) => return Err(Problem::request("timeout: give seconds, such as 2.5")),
    }
    Ok(Json(cell.told()))
}

/// The way to end a cell.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct KillQuery {
    /// The signal for its program; a program can ignore those that it can catch.
    #[serde(default)]
    #[param(inline)]
    signal: api::Signal,
}

/// Terminates a cell, or sends its program a signal; its output and outcome remain available.
#[utoipa::path(post, path = "/v1/cells/{cell}/kill", params(("cell" = u64, Path), KillQuery), responses((status = 204), (status = 404, body = api::Problem)))]
async fn kill(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(manner): Query<KillQuery>) -> RouteResult<StatusCode> {
    let cell = service.find(id)?;
    cell.signal(manner.signal);
    if manner.signal == api::Signal::Kill {
        cell.ended().await;
    }
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
#[utoipa::path(post, path = "/v1/cells/{cell}/hang-up", params(("cell" = u64, Path), DiscardQuery), responses((status = 204), (status = 404, body = api::Problem)))]
async fn close_stream(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Query(deaf): Query<DiscardQuery>,
) -> RouteResult<StatusCode> {
    service.find(id)?.close_stream(deaf.stream.into());
    Ok(StatusCode::NO_CONTENT)
}

/// The part of the output to read.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    /// The position of the first byte in all output of the cell.
    #[serde(default)]
    from: u64,
    /// Follow the output until the cell has ended.
    #[serde(default)]
    follow: bool,
    /// Make the cell wait for this reader, as for a pipe's, so that no output is dropped.
    #[serde(default)]
    whole: bool,
}

/// Streams a cell's output and its end: a line of JSON for each piece. The last 1 MiB is kept, or as much as its output limit.
#[utoipa::path(get, path = "/v1/cells/{cell}/output", params(("cell" = u64, Path), OutputQuery), responses((status = 200, body = api::Piece, content_type = "application/x-ndjson"), (status = 404, body = api::Problem)))]
async fn output(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(pieces): Query<OutputQuery>) -> RouteResult<Response> {
    let cell = service.find(id)?;
    let (mut outgoing, body) = Outgoing::new();
    tokio::spawn(async move {
        let reader = pieces.whole.then(|| Reader::new(&cell, pieces.from));
        // A disconnected client needs nothing.
        if let Ok(Some(ended)) = cell.tell(pieces.from, pieces.follow, reader, &mut outgoing).await {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok(([(header::CONTENT_TYPE, LINES)], body).into_response())
}

/// Clones a template, and runs the clone as long as the client reads the answer.
///
/// The request's first line describes the clone as JSON (`NewCell`), and the rest is its standard input. The answer's `location` is the
/// clone's path; each line of the answer is a piece of output, the last one the end. The cell is removed at its end. If the client
/// disconnects, the cell is terminated.
#[utoipa::path(post, path = "/v1/attach", request_body(content = api::NewCell, content_type = "application/x-ndjson"), responses((status = 201, body = api::Piece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn attach(State(service): State<Arc<Service>>, body: Body) -> RouteResult<Response> {
    let mut incoming = Incoming::new(body);
    let order = request::cell(incoming.first_line().await?, false)?;
    let mut wanted = service.start(CellRequest { whole: true, ..order }).await?;
    let (cell, reader) = (Arc::clone(&wanted.cell), wanted.reader.take());
    let place = format!("/v1/cells/{}", cell.id);
    let (mut outgoing, body) = Outgoing::new();
    let listening = Arc::clone(&cell);
    tokio::spawn(async move { listening.follow(incoming).await });
    tokio::spawn(async move {
        let ended = cell.tell(0, true, reader, &mut outgoing).await;
        // The cell is removed before the client can read its end.
        drop(wanted);
        if let Ok(Some(ended)) = ended {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok((StatusCode::CREATED, [(header::LOCATION, place), (header::CONTENT_TYPE, LINES.into())], body).into_response())
}

/// Starts an additional program in a running cell.
///
/// The request's first line describes it as JSON (`NewJob`), and the rest is its standard input. Each line of the answer is a piece of
/// output, the last one the end. If the client disconnects, the program is killed.
#[utoipa::path(post, path = "/v1/cells/{cell}/exec", params(("cell" = u64, Path)), request_body(content = api::NewJob, content_type = "application/x-ndjson"), responses((status = 200, body = api::JobPiece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem)))]
async fn exec(State(service): State<Arc<Service>>, Path(id): Path<u64>, body: Body) -> RouteResult<Response> {
    let said = jobs::exec(&*service.find(id)?, body).await?;
    Ok(([(header::CONTENT_TYPE, LINES)], said).into_response())
}

/// The file.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct File {
    /// An absolute path in the cell.
    path: String,
}

/// Returns the content of a file in a running cell.
#[utoipa::path(get, path = "/v1/cells/{cell}/file", params(("cell" = u64, Path), File), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = "4XX", body = api::Problem)))]
async fn read_file(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(file): Query<File>) -> RouteResult<Response> {
    let holds = jobs::read_file(&*service.find(id)?, &file.path).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], holds).into_response())
}

/// Writes a file in a running cell once the whole body has arrived; it replaces an existing file atomically.
#[utoipa::path(put, path = "/v1/cells/{cell}/file", params(("cell" = u64, Path), File), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn write_file(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Query(file): Query<File>,
    body: Body,
) -> RouteResult<StatusCode> {
    jobs::write_file(&*service.find(id)?, &file.path, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Creates a template from a cell and terminates the cell.
#[utoipa::path(post, path = "/v1/cells/{cell}/freeze", params(("cell" = u64, Path)), request_body = api::Freeze, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn freeze(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Json(asked): Json<api::Freeze>,
) -> RouteResult<(StatusCode, Json<api::Template>)> {
    let (cell, name) = (service.find(id)?, name(&asked.name)?);
    let held = service.pool.turn(&name).await;
    // Checked first: a name that exists must not cost the cell its life.
    let (wanted, replaces) = (name.clone(), asked.replace);
    let store = service.store.clone();
    blocking(move || Ok(store.check_free(&wanted, replaces)?)).await?;
    let freezer = service.pool.freezer().await?;
    cell.freeze(name.clone(), (held, freezer), asked.force).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(told(&service, &name)?)))).await
}

/// Whether the input ends.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct EndOfInputQuery {
    /// No more input follows.
    #[serde(default)]
    end: bool,
}

/// Writes bytes to a cell's standard input; answers once the cell has taken them.
#[utoipa::path(post, path = "/v1/cells/{cell}/input", params(("cell" = u64, Path), EndOfInputQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
async fn input(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Query(last): Query<EndOfInputQuery>,
    bytes: Bytes,
) -> RouteResult<StatusCode> {
    let cell = service.find(id)?;
    match cell.give(bytes, last.end).await {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::state(format!("cannot write to the input of cell {id}: it has ended"))),
    }
}

/// A template's description for clients.
fn told(service: &Service, name: &TemplateName) -> RouteResult<api::Template> {
    let (found, files) = (service.store.open(&TemplateRef::Stored(name.clone()))?, service.store.variants(name));
    let manifest = found.manifest();
    Ok(api::Template {
        name: name.to_string(),
        arguments: manifest.arguments.clone(),
        memory_bytes: found.memory().bytes(),
        variants: files.len(),
        file_bytes: files.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum(),
        made: manifest.made,
        forced: found.is_forced(),
    })
}

fn name(text: &str) -> RouteResult<TemplateName> {
    text.parse().map_err(|error: String| Problem::request(error))
}

/// Decodes a text field.
pub(super) fn bytes(text: Option<&TextOrBytes>) -> RouteResult<Vec<u8>> {
    text.map_or(Some(Vec::new()), TextOrBytes::bytes).ok_or_else(|| Problem::request("invalid base64"))
}
