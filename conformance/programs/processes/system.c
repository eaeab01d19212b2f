// SPDX-License-Identifier: MIT OR Apache-2.0
// Information about the system and the process: time, names, numbers, randomness, signals, arguments, the terminal.
#define _GNU_SOURCE
#include "holds.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void *volatile nowhere = (void *)8;

static double seconds(clockid_t clock)
{
	struct timespec time = {0};
	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void clocks(int count, char **arguments)
{
	(void)count, (void)arguments;
	double now = seconds(CLOCK_REALTIME);
	HOLDS(now > 1.7e9 && now < 4e9);
	HOLDS((double)time(NULL) - now < 2 && now - (double)time(NULL) < 2);
	struct timeval day;
	HOLDS(gettimeofday(&day, NULL) == 0 && (double)day.tv_sec - now < 2);
	bool goes_back = false;
	double last = seconds(CLOCK_MONOTONIC);
	for (int at = 0; at < 20000; at++) {
		double next = seconds(CLOCK_MONOTONIC);
		goes_back |= next < last;
		last = next;
	}
	HOLDS(!goes_back);
	HOLDS(seconds(CLOCK_BOOTTIME) > 0 && seconds(CLOCK_MONOTONIC_RAW) > 0 && seconds(CLOCK_MONOTONIC_COARSE) > 0);
	HOLDS(seconds(CLOCK_PROCESS_CPUTIME_ID) > 0 && seconds(CLOCK_THREAD_CPUTIME_ID) > 0 && clock() >= 0);
	struct timespec resolution;
	HOLDS(clock_getres(CLOCK_MONOTONIC, &resolution) == 0 && resolution.tv_sec == 0 && resolution.tv_nsec > 0);
	FAILS(syscall(SYS_clock_gettime, 999, &resolution), EINVAL);
	FAILS(syscall(SYS_clock_gettime, CLOCK_REALTIME, nowhere), EFAULT);
	double before = seconds(CLOCK_MONOTONIC);
	struct timespec short_while = {0, 20000000}, wrong = {0, 2000000000};
	HOLDS(nanosleep(&short_while, NULL) == 0 && seconds(CLOCK_MONOTONIC) - before >= 0.02);
	FAILS(nanosleep(&wrong, NULL), EINVAL);
	struct timespec then = {(time_t)before, 0};
	HOLDS(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == 0);
	HOLDS(usleep(1000) == 0);
	struct tms spent;
	HOLDS(times(&spent) != -1 && spent.tms_cutime == 0);
	time_t fixed = 1000000000;
	char text[100];
	strftime(text, sizeof text, "%A %Y-%m-%d %H:%M:%S day %j week %V", gmtime(&fixed));
	puts(text);
	struct tm parts = {.tm_year = 124, .tm_mon = 1, .tm_mday = 30, .tm_hour = 25};
	HOLDS(mktime(&parts) == 1709341200);
	printf("%d-%d %d %d\n", parts.tm_mon, parts.tm_mday, parts.tm_hour, parts.tm_wday);
}

static void identity(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct utsname name;
	HOLDS(uname(&name) == 0 && !strcmp(name.sysname, "Linux") && !strcmp(name.machine, "x86_64"));
	HOLDS(name.nodename[0] && name.release[0] >= '4' && name.version[0]);
	FAILS(syscall(SYS_uname, nowhere), EFAULT);
	char host[100];
	HOLDS(gethostname(host, sizeof host) == 0 && !strcmp(host, name.nodename));
	HOLDS(getpid() > 0 && getpid() == getpid() && getppid() >= 0 && syscall(SYS_gettid) == getpid());
	HOLDS(getuid() == geteuid() && getgid() == getegid());
	uid_t real, effective, saved;
	HOLDS(getresuid(&real, &effective, &saved) == 0 && real == getuid() && saved == effective);
	HOLDS(getpgid(0) == getpgrp() && getsid(0) >= 0);
	HOLDS(getgroups(0, NULL) >= 0);
	FAILS(getpgid(12345678), ESRCH);
	HOLDS(sysconf(_SC_PAGESIZE) == 4096 && sysconf(_SC_NPROCESSORS_ONLN) >= 1 && sysconf(_SC_CLK_TCK) == 100);
	struct rlimit limit;
	HOLDS(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= 1 << 20 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= 64);
	FAILS(syscall(SYS_getrlimit, 99, &limit), EINVAL);
	struct rusage usage;
	HOLDS(getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_utime.tv_sec >= 0);
	struct sysinfo information;
	HOLDS(sysinfo(&information) == 0 && information.totalram * information.mem_unit > 1 << 20 && information.freeram <= information.totalram);
	cpu_set_t processors;
	HOLDS(sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) >= 1);
	HOLDS(sched_yield() == 0 && sched_getcpu() >= 0);
	char title[17] = "";
	HOLDS(prctl(PR_SET_NAME, "a name that is too long") == 0 && prctl(PR_GET_NAME, title) == 0 && !strcmp(title, "a name that is "));
	HOLDS(getauxval(AT_PAGESZ) == 4096 && getauxval(AT_RANDOM) && getauxval(AT_PHDR) && getauxval(AT_ENTRY));
	HOLDS(getauxval(AT_UID) == getuid() && getauxval(AT_SECURE) == 0);
	FAILS(syscall(999), ENOSYS);
	FAILS(syscall(-5), ENOSYS);
}

static void randomness(int count, char **arguments)
{
	(void)count, (void)arguments;
	static unsigned char one[100000], other[100000];
	HOLDS(getrandom(one, 16, 0) == 16 && getrandom(other, 16, 0) == 16 && memcmp(one, other, 16));
	long total = 0, got;
	while (total < (long)sizeof one && (got = getrandom(one + total, sizeof one - (size_t)total, 0)) > 0)
		total += got;
	HOLDS(total == sizeof one);
	int counts[256] = {0}, odd = 0;
	for (size_t at = 0; at < sizeof one; at++)
		counts[one[at]]++;
	for (int value = 0; value < 256; value++)
		odd += counts[value] < 200 || counts[value] > 600;
	HOLDS(odd == 0);
	HOLDS(getrandom(one, 100, GRND_NONBLOCK | GRND_RANDOM) == 100 && getrandom(one, 0, 0) == 0);
	FAILS(syscall(SYS_getrandom, one, 10, 0x100), EINVAL);
	FAILS(syscall(SYS_getrandom, nowhere, 10, 0), EFAULT);
	HOLDS(getentropy(one, 256) == 0);
	FAILS(getentropy(one, 257), EIO);
	HOLDS(memcmp((void *)getauxval(AT_RANDOM), one, 16));
}

static void handler(int number)
{
	(void)number;
}

static void signals(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
	sigaddset(&action.sa_mask, SIGUSR2);
	HOLDS(sigaction(SIGUSR1, &action, &old) == 0 && old.sa_handler == SIG_DFL);
	HOLDS(sigaction(SIGUSR1, NULL, &old) == 0 && old.sa_handler == handler && (old.sa_flags & SA_RESTART));
	HOLDS(sigismember(&old.sa_mask, SIGUSR2) && !sigismember(&old.sa_mask, SIGUSR1));
	HOLDS(signal(SIGUSR1, SIG_IGN) == handler && signal(SIGUSR1, SIG_IGN) == SIG_IGN);
	HOLDS(raise(SIGUSR1) == 0);
	HOLDS(raise(SIGCHLD) == 0 && raise(SIGURG) == 0 && raise(SIGWINCH) == 0);
	HOLDS(kill(getpid(), 0) == 0);
	FAILS(kill(12345678, 0), ESRCH);
	FAILS(kill(getpid(), 99), EINVAL);
	FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
	FAILS(sigaction(SIGSTOP, &action, NULL), EINVAL);
	FAILS(sigaction(99, &action, NULL), EINVAL);
	sigset_t set, before;
	sigemptyset(&set), sigaddset(&set, SIGTERM), sigaddset(&set, SIGHUP);
	HOLDS(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	HOLDS(sigismember(&before, SIGTERM) && sigismember(&before, SIGHUP) && !sigismember(&before, SIGINT));
	sigdelset(&set, SIGHUP);
	HOLDS(sigprocmask(SIG_UNBLOCK, &set, &before) == 0 && sigismember(&before, SIGTERM));
	HOLDS(sigprocmask(SIG_SETMASK, NULL, &before) == 0 && !sigismember(&before, SIGTERM) && sigismember(&before, SIGHUP));
	sigfillset(&set);
	HOLDS(sigprocmask(SIG_SETMASK, &set, NULL) == 0 && sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	HOLDS(!sigismember(&before, SIGKILL) && !sigismember(&before, SIGSTOP) && sigismember(&before, SIGSEGV));
	FAILS(sigprocmask(77, &set, NULL), EINVAL);
	HOLDS(sigpending(&set) == 0 && !sigismember(&set, SIGTERM));
	static char room[65536];
	stack_t stack = {.ss_sp = room, .ss_size = sizeof room}, previous;
	HOLDS(sigaltstack(&stack, &previous) == 0 && (previous.ss_flags & SS_DISABLE));
	HOLDS(sigaltstack(NULL, &previous) == 0 && previous.ss_sp == room && previous.ss_size == sizeof room);
	stack.ss_size = 100;
	FAILS(sigaltstack(&stack, NULL), ENOMEM);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

static void surroundings(int count, char **arguments)
{
	HOLDS(arguments[count] == NULL);
	for (int at = 0; at < count; at++)
		printf("%d: %zu bytes: %s\n", at, strlen(arguments[at]), arguments[at]);
	size_t variables = 0;
	while (environ[variables])
		variables++;
	qsort(environ, variables, sizeof *environ, by_name);
	for (size_t at = 0; at < variables; at++)
		puts(environ[at]);
	HOLDS(setenv("NEW", "value", 1) == 0 && !strcmp(getenv("NEW"), "value") && unsetenv("NEW") == 0 && !getenv("NEW"));
	printf("started as %s from %s\n", arguments[-2], (char *)getauxval(AT_EXECFN));
}

// Checks whether each standard stream is a terminal.
static void terminal(int count, char **arguments)
{
	(void)count, (void)arguments;
	for (int stream = 0; stream < 3; stream++) {
		struct termios modes;
		errno = 0;
		int is_terminal = isatty(stream), error = errno;
		printf("%d: %s (%s)", stream, is_terminal ? "a terminal" : "no terminal", strerror(error));
		struct winsize size;
		int sized = ioctl(stream, TIOCGWINSZ, &size);
		printf(", size %s", sized ? strerror(errno) : "known");
		if (tcgetattr(stream, &modes) == 0) {
			bool usual = (modes.c_lflag & ICANON) && (modes.c_lflag & ECHO) && (modes.c_lflag & ISIG) && (modes.c_oflag & OPOST);
			printf(", %s modes, ^%c, set: %d", usual ? "usual" : "other", modes.c_cc[VINTR] + '@', tcsetattr(stream, TCSADRAIN, &modes));
		}
		errno = 0;
		int wrong = ioctl(stream, 0x12345678, &size);
		printf(", nonsense: %d %s\n", wrong, strerror(errno));
	}
}

static const struct part PARTS[] = {
	{"clocks", clocks}, {"identity", identity}, {"randomness", randomness}, {"signals", signals}, {"surroundings", surroundings},
	{"terminal", terminal}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
