// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each rule reports a small bad example and accepts a good one; the repository itself passes all rules.

mod documents;
mod structure;

use super::layers::{Packages, check_house, check_manifest};
use super::programs::{self, check_script};
use super::{Finding, LayersFile, Rule, check, check_source, language, shape};
use std::collections::BTreeSet;
use std::path::Path;

const HOUSE: &str = r#"
[crates]
base = { uses = [] }
upper = { uses = ["base"], tests = ["helper"] }
helper = { uses = ["base"] }

[modules.upper]
limits = []
memory = ["limits"]
device = ["limits", "memory"]

[unsafe]
only = ["base"]

[names.libc]
paths = ["libc"]
only = ["base"]
why = "reasons"

[names.environment]
paths = ["std::env"]
only = ["base"]
tests = true
why = "reasons"
"#;

fn house() -> LayersFile {
    LayersFile::parse(HOUSE).expect("the example house is well formed")
}

fn packages() -> Packages {
    let folders = ["base", "upper", "helper"].map(|folder| (format!("pando-{folder}"), folder.to_string()));
    Packages { folders: folders.into(), ..Packages::default() }
}

/// The rules and lines that a Rust file's body violates, behind a valid head of three lines.
fn broken(path: &str, body: &str) -> Vec<(Rule, usize)> {
    let text = format!("{}\n//! A module.\n\n{body}", shape::SPDX);
    let places = |finding: Finding| (finding.rule, finding.line);
    check_source(&house(), path, &text).into_iter().chain(shape::check_text(path, &text)).map(places).collect()
}

fn manifest(folder: &str, text: &str) -> Vec<(Rule, usize)> {
    let findings = check_manifest(&house(), &packages(), folder, text).expect("the example is TOML");
    findings.into_iter().map(|finding| (finding.rule, finding.line)).collect()
}

#[test]
fn the_tree_is_tidy() {
    let findings = check(&crate::workspace::root()).expect("the tree can be read");
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} places break the house rules:\n{}", list.len(), list.join("\n"));
}

#[test]
fn findings_print_place_and_rule() {
    let finding = Finding { path: "a/b.rs".into(), line: 7, rule: Rule::Unfinished, message: "words".into() };
    assert_eq!(finding.to_string(), "a/b.rs:7: unfinished: words");
}

#[test]
fn a_good_file_breaks_nothing() {
    let body = "use crate::limits::MAX;\nuse std::{fmt, io};\nfn f() -> usize { crate::memory::g(MAX) }\n";
    assert_eq!(broken("upper/src/device/net.rs", body), []);
}

#[test]
fn layers_complete_catches_strangers_and_the_undeclared() {
    let mut packages = packages();
    assert_eq!(check_house(&house(), &packages), []);
    packages.folders.insert("pando-new".into(), "new".into());
    packages.folders.remove("pando-helper");
    let messages: Vec<String> = check_house(&house(), &packages).into_iter().map(|f| f.message).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    assert!(messages[0].contains("`new` has no line") && messages[1].contains("`helper`"), "{messages:?}");
}

#[test]
fn layers_complete_catches_floors_of_no_crate() {
    let text = HOUSE.replace("[unsafe]", "[floors]\nuper = [[\"limits\"]]\n\"upper/memory\" = [[\"frame\"]]\n[unsafe]");
    let findings = check_house(&LayersFile::parse(&text).expect("well formed"), &packages());
    assert_eq!(findings.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::LayersComplete]);
    assert!(findings[0].message.contains("`uper`"), "{findings:?}");
}

#[test]
fn a_crate_may_only_use_crates_listed_above_it() {
    let text = HOUSE.replace("base = { uses = [] }", "base = { uses = [\"upper\"] }");
    let error = LayersFile::parse(&text).expect_err("an upward edge").to_string();
    assert!(error.contains("`base` uses `upper`"), "{error}");
}

#[test]
fn layer_crate_catches_upward_dependencies_in_every_section() {
    assert_eq!(manifest("base", "[dependencies]\nserde = \"1\"\npando-upper.workspace = true\n"), [(Rule::LayerCrate, 3)]);
    assert_eq!(manifest("base", "[build-dependencies]\npando-upper = { path = \"../upper\" }\n"), [(Rule::LayerCrate, 2)]);
    assert_eq!(manifest("base", "[target.'cfg(unix)'.dependencies]\nx = { package = \"pando-upper\" }\n"), [(Rule::LayerCrate, 2)]);
    assert_eq!(manifest("upper", "[dependencies]\npando-helper.workspace = true\n"), [(Rule::LayerCrate, 2)]);
}

#[test]
fn layer_crate_allows_granted_dependencies() {
    assert_eq!(manifest("upper", "[dependencies]\npando-base.workspace = true\n[dev-dependencies]\npando-helper.workspace = true\n"), []);
}

#[test]
fn layer_name_catches_names_away_from_home() {
    let at = [(Rule::LayerName, 4)];
    assert_eq!(broken("upper/src/lib.rs", "use libc::c_int;\n"), at);
    assert_eq!(broken("upper/src/lib.rs", "use libc as host;\n"), at);
    assert_eq!(broken("upper/src/lib.rs", "extern crate libc;\n"), at);
    assert_eq!(broken("upper/src/lib.rs", "fn f() { assert_eq!(1, ::libc::getpid()) }\n"), at);
    assert_eq!(broken("upper/src/lib.rs", "use std::{io, env};\n"), at);
    assert_eq!(broken("upper/src/lib.rs", "fn f() { std::env::args(); }\n"), at);
    assert_eq!(manifest("upper", "[dependencies]\nlibc = \"0.2\"\n"), [(Rule::LayerName, 2)]);
}

#[test]
fn layer_name_leaves_homes_tests_and_comments_alone() {
    assert_eq!(broken("base/src/lib.rs", "use libc::c_int;\n"), []);
    assert_eq!(broken("upper/src/lib.rs", "// libc::open\nconst A: &str = \"libc::open\";\nconst B: &str = std::env!(\"X\");\n"), []);
    assert_eq!(broken("upper/src/lib.rs", "mod tests { use std::env; }\n"), []);
    assert_eq!(broken("upper/build.rs", "use std::env;\n"), []);
    assert_eq!(broken("upper/tests/all.rs", "use libc::open;\n"), [(Rule::LayerName, 4)]);
}

#[test]
fn unsafe_home_catches_the_keyword_and_nothing_else() {
    assert_eq!(broken("upper/src/lib.rs", "fn f() { wrap!(unsafe { g() }) }\n"), [(Rule::UnsafeHome, 4)]);
    assert_eq!(broken("upper/src/lib.rs", "#[unsafe(no_mangle)]\nfn f() {}\n"), [(Rule::UnsafeHome, 4)]);
    assert_eq!(broken("base/src/lib.rs", "unsafe fn f() {}\n"), []);
    assert_eq!(broken("upper/src/lib.rs", "#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n"), []);
}

#[test]
fn openings_are_checked() {
    let rules = |text: &str| check_source(&house(), "upper/src/lib.rs", text).into_iter().map(|f| f.rule).collect::<Vec<_>>();
    assert_eq!(rules("//! A module.\n"), [Rule::SpdxFirst]);
    assert_eq!(rules(&format!("{}\n\nfn f() {{}}\n", shape::SPDX)), [Rule::ModuleDoc]);
    assert_eq!(rules(&format!("{}\n//! A module.\nfn f( {{}}\n", shape::SPDX)).last(), Some(&Rule::Syntax));
}

#[test]
fn lengths_are_checked_to_the_line() {
    let function = |lines: usize| format!("/// Documented.\n#[test]\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
    assert_eq!(broken("upper/src/lib.rs", &function(shape::FUNCTION_LINES)), []);
    assert_eq!(broken("upper/src/lib.rs", &function(shape::FUNCTION_LINES + 1)), [(Rule::FunctionLength, 6)]);
    let method = format!("struct S;\nimpl S {{\n{}}}\n", function(shape::FUNCTION_LINES + 1));
    assert_eq!(broken("upper/src/lib.rs", &method), [(Rule::FunctionLength, 8)]);
    let nested = format!("mod tests {{\n{}}}\n", function(shape::FUNCTION_LINES + 1));
    assert_eq!(broken("upper/src/lib.rs", &nested), [(Rule::FunctionLength, 7)]);
    assert_eq!(broken("upper/src/lib.rs", &"\n".repeat(shape::FILE_LINES - 3)), []);
    assert_eq!(broken("upper/src/lib.rs", &"\n".repeat(shape::FILE_LINES - 2)), [(Rule::FileLength, shape::FILE_LINES + 1)]);
}

#[test]
fn unfinished_work_is_caught_in_any_text() {
    for mark in [concat!("TO", "DO: later"), concat!("FIX", "ME"), concat!("To be ", "written."), concat!("to", "do!()")] {
        assert_eq!(broken("upper/src/lib.rs", &format!("// {mark}\n")), [(Rule::Unfinished, 4)], "{mark}");
    }
    assert_eq!(broken("upper/src/lib.rs", "// mastodons and things that are to be written down\n"), []);
}

#[test]
fn ignored_tests_say_why() {
    assert_eq!(broken("upper/src/lib.rs", "#[test]\n#[ignore]\nfn f() {}\n"), [(Rule::IgnoreReason, 5)]);
    assert_eq!(broken("upper/src/lib.rs", "#[cfg_attr(miri, ignore)]\nfn f() {}\n"), [(Rule::IgnoreReason, 4)]);
    assert_eq!(broken("upper/src/lib.rs", "#[test]\n#[ignore = \"takes an hour\"]\nfn f() {}\n"), []);
}

#[test]
fn host_program_catches_programs_of_no_package_however_a_test_names_them() {
    for bad in [
        "Command::new(\"sh\")",
        "std::process::Command::new(\"/usr/bin/env\")",
        "g(&[\"run\", \"--\", \"nmap\"])",
        "g(\"/usr/bin/nmap\")",
        "g(b\"exec /sbin/telnet --option\")",
        "g(\"cd /tmp; X=1 nmap -p 80\")",
        "g(\"if true; then nmap; fi\")",
        "g(r#\"sh -c 'nmap \"$1\"'\"#)",
        "assert_eq!(g(\"echo $(timeout 5 telnet)\"), 1)",
        "g(\"yes |\\n  nmap\")",
        "g(\"/usr/bin/in-no-list-at-all\")",
    ] {
        assert_eq!(broken("upper/tests/all.rs", &format!("fn f() {{ {bad} }}\n")), [(Rule::HostProgram, 4)], "{bad}");
        assert_eq!(broken("upper/src/lib.rs", &format!("mod tests {{ fn f() {{ {bad} }} }}\n")), [(Rule::HostProgram, 4)], "{bad}");
        assert_eq!(broken("upper/src/lib.rs", &format!("fn f() {{ {bad} }}\n")), [], "{bad}");
    }
    let script = "echo one\nnmap\n";
    assert_eq!(check_script("upper/tests/all.sh", script).first().map(|finding| finding.line), Some(2));
    assert_eq!(check_script("upper/all.sh", script), []);
}

#[test]
fn host_program_leaves_known_programs_and_prose_alone() {
    for good in [
        "Command::new(host_program(\"sh\"))",
        "Command::new(PANDO)",
        "g(\"ping -c 1 ::1; /bin/ping; exec /usr/bin/env sh\")",
        "g(\"it is told by nmap\")",
        "g(\"/usr/bin:/bin:/usr/bin/nm*\")",
        "g(\"not-a-program-of-debian\")",
        "g(\"print this; open that\")",
        "g(\"/bin/l[a-s]\")",
    ] {
        assert_eq!(
            broken("upper/tests/all.rs", &format!("/// Runs nmap.\n#[ignore = \"nmap\"]\nfn f() {{ {good} }} // nmap\n")),
            [],
            "{good}"
        );
    }
}

#[test]
fn the_list_of_programs_lacks_those_of_the_table_and_common_words() {
    let names: Vec<&str> = programs::names(programs::LIST).collect();
    let known: Vec<_> = names.iter().filter(|name| pando_packages::package_of(name).is_some()).collect();
    assert!(known.is_empty(), "the table has them: {known:?}");
    for word in ["file", "open", "print", "time", "dir", "init", "less", "reset", "route", "service", "users", "watch"] {
        assert!(!names.contains(&word), "{word}");
    }
    assert!(["nmap", "telnet", "lsof"].iter().all(|name| names.contains(name)));
}

#[test]
fn the_walk_sees_sources_and_skips_build_output() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in
        [("a/src/lib.rs", "x"), ("a/target/b.rs", "x"), (".git/c.rs", "x"), (".ci/run", "x"), ("notes.md", "x"), ("image.svg", "x")]
    {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        std::fs::write(path, text).expect("written");
    }
    let mut files = Vec::new();
    super::list(Path::new(folder.path()), "", &mut files).expect("listed");
    files.sort();
    assert_eq!(files, [".ci/run", "a/src/lib.rs", "notes.md"]);
}

/// The rules and lines that a file's prose violates.
fn prose(path: &str, text: &str) -> Vec<(Rule, usize)> {
    language::check_prose(path, text).into_iter().map(|finding| (finding.rule, finding.line)).collect()
}

#[test]
fn a_sentence_has_a_subject() {
    assert_eq!(
        prose("a/src/b.rs", "/// Who breaks off ends it.\nfn f() {}\n// It ends. What is left is freed.\n"),
        [(Rule::PlainSentence, 1), (Rule::PlainSentence, 3)]
    );
    assert_eq!(prose("a/tests/b.c", "/* What it says. */\n// It says.\n"), [(Rule::PlainSentence, 1)]);
    assert_eq!(prose("docs/a.md", "# What is this?\nA client that disconnects ends it.\n"), []);
    assert_eq!(prose("a/src/b.rs", "let text = \"Who asks\";\n"), [], "a string is data");
}

#[test]
fn function_name_catches_names_without_a_subject() {
    let broken = |path: &str, text: &str| -> Vec<(Rule, usize)> {
        language::check_functions(path, text).into_iter().map(|finding| (finding.rule, finding.line)).collect()
    };
    let bad = "#[test]\nfn what_a_program_changes_stays_in_its_cell() {}\n    pub(in crate::a) const fn who(self) -> u8 {}\n";
    assert_eq!(broken("a/src/b.rs", bad), [(Rule::FunctionName, 2), (Rule::FunctionName, 3)]);
    assert_eq!(broken("a/b.py", "    def test_whoever_asks(self) -> None:\n"), [(Rule::FunctionName, 1)]);
    let good = "fn changes_of_a_program_stay_in_its_cell() {}\n// fn what_is_quoted() {}\nfn whole_trees<T>() {}\n";
    assert_eq!(broken("a/src/b.rs", good), []);
}

#[test]
fn words_are_those_of_the_field() {
    assert_eq!(prose("a/src/b.rs", "// The lesson of a clone.\n"), [(Rule::PrivateWord, 1)]);
    assert_eq!(prose("a/src/b.rs", "// The training trace of a clone, amended.\n"), []);
}

#[test]
fn lines_of_prose_fit_a_screen() {
    let long = "word ".repeat(30);
    assert_eq!(prose("docs/a.md", &long), [(Rule::LongLine, 1)]);
    assert_eq!(prose("a/src/b.rs", &format!("    /// {long}")), [(Rule::LongLine, 1)]);
    assert_eq!(prose("a/src/b.rs", &format!("    let x = \"{long}\";")), [], "rustfmt decides about code");
    assert_eq!(prose("docs/a.md", &format!("| {long} |")), [], "a row of a table cannot be broken");
}

#[test]
fn names_of_types_are_nouns_and_mean_one_thing() {
    let declared = |list: &[(&str, &str)]| -> Vec<Rule> {
        let list: Vec<_> = list.iter().map(|(name, path)| (name.to_string(), path.to_string(), 1)).collect();
        language::check_types(&list, &["a", "b", "b/c"]).into_iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(declared(&[("Heard", "a/src/b.rs")]), [Rule::TypeNoun]);
    assert_eq!(declared(&[("Place", "a/src/b.rs"), ("Place", "b/src/b.rs")]), []);
    assert_eq!(declared(&[("Place", "a/src/b.rs"), ("Place", "b/src/b.rs"), ("Place", "c/src/b.rs")]), [Rule::TypeHomes; 3]);
    let nested = [("Place", "a/src/b.rs"), ("Place", "b/src/b.rs"), ("Place", "b/c/src/b.rs")];
    assert_eq!(declared(&nested), [Rule::TypeHomes; 3], "a crate inside the folder of another counts");
    assert_eq!(language::types("pub(crate) enum Way {\n"), [("Way".to_string(), 1)]);
}

#[test]
fn glossary_name_catches_names_that_do_not_exist() {
    let types = BTreeSet::from(["Queue".to_string()]);
    let files = ["a/src/queue.rs".to_string()];
    let check = |text: &str| language::check_glossary("docs/glossary.md", text, &types, &files).len();
    assert_eq!(check("| `Queue`, `queue.rs` | packets | L |\n| name | `Other` |\n"), 0);
    assert_eq!(check("| `Gone`, `gone.rs` | packets | L |\n"), 2);
}
