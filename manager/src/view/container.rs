// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of container images: the stack of an image's layers, and the program, user and environment that its configuration names.
//!
//! They depend on no file of the host but the store's.

use super::spec::{ImageSpec, UserName, ViewSpec};
use super::{View, ViewError, add_generated, parts};
use crate::environment::{DEFAULT_PATH, HostEnvironment, ProgramError};
use crate::report::{LongOperation, Reporter};
use pando_image::{Builder, Cache, Error, Image};
use pando_oci::{ImageConfig, ImageStore, OpenImage};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of the store, in the directory of the caller's data.
const DIRECTORY: &str = "containers";
/// The version of how stacks are made: part of their fingerprints.
const STACKING: u32 = 1;

/// The view of an image, and what its configuration says about its program.
pub(super) struct ImageView {
    pub(super) view: View,
    /// The program's path in it.
    pub(super) program: PathBuf,
    /// The program's arguments, its own name first.
    pub(super) command: Vec<OsString>,
    pub(super) directory: PathBuf,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) user: Option<UserName>,
    pub(super) image: OpenImage,
}

/// The caller's store of container images, which may not exist yet.
///
/// # Errors
/// The environment does not name a directory for data.
pub fn image_store(environment: &HostEnvironment) -> Result<ImageStore, ViewError> {
    let data = environment.data.as_ref().ok_or(ViewError::NoDirectory)?;
    Ok(ImageStore::new(data.join(DIRECTORY)))
}

impl ImageView {
    /// Opens an image, and finds its program.
    pub(super) fn open(spec: &ImageSpec, view: &ViewSpec, command: &[OsString], environment: &HostEnvironment) -> Result<Self, ViewError> {
        let image = image_store(environment)?.open(&spec.name)?;
        let config = &image.image.config;
        let stacked = View::of_image(stack(&image, &environment.reporter)?, &environment.reporter);
        let mut shown = View { kept: environment.view_images.clone(), ..stacked };
        add_generated(&mut shown.volumes[0].image)?;
        shown.visible.extend(image.layers.iter().cloned());
        let directory = view.directory.clone().or_else(|| config.directory.clone()).unwrap_or_else(|| "/".into());
        for path in config.volumes.iter().chain([&directory]) {
            shown.add_directory(path)?;
        }
        let variables = variables(config, spec.has_terminal, environment);
        let command = command_line(config, spec, command);
        let name = command.first().ok_or_else(|| ViewError::NoCommand(spec.name.clone()))?;
        // As in the program's environment, the last one counts.
        let given = |name: &str| variables.iter().chain(&view.variables).rfind(|(known, _)| known == name).map(|(_, value)| value.clone());
        let path = given("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let path: Vec<PathBuf> = path.as_bytes().split(|byte| *byte == b':').map(|part| directory.join(OsStr::from_bytes(part))).collect();
        let program = shown.find_program(&named(name, &directory), &path)?.ok_or_else(|| ProgramError::NotFound(name.clone()))?;
        let user = if config.user.is_empty() { None } else { Some(user(config, &spec.name)?) };
        Ok(ImageView { view: shown, program, command, directory, environment: variables, user, image })
    }
}

/// The user that an image names.
fn user(config: &ImageConfig, name: &str) -> Result<UserName, ViewError> {
    UserName::parse(&config.user).ok_or_else(|| ViewError::User {
        view: format!("image {name}"),
        reason: format!("its user `{}` is not valid: give another one", config.user),
    })
}

/// A program's name: relative to the working directory if it is a path.
fn named(name: &OsStr, directory: &Path) -> PathBuf {
    if name.as_bytes().contains(&b'/') { directory.join(name) } else { name.into() }
}

/// The command line: the image's entrypoint, then what is given, or the image's command. Another entrypoint replaces both.
fn command_line(config: &ImageConfig, spec: &ImageSpec, given: &[OsString]) -> Vec<OsString> {
    let words = |words: &[String]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let (mut command, rest) = match &spec.entrypoint {
        // An empty one removes the image's.
        Some(program) => (Vec::from_iter(Some(program.clone()).filter(|program| !program.is_empty())), Vec::new()),
        None => (words(&config.entrypoint), words(&config.command)),
    };
    command.extend(if given.is_empty() { rest } else { given.to_vec() });
    command
}

/// The variables of an image's programs, besides HOME: those of the image, and the terminal's type.
fn variables(config: &ImageConfig, has_terminal: bool, environment: &HostEnvironment) -> Vec<(OsString, OsString)> {
    let terminal = environment.inherited.iter().filter(|(name, _)| has_terminal && name == "TERM").cloned();
    let image = config.environment.iter().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into()));
    [("PATH".into(), DEFAULT_PATH.into())].into_iter().chain(terminal).chain(image).collect()
}

/// The stack of an image's layers: cached, or made anew and cached.
fn stack(image: &OpenImage, reporter: &Reporter) -> Result<Image, Error> {
    let mut hasher = DefaultHasher::new();
    parts::version(&mut hasher);
    (image.image.id, STACKING).hash(&mut hasher);
    let fingerprint = hasher.finish();
    let cache = Cache::new(&image.stack);
    let cached = cache.open().filter(|kept| kept.host_fingerprint == fingerprint).and_then(|kept| kept.into_image_if_unchanged());
    let mut stack = match cached {
        Some(stack) => stack,
        None => {
            let _progress = reporter.progress(LongOperation::StackLayers);
            let mut builder = Builder::layers(image.layers.iter().map(PathBuf::as_path))?;
            parts::add(&mut builder)?;
            let stack = builder.image()?;
            // If it cannot be cached, every start makes it.
            let _ = cache.store(&stack, fingerprint);
            stack
        }
    };
    stack.identify_content(image.image.id.bytes());
    Ok(stack)
}

/// Makes the stack of an image's layers, so that the first start finds it.
///
/// # Errors
/// A layer cannot be read.
pub fn prepare_image(store: &ImageStore, name: &str, reporter: &Reporter) -> Result<(), ViewError> {
    stack(&store.open(name)?, reporter)?;
    Ok(())
}
