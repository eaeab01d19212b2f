// SPDX-License-Identifier: MIT OR Apache-2.0
// Futexes with requeueing: woken waiters get a lock, or wait for it.
#define _GNU_SOURCE
#include "holds.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT = 0, WAKE = 1, LOCK = 6, UNLOCK = 7, WAIT_REQUEUE = 11, COMPARE_REQUEUE = 12 };

// Shared by all processes: the word, the lock, and the results.
static struct {
	volatile uint32_t word, lock, other;
	volatile int waiting, order[8], done;
} *shared;

static long futex(volatile uint32_t *word, int operation, long value, const struct timespec *timeout, volatile uint32_t *second, long third)
{
	return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

static pid_t waiter(int number)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		__sync_fetch_and_add(&shared->waiting, 1);
		if (futex(&shared->word, WAIT_REQUEUE, 5, NULL, &shared->lock, 0) != 0)
			_exit(1);
		if ((shared->lock & 0x3fffffff) != (uint32_t)getpid())
			_exit(2);
		shared->order[shared->done++] = number;
		_exit(futex(&shared->lock, UNLOCK, 0, NULL, NULL, 0) == 0 || shared->lock == 0 ? 0 : 3);
	}
	return child;
}

// Waits until this many waiters have counted themselves, just before they wait on the word.
static void await_waiters(int wanted)
{
	while (shared->waiting != wanted)
		sched_yield();
}

static void requeued(int count, char **words)
{
	(void)count, (void)words;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared->word = 5;
	struct timespec past = {1, 0};
	FAILS(futex(&shared->word, WAIT_REQUEUE, 4, NULL, &shared->lock, 0), EAGAIN);
	FAILS(futex(&shared->word, WAIT_REQUEUE, 5, NULL, &shared->word, 0), EINVAL);
	FAILS(futex(&shared->word, WAIT_REQUEUE, 5, &past, &shared->lock, 0), ETIMEDOUT);
	FAILS(futex(&shared->word, COMPARE_REQUEUE, 2, NULL, &shared->lock, 5), EINVAL);
	FAILS(futex(&shared->word, COMPARE_REQUEUE, 1, NULL, &shared->word, 5), EINVAL);
	FAILS(futex(&shared->word, COMPARE_REQUEUE, 1, NULL, &shared->lock, 4), EAGAIN);
	HOLDS(futex(&shared->word, COMPARE_REQUEUE, 1, (void *)7, &shared->lock, 5) == 0);
	// The lock is free: the waiter gets it.
	pid_t first = waiter(1);
	await_waiters(1);
	long moved;
	while ((moved = futex(&shared->word, COMPARE_REQUEUE, 1, (void *)0, &shared->lock, 5)) == 0)
		sched_yield();
	int status;
	HOLDS(moved == 1 && waitpid(first, &status, 0) == first && status == 0 && shared->order[0] == 1 && (shared->lock & 0x3fffffff) == 0);
	// The lock is held: the waiters get it one after the other when it is released.
	shared->waiting = 0;
	HOLDS(futex(&shared->lock, LOCK, 0, NULL, NULL, 0) == 0 && shared->lock == (uint32_t)getpid());
	pid_t others[3];
	for (int at = 0; at < 3; at++)
		others[at] = waiter(2 + at);
	await_waiters(3);
	for (moved = 0; moved < 3; sched_yield())
		moved += futex(&shared->word, COMPARE_REQUEUE, 1, (void *)9, &shared->lock, 5);
	HOLDS(moved == 3 && shared->lock == ((uint32_t)getpid() | 0x80000000) && shared->done == 1);
	HOLDS(futex(&shared->lock, UNLOCK, 0, NULL, NULL, 0) == 0);
	for (int at = 0; at < 3; at++)
		HOLDS(waitpid(others[at], &status, 0) == others[at] && status == 0);
	HOLDS(shared->done == 4 && shared->order[1] + shared->order[2] + shared->order[3] == 9 && (shared->lock & 0x3fffffff) == 0);
	// It waits for another lock than the given one.
	shared->waiting = 0;
	first = waiter(1);
	await_waiters(1);
	while ((moved = futex(&shared->word, COMPARE_REQUEUE, 1, (void *)0, &shared->other, 5)) == 0)
		sched_yield();
	HOLDS(moved == -1 && errno == EINVAL && kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first);
}

// A process whose timeout is shorter than its timer slack still yields the CPU, so it is woken. A child inherits the slack.
static void slack(int count, char **words)
{
	(void)count, (void)words;
	const struct timespec little = {0, 5000};
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	if (child == 0) {
		while (!shared->done)
			futex(&shared->word, WAKE, 1, NULL, NULL, 0);
		_exit(0);
	}
	int attempts = 0, status;
	while (futex(&shared->word, WAIT, 0, &little, NULL, 0) != 0 && attempts < 100000)
		attempts++;
	HOLDS(attempts < 100000);
	shared->done = 1;
	HOLDS(waitpid(child, &status, 0) == child && status == 0);
	int first = prctl(PR_GET_TIMERSLACK);
	HOLDS(prctl(PR_SET_TIMERSLACK, 1234) == 0 && prctl(PR_GET_TIMERSLACK) == 1234);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		HOLDS(prctl(PR_GET_TIMERSLACK) == 1234 && prctl(PR_SET_TIMERSLACK, 77) == 0 && prctl(PR_GET_TIMERSLACK) == 77);
		HOLDS(prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) == 1234);
		fflush(stdout);
		_exit(0);
	}
	HOLDS(waitpid(child, &status, 0) == child && status == 0);
	char text[32] = {0};
	int file = open("/proc/self/timerslack_ns", O_RDWR);
	HOLDS(read(file, text, sizeof text) == 5 && !strcmp(text, "1234\n"));
	HOLDS(write(file, "4321", 4) == 4 && prctl(PR_GET_TIMERSLACK) == 4321);
	HOLDS(prctl(PR_SET_TIMERSLACK, 0) == 0 && prctl(PR_GET_TIMERSLACK) == first);
}

static const struct part PARTS[] = {{"requeued", requeued}, {"slack", slack}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(PARTS, count, arguments);
}
