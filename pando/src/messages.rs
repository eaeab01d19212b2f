// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager's errors and reports as messages of the command line: they name options and commands.

use pando_image::escaped;
use pando_launch::FailureReason;
use pando_manager::host;
use pando_manager::template::TemplateError;
use pando_manager::view::ViewError;
use pando_manager::write_back::{VolumeFailure, VolumeReport};
use rustix::io::Errno;

/// The message about files that cannot be shown.
pub(crate) fn view(error: &ViewError) -> String {
    match error {
        ViewError::Volume { volume, reason } => format!("-v {}: {reason}", escaped(volume)),
        error => error.to_string(),
    }
}

/// The message about a template.
pub(crate) fn template(error: &TemplateError) -> String {
    match error {
        TemplateError::View(error) => view(error),
        TemplateError::Missing(name) => {
            format!("{error}: `pando template ls` lists them, `pando template create {name} PROGRAM` creates one")
        }
        TemplateError::Exists(_) => format!("{error}: replace it with --replace"),
        TemplateError::NoRecipe(_) => format!("{error}: create the template again with `pando template create`"),
        TemplateError::Changed(_) => format!("{error}: create it again with `pando template create --replace`"),
        TemplateError::NotReady { .. } => format!("{error}: see `pando template create --help`"),
        error => error.to_string(),
    }
}

/// The messages about a write-back that is not complete.
pub(crate) fn write_back(report: &VolumeReport) -> Vec<String> {
    let mut messages: Vec<String> = report.failures.iter().map(volume_failure).collect();
    let more = report.failed - report.failures.len() as u64;
    if more > 0 {
        messages.push(format!("{more} more files were not written back unchanged"));
    }
    messages.extend(report.stopped.map(Into::into));
    messages
}

fn volume_failure(VolumeFailure { volume, path, reason }: &VolumeFailure) -> String {
    let result = match reason {
        FailureReason::Refused(Errno::DQUOT) => {
            "not written back: the volumes would grow by more than --write-limit (sizes as `ls` shows them, and 4 KiB for each name)".into()
        }
        FailureReason::Refused(errno) => format!("not written back: {}", host::plain(&(*errno).into())),
        FailureReason::WithoutSetId => "written back without its set-user-ID and set-group-ID: a cell may not set them".into(),
    };
    format!("-v {}: `{path}` was {result}", escaped(volume))
}
