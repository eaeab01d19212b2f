// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tokens: credentials that allow to watch and end some of the cells, chosen by their labels. They are gone with the service.

use super::problem::Problem;
use crate::api;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::watch;

/// The most tokens of a service.
const TOKENS_MAX: usize = 1024;
/// Bytes of a token before it is encoded.
const TOKEN_BYTES: usize = 32;

/// The cells that a token is for: those with all of these labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope(BTreeMap<String, String>);

impl Scope {
    /// Whether cells with these labels belong to it.
    pub(super) fn contains(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let labels: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        formatter.write_str(&labels.join(", "))
    }
}

/// A token's hash: the token itself is not kept, and a look-up tells nothing about it by its duration.
type TokenHash = [u8; blake3::OUT_LEN];

/// A token of the service.
struct TokenEntry {
    id: u64,
    scope: Scope,
    /// Dropped with the token.
    life: watch::Sender<()>,
}

/// The life of a token: it lasts until the token is removed.
pub(super) struct TokenLife(watch::Receiver<()>);

impl TokenLife {
    /// Waits until the token is removed.
    pub(super) async fn end(mut self) {
        // Nothing is ever sent.
        while self.0.changed().await.is_ok() {}
    }
}

#[derive(Default)]
struct TokenTable {
    next: u64,
    entries: HashMap<TokenHash, TokenEntry>,
}

/// All tokens.
#[derive(Default)]
pub(super) struct Tokens(Mutex<TokenTable>);

impl Tokens {
    fn lock(&self) -> MutexGuard<'_, TokenTable> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// Creates a token for the cells with these labels.
    ///
    /// # Errors
    /// There are no labels, or there are too many tokens.
    pub(super) fn create(&self, labels: BTreeMap<String, String>) -> Result<api::CreatedToken, Problem> {
        if labels.is_empty() {
            return Err(Problem::request("labels: a token is for the cells with certain labels: give at least one"));
        }
        let token = random().map_err(Problem::server)?;
        let mut table = self.lock();
        if table.entries.len() >= TOKENS_MAX {
            return Err(Problem::request(format!("a service can have {TOKENS_MAX} tokens: remove some (`pando token rm`)")));
        }
        table.next += 1;
        let id = table.next;
        let entry = TokenEntry { id, scope: Scope(labels), life: watch::channel(()).0 };
        table.entries.insert(*blake3::hash(token.as_bytes()).as_bytes(), entry);
        Ok(api::CreatedToken { id, token })
    }

    /// The cells that a token is for, and how long it lasts. `None`: there is no such token.
    pub(super) fn find(&self, token: &str) -> Option<(Scope, TokenLife)> {
        let table = self.lock();
        let entry = table.entries.get(blake3::hash(token.as_bytes()).as_bytes())?;
        Some((entry.scope.clone(), TokenLife(entry.life.subscribe())))
    }

    /// All tokens, in the order of their creation.
    pub(super) fn list(&self) -> Vec<api::Token> {
        let mut tokens: Vec<api::Token> =
            self.lock().entries.values().map(|entry| api::Token { id: entry.id, labels: entry.scope.0.clone() }).collect();
        tokens.sort_unstable_by_key(|token| token.id);
        tokens
    }

    /// Removes a token. Answers that its clients still receive end. `false`: there is none.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut table = self.lock();
        let before = table.entries.len();
        table.entries.retain(|_, entry| entry.id != id);
        table.entries.len() < before
    }
}

/// A random token, in hexadecimal.
fn random() -> Result<String, Errno> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::Tokens;
    use std::collections::BTreeMap;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_token_is_for_the_cells_that_have_all_its_labels() {
        let tokens = Tokens::default();
        let created = tokens.create(labels(&[("project", "a"), ("tier", "web")])).expect("there is room");
        let (scope, _) = tokens.find(&created.token).expect("it exists");
        assert!(scope.contains(&labels(&[("project", "a"), ("tier", "web"), ("other", "x")])));
        for others in [&[][..], &[("project", "a")], &[("project", "b"), ("tier", "web")], &[("project", "a"), ("tier", "")]] {
            assert!(!scope.contains(&labels(others)), "{others:?}");
        }
        assert!(tokens.create(labels(&[])).is_err(), "it would be for all cells");
    }

    #[test]
    fn a_removed_token_and_a_part_of_one_are_for_nothing() {
        let tokens = Tokens::default();
        let [one, other] = [(); 2].map(|()| tokens.create(labels(&[("project", "a")])).expect("there is room"));
        assert_ne!(one.token, other.token);
        for wrong in ["", "x", &one.token[1..], &one.token.to_uppercase(), &format!("{} ", one.token)] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
        assert!(tokens.remove(one.id) && !tokens.remove(one.id));
        assert!(tokens.find(&one.token).is_none() && tokens.find(&other.token).is_some());
        assert_eq!(tokens.list().iter().map(|token| token.id).collect::<Vec<_>>(), [other.id]);
        let more = (0..).take_while(|_| tokens.create(labels(&[("project", "a")])).is_ok()).count();
        assert_eq!(more, super::TOKENS_MAX - 1);
    }
}
