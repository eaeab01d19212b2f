// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of `--net`, `--allow` and `--link`.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use pando_gateway::Rule;
use pando_kernel::network::link::{Link, PerMillion};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

/// A cell's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Net {
    /// None.
    None,
    /// A network of its own.
    Private,
    /// The host's networks, through a proxy.
    Gateway,
    /// A TAP device of the host.
    Tap(String),
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Net, String> {
        match (text, text.strip_prefix("tap:")) {
            ("none", _) => Ok(Net::None),
            ("private", _) => Ok(Net::Private),
            ("gateway", _) => Ok(Net::Gateway),
            (_, Some(name)) => Ok(Net::Tap(name.into())),
            ("tap", _) => Err("the TAP device is missing: give tap:NAME, such as tap:tap0".into()),
            _ => Err(format!("`{text}` is not a network: give none, private, gateway or tap:NAME")),
        }
    }
}

/// A rule of `--allow`, with its text.
#[derive(Clone, Debug)]
pub(crate) struct AllowRule {
    text: String,
    rule: Rule,
}

impl AllowRule {
    /// The rule.
    pub(crate) fn rule(&self) -> Rule {
        self.rule.clone()
    }

    /// The text on the command line.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for AllowRule {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowRule, String> {
        Ok(AllowRule { text: text.into(), rule: text.parse()? })
    }
}

/// Parses [`Net`], and lists its values for shell completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetParser;

impl TypedValueParser for NetParser {
    type Value = Net;

    fn parse_ref(&self, command: &clap::Command, argument: Option<&clap::Arg>, value: &std::ffi::OsStr) -> Result<Net, clap::Error> {
        let parser = StringValueParser::new().try_map(|text: String| text.parse::<Net>());
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["none", "private", "gateway", "tap:"].into_iter().map(PossibleValue::new)))
    }
}

/// The lowest rate in bits per second: slower links take a minute for one frame of 64 KiB.
const MIN_RATE: f64 = 8000.0;
/// The longest delay: longer than any program waits.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Parses a link's emulation, such as `rate=100M,delay=20ms,loss=1%`.
pub(crate) fn link(text: &str) -> Result<Link, String> {
    let mut link = Link::default();
    let mut named = Vec::new();
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| {
            format!("`{part}` is not an option of a link: give rate=100M, delay=20ms, jitter=5ms, loss=1% or duplication=0.1%, with commas between them")
        })?;
        if named.contains(&name) {
            return Err(format!("`{name}` is given twice"));
        }
        named.push(name);
        match name {
            "rate" => link.rate = Some(rate(value)?),
            "delay" => link.delay = time(value)?,
            "jitter" => link.jitter = time(value)?,
            "loss" => link.loss = part_of(value)?,
            "duplication" => link.duplication = part_of(value)?,
            _ => return Err(format!("a link has no option `{name}`: give rate, delay, jitter, loss or duplication")),
        }
    }
    Ok(link)
}

/// Parses a rate in bits per second. Returns bytes per second.
fn rate(text: &str) -> Result<NonZeroU64, String> {
    let help =
        || format!("`{text}` is not a rate: give bits per second, with K, M or G for thousands, such as rate=100M; at least {MIN_RATE}");
    let (number, unit) = crate::size::split(text).ok_or_else(help)?;
    let factor = match unit.to_ascii_uppercase().trim_end_matches("BIT") {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(help()),
    };
    let bits = number * factor;
    Some(bits).filter(|bits| (MIN_RATE..1e15).contains(bits)).and_then(|bits| NonZeroU64::new(bits as u64 / 8)).ok_or_else(help)
}

fn time(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is not a time: give a number with us, ms or s, such as delay=20ms; at most {} s", MAX_DELAY.as_secs());
    // Without a unit, `tc` means microseconds.
    let seconds = crate::size::seconds(text).filter(|_| text.ends_with('s')).ok_or_else(help)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= MAX_DELAY).ok_or_else(help)
}

fn part_of(text: &str) -> Result<PerMillion, String> {
    let help = || format!("`{text}` is not a share of the frames: give a percentage below 100, such as loss=1% or loss=0.1%");
    let number: f64 = text.strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(help)?;
    if (0.0..100.0).contains(&number) { Ok(PerMillion((number * 1e4).round() as u32)) } else { Err(help()) }
}

#[cfg(test)]
mod tests {
    use super::{Net, link};
    use pando_kernel::network::link::{Link, PerMillion};
    use std::num::NonZeroU64;
    use std::time::Duration;

    #[test]
    fn links_are_read_as_people_write_them() {
        let all = Link {
            rate: NonZeroU64::new(12_500_000),
            delay: Duration::from_millis(20),
            jitter: Duration::from_micros(500),
            loss: PerMillion(10_000),
            duplication: PerMillion(1000),
        };
        assert_eq!(link("rate=100M,delay=20ms,jitter=500us,loss=1%,duplication=0.1%"), Ok(all));
        assert_eq!(link("rate=100mbit"), Ok(Link { rate: all.rate, ..Link::default() }));
        assert_eq!(link("delay=0ms,loss=0%"), Ok(Link::default()));
        for text in [
            "",
            "rate",
            "rate=",
            "rate=0",
            "rate=7999",
            "rate=1X",
            "rate=1e9",
            "delay=20",
            "delay=-1ms",
            "delay=61s",
            "loss=1",
            "loss=100%",
            "loss=-1%",
            "loss=NaN%",
            "speed=1M",
            "delay=1ms,delay=2ms",
            "delay=1ms,",
        ] {
            assert!(link(text).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_are_words_or_devices() {
        assert_eq!("tap:tap0".parse(), Ok(Net::Tap("tap0".into())));
        assert_eq!("gateway".parse(), Ok(Net::Gateway));
        assert!("tap".parse::<Net>().is_err() && "bridge".parse::<Net>().is_err());
    }
}
