// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows: the results of a benchmark, for programs and for people.

use crate::sample::{Pairs, Sample};
use serde_json::{Map, Value, json};
use std::fmt;

/// The unit of times.
const MICROSECONDS: &str = "µs";
const NANOS_PER_MICRO: f64 = 1000.0;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The figure's name.
    pub name: &'static str,
    /// Its median.
    pub value: f64,
    /// The unit of `value` and `reference_value`.
    pub unit: &'static str,
    /// The name of the reference.
    pub reference: Option<&'static str>,
    /// The median of the reference.
    pub reference_value: Option<f64>,
    /// Ours divided by theirs: the median over pairs that were measured one right after the other. For times, below 1 is better.
    pub ratio: Option<f64>,
    /// The width of the middle half of the ratios, relative to their median; of the values, where there is no ratio. 0.1
    /// means within about a twentieth.
    pub spread: Option<f64>,
    /// An explanation for the reader.
    pub note: Option<String>,
}

impl Row {
    /// A figure without a reference.
    pub(crate) fn of(name: &'static str, value: f64, unit: &'static str) -> Row {
        Row { name, value, unit, reference: None, reference_value: None, ratio: None, spread: None, note: None }
    }

    /// The median of a sample of nanoseconds.
    pub(crate) fn time(name: &'static str, sample: &Sample) -> Row {
        Row { spread: Some(sample.spread()), ..Row::of(name, sample.median() / NANOS_PER_MICRO, MICROSECONDS) }
    }

    /// Two samples measured in turn, in nanoseconds.
    pub(crate) fn pairs(name: &'static str, reference: &'static str, pairs: &Pairs) -> Row {
        Row {
            reference: Some(reference),
            reference_value: Some(pairs.theirs.median() / NANOS_PER_MICRO),
            ratio: Some(pairs.ratio.median()),
            spread: Some(pairs.ratio.spread()),
            ..Row::time(name, &pairs.ours)
        }
    }

    /// Adds a note.
    pub(crate) fn noting(self, note: impl Into<String>) -> Row {
        Row { note: Some(note.into()), ..self }
    }

    /// The row as one JSON object on one line, without unknown fields.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut object = Map::new();
        object.insert("name".into(), json!(self.name));
        object.insert("value".into(), json!(self.value));
        object.insert("unit".into(), json!(self.unit));
        let optional = [
            ("reference", self.reference.map(Value::from)),
            ("reference_value", self.reference_value.map(Value::from)),
            ("ratio", self.ratio.map(Value::from)),
            ("spread", self.spread.map(Value::from)),
            ("note", self.note.clone().map(Value::from)),
        ];
        object.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        Value::Object(object).to_string()
    }
}

/// Prints rows as a table for people, line by line as they come.
#[derive(Clone, Copy, Debug)]
pub struct Table;

impl Table {
    /// The table's first line.
    #[must_use]
    pub fn head() -> String {
        format!("{:26}{:>12} {:6}{:>12} {:>8} {:>7}  {}", "figure", "ours", "unit", "theirs", "ratio", "spread", "reference; note")
    }

    /// A row's line.
    #[must_use]
    pub fn line(row: &Row) -> String {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| Digits(value).to_string());
        let spread = row.spread.map_or(String::new(), |spread| format!("{:.0} %", spread * 100.0));
        let remarks: Vec<&str> = row.reference.into_iter().chain(row.note.as_deref()).collect();
        let line = format!(
            "{:26}{:>12} {:6}{:>12} {:>8} {:>7}  {}",
            row.name,
            Digits(row.value).to_string(),
            row.unit,
            number(row.reference_value),
            number(row.ratio),
            spread,
            remarks.join("; "),
        );
        line.trim_end().into()
    }
}

/// A number with about four digits.
struct Digits(f64);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.0.abs() {
            0.0..0.1 => 4,
            0.1..10.0 => 3,
            10.0..100.0 => 2,
            100.0..1000.0 => 1,
            _ => 0,
        };
        write!(f, "{:.decimals$}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, Table};

    fn row() -> Row {
        Row { reference: Some("the bare exit"), reference_value: Some(40.25), ratio: Some(2.0), ..Row::of("switch", 80.5, "µs") }
    }

    #[test]
    fn json_holds_the_known_fields_only() {
        assert_eq!(Row::of("switch", 80.5, "µs").to_json(), r#"{"name":"switch","unit":"µs","value":80.5}"#);
        let value: serde_json::Value = serde_json::from_str(&row().noting("quiet").to_json()).expect("an object");
        assert_eq!(value["ratio"], 2.0);
        assert_eq!(value["reference"], "the bare exit");
        assert_eq!(value["reference_value"], 40.25);
        assert_eq!(value["note"], "quiet");
    }

    #[test]
    fn the_table_lines_up() {
        let line = Table::line(&row());
        assert_eq!(Table::head().find("unit"), line.find("µs"));
        assert!(line.ends_with("the bare exit"), "{line}");
    }
}
