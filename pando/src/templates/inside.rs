// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template` in a cell: the templates that the cell's `pando serve` keeps in memory.

use super::{Command, CreateOptions, print_header, print_line};
use crate::api;
use crate::client;
use crate::connection::{Client, wait_for};
use crate::failure::Failure;
use crate::size::Size;
use hyper::Method;
use pando_manager::template::{TemplateName, TemplateRef};
use std::ffi::OsString;
use std::io::Write;

/// Runs a subcommand.
///
/// # Errors
/// No service runs, it refuses, or the subcommand needs files of templates.
pub(super) fn command(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Create(options) => create(options),
        Command::Build(options) => super::build::build(options),
        Command::Ls { json } => list(*json),
        Command::Rm { names } => remove(names),
        Command::Inspect { template: TemplateRef::Stored(name) } => inspect(name),
        Command::Inspect { template: TemplateRef::File(_) } => Err(Failure::NotInside("a template's file")),
        Command::Freeze { cell, name, force, replace } => client::freeze(cell, name, *force, *replace),
        Command::Save { .. } => Err(Failure::NotInside("save")),
        Command::Load { .. } => Err(Failure::NotInside("load")),
    }
}

/// This user's service in this cell.
fn service() -> Result<Client, Failure> {
    let client = Client::find_or_fail()?;
    client.server()?;
    Ok(client)
}

fn create(options: &CreateOptions) -> Result<u8, Failure> {
    if let Some(option) = options.unsupported_inside() {
        return Err(Failure::NotInside(option));
    }
    let text = |word: &OsString| word.clone().into_string().map_err(Failure::NotUtf8);
    let view = &options.view;
    let variables = crate::environment::values(&view.variables).map(|(name, value)| Ok((text(&name)?, text(&value)?)));
    let new = api::NewTemplate {
        name: options.name.to_string(),
        arguments: options.words.iter().map(text).collect::<Result<_, _>>()?,
        environment: variables.collect::<Result<_, Failure>>()?,
        memory: options.limits.memory.map(Size::in_bytes).map(|bytes| bytes.to_string()),
        timeout: options.limits.timeout.map(|time| time.as_secs_f64()),
        replace: options.replace,
        ..api::NewTemplate::default()
    };
    let _: api::Template = wait_for(service()?.request(Method::POST, "/v1/templates", &new))?;
    Ok(0)
}

fn list(json: bool) -> Result<u8, Failure> {
    let all: Vec<api::Template> = wait_for(service()?.get("/v1/templates"))?;
    let mut out = std::io::stdout().lock();
    if !json {
        print_header(&mut out)?;
    }
    for api::Template { name, arguments, file_bytes, created, .. } in all {
        if json {
            writeln!(out, "{}", serde_json::json!({ "name": name, "bytes": file_bytes, "created": created, "arguments": arguments }))?;
        } else {
            print_line(&mut out, &name, file_bytes, created.as_second().try_into().unwrap_or(0), &arguments)?;
        }
    }
    Ok(0)
}

fn remove(names: &[TemplateName]) -> Result<u8, Failure> {
    let client = service()?;
    wait_for(async {
        for name in names {
            client.request::<()>(Method::DELETE, &format!("/v1/templates/{name}"), &()).await?;
        }
        Ok(0)
    })
}

fn inspect(name: &TemplateName) -> Result<u8, Failure> {
    let found: serde_json::Value = wait_for(service()?.get(&format!("/v1/templates/{name}")))?;
    println!("{found:#}");
    Ok(0)
}
