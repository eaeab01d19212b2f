// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies of restarts: those of docker.

use std::str::FromStr;

/// When a cell that has ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// If it has not exited with status 0.
    OnFailure {
        /// The most restarts; `None`: any number.
        max_retries: Option<u32>,
    },
    /// However it ends.
    Always,
}

impl RestartPolicy {
    /// Whether a cell that has been restarted this often is restarted after it ended by itself with this status.
    pub(super) fn should_restart(self, exit_status: u8, restarts: u32) -> bool {
        match self {
            RestartPolicy::No => false,
            RestartPolicy::OnFailure { max_retries } => exit_status != 0 && max_retries.is_none_or(|max_retries| restarts < max_retries),
            RestartPolicy::Always => true,
        }
    }
}

impl FromStr for RestartPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<RestartPolicy, String> {
        let wrong = || format!("`{text}` is not a restart policy: give no, on-failure, on-failure:NUMBER, always or unless-stopped");
        match text.split_once(':') {
            None => match text {
                "no" => Ok(RestartPolicy::No),
                "on-failure" => Ok(RestartPolicy::OnFailure { max_retries: None }),
                // A cell does not outlive its service, so these are the same.
                "always" | "unless-stopped" => Ok(RestartPolicy::Always),
                _ => Err(wrong()),
            },
            // As in docker, 0 is no limit.
            Some(("on-failure", max_retries)) => {
                let max_retries: u32 = max_retries.parse().map_err(|_| wrong())?;
                Ok(RestartPolicy::OnFailure { max_retries: Some(max_retries).filter(|max_retries| *max_retries > 0) })
            }
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RestartPolicy;

    #[test]
    fn policies_are_those_of_docker() {
        let cases = [
            ("no", [false, false]),
            ("on-failure", [false, true]),
            ("on-failure:3", [false, true]),
            ("on-failure:2", [false, false]),
            ("on-failure:0", [false, true]),
            ("always", [true, true]),
            ("unless-stopped", [true, true]),
        ];
        for (text, wanted) in cases {
            let policy: RestartPolicy = text.parse().expect("it is one");
            assert_eq!([0, 124].map(|status| policy.should_restart(status, 2)), wanted, "{text}");
        }
        for text in ["", "yes", "always:3", "on-failure:", "on-failure:-1", "on-failure:x"] {
            assert!(text.parse::<RestartPolicy>().is_err(), "{text}");
        }
    }
}
