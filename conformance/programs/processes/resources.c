// SPDX-License-Identifier: MIT OR Apache-2.0
// Resource limits of a process: processors, memory, files; queried, set, and queried again.
#define _GNU_SOURCE
#include "holds.h"

#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <unistd.h>

static void scheduling(int count, char **words)
{
	(void)count, (void)words;
	HOLDS(setpriority(PRIO_PROCESS, 0, 5) == 0 && getpriority(PRIO_PROCESS, getpid()) == 5);
	HOLDS(syscall(SYS_getpriority, PRIO_PROCESS, 0) == 15);
	// A group of its own: natively, the test's own process would otherwise get this priority too.
	HOLDS(setpgid(0, 0) == 0 || getpgrp() == getpid());
	HOLDS(setpriority(PRIO_PGRP, 0, 100) == 0 && getpriority(PRIO_PGRP, 0) == 19);
	FAILS(getpriority(77, 0), EINVAL);
	FAILS(setpriority(-1, 0, 0), EINVAL);
	FAILS(getpriority(PRIO_PROCESS, 0x3fffffff), ESRCH);
	struct sched_param none = {0}, some = {.sched_priority = 5}, found = {.sched_priority = 7};
	HOLDS(syscall(SYS_sched_getscheduler, 0) == SCHED_OTHER && syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none) == 0);
	HOLDS(syscall(SYS_sched_getscheduler, getpid()) == SCHED_BATCH);
	HOLDS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none) == 0);
	HOLDS(syscall(SYS_sched_getscheduler, 0) == (SCHED_OTHER | SCHED_RESET_ON_FORK));
	FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &some), EINVAL);
	FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &none), EINVAL);
	FAILS(syscall(SYS_sched_setscheduler, 0, 77, &none), EINVAL);
	FAILS(syscall(SYS_sched_setscheduler, 0, -1, &none), EINVAL);
	FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, NULL), EINVAL);
	FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, 8), EFAULT);
	FAILS(syscall(SYS_sched_setscheduler, 0x3fffffff, SCHED_OTHER, &none), ESRCH);
	FAILS(syscall(SYS_sched_getscheduler, -1), EINVAL);
	FAILS(syscall(SYS_sched_getscheduler, 0x3fffffff), ESRCH);
	HOLDS(syscall(SYS_sched_getparam, 0, &found) == 0 && found.sched_priority == 0 && syscall(SYS_sched_setparam, 0, &none) == 0);
	FAILS(syscall(SYS_sched_setparam, 0, &some), EINVAL);
	FAILS(syscall(SYS_sched_getparam, 0, NULL), EINVAL);
	FAILS(syscall(SYS_sched_getparam, 0, 8), EFAULT);
	HOLDS(sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_RR) == 1 && sched_get_priority_max(SCHED_IDLE) == 0);
	FAILS(sched_get_priority_min(4), EINVAL);
	struct timespec interval;
	HOLDS(syscall(SYS_sched_rr_get_interval, 0, &interval) == 0 && interval.tv_sec == 0);
	FAILS(syscall(SYS_sched_rr_get_interval, -1, &interval), EINVAL);
	FAILS(syscall(SYS_sched_rr_get_interval, 0, 8), EFAULT);
	cpu_set_t set;
	HOLDS(syscall(SYS_sched_getaffinity, 0, sizeof set, &set) > 0 && syscall(SYS_sched_setaffinity, 0, sizeof set, &set) == 0);
	CPU_ZERO(&set);
	FAILS(syscall(SYS_sched_setaffinity, 0, sizeof set, &set), EINVAL);
	FAILS(syscall(SYS_sched_setaffinity, 0, 0, &set), EINVAL);
	FAILS(syscall(SYS_sched_setaffinity, 0, 8, 8), EFAULT);
	HOLDS(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3) == 0 && syscall(SYS_ioprio_get, 1, 0) == (2 << 13 | 3));
	FAILS(syscall(SYS_ioprio_set, 1, 0, 5 << 13), EINVAL);
	FAILS(syscall(SYS_ioprio_get, 9, 0), EINVAL);
	FAILS(syscall(SYS_ioprio_get, 1, 0x3fffffff), ESRCH);
}

static void limits(int count, char **words)
{
	(void)count, (void)words;
	struct rlimit limit, found;
	struct sched_param first = {.sched_priority = 1};
	HOLDS(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= limit.rlim_max);
	limit.rlim_cur = 20;
	HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0 && getrlimit(RLIMIT_NOFILE, &found) == 0 && found.rlim_cur == 20);
	int fd = 0;
	while ((fd = open("/", O_RDONLY)) >= 0 && fd < 19)
		;
	HOLDS(fd == 19);
	FAILS(open("/", O_RDONLY), EMFILE);
	FAILS(open("/tmp/made-in-vain", O_RDWR | O_CREAT, 0600), EMFILE);
	FAILS(access("/tmp/made-in-vain", F_OK), ENOENT);
	FAILS(dup(0), EMFILE);
	FAILS(dup2(0, 20), EBADF);
	FAILS(fcntl(0, F_DUPFD, 20), EINVAL);
	FAILS(fcntl(0, F_DUPFD, 19), EMFILE);
	HOLDS(close(7) == 0 && dup(0) == 7);
	limit.rlim_cur = 30;
	HOLDS(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, &found) == 0 && found.rlim_cur == 20 && dup2(0, 29) == 29);
	limit = (struct rlimit){5, 10};
	HOLDS(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0 && setrlimit(RLIMIT_CPU, &(struct rlimit){5000, 10000}) == 0);
	HOLDS(getrlimit(RLIMIT_CPU, &found) == 0 && found.rlim_cur == 5000 && found.rlim_max == 10000);
	limit = (struct rlimit){11, 10};
	FAILS(setrlimit(RLIMIT_CPU, &limit), EINVAL);
	FAILS(syscall(SYS_setrlimit, 16, &limit), EINVAL);
	FAILS(syscall(SYS_getrlimit, 99, &limit), EINVAL);
	FAILS(syscall(SYS_setrlimit, RLIMIT_CPU, 8), EFAULT);
	FAILS(syscall(SYS_getrlimit, RLIMIT_CPU, 8), EFAULT);
	FAILS(syscall(SYS_prlimit64, 0, RLIMIT_CPU, 8, NULL), EFAULT);
	FAILS(syscall(SYS_prlimit64, 0x3fffffff, RLIMIT_CPU, NULL, &found), ESRCH);
	HOLDS(setuid(1) == 0);
	limit = (struct rlimit){5, 10001};
	FAILS(setrlimit(RLIMIT_CPU, &limit), EPERM);
	FAILS(setpriority(PRIO_PROCESS, 0, -5), EACCES);
	FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &first), EPERM);
}

// Tells the child at the end of these pipes to continue, or the parent that it has; and waits for the same.
static void step(int out, int in)
{
	char byte = 0;
	HOLDS(write(out, &byte, 1) == 1 && read(in, &byte, 1) == 1);
}

static void limits_of_others(int count, char **words)
{
	(void)count, (void)words;
	int down[2], up[2], end[2], status;
	struct rlimit found;
	HOLDS(pipe(down) == 0 && pipe(up) == 0 && pipe(end) == 0);
	pid_t roots = fork();
	if (roots == 0)
		_exit(close(end[1]) == 0 && read(end[0], &status, 1) == 0 ? 8 : 9);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		HOLDS(close(end[1]) == 0 && read(down[0], &byte, 1) == 1);
		FAILS(fcntl(0, F_DUPFD, 12), EINVAL);
		HOLDS(getrlimit(RLIMIT_NOFILE, &found) == 0 && found.rlim_cur == 12 && found.rlim_max == 15);
		HOLDS(getrlimit(RLIMIT_STACK, &found) == 0 && found.rlim_cur == 1 << 20);
		HOLDS(setgid(1) == 0 && setuid(1) == 0);
		step(up[1], down[0]);
		_exit(7);
	}
	struct rlimit files = {12, 15}, stack = {1 << 20, RLIM_INFINITY}, wrong = {3, 2};
	HOLDS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, &files, &found) == 0 && found.rlim_cur > 15);
	HOLDS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, NULL, &found) == 0 && found.rlim_cur == 12);
	HOLDS(syscall(SYS_prlimit64, child, RLIMIT_STACK, &stack, NULL) == 0);
	FAILS(syscall(SYS_prlimit64, child, RLIMIT_STACK, &wrong, NULL), EINVAL);
	HOLDS(getrlimit(RLIMIT_NOFILE, &found) == 0 && found.rlim_cur > 15);
	step(down[1], up[0]);
	// A user may change the limits of his processes, but not raise them; those of other users he may not even read.
	files.rlim_max = 16;
	HOLDS(setgid(1) == 0 && setreuid(1, 1) == 0);
	HOLDS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, NULL, &found) == 0 && found.rlim_max == 15);
	FAILS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, &files, NULL), EPERM);
	files = (struct rlimit){5, 10};
	HOLDS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, &files, &found) == 0 && found.rlim_max == 15);
	FAILS(syscall(SYS_prlimit64, roots, RLIMIT_NOFILE, NULL, &found), EPERM);
	// He may not change how processes of other users are scheduled.
	struct sched_param batch = {0};
	unsigned long cpus = 1;
	FAILS(setpriority(PRIO_PROCESS, roots, 5), EPERM);
	FAILS(syscall(SYS_sched_setscheduler, roots, SCHED_BATCH, &batch), EPERM);
	FAILS(syscall(SYS_sched_setparam, roots, &batch), EPERM);
	FAILS(syscall(SYS_sched_setaffinity, roots, sizeof cpus, &cpus), EPERM);
	FAILS(syscall(SYS_ioprio_set, 1, roots, 2 << 13 | 3), EPERM);
	HOLDS(setpriority(PRIO_PROCESS, child, 5) == 0 && syscall(SYS_ioprio_set, 1, child, 2 << 13 | 3) == 0);
	HOLDS(syscall(SYS_sched_setscheduler, child, SCHED_BATCH, &batch) == 0);
	HOLDS(close(end[1]) == 0 && waitpid(roots, &status, 0) == roots && WEXITSTATUS(status) == 8);
	HOLDS(write(down[1], "", 1) == 1 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	FAILS(syscall(SYS_prlimit64, child, RLIMIT_NOFILE, NULL, &found), ESRCH);
	// The maximum number of descriptors for poll follows this limit.
	struct pollfd asked[20];
	for (int at = 0; at < 20; at++)
		asked[at].fd = -1;
	HOLDS(setrlimit(RLIMIT_NOFILE, &(struct rlimit){10, 15}) == 0 && poll(asked, 10, 0) == 0);
	FAILS(poll(asked, 11, 0), EINVAL);
	struct timeval none = {0};
	HOLDS(select(100000, NULL, NULL, NULL, &none) == 0);
	FAILS(select(-1, NULL, NULL, NULL, &none), EINVAL);
}

// More files than the initial limit of a process: it can raise the limit.
static void many_files(int count, char **words)
{
	(void)count, (void)words;
	struct rlimit limit;
	HOLDS(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= 4096);
	limit.rlim_cur = 3000;
	HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	int fd = 0;
	while (fd >= 0 && fd < 2999)
		fd = open("/", O_RDONLY);
	HOLDS(fd == 2999);
	FAILS(open("/", O_RDONLY), EMFILE);
	struct pollfd asked = {.fd = 2999, .events = POLLIN};
	HOLDS(poll(&asked, 1, 0) == 1 && close(2000) == 0 && dup(0) == 2000);
	HOLDS(syscall(SYS_close_range, 3, ~0U, 0) == 0 && dup(0) == 3);
}

static void memory(int count, char **words)
{
	(void)count, (void)words;
	char *room = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(room, 1, 16384);
	HOLDS(munmap(room + 8192, 4096) == 0);
	HOLDS(mlock(room + 1, 8000) == 0 && munlock(room, 8192) == 0 && mlock(room, 0) == 0 && mlock2(room, 4096, MLOCK_ONFAULT) == 0);
	FAILS(mlock(room, 12288), ENOMEM);
	FAILS(munlock(room + 8192, 1), ENOMEM);
	HOLDS(mlock(room, -1UL) == 0);
	FAILS(mlock(room, -8192UL), EINVAL);
	FAILS(syscall(SYS_mlock2, room, 4096, 2), EINVAL);
	FAILS(mlockall(0), EINVAL);
	FAILS(mlockall(8), EINVAL);
	FAILS(mlockall(MCL_ONFAULT), EINVAL);
	HOLDS(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
	unsigned char there[4] = {0};
	HOLDS(mincore(room, 8192, there) == 0 && (there[0] & 1) && (there[1] & 1) && there[2] == 0);
	HOLDS(mincore(room, 0, there) == 0 && mincore(room + 12288, 1, there) == 0);
	FAILS(mincore(room, 12288, there), ENOMEM);
	FAILS(mincore(room + 1, 10, there), EINVAL);
	FAILS(syscall(SYS_mincore, room, 4096, 8), EFAULT);
}

static void personality_kept(int count, char **words)
{
	(void)count, (void)words;
	HOLDS(personality(0xffffffff) == PER_LINUX && personality(ADDR_NO_RANDOMIZE) == PER_LINUX);
	HOLDS(personality(0xffffffff) == ADDR_NO_RANDOMIZE && personality(PER_LINUX) == ADDR_NO_RANDOMIZE);
}

static void settings(int count, char **words)
{
	(void)count, (void)words;
	int found = 77;
	HOLDS(prctl(PR_SET_PDEATHSIG, 9) == 0 && prctl(PR_GET_PDEATHSIG, &found) == 0 && found == 9);
	FAILS(prctl(PR_SET_PDEATHSIG, 65), EINVAL);
	FAILS(prctl(PR_GET_PDEATHSIG, 8), EFAULT);
	HOLDS(prctl(PR_GET_DUMPABLE) == 1 && prctl(PR_SET_DUMPABLE, 0) == 0 && prctl(PR_GET_DUMPABLE) == 0);
	FAILS(prctl(PR_SET_DUMPABLE, 2), EINVAL);
	HOLDS(prctl(PR_GET_KEEPCAPS) == 0 && prctl(PR_SET_KEEPCAPS, 1) == 0 && prctl(PR_GET_KEEPCAPS) == 1);
	FAILS(prctl(PR_SET_KEEPCAPS, 5), EINVAL);
	HOLDS(prctl(PR_SET_TIMERSLACK, 1234) == 0 && prctl(PR_GET_TIMERSLACK) == 1234);
	HOLDS(prctl(PR_SET_CHILD_SUBREAPER, 7) == 0 && prctl(PR_GET_CHILD_SUBREAPER, &found) == 0 && found == 1);
	HOLDS(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	HOLDS(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	FAILS(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
	FAILS(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0), EINVAL);
	FAILS(prctl(PR_CAPBSET_READ, 1000), EINVAL);
	FAILS(prctl(0x123456, 1, 2, 3, 4), EINVAL);
	char name[16], *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	memcpy(page + 4096 - 15, "fifteen letters", 15);
	HOLDS(prctl(PR_SET_NAME, page + 4096 - 15) == 0 && prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "fifteen letters"));
	HOLDS(prctl(PR_SET_NAME, "a name that is far too long") == 0 && prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "a name that is "));
	FAILS(prctl(PR_SET_NAME, page + 4096 - 5), EFAULT);
}

static void capabilities(int count, char **words)
{
	(void)count, (void)words;
	struct {
		unsigned version;
		int pid;
	} header = {0x1234, 0};
	struct {
		unsigned effective, permitted, inheritable;
	} sets[2], fewer[2];
	enum { CHOWN = 1, THIRD = 0x20080522 };
	HOLDS(syscall(SYS_capget, &header, NULL) == 0 && header.version == THIRD);
	header.version = 5;
	FAILS(syscall(SYS_capget, &header, sets), EINVAL);
	HOLDS(syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & CHOWN) && sets[0].effective == sets[0].permitted);
	FAILS(syscall(SYS_capget, &header, 8), EFAULT);
	FAILS(syscall(SYS_capget, NULL, sets), EFAULT);
	header.pid = 0x3fffffff;
	FAILS(syscall(SYS_capget, &header, sets), ESRCH);
	FAILS(syscall(SYS_capset, &header, sets), EPERM);
	header.pid = -1;
	FAILS(syscall(SYS_capget, &header, sets), EINVAL);
	header.pid = 0;
	memcpy(fewer, sets, sizeof sets);
	fewer[0].permitted &= ~CHOWN;
	FAILS(syscall(SYS_capset, &header, fewer), EPERM);
	fewer[0].effective &= ~CHOWN;
	HOLDS(syscall(SYS_capset, &header, fewer) == 0 && syscall(SYS_capget, &header, sets) == 0 && !memcmp(sets, fewer, sizeof sets));
	sets[0].permitted |= CHOWN;
	FAILS(syscall(SYS_capset, &header, sets), EPERM);
	FAILS(syscall(SYS_capset, &header, 8), EFAULT);
	FAILS(waitpid(-1, NULL, 0), ECHILD);
	FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
	FAILS(waitid(P_ALL, 0, NULL, WEXITED), ECHILD);
}

enum { SETS = 3, CAPABILITY_KILL = 5, CAPABILITY_SETGID, CAPABILITY_NET_BIND_SERVICE = 10, CAPABILITY_MKNOD = 27, AMBIENT_SET = 1, AMBIENT_RAISE, AMBIENT_LOWER, AMBIENT_CLEAR };

// The low halves of the effective, permitted and inheritable capability sets of a process.
static void has(int pid, unsigned sets[SETS])
{
	unsigned header[2] = {0x20080522, (unsigned)pid}, all[2 * SETS];
	HOLDS(syscall(SYS_capget, header, all) == 0);
	memcpy(sets, all, SETS * sizeof *sets);
}

static long set_low(unsigned effective, unsigned permitted, unsigned inheritable)
{
	unsigned header[2] = {0x20080522, 0}, all[2 * SETS] = {effective, permitted, inheritable};
	return syscall(SYS_capset, header, all);
}

// The capabilities after an exec by a process that is no longer root.
static void capabilities_kept(int count, char **words)
{
	(void)words;
	const unsigned kill_only = 1 << CAPABILITY_KILL;
	unsigned sets[SETS];
	if (count == 1) {
		has(0, sets);
		HOLDS(sets[0] == kill_only && sets[1] == kill_only && sets[2] == kill_only);
		HOLDS(prctl(PR_CAP_AMBIENT, AMBIENT_SET, CAPABILITY_KILL, 0, 0) == 1 && prctl(PR_GET_KEEPCAPS) == 0);
		HOLDS(prctl(PR_CAP_AMBIENT, AMBIENT_LOWER, CAPABILITY_KILL, 0, 0) == 0);
		HOLDS(prctl(PR_CAP_AMBIENT, AMBIENT_SET, CAPABILITY_KILL, 0, 0) == 0 && prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR, 0, 0, 0) == 0);
		execl("/proc/self/exe", "resources", "kept", "without", "any", NULL);
	}
	if (count == 2) {
		has(0, sets);
		HOLDS(sets[0] == 0 && sets[1] == 0 && sets[2] == kill_only);
		FAILS(set_low(kill_only, kill_only, kill_only), EPERM);
		FAILS(prctl(PR_CAPBSET_DROP, CAPABILITY_KILL), EPERM);
		return;
	}
	FAILS(prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, CAPABILITY_KILL, 0, 0), EPERM);
	FAILS(prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, 1000, 0, 0), EINVAL);
	FAILS(prctl(PR_CAP_AMBIENT, AMBIENT_SET, CAPABILITY_KILL, 1, 0), EINVAL);
	FAILS(prctl(PR_CAP_AMBIENT, 77, CAPABILITY_KILL, 0, 0), EINVAL);
	FAILS(prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR, 1, 0, 0), EINVAL);
	FAILS(prctl(PR_CAPBSET_DROP, 1000), EINVAL);
	HOLDS(prctl(PR_CAPBSET_READ, CAPABILITY_MKNOD) == 1 && prctl(PR_CAPBSET_DROP, CAPABILITY_MKNOD) == 0);
	HOLDS(prctl(PR_CAPBSET_READ, CAPABILITY_MKNOD) == 0);
	int child = fork(), status;
	if (child == 0) {
		// A process with another effective user has no effective capabilities; they come back with root.
		HOLDS(seteuid(1) == 0);
		has(0, sets);
		HOLDS(sets[0] == 0 && (sets[1] & kill_only));
		HOLDS(seteuid(0) == 0);
		has(0, sets);
		HOLDS(sets[0] == sets[1] && (sets[0] & kill_only) && setuid(1) == 0);
		has(0, sets);
		HOLDS(sets[0] == 0 && sets[1] == 0);
		_exit(0);
	}
	HOLDS(waitpid(child, &status, 0) == child && status == 0);
	// A process that keeps its capabilities across a change of user can use them.
	HOLDS(prctl(PR_SET_KEEPCAPS, 1) == 0 && prctl(PR_GET_SECUREBITS) == 1 << 4 && setuid(1) == 0);
	has(0, sets);
	HOLDS(sets[0] == 0 && (sets[1] & kill_only));
	FAILS(setgid(1), EPERM);
	HOLDS(set_low(1 << CAPABILITY_SETGID, sets[1], 0) == 0 && setgid(1) == 0 && setgroups(0, NULL) == 0 && getgid() == 1);
	FAILS(setuid(0), EPERM);
	// A privileged port, for which one capability is enough. Some hosts let everybody use all ports.
	struct sockaddr_in low = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(1023)};
	int bound = socket(AF_INET, SOCK_DGRAM, 0);
	HOLDS(set_low(1 << CAPABILITY_NET_BIND_SERVICE, sets[1], 0) == 0);
	HOLDS(bind(bound, (struct sockaddr *)&low, sizeof low) == 0 || errno == EADDRINUSE);
	HOLDS(close(bound) == 0);
	FAILS(prctl(PR_SET_SECUREBITS, 0), EPERM);
	HOLDS(set_low(0, kill_only, kill_only) == 0 && prctl(PR_CAP_AMBIENT, AMBIENT_RAISE, CAPABILITY_KILL, 0, 0) == 0);
	execl("/proc/self/exe", "resources", "kept", "one", NULL);
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

// User and system time of a kind of work until both together have used 0.2 s; returns the share of user time.
static double share_of_user(int who, void (*work)(void))
{
	struct rusage before, after;
	double user, system;
	getrusage(who, &before);
	do {
		work();
		getrusage(who, &after);
		user = seconds(after.ru_utime) - seconds(before.ru_utime);
		system = seconds(after.ru_stime) - seconds(before.ru_stime);
	} while (user + system < 0.2);
	return user / (user + system);
}

// Whether the share of user time is above 0.7 (`is_user`) or below 0.3. An interruption by the host counts for the part in which it falls,
// so a busy machine gets several tries.
static int is_apart(int who, void (*work)(void), int is_user)
{
	for (int tries = 0; tries < 20; tries++) {
		double share = share_of_user(who, work);
		if (is_user ? share > 0.7 : share < 0.3)
			return 1;
	}
	return 0;
}

static void computes(void)
{
	for (volatile int i = 0; i < 1000000; i++)
		;
}

static void reads(void)
{
	static char buffer[1 << 20];
	int zero = open("/dev/zero", O_RDONLY);
	for (int i = 0; i < 50; i++)
		if (read(zero, buffer, sizeof buffer) != sizeof buffer)
			_exit(9);
	close(zero);
}

static void in_child(void)
{
	int child = fork();
	if (child == 0) {
		share_of_user(RUSAGE_SELF, reads);
		_exit(0);
	}
	if (waitpid(child, NULL, 0) != child)
		_exit(9);
}

// User and system time are apart: of a process, a thread, children, and in `times` and /proc.
static void times_apart(int count, char **words)
{
	(void)count, (void)words;
	HOLDS(is_apart(RUSAGE_SELF, computes, 1) && is_apart(RUSAGE_THREAD, computes, 1));
	HOLDS(is_apart(RUSAGE_SELF, reads, 0) && is_apart(RUSAGE_CHILDREN, in_child, 0));
	struct tms all;
	HOLDS(times(&all) > 0 && all.tms_utime > 0 && all.tms_stime > 0 && all.tms_cstime > 0);
	unsigned long user = 0, system = 0;
	FILE *file = fopen("/proc/self/stat", "r");
	HOLDS(file && fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2);
	HOLDS(user > 0 && system > 0);
}

static const struct part parts[] = {
	{"times", times_apart},
	
	{"scheduling", scheduling}, {"limits", limits}, {"others", limits_of_others}, {"many", many_files}, {"memory", memory}, {"personality", personality_kept},
	{"settings", settings}, {"capabilities", capabilities}, {"kept", capabilities_kept}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(parts, count, arguments);
}
