// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exits of a run by their causes, for the note of a row.

use serde_json::Value;

/// The number of causes that a note names.
const NAMED: usize = 5;

/// The exits of a run, from the statistics of `pando run --stats=json`.
pub(crate) fn of_stats(stats: &Value) -> String {
    let causes = stats["exit_causes"].as_object().into_iter().flatten();
    let causes = causes.filter_map(|(cause, count)| Some((cause.as_str(), count.as_u64()?))).collect();
    describe(stats["exits"].as_u64().unwrap_or_default(), causes)
}

/// The number of exits, and the most frequent causes with theirs.
pub(crate) fn describe(exits: u64, mut causes: Vec<(&str, u64)>) -> String {
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: u64 = causes.iter().skip(NAMED).map(|(_, count)| count).sum();
    let mut named: Vec<String> = causes.iter().take(NAMED).map(|(cause, count)| format!("{count} {}", cause.replace('_', " "))).collect();
    if rest > 0 {
        named.push(format!("{rest} other"));
    }
    if named.is_empty() { format!("{exits} exits") } else { format!("{exits} exits: {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::of_stats;
    use serde_json::json;

    #[test]
    fn the_most_frequent_causes_come_first_and_the_rest_is_summed() {
        let causes = json!({"a": 1, "copy_fault": 20, "c": 3, "d": 4, "e": 5, "f": 6, "g": 1});
        assert_eq!(of_stats(&json!({"exits": 41, "exit_causes": causes})), "41 exits: 20 copy fault, 6 f, 5 e, 4 d, 3 c, 2 other");
        assert_eq!(of_stats(&json!({"exits": 0, "exit_causes": {}})), "0 exits");
    }
}
