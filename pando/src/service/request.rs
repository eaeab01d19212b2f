// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validation of requests, with the parsers of the command line.

use super::problem::Problem;
use crate::api::{self, TextOrBytes};
use crate::options;
use crate::size::Size;
use pando_kernel::Weight;
use pando_kernel::limits::TRACES;
use pando_manager::cells::{CellSource, ManagedCellSpec, RestartPolicy};
use pando_manager::host::is_plain_name;
use pando_manager::limits::Limits;
use pando_manager::template::{TemplateName, TemplateSpec, TrainingSpec, VARIANTS_MAX};
use pando_manager::view::{ImageSpec, UserName, ViewSpec, VolumeSpec};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time limit in seconds: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
/// The most ports of the host that lead to a cell.
const PORTS_MAX: usize = 64;
/// The most copies of a cell that one request starts.
const FORKS_MAX: u32 = 1024;
/// The most labels of a cell.
const LABELS_MAX: usize = 64;
/// Bytes of a label's name, and of its value.
const LABEL_MAX: usize = 1024;
/// The default time for a template to become ready, in seconds.
const READY_SECONDS_MAX: f64 = 300.0;

/// Validates a request for a cell. No more input follows if `input_ends`.
///
/// # Errors
/// A field is invalid.
pub(super) fn cell(new: api::NewCell, input_ends: bool) -> Result<ManagedCellSpec, Problem> {
    let source = source(&new)?;
    let api::NewCell {
        arguments,
        environment,
        memory,
        cpus,
        cpu_weight,
        timeout,
        output_limit,
        idle_timeout,
        input,
        labels,
        nest,
        name,
        host_name,
        network,
        allow,
        publish,
        restart,
        ..
    } = new;
    if network.is_some() && !(allow.is_empty() && publish.is_empty()) {
        return Err(Problem::request("network: a cell with allow or publish has a network of its own: omit network, or these"));
    }
    if publish.len() > PORTS_MAX {
        return Err(Problem::request(format!("publish: a cell can have {PORTS_MAX} ports")));
    }
    check_labels(&labels)?;
    Ok(ManagedCellSpec {
        source,
        arguments,
        environment: variables(&environment)?.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        idle_timeout: idle_timeout.map(time).transpose()?,
        limits: Limits { output: output_limit, weight: weight(cpu_weight)?, ..limits(memory.as_deref(), cpus, timeout)? },
        labels,
        nest,
        name: name.as_deref().map(options::cell_name).transpose().map_err(Problem::request)?,
        host_name: host_name.as_deref().map(options::host_name).transpose().map_err(Problem::request)?,
        network: network.as_deref().map(options::network_name).transpose().map_err(Problem::request)?,
        allow: allow
            .iter()
            .map(|rule| rule.parse())
            .collect::<Result<_, String>>()
            .map_err(|error| Problem::request(format!("allow: {error}")))?,
        publish: publish
            .iter()
            .map(|forward| forward.parse())
            .collect::<Result<Box<[_]>, String>>()
            // A cell keeps it, so without spare room.
            .map(Vec::from)
            .map_err(|error| Problem::request(format!("publish: {error}")))?,
        input: bytes(input.as_ref())?,
        input_ends,
        is_read_completely: false,
        restart: restart
            .as_deref()
            .map_or(Ok(RestartPolicy::No), str::parse)
            .map_err(|error| Problem::request(format!("restart: {error}")))?,
        restarts: 0,
    })
}

/// Validates the number of copies of a cell.
///
/// # Errors
/// There are none, or too many.
pub(super) fn forks(count: u32) -> Result<u32, Problem> {
    if (1..=FORKS_MAX).contains(&count) {
        return Ok(count);
    }
    Err(Problem::request(format!("count: {count} is not a number of copies: give a number from 1 to {FORKS_MAX}")))
}

/// Validates a request for a cell that ends with its client.
///
/// # Errors
/// A field is invalid, or there is a restart policy.
pub(super) fn attached_cell(new: api::NewCell, input_ends: bool) -> Result<ManagedCellSpec, Problem> {
    match &new.restart {
        Some(_) => Err(Problem::request("restart: this cell ends with its client: omit restart, or start the cell with POST /v1/cells")),
        None => cell(new, input_ends),
    }
}

/// The template or the program of a request for a cell.
fn source(new: &api::NewCell) -> Result<CellSource, Problem> {
    let view = ViewSpec {
        variables: words(&new.environment)?,
        directory: new.directory.as_deref().map(directory).transpose()?,
        user: new.user.as_deref().map(user).transpose()?,
        root: root(new.root.as_ref())?,
        image: image(new.image.as_ref(), new.entrypoint.as_ref())?,
        read_only: new.read_only,
        temporary: new.tmpfs.iter().map(|text| temporary(text)).collect::<Result<_, _>>()?,
        bare: new.bare,
        volumes: new.volumes.iter().map(|text| volume(text)).collect::<Result<_, _>>()?,
    };
    if !new.template.is_empty() {
        return match view == (ViewSpec { variables: view.variables.clone(), ..ViewSpec::default() }) {
            true => Ok(CellSource::Template(new.template.parse().map_err(|error: String| Problem::request(error))?)),
            false => Err(Problem::request(
                "template: a clone sees what its template sees, as the user of its template: omit image, entrypoint, root, bare, volumes, \
                 tmpfs, directory and user, or the template",
            )),
        };
    }
    if new.arguments.first().is_none_or(String::is_empty) && view.image.is_none() {
        return Err(Problem::request("template: give a template, or an image or the program in arguments"));
    }
    if usize::from(view.image.is_some()) + usize::from(view.root.is_some()) + usize::from(view.bare) > 1 {
        return Err(Problem::request("image, root, bare: give one of them"));
    }
    Ok(CellSource::Program(view.into()))
}

/// Checks the number and the length of labels, which are kept.
///
/// # Errors
/// There are too many, or one is too long or has no name.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Problem> {
    if labels.len() > LABELS_MAX {
        return Err(Problem::request(format!("labels: give at most {LABELS_MAX}")));
    }
    match labels.iter().find(|(name, value)| name.is_empty() || name.len() > LABEL_MAX || value.len() > LABEL_MAX) {
        None => Ok(()),
        Some((name, _)) => {
            Err(Problem::request(format!("labels: {name:?}: give a name, and at most {LABEL_MAX} bytes for the name and for the value")))
        }
    }
}

/// Validates a request for a template.
///
/// # Errors
/// A field is invalid.
pub(super) fn template(new: &api::NewTemplate, name: TemplateName) -> Result<TemplateSpec, Problem> {
    if new.variants.is_some_and(|count| !(1..=VARIANTS_MAX).contains(&count)) {
        return Err(Problem::request(format!("variants: give a number from 1 to {VARIANTS_MAX}")));
    }
    if new.train == Some(false) && (new.train_count.is_some() || !new.train_arguments.is_empty()) {
        return Err(Problem::request("train: train_arguments and train_count need training: omit them, or do not set train to false"));
    }
    if new.train_count.is_some_and(|count| !(1..=TRACES as u32).contains(&count)) {
        return Err(Problem::request(format!("train_count: give a number from 1 to {TRACES}")));
    }
    // Clones write nothing back to the host, so a volume is always read-only.
    let volumes = new.volumes.iter().map(|text| Ok(VolumeSpec { writable: false, ..volume(text)? }));
    let spec = TemplateSpec {
        name,
        command: new.arguments.iter().map(Into::into).collect(),
        view: ViewSpec {
            variables: words(&new.environment)?,
            directory: None,
            user: new.user.as_deref().map(user).transpose()?,
            image: image(new.image.as_ref(), None)?,
            temporary: Vec::new(),
            read_only: false,
            root: root(new.root.as_ref())?,
            bare: new.bare,
            volumes: volumes.collect::<Result<_, Problem>>()?,
        },
        // A template that never becomes ready must not block other requests forever.
        limits: limits(new.memory.as_deref(), None, Some(new.timeout.unwrap_or(READY_SECONDS_MAX)))?,
        replace: new.replace,
        variants: new.variants.unwrap_or(1),
        training: TrainingSpec {
            clones: if new.train == Some(false) { 0 } else { new.train_count.unwrap_or(1) },
            arguments: new.train_arguments.iter().map(Into::into).collect(),
            is_requested: new.train == Some(true) || !new.train_arguments.is_empty() || new.train_count.is_some(),
        },
        is_standard: false,
    };
    if spec.command.is_empty() && spec.view.image.is_none() { builtin(new, spec) } else { Ok(spec) }
}

/// The specification of a built-in template, whose fields `spec` overrides.
fn builtin(new: &api::NewTemplate, spec: TemplateSpec) -> Result<TemplateSpec, Problem> {
    let standard = TemplateSpec::standard(&spec.name);
    let standard = standard.ok_or_else(|| Problem::request(format!("arguments: the program of template `{}` is missing", spec.name)))?;
    let is_plain = *new == api::NewTemplate { name: new.name.clone(), replace: new.replace, ..api::NewTemplate::default() };
    let TrainingSpec { clones, arguments, .. } = spec.training;
    Ok(TemplateSpec {
        command: standard.command,
        limits: Limits { memory: spec.limits.memory.or(standard.limits.memory), ..spec.limits },
        training: TrainingSpec {
            clones,
            arguments: if arguments.is_empty() { standard.training.arguments } else { arguments },
            is_requested: clones > 0,
        },
        is_standard: is_plain,
        ..spec
    })
}

fn user(text: &str) -> Result<UserName, Problem> {
    options::user_name(text).map_err(|error| Problem::request(format!("user: {error}")))
}

/// Checks that a path of the host is absolute: the service has a working directory of its own.
fn check_absolute(field: &str, path: &str) -> Result<(), Problem> {
    if Path::new(path).is_absolute() {
        return Ok(());
    }
    Err(Problem::request(format!("{field}: `{path}` is not an absolute path: the service does not know the client's directory")))
}

fn root(text: Option<&String>) -> Result<Option<PathBuf>, Problem> {
    text.map(|text| check_absolute("root", text).map(|()| text.into())).transpose()
}

fn volume(text: &str) -> Result<VolumeSpec, Problem> {
    let host = text.split(':').next().unwrap_or_default();
    let is_name = text.contains(':') && is_plain_name(host);
    if !is_name && !host.is_empty() {
        check_absolute("volumes", host)?;
    }
    options::volume(text.into()).map_err(|error| Problem::request(format!("volumes: {error}")))
}

fn temporary(text: &str) -> Result<(PathBuf, u16), Problem> {
    options::temporary(text.into()).map_err(|error| Problem::request(format!("tmpfs: {error}")))
}

fn directory(text: &str) -> Result<PathBuf, Problem> {
    options::directory(text.into()).map_err(|error| Problem::request(format!("directory: {error}")))
}

fn image(name: Option<&String>, entrypoint: Option<&String>) -> Result<Option<ImageSpec>, Problem> {
    match (name, entrypoint) {
        (None, Some(_)) => Err(Problem::request("entrypoint: it is that of an image: give the image")),
        (name, entrypoint) => {
            Ok(name.map(|name| ImageSpec { name: name.clone(), entrypoint: entrypoint.map(Into::into), has_terminal: false }))
        }
    }
}

/// Environment variables of a view.
fn words(new: &BTreeMap<String, String>) -> Result<Vec<(OsString, OsString)>, Problem> {
    Ok(variables(new)?.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
}

/// Checks the names and values of environment variables.
fn variables(new: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, Problem> {
    let check = |(name, value): (&String, &String)| {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Problem::request(format!("environment: {name:?} is not a valid variable name, or its value contains a zero byte")));
        }
        Ok((name.clone(), value.clone()))
    };
    new.iter().map(check).collect()
}

/// Parses a time limit in seconds.
///
/// # Errors
/// It is not a valid time.
pub(super) fn time(seconds: f64) -> Result<Duration, Problem> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero() && seconds <= SECONDS_MAX);
    time.ok_or_else(|| Problem::request(format!("timeout: {seconds} is not a valid time: give seconds")))
}

fn limits(memory: Option<&str>, cpus: Option<f64>, timeout: Option<f64>) -> Result<Limits, Problem> {
    let memory = memory.map(options::memory).transpose().map_err(|error| Problem::request(format!("memory: {error}")))?;
    let share = cpus.map(|share| options::share(&share.to_string())).transpose();
    Ok(Limits {
        memory: memory.map(Size::pages),
        cpu_limit: share.map_err(|error| Problem::request(format!("cpus: {error}")))?,
        time: timeout.map(time).transpose()?,
        ..Limits::default()
    })
}

/// Checks a CPU weight.
fn weight(weight: Option<u64>) -> Result<Option<Weight>, Problem> {
    let weight = weight.map(|weight| options::weight(&weight.to_string())).transpose();
    weight.map_err(|error| Problem::request(format!("cpu_weight: {error}")))
}

/// Decodes a text field.
fn bytes(text: Option<&TextOrBytes>) -> Result<Vec<u8>, Problem> {
    text.map_or(Some(Vec::new()), TextOrBytes::bytes).ok_or_else(|| Problem::request("invalid base64"))
}
