// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands besides `run`, and the output of `run` about itself.

use crate::case::{Case, CaseOutcome, Input, PANDO, finish, text};
use crate::fixture::pando;
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn the_doctor_reports_its_findings() {
    let outcome = pando(&["doctor"]);
    let found = text(&outcome.output);
    assert_eq!(outcome.errors, "");
    assert_eq!(outcome.status == 0, found.contains("Pando runs on this host."), "{found}");
    assert_eq!(outcome.status != 0, found.contains("BAD"), "{found}");
    assert!(["KVM", "memory", "huge pages"].iter().all(|what| found.contains(what)), "{found}");
    if is_kvm_available() {
        assert_eq!(outcome.status, 0, "{found}");
    }
}

#[test]
fn the_doctor_speaks_json() {
    let outcome = pando(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&outcome.output).expect("one JSON object");
    assert_eq!(found["runs"].as_bool(), Some(outcome.status == 0), "{found}");
    let findings = found["findings"].as_array().expect("a list");
    let has_words =
        |finding: &Value| ["what", "grade", "found"].iter().all(|key| finding[key].as_str().is_some_and(|word| !word.is_empty()));
    assert!(!findings.is_empty() && findings.iter().all(has_words), "{found}");
}

#[test]
fn help_names_commands_and_options() {
    let outcome = pando(&["--help"]);
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    assert!(["run", "doctor", "bench", "completions"].iter().all(|command| text(&outcome.output).contains(command)));
    let outcome = pando(&["run", "--help"]);
    let help = text(&outcome.output);
    assert_eq!(outcome.status, 0);
    assert!(
        ["--memory", "--timeout", "--volume", "--stats", "Exit status", "124", "125", "126", "127"].iter().all(|word| help.contains(word)),
        "{help}"
    );
    assert!(!help.contains('\u{1b}'), "colours where no terminal is: {help:?}");
    for words in [&["--version"], &["version"]] {
        assert_eq!(text(&pando(words).output), format!("pando {}\n", env!("CARGO_PKG_VERSION")));
    }
    let help = |words: &[&str]| {
        let outcome = pando(words);
        assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{words:?}");
        text(&outcome.output).to_owned()
    };
    assert_eq!(help(&["help"]), help(&["--help"]));
    assert_eq!(help(&["help", "run"]), help(&["run", "--help"]));
    assert_eq!(help(&["help", "template", "create"]), help(&["template", "create", "--help"]));
    assert_ne!(pando(&["help", "no-such-command"]).status, 0);
}

#[test]
fn without_arguments_it_helps() {
    let outcome = pando(&[]);
    assert_ne!(outcome.status, 0);
    assert!(outcome.errors.contains("Usage: pando") && outcome.errors.contains("doctor"), "{outcome:?}");
}

#[test]
fn shells_get_completions() {
    for (shell, mark) in [("bash", "complete -o"), ("zsh", "#compdef pando"), ("fish", "complete --keep-order")] {
        let outcome = pando(&["completions", shell]);
        assert!(outcome.status == 0 && text(&outcome.output).contains(mark), "{shell}: {}", text(&outcome.output));
    }
    assert_ne!(pando(&["completions", "no-shell"]).status, 0);
}

#[test]
fn completions_load_into_bash() {
    let mut command = Command::new(host_program("bash"));
    let script = r#"PATH=${0%/*}:$PATH; source <(pando completions bash) && complete -p pando
        COMP_WORDS=(pando clone --ti) COMP_CWORD=2 COMP_TYPE=9; _clap_complete_pando; echo "${COMPREPLY[@]}""#;
    command.args(["-c", script, PANDO]);
    let outcome = finish(command, Input::Nothing);
    assert!(outcome.status == 0 && ["_pando", "--timeout"].iter().all(|word| text(&outcome.output).contains(word)), "{outcome:?}");
}

#[test]
fn manual_pages_are_taken_by_man() {
    for (words, wanted) in [
        (&["manual"][..], &["pando(1)", "SUBCOMMANDS", "pando-run(1)"][..]),
        (&["manual", "run"], &["pando-run(1)", "--workdir", "EXIT STATUS", "EXAMPLES", "pando run echo hello"]),
        (&["manual", "doctor"], &["pando-doctor(1)", "--json"]),
    ] {
        let page = pando(words);
        assert_eq!((page.status, &page.errors[..]), (0, ""), "{words:?}");
        let mut man = Command::new(host_program("man"));
        man.args(["--warnings", "--local-file", "-"]).env("MANWIDTH", "200").env("LC_ALL", "C.UTF-8");
        let shown = finish(man, Input::Pipe(&page.output));
        let found = text(&shown.output);
        assert!(shown.status == 0 && shown.errors.is_empty(), "{words:?}: {}", shown.errors);
        assert!(wanted.iter().all(|word| found.contains(word)), "{words:?} lacks one of {wanted:?}: {found}");
    }
    let outcome = pando(&["manual", "no-such-command"]);
    assert!(outcome.status == 125 && outcome.errors.contains("no command `no-such-command`"), "{outcome:?}");
}

/// Parses a figure of `--stats`, by its name.
fn figure(errors: &str, name: &str) -> f64 {
    let line = errors.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("no `{name}` in {errors}"));
    let number = line.trim_start()[name.len()..].split_whitespace().next();
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("`{line}` has no number"))
}

/// Parses a memory figure, in MiB.
fn mebibytes(errors: &str, name: &str) -> f64 {
    let line = errors.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    figure(errors, name) / if line.ends_with(" KiB") { 1024.0 } else { 1.0 }
}

#[test]
fn stats_are_figures_on_standard_error() {
    needs_kvm!();
    let plain = Case::new("busybox", &["wc"]).input(Input::Pipe(&[b'x'; 100_000])).cell();
    let outcome = Case::new("busybox", &["wc"]).input(Input::Pipe(&[b'x'; 100_000])).options(&["--stats", "--memory", "32M"]).cell();
    assert_eq!((outcome.status, &outcome.output), (0, &plain.output));
    let errors = &outcome.errors;
    assert!(errors.starts_with("pando: ") && errors.contains("status 0"), "{errors}");
    assert!(figure(errors, "time on a vCPU") > 0.0);
    assert!(mebibytes(errors, "memory quota") == 32.0 && (0.1..32.0).contains(&mebibytes(errors, "memory, at most")), "{errors}");
    // Busybox reads at most 64 KiB at a time.
    assert!(figure(errors, "system calls made") >= 2.0 && figure(errors, "exits") > figure(errors, "exit "), "{errors}");
    assert_eq!(figure(errors, "exit "), 1.0, "the hypercall: {errors}");
    assert!(figure(errors, "system call ") >= 2.0 && !errors.contains('_'), "{errors}");
    assert_eq!(figure(errors, "not implemented"), 0.0, "{errors}");
}

/// The keys of an object and of the objects in it.
fn keys(value: &Value) -> Vec<String> {
    let inside = |(key, value): (&String, &Value)| [vec![key.clone()], keys(value)].concat();
    value.as_object().into_iter().flatten().flat_map(inside).collect()
}

#[test]
fn stats_for_scripts_are_one_object() {
    needs_kvm!();
    let outcome = Case::new("busybox", &["sh", "-c", "exit 3"]).options(&["--stats=json", "--memory", "32M"]).cell();
    let found: Value = serde_json::from_str(&outcome.errors).expect("one JSON object");
    assert_eq!((outcome.status, &found["status"], &found["signal"]), (3, &Value::from(3), &Value::Null), "{found}");
    let is_snake_case = |key: &String| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    assert!(keys(&found).iter().all(is_snake_case) && found["exit_causes"]["system_call"].is_u64(), "{found}");
    assert_eq!(found["memory_quota_bytes"], Value::from(32 << 20));
    assert!(found["memory_peak_bytes"].as_u64().is_some_and(|peak| (1 << 16..32 << 20).contains(&peak)), "{found}");
    assert!(found["cpu_ns"].as_u64().is_some_and(|time| time > 0) && found["calls"].as_u64().is_some_and(|calls| calls > 2), "{found}");
    let outcome = Case::new("busybox", &["sleep", "100"]).options(&["--stats=json", "--timeout", "0.2"]).cell();
    let found: Value = serde_json::from_str(outcome.errors.lines().next().expect("a line")).expect("one JSON object");
    assert_eq!((outcome.status, &found["end"], &found["status"]), (124, &Value::from("its time limit expired"), &Value::Null), "{found}");
}

#[test]
fn a_line_is_delivered_before_the_next_exit() {
    needs_kvm!();
    // A program that computed afterwards would otherwise show its line when its quantum ends.
    let doorbells = |words: &[&str]| {
        let outcome = Case::new("busybox", words).options(&["--stats=json"]).cell();
        let found: Value = serde_json::from_str(&outcome.errors).expect("one JSON object");
        found["exit_causes"]["doorbell"].as_u64().unwrap_or(0)
    };
    assert!(doorbells(&["echo", "a line"]) > doorbells(&["true"]));
}

#[test]
fn stats_of_a_program_that_died_say_how() {
    if is_kvm_available() {
        let outcome = Case::new("busybox", &["sleep", "100"]).options(&["--stats", "--timeout", "0.2"]).cell();
        assert!(
            outcome.status == 124 && outcome.errors.contains("time limit expired") && outcome.errors.contains("time on a vCPU"),
            "{outcome:?}"
        );
    }
}

#[test]
fn from_the_program_on_nothing_is_an_option_of_pandos() {
    needs_kvm!();
    let outcome = pando(&["run", "busybox", "--help"]);
    assert!(text(&outcome.output).starts_with("BusyBox"), "{outcome:?}");
    let outcome = pando(&["run", "busybox", "echo", "--help", "-t", "--stats"]);
    assert_eq!((outcome.status, text(&outcome.output)), (0, "--help -t --stats\n"));
}

#[test]
fn relative_paths_lead_where_they_lead_on_the_host() {
    needs_kvm!();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let below = folder.path().join("below");
    std::fs::create_dir(&below).expect("an empty directory");
    std::fs::write(folder.path().join("data"), "beside\n").expect("room for a file");
    std::fs::copy("/bin/busybox", folder.path().join("busybox")).expect("busybox is there");
    let mut command = Command::new(PANDO);
    command.args(["run", "-v", "../data", "--", "../busybox", "cat", "../data"]).current_dir(&below);
    let outcome = finish(command, Input::Nothing);
    assert_eq!((outcome.status, text(&outcome.output)), (0, "beside\n"), "{outcome:?}");
}

/// Runs a benchmark briefly. It must print these figures with their references, and write these plots.
fn compare(bench: &str, figures: &[&str], plots: &[&str]) {
    needs_kvm!();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let outcome = pando(&["bench", bench, "--brief", "--json", "--plots", folder.path().to_str().expect("a plain name")]);
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    expect_figures(&outcome, figures);
    for plot in plots {
        let text = std::fs::read_to_string(folder.path().join(plot)).expect("a plot");
        assert!(text.contains("<svg") && text.contains("cells"), "{text}");
    }
}

/// Expects these figures with their references. Returns the rows.
fn expect_figures(outcome: &CaseOutcome, figures: &[&str]) -> Vec<Value> {
    let rows: Vec<Value> = text(&outcome.output).lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    for figure in figures {
        let row = rows.iter().find(|row| row["name"] == *figure).unwrap_or_else(|| panic!("{figure} is missing: {rows:?}"));
        assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && row["reference"].is_string(), "{row}");
    }
    rows
}

#[test]
fn a_brief_benchmark_of_programs_prints_each_figure() {
    compare("run", &["syscall", "cold", "cpu-busybox", "ls-lR", "grep"], &[]);
}

#[test]
fn a_brief_benchmark_of_linux_prints_each_figure() {
    compare(
        "linux",
        &[
            "getppid",
            "read-1",
            "read-4k",
            "write-4k",
            "fstat",
            "pipe-threads",
            "fork-64m",
            "python-start",
            "python-cpu",
            "sqlite-memory",
            "gzip",
            "sha256sum",
            "make",
        ],
        &[],
    );
}

#[test]
fn a_brief_benchmark_of_nested_cells_prints_each_figure() {
    needs_kvm!();
    let figures = [
        "rpc-to-exit",
        "depth-cpu",
        "depth-syscall",
        "depth-touch",
        "depth-fork",
        "depth-read",
        "fw05-libos",
        "start-depth",
        "nester-idle-bytes",
        "pager-fits",
    ];
    let outcome = pando(&["bench", "nest", "--brief", "--json"]);
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    let rows = expect_figures(&outcome, &figures);
    let exits = rows.iter().find(|row| row["name"] == "pager-half-exits").expect("it has no reference");
    assert!(exits["value"].as_f64().is_some_and(|exits| exits > 0.0), "{exits}");
}

#[test]
fn a_brief_benchmark_of_the_network_prints_each_figure() {
    let figures = ["stream-cells", "rr-cells", "nginx-2k", "nginx-100k", "flat-1000", "flat-1000-busy", "events-10", "idle-10"];
    compare("net", &figures, &["events.svg", "idle.svg"]);
}

/// Figures of `bench programs` that need nothing but the tests' packages.
const OF_ALL_HOSTS: &[&str] = &[
    "true-start",
    "perl-forks",
    "pool",
    "shell-forks",
    "git-status",
    "tar-small",
    "sort-50m",
    "sqlite-inserts",
    "sqlite-inserts-synced",
    "make-j2",
    "pool-all-cores",
    "make-j2-all-cores",
];
/// Figures that need more, and the first word of its name.
const OF_SOME_HOSTS: &[(&str, &[&str])] = &[
    ("numpy", &["numpy-start", "numpy-clone-first-ms"]),
    ("node", &["node-start"]),
    ("java", &["java-start"]),
    ("go", &["go-build"]),
    ("root", &["run-python-bytes", "run-c-bytes"]),
];

#[test]
fn a_brief_benchmark_of_common_programs_prints_each_figure_with_its_exits() {
    needs_kvm!();
    let outcome = pando(&["bench", "programs", "--brief", "--json"]);
    assert_eq!(outcome.status, 0, "{}", outcome.errors);
    let absent: Vec<&str> = outcome.errors.lines().map(|line| line.strip_prefix("left out: figures that need ").expect(line)).collect();
    let is_absent = |word: &str| absent.iter().any(|what| what.split([' ', ',']).next() == Some(word));
    let of_some = OF_SOME_HOSTS.iter().filter(|(word, _)| !is_absent(word)).flat_map(|(_, figures)| figures.iter());
    let figures: Vec<&str> = OF_ALL_HOSTS.iter().chain(of_some).copied().collect();
    let rows = expect_figures(&outcome, &figures);
    assert_eq!(rows.len(), figures.len(), "{rows:?}");
    for row in rows {
        let note = row["note"].as_str().expect("a note");
        assert!(note.contains(" exits: "), "{note}");
    }
}

#[test]
fn a_brief_benchmark_of_web_servers_prints_each_figure() {
    needs_kvm!();
    let figures = ["zipf-1-half", "zipf-0-half", "zipf-1-quarter", "zipf-0-quarter"];
    let outcome = pando(&["bench", "scale", "--brief", "--json", "--only", &figures.join(",")]);
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    assert_eq!(expect_figures(&outcome, &figures).len(), figures.len());
}

/// Figures of `bench product`, after the first word of what a host may lack for them.
const OF_PRODUCT: &[(&str, &[&str])] = &[
    ("pandas", &["session-first-ms", "resume-ms", "fork-10-ms", "idle-session-bytes"]),
    ("podman", &["run-image"]),
    ("-", &["bind-read", "bind-write", "start-after-change-ms"]),
];

#[test]
fn a_brief_benchmark_of_the_product_prints_each_figure_that_the_host_allows() {
    needs_kvm!();
    let outcome = pando(&["bench", "product", "--brief", "--json"]);
    assert_eq!(outcome.status, 0, "{}", outcome.errors);
    let is_absent = |word: &str| outcome.errors.contains(&format!("left out: figures that need {word} "));
    let figures = OF_PRODUCT.iter().filter(|(word, _)| !is_absent(word)).flat_map(|(_, figures)| figures.iter().copied());
    let printed = text(&outcome.output).lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let printed: Vec<String> = printed.map(|row| row["name"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(printed, figures.collect::<Vec<&str>>());
}

#[test]
fn the_size_of_a_large_image_is_announced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let build = |name: &str| {
        let image = directory.path().join(name).with_extension("image");
        let mut command = Command::new(PANDO);
        command.args(["image", "build"]).arg(directory.path().join(name)).arg("--output").arg(&image);
        let CaseOutcome { status, output, errors } = finish(command, Input::Nothing);
        assert!(status == 0 && output.is_empty(), "{errors}");
        fs::remove_file(&image).expect("it was written");
        (errors, image)
    };
    for (name, bytes) in [("small", 1 << 20), ("large", 1 << 30)] {
        fs::create_dir(directory.path().join(name)).expect("the directory is ours");
        let file = fs::File::create(directory.path().join(name).join("sparse")).expect("the directory is ours");
        file.set_len(bytes).expect("there is room for nothing");
    }
    assert_eq!(build("small").0, "");
    let (errors, image) = build("large");
    assert_eq!(errors, format!("pando: writing {}: 1.00 GiB\n", image.display()));
}
