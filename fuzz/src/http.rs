// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of requests to `pando serve`, in the types that it reads them with.

use pando::api;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Parses a body as each request type that has one. A parsed body is serialised and parsed again, which must give the same.
pub fn http(data: &[u8]) {
    again::<api::NewTemplate>(data);
    again::<api::NewCell>(data);
    again::<api::NewJob>(data);
    again::<api::Freeze>(data);
    if let Ok(text) = serde_json::from_slice::<api::TextOrBytes>(data)
        && let Some(bytes) = text.bytes()
    {
        assert_eq!(api::TextOrBytes::of(bytes.clone()).bytes(), Some(bytes));
    }
}

fn again<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok(asked) = serde_json::from_slice::<T>(data) else { return };
    let said = serde_json::to_vec(&asked).expect("what was read can be said");
    let heard: T = serde_json::from_slice(&said).expect("what is said is understood");
    assert_eq!(serde_json::to_vec(&heard).expect("what was read can be said"), said);
}
