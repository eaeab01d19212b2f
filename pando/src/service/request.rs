// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validation of requests, with the parsers of the command line.

use super::cell::CellRequest;
use super::problem::Problem;
use super::routes::bytes;
use crate::api;
use crate::cli::{Limits, ViewOptions};
use crate::host::Variable;
use crate::options::{self, VolumeArgument};
use crate::size::Size;
use crate::template::{Create, TemplateName, VARIANTS_MAX};
use pando_kernel::limits::TRACES;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time limit in seconds: a year.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
/// The default time for a template to become ready, in seconds.
const READY_SECONDS_MAX: f64 = 300.0;

/// Validates a request for a cell. No more input follows if `input_ends`.
///
/// # Errors
/// A field is invalid.
pub(super) fn cell(asked: api::NewCell, input_ends: bool) -> Result<CellRequest, Problem> {
    let api::NewCell { template, arguments, environment, memory, cpus, timeout, output_limit, input, host_name, network, allow } = asked;
    if network.is_some() && !allow.is_empty() {
        return Err(Problem::request("network, allow: a cell with allow has a network of its own: omit one of them"));
    }
    Ok(CellRequest {
        template: template.parse().map_err(|error: String| Problem::request(error))?,
        arguments,
        environment: variables(&environment)?.into_iter().map(String::into_bytes).collect(),
        limits: Limits { output_limit: output_limit.map(Size::bytes), ..limits(memory.as_deref(), cpus, timeout)? },
        host_name: host_name.as_deref().map(options::host_name).transpose().map_err(Problem::request)?,
        network: network.as_deref().map(options::network_name).transpose().map_err(Problem::request)?,
        allow: allow
            .iter()
            .map(|rule| rule.parse())
            .collect::<Result<_, String>>()
            .map_err(|error| Problem::request(format!("allow: {error}")))?,
        input: bytes(input.as_ref())?,
        input_ends,
        whole: false,
    })
}

/// Validates a request for a template.
///
/// # Errors
/// A field is invalid.
pub(super) fn template(asked: &api::NewTemplate, name: TemplateName) -> Result<Create, Problem> {
    if asked.variants.is_some_and(|count| !(1..=VARIANTS_MAX).contains(&count)) {
        return Err(Problem::request(format!("variants: give a number from 1 to {VARIANTS_MAX}")));
    }
    if asked.train == Some(false) && (asked.train_count.is_some() || !asked.train_arguments.is_empty()) {
        return Err(Problem::request("train: train_arguments and train_count need training: omit them, or do not set train to false"));
    }
    if asked.train_count.is_some_and(|count| !(1..=TRACES as u32).contains(&count)) {
        return Err(Problem::request(format!("train_count: give a number from 1 to {TRACES}")));
    }
    let variables = variables(&asked.environment)?.into_iter().map(|variable| Variable::parse(variable.into()));
    let user = asked.user.as_deref().map(str::parse).transpose();
    let volumes = asked.volumes.iter().map(|volume| match VolumeArgument::parse(volume.into()) {
        // Clones write nothing back to the host, so a volume is always read-only.
        Ok(volume) => Ok(VolumeArgument { writable: false, ..volume }),
        Err(error) => Err(Problem::request(format!("volumes: {error}"))),
    });
    let made = Create {
        seen: ViewOptions {
            variables: variables.collect::<Result<_, _>>().map_err(Problem::request)?,
            directory: None,
            user: user.map_err(|error: String| Problem::request(format!("user: {error}")))?.unwrap_or_default(),
            root: asked.root.as_ref().map(Into::into),
            bare: asked.bare,
            volumes: volumes.collect::<Result<_, _>>()?,
        },
        // A template that never becomes ready must not block other requests forever.
        limits: limits(asked.memory.as_deref(), None, Some(asked.timeout.unwrap_or(READY_SECONDS_MAX)))?,
        replace: asked.replace,
        variants: asked.variants.unwrap_or(1),
        train: asked.train == Some(true),
        no_train: asked.train == Some(false),
        train_count: asked.train_count,
        train_arg: asked.train_arguments.iter().map(Into::into).collect(),
        name,
        words: asked.arguments.iter().map(Into::into).collect(),
        standard: false,
    };
    if !made.words.is_empty() {
        return Ok(made);
    }
    // Given fields override the built-in template's.
    let standard = Create::standard(&made.name);
    let standard = standard.ok_or_else(|| Problem::request(format!("arguments: the program of template `{}` is missing", made.name)))?;
    let is_plain = *asked == api::NewTemplate { name: asked.name.clone(), replace: asked.replace, ..api::NewTemplate::default() };
    Ok(Create {
        words: standard.words,
        limits: Limits { memory: made.limits.memory.or(standard.limits.memory), ..made.limits },
        train: !made.no_train,
        train_arg: if made.train_arg.is_empty() { standard.train_arg } else { made.train_arg },
        standard: is_plain,
        ..made
    })
}

/// Each as NAME=VALUE.
fn variables(asked: &BTreeMap<String, String>) -> Result<Vec<String>, Problem> {
    let line = |(name, value): (&String, &String)| {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Problem::request(format!("environment: {name:?} is not a valid variable name, or its value contains a zero byte")));
        }
        Ok(format!("{name}={value}"))
    };
    asked.iter().map(line).collect()
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
    Ok(Limits {
        memory: memory.map(options::memory).transpose().map_err(|error| Problem::request(format!("memory: {error}")))?,
        cpus: cpus
            .map(|share| options::share(&share.to_string()))
            .transpose()
            .map_err(|error| Problem::request(format!("cpus: {error}")))?,
        timeout: timeout.map(time).transpose()?,
        output_limit: None,
    })
}
