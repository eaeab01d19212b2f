// SPDX-License-Identifier: MIT OR Apache-2.0
//! The language rules: plain sentences and function names, no private words, short Markdown lines, nouns as type names.
//!
//! They find symptoms, not meaning: a clean run is no proof of plain English.

use super::{Finding, Rule};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Longest line of a Markdown file, in characters. Tables, links and quoted output may be longer.
pub(crate) const LINE_COLUMNS: usize = 140;
/// In how many crates a type name may be declared.
const CRATES_PER_NAME: usize = 2;
/// Names that mean the same in every crate.
const COMMON_NAMES: [&str; 3] = ["Error", "Kind", "Config"];

/// A sentence, or a part of one, that begins with a relative pronoun. [`is_question`] tells questions apart.
static HEADLESS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:^|[.:;] )(?:Who|Whoever|Whom|Whose|What|Whatever|Those who|That which|Wherever|Whichever)\b"));
/// The declaration of a function in Rust or Python whose name begins with a relative pronoun.
static HEADLESS_FUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"^\s*(?:[\w():"]+ )*(?:fn|def) ((?:test_)?(?:who|whoever|whom|whose|what|whatever|wherever|whichever)(?:_\w+)?)\s*[(<]"#)
});
/// Words of the private dialect that this project once had.
static PRIVATE: LazyLock<Regex> = LazyLock::new(|| {
    let words = [
        "strangers?",
        "knock(?:s|ed)?",
        "lessons?",
        "whoever",
        "mend(?:ed)?",
        "riddle",
        "neighbour feels",
        "lets? go of",
        "led out",
        "leads? out",
        "is let know",
        "has its say",
        "says so",
    ];
    regex(&format!(r"(?i)\b(?:{})\b", words.join("|")))
});
/// The text of a comment line in Rust, C, Python or TOML.
static COMMENT: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*(?://[/!]? ?|/\*+ ?|\* |# )(.*)"));
/// The declaration of a public type.
static TYPE: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*pub(?:\([a-z: ]+\))? (?:struct|enum|trait|type) ([A-Z]\w*)"));
/// The declaration of any type.
static ANY_TYPE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait|type) ([A-Z]\w*)"));
/// A name in backticks.
static QUOTED: LazyLock<Regex> = LazyLock::new(|| regex("`([^`]+)`"));
/// Participles, pronouns and metaphors that say nothing as a type name.
static VAGUE: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    "Said Seen Asked Kept Held Told Carried Felt Found Gone Ran Heard Mended Wanted Known Lent Made Shown Listed Numbered Covered \
     Registered Restored Saved Watched Allowed Warm Which Who Whose What Way Here Far At Beside About Tell Story Voice Mute Manner \
     Surroundings Others Last LastWord Nowhere Means Behalf Stranger Strangers Lesson Lessons Doorkeeper Laps Aim Plug Vessel Obstacle \
     Town Grove"
        .split_whitespace()
        .collect()
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant and well formed")
}

/// Whether the language rules apply to a file, by its name.
pub(crate) fn is_checked(path: &str) -> bool {
    [".rs", ".md", ".py", ".toml", ".c", ".h", ".S", ".sh"].iter().any(|suffix| path.ends_with(suffix))
        // These hold the words as data.
        && !path.starts_with("xtask/src/tidy")
}

/// Checks sentences and words of a file's comments, or of a whole Markdown file, and the length of their lines.
pub(crate) fn check_prose(path: &str, text: &str) -> Vec<Finding> {
    let is_markdown = path.ends_with(".md");
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut find = |rule, message: String| findings.push(Finding { path: path.into(), line: at + 1, rule, message });
        let prose =
            if is_markdown { Some(line) } else { COMMENT.captures(line).and_then(|groups| groups.get(1)).map(|group| group.as_str()) };
        let Some(prose) = prose else { continue };
        let is_whole = ["|", "http", "["].iter().any(|start| prose.trim_start().starts_with(start));
        if line.chars().count() > LINE_COLUMNS && !is_whole && !path.ends_with(".toml") {
            find(Rule::LongLine, format!("a line of Markdown or of a comment has at most {LINE_COLUMNS} characters"));
        }
        if let Some(found) = HEADLESS.find_iter(prose).find(|found| !is_question(&prose[found.end()..])) {
            find(
                Rule::PlainSentence,
                format!(
                    "`{}` begins a sentence without a subject: name the subject",
                    found.as_str().trim_start_matches(['.', ':', ';', ' '])
                ),
            );
        }
        if let Some(found) = PRIVATE.find(prose) {
            find(Rule::PrivateWord, format!("`{}`: use the field's term (docs/glossary.md)", found.as_str()));
        }
    }
    findings
}

/// Checks that the name of a function states what it does or shows: it does not begin with a relative pronoun.
pub(crate) fn check_functions(path: &str, text: &str) -> Vec<Finding> {
    let headless = |(at, line)| {
        let name = &HEADLESS_FUNCTION.captures(line)?[1];
        let message = format!("`{name}` begins without a subject: name the subject, as in `changes_stay_in_their_cell`");
        Some(Finding { path: path.into(), line: at + 1, rule: Rule::FunctionName, message })
    };
    text.lines().enumerate().filter_map(headless).collect()
}

/// Whether the first sentence of `rest` ends with a question mark.
fn is_question(rest: &str) -> bool {
    rest.find(['.', '?', '!']).is_some_and(|end| rest[end..].starts_with('?'))
}

/// The public types that a Rust file declares, with their lines.
pub(crate) fn types(text: &str) -> Vec<(String, usize)> {
    let declared = |(at, line)| TYPE.captures(line).map(|groups| (groups[1].to_string(), at + 1));
    text.lines().enumerate().filter_map(declared).collect()
}

/// The types that a Rust file declares, private ones too.
pub(crate) fn all_types(text: &str) -> impl Iterator<Item = String> {
    ANY_TYPE.captures_iter(text).map(|groups| groups[1].to_string())
}

/// Checks that each name in the first column of the glossary's tables is a type or a file of the repository.
pub(crate) fn check_glossary(path: &str, text: &str, types: &BTreeSet<String>, files: &[String]) -> Vec<Finding> {
    let exists = |name: &str| match name.ends_with(".rs") {
        true => files.iter().any(|file| file.rsplit('/').next() == Some(name)),
        false => types.contains(name),
    };
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| `")) {
        let names = line.split('|').nth(1).unwrap_or_default();
        for name in QUOTED.captures_iter(names).map(|groups| groups[1].to_string()).filter(|name| !exists(name)) {
            let message = format!("`{name}` is neither a type nor a file: change the entry with the name");
            findings.push(Finding { path: path.into(), line: at + 1, rule: Rule::GlossaryName, message });
        }
    }
    findings
}

/// Checks that type names are nouns, and that a name means one thing: few crates declare the same one.
///
/// `declared` has a place for each declaration: name, path, line. `folders` are those of the crates.
pub(crate) fn check_types(declared: &[(String, String, usize)], folders: &[&str]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, path, _) in declared {
        let inside = |folder: &&&str| path.strip_prefix(**folder).is_some_and(|rest| rest.starts_with('/'));
        let home = folders.iter().filter(inside).max_by_key(|folder| folder.len()).copied();
        crates.entry(name).or_default().insert(home.or(path.split('/').next()).unwrap_or_default());
    }
    let mut findings = Vec::new();
    for (name, path, line) in declared {
        let mut find = |rule, message| findings.push(Finding { path: path.clone(), line: *line, rule, message });
        if VAGUE.contains(name.as_str()) {
            find(Rule::TypeNoun, format!("`{name}`: a type's name is a noun that says what it is"));
        }
        let homes = &crates[name.as_str()];
        if homes.len() > CRATES_PER_NAME && !COMMON_NAMES.contains(&name.as_str()) {
            let homes: Vec<&str> = homes.iter().copied().collect();
            find(Rule::TypeHomes, format!("`{name}` is declared in {}: give each its own name", homes.join(", ")));
        }
    }
    findings
}
