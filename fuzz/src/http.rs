// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bodies of requests to `pando serve`. The types are those of the command line, which is no library: their file is read here a second time.

#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../pando/src/api.rs"]
mod api;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A body, read as each of the requests that have one. What is understood is said again, and understood again as the same.
pub fn http(data: &[u8]) {
    again::<api::NewTemplate>(data);
    again::<api::NewCell>(data);
    again::<api::NewJob>(data);
    again::<api::Freeze>(data);
    if let Ok(text) = serde_json::from_slice::<api::Text>(data)
        && let Some(bytes) = text.bytes()
    {
        assert_eq!(api::Text::of(bytes.clone()).bytes(), Some(bytes));
    }
}

fn again<T: DeserializeOwned + Serialize>(data: &[u8]) {
    let Ok(asked) = serde_json::from_slice::<T>(data) else { return };
    let said = serde_json::to_vec(&asked).expect("what was read can be said");
    let heard: T = serde_json::from_slice(&said).expect("what is said is understood");
    assert_eq!(serde_json::to_vec(&heard).expect("what was read can be said"), said);
}
