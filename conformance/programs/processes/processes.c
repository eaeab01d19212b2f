// SPDX-License-Identifier: MIT OR Apache-2.0
// Processes and threads: waiting, identities, and inheritance.
#define _GNU_SOURCE
#include "show.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STRANGER = 65534 };
// A file that only root may read.
static char secret[] = "/tmp/secret-XXXXXX";

static int child_that_ends(int status)
{
	pid_t child = fork();
	if (child == 0)
		_exit(status);
	return child;
}

// A child that can only end neither stops nor continues.
static void waiting(void)
{
	siginfo_t info;
	SHOW(waitid(P_ALL, 0, &info, WSTOPPED));
	child_that_ends(3);
	SHOW(waitid(P_ALL, 0, &info, WSTOPPED));
	SHOW(waitid(P_ALL, 0, &info, WCONTINUED | WNOHANG));
	SHOW(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
	SHOW(waitid(P_ALL, 0, &info, WEXITED));
	printf("%d\n", info.si_status);
	SHOW(waitid(P_ALL, 0, &info, WEXITED));
}

// Orphans are reparented to the nearest subreaper.
static void reaping(void)
{
	pid_t reaper = fork();
	if (reaper == 0) {
		SHOW(prctl(PR_SET_CHILD_SUBREAPER, 1));
		prctl(PR_SET_PDEATHSIG, SIGUSR1);
		int go[2], own = getpid();
		if (pipe(go))
			_exit(1);
		if (fork() == 0) {
			int is_set = 9, signal = 9;
			prctl(PR_GET_CHILD_SUBREAPER, &is_set);
			prctl(PR_GET_PDEATHSIG, &signal);
			printf("a child inherits %d and %d\n", is_set, signal);
			fflush(stdout);
			if (fork() == 0) {
				char byte;
				close(go[1]);
				// Until the process between them has ended.
				while (read(go[0], &byte, 1) > 0)
					;
				while (getppid() != own && getppid() != 1)
					sched_yield();
				printf("an orphan is the reaper's: %d\n", getppid() == own);
				fflush(stdout);
				_exit(7);
			}
			_exit(5);
		}
		close(go[1]);
		int status, sum = 0, count = 0;
		while (wait(&status) > 0) {
			sum += WEXITSTATUS(status);
			count++;
		}
		printf("%d reaped, %d in all\n", count, sum);
		fflush(stdout);
		_exit(0);
	}
	SHOW(waitpid(reaper, NULL, 0) == reaper);
}

static void *other_user(void *unused)
{
	(void)unused;
	SHOW(syscall(SYS_setresuid, -1, STRANGER, -1));
	SHOW(syscall(SYS_geteuid));
	SHOW(open(secret, O_RDONLY) >= 0);
	return NULL;
}

// System calls that change the identity of one thread do not affect other threads.
static void identities(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, other_user, NULL);
	pthread_join(thread, NULL);
	SHOW(geteuid());
	SHOW(access(secret, R_OK));
	// The library changes it for all threads.
	pthread_create(&thread, NULL, other_user, NULL);
	pthread_join(thread, NULL);
	SHOW(seteuid(STRANGER));
	SHOW(syscall(SYS_geteuid));
	if (fork() == 0) {
		SHOW(syscall(SYS_geteuid));
		_exit(0);
	}
	wait(NULL);
}

// The identity used for file access.
static void files(void)
{
	SHOW(syscall(SYS_setfsuid, STRANGER));
	SHOW(syscall(SYS_setfsuid, -1));
	SHOW(syscall(SYS_geteuid));
	SHOW(open(secret, O_RDONLY) >= 0);
	SHOW(syscall(SYS_setfsgid, 7));
	SHOW(syscall(SYS_setfsgid, 0));
	SHOW(syscall(SYS_setfsuid, 0));
	SHOW(open(secret, O_RDONLY) >= 0);
	SHOW(syscall(SYS_setresuid, STRANGER, STRANGER, STRANGER));
	SHOW(syscall(SYS_setfsuid, 0));
	SHOW(syscall(SYS_setfsuid, -1));
}

static void drop(int capability)
{
	struct { uint32_t version; int process; } header = {0x20080522, 0};
	struct { uint32_t effective, permitted, inheritable; } sets[2];
	syscall(SYS_capget, &header, sets);
	sets[capability / 32].effective &= ~(1u << capability % 32);
	SHOW(syscall(SYS_capset, &header, sets));
}

// Root without a capability is refused operations that need it.
static void powerless(void)
{
	enum { CHOWN = 0, DAC_OVERRIDE = 1, DAC_READ_SEARCH = 2, FOWNER = 3, KILL = 5, SYS_CHROOT = 18, SYS_RESOURCE = 24, SYS_NICE = 23, MKNOD = 27 };
	char name[] = "/tmp/powerless-XXXXXX";
	int file = mkstemp(name);
	SHOW(fchmod(file, 0));
	SHOW(chown(name, STRANGER, STRANGER));
	// It lives as long as this process.
	int alive[2];
	char byte;
	if (pipe(alive))
		return;
	pid_t other = fork();
	if (other == 0) {
		close(alive[1]);
		_exit(setuid(STRANGER) || read(alive[0], &byte, 1) > 0);
	}
	drop(FOWNER);
	SHOW(chmod(name, 0600));
	drop(DAC_OVERRIDE);
	SHOW(open(name, O_WRONLY));
	SHOW(open(name, O_RDONLY) >= 0);
	drop(DAC_READ_SEARCH);
	SHOW(open(name, O_RDONLY));
	drop(CHOWN);
	SHOW(chown(name, 0, 0));
	drop(SYS_NICE);
	SHOW(setpriority(PRIO_PROCESS, 0, -5));
	struct sched_param priority = {.sched_priority = 1};
	SHOW(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &priority));
	drop(MKNOD);
	SHOW(mknod("/tmp/powerless-device", S_IFCHR | 0600, 0x103));
	drop(SYS_CHROOT);
	SHOW(chroot("/tmp"));
	// It may signal every process while it is root.
	while (kill(other, 0) != 0 && errno == EPERM)
		sched_yield();
	drop(KILL);
	SHOW(kill(other, SIGTERM) == 0 || errno == EPERM);
	unlink(name);
}

static volatile int got;

static void note(int signal)
{
	got = signal;
}

static void *asks_by_thread(void *unused)
{
	(void)unused;
	pid_t thread = syscall(SYS_gettid);
	SHOW(thread != getpid());
	SHOW(kill(thread, 0));
	SHOW(kill(thread, SIGUSR1));
	siginfo_t info = {.si_signo = SIGUSR2, .si_code = SI_QUEUE};
	SHOW(syscall(SYS_rt_sigqueueinfo, thread, SIGUSR2, &info));
	return NULL;
}

// Signals to a thread's number go to its process.
static void naming(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGUSR1, note);
	pthread_t thread;
	pthread_create(&thread, NULL, asks_by_thread, NULL);
	pthread_join(thread, NULL);
	SHOW(sigwaitinfo(&set, NULL) == SIGUSR1);
	SHOW(sigwaitinfo(&set, NULL) == SIGUSR2);
}

static void show_policy(void)
{
	if (fork() == 0) {
		printf("child: %ld nice %d\n", syscall(SYS_sched_getscheduler, 0), getpriority(PRIO_PROCESS, 0));
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
}

// Scheduling attributes that a child inherits.
static void scheduling(void)
{
	enum { RESET = 0x40000000 };
	struct sched_param none = {.sched_priority = 0}, real_time = {.sched_priority = 5};
	SHOW(setpriority(PRIO_PROCESS, 0, -7));
	show_policy();
	SHOW(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER | RESET, &none));
	show_policy();
	SHOW(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | RESET, &real_time));
	show_policy();
	SHOW(syscall(SYS_sched_getscheduler, 0) == (SCHED_FIFO | RESET));
	SHOW(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &real_time));
	show_policy();
}

static volatile int told;

static void count(int signal)
{
	(void)signal;
	told++;
}

// A process that exceeds its CPU time gets a signal, and is then killed.
static void limited(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct rlimit limit = {1, 2};
		signal(SIGXCPU, count);
		setrlimit(RLIMIT_CPU, &limit);
		while (told == 0)
			;
		getrlimit(RLIMIT_CPU, &limit);
		printf("told %d, limits %ld %ld\n", told, (long)limit.rlim_cur, (long)limit.rlim_max);
		fflush(stdout);
		for (;;)
			;
	}
	int status;
	waitpid(child, &status, 0);
	printf("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	child = fork();
	if (child == 0) {
		struct rlimit limit = {1, RLIM_INFINITY};
		setrlimit(RLIMIT_CPU, &limit);
		for (;;)
			;
	}
	waitpid(child, &status, 0);
	printf("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

// The memory usage of a process and of its children.
static void used(void)
{
	// The host's own counter may lag behind by some pages per CPU.
	enum { MUCH = 64 << 20, LEAST = (MUCH - MUCH / 16) >> 10 };
	struct rusage usage;
	if (fork() == 0) {
		volatile char *memory = malloc(MUCH);
		for (long at = 0; at < MUCH; at += 512)
			memory[at] = 1;
		memory[MUCH - 1] = 1;
		SHOW(memory[MUCH - 1]);
		getrusage(RUSAGE_SELF, &usage);
		SHOW(usage.ru_maxrss >= LEAST);
		free((void *)memory);
		getrusage(RUSAGE_SELF, &usage);
		SHOW(usage.ru_maxrss >= LEAST);
		_exit(0);
	}
	wait4(-1, NULL, 0, &usage);
	SHOW(usage.ru_maxrss >= LEAST);
	getrusage(RUSAGE_CHILDREN, &usage);
	SHOW(usage.ru_maxrss >= LEAST);
	getrusage(RUSAGE_SELF, &usage);
	SHOW(usage.ru_maxrss > 0);
}

int main(int number, char **arguments)
{
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{"waiting", waiting}, {"reaping", reaping}, {"identities", identities}, {"files", files}, {"powerless", powerless},
		{"naming", naming}, {"scheduling", scheduling}, {"limited", limited}, {"used", used},
	};
	close(mkstemp(secret));
	for (size_t at = 0; number > 1 && at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(arguments[1], parts[at].name))
			parts[at].run();
	fflush(stdout);
	return 0;
}
