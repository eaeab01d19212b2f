// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images made of an image and changes of its files, as `docker commit` makes them.

use crate::config::ImageConfig;
use crate::error::Error;
use crate::import::ConfigChange;
use crate::layer::LayerArchive;
use crate::load::{LoadProgress, LoadedImage};
use crate::names::ImageName;
use crate::store::ImageStore;
use serde_json::{Map, Value, json};
use std::io::Read;

/// The description of a new image.
#[derive(Clone, Debug, Default)]
pub struct Commit<'a> {
    /// When it was made, as RFC 3339 writes it.
    pub created: String,
    /// A sentence about it.
    pub message: Option<&'a str>,
    /// Its author.
    pub author: Option<&'a str>,
    /// Changes of the configuration.
    pub changes: &'a [ConfigChange],
}

impl ImageStore {
    /// Makes an image of an image and a layer above it: a tar archive with whiteouts. The configuration is that of the image, with changes.
    /// `source` stands in errors.
    ///
    /// # Errors
    /// There is no such image, it has the maximal number of layers, the archive is damaged, or the store cannot be written.
    pub fn commit(
        &self,
        source: &str,
        base: &str,
        archive: impl Read,
        name: &ImageName,
        commit: &Commit<'_>,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedImage, Error> {
        // Held, so that its layers stay.
        let base = self.open(base)?;
        let raw = self.raw_config(base.image.id)?;
        let scratch = self.scratch()?;
        let _lock = self.lock_layers()?;
        let layers = base.layers.len() + 1;
        let layer = LayerArchive { source, name: "changes", digest: None, size: None, diff_id: None };
        let mut progress = |bytes| progress(LoadProgress { layer: layers, layers, bytes });
        let layer = layer.store(archive, &|digest| self.layer_path(digest), &scratch, &mut progress)?;
        let config: Value = serde_json::from_slice(&raw).map_err(|error| Error::damaged(source, error.to_string()))?;
        let config = changed(config, &layer.to_string(), commit).ok_or_else(|| Error::damaged(source, "its configuration is no object"))?;
        let config = serde_json::to_vec(&config).unwrap_or_default();
        ImageConfig::read(&config, source)?;
        let id = self.record(&config, std::slice::from_ref(name))?;
        Ok(LoadedImage { id, names: vec![name.clone()] })
    }
}

/// The configuration of an image with one more layer. `None`: it has not the form of one.
fn changed(mut config: Value, layer: &str, commit: &Commit<'_>) -> Option<Value> {
    let Commit { created, message, author, changes } = commit;
    let all = config.as_object_mut()?;
    let mut history = Map::from_iter([("created".into(), json!(created)), ("created_by".into(), json!("pando commit"))]);
    history.extend(message.map(|message| ("comment".into(), json!(message))));
    if let Some(author) = author {
        history.insert("author".into(), json!(author));
        all.insert("author".into(), json!(author));
    }
    all.insert("created".into(), json!(created));
    if let Value::Array(entries) = all.entry("history").or_insert(json!([])) {
        entries.push(history.into());
    }
    all.get_mut("rootfs")?.get_mut("diff_ids")?.as_array_mut()?.push(json!(layer));
    let run = all.entry("config").or_insert(json!({}));
    if run.is_null() {
        *run = json!({});
    }
    let run = run.as_object_mut()?;
    changes.iter().for_each(|change| change.apply(run));
    Some(config)
}
