// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs, linked statically: ripgrep, which is written in Rust, and the shell of sqlite.
//!
//! `cargo xtask test` fetches and builds them.

use crate::case::{Case, Input, long_runs, succeed};
use crate::data;
use pando_testing::{host_program, needs_kvm};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A file that `cargo xtask test` puts into the target directory. If it is missing, prints that and returns `None`.
pub(crate) fn fetched(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..").join(path);
    if !path.exists() {
        println!("left out: {} is missing: `cargo xtask test` creates it where it can", path.display());
        return None;
    }
    path.canonicalize().ok()
}

/// Searches whose output does not depend on the order of threads and directories.
const SEARCHES: [&str; 10] = [
    "--version",
    "-n --no-ignore Copyright /usr/share/doc",
    "-c the /usr/share/common-licenses /usr/share/perl5",
    "-l -i gnu /usr/share/common-licenses",
    "-o -w -e [A-Z]{4} /usr/share/perl5",
    "-U --multiline-dotall licen[cs]e.*?warranty /usr/share/common-licenses",
    "--mmap -c the /usr/share/common-licenses/GPL-3",
    "--files --hidden -L /usr/share/zoneinfo",
    "-uu -F -e nowhere-to-be-found /usr/share/perl5",
    "-e ( /usr/share/perl5",
];

#[test]
fn ripgrep_finds_the_same() {
    needs_kvm!();
    let Some(program) = fetched("tools/bin/rg") else { return };
    let long = ["-c e /usr/share/doc /usr/share/man", "-n Copyright /usr/include"];
    let searches = SEARCHES.iter().chain(if long_runs() { &long[..] } else { &[] });
    let problems: Vec<String> = searches
        .filter_map(|line| {
            let words: Vec<&str> = ["-j1", "--sort=path"].into_iter().chain(line.split(' ')).collect();
            Case::new(&program, &words).compare().err()
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The shell of sqlite, linked statically.
fn sqlite() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let source = fetched("sources/sqlite3")?;
        let made = Command::new(host_program("tclsh")).arg("tool/mkshellc.tcl").current_dir(source).output().expect("tclsh is there");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let shell = directory().join("shell.c");
        std::fs::write(&shell, made.stdout).expect("the target directory can be written");
        Some(compile(&shell, "sqlite3"))
    };
    PROGRAM.get_or_init(build).as_deref()
}

/// The build directory of sqlite's programs.
fn directory() -> PathBuf {
    let directory = data::directory().join("sqlite");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// Compiles a program of sqlite, linked statically.
fn compile(source: &Path, name: &str) -> PathBuf {
    let program = directory().join(name);
    let mut compile = Command::new(host_program("gcc"));
    compile.args(["-O1", "-static", "-w", "-Wl,--no-warnings", "-o"]).args([&*program, source]).args(["-lsqlite3", "-lm"]);
    succeed(compile);
    program
}

/// Statements that fill a database, change it, and query it: rows of about 90 bytes.
fn statements(rows: u32, journal: &str) -> String {
    format!(
        "PRAGMA journal_mode = {journal};
        CREATE TABLE tree(id INTEGER PRIMARY KEY, name TEXT, height REAL, leaves BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
            INSERT INTO tree SELECT i, printf('aspen-%08d', (i * 7919) % {rows}), i / 7.0, zeroblob(i % 100) FROM n;
        CREATE INDEX by_name ON tree(name);
        BEGIN; UPDATE tree SET height = height * 2 WHERE id % 3 = 0; DELETE FROM tree WHERE id % 11 = 0; COMMIT;
        BEGIN; DELETE FROM tree WHERE id % 2 = 0; SELECT count(*) FROM tree; ROLLBACK;
        SELECT count(*), round(sum(height), 3), max(name), sum(length(leaves)) FROM tree;
        SELECT substr(name, 1, 9) AS start, count(*), round(avg(height), 2) FROM tree GROUP BY start ORDER BY start LIMIT 30;
        SELECT one.id, other.id FROM tree one JOIN tree other ON other.name = printf('aspen-%08d', one.id) WHERE one.id < 50 ORDER BY 1;
        INSERT INTO tree(id, name) VALUES (1, 'there already');
        SELECT nothing FROM nowhere;
        CREATE TABLE copy AS SELECT * FROM tree ORDER BY height DESC;
        DROP TABLE copy;
        VACUUM;
        PRAGMA integrity_check;
        PRAGMA page_count;
        .schema
        .exit 3
        "
    )
}

/// The number of rows of a large database: 100 MB in the long runs.
fn rows() -> u32 {
    if long_runs() { 1_100_000 } else { 50_000 }
}

#[test]
fn sqlite_keeps_a_database_in_the_cell() {
    needs_kvm!();
    let Some(program) = sqlite() else { return };
    for journal in ["delete", "truncate", "memory", "wal"] {
        let statements = statements(if journal == "delete" { rows() } else { 3000 }, journal);
        let case = Case::new(program, &["data"]).input(Input::Pipe(statements.as_bytes()));
        if let Err(problem) = case.compare_in(|_| {}) {
            panic!("{journal}: {problem}");
        }
    }
}

#[test]
fn sqlite_keeps_a_database_on_the_host() {
    needs_kvm!();
    let Some(program) = sqlite() else { return };
    let [native, exported] = [0; 2].map(|_| tempfile::tempdir().expect("a temporary directory"));
    let volume = format!("{}:/data", exported.path().display());
    let first = statements(rows(), "delete");
    let more = "UPDATE tree SET name = 'changed' WHERE id % 1000 = 0; DELETE FROM tree WHERE id > 40000; SELECT count(*) FROM tree;
        PRAGMA integrity_check;";
    for statements in [&first[..], more, "PRAGMA journal_mode = wal; INSERT INTO tree(name) VALUES ('logged'); SELECT max(id) FROM tree;"] {
        let given = |words: &[&str]| Case::new(program, words).input(Input::Pipe(statements.as_bytes()));
        let on_host = given(&["data"]).directory(native.path());
        let in_cell = given(&["data"]).options(&["-v", &volume, "-w", "/data"]);
        if let Err(problem) = in_cell.hold(&on_host.native(), &in_cell.cell()) {
            panic!("{statements}: {problem}");
        }
        let [ours, theirs] = [native.path(), exported.path()].map(|path| std::fs::read(path.join("data")).expect("it was written"));
        assert!(ours == theirs, "{statements}: the files differ: {} bytes, from the cell {}", ours.len(), theirs.len());
        let left = std::fs::read_dir(exported.path()).expect("it is a directory").count();
        assert_eq!(left, 1, "{statements}: other files than the database are left");
    }
    let check = Case::new(program, &["data", "PRAGMA integrity_check"]).directory(exported.path()).native();
    assert_eq!((check.status, &check.output[..]), (0, &b"ok\n"[..]));
}

#[test]
fn sqlite_bears_its_own_load() {
    needs_kvm!();
    let Some(source) = fetched("sources/sqlite3") else { return };
    let program = compile(&source.join("test/speedtest1.c"), "speedtest1");
    let size = if long_runs() { 100 } else { 3 };
    let settings =
        ["--testset main", "--testset main --journal wal --mmap 1000000", "--testset cte --memdb", "--testset rtree", "--testset orm"];
    for settings in settings {
        // The output without the times: each step, and a hash of all query results.
        let script = format!("{} --size {size} --verify {settings} data | sed 's/[0-9.]*s$//'", program.display());
        if let Err(problem) = Case::new("sh", &["-c", &script]).file(&program).compare_in(|_| {}) {
            panic!("{problem}");
        }
    }
}
