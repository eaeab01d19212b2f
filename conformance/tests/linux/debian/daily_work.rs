// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daily work in a cell: building, versioning, packing, scripting with many processes; the same as on the host.

use crate::case::Case;
use crate::comparison::compare_if;
use pando_testing::needs_kvm;

/// Four compilers in parallel, and a second run that has nothing to do.
const BUILDING: &str = r#"
cat > main.c <<'END'
#include <stdio.h>
int one(int), two(int), three(int);
int main(void) { return !printf("%d\n", one(two(three(36)))); }
END
for name in one two three; do echo "int $name(int x) { return x + 2; }" > $name.c; done
printf 'program: main.o one.o two.o three.o\n\t@gcc -o $@ $^\n%%.o: %%.c\n\t@gcc -O2 -c $<\n' > Makefile
make -j4 && ./program && make
"#;

const VERSIONING: &str = r#"
export HOME=$PWD GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git init -q -b main project && cd project && git config user.name n && git config user.email n@example.org
for number in 1 2 3 4 5 6; do seq $number 100 > file; git add file; git commit -q -m "number $number"; done
git log --oneline && git gc -q && git fsck && git diff HEAD~2 --stat && git checkout -q -b other HEAD~3 && git merge -q main && git status -s
"#;

/// Pipelines, here-documents, jobs, traps, substitutions, exit statuses.
const SHELL: &str = r#"
seq 1 200 | sort -rn | head -50 | awk '{ sum += $1 } END { print sum }'
( trap 'echo trapped' USR1; kill -USR1 $BASHPID; (exit 7); echo $? )
for job in 3 2 1; do ( echo job $job > job.$job ) & done; wait; cat job.*
sleep 100 & kill $!; wait $!; echo $?
cat <(echo one) <(echo two) - <<< three
exec 3> >(tr a-z A-Z); echo through a process >&3; exec 3>&-; wait
find . -type f | xargs -r ls | wc -l
tar cf - /usr/share/doc/gcc-12-base 2>/dev/null | gzip | gzip -dc | tar tf - | wc -l
printf 'b\na\n' | tee copy | sort > sorted; cmp copy sorted; diff copy sorted; echo $?
set -o pipefail; false | true; echo $?; echo $(( $(nproc) > 0 ))
"#;

/// Pools, queues, locks and shared memory of processes; threads; children; an event loop.
const PYTHON: &str = r#"
import asyncio, concurrent.futures, mmap, multiprocessing, os, queue, signal, subprocess, sys, threading

def square(x):
    return x * x

def count(lock, value):
    for _ in range(100):
        with lock:
            value.value += 1

async def main():
    process = await asyncio.create_subprocess_exec("tr", "a-z", "A-Z", stdin=-1, stdout=-1)
    print(await process.communicate(b"through a child"))
    print(await asyncio.gather(*(asyncio.sleep(0.001 * n, n) for n in (3, 1, 2))))

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        print(pool.map(square, range(6)))
    lock, value = context.Lock(), context.Value("i", 0, lock=False)
    children = [context.Process(target=count, args=(lock, value)) for _ in range(3)]
    [child.start() for child in children]
    [child.join() for child in children]
    print(value.value)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        print(sum(threads.map(square, range(100))))
    shared = mmap.mmap(-1, 4096)
    if os.fork() == 0:
        shared[:5] = b"child"
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.wait()[1]), shared[:5])
    print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
    asyncio.run(main())
"#;

#[test]
fn make_and_compilers_build_a_program() {
    compare_if(&["/usr/bin/make", "/usr/bin/gcc"], "/bin/sh", &["-c", BUILDING]);
}

#[test]
fn git_keeps_a_history() {
    compare_if(&["/usr/bin/git"], "/bin/sh", &["-c", VERSIONING]);
}

#[test]
fn bash_runs_pipelines_and_jobs() {
    compare_if(&["/bin/bash"], "/bin/bash", &["-c", SHELL]);
}

#[test]
fn python_runs_processes_and_threads() {
    compare_if(&["/usr/bin/python3"], "/usr/bin/python3", &["-c", PYTHON]);
}

/// `cargo xtask suites cpython` runs the others.
#[test]
fn quick_ones_of_pythons_own_tests_pass() {
    const WORDS: [&str; 7] = ["-m", "test", "test_asyncore", "test_fcntl", "test_openpty", "test_popen", "test_pty"];
    needs_kvm!(&["/usr/lib/python3.11/test/test_select.py"]);
    let outcome = Case::new("/usr/bin/python3", &WORDS).options(&["-w", "/tmp"]).cell();
    assert_eq!(outcome.status, 0, "{}{}", String::from_utf8_lossy(&outcome.output), outcome.errors);
}
