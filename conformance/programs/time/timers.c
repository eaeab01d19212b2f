// SPDX-License-Identifier: MIT OR Apache-2.0
// Timers: interval timers and POSIX timers, while a process computes, sleeps and waits.
#define _GNU_SOURCE
#include "holds.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int count;
static siginfo_t told;

static void look(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	told = *info;
	count++;
}

static void handle(int signal)
{
	struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = look};
	sigaction(signal, &action, NULL);
}

static double seconds(clockid_t clock)
{
	struct timespec time = {0};
	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// Computes without a system call until a handler has run this often.
static void compute(int times)
{
	while (count < times)
		for (volatile int at = 0; at < 1000; at++)
			;
}

static void intervals(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGALRM);
	double before = seconds(CLOCK_MONOTONIC);
	HOLDS(alarm(0) == 0 && alarm(100) == 0 && alarm(1) == 100);
	compute(1);
	double passed = seconds(CLOCK_MONOTONIC) - before;
	HOLDS(passed >= 1 && passed < 30 && told.si_signo == SIGALRM && told.si_code == SI_KERNEL);
	struct itimerval often = {{0, 2000}, {0, 5000}}, never = {{0, 0}, {0, 0}}, now, old;
	HOLDS(setitimer(ITIMER_REAL, &often, &old) == 0 && old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
	compute(11);
	HOLDS(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == 2000 && now.it_value.tv_usec <= 2000);
	HOLDS(setitimer(ITIMER_REAL, &never, &old) == 0 && old.it_interval.tv_usec == 2000);
	HOLDS(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == 0 && now.it_value.tv_usec == 0);
	int sofar = count;
	usleep(10000);
	HOLDS(count == sofar);
	struct itimerval long_while = {{0, 0}, {1000, 500000}};
	setitimer(ITIMER_REAL, &long_while, NULL);
	HOLDS(getitimer(ITIMER_REAL, &now) == 0 && now.it_value.tv_sec >= 999);
	HOLDS(alarm(0) >= 1000);
	count = 0;
	handle(SIGVTALRM), handle(SIGPROF);
	struct itimerval soon = {{0, 0}, {0, 30000}};
	HOLDS(setitimer(ITIMER_VIRTUAL, &soon, NULL) == 0);
	usleep(60000);
	HOLDS(count == 0);
	compute(1);
	HOLDS(told.si_signo == SIGVTALRM);
	HOLDS(setitimer(ITIMER_PROF, &soon, NULL) == 0);
	compute(2);
	HOLDS(told.si_signo == SIGPROF);
	struct itimerval wrong = {{0, 0}, {0, 1000000}};
	FAILS(setitimer(ITIMER_REAL, &wrong, NULL), EINVAL);
	FAILS(syscall(SYS_setitimer, 3, &soon, NULL), EINVAL);
	FAILS(syscall(SYS_getitimer, 3, &now), EINVAL);
	FAILS(syscall(SYS_getitimer, 0, 8), EFAULT);
	HOLDS(syscall(SYS_setitimer, ITIMER_REAL, NULL, NULL) == 0);
}

static void created(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGRTMIN);
	handle(SIGALRM);
	timer_t timer, silent, plain;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 99};
	struct sigevent nothing = {.sigev_notify = SIGEV_NONE};
	HOLDS(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_create(CLOCK_REALTIME, &nothing, &silent) == 0);
	HOLDS(timer_create(CLOCK_BOOTTIME, NULL, &plain) == 0);
	struct itimerspec soon = {{0, 0}, {0, 3000000}}, often = {{0, 1000000}, {0, 1000000}}, now, old;
	HOLDS(timer_gettime(timer, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
	HOLDS(timer_settime(timer, 0, &soon, &old) == 0 && old.it_value.tv_nsec == 0);
	compute(1);
	HOLDS(told.si_code == SI_TIMER && told.si_signo == SIGRTMIN && told.si_value.sival_int == 99 && told.si_overrun == 0);
	HOLDS(timer_gettime(timer, &now) == 0 && now.it_value.tv_nsec == 0 && timer_getoverrun(timer) == 0);
	// It may expire before the wait starts.
	sigset_t set, none;
	sigemptyset(&set), sigemptyset(&none);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	HOLDS(timer_settime(plain, 0, &soon, NULL) == 0);
	FAILS(sigsuspend(&none), EINTR);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	HOLDS(count == 2 && told.si_signo == SIGALRM && told.si_code == SI_TIMER);
	// While its signal is blocked it counts overruns.
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	HOLDS(timer_settime(timer, 0, &often, NULL) == 0);
	usleep(20000);
	siginfo_t info;
	HOLDS(sigwaitinfo(&set, &info) == SIGRTMIN && info.si_overrun >= 10 && timer_getoverrun(timer) == info.si_overrun);
	usleep(5000);
	HOLDS(timer_gettime(timer, &now) == 0 && now.it_interval.tv_nsec == 1000000 && now.it_value.tv_nsec > 0 && now.it_value.tv_nsec <= 1000000);
	struct itimerspec never = {{0, 0}, {0, 0}};
	struct timespec at_once = {0, 0};
	HOLDS(timer_settime(timer, 0, &never, NULL) == 0);
	FAILS(sigtimedwait(&set, &info, &at_once), EAGAIN);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	count = 0;
	// An absolute time, on either clock; one in the past expires at once.
	struct itimerspec then = {{0, 0}, {0, 0}};
	clock_gettime(CLOCK_MONOTONIC, &then.it_value);
	HOLDS(timer_settime(timer, TIMER_ABSTIME, &then, NULL) == 0);
	compute(1);
	HOLDS(timer_settime(silent, 0, &soon, NULL) == 0);
	usleep(5000);
	HOLDS(timer_gettime(silent, &now) == 0 && now.it_value.tv_nsec == 0 && count == 1);
	timer_t cpu;
	event.sigev_value.sival_int = 7;
	HOLDS(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &cpu) == 0);
	struct itimerspec later = {{0, 0}, {0, 20000000}};
	HOLDS(timer_settime(cpu, 0, &later, NULL) == 0);
	usleep(40000);
	HOLDS(count == 1);
	compute(2);
	HOLDS(told.si_value.sival_int == 7 && timer_delete(cpu) == 0);
	struct itimerspec wrong = {{0, 0}, {0, 1000000000}};
	FAILS(timer_settime(timer, 0, &wrong, NULL), EINVAL);
	HOLDS(timer_delete(timer) == 0 && timer_delete(silent) == 0 && timer_delete(plain) == 0);
	FAILS(syscall(SYS_timer_delete, 99), EINVAL);
	FAILS(syscall(SYS_timer_gettime, 99, &now), EINVAL);
	FAILS(syscall(SYS_timer_settime, 99, 0, &soon, NULL), EINVAL);
	FAILS(syscall(SYS_timer_getoverrun, 99), EINVAL);
	FAILS(syscall(SYS_timer_create, 77, NULL, &timer), EINVAL);
	event.sigev_signo = 65;
	FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
	event.sigev_notify = 77;
	FAILS(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer), EINVAL);
	FAILS(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, 8), EFAULT);
}

static void running(int arguments, char **words)
{
	(void)arguments, (void)words;
	// Sleeping costs no CPU time; computing does.
	double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
	usleep(300000);
	double slept = seconds(CLOCK_PROCESS_CPUTIME_ID);
	HOLDS(slept - before < 0.1);
	for (volatile int at = 0; at < 50000000; at++)
		;
	HOLDS(seconds(CLOCK_PROCESS_CPUTIME_ID) > slept);
	HOLDS(seconds(CLOCK_THREAD_CPUTIME_ID) > 0);
	struct timespec past = {1, 0}, short_while = {0, 10000000}, wrong = {0, -1};
	HOLDS(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &past, NULL) == 0);
	double start = seconds(CLOCK_REALTIME);
	HOLDS(clock_nanosleep(CLOCK_REALTIME, 0, &short_while, NULL) == 0 && seconds(CLOCK_REALTIME) - start >= 0.01);
	struct timespec then;
	clock_gettime(CLOCK_REALTIME, &then);
	then.tv_sec++;
	HOLDS(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &then, NULL) == 0 && seconds(CLOCK_REALTIME) >= (double)then.tv_sec);
	HOLDS(clock_nanosleep(CLOCK_MONOTONIC, 0, &wrong, NULL) == EINVAL);
	HOLDS(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &short_while, NULL) == EINVAL);
	HOLDS(syscall(SYS_clock_nanosleep, 77, 0, 8, NULL) == -1 && errno == EINVAL);
	FAILS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, 8, NULL), EFAULT);
}

// A waiting process uses no CPU time while others run; a running one uses only its own.
static void parked(int arguments, char **words)
{
	(void)arguments, (void)words;
	int ends[2], back[2];
	HOLDS(pipe(ends) == 0 && pipe(back) == 0);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		handle(SIGPROF);
		handle(SIGVTALRM);
		struct itimerval soon = {{0, 0}, {0, 50000}};
		char room;
		setitimer(ITIMER_PROF, &soon, NULL);
		setitimer(ITIMER_VIRTUAL, &soon, NULL);
		write(back[1], "x", 1);
		while (read(ends[0], &room, 1) != 1)
			;
		int early = count;
		while (count < 2)
			;
		_exit(early == 0 ? 3 : 4);
	}
	char room;
	clockid_t childs, gone;
	HOLDS(read(back[0], &room, 1) == 1 && clock_getcpuclockid(child, &childs) == 0);
	double before = seconds(childs), own = seconds(CLOCK_PROCESS_CPUTIME_ID);
	while (seconds(CLOCK_PROCESS_CPUTIME_ID) - own < 0.15)
		;
	HOLDS(seconds(childs) - before < 0.05);
	HOLDS(write(ends[1], "x", 1) == 1);
	int status;
	siginfo_t ended;
	HOLDS(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0 && seconds(childs) >= before + 0.01);
	HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
	struct timespec time;
	FAILS(syscall(SYS_clock_gettime, childs, &time), EINVAL);
	HOLDS(clock_getcpuclockid(child, &gone) != 0 && seconds(CLOCK_THREAD_CPUTIME_ID) > 0.15);
}

static const struct part parts[] = {{"intervals", intervals}, {"created", created}, {"running", running}, {"parked", parked}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(parts, count, arguments);
}
