// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of `/proc` about a process itself and about others, compared with native runs.

use crate::case::{Case, text};
use pando_testing::lab::is_kvm_available;
use pando_testing::needs_kvm;

/// A parent that looks at its children: one that is stopped, a zombie, and one that was waited for.
const FAMILY: &str = r"
import os, signal, threading
def stat(pid):
    text = open(f'/proc/{pid}/stat').read()
    return text[text.rindex(')') + 2:].split()
def status(pid, name):
    return [line.split()[1:] for line in open(f'/proc/{pid}/status') if line.startswith(name + ':')]
me = os.getpid()
print(os.readlink('/proc/self') == str(me), os.readlink('/proc/thread-self') == f'{me}/task/{me}', str(me) in os.listdir('/proc'))
child = os.fork()
if child == 0:
    os.chdir('/tmp')
    os.setpgid(0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(3)
os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOWAIT)
state, parent, group, session = stat(child)[:4]
print(state, int(parent) == me, int(group) == child, int(session) == os.getsid(0), status(child, 'State'), status(child, 'Threads'))
print(os.readlink(f'/proc/{child}/cwd'), os.readlink(f'/proc/{child}/exe') == os.readlink('/proc/self/exe'))
print({'0', '1', '2'} <= set(os.listdir(f'/proc/{child}/fd')), open(f'/proc/{child}/cmdline').read() == open('/proc/self/cmdline').read())
print(status(child, 'Uid') == status(me, 'Uid'), [line for line in open(f'/proc/{child}/fdinfo/0') if line.startswith('pos')])
os.kill(child, signal.SIGCONT)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print(stat(child)[0], status(child, 'State'), open(f'/proc/{child}/cmdline').read(), str(child) in os.listdir('/proc'))
os.waitpid(child, 0)
print(os.path.exists(f'/proc/{child}'), str(child) in os.listdir('/proc'))
ready, go = threading.Event(), threading.Event()
def wait():
    ready.set()
    go.wait()
thread = threading.Thread(target=wait)
thread.start()
ready.wait()
print(status(me, 'Threads'), len(os.listdir('/proc/self/task')), sorted(map(int, os.listdir('/proc/self/task'))) == sorted([me, thread.native_id]))
print(os.path.exists(f'/proc/{thread.native_id}/stat'), str(thread.native_id) in os.listdir('/proc'))
go.set()
thread.join()
# It is joined a moment before it is gone.
while len(os.listdir('/proc/self/task')) > 1: pass
open('/proc/self/comm', 'w').write('other\n')
print(open('/proc/self/comm').read(), stat(me)[17], open('/proc/self/loginuid').read() != '')
open('/proc/self/oom_score_adj', 'w').write('17')
os.truncate('/proc/self/oom_score_adj', 0)
print(open('/proc/self/oom_score_adj').read(), sorted(os.listdir('/proc/sys/kernel/random'))[0])
for path, text in [('/proc/self/oom_score_adj', '2000'), ('/proc/2000000/stat', '')]:
    try:
        open(path, 'r+').write(text)
    except OSError as error:
        print(path.split('/')[-1], error.errno)
";

#[test]
fn processes_find_each_other() {
    if is_kvm_available() {
        Case::new("/usr/bin/python3", &["-c", FAMILY]).check();
    }
}

#[test]
fn tools_list_processes() {
    needs_kvm!();
    // Only these columns and options give the same output on both sides.
    let lists = "sleep 60 & sleep=$!; until [ \"$(cat /proc/$sleep/comm)\" = sleep ]; do :; done
        ps -o comm=,state= -p $sleep; ps -o args= -p $$ | cut -c1-4; pgrep -x -P $$ -l sleep | cut -d' ' -f2; pkill -x -P $$ sleep; wait $sleep; echo $?";
    Case::new("bash", &["-c", lists]).check();
    let outcome =
        Case::new("bash", &["-c", "sleep 60 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do :; done; top -bn1 | grep -c ' sleep *$'; busybox ps | grep -c '[s]leep 60$'; killall sleep"]).cell();
    assert_eq!((outcome.status, crate::case::text(&outcome.output)), (0, "1\n1\n"), "{outcome:?}");
}

#[test]
fn tools_report_system_activity() {
    if is_kvm_available() {
        let told = "vmstat | head -2; vmstat | tail -1 | wc -w; vmstat -d > /dev/null; echo $?; vmstat -s | grep -c 'pages swapped'; free | head -1; uptime | grep -c 'load average:'";
        Case::new("bash", &["-c", told]).check();
    }
}

/// Programs write their titles over their arguments, where others read them; a longer title continues over the environment.
const TITLES: &str = r#"
$| = 1;
sub line { open my $file, '<', "/proc/$_[0]/cmdline" or die; local $/; my $text = <$file>; $text =~ s/\0+$//; $text =~ tr/\0/ /; $text }
my $before = line($$);
print substr($before, 0, 4), substr($before, -8), "\n";
pipe my $told, my $tell;
pipe my $go, my $end;
my $child = fork;
if (!$child) {
    close $end;
    $0 = 'a child';
    syswrite $tell, 'x';
    sysread $go, my $byte, 1;
    exit;
}
sysread $told, my $byte, 1;
print line($child), ' ', line($$) eq $before, "\n";
$0 = 'a longer title ' . 'x' x 2000;
print substr(line($$), 0, 20), ' ', length(line($$)) > length($before), "\n";
close $end;
waitpid $child, 0;
"#;

#[test]
fn a_command_line_is_read_from_memory() {
    if is_kvm_available() {
        Case::new("/usr/bin/perl", &["-e", TITLES, "one", "two"]).check();
    }
}

/// Resident memory, and the part of it that is private to a process after a fork.
const SHARED: &str = r"
import ctypes, mmap, os
def memory(size):
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))
def resident():
    own = [int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS:')][0]
    return own, [int(field) * 4 for field in open('/proc/self/statm').read().split()][1]
def sizes(address):
    here, found = False, {}
    for line in open('/proc/self/smaps'):
        name, value = line.split()[:2]
        if not name.endswith(':'):
            start, end = (int(part, 16) for part in name.split('-'))
            here = start <= address < end
        elif here and value.isdigit():
            found[name[:-1]] = int(value)
    return found
K = 1024
large, _ = memory(64 * K * K)
before = resident()
large[:32 * K * K] = bytes(32 * K * K)
print([32 * K * 0.9 < after - first < 48 * K for first, after in zip(before, resident())], flush=True)
pages, address = memory(4096 * K)
pages[:] = b'x' * (4096 * K)
mine = sizes(address)
print(mine['Size'] >= mine['Rss'] >= mine['Private_Dirty'] >= 4096, mine['Shared_Dirty'], flush=True)
if os.fork() == 0:
    first = sizes(address)
    pages[:128 * K] = b'y' * (128 * K)
    then = sizes(address)
    print(first['Rss'] >= 4096, first['Shared_Dirty'] >= 4096, then['Private_Dirty'] - first['Private_Dirty'] >= 128, then['Shared_Dirty'] >= 128, flush=True)
    os._exit(0)
os.wait()
";

#[test]
fn resident_and_shared_pages_are_reported() {
    if is_kvm_available() {
        Case::new("/usr/bin/python3", &["-c", SHARED]).check();
    }
}

#[test]
fn children_inherit_the_login_uid() {
    needs_kvm!();
    // Not every host lets its processes set it, so only the cell's output is checked.
    let script = "cat /proc/self/loginuid; echo 77 > /proc/self/loginuid; echo -n ' '; cat /proc/self/loginuid; echo x 2> /dev/null > /proc/self/loginuid; cat /proc/1/loginuid";
    let outcome = Case::new("busybox", &["sh", "-c", script]).cell();
    assert_eq!((outcome.status, text(&outcome.output)), (0, "4294967295 7777"), "{}", outcome.errors);
}
