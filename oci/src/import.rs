// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of root file systems in plain archives, as `docker import` makes them.

use crate::config::{ImageConfig, PLATFORM};
use crate::error::Error;
use crate::layer::LayerArchive;
use crate::load::{LoadProgress, LoadedImage};
use crate::names::ImageName;
use crate::store::ImageStore;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::str::FromStr;

/// A change of a configuration, in the words of a Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// The key in the configuration.
    key: &'static str,
    value: ChangeValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChangeValue {
    /// Replaces the value.
    Text(String),
    /// Replaces the list.
    Words(Vec<String>),
    /// Sets a variable of the list.
    Line(String),
    /// Adds keys without values.
    Keys(Vec<String>),
    /// Adds a pair.
    Pair(String, String),
}

impl FromStr for ConfigChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ConfigChange, String> {
        let (word, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        if rest.is_empty() {
            return Err(format!("`{text}` has no value: give for example 'CMD [\"/bin/sh\"]'"));
        }
        let pair = || {
            let pair = rest.split_once('=').or_else(|| rest.split_once(char::is_whitespace));
            pair.map(|(name, value)| (name.to_string(), unquoted(value))).ok_or_else(|| format!("`{rest}` is not NAME=VALUE"))
        };
        let keys = || ChangeValue::Keys(rest.split_whitespace().map(Into::into).collect());
        let (key, value) = match &word.to_ascii_uppercase()[..] {
            "CMD" => ("Cmd", ChangeValue::Words(command(rest)?)),
            "ENTRYPOINT" => ("Entrypoint", ChangeValue::Words(command(rest)?)),
            "ENV" => ("Env", pair().map(|(name, value)| ChangeValue::Line(format!("{name}={value}")))?),
            "EXPOSE" => ("ExposedPorts", keys()),
            "LABEL" => ("Labels", pair().map(|(name, value)| ChangeValue::Pair(name, value))?),
            "STOPSIGNAL" => ("StopSignal", ChangeValue::Text(rest.into())),
            "USER" => ("User", ChangeValue::Text(rest.into())),
            "VOLUME" => ("Volumes", keys()),
            "WORKDIR" => ("WorkingDir", ChangeValue::Text(rest.into())),
            word => {
                return Err(format!(
                    "`{word}` is not supported: give CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR"
                ));
            }
        };
        Ok(ConfigChange { key, value })
    }
}

/// A command: a JSON array, or a line for the shell.
fn command(text: &str) -> Result<Vec<String>, String> {
    if text.starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("`{text}` is not an array of strings: {error}"));
    }
    Ok(vec!["/bin/sh".into(), "-c".into(), text.into()])
}

/// A value without the quotes around it.
fn unquoted(text: &str) -> String {
    let inner = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inner.unwrap_or(text).into()
}

/// A value, or this one in place of null.
fn not_null(value: &mut Value, empty: Value) -> &mut Value {
    if value.is_null() {
        *value = empty;
    }
    value
}

impl ConfigChange {
    pub(crate) fn apply(&self, config: &mut Map<String, Value>) {
        let entry = config.entry(self.key);
        match &self.value {
            ChangeValue::Text(text) => *entry.or_insert(Value::Null) = json!(text),
            ChangeValue::Words(words) => *entry.or_insert(Value::Null) = json!(words),
            ChangeValue::Line(line) => {
                if let Value::Array(lines) = not_null(entry.or_insert(Value::Null), json!([])) {
                    let name = line.split('=').next().unwrap_or_default();
                    let has_name =
                        |other: &Value| other.as_str().and_then(|other| other.strip_prefix(name)).is_some_and(|rest| rest.starts_with('='));
                    lines.retain(|other| !has_name(other));
                    lines.push(json!(line));
                }
            }
            ChangeValue::Keys(keys) => {
                if let Value::Object(all) = not_null(entry.or_insert(Value::Null), json!({})) {
                    all.extend(keys.iter().map(|key| (key.clone(), json!({}))));
                }
            }
            ChangeValue::Pair(name, value) => {
                if let Value::Object(all) = not_null(entry.or_insert(Value::Null), json!({})) {
                    all.insert(name.clone(), json!(value));
                }
            }
        }
    }
}

impl ImageStore {
    /// Makes an image of a root file system: a tar archive, which may be compressed with gzip or zstd. The same archive with the same
    /// changes gives the same image. `source` stands in errors.
    ///
    /// # Errors
    /// The archive is damaged, or the store cannot be written.
    pub fn import(
        &self,
        source: &str,
        stream: impl Read,
        name: &ImageName,
        changes: &[ConfigChange],
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedImage, Error> {
        let scratch = self.scratch()?;
        let _lock = self.lock_layers()?;
        let archive = LayerArchive { source, name: "root", digest: None, size: None, diff_id: None };
        let mut progress = |bytes| progress(LoadProgress { layer: 1, layers: 1, bytes });
        let layer = archive.store(stream, &|digest| self.layer_path(digest), &scratch, &mut progress)?;
        let mut config = Map::new();
        changes.iter().for_each(|change| change.apply(&mut config));
        let (os, architecture) = PLATFORM;
        let config = json!({
            "architecture": architecture, "os": os, "config": config,
            "rootfs": { "type": "layers", "diff_ids": [layer.to_string()] },
        });
        let config = serde_json::to_vec(&config).unwrap_or_default();
        ImageConfig::read(&config, source)?;
        let id = self.record(&config, std::slice::from_ref(name))?;
        Ok(LoadedImage { id, names: vec![name.clone()] })
    }
}
