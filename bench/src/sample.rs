// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples: many measurements of one thing, and alternating measurements of two things.

use crate::BenchError;

/// Sorted measurements. At least one.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    /// Creates a sample of these measurements.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn of(mut values: Vec<f64>) -> Sample {
        assert!(!values.is_empty(), "a sample of nothing says nothing");
        values.sort_by(f64::total_cmp);
        Sample(values)
    }

    /// Measures `rounds` times, after a warm-up.
    pub(crate) fn take(rounds: usize, mut measure: impl FnMut() -> Result<f64, BenchError>) -> Result<Sample, BenchError> {
        measure()?;
        Ok(Sample::of((0..rounds).map(|_| measure()).collect::<Result<_, _>>()?))
    }

    /// The quantile at `part`, between 0 and 1.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let position = part * (self.0.len() - 1) as f64;
        let (below, above) = (self.0[position.floor() as usize], self.0[position.ceil() as usize]);
        below + (above - below) * position.fract()
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The distance between the quartiles.
    pub(crate) fn width(&self) -> f64 {
        self.quantile(0.75) - self.quantile(0.25)
    }

    /// The distance between the quartiles, relative to the median.
    pub(crate) fn spread(&self) -> f64 {
        self.width() / self.median()
    }
}

/// The side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// The result of measuring two things in turn.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pub(crate) ours: Sample,
    pub(crate) theirs: Sample,
    /// Ours divided by theirs, pair by pair: disturbances that slow both cancel out.
    pub(crate) ratio: Sample,
}

impl Pairs {
    /// Pairs up measurements that were made in turn, equally many of each.
    pub(crate) fn of(ours: Vec<f64>, theirs: Vec<f64>) -> Pairs {
        let ratio = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        Pairs { ours: Sample::of(ours), theirs: Sample::of(theirs), ratio: Sample::of(ratio) }
    }
}

/// Measures two things in turn, `rounds` times each, so that other load on the host affects both. Each is measured twice
/// and the second counts, because the other side has displaced its caches.
pub(crate) fn alternate(rounds: usize, mut measure: impl FnMut(Side) -> Result<f64, BenchError>) -> Result<Pairs, BenchError> {
    let mut measure = |side| measure(side).and_then(|_| measure(side));
    let mut values = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for _ in 0..rounds {
        values.0.push(measure(Side::Ours)?);
        values.1.push(measure(Side::Theirs)?);
    }
    Ok(Pairs::of(values.0, values.1))
}

#[cfg(test)]
mod tests {
    use super::{Sample, Side, alternate};

    #[test]
    fn one_wild_value_does_not_move_the_median() {
        let sample = Sample::of(vec![5.0, 1.0, 3.0, 2.0, 1e9]);
        assert_eq!(sample.median(), 3.0);
        assert_eq!(sample.spread(), 1.0);
    }

    #[test]
    fn sides_alternate_and_the_second_of_two_counts() {
        let mut calls = Vec::new();
        let pairs = alternate(2, |side| {
            calls.push(side);
            Ok(calls.len() as f64)
        })
        .expect("nothing fails");
        assert_eq!(calls, [Side::Ours, Side::Ours, Side::Theirs, Side::Theirs].repeat(2));
        assert_eq!((pairs.ours.median(), pairs.theirs.median()), (4.0, 6.0));
        assert_eq!(pairs.ratio.median(), (2.0 / 4.0 + 6.0 / 8.0) / 2.0);
    }
}
