// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens for the control address, and what their bearers see.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A token to create.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The labels of the cells that it is for: at least one. Cells with all of them belong to it.
    pub labels: BTreeMap<String, String>,
}

/// A token that was created: the only answer with the secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Its number, to remove it by.
    pub id: u64,
    /// The token. It is not shown again.
    pub token: String,
}

/// A token, without the secret itself.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its number.
    pub id: u64,
    /// The labels of the cells that it is for.
    pub labels: BTreeMap<String, String>,
}

/// The cells of a token, together: the answer to `GET /v1` at the control address.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CellTotals {
    /// The version of the service.
    pub version: String,
    /// Cells that have not ended.
    pub running: usize,
    /// Those of them that sleep.
    pub asleep: usize,
    /// Their private memory in bytes.
    pub memory_bytes: u64,
}
