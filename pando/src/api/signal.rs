// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals for a cell's program, by the names and numbers that `kill` accepts.

use pando_manager::cells::CellSignal;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGKILL, SIGTERM};
use signal_hook::low_level::signal_name;
use std::fmt::{self, Display};
use std::str::FromStr;
use utoipa::ToSchema;

/// The highest number of a signal of Linux.
const LAST: u8 = 64;

/// A signal for a cell's program, as `kill` names it: `TERM`, `SIGTERM` or `15`, in any case. `KILL` terminates the cell; the program
/// cannot catch it. `interrupt`, `terminate` and `kill` are INT, TERM and KILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(value_type = String)]
#[serde(try_from = "String", into = "String")]
pub struct Signal(u8);

impl Signal {
    /// The signal that terminates the cell.
    pub const KILL: Signal = Signal(SIGKILL as u8);
    /// A request to end.
    pub const TERM: Signal = Signal(SIGTERM as u8);
    /// An interrupt from the keyboard.
    pub const INT: Signal = Signal(SIGINT as u8);

    /// Linux's number.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Default for Signal {
    fn default() -> Signal {
        Signal::KILL
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> Result<Signal, String> {
        let name = text.to_ascii_uppercase();
        let name = match &name[..] {
            "INTERRUPT" => "INT",
            "TERMINATE" => "TERM",
            name => name.strip_prefix("SIG").unwrap_or(name),
        };
        let named = |number: &u8| signal_name((*number).into()).is_some_and(|known| known.strip_prefix("SIG") == Some(name));
        let number = name.parse().ok().or_else(|| (1..=LAST).find(named)).filter(|number| (1..=LAST).contains(number));
        number
            .map(Signal)
            .ok_or_else(|| format!("`{text}` is not a signal: give a name, such as TERM or SIGTERM, or a number from 1 to {LAST}"))
    }
}

impl TryFrom<String> for Signal {
    type Error = String;

    fn try_from(text: String) -> Result<Signal, String> {
        text.parse()
    }
}

impl Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_name(self.0.into()) {
            Some(name) => f.write_str(name.strip_prefix("SIG").unwrap_or(name)),
            None => write!(f, "{}", self.0),
        }
    }
}

impl From<Signal> for String {
    fn from(signal: Signal) -> String {
        signal.to_string()
    }
}

impl From<Signal> for CellSignal {
    fn from(Signal(number): Signal) -> CellSignal {
        match number.into() {
            SIGINT => CellSignal::Interrupt,
            SIGTERM => CellSignal::Terminate,
            SIGKILL => CellSignal::Kill,
            _ => CellSignal::Other(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Signal;

    #[test]
    fn signals_have_the_names_and_numbers_of_kill() {
        for text in ["TERM", "term", "SIGTERM", "sigterm", "15", "terminate"] {
            assert_eq!(text.parse(), Ok(Signal(15)), "{text}");
        }
        for (text, number) in [("kill", 9), ("interrupt", 2), ("hup", 1), ("SIGUSR1", 10), ("64", 64)] {
            let signal: Signal = text.parse().expect("it is one");
            assert_eq!((signal, signal.to_string().parse()), (Signal(number), Ok(Signal(number))), "{text}");
        }
        for text in ["", "SIG", "0", "65", "-1", "300", "NOPE", "SIGSIGTERM"] {
            assert!(text.parse::<Signal>().is_err(), "{text}");
        }
    }
}
