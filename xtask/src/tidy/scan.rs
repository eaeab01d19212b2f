// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pass over a file's tokens: the paths that it names, its uses of `unsafe`, its ignored tests.
//!
//! Tokens rather than the syntax tree, because names inside macro calls count as well. Comments and the strings of
//! attributes are not visible here.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::{Lit, UseTree};

/// A path as written, with `use` trees expanded.
#[derive(Clone, Debug)]
pub(crate) struct ScannedName {
    /// Its segments; a glob is `*`.
    pub(crate) segments: Vec<String>,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// The inline modules around it, outermost first. Items under `#[cfg(test)]` are in a module `tests`.
    pub(crate) modules: Vec<String>,
    /// Whether a `use` item names it.
    pub(crate) is_use: bool,
    /// The name that a `use` item gives it here, if it differs from the last segment.
    pub(crate) alias: Option<String>,
}

impl ScannedName {
    /// Whether only tests name it.
    pub(crate) fn is_in_tests(&self) -> bool {
        self.modules.iter().any(|module| module == "tests")
    }
}

/// The text of a string literal.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// Its value, with escapes resolved.
    pub(crate) value: String,
    /// Line of its first character, counted from 1.
    pub(crate) line: usize,
    /// The inline modules around it, outermost first.
    pub(crate) modules: Vec<String>,
    /// Whether it is the argument of `Command::new`.
    pub(crate) starts: bool,
}

/// The content of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// Paths of at least two segments, and everything that `use` and `extern crate` name.
    pub(crate) names: Vec<ScannedName>,
    /// The first identifiers of paths, outside `use` items and tests.
    pub(crate) idents: BTreeSet<String>,
    /// String literals, except those of attributes.
    pub(crate) texts: Vec<Text>,
    /// Lines with the keyword `unsafe`.
    pub(crate) unsafes: Vec<usize>,
    /// Lines with an `ignore` attribute that gives no reason.
    pub(crate) bare_ignores: Vec<usize>,
}

/// Scans the text of a Rust file; the error is the tokenizer's message.
pub(crate) fn scan(text: &str) -> Result<Scan, String> {
    let stream: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
    let mut scan = Scan::default();
    scan.walk(stream, &mut Vec::new());
    Ok(scan)
}

impl Scan {
    fn walk(&mut self, stream: TokenStream, modules: &mut Vec<String>) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at += self.step(&tokens[at..], modules);
        }
    }

    /// Handles the construct at the start of `tokens` and returns the number of tokens consumed.
    fn step(&mut self, tokens: &[TokenTree], modules: &mut Vec<String>) -> usize {
        match &tokens[0] {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let skip = if is_punct(tokens.get(1), '!') { 2 } else { 1 };
                match tokens.get(skip) {
                    Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
                        self.attribute(group.stream());
                        let texts = self.texts.len();
                        self.walk(group.stream(), modules);
                        self.texts.truncate(texts);
                        if is_cfg_test(&group.stream()) && skip == 1 {
                            skip + 1 + self.test_item(&tokens[skip + 1..], modules)
                        } else {
                            skip + 1
                        }
                    }
                    _ => 1,
                }
            }
            TokenTree::Group(group) => {
                self.walk(group.stream(), modules);
                1
            }
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                match ident.to_string().as_str() {
                    "unsafe" => {
                        self.unsafes.push(line);
                        1
                    }
                    "use" => self.use_item(tokens, line, modules),
                    "mod" => self.module(tokens, modules),
                    _ => self.path(tokens, line, modules),
                }
            }
            TokenTree::Literal(literal) => {
                let value = match Lit::new(literal.clone()) {
                    Lit::Str(text) => Some(text.value()),
                    Lit::ByteStr(text) => Some(String::from_utf8_lossy(&text.value()).into_owned()),
                    Lit::CStr(text) => Some(text.value().to_string_lossy().into_owned()),
                    _ => None,
                };
                let line = literal.span().start().line;
                self.texts.extend(value.map(|value| Text { value, line, modules: modules.clone(), starts: false }));
                1
            }
            // The name of a method or a field, and the dots of a range.
            TokenTree::Punct(punct) if punct.as_char() == '.' => match tokens.get(1) {
                Some(TokenTree::Ident(_)) => 2,
                next if is_punct(next, '.') => 2,
                _ => 1,
            },
            TokenTree::Punct(_) => 1,
        }
    }

    /// Walks the item under `#[cfg(test)]` as part of a module `tests`; returns its length.
    fn test_item(&mut self, tokens: &[TokenTree], modules: &mut Vec<String>) -> usize {
        let is_brace = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let is_use = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "use");
        let has_braces = !tokens.iter().take(3).any(is_use);
        let ends = |token: &TokenTree| is_punct(Some(token), ';') || has_braces && is_brace(token);
        let length = tokens.iter().position(ends).map_or(0, |end| end + 1);
        modules.push("tests".into());
        self.walk(tokens[..length].iter().cloned().collect(), modules);
        modules.pop();
        length
    }

    fn attribute(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(ident) if ident == "ignore" && !is_punct(tokens.get(at + 1), '=') => {
                    self.bare_ignores.push(ident.span().start().line);
                }
                TokenTree::Group(group) => self.attribute(group.stream()),
                _ => {}
            }
        }
    }

    fn use_item(&mut self, tokens: &[TokenTree], line: usize, modules: &[String]) -> usize {
        let Some(end) = tokens.iter().position(|token| is_punct(Some(token), ';')) else { return 1 };
        let start = if is_punct(tokens.get(1), ':') { 3 } else { 1 };
        let tree: TokenStream = tokens.get(start..end).unwrap_or_default().iter().cloned().collect();
        // A failure to parse means `use<'a>` of a bound or a macro's pattern, which names nothing.
        let Ok(tree) = syn::parse2::<UseTree>(tree) else { return 1 };
        let mut prefix = Vec::new();
        flatten(&tree, &mut prefix, &mut |segments, at, alias| {
            let modules = modules.to_vec();
            self.names.push(ScannedName { segments, line: at.unwrap_or(line), modules, is_use: true, alias });
        });
        end + 1
    }

    fn module(&mut self, tokens: &[TokenTree], modules: &mut Vec<String>) -> usize {
        let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (tokens.get(1), tokens.get(2)) else { return 1 };
        modules.push(name.to_string());
        self.walk(body.stream(), modules);
        modules.pop();
        3
    }

    fn path(&mut self, tokens: &[TokenTree], line: usize, modules: &[String]) -> usize {
        let mut segments = Vec::new();
        let mut taken = 0;
        while let Some(TokenTree::Ident(ident)) = tokens.get(taken) {
            segments.push(ident.to_string());
            if taken == 0 && !modules.iter().any(|module| module == "tests") {
                self.idents.insert(ident.to_string());
            }
            taken += 1;
            let goes_on = is_punct(tokens.get(taken), ':') && is_punct(tokens.get(taken + 1), ':');
            if !goes_on || !matches!(tokens.get(taken + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            taken += 2;
        }
        let external = segments == ["crate"] && matches!(tokens.get(1), Some(TokenTree::Ident(_)));
        if external {
            // `extern crate name`
            segments = vec![tokens[1].to_string()];
        } else if segments.len() > 1 && is_punct(tokens.get(taken), '!') {
            // The macro `std::env!` is not the module `std::env`: only the path of a macro counts.
            segments.pop();
        } else if segments.len() < 2 {
            return taken;
        }
        let starts = segments.ends_with(&["Command".into(), "new".into()]);
        self.names.push(ScannedName { segments, line, modules: modules.to_vec(), is_use: external, alias: None });
        match tokens.get(taken) {
            Some(TokenTree::Group(arguments)) if starts => {
                let first = self.texts.len();
                self.walk(arguments.stream(), &mut modules.to_vec());
                if matches!(arguments.stream().into_iter().next(), Some(TokenTree::Literal(_))) {
                    self.texts[first].starts = true;
                }
                taken + 1
            }
            _ => taken,
        }
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether an attribute is `cfg(test)`, or `cfg(all(test, ...))`.
fn is_cfg_test(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Calls `found` with each path of a `use` tree, its line and its alias.
fn flatten(tree: &UseTree, prefix: &mut Vec<String>, found: &mut impl FnMut(Vec<String>, Option<usize>, Option<String>)) {
    let with = |prefix: &[String], last: String| prefix.iter().cloned().chain([last]).collect();
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, found)),
        UseTree::Name(name) if name.ident == "self" => found(prefix.clone(), Some(name.ident.span().start().line), None),
        UseTree::Name(name) => found(with(prefix, name.ident.to_string()), Some(name.ident.span().start().line), None),
        UseTree::Rename(rename) => {
            let (line, alias) = (rename.ident.span().start().line, Some(rename.rename.to_string()));
            let segments = if rename.ident == "self" { prefix.clone() } else { with(prefix, rename.ident.to_string()) };
            found(segments, Some(line), alias);
        }
        UseTree::Glob(glob) => found(with(prefix, "*".into()), Some(glob.star_token.spans[0].start().line), None),
    }
}
