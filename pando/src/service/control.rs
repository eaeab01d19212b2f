// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control address: clients with a token watch, end, and put to sleep the cells that the token is for, and nothing else.
//!
//! Every request is examined before the routes see it. The cell that it names is replaced by its number, so that the routes cannot find
//! another one of the same name.

use super::blocking;
use super::connections::UnauthenticatedConnection;
use super::problem::Problem;
use super::revocable_body::RevocableBody;
use super::tokens::{Scope, TokenLife, Tokens};
use crate::api;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use pando_manager::cells::{CellTotals, Manager};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Requests that work on a blocking thread at a time: the other threads are for the socket's owner.
const BLOCKING_MAX: usize = 4;

/// The state of the control address.
#[derive(Clone)]
struct Control {
    manager: Arc<Manager>,
    tokens: Arc<Tokens>,
    permits: Arc<Semaphore>,
}

/// A request that a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlRequest<'a> {
    /// The sum of its cells.
    Sum,
    /// Their list.
    List,
    /// Something about one of them: the rest of the path.
    Cell { cell: &'a str, rest: &'a str },
}

/// The routes for clients with a token.
pub(super) fn router(routes: Router, manager: Arc<Manager>, tokens: Arc<Tokens>) -> Router {
    // The layer is around the routes, not in them: it changes the path.
    let control = Control { manager, tokens, permits: Arc::new(Semaphore::new(BLOCKING_MAX)) };
    Router::new().fallback_service(routes).layer(from_fn_with_state(control, authorize))
}

/// Lets a request pass if its token allows it.
async fn authorize(State(control): State<Control>, request: Request, next: Next) -> Response {
    let mut answer = match permit(&control, request).await {
        Ok(PermittedRequest::ForRoutes(request, life)) => {
            let answer = match needs_permit(request.uri().path()) {
                true => run_with_permit(&control, request, next).await,
                false => next.run(request).await,
            };
            answer.map(|body| Body::new(RevocableBody::new(body, life)))
        }
        Ok(PermittedRequest::Answered(answer)) => answer,
        Err(problem) => problem.into_response(),
    };
    if answer.status() == StatusCode::UNAUTHORIZED {
        // A client without a token does not keep a connection.
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Whether a permitted request works on a blocking thread.
fn needs_permit(path: &str) -> bool {
    path == "/v1/cells" || path.ends_with("/sleep") || path.ends_with("/wake")
}

/// Runs a request with a permit. If the client disconnects, the permit is returned with the end of the work, not before.
async fn run_with_permit(control: &Control, request: Request, next: Next) -> Response {
    let permit = match Arc::clone(&control.permits).acquire_owned().await {
        Ok(permit) => permit,
        Err(closed) => return Problem::server(closed).into_response(),
    };
    let work = tokio::spawn(async move {
        let answer = next.run(request).await;
        drop(permit);
        answer
    });
    work.await.unwrap_or_else(|error| Problem::server(error).into_response())
}

/// A request that its token allows.
enum PermittedRequest {
    /// As the routes see it, with the life of the token.
    ForRoutes(Request, TokenLife),
    /// It has its answer.
    Answered(Response),
}

/// Checks a request.
///
/// # Errors
/// It has no token, or the token does not allow it.
async fn permit(control: &Control, mut request: Request) -> Result<PermittedRequest, Problem> {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some((scope, life)) = token.and_then(|token| control.tokens.find(token)) else {
        return Err(Problem::unauthorized(
            "this address needs a token of the service: set PANDO_TOKEN to what `pando token create` printed",
        ));
    };
    if let Some(mark) = request.extensions().get::<UnauthenticatedConnection>() {
        mark.note_token();
    }
    let path = request.uri().path().to_owned();
    let Some(allowed) = allowed(request.method(), &path) else {
        return Err(Problem::forbidden(format!(
            "{} {path} is not allowed with this token: it allows ps, inspect, stats, logs, kill, sleep and wake, for cells with {scope}",
            request.method()
        )));
    };
    match allowed {
        ControlRequest::Sum => return Ok(PermittedRequest::Answered(sum(control, scope).await?.into_response())),
        ControlRequest::List => {}
        ControlRequest::Cell { cell, rest } => {
            let found = control.manager.find_among(cell, |cell| scope.contains(cell.labels()))?;
            let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
            let uri: Uri = format!("/v1/cells/{}{rest}{query}", found.id()).parse().map_err(Problem::server)?;
            *request.uri_mut() = uri;
        }
    }
    request.extensions_mut().insert(scope);
    Ok(PermittedRequest::ForRoutes(request, life))
}

/// The request that a method and a path stand for, if tokens allow it.
fn allowed<'a>(method: &Method, path: &'a str) -> Option<ControlRequest<'a>> {
    let rest = path.strip_prefix("/v1")?;
    let is_read = method == Method::GET;
    match rest {
        "" => return is_read.then_some(ControlRequest::Sum),
        "/cells" => return is_read.then_some(ControlRequest::List),
        _ => {}
    }
    let named = rest.strip_prefix("/cells/")?;
    let (cell, rest) = named.split_at(named.find('/').unwrap_or(named.len()));
    let is_allowed = match rest {
        "" | "/output" => is_read,
        "/kill" | "/sleep" | "/wake" => method == Method::POST,
        _ => false,
    };
    is_allowed.then_some(ControlRequest::Cell { cell, rest })
}

/// The sum of the cells of a scope.
async fn sum(control: &Control, scope: Scope) -> Result<Json<api::CellTotals>, Problem> {
    let manager = Arc::clone(&control.manager);
    let permit = Arc::clone(&control.permits).acquire_owned().await.map_err(Problem::server)?;
    let sum = blocking(move || {
        let _permit = permit;
        Ok(manager.sum(|cell| scope.contains(cell.labels())))
    });
    let CellTotals { living, asleep, memory_bytes } = sum.await?;
    Ok(Json(api::CellTotals { version: env!("CARGO_PKG_VERSION").into(), running: living, asleep, memory_bytes }))
}

#[cfg(test)]
mod tests {
    use super::{ControlRequest, allowed};
    use axum::http::Method;

    #[test]
    fn a_token_allows_to_watch_and_end_cells_and_nothing_else() {
        let cell = |rest| Some(ControlRequest::Cell { cell: "web-1", rest });
        for (method, path, expected) in [
            (Method::GET, "/v1", Some(ControlRequest::Sum)),
            (Method::GET, "/v1/cells", Some(ControlRequest::List)),
            (Method::GET, "/v1/cells/web-1", cell("")),
            (Method::GET, "/v1/cells/web-1/output", cell("/output")),
            (Method::POST, "/v1/cells/web-1/kill", cell("/kill")),
            (Method::POST, "/v1/cells/web-1/sleep", cell("/sleep")),
            (Method::POST, "/v1/cells/web-1/wake", cell("/wake")),
        ] {
            assert_eq!(allowed(&method, path), expected, "{method} {path}");
        }
        for (method, path) in [
            (Method::POST, "/v1/cells"),
            (Method::POST, "/v1/run"),
            (Method::POST, "/v1/attach"),
            (Method::DELETE, "/v1/cells/web-1"),
            (Method::GET, "/v1/cells/web-1/kill"),
            (Method::GET, "/v1/cells/web-1/file"),
            (Method::PUT, "/v1/cells/web-1/file"),
            (Method::GET, "/v1/cells/web-1/changes"),
            (Method::GET, "/v1/cells/web-1/watch"),
            (Method::POST, "/v1/cells/web-1/exec"),
            (Method::POST, "/v1/cells/web-1/input"),
            (Method::POST, "/v1/cells/web-1/fork"),
            (Method::POST, "/v1/cells/web-1/freeze"),
            (Method::POST, "/v1/cells/web-1/kill/"),
            (Method::POST, "/v1/cells/web-1//kill"),
            (Method::GET, "/v1/cells/"),
            (Method::GET, "/v1/tokens"),
            (Method::POST, "/v1/tokens"),
            (Method::GET, "/v1/templates"),
            (Method::GET, "/v1/metrics"),
            (Method::GET, "/v1/openapi.json"),
            (Method::GET, "/v1/"),
            (Method::GET, "//v1"),
            (Method::GET, "/"),
        ] {
            let is_nameless = matches!(allowed(&method, path), Some(ControlRequest::Cell { cell: "", .. }));
            assert!(is_nameless || allowed(&method, path).is_none(), "{method} {path}");
        }
    }
}
