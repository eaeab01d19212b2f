// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logins of registries: challenges, and tokens for one repository.

use super::Credentials;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use ureq::Agent;

/// Maximal bytes of an answer with a token.
const TOKEN_MAX: u64 = 1 << 20;

/// The kind of login that a registry wants (`WWW-Authenticate`, RFC 9110).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token from another place.
    Bearer(Bearer),
}

/// Where to get a token, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bearer {
    pub(super) realm: String,
    service: Option<String>,
    pub(super) scope: Option<String>,
}

/// An answer with a token; registries use either name.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Challenge {
    /// Reads the header; `None` if it is of another kind or not valid.
    pub(super) fn parse(header: &str) -> Option<Challenge> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut bearer = Bearer::default();
        for (name, value) in parameters(rest) {
            match &name.to_ascii_lowercase()[..] {
                "realm" => bearer.realm = value,
                "service" => bearer.service = Some(value),
                "scope" => bearer.scope = Some(value),
                _ => {}
            }
        }
        (!bearer.realm.is_empty()).then_some(Challenge::Bearer(bearer))
    }
}

/// The parameters of a challenge: `NAME="VALUE"` or `NAME=VALUE`, with commas between them.
fn parameters(mut text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Some((name, rest)) = text.trim_start_matches([' ', ',']).split_once('=') {
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        found.push((name.trim().to_string(), value.trim().to_string()));
        text = rest;
    }
    found
}

/// The header of a name and a password.
pub(super) fn basic(Credentials { user, password }: &Credentials) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

impl Bearer {
    /// Gets a token for a scope. The error is a sentence.
    pub(super) fn token(&self, agent: &Agent, scope: &str, credentials: Option<&Credentials>) -> Result<String, String> {
        let mut request = agent.get(&self.realm).query("scope", scope);
        if let Some(service) = &self.service {
            request = request.query("service", service);
        }
        if let Some(credentials) = credentials {
            request = request.header("authorization", basic(credentials));
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("{} answers {}", self.realm, answer.status()));
        }
        let bytes = answer.body_mut().with_config().limit(TOKEN_MAX).read_to_vec().map_err(|error| error.to_string())?;
        let read: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| "the answer is not valid".to_string())?;
        let token = read.token.or(read.access_token).filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        token.ok_or_else(|| "the answer has no token".into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Bearer, Challenge};

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let header = r#"Bearer realm="https://example.org/token?a=b",service="registry, x",scope="repository:a/b:pull,push""#;
        let bearer = Bearer {
            realm: "https://example.org/token?a=b".into(),
            service: Some("registry, x".into()),
            scope: Some("repository:a/b:pull,push".into()),
        };
        assert_eq!(Challenge::parse(header), Some(Challenge::Bearer(bearer)));
        assert_eq!(Challenge::parse("Basic realm=\"x\""), Some(Challenge::Basic));
        for header in ["", "Bearer", "Bearer realm=\"\"", "Negotiate abc", "Bearer =,=,=\"", "Bearer realm"] {
            assert_eq!(Challenge::parse(header), None, "{header}");
        }
    }
}
