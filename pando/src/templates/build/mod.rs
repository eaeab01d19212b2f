// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template build`: templates of recipes. The steps run in a cell, whose files become an image, or which is frozen itself.
//!
//! The Python client builds its recipes by this command, too.

mod cell;
mod copies;
mod own_service;
mod recipe;
mod report;

use crate::api::{NewCell, NewTemplate, Template};
use crate::client;
use crate::completion;
use crate::connection::{Client, wait_for};
use crate::failure::Failure;
use crate::{environment, nested, pull};
use cell::BuildCell;
use clap::Args;
use clap_complete::ArgValueCandidates;
use hyper::Method;
use own_service::BuildService;
use pando_manager::template::{PYTHON_TRAINING, TemplateError, TemplateName, TemplateRef, TemplateStore};
use pando_manager::view::image_store;
use pando_oci::{ConfigChange, ImageName};
use recipe::{INTERPRETER, Recipe, StepProgram};
use report::BuildReport;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The session finds what was installed after it had started.
const LOAD: &str = "
def load(modules):
    import importlib, os, site, sys
    for place in site.getsitepackages():
        if place not in sys.path and os.path.isdir(place):
            site.addsitedir(place)
    importlib.invalidate_caches()
    for module in modules:
        __import__(module)
";
/// The context of the session in which this runs: its names are not those of later code.
const CONTEXT: &str = "build";
/// The program of images' templates.
const PROGRAM: [&str; 3] = ["python3", "-m", "pando"];

/// The advice about steps that reach public addresses only.
const PUBLIC_ONLY: &str =
    "; its steps reach public addresses only: if a mirror of packages has a private one, name it: allow = [\"HOST/private:443\"]";

/// Options of `pando template build`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BuildOptions {
    /// The recipe: a file of TOML, or `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", default_value = "pando.toml")]
    file: PathBuf,

    /// Build the template again, even if there is one of the same recipe
    #[arg(long)]
    force: bool,

    /// Replace a template of this name that no recipe has made
    #[arg(long)]
    replace: bool,

    /// Print the output of the steps and the template's name as JSON, one object per line
    #[arg(long)]
    json: bool,

    /// The template's name [default: one with the digest of the recipe, which is printed]
    #[arg(add = ArgValueCandidates::new(completion::templates))]
    name: Option<TemplateName>,
}

/// Builds the template of a recipe, unless there is one.
///
/// # Errors
/// The recipe is wrong, a step fails, or the service refuses.
pub(super) fn build(options: &BuildOptions) -> Result<u8, Failure> {
    let BuildOptions { file, force, replace, json, name } = options;
    let is_nested = nested::device()?.is_some();
    if is_nested && name.is_some() {
        return Err(Failure::NotInside("NAME"));
    }
    let mut recipe = Recipe::read(file).map_err(|reason| Failure::Recipe { path: file.clone(), reason })?;
    recipe.created = if is_nested || recipe.image.is_some() { None } else { created(&recipe.template)? };
    let image = recipe.image.as_deref().map(image_id).transpose()?;
    let built = recipe.name(image.as_deref()).map_err(|source| Failure::Copy { path: file.clone(), source })?;
    let report = BuildReport { json: *json };
    let stdin_is_terminal = if is_nested { is_in_service(&built)? } else { is_usable(&built)? };
    if *force || !stdin_is_terminal {
        let source = recipe.image.as_ref().map_or_else(|| "this host's Python".into(), |image| format!("the image {image}"));
        report.building(&built.to_string(), &source)?;
        let service = BuildService::find(!recipe.allowed().is_empty())?;
        let builder = Builder { recipe: &recipe, client: &service.client, report };
        wait_for(async {
            match &image {
                Some(image) => builder.build_from_image(image, &built).await,
                None => builder.build_from_session(&built).await,
            }
        })?;
    }
    if let Some(name) = name {
        give_name(&built, name, *replace)?;
    }
    report.done(&name.as_ref().unwrap_or(&built).to_string())?;
    Ok(0)
}

/// The ID of an image, which is pulled if the store does not have it.
fn image_id(name: &str) -> Result<String, Failure> {
    let store = image_store(&environment::caller())?;
    let found = match store.find(name) {
        Err(pando_oci::Error::Missing(_)) => {
            let name: ImageName = name.parse()?;
            pull::pull_image(&name)?.id
        }
        found => found?.id,
    };
    Ok(found.to_string())
}

/// When a template was created; `None` for a built-in one, and for one that does not exist yet.
fn created(name: &str) -> Result<Option<u64>, Failure> {
    let Ok(name) = name.parse() else { return Ok(None) };
    let found = super::store()?.open(&TemplateRef::Stored(name));
    Ok(found.ok().map(|template| template.manifest().clone()).filter(|manifest| !manifest.standard).map(|manifest| manifest.created))
}

/// Whether there is a template that can be cloned and sees what the host has now.
fn is_usable(name: &TemplateName) -> Result<bool, Failure> {
    let caller = environment::caller();
    let template = TemplateStore::of(&caller)?.open(&TemplateRef::Stored(name.clone()));
    let found = template.and_then(|template| {
        template.check_host(&caller)?;
        template.find(&caller).map(drop)
    });
    match found {
        Ok(()) => Ok(true),
        Err(TemplateError::File { path, source }) => Err(TemplateError::File { path, source }.into()),
        Err(_) => Ok(false),
    }
}

/// Whether the service of this cell has a template.
fn is_in_service(name: &TemplateName) -> Result<bool, Failure> {
    match wait_for(Client::find_or_fail()?.get::<Template>(&format!("/v1/templates/{name}"))) {
        Ok(_) => Ok(true),
        Err(Failure::Refused { problem, .. }) if problem == "no-such-template" => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a template another name: both share its file.
fn give_name(built: &TemplateName, name: &TemplateName, replaces: bool) -> Result<(), Failure> {
    let store = super::store()?;
    let file = store.file(name);
    let failed = |source| Failure::File { path: file.clone(), source };
    // A template that was made by a recipe may be replaced by that of its new version.
    let is_of_recipe = store.open(&TemplateRef::Stored(name.clone())).is_ok_and(|template| Recipe::is_name(template.name()));
    store.check_free(name, replaces || is_of_recipe)?;
    let place = tempfile::Builder::new().prefix(".pando-").tempdir_in(store.directory()).map_err(failed)?;
    let link = place.path().join("link");
    // A link to the same file is not moved, and is removed with its directory.
    store.replace(name, 1, || std::fs::hard_link(store.file(built), &link).and_then(|()| std::fs::rename(&link, &file)).map_err(failed))
}

/// A build.
struct Builder<'a> {
    recipe: &'a Recipe,
    client: &'a Client,
    report: BuildReport,
}

impl Builder<'_> {
    /// Runs the steps in a session of Python, and freezes it.
    async fn build_from_session(&self, name: &TemplateName) -> Result<(), Failure> {
        let Recipe { template, env, preload, .. } = self.recipe;
        let mut cell = BuildCell::start(self.client, &NewCell { template: template.clone(), ..self.cell() }).await?;
        let found: Template = self.client.get(&format!("/v1/templates/{template}")).await?;
        self.carry_out_steps(&cell, found.arguments.first().map_or(PROGRAM[0], String::as_str)).await?;
        self.check_files(None, name)?;
        let step = self.begin_preload()?;
        // A text of JSON is a literal of Python, too.
        let variables = json!(json!(env).to_string());
        let code = format!("import json, os\nos.environ.update(json.loads({variables}))\n{LOAD}\nload({})", json!(preload));
        let context = json!({ "id": CONTEXT, "language": "python", "cwd": null });
        let failed = cell.ask_session(json!({ "code": code, "context": context }), &self.report).await?;
        self.expect(&step, failed)?;
        let failed = cell.ask_session(json!({ "remove": CONTEXT }), &self.report).await?;
        self.expect(&step, failed)?;
        cell.freeze(name.to_string()).await
    }

    /// Runs the steps in a cell of the image, makes an image of its files, and a template of that.
    async fn build_from_image(&self, image: &str, name: &TemplateName) -> Result<(), Failure> {
        let Recipe { env, preload, memory, .. } = self.recipe;
        let request = NewCell {
            image: Some(image.into()),
            entrypoint: Some("/bin/sh".into()),
            // It waits for input that does not come.
            arguments: vec!["-c".into(), "read _".into()],
            environment: env.clone(),
            user: Some("0:0".into()),
            ..self.cell()
        };
        let cell = BuildCell::start(self.client, &request).await?;
        self.carry_out_steps(&cell, PROGRAM[0]).await?;
        self.check_files(Some(image), name)?;
        let tag = name.to_string().split_off("recipe-".len());
        let made: ImageName = format!("localhost/pando-recipe:{tag}").parse()?;
        // The template's program is not an argument of the image's entrypoint.
        let mut changes: Vec<ConfigChange> = vec![change("ENTRYPOINT []".into())?];
        for (variable, value) in env {
            // One pair of quotes is removed.
            changes.push(change(format!("ENV {variable}=\"{value}\""))?);
        }
        let (client, number, image) = (self.client.clone(), cell.number().to_owned(), made.clone());
        // It has connections and threads of its own.
        let committed =
            tokio::task::spawn_blocking(move || client::make_image(client, &number, Some("a recipe"), None, changes, &image).map(drop));
        committed.await.map_err(|error| Failure::ConnectionLost(std::io::Error::other(error)))??;
        drop(cell);
        let modules = [("PANDO_PRELOAD".to_owned(), preload.join(" "))];
        let template = NewTemplate {
            name: name.to_string(),
            arguments: PROGRAM.map(str::to_owned).into(),
            image: Some(made.whole()),
            environment: modules.into(),
            memory: Some(memory.clone()),
            train_arguments: vec![PYTHON_TRAINING.into()],
            replace: true,
            ..NewTemplate::default()
        };
        self.begin_preload()?;
        let _: Template = self.client.request(Method::POST, "/v1/templates", &template).await?;
        Ok(())
    }

    /// Reports that modules are loaded, if there are any. Returns the name of the step.
    fn begin_preload(&self) -> Result<String, Failure> {
        let step = format!("preload {}", self.recipe.preload.join(" "));
        if !self.recipe.preload.is_empty() {
            self.report.step(&step)?;
        }
        Ok(step)
    }

    /// The part that all requests for a cell have in common.
    fn cell(&self) -> NewCell {
        let Recipe { memory, timeout, .. } = self.recipe;
        NewCell { memory: Some(memory.clone()), timeout: Some(*timeout), allow: self.recipe.allowed(), ..NewCell::default() }
    }

    /// Carries out the steps, one after the other.
    async fn carry_out_steps(&self, cell: &BuildCell<'_>, python: &str) -> Result<(), Failure> {
        for StepProgram { text, words, environment, copies } in self.recipe.programs() {
            self.report.step(&text)?;
            for (local, path) in &copies {
                let files = copies::walk(local, path).map_err(|source| Failure::Copy { path: local.clone(), source })?;
                let failed = cell.copy(&files, &self.report).await?;
                self.expect(&text, failed)?;
            }
            if words.is_empty() {
                continue;
            }
            let words = words.into_iter().map(|word| if word == INTERPRETER { python.to_owned() } else { word }).collect();
            let variables = self.recipe.env.clone().into_iter().chain(environment).collect();
            let failed = cell.execute(words, variables, &self.report).await?;
            self.expect(&text, failed)?;
        }
        Ok(())
    }

    /// Checks that the files which the steps have copied are those that the name was made of.
    fn check_files(&self, image: Option<&str>, name: &TemplateName) -> Result<(), Failure> {
        let path = || Path::new("copy").into();
        match self.recipe.name(image) {
            Ok(now) if now == *name => Ok(()),
            Ok(_) => Err(Failure::Recipe { path: path(), reason: "files have changed during the build: build again".into() }),
            Err(source) => Err(Failure::Copy { path: path(), source }),
        }
    }

    /// Turns the reason why a step has failed into an error.
    fn expect(&self, step: &str, failed: Option<String>) -> Result<(), Failure> {
        let advice = if self.recipe.reaches_public_only() { PUBLIC_ONLY } else { "" };
        failed.map_or(Ok(()), |reason| Err(Failure::Step { step: step.into(), reason, advice }))
    }
}

/// A change of an image's configuration.
fn change(text: String) -> Result<ConfigChange, Failure> {
    text.parse().map_err(|reason: String| Failure::Recipe { path: Path::new("env").into(), reason })
}
