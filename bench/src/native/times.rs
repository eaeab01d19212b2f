// SPDX-License-Identifier: MIT OR Apache-2.0
//! What CPU time a process has used, and in what, as the host's kernel counts it for each of its threads.

use std::io;
use std::path::Path;

/// In what a thread's time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A gateway's thread.
    Gateway,
    /// A guest's instructions.
    Guest,
    /// This program's own, on a thread that drives a vCPU.
    Kernel,
    /// The host's kernel's, for such a thread.
    Host,
    /// Whatever else.
    Other,
}

/// The times of all threads of a process, in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Times(Vec<(Part, f64)>);

/// Nanoseconds of a tick, which `/proc` counts in: a hundredth of a second on every Linux.
const TICK: f64 = 1e7;

impl Times {
    /// What a process has used so far.
    pub(crate) fn of(process: u32) -> io::Result<Times> {
        let mut times = Vec::new();
        for thread in std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"))? {
            // A thread may end meanwhile.
            if let Ok(text) = std::fs::read_to_string(thread?.path().join("stat")) {
                times.extend(parts(&text).into_iter().flatten());
            }
        }
        Ok(Times(times))
    }

    /// What was used since then.
    pub(crate) fn since(&self, before: &Times) -> Times {
        Times(self.parts().into_iter().map(|(part, nanos)| (part, nanos - before.sum(part))).collect())
    }

    /// By parts.
    pub(crate) fn parts(&self) -> Vec<(Part, f64)> {
        [Part::Gateway, Part::Guest, Part::Kernel, Part::Host, Part::Other].map(|part| (part, self.sum(part))).into()
    }

    /// All together.
    pub(crate) fn whole(&self) -> f64 {
        self.0.iter().map(|(_, nanos)| nanos).sum()
    }

    fn sum(&self, part: Part) -> f64 {
        self.0.iter().filter(|(its, _)| *its == part).map(|(_, nanos)| nanos).sum()
    }
}

/// The times in a thread's line (proc_pid_stat(5)).
fn parts(text: &str) -> Option<Vec<(Part, f64)>> {
    // Its name stands in brackets, and may hold anything.
    let (head, rest) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first field behind the name is the third of all.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok().map(|ticks| ticks * TICK);
    let (user, system, guest) = (ticks(14)?, ticks(15)?, ticks(43)?);
    Some(match name {
        "gateway" => vec![(Part::Gateway, user + system)],
        name if name.starts_with("vcpu") => vec![(Part::Guest, guest), (Part::Kernel, user - guest), (Part::Host, system)],
        _ => vec![(Part::Other, user + system)],
    })
}

#[cfg(test)]
mod tests {
    use super::{Part, Times, parts};

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
        assert!(times.parts().iter().any(|(part, _)| *part == Part::Other));
    }
}
