// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules about imports inside a crate: modules on floors, and no circles of files.

use super::super::{LayersFile, Rule, check_crate, floors, imports, python};
use super::{HOUSE, house};

/// A crate with the modules that [`HOUSE`] declares for `upper`; `extra` replaces files or adds some.
fn upper(extra: &[(&str, &str)]) -> Vec<(String, String)> {
    let usual = [
        ("lib.rs", "pub mod device;\npub mod limits;\npub mod memory;\npub use device::Nic;\npub struct Root;\n"),
        ("limits.rs", "pub const MAX: usize = 1;\n"),
        ("memory/mod.rs", "mod frame;\nmod tree;\npub use tree::Tree;\npub struct Memory(frame::Frame);\n"),
        ("memory/frame.rs", "pub struct Frame;\n"),
        ("memory/tree.rs", "pub struct Tree;\n"),
        ("device/mod.rs", "pub struct Nic;\npub fn g() {}\n"),
    ];
    let mut files: Vec<(&str, &str)> = usual.into_iter().filter(|(path, _)| !extra.iter().any(|(other, _)| other == path)).collect();
    files.extend(extra);
    files.into_iter().map(|(path, text)| (format!("upper/src/{path}"), text.to_string())).collect()
}

/// The rules that the crate violates, with files and lines.
fn broken_by(house: &LayersFile, extra: &[(&str, &str)]) -> Vec<(Rule, String, usize)> {
    let findings = check_crate(house, "upper", &upper(extra)).into_iter();
    findings.map(|finding| (finding.rule, finding.path.trim_start_matches("upper/src/").to_string(), finding.line)).collect()
}

fn broken(extra: &[(&str, &str)]) -> Vec<(Rule, String, usize)> {
    broken_by(&house(), extra)
}

fn with(replaced: &str, by: &str) -> LayersFile {
    LayersFile::parse(&HOUSE.replace(replaced, by)).expect("well formed")
}

#[test]
fn layer_module_catches_siblings_however_they_are_named() {
    let at = |file: &str, line| vec![(Rule::LayerModule, file.to_string(), line)];
    let tree = "memory/tree.rs";
    assert_eq!(broken(&[(tree, "use crate::device::Nic;\n")]), at(tree, 1));
    assert_eq!(broken(&[(tree, "use crate::{limits::MAX, device::{self, Nic}};\n")]), at(tree, 1));
    assert_eq!(broken(&[(tree, "use crate::device;\n\nfn f() { device::g() }\n")]), at(tree, 3));
    assert_eq!(broken(&[("memory/mod.rs", "fn f() { super::device::g() }\n")]), at("memory/mod.rs", 1));
    assert_eq!(broken(&[(tree, "use super::super::device::g;\n")]), at(tree, 1));
    assert_eq!(broken(&[("memory/mod.rs", "mod inner { use super::super::device::g; }\n")]), at("memory/mod.rs", 1));
    assert_eq!(broken(&[(tree, "fn f() { println!(\"{}\", crate::device::g()) }\n")]), at(tree, 1));
    assert_eq!(broken(&[(tree, "use crate::Nic;\n")]), at(tree, 1), "through a re-export of the root");
    assert_eq!(broken(&[(tree, "use crate::*;\nfn f(nic: Nic) {}\n")]), at(tree, 1), "through a glob");
    assert_eq!(broken(&[(tree, "use crate::Root;\n")]), at(tree, 1), "the root itself is above");
    assert_eq!(broken(&[("other.rs", "")]), at("other.rs", 1), "a module without a line");
    let gone: Vec<_> = upper(&[]).into_iter().filter(|(path, _)| !path.contains("device")).collect();
    assert_eq!(check_crate(&house(), "upper", &gone)[0].rule, Rule::LayersComplete, "a line without a module");
}

#[test]
fn layer_module_leaves_own_names_the_root_and_tests_alone() {
    assert_eq!(broken(&[]), []);
    let tree = "use super::frame::F;\nuse self::x::Y;\nmod inner { use super::z; }\nuse core::mem;\nuse crate::limits::MAX;\n";
    assert_eq!(broken(&[("memory/tree.rs", tree)]), []);
    assert_eq!(broken(&[("memory/tree.rs", "#[cfg(test)]\nuse crate::device::g;\n#[cfg(test)]\nmod tests { use crate::Nic; }\n")]), []);
    assert_eq!(broken(&[("memory/mod.rs", "#[cfg(test)]\nmod tests;\n"), ("memory/tests.rs", "use crate::device::g;\n")]), []);
}

#[test]
fn layers_complete_catches_crates_whose_modules_have_no_lines() {
    let without = with("[modules.upper]\nlimits = []\nmemory = [\"limits\"]\ndevice = [\"limits\", \"memory\"]\n", "[modules]\n");
    let files: Vec<_> = upper(&[]);
    let findings: Vec<_> = check_crate(&without, "upper", &files).into_iter().map(|finding| (finding.rule, finding.path)).collect();
    assert_eq!(findings, [(Rule::LayersComplete, "layers.toml".into())]);
    assert!(check_crate(&without, "upper", &files[..2]).is_empty(), "one module needs none");
}

#[test]
fn modules_inside_a_module_have_lines_too() {
    let nested = with("[unsafe]", "[modules.\"upper/memory\"]\nframe = []\ntree = [\"frame\"]\n[unsafe]");
    assert_eq!(broken_by(&nested, &[("memory/tree.rs", "use super::frame::Frame;\npub struct Tree;\n")]), []);
    let upward = [("memory/frame.rs", "use super::Tree;\npub struct Frame;\n")];
    assert_eq!(broken_by(&nested, &upward), [(Rule::LayerModule, "memory/frame.rs".into(), 1)]);
    assert_eq!(broken(&upward), [], "without lines for them, only circles count");
}

#[test]
fn floors_grant_the_floors_below() {
    let floors = "[floors]\n\"upper/memory\" = [[\"super\"], [\"frame\", \"tree\"]]\n[unsafe]";
    let nested = with("[unsafe]", floors);
    assert_eq!(broken_by(&nested, &[("memory/frame.rs", "use super::Memory;\npub struct Frame;\n")]), []);
    let beside = [("memory/frame.rs", "use super::Tree;\npub struct Frame;\n")];
    assert_eq!(broken_by(&nested, &beside), [(Rule::LayerModule, "memory/frame.rs".into(), 1)]);
}

#[test]
fn floors_are_computed_from_the_imports() {
    let files = [("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub struct Root;\n"), ("a.rs", "pub struct A;\nuse crate::Root;\n")];
    let more =
        [("b.rs", "pub struct B(crate::c::C, crate::a::A);\n"), ("c.rs", "pub struct C(crate::b::B);\n"), ("d.rs", "use crate::b::B;\n")];
    let files: Vec<_> = files.into_iter().chain(more).map(|(path, text)| (path.to_string(), text.to_string())).collect();
    let paths: Vec<String> = files.iter().map(|(path, _)| path.clone()).collect();
    let text = floors::print("upper", &[], &paths, &imports::imports(&files));
    assert_eq!(text, "upper = [\n    [\"super\"],\n    [\"a\"],\n    [\"b\", \"c\"], # a circle\n    [\"d\"],\n]\n");
}

#[test]
fn import_circle_catches_files_that_import_each_other() {
    let pair = [
        ("memory/frame.rs", "use super::tree::Tree;\npub struct Frame(Tree);\n"),
        ("memory/tree.rs", "pub struct Tree;\nfn f() { super::frame::Frame; }\n"),
    ];
    assert_eq!(broken(&pair), [(Rule::ImportCircle, "memory/frame.rs".into(), 1)]);
    let message = &check_crate(&house(), "upper", &upper(&pair))[0].message;
    assert!(message.contains("memory/tree.rs:2 uses memory/frame.rs (super::frame::Frame)"), "{message}");
    let hidden = [
        ("memory/frame.rs", "pub struct Frame(super::Tree);\n"),
        ("memory/tree.rs", "pub struct Tree;\nuse super::frame as other;\nfn f(frame: other::Frame) {}\n"),
    ];
    assert_eq!(broken(&hidden), [(Rule::ImportCircle, "memory/frame.rs".into(), 1)], "through a re-export and an alias");
    let namesake = [
        ("memory/frame.rs", "use super::tree;\npub fn tree() { tree::edit() }\n"),
        ("memory/tree.rs", "use super::frame;\npub fn edit() { frame::tree() }\n"),
    ];
    assert_eq!(broken(&namesake), [(Rule::ImportCircle, "memory/frame.rs".into(), 2)], "a function has the name of a module");
    let long = [
        ("memory/mod.rs", "mod frame;\nmod tree;\nmod edit;\n"),
        ("memory/frame.rs", "use super::tree::Tree;\npub struct Frame;\n"),
        ("memory/tree.rs", "use super::edit::Edit;\npub struct Tree;\n"),
        ("memory/edit.rs", "use super::frame::Frame;\npub struct Edit;\n"),
    ];
    assert_eq!(broken(&long).len(), 1, "three files are one circle");
}

#[test]
fn import_circle_leaves_parents_and_tests_alone() {
    let parent = [("memory/tree.rs", "use super::Memory;\npub struct Tree;\n")];
    assert_eq!(broken(&parent), [], "a parent re-exports the names of its children");
    let uses =
        [("memory/tree.rs", "use super::Memory;\npub struct Tree;\n"), ("memory/mod.rs", "mod tree;\npub struct Memory(tree::Tree);\n")];
    assert_eq!(broken(&uses), [], "a child uses the names of the module around it");
    let tests = [
        ("memory/frame.rs", "use super::tree::Tree;\npub struct Frame;\n"),
        ("memory/tree.rs", "pub struct Tree;\n#[cfg(test)]\nmod tests { use super::super::frame::Frame; }\n"),
    ];
    assert_eq!(broken(&tests), []);
}

#[test]
fn import_circle_catches_python_files_that_import_each_other() {
    let broken = |files: &[(&str, &str)]| -> Vec<(String, usize)> {
        let files: Vec<_> = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        python::check_circles(&files).into_iter().map(|finding| (finding.path, finding.line)).collect()
    };
    let pair =
        [("c/p/__init__.py", ""), ("c/p/_a.py", "import os\nfrom ._b import B\n"), ("c/p/_b.py", "if X:\n    from . import _a, os\n")];
    assert_eq!(broken(&pair), [("c/p/_a.py".into(), 2)]);
    let beside = [("c/one.py", "import two as other\n"), ("c/two.py", "def f():\n    from one import f\n")];
    assert_eq!(broken(&beside), [("c/one.py".into(), 1)]);
    let package = [("c/p/__init__.py", "import two\n"), ("c/two.py", "import p\n")];
    assert_eq!(broken(&package), [("c/p/__init__.py".into(), 1)]);
    let program = [("c/p/__init__.py", "import os\n"), ("c/p/__main__.py", "import two\n"), ("c/two.py", "import p\n")];
    assert_eq!(broken(&program), [], "a package's program uses what uses the package");
    assert_eq!(broken(&[("c/p/__init__.py", ""), ("c/p/one.py", "import two\n"), ("c/p/two.py", "import one\n")]), [], "not those");
}
