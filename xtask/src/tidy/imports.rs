// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports between the files of a crate: an arrow leads from a file to the file that declares a name that it uses.
//!
//! Re-exports are followed to the declaration, so that a parent may re-export the names of a child that uses the parent. Tests
//! count for nothing. Methods and fields are not visible here: only names that a file spells out are imports.

use super::scan::{Scan, ScannedName, scan};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree, Visibility};

/// How many re-exports in a row are followed.
const REEXPORTS: usize = 8;

/// A module path inside a crate; the crate's root is empty.
type ModulePath = Vec<String>;

/// An arrow between two files of a crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    /// The importing file, relative to `src`.
    pub(crate) from: String,
    /// The file that declares the name, relative to `src`.
    pub(crate) to: String,
    /// Line in `from`, counted from 1.
    pub(crate) line: usize,
    /// The name as written.
    pub(crate) name: String,
}

/// A module: a file, or an inline module of one.
#[derive(Debug, Default)]
struct ModuleNames {
    /// Its file, relative to `src`.
    file: String,
    /// Names that are imported or re-exported, and what they mean, as written.
    aliases: BTreeMap<String, Vec<String>>,
    /// Modules whose names are imported or re-exported by `*`, as written.
    globs: Vec<Vec<String>>,
    /// Names that it declares.
    items: BTreeSet<String>,
    /// Of these, the functions, constants and statics: a module may have the same name.
    values: BTreeSet<String>,
}

/// The modules of one crate by their paths.
#[derive(Debug, Default)]
struct ModuleMap(BTreeMap<ModulePath, ModuleNames>);

/// Lists the imports between the files of a crate. `files` has the files below `src`: path relative to it, and text.
///
/// Files that do not parse are left out; other rules report them.
pub(crate) fn imports(files: &[(String, String)]) -> Vec<Import> {
    let parsed = |(path, text): &(String, String)| Some((path.clone(), syn::parse_file(text).ok()?, scan(text).ok()?));
    let files: Vec<_> = files.iter().filter_map(parsed).collect();
    let mut tests = BTreeSet::new();
    let mut modules = ModuleMap::default();
    for (path, file, _) in &files {
        modules.declare(path, &module_path(path), &file.items, &mut tests);
    }
    let is_test = |path: &str| tests.iter().any(|test: &ModulePath| module_path(path).starts_with(test)) || path.ends_with("tests.rs");
    let shipped = files.iter().filter(|(path, ..)| !is_test(path));
    let mut found: BTreeMap<(String, String), Import> = BTreeMap::new();
    for (path, file, scan) in shipped {
        let reexported = reexported(&file.items);
        for name in scan.names.iter().filter(|name| !name.is_in_tests()) {
            let used_here = |alias: &str| scan.idents.contains(alias);
            let is_used = !name.is_use || !reexported.contains(&name.segments) || used_here(local_name(name));
            for target in modules.targets(path, name, scan).into_iter().filter(|target| is_used && target != path) {
                let import = Import { from: path.clone(), to: target.clone(), line: name.line, name: name.segments.join("::") };
                found.entry((path.clone(), target)).or_insert(import);
            }
        }
    }
    found.into_values().filter(|import| !is_test(&import.to)).collect()
}

/// The name that a `use` item gives a path in its file.
fn local_name(name: &ScannedName) -> &str {
    name.alias.as_deref().or(name.segments.last().map(String::as_str)).unwrap_or_default()
}

impl ModuleMap {
    /// Records the names of a module and of the modules inside it.
    fn declare(&mut self, file: &str, path: &ModulePath, items: &[Item], tests: &mut BTreeSet<ModulePath>) {
        let mut names = ModuleNames { file: file.into(), ..ModuleNames::default() };
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            match item {
                Item::Mod(module) => {
                    if let Some((_, inside)) = &module.content {
                        self.declare(file, &child(path, &module.ident.to_string()), inside, tests);
                    }
                }
                Item::Use(item) => collect(&item.tree, &mut Vec::new(), &mut names),
                item => {
                    names.items.extend(declared(item));
                    names.values.extend(declared(item).filter(|_| is_value(item)));
                }
            }
        }
        for item in items.iter().filter(|item| is_for_tests(item)) {
            if let Item::Mod(module) = item {
                tests.insert(child(path, &module.ident.to_string()));
            }
        }
        // A crate with a library and a program has two roots; the library's names are those that other files use.
        if file != "main.rs" || !self.0.contains_key(path) {
            self.0.insert(path.clone(), names);
        }
    }

    /// The files that a name in a file leads to.
    fn targets(&self, file: &str, name: &ScannedName, scan: &Scan) -> Vec<String> {
        let here: ModulePath = module_path(file).into_iter().chain(name.modules.iter().cloned()).collect();
        let Some((last, above)) = name.segments.split_last() else { return Vec::new() };
        if last != "*" {
            return self.resolve(&here, &name.segments, REEXPORTS).into_iter().collect();
        }
        // Of a glob import, the names that occur in the file.
        let Some(module) = self.module(&here, above, REEXPORTS) else { return self.resolve(&here, above, REEXPORTS).into_iter().collect() };
        let names = &self.0[&module];
        let known = names.items.iter().chain(names.aliases.keys()).filter(|known| scan.idents.contains(*known));
        known.filter_map(|known| self.resolve(&module, std::slice::from_ref(known), REEXPORTS)).collect()
    }

    /// The file that declares what a path means in a module; `None` for modules themselves and for names of other crates.
    fn resolve(&self, here: &ModulePath, segments: &[String], depth: usize) -> Option<String> {
        let (mut at, mut rest) = self.start(here, segments)?;
        while let Some((first, after)) = rest.split_first() {
            let inside = child(&at, first);
            if self.0.contains_key(&inside) {
                (at, rest) = (inside, after);
                continue;
            }
            let names = self.0.get(&at)?;
            // Nothing lies inside of a function: with more behind it, the name is that of a module.
            if names.items.contains(first) && (after.is_empty() || !names.values.contains(first)) {
                return Some(names.file.clone());
            }
            let depth = depth.checked_sub(1)?;
            if let Some(meaning) = names.aliases.get(first) {
                let whole: Vec<String> = meaning.iter().chain(after).cloned().collect();
                return self.resolve(&at, &whole, depth);
            }
            let through = |glob: &Vec<String>| {
                let module = self.module(&at, glob, depth).filter(|module| *module != at)?;
                self.resolve(&module, rest, depth)
            };
            return names.globs.iter().find_map(through);
        }
        None
    }

    /// The module that a path means in a module, if it means one.
    fn module(&self, here: &ModulePath, segments: &[String], depth: usize) -> Option<ModulePath> {
        let (mut at, mut rest) = self.start(here, segments)?;
        while let Some((first, after)) = rest.split_first() {
            let inside = child(&at, first);
            if !self.0.contains_key(&inside) {
                let meaning = self.0.get(&at)?.aliases.get(first)?;
                let whole: Vec<String> = meaning.iter().chain(after).cloned().collect();
                return self.module(&at, &whole, depth.checked_sub(1)?);
            }
            (at, rest) = (inside, after);
        }
        self.0.contains_key(&at).then_some(at)
    }

    /// Where the resolution of a path begins, and the rest of the path; `None` if another crate's name begins it.
    fn start<'a>(&self, here: &ModulePath, segments: &'a [String]) -> Option<(ModulePath, &'a [String])> {
        let first = segments.first()?.as_str();
        match first {
            "crate" => Some((Vec::new(), &segments[1..])),
            "self" => Some((here.clone(), &segments[1..])),
            "super" => {
                let supers = segments.iter().take_while(|segment| *segment == "super").count();
                Some((here[..here.len().saturating_sub(supers)].to_vec(), &segments[supers..]))
            }
            _ => {
                let names = self.0.get(here)?;
                let is_alias = names.aliases.get(first).is_some_and(|meaning| meaning.first().is_some_and(|word| word != first));
                let is_known = is_alias || names.items.contains(first) || self.0.contains_key(&child(here, first));
                is_known.then(|| (here.clone(), segments))
            }
        }
    }
}

/// The module path of a file under `src`: `memory/tree.rs` is `memory::tree`, the crate's root is empty.
pub(crate) fn module_path(inside: &str) -> ModulePath {
    let mut path: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    path
}

fn child(path: &ModulePath, name: &str) -> ModulePath {
    path.iter().cloned().chain([name.to_string()]).collect()
}

/// Whether an item is compiled for tests only.
fn is_for_tests(item: &Item) -> bool {
    let (Item::Mod(syn::ItemMod { attrs, .. })
    | Item::Use(syn::ItemUse { attrs, .. })
    | Item::Fn(syn::ItemFn { attrs, .. })
    | Item::Impl(syn::ItemImpl { attrs, .. })) = item
    else {
        return false;
    };
    let is_test = |attribute: &syn::Attribute| match &attribute.meta {
        syn::Meta::List(list) if attribute.path().is_ident("cfg") => {
            let condition: String = list.tokens.to_string().split_whitespace().collect();
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    };
    attrs.iter().any(is_test)
}

/// The names that an item declares.
fn declared(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether an item declares a value: types, traits and modules may have the same name.
fn is_value(item: &Item) -> bool {
    matches!(item, Item::Const(_) | Item::Fn(_) | Item::Static(_))
}

/// Adds the names of a `use` tree.
fn collect(tree: &UseTree, prefix: &mut Vec<String>, names: &mut ModuleNames) {
    let with = |prefix: &[String], last: &syn::Ident| -> Vec<String> { prefix.iter().cloned().chain([last.to_string()]).collect() };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            collect(&path.tree, prefix, names);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|item| collect(item, prefix, names)),
        UseTree::Name(name) if name.ident == "self" => {
            names.aliases.extend(prefix.last().map(|last| (last.clone(), prefix.clone())));
        }
        UseTree::Name(name) => {
            names.aliases.insert(name.ident.to_string(), with(prefix, &name.ident));
        }
        UseTree::Rename(rename) => {
            let meaning = if rename.ident == "self" { prefix.clone() } else { with(prefix, &rename.ident) };
            names.aliases.insert(rename.rename.to_string(), meaning);
        }
        UseTree::Glob(_) => names.globs.push(prefix.clone()),
    }
}

/// The paths that the `pub use` items of a file name.
fn reexported(items: &[Item]) -> BTreeSet<Vec<String>> {
    let mut names = ModuleNames::default();
    let mut globs = BTreeSet::new();
    for item in items {
        match item {
            Item::Use(item) if !matches!(item.vis, Visibility::Inherited) => collect(&item.tree, &mut Vec::new(), &mut names),
            Item::Mod(module) => globs.extend(module.content.iter().flat_map(|(_, inside)| reexported(inside))),
            _ => {}
        }
    }
    let starred = names.globs.into_iter().map(|glob| glob.into_iter().chain(["*".to_string()]).collect());
    names.aliases.into_values().chain(starred).chain(globs).collect()
}
