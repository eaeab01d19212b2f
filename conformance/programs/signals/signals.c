// SPDX-License-Identifier: MIT OR Apache-2.0
// Signals that a program raises and handles itself: the view and the effects of handlers, and which calls they interrupt.
#define _GNU_SOURCE
#include "holds.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int count;
static volatile int order[100];
static siginfo_t told;
static sigset_t inside;

static void note(int signal)
{
	if (count < 100)
		order[count] = signal;
	count++;
}

static void look(int signal, siginfo_t *info, void *context)
{
	(void)context;
	note(signal);
	told = *info;
	sigprocmask(SIG_SETMASK, NULL, &inside);
}

static void handle(int signal, void *handler, int flags)
{
	struct sigaction action = {.sa_flags = flags};
	action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
	HOLDS(sigaction(signal, &action, NULL) == 0);
}

static sigset_t set_of(int first, int second)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, first);
	if (second)
		sigaddset(&set, second);
	return set;
}

static void show_order(const char *what)
{
	printf("%s:", what);
	for (int at = 0; at < count && at < 100; at++)
		printf(" %d", order[at]);
	printf("\n");
	count = 0;
}

static void handlers(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGUSR1, look, SA_SIGINFO);
	HOLDS(raise(SIGUSR1) == 0 && count == 1);
	HOLDS(told.si_signo == SIGUSR1 && told.si_code == SI_TKILL && told.si_pid == getpid() && told.si_uid == getuid());
	HOLDS(sigismember(&inside, SIGUSR1) == 1 && sigismember(&inside, SIGUSR2) == 0);
	HOLDS(kill(getpid(), SIGUSR1) == 0 && count == 2 && told.si_code == SI_USER && told.si_pid == getpid());
	HOLDS(kill(0, 0) == 0);
	struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = look}, before;
	sigaddset(&action.sa_mask, SIGUSR2);
	sigaddset(&action.sa_mask, SIGKILL);
	HOLDS(sigaction(SIGUSR1, &action, &before) == 0 && before.sa_sigaction == look && (before.sa_flags & ~0x04000000) == SA_SIGINFO);
	HOLDS(sigaction(SIGUSR1, NULL, &before) == 0 && sigismember(&before.sa_mask, SIGUSR2) == 1 && sigismember(&before.sa_mask, SIGKILL) == 0);
	HOLDS(raise(SIGUSR1) == 0 && sigismember(&inside, SIGUSR2) == 1);
	handle(SIGUSR1, look, SA_SIGINFO | SA_NODEFER);
	HOLDS(raise(SIGUSR1) == 0 && sigismember(&inside, SIGUSR1) == 0);
	handle(SIGUSR1, look, SA_SIGINFO | SA_RESETHAND);
	HOLDS(raise(SIGUSR1) == 0);
	HOLDS(sigaction(SIGUSR1, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
	sigprocmask(SIG_SETMASK, NULL, &inside);
	HOLDS(sigismember(&inside, SIGUSR1) == 0);
	FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
	HOLDS(sigaction(SIGKILL, NULL, &before) == 0 && before.sa_handler == SIG_DFL);
	FAILS(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8), EINVAL);
	FAILS(syscall(SYS_rt_sigaction, 1, NULL, NULL, 7), EINVAL);
	FAILS(syscall(SYS_rt_sigaction, 1, 8, NULL, 8), EFAULT);
	FAILS(syscall(SYS_tgkill, getpid(), 0, SIGUSR1), EINVAL);
	FAILS(syscall(SYS_tkill, 999999999, SIGUSR1), ESRCH);
	FAILS(kill(999999999, 77), ESRCH);
	signal(SIGUSR1, SIG_IGN);
	HOLDS(raise(SIGUSR1) == 0);
	count = 0;
	for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
		struct sigaction one = {.sa_handler = note};
		if (sigaction(number, &one, NULL) || raise(number))
			printf("DOES NOT HOLD: signal %d\n", number);
	}
	show_order("real-time signals");
}

static void raise_other(int signal)
{
	note(signal);
	if (signal == SIGUSR1)
		raise(SIGUSR2);
	note(-signal);
}

static void masks(int arguments, char **words)
{
	(void)arguments, (void)words;
	sigset_t both = set_of(SIGUSR1, SIGUSR2), old, waiting;
	for (int signal = 1; signal <= SIGRTMAX; signal++)
		if (signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN)) {
			struct sigaction action = {.sa_handler = note};
			sigaction(signal, &action, NULL);
		}
	HOLDS(sigprocmask(SIG_BLOCK, &both, &old) == 0);
	for (int times = 0; times < 3; times++)
		raise(SIGUSR1), raise(SIGUSR2);
	HOLDS(count == 0 && sigpending(&waiting) == 0 && sigismember(&waiting, SIGUSR1) && sigismember(&waiting, SIGUSR2));
	HOLDS(sigprocmask(SIG_UNBLOCK, &both, NULL) == 0);
	show_order("unblocked, the last handler begun runs first");
	sigset_t all;
	sigfillset(&all);
	HOLDS(sigprocmask(SIG_SETMASK, &all, NULL) == 0 && sigprocmask(SIG_SETMASK, NULL, &all) == 0);
	HOLDS(!sigismember(&all, SIGKILL) && !sigismember(&all, SIGSTOP));
	for (int times = 0; times < 2; times++)
		for (int signal = SIGRTMAX; signal >= 1; signal--)
			if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCONT && (signal < 32 || signal >= SIGRTMIN))
				raise(signal);
	HOLDS(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
	show_order("all at once");
	struct sigaction action = {.sa_handler = raise_other};
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);
	raise(SIGUSR1);
	show_order("one within the other");
	sigaddset(&action.sa_mask, SIGUSR2);
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	show_order("one after the other");
	FAILS(sigprocmask(77, &both, NULL), EINVAL);
	HOLDS(syscall(SYS_rt_sigprocmask, 77, NULL, NULL, 8) == 0);
	FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &both, NULL, 16), EINVAL);
	FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8, NULL, 8), EFAULT);
	FAILS(syscall(SYS_rt_sigpending, &both, 16), EINVAL);
}

static void waiting(int arguments, char **words)
{
	(void)arguments, (void)words;
	handle(SIGUSR1, look, SA_SIGINFO);
	handle(SIGUSR2, look, SA_SIGINFO);
	handle(SIGALRM, look, SA_SIGINFO | SA_RESTART);
	sigset_t first = set_of(SIGUSR1, 0), both = set_of(SIGUSR1, SIGUSR2), none, now;
	sigemptyset(&none);
	sigprocmask(SIG_BLOCK, &first, NULL);
	raise(SIGUSR1);
	FAILS(sigsuspend(&none), EINTR);
	HOLDS(count == 1 && sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1));
	HOLDS(!sigismember(&inside, SIGUSR2) && sigismember(&inside, SIGUSR1));
	// A signal mask set by a handler does not outlive the suspension either.
	sigset_t second = set_of(SIGUSR2, 0);
	raise(SIGUSR1);
	FAILS(sigsuspend(&second), EINTR);
	HOLDS(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
	struct itimerval soon = {.it_value = {0, 20000}};
	setitimer(ITIMER_REAL, &soon, NULL);
	FAILS(pause(), EINTR);
	HOLDS(told.si_signo == SIGALRM && told.si_code == SI_KERNEL);
	siginfo_t info;
	struct timespec at_once = {0, 0}, shortly = {0, 10000000}, wrong = {0, 1000000000};
	FAILS(sigtimedwait(&both, &info, &at_once), EAGAIN);
	FAILS(sigtimedwait(&both, &info, &shortly), EAGAIN);
	FAILS(sigtimedwait(&both, &info, &wrong), EINVAL);
	sigprocmask(SIG_BLOCK, &both, NULL);
	union sigval value = {.sival_int = 4711};
	int before = count;
	HOLDS(sigqueue(getpid(), SIGUSR2, value) == 0 && raise(SIGUSR1) == 0);
	HOLDS(sigwaitinfo(&both, &info) == SIGUSR1 && info.si_signo == SIGUSR1 && info.si_code != SI_QUEUE);
	HOLDS(sigtimedwait(&both, &info, NULL) == SIGUSR2 && info.si_code == SI_QUEUE && info.si_value.sival_int == 4711);
	HOLDS(info.si_pid == getpid() && info.si_uid == getuid() && count == before);
	setitimer(ITIMER_REAL, &soon, NULL);
	FAILS(syscall(SYS_rt_sigtimedwait, &both, &info, NULL, 8), EINTR);
	int signal;
	sigset_t alarm_only = set_of(SIGALRM, 0);
	sigprocmask(SIG_BLOCK, &alarm_only, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	HOLDS(sigwait(&alarm_only, &signal) == 0 && signal == SIGALRM);
}

static void queueing(int arguments, char **words)
{
	(void)arguments, (void)words;
	sigset_t set = set_of(SIGRTMIN + 1, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int number = 0; number < 6; number++)
		sigqueue(getpid(), SIGRTMIN + 3 - number % 2 * 2, (union sigval){.sival_int = number});
	siginfo_t info;
	struct timespec at_once = {0, 0};
	while (sigtimedwait(&set, &info, &at_once) > 0)
		printf("%d carries %d\n", info.si_signo - SIGRTMIN, info.si_value.sival_int);
	siginfo_t made_up = {.si_signo = 3, .si_code = -77};
	made_up.si_value.sival_ptr = (void *)0x123456789abc;
	HOLDS(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 1, &made_up) == 0);
	HOLDS(sigtimedwait(&set, &info, &at_once) == SIGRTMIN + 1 && info.si_code == -77 && info.si_value.sival_ptr == made_up.si_value.sival_ptr);
	HOLDS(info.si_signo == SIGRTMIN + 1);
	HOLDS(syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGRTMIN + 1, &made_up) == 0);
	HOLDS(sigtimedwait(&set, NULL, &at_once) == SIGRTMIN + 1);
	FAILS(syscall(SYS_rt_sigqueueinfo, getpid(), 65, &made_up), EINVAL);
	FAILS(syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 1, 8), EFAULT);
	HOLDS(syscall(SYS_rt_sigqueueinfo, getpid(), 0, &made_up) == 0);
}

static struct timespec left;

/* Makes a call while alarms come, one after the other: a process that is not scheduled for long misses the first. */
#define INTERRUPTED(call)                                                       \
	do {                                                                    \
		count = 0;                                                      \
		setitimer(ITIMER_REAL, &again, NULL);                           \
		HOLDS(call);                                                    \
		setitimer(ITIMER_REAL, &never, NULL);                           \
		HOLDS(count > 0);                                               \
	} while (0)

static void interrupted(int arguments, char **words)
{
	(void)arguments, (void)words;
	struct itimerval soon = {.it_value = {0, 20000}}, again = {.it_value = {0, 20000}, .it_interval = {0, 20000}}, never = {0};
	struct timespec long_while = {100, 0};
	for (int restart = 0; restart < 2; restart++) {
		handle(SIGALRM, note, restart ? SA_RESTART : 0);
		INTERRUPTED(nanosleep(&long_while, &left) == -1 && errno == EINTR);
		HOLDS(left.tv_sec > 50 && left.tv_sec < 100 && left.tv_nsec > 0);
		INTERRUPTED(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_while, &left) == EINTR);
		HOLDS(left.tv_sec > 50 && left.tv_sec < 100);
		INTERRUPTED(syscall(SYS_ppoll, NULL, 0, NULL, NULL, 8) == -1 && errno == EINTR);
		INTERRUPTED(syscall(SYS_pselect6, 0, NULL, NULL, NULL, NULL, NULL) == -1 && errno == EINTR);
	}
	// A sleep with an absolute deadline is not restarted either.
	struct timespec then;
	clock_gettime(CLOCK_MONOTONIC, &then);
	then.tv_sec += 100;
	INTERRUPTED(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR);
	// A blocked signal interrupts nothing, unless the call itself unblocks it.
	sigset_t alarm_only = set_of(SIGALRM, 0), none;
	sigemptyset(&none);
	count = 0;
	sigprocmask(SIG_BLOCK, &alarm_only, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	struct timespec longer = {0, 40000000};
	HOLDS(nanosleep(&longer, NULL) == 0 && count == 0);
	FAILS(syscall(SYS_ppoll, NULL, 0, &long_while, &none, 8), EINTR);
	HOLDS(count == 1);
	setitimer(ITIMER_REAL, &soon, NULL);
	struct {
		sigset_t *set;
		size_t size;
	} sixth = {&none, 8};
	FAILS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &long_while, &sixth), EINTR);
	HOLDS(count == 2);
	raise(SIGALRM);
	struct timespec at_once = {0, 0};
	HOLDS(syscall(SYS_ppoll, NULL, 0, &at_once, &alarm_only, 8) == 0 && count == 2);
	sigset_t now;
	HOLDS(sigprocmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGALRM));
}

static const struct part parts[] = {
	{"handlers", handlers}, {"masks", masks}, {"waiting", waiting}, {"queueing", queueing}, {"interrupted", interrupted}, {0},
};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(parts, count, arguments);
}
