// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes about tokens for the control address.

use super::problem::Problem;
use super::request;
use super::tokens::Tokens;
use crate::api;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::{Extension, Json};
use std::sync::Arc;

/// Creates a token for the cells with all of these labels.
///
/// Its bearer may list, inspect, end, put to sleep and wake them, and read their output, at the control address. It is valid until it is
/// removed, or the service ends.
#[utoipa::path(post, path = "/v1/tokens", request_body = api::NewToken, responses((status = 201, body = api::CreatedToken), (status = "4XX", body = api::Problem)))]
pub(super) async fn make_token(
    Extension(tokens): Extension<Arc<Tokens>>,
    Json(new): Json<api::NewToken>,
) -> Result<(StatusCode, Json<api::CreatedToken>), Problem> {
    request::check_labels(&new.labels)?;
    Ok((StatusCode::CREATED, Json(tokens.create(new.labels)?)))
}

/// Lists the tokens, without the secrets themselves.
#[utoipa::path(get, path = "/v1/tokens", responses((status = 200, body = Vec<api::Token>)))]
pub(super) async fn tokens(Extension(tokens): Extension<Arc<Tokens>>) -> Json<Vec<api::Token>> {
    Json(tokens.list())
}

/// Removes a token: further requests with it are refused.
#[utoipa::path(delete, path = "/v1/tokens/{token}", params(("token" = u64, Path, description = "The token's number.")), responses((status = 204), (status = 404, body = api::Problem)))]
pub(super) async fn remove_token(Extension(tokens): Extension<Arc<Tokens>>, Path(token): Path<u64>) -> Result<StatusCode, Problem> {
    if tokens.remove(token) { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::no_such_token(token)) }
}
