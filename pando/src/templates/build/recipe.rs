// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recipes of templates: their steps, as a file of TOML or JSON, and the digest of all that they contain.

use super::copies::{CopiedFile, walk};
use pando_manager::template::{PYTHON, TemplateName};
use pando_oci::Digest;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Changes when the same recipe gives another result.
const VERSION: u32 = 3;
/// The starts of the names of templates, whose rest is the digest. Those of the first kind are sessions, which were frozen while they ran.
const OF_SESSION: &str = "recipe-session-";
const OF_IMAGE: &str = "recipe-";
/// The digits of the digest in a name.
const DIGITS: usize = 20;
/// The bytes of a file of a recipe.
const FILE_MAX: u64 = 1 << 20;
/// Where wheels of the host are put in the cell.
const WHEELS: &str = "/tmp/pando-wheels";
/// The module of Python that installs packages.
const PIP: &str = "pip";
/// The option of pip with which it uses no network.
const NO_INDEX: &str = "--no-index";
/// Stands for the path of the Python in the words of a step.
pub(super) const INTERPRETER: &str = "{python}";
const APT: &str = "apt-get update && apt-get install -y --no-install-recommends \"$@\" && rm -rf /var/lib/apt/lists/*";
const PIP_VARIABLES: [(&str, &str); 5] = [
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_CACHE_DIR", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
];

/// A recipe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    /// The container image to begin with, instead of `template`.
    pub(super) image: Option<String>,
    /// The template to begin with, whose program is a session of Python.
    #[serde(default = "python")]
    pub(super) template: String,
    /// The steps.
    #[serde(default)]
    pub(super) steps: Vec<RecipeStep>,
    /// Environment variables, for the steps and for the template's programs.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Modules of Python that are loaded before the template is frozen.
    #[serde(default)]
    pub(super) preload: Vec<String>,
    /// Destinations that the steps may reach [default: all public ones, if a step needs a network].
    allow: Option<Vec<String>>,
    /// The memory limit of the cell in which the steps run, and of clones.
    #[serde(default = "memory")]
    pub(super) memory: String,
    /// Seconds for all steps.
    #[serde(default = "timeout")]
    pub(super) timeout: f64,
    /// When the template to begin with was created, unless it is a built-in one.
    #[serde(skip)]
    pub(super) created: Option<u64>,
    /// The directory of relative paths.
    #[serde(skip)]
    directory: PathBuf,
}

/// A step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RecipeStep {
    /// Install packages of Python: names, wheels of this host by their paths, or options of `pip install`.
    Pip(Vec<String>),
    /// Install packages of Debian.
    Apt(Vec<String>),
    /// Copy a file or a directory of this host to an absolute path.
    Copy([String; 2]),
    /// Run a line of the shell, as root.
    Run(String),
}

/// The program of a step, with the files that are copied before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StepProgram {
    /// The step, for people.
    pub(super) text: String,
    /// The program and its arguments; empty: none.
    pub(super) words: Vec<String>,
    /// Its environment variables.
    pub(super) environment: BTreeMap<String, String>,
    /// Paths of the host and of the cell.
    pub(super) copies: Vec<(PathBuf, String)>,
}

fn python() -> String {
    PYTHON.into()
}

fn memory() -> String {
    "2G".into()
}

fn timeout() -> f64 {
    1800.0
}

impl Recipe {
    /// Reads a recipe: a path, or `-` for standard input.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn read(path: &Path) -> Result<Recipe, String> {
        let plain = |error: std::io::Error| pando_manager::host::plain(&error);
        let mut text = String::new();
        let read = |text: &mut String| {
            let source: Box<dyn Read> = if path == Path::new("-") { Box::new(std::io::stdin()) } else { Box::new(fs::File::open(path)?) };
            source.take(FILE_MAX + 1).read_to_string(text)
        };
        let count = read(&mut text).map_err(plain)?;
        if count as u64 > FILE_MAX {
            return Err(format!("it has more than {FILE_MAX} bytes: a recipe is a short file of TOML"));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Recipe::parse(&text, &directory.canonicalize().map_err(plain)?)
    }

    /// Parses a recipe. Relative paths begin at `directory`.
    fn parse(text: &str, directory: &Path) -> Result<Recipe, String> {
        let parsed = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
        };
        let recipe = Recipe { directory: directory.into(), ..parsed? };
        recipe.check().map(|()| recipe)
    }

    fn check(&self) -> Result<(), String> {
        if self.image.is_none() && self.steps.iter().any(|step| matches!(step, RecipeStep::Apt(_))) {
            return Err("apt needs an image: begin the recipe with `image = \"NAME\"`".into());
        }
        if self.image.is_some() && self.template != PYTHON {
            return Err("a recipe begins with an image or with a template, not with both: remove one".into());
        }
        if !(self.timeout.is_finite() && self.timeout > 0.0) {
            return Err("`timeout` is a positive number of seconds".into());
        }
        if let Some(module) = self.preload.iter().find(|module| !is_module(module)) {
            return Err(format!("preload: `{module}` is not the name of a module"));
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("env: `{name}` is not the name of a variable"));
        }
        for step in &self.steps {
            match step {
                RecipeStep::Copy([_, path]) if !path.starts_with('/') => {
                    return Err(format!("copy: `{path}` is not an absolute path of the template, such as /work"));
                }
                RecipeStep::Pip(words) | RecipeStep::Apt(words) if words.is_empty() => {
                    return Err("pip and apt need the names of packages".into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The destinations that the steps may reach.
    pub(super) fn allowed(&self) -> Vec<String> {
        let needs_network = |step: &RecipeStep| match step {
            RecipeStep::Pip(words) => !words.iter().any(|word| word == NO_INDEX),
            RecipeStep::Apt(_) => true,
            RecipeStep::Copy(_) | RecipeStep::Run(_) => false,
        };
        let default = || if self.steps.iter().any(needs_network) { vec!["public".into()] } else { Vec::new() };
        self.allow.clone().unwrap_or_else(default)
    }

    /// Whether the steps may reach all public addresses, and no others, because the recipe says nothing about that.
    pub(super) fn reaches_public_only(&self) -> bool {
        self.allow.is_none() && !self.allowed().is_empty()
    }

    /// The programs of the steps, in their order.
    pub(super) fn programs(&self) -> Vec<StepProgram> {
        self.steps.iter().map(|step| self.program(step)).collect()
    }

    fn program(&self, step: &RecipeStep) -> StepProgram {
        let words = |fixed: &[&str]| fixed.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        let mut program = StepProgram { text: String::new(), words: Vec::new(), environment: BTreeMap::new(), copies: Vec::new() };
        match step {
            RecipeStep::Pip(packages) => {
                program.text = format!("pip install {}", packages.join(" "));
                program.words = words(&[INTERPRETER, "-m", PIP, "install"]);
                program.environment = PIP_VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                for package in packages {
                    let file = self.directory.join(package);
                    let name = file.file_name().filter(|_| package.ends_with(".whl") && file.is_file());
                    let path = name.map(|name| format!("{WHEELS}/{}", name.to_string_lossy()));
                    program.words.push(path.clone().unwrap_or_else(|| package.clone()));
                    program.copies.extend(path.map(|path| (file.clone(), path)));
                }
            }
            RecipeStep::Apt(packages) => {
                program.text = format!("apt-get install {}", packages.join(" "));
                program.words = words(&["/bin/sh", "-c", APT, "sh"]);
                program.words.extend_from_slice(packages);
                program.environment.insert("DEBIAN_FRONTEND".into(), "noninteractive".into());
            }
            RecipeStep::Copy([from, to]) => {
                program.text = format!("copy {from} {to}");
                program.copies.push((self.directory.join(from), to.clone()));
            }
            RecipeStep::Run(line) => {
                program.text = format!("run {line}");
                program.words = words(&["/bin/sh", "-c"]);
                program.words.push(line.clone());
            }
        }
        program
    }

    /// The name of the template: it has the digest of the recipe, of the files that it copies, and of what it begins with, the ID of its
    /// image.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn name(&self, image: Option<&str>) -> std::io::Result<TemplateName> {
        let mut steps = Vec::new();
        for StepProgram { words, environment, copies, .. } in self.programs() {
            let mut files = Vec::new();
            for (local, path) in &copies {
                files.extend(walk(local, path)?.iter().map(CopiedFile::description).collect::<std::io::Result<Vec<Value>>>()?);
            }
            steps.push(json!([words, environment, files]));
        }
        let start = json!([image.unwrap_or(&self.template), self.created]);
        let all = json!([VERSION, start, steps, self.preload, self.env, self.memory, self.allowed()]);
        let digest = Digest::of(all.to_string().as_bytes()).hex();
        let start = if image.is_some() { OF_IMAGE } else { OF_SESSION };
        format!("{start}{}", &digest[..DIGITS]).parse().map_err(std::io::Error::other)
    }

    /// Whether this is the name of a template that a recipe has made.
    pub(super) fn is_name(name: &str) -> bool {
        name.starts_with(OF_IMAGE)
    }
}

/// Whether a text is the name of a module of Python.
fn is_module(text: &str) -> bool {
    text.split('.').all(|part| {
        let is_letter = |letter: char| letter == '_' || letter.is_alphabetic();
        part.starts_with(is_letter) && part.chars().all(|letter| is_letter(letter) || letter.is_numeric())
    })
}

#[cfg(test)]
mod tests {
    use super::{INTERPRETER, PIP, Recipe};
    use std::fs;
    use std::path::Path;

    const TOML: &str = "image = \"python:3.12\"\npreload = [\"pandas\", \"a.b_c\"]\nsteps = [\n  { apt = [\"git\"] },\n  \
                        { INSTALL = [\"pandas>=2\"] },\n  { copy = [\"data\", \"/work\"] },\n  { run = \"make\" },\n]\n[env]\nNAME = \"value\"\n";

    #[test]
    fn the_same_recipe_as_toml_and_as_json_has_the_same_name() {
        let place = tempfile::tempdir().expect("a temporary directory");
        fs::write(place.path().join("data"), "one").expect("the directory is ours");
        let json = r#"{"image": "python:3.12", "preload": ["pandas", "a.b_c"], "env": {"NAME": "value"}, "steps": [
            {"apt": ["git"]}, {"INSTALL": ["pandas>=2"]}, {"copy": ["data", "/work"]}, {"run": "make"}]}"#
            .replace("INSTALL", PIP);
        let name = |text: &str| Recipe::parse(text, place.path()).expect("a recipe").name(Some("sha256:1")).expect("files").to_string();
        let toml = TOML.replace("INSTALL", PIP);
        let first = name(&toml);
        assert_eq!(first, name(&json));
        assert!(first.starts_with("recipe-") && Recipe::is_name(&first), "{first}");
        for (from, to) in [
            ("git", "less"),
            ("pandas>=2", "pandas"),
            ("value", "other"),
            ("make", "make all"),
            ("\"a.b_c\"", "\"a\""),
            ("image =", "allow = [\"a.example:443\"]\nimage ="),
        ] {
            assert_ne!(first, name(&toml.replace(from, to)), "{from}");
        }
        fs::write(place.path().join("data"), "two").expect("the directory is ours");
        assert_ne!(first, name(&toml), "the content of a copied file counts");
    }

    #[test]
    fn errors_in_a_recipe_are_named() {
        for (text, part) in [
            ("steps = [{ apt = [\"git\"] }]", "apt needs an image"),
            ("preload = [\"import os\"]", "`import os` is not the name of a module"),
            ("preload = [\"\"]", "is not the name of a module"),
            ("step = []", "unknown field `step`"),
            ("steps = [{ rpms = [\"x\"] }]", "rpms"),
            ("steps = [{ copy = [\"a\", \"b\"] }]", "`b` is not an absolute path"),
            ("image = \"a\"\ntemplate = \"b\"", "not with both"),
            ("timeout = 0.0", "positive"),
            ("steps = [{ apt = [] }]\nimage = \"a\"", "names of packages"),
        ] {
            let refused = Recipe::parse(text, Path::new("/")).expect_err(text);
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }

    #[test]
    fn wheels_are_copied_and_only_networks_that_are_needed_are_allowed() {
        let place = tempfile::tempdir().expect("a temporary directory");
        fs::write(place.path().join("own-1.0-py3-none-any.whl"), "").expect("the directory is ours");
        let text = "steps = [{ INSTALL = [\"--no-index\", \"own-1.0-py3-none-any.whl\"] }]".replace("INSTALL", PIP);
        let recipe = Recipe::parse(&text, place.path()).expect("a recipe");
        let program = &recipe.programs()[0];
        assert_eq!(program.words[..4], [INTERPRETER, "-m", PIP, "install"]);
        assert_eq!(program.words[4..], ["--no-index", "/tmp/pando-wheels/own-1.0-py3-none-any.whl"]);
        assert_eq!(program.copies.len(), 1);
        assert!(recipe.allowed().is_empty());
        let recipe =
            Recipe::parse(r#"{"steps": [{"INSTALL": ["pandas"]}]}"#.replace("INSTALL", PIP).as_str(), place.path()).expect("a recipe");
        assert_eq!(recipe.allowed(), ["public"]);
    }
}
