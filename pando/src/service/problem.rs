// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of requests: an HTTP status, an error code for programs and a message for people.

use crate::{api, messages};
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pando_kernel::OperatorError;
use pando_launch::LaunchError;
use pando_manager::cells::ManagerError;
use pando_manager::network::NetworkError;
use pando_manager::template::TemplateError;
use pando_manager::view::ViewError;

/// Bytes of the longest error text that the HTTP library produces.
const REFUSAL_MAX: usize = 64 << 10;

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Problem {
    /// The request is invalid.
    pub(super) fn request(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::BAD_REQUEST, code: "bad-request", message: message.into() }
    }

    /// The request has no valid token.
    pub(super) fn unauthorized(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::UNAUTHORIZED, code: "unauthorized", message: message.into() }
    }

    /// The token does not allow the request.
    pub(super) fn forbidden(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::FORBIDDEN, code: "forbidden", message: message.into() }
    }

    /// There is no token with this number.
    pub(super) fn no_such_token(id: u64) -> Problem {
        let message = format!("no token has the number {id}: `pando token ls` lists them");
        Problem { status: StatusCode::NOT_FOUND, code: "no-such-token", message }
    }

    /// The client takes too long to send its request.
    pub(super) fn timeout(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::REQUEST_TIMEOUT, code: "timeout", message: message.into() }
    }

    /// The client sends too much.
    pub(super) fn too_large(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::PAYLOAD_TOO_LARGE, code: "too-large", message: message.into() }
    }

    /// The library that answers has refused a request before a handler saw it.
    fn refused(status: StatusCode, why: &str) -> Problem {
        let (status, code, message) = match status {
            StatusCode::NOT_FOUND => (status, "no-such-path", "no such path: GET /v1/openapi.json lists the paths".into()),
            StatusCode::METHOD_NOT_ALLOWED => {
                (status, "no-such-method", "no such method for this path: GET /v1/openapi.json lists the methods".into())
            }
            StatusCode::PAYLOAD_TOO_LARGE => (status, "too-large", why.into()),
            status if status.is_server_error() => (status, "server", why.into()),
            _ => (StatusCode::BAD_REQUEST, "bad-request", why.into()),
        };
        Problem { status, code, message }
    }

    /// The cell's state does not allow this.
    pub(super) fn state(message: impl Into<String>) -> Problem {
        Problem { status: StatusCode::CONFLICT, code: "wrong-state", message: message.into() }
    }

    /// Adds the output of a program before it failed.
    pub(super) fn with_output(self, output: &str) -> Problem {
        let output = output.trim_end();
        if output.is_empty() { self } else { Problem { message: format!("{}; its output:\n{output}", self.message), ..self } }
    }

    /// A file of a cell cannot be read or written.
    pub(super) fn file(path: &str) -> Problem {
        let message = format!("{path}: cannot be read or written in the cell");
        Problem { status: StatusCode::UNPROCESSABLE_ENTITY, code: "no-such-file", message }
    }

    /// An internal error.
    pub(super) fn server(message: impl std::fmt::Display) -> Problem {
        Problem { status: StatusCode::INTERNAL_SERVER_ERROR, code: "server", message: message.to_string() }
    }
}

/// The advice about a template whose files cannot be shown.
fn hint(error: &TemplateError) -> String {
    match error {
        TemplateError::View(ViewError::Program(_) | ViewError::ContainerImage(_) | ViewError::NoCommand(_) | ViewError::User { .. }) => {
            return String::new();
        }
        TemplateError::View(_) | TemplateError::Changed(_) => {}
        _ => return String::new(),
    }
    format!(
        "; this service can show only what it was started with (--show DIR, and the files of the templates that existed then): stop it (`kill {}`) and start `pando serve` again",
        std::process::id()
    )
}

fn of_template(error: &TemplateError) -> (StatusCode, &'static str) {
    match error {
        TemplateError::Missing(_) => (StatusCode::NOT_FOUND, "no-such-template"),
        TemplateError::Exists(_) => (StatusCode::CONFLICT, "template-exists"),
        TemplateError::Changed(_)
        | TemplateError::ChangedFile { .. }
        | TemplateError::FileOfSession { .. }
        | TemplateError::ImageMissing { .. }
        | TemplateError::NoRecipe(_)
        | TemplateError::Foreign(_)
        | TemplateError::Store(_) => (StatusCode::CONFLICT, "unusable-template"),
        TemplateError::NotReady { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "not-ready"),
        TemplateError::NotUtf8(_) => (StatusCode::UNPROCESSABLE_ENTITY, "cannot-be-shown"),
        TemplateError::View(error) => of_view(error),
        TemplateError::Launch(error) => of_launch(error),
        TemplateError::NoDirectory | TemplateError::File { .. } | TemplateError::Output(_) => (StatusCode::INTERNAL_SERVER_ERROR, "server"),
    }
}

fn of_view(error: &ViewError) -> (StatusCode, &'static str) {
    let code = if matches!(error, ViewError::Program(_)) { "no-such-program" } else { "cannot-be-shown" };
    (StatusCode::UNPROCESSABLE_ENTITY, code)
}

fn of_launch(error: &LaunchError) -> (StatusCode, &'static str) {
    match error {
        LaunchError::Kernel(error) => of_kernel(error),
        LaunchError::Nested(_) => (StatusCode::SERVICE_UNAVAILABLE, "machine-full"),
        LaunchError::CellEnded => (StatusCode::CONFLICT, "wrong-state"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "bad-request"),
    }
}

fn of_kernel(error: &OperatorError) -> (StatusCode, &'static str) {
    match error {
        OperatorError::Shortage(_)
        | OperatorError::TooManyCells
        | OperatorError::TooManyDisks
        | OperatorError::TooManyNetworks
        | OperatorError::NoAddress => (StatusCode::SERVICE_UNAVAILABLE, "machine-full"),
        OperatorError::QuotaTooSmall(_) => (StatusCode::BAD_REQUEST, "bad-request"),
        OperatorError::NoSuchCell(_) | OperatorError::Ended { .. } | OperatorError::WrongState(_) => (StatusCode::CONFLICT, "wrong-state"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "server"),
    }
}

impl From<ManagerError> for Problem {
    fn from(error: ManagerError) -> Problem {
        let (status, code) = match &error {
            ManagerError::MemoryFull(_) | ManagerError::TooManyFiles => (StatusCode::SERVICE_UNAVAILABLE, "machine-full"),
            ManagerError::NoVirtualHosts => (StatusCode::SERVICE_UNAVAILABLE, "no-gateway"),
            ManagerError::TwoNetworks => (StatusCode::BAD_REQUEST, "bad-request"),
            ManagerError::NoGateway(_) => (StatusCode::SERVICE_UNAVAILABLE, "no-gateway"),
            ManagerError::NotInside(_) | ManagerError::UnsupportedInCell(_) => (StatusCode::UNPROCESSABLE_ENTITY, "not-in-a-cell"),
            ManagerError::NoSuchCell(_) => (StatusCode::NOT_FOUND, "no-such-cell"),
            ManagerError::NoSuchProgram { .. } => (StatusCode::NOT_FOUND, "no-such-job"),
            ManagerError::NameInUse { .. } => (StatusCode::CONFLICT, "name-in-use"),
            ManagerError::Ended { .. }
            | ManagerError::NotFrozen { .. }
            | ManagerError::NotIdle { .. }
            | ManagerError::CannotSleep { .. }
            | ManagerError::NotPossible { .. } => (StatusCode::CONFLICT, "wrong-state"),
            ManagerError::Template(error) | ManagerError::Creation { error, .. } => of_template(error),
            ManagerError::Launch(error) | ManagerError::Network(NetworkError::Launch(error)) => of_launch(error),
            ManagerError::Network(NetworkError::NotListening(_)) => (StatusCode::CONFLICT, "port-unavailable"),
            ManagerError::Network(_)
            | ManagerError::Machine(_)
            | ManagerError::Swap { .. }
            | ManagerError::Thread(_)
            | ManagerError::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "server"),
        };
        let hint = match &error {
            ManagerError::Template(error) | ManagerError::Creation { error, .. } => hint(error),
            _ => String::new(),
        };
        Problem { status, code, message: format!("{}{hint}", messages::manager(&error)) }
    }
}

impl From<TemplateError> for Problem {
    fn from(error: TemplateError) -> Problem {
        ManagerError::from(error).into()
    }
}

/// Turns every error answer into a problem, also those of the HTTP library.
pub(super) async fn convert_errors(answer: Response) -> Response {
    let is_problem = answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if is_problem || !(answer.status().is_client_error() || answer.status().is_server_error()) {
        return answer;
    }
    let (head, body) = answer.into_parts();
    let why = axum::body::to_bytes(body, REFUSAL_MAX).await.unwrap_or_default();
    let mut problem = Problem::refused(head.status, &String::from_utf8_lossy(&why)).into_response();
    problem.headers_mut().extend(head.headers.get(header::ALLOW).map(|methods| (header::ALLOW, methods.clone())));
    problem
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, code, message } = self;
        (status, Json(api::Problem { problem: code.into(), message })).into_response()
    }
}
