// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be asked, and who answers it.

use super::cell::{Order, Reader};
use super::problem::Problem;
use super::streams::{Incoming, Outgoing};
use super::{Service, blocking, connections, jobs, order};
use crate::api::{self, Text};
use crate::template::{self, Found, Name, Which};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::map_request;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Bytes of the largest request.
const REQUEST_MAX: usize = 64 << 20;
/// Bytes that a cell may say which is run to its end, where nobody says how many.
const RUN_OUTPUT_MAX: u64 = 16 << 20;
/// An answer in lines of JSON.
const LINES: &str = "application/x-ndjson";
/// Bytes of a file that are sent at a time.
const PIECE: usize = 256 << 10;

#[derive(OpenApi)]
#[openapi(info(
    title = "Pando",
    description = "Cells as a service: on a Unix socket, by HTTP and JSON. Whoever may open the socket may do all of this."
))]
struct Description;

/// All that can be asked, with its description.
pub(super) fn router() -> OpenApiRouter<Arc<Service>> {
    // What follows their first line may come whenever it likes.
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
        .routes(routes!(hang_up))
        .routes(routes!(output))
        .routes(routes!(input))
        .routes(routes!(read_file, write_file))
        .routes(routes!(freeze))
        .layer(map_request(connections::limit_silence))
        .merge(streams)
        .layer(DefaultBodyLimit::max(REQUEST_MAX))
}

type Answer<T> = Result<T, Problem>;

/// What the server is, and what it has.
#[utoipa::path(get, path = "/v1", responses((status = 200, body = api::Server)))]
async fn server(State(service): State<Arc<Service>>) -> Json<api::Server> {
    Json(service.told())
}

/// The templates that are kept.
#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = Vec<api::Template>)))]
async fn templates() -> Answer<Json<Vec<api::Template>>> {
    blocking(|| {
        let all = template::all()?;
        // One that is damaged does not hide the others.
        Ok(Json(all.into_iter().filter_map(|(name, _)| told(&name).ok()).collect()))
    })
    .await
}

/// Makes a template: starts its program, waits until it is ready, and keeps it.
#[utoipa::path(post, path = "/v1/templates", request_body = api::NewTemplate, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn make_template(
    State(service): State<Arc<Service>>,
    Json(asked): Json<api::NewTemplate>,
) -> Answer<(StatusCode, Json<api::Template>)> {
    let name = name(&asked.name)?;
    let options = order::template(&asked, name.clone())?;
    service.pool.make(options).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(told(&name)?)))).await
}

/// A template.
#[utoipa::path(get, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 200, body = api::Template), (status = 404, body = api::Problem)))]
async fn template(Path(asked): Path<String>) -> Answer<Json<api::Template>> {
    let name = name(&asked)?;
    blocking(move || Ok(Json(told(&name)?))).await
}

/// Removes a template; its clones go on.
#[utoipa::path(delete, path = "/v1/templates/{name}", params(("name" = String, Path)), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_template(State(service): State<Arc<Service>>, Path(asked): Path<String>) -> Answer<StatusCode> {
    let name = name(&asked)?;
    let held = service.pool.turn(&name).await;
    blocking(move || {
        let _held = held;
        template::remove(&name)?;
        service.pool.tidy();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// A template's file, as `pando template save` writes it; of one of its variants.
#[utoipa::path(get, path = "/v1/templates/{name}/file", params(("name" = String, Path)), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 404, body = api::Problem)))]
async fn save_template(Path(asked): Path<String>) -> Answer<Response> {
    let name = name(&asked)?;
    let path = blocking(move || {
        // One that is damaged is not given to others.
        let path = template::draw(&name)?;
        Found::open(&Which::Kept(name))?;
        Found::open(&Which::File(path.clone()))?.check()?;
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

/// Whether it takes another's place.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Place {
    /// Replace the template of this name, if there is one.
    #[serde(default)]
    replace: bool,
}

/// Keeps a template that was saved, whole and undamaged. It says itself which files of the host its clones see: take only what you trust.
#[utoipa::path(put, path = "/v1/templates/{name}/file", params(("name" = String, Path), Place), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn load_template(
    State(service): State<Arc<Service>>,
    Path(asked): Path<String>,
    Query(place): Query<Place>,
    body: Body,
) -> Answer<(StatusCode, Json<api::Template>)> {
    let name = name(&asked)?;
    let incoming = blocking(|| Ok(template::incoming()?)).await?;
    let mut file = tokio::fs::File::from_std(incoming.reopen().map_err(Problem::server)?);
    let mut body = Incoming::new(body);
    while let Some(bytes) = body.next().await? {
        file.write_all(&bytes).await.map_err(Problem::server)?;
    }
    file.flush().await.map_err(Problem::server)?;
    // Who makes the old one anew does not take it for that.
    let held = service.pool.turn(&name).await;
    blocking(move || {
        let _held = held;
        template::adopt(incoming, &name, place.replace)?;
        Ok((StatusCode::CREATED, Json(told(&name)?)))
    })
    .await
}

/// Clones a template, waits until the clone has ended, and tells what it said.
#[utoipa::path(post, path = "/v1/run", request_body = api::NewCell, responses((status = 200, body = api::Ran), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn run(State(service): State<Arc<Service>>, Json(mut asked): Json<api::NewCell>) -> Answer<Json<api::Ran>> {
    asked.output_limit.get_or_insert(RUN_OUTPUT_MAX);
    let wanted = service.start(order::cell(asked, true)?).await?;
    let outcome = wanted.cell.ended().await;
    Ok(Json(wanted.cell.ran(outcome)))
}

/// The cells that run, and the last that ended.
#[utoipa::path(get, path = "/v1/cells", responses((status = 200, body = Vec<api::Cell>)))]
async fn cells(State(service): State<Arc<Service>>) -> Json<Vec<api::Cell>> {
    Json(service.cells().iter().map(|cell| cell.told()).collect())
}

/// Clones a template, and lets the clone run.
#[utoipa::path(post, path = "/v1/cells", request_body = api::NewCell, responses((status = 201, body = api::Cell), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn make_cell(State(service): State<Arc<Service>>, Json(asked): Json<api::NewCell>) -> Answer<(StatusCode, Json<api::Cell>)> {
    let cell = service.start(order::cell(asked, false)?).await?.release();
    Ok((StatusCode::CREATED, Json(cell.told())))
}

/// A cell.
#[utoipa::path(get, path = "/v1/cells/{cell}", params(("cell" = u64, Path)), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn cell(State(service): State<Arc<Service>>, Path(id): Path<u64>) -> Answer<Json<api::Cell>> {
    Ok(Json(service.find(id)?.told()))
}

/// Ends a cell, and forgets it with all that it said.
#[utoipa::path(delete, path = "/v1/cells/{cell}", params(("cell" = u64, Path)), responses((status = 204), (status = 404, body = api::Problem)))]
async fn remove_cell(State(service): State<Arc<Service>>, Path(id): Path<u64>) -> Answer<StatusCode> {
    service.find(id)?.signal(api::Signal::Kill);
    service.forget(id);
    Ok(StatusCode::NO_CONTENT)
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Patience {
    /// Seconds; without, as long as it takes.
    timeout: Option<f64>,
}

/// Waits until a cell has ended, or so long; the outcome is missing where it has not.
#[utoipa::path(get, path = "/v1/cells/{cell}/wait", params(("cell" = u64, Path), Patience), responses((status = 200, body = api::Cell), (status = 404, body = api::Problem)))]
async fn wait(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(patience): Query<Patience>) -> Answer<Json<api::Cell>> {
    let cell = service.find(id)?;
    match patience.timeout.map(Duration::try_from_secs_f64) {
        None => _ = cell.ended().await,
        // That it has not ended is what the answer says.
        Some(Ok(time)) => _ = tokio::time::timeout(time, cell.ended()).await,
        Some(Err(_)) => return Err(Problem::request("timeout: give seconds, such as 2.5")),
    }
    Ok(Json(cell.told()))
}

/// How to end a cell.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Manner {
    /// What its program is sent; what can be caught may not end it.
    #[serde(default)]
    #[param(inline)]
    signal: api::Signal,
}

/// Ends a cell, or asks its program to end; what it said and how it ended can still be asked.
#[utoipa::path(post, path = "/v1/cells/{cell}/kill", params(("cell" = u64, Path), Manner), responses((status = 204), (status = 404, body = api::Problem)))]
async fn kill(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(manner): Query<Manner>) -> Answer<StatusCode> {
    let cell = service.find(id)?;
    cell.signal(manner.signal);
    if manner.signal == api::Signal::Kill {
        cell.ended().await;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Which of its outputs.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Deaf {
    /// What nobody reads any more.
    #[param(inline)]
    stream: api::Source,
}

/// Tells a cell that nobody reads one of its outputs any more: who writes there again gets `SIGPIPE`, as with a pipe that has no reader.
#[utoipa::path(post, path = "/v1/cells/{cell}/hang-up", params(("cell" = u64, Path), Deaf), responses((status = 204), (status = 404, body = api::Problem)))]
async fn hang_up(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(deaf): Query<Deaf>) -> Answer<StatusCode> {
    service.find(id)?.hang_up(deaf.stream.into());
    Ok(StatusCode::NO_CONTENT)
}

/// Which output.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Pieces {
    /// The position of the first byte, among all that it said.
    #[serde(default)]
    from: u64,
    /// Go on until the cell has ended.
    #[serde(default)]
    follow: bool,
    /// Let the cell wait for who reads this, as it would for a pipe's reader, so that nothing is forgotten.
    #[serde(default)]
    whole: bool,
}

/// What a cell said, and how it ended: a line of JSON for each piece. The last 1 MiB is remembered, or as much as it may say.
#[utoipa::path(get, path = "/v1/cells/{cell}/output", params(("cell" = u64, Path), Pieces), responses((status = 200, body = api::Piece, content_type = "application/x-ndjson"), (status = 404, body = api::Problem)))]
async fn output(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(pieces): Query<Pieces>) -> Answer<Response> {
    let cell = service.find(id)?;
    let (mut outgoing, body) = Outgoing::new();
    tokio::spawn(async move {
        let reader = pieces.whole.then(|| Reader::new(&cell, pieces.from));
        // Who does not read any more needs nothing.
        if let Ok(Some(ended)) = cell.tell(pieces.from, pieces.follow, reader, &mut outgoing).await {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok(([(header::CONTENT_TYPE, LINES)], body).into_response())
}

/// Clones a template, and lets the clone run as long as somebody reads this. The first line of the request says what to clone, as JSON (`NewCell`), and what follows is its standard input; the clone's address is the answer's `location`, and each line of the answer is a piece of what it says, the last how it ended. It is forgotten then, and who breaks off ends it.
#[utoipa::path(post, path = "/v1/attach", request_body(content = api::NewCell, content_type = "application/x-ndjson"), responses((status = 201, body = api::Piece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem), (status = 503, body = api::Problem)))]
async fn attach(State(service): State<Arc<Service>>, body: Body) -> Answer<Response> {
    let mut incoming = Incoming::new(body);
    let order = order::cell(incoming.first_line().await?, false)?;
    let mut wanted = service.start(Order { whole: true, ..order }).await?;
    let (cell, reader) = (Arc::clone(&wanted.cell), wanted.reader.take());
    let place = format!("/v1/cells/{}", cell.id);
    let (mut outgoing, body) = Outgoing::new();
    let listening = Arc::clone(&cell);
    tokio::spawn(async move { listening.follow(incoming).await });
    tokio::spawn(async move {
        let ended = cell.tell(0, true, reader, &mut outgoing).await;
        // Who has read its end does not find it any more.
        drop(wanted);
        if let Ok(Some(ended)) = ended {
            let _ = outgoing.line(&ended).await;
        }
    });
    Ok((StatusCode::CREATED, [(header::LOCATION, place), (header::CONTENT_TYPE, LINES.into())], body).into_response())
}

/// Starts a program in a cell that runs, beside its first one. The first line of the request says which, as JSON (`NewJob`), and what follows is its standard input; each line of the answer is a piece of what it says, the last how it ended. Who breaks off ends it.
#[utoipa::path(post, path = "/v1/cells/{cell}/exec", params(("cell" = u64, Path)), request_body(content = api::NewJob, content_type = "application/x-ndjson"), responses((status = 200, body = api::JobPiece, content_type = "application/x-ndjson"), (status = "4XX", body = api::Problem)))]
async fn exec(State(service): State<Arc<Service>>, Path(id): Path<u64>, body: Body) -> Answer<Response> {
    let said = jobs::exec(&*service.find(id)?, body).await?;
    Ok(([(header::CONTENT_TYPE, LINES)], said).into_response())
}

/// Which file.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct File {
    /// An absolute path of the cell.
    path: String,
}

/// What a file of a cell that runs holds.
#[utoipa::path(get, path = "/v1/cells/{cell}/file", params(("cell" = u64, Path), File), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = "4XX", body = api::Problem)))]
async fn read_file(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(file): Query<File>) -> Answer<Response> {
    let holds = jobs::read_file(&*service.find(id)?, &file.path).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], holds).into_response())
}

/// Puts a file of these bytes into a cell that runs, once all have come; it takes the place of what is there at once.
#[utoipa::path(put, path = "/v1/cells/{cell}/file", params(("cell" = u64, Path), File), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = "4XX", body = api::Problem)))]
async fn write_file(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(file): Query<File>, body: Body) -> Answer<StatusCode> {
    jobs::write_file(&*service.find(id)?, &file.path, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a template of a cell, which does not go on: its clones do.
#[utoipa::path(post, path = "/v1/cells/{cell}/freeze", params(("cell" = u64, Path)), request_body = api::Freeze, responses((status = 201, body = api::Template), (status = "4XX", body = api::Problem)))]
async fn freeze(
    State(service): State<Arc<Service>>,
    Path(id): Path<u64>,
    Json(asked): Json<api::Freeze>,
) -> Answer<(StatusCode, Json<api::Template>)> {
    let (cell, name) = (service.find(id)?, name(&asked.name)?);
    let held = service.pool.turn(&name).await;
    // A name that is taken costs no cell its life.
    let (wanted, replaces) = (name.clone(), asked.replace);
    blocking(move || Ok(template::check_free(&wanted, replaces)?)).await?;
    let freezer = service.pool.freezer().await?;
    cell.freeze(name.clone(), (held, freezer), asked.force).await?;
    blocking(move || Ok((StatusCode::CREATED, Json(told(&name)?)))).await
}

/// Whether that is all.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Last {
    /// No more input comes after this.
    #[serde(default)]
    end: bool,
}

/// Gives a cell bytes on its standard input; answers once it has taken them.
#[utoipa::path(post, path = "/v1/cells/{cell}/input", params(("cell" = u64, Path), Last), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204), (status = 404, body = api::Problem), (status = 409, body = api::Problem)))]
async fn input(State(service): State<Arc<Service>>, Path(id): Path<u64>, Query(last): Query<Last>, bytes: Bytes) -> Answer<StatusCode> {
    let cell = service.find(id)?;
    match cell.give(bytes, last.end).await {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::state(format!("cell {id} has ended: nobody reads its input"))),
    }
}

/// What can be told of a template.
fn told(name: &Name) -> Answer<api::Template> {
    let (found, files) = (Found::open(&Which::Kept(name.clone()))?, template::variants(name)?);
    let recipe = found.recipe();
    Ok(api::Template {
        name: name.to_string(),
        arguments: recipe.arguments.clone(),
        memory_bytes: found.memory().bytes(),
        variants: files.len(),
        file_bytes: files.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum(),
        made: recipe.made,
        forced: found.is_forced(),
    })
}

fn name(text: &str) -> Answer<Name> {
    text.parse().map_err(|error: String| Problem::request(error))
}

/// The bytes that somebody meant.
pub(super) fn bytes(text: Option<&Text>) -> Answer<Vec<u8>> {
    text.map_or(Some(Vec::new()), Text::bytes).ok_or_else(|| Problem::request("what is said to be base64 is none"))
}
