// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape rules: the head of a file, the length of files and functions, and marks of unfinished work.

use super::scan::Scan;
use super::{Finding, Rule};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

/// Longest file, in lines: readable in one sitting.
pub(crate) const FILE_LINES: usize = 600;
/// Longest function, in lines from `fn` to the closing brace: about two screens.
pub(crate) const FUNCTION_LINES: usize = 70;
/// The first line of every source file.
pub(crate) const SPDX: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";
/// `//!` must appear within this many lines.
const DOC_WITHIN: usize = 4;
/// Marks of unfinished work; written in two parts so that this file passes its own rule.
const UNFINISHED: [&str; 5] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!"), concat!("unim", "plemented!"), concat!("To be ", "written")];

/// Whether rules about text apply to a file, by its name.
pub(crate) fn is_checked(path: &str) -> bool {
    [".rs", ".c", ".h", ".S", ".sh", ".ld", ".toml"].iter().any(|suffix| path.ends_with(suffix)) || path.starts_with(".ci/")
}

/// Checks the rules for every text file: length, and no marks of unfinished work.
pub(crate) fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES {
        let message = format!("{lines} lines; at most {FILE_LINES}: move an independent part to another file");
        findings.push(Finding { path: path.into(), line: FILE_LINES + 1, rule: Rule::FileLength, message });
    }
    for (at, line) in text.lines().enumerate() {
        if let Some(mark) = UNFINISHED.iter().find(|mark| has_word(line, mark)) {
            let message = format!("`{mark}`: do it now, or open an issue");
            findings.push(Finding { path: path.into(), line: at + 1, rule: Rule::Unfinished, message });
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

/// Checks the head of a Rust file and the length of its functions.
pub(crate) fn check_source(path: &str, text: &str) -> Vec<Finding> {
    let finding = |line, rule, message| Finding { path: path.into(), line, rule, message };
    let mut findings = Vec::new();
    if text.lines().next() != Some(SPDX) {
        findings.push(finding(1, Rule::SpdxFirst, format!("the first line must be `{SPDX}`")));
    }
    if !text.lines().take(DOC_WITHIN).any(|line| line.starts_with("//!")) {
        findings.push(finding(1, Rule::ModuleDoc, "a module starts with `//!`: one sentence, then what matters".into()));
    }
    match syn::parse_file(text) {
        Ok(file) => {
            let mut functions = Functions(Vec::new());
            functions.visit_file(&file);
            for (name, line, lines) in functions.0.into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES) {
                findings.push(finding(line, Rule::FunctionLength, format!("`{name}` has {lines} lines; at most {FUNCTION_LINES}")));
            }
        }
        Err(error) => findings.push(finding(error.span().start().line, Rule::Syntax, format!("not Rust: {error}"))),
    }
    findings
}

/// Checks that ignored tests give their reason.
pub(crate) fn check_ignores(path: &str, scan: &Scan) -> Vec<Finding> {
    let message = "an ignored test says why: `#[ignore = \"...\"]`";
    let finding = |line: &usize| Finding { path: path.into(), line: *line, rule: Rule::IgnoreReason, message: message.into() };
    scan.bare_ignores.iter().map(finding).collect()
}

/// Collects (name, first line, number of lines) of every function with a body, nested ones too.
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let (first, last): (Span, Span) = (signature.span(), block.span());
        let line = first.start().line;
        self.0.push((signature.ident.to_string(), line, last.end().line + 1 - line));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}
