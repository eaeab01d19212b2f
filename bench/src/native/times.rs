// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time of a process and its descendants by purpose, from the host's counters of each thread.

use std::io;
use std::path::{Path, PathBuf};

/// The purpose of a thread's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimedPart {
    /// A gateway's process, and the thread that carries its frames.
    Gateway,
    /// Guest instructions.
    Guest,
    /// This program's own code, on a thread that drives a vCPU.
    Kernel,
    /// The host's kernel, on such a thread.
    Host,
    /// Anything else.
    Other,
}

/// The times of all threads of a process and of its descendants, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Times(Vec<(TimedPart, f64)>);

/// Nanoseconds of a tick, the unit of `/proc`: a hundredth of a second on every Linux.
const TICK: f64 = 1e7;

impl Times {
    /// Reads the times of a process and its living descendants so far.
    pub(crate) fn of(process: u32) -> io::Result<Times> {
        let mut times = Vec::new();
        let mut left = threads(process)?;
        while let Some(thread) = left.pop() {
            // A thread may end meanwhile, and so may a process.
            if let Ok(text) = std::fs::read_to_string(thread.join("stat")) {
                times.extend(parts(&text).into_iter().flatten());
            }
            // Linux without CONFIG_PROC_CHILDREN has no such file.
            let children = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            left.extend(children.filter_map(|child| threads(child).ok()).flatten());
        }
        Ok(Times(times))
    }

    /// The difference to an earlier reading.
    pub(crate) fn since(&self, before: &Times) -> Times {
        Times(self.parts().into_iter().map(|(part, nanos)| (part, nanos - before.sum(part))).collect())
    }

    /// The times by purpose.
    pub(crate) fn parts(&self) -> Vec<(TimedPart, f64)> {
        [TimedPart::Gateway, TimedPart::Guest, TimedPart::Kernel, TimedPart::Host, TimedPart::Other]
            .map(|part| (part, self.sum(part)))
            .into()
    }

    /// The sum of all times.
    pub(crate) fn whole(&self) -> f64 {
        self.0.iter().map(|(_, nanos)| nanos).sum()
    }

    fn sum(&self, part: TimedPart) -> f64 {
        self.0.iter().filter(|(its, _)| *its == part).map(|(_, nanos)| nanos).sum()
    }
}

/// The threads of a process, as directories of `/proc`.
fn threads(process: u32) -> io::Result<Vec<PathBuf>> {
    let all = std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))?;
    all.map(|thread| Ok(thread?.path())).collect()
}

/// Parses a thread's line (proc_pid_stat(5)).
fn parts(text: &str) -> Option<Vec<(TimedPart, f64)>> {
    // The thread's name is in parentheses, and may contain anything.
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first field behind the name is the third of all.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok().map(|ticks| ticks * TICK);
    let (user, system, guest) = (ticks(14)?, ticks(15)?, ticks(43)?);
    Some(match name {
        "gateway" => vec![(TimedPart::Gateway, user + system)],
        name if name.starts_with("vcpu") => vec![(TimedPart::Guest, guest), (TimedPart::Kernel, user - guest), (TimedPart::Host, system)],
        _ => vec![(TimedPart::Other, user + system)],
    })
}

#[cfg(test)]
mod tests {
    use super::{TimedPart, Times, parts};

    #[test]
    fn a_thread_is_known_by_its_name() {
        let line = |name: &str| {
            let middle = vec!["0"; 26].join(" ");
            format!("7 ({name}) S 1 2 3 4 5 6 7 8 9 10 30 5 {middle} 0 20 0\n")
        };
        let sum = |name: &str| parts(&line(name)).expect("a line").iter().map(|(_, nanos)| nanos).sum::<f64>();
        assert_eq!(sum("gateway"), 35e7);
        assert_eq!(sum("vcpu 0) S"), 35e7);
        assert!(parts("nonsense").is_none());
    }

    #[test]
    fn this_process_has_used_some() {
        let times = Times::of(std::process::id()).expect("it is there");
        assert!(times.whole() >= 0.0 && times.since(&times).parts().iter().all(|(_, nanos)| *nanos == 0.0));
        assert!(times.parts().iter().any(|(part, _)| *part == TimedPart::Other));
    }
}
