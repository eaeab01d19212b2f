// SPDX-License-Identifier: MIT OR Apache-2.0
// Processes and threads that wake each other from every kind of wait. Starts in an empty directory, and prints the results
// of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static void pause_a_little(void)
{
	struct timespec little = {0, 30000000};
	nanosleep(&little, NULL);
}

// A child that waits a little and then acts.
#define LATER(act) \
	do { \
		fflush(stdout); \
		if (!fork()) { \
			pause_a_little(); \
			act; \
			_exit(0); \
		} \
	} while (0)

static int wait_for(int epoll, struct epoll_event *event)
{
	return epoll_wait(epoll, event, 1, 5000);
}

static int watch(int fd, uint32_t events)
{
	int epoll = epoll_create1(0);
	struct epoll_event event = {events, {.u64 = 7}};
	HOLDS(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
	return epoll;
}

static void files(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], counter = eventfd(0, 0), notes = inotify_init(), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t number = 1;
	struct epoll_event event;
	SHOW(pipe(ends));
	int epoll = watch(ends[0], EPOLLIN | EPOLLET);
	LATER(HOLDS(write(ends[1], "x", 1) == 1));
	SHOW(wait_for(epoll, &event));
	int outer = watch(epoll, EPOLLIN);
	SHOW(epoll_wait(outer, &event, 1, 0));
	LATER(HOLDS(write(ends[1], "y", 1) == 1));
	SHOW(wait_for(outer, &event));
	SHOW(read(ends[0], buffer, 10));
	LATER(HOLDS(write(counter, &number, 8) == 8));
	SHOW(read(counter, &number, 8));
	epoll = watch(counter, EPOLLIN);
	LATER(HOLDS(write(counter, &number, 8) == 8));
	SHOW(wait_for(epoll, &event));
	SHOW(read(counter, &number, 8));
	number = UINT64_MAX - 1;
	SHOW(write(counter, &number, 8));
	LATER(HOLDS(read(counter, &number, 8) == 8));
	number = 1;
	SHOW(write(counter, &number, 8));
	SHOW(inotify_add_watch(notes, ".", IN_CREATE));
	LATER(HOLDS(mkdir("made", 0755) == 0));
	SHOW(read(notes, buffer, 100));
	epoll = watch(notes, EPOLLIN);
	LATER(HOLDS(mkdir("again", 0755) == 0));
	SHOW(wait_for(epoll, &event));
	struct itimerspec setting = {{0, 0}, {0, 10000000}};
	epoll = watch(timer, EPOLLIN);
	LATER(HOLDS(timerfd_settime(timer, 0, &setting, NULL) == 0));
	SHOW(wait_for(epoll, &event));
	SHOW(read(timer, &number, 8));
	LATER(HOLDS(timerfd_settime(timer, 0, &setting, NULL) == 0));
	SHOW(read(timer, &number, 8));
	LATER(HOLDS(write(ends[1], "spliced", 7) == 7));
	int other[2];
	SHOW(pipe(other));
	SHOW(splice(ends[0], NULL, other[1], NULL, 100, 0));
	LATER(HOLDS(read(other[0], buffer, 100) == 7));
	SHOW(fcntl(other[1], F_SETPIPE_SZ, 4096));
	epoll = watch(other[1], EPOLLOUT | EPOLLET);
	SHOW(wait_for(epoll, &event));
	while (wait(NULL) > 0)
		;
	puts("all are gone");
}

static void locks(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "0123456789");
	int one = open("file", O_RDWR), ends[2];
	struct flock whole = {F_WRLCK, SEEK_SET, 0, 0, 0}, part = {F_RDLCK, SEEK_SET, 2, 2, 0}, asked = {F_WRLCK, SEEK_SET, 0, 0, 0};
	SHOW(pipe(ends));
	SHOW(flock(one, LOCK_EX));
	fflush(stdout);
	if (!fork()) {
		int own = open("file", O_RDWR);
		// Both share one open file until the child closes it.
		HOLDS(close(one) == 0);
		FAILS(flock(own, LOCK_EX | LOCK_NB), EWOULDBLOCK);
		fflush(stdout);
		int told = write(ends[1], "x", 1) == 1 && flock(own, LOCK_EX) == 0;
		pause_a_little();
		_exit(!told);
	}
	SHOW(read(ends[0], buffer, 1));
	pause_a_little();
	SHOW(close(one));
	one = open("file", O_RDWR);
	int status;
	SHOW(wait(&status) > 0 && status == 0);
	SHOW(flock(one, LOCK_EX));
	SHOW(fcntl(one, F_SETLK, &whole));
	fflush(stdout);
	if (!fork()) {
		// Locks of processes are not inherited.
		FAILS(fcntl(one, F_SETLK, &part), EAGAIN);
		HOLDS(fcntl(one, F_GETLK, &asked) == 0 && asked.l_type == F_WRLCK && asked.l_pid == getppid());
		fflush(stdout);
		int told = write(ends[1], "x", 1) == 1;
		HOLDS(told && fcntl(one, F_SETLKW, &part) == 0);
		fflush(stdout);
		told = write(ends[1], "y", 1) == 1;
		pause_a_little();
		_exit(!told);
	}
	SHOW(read(ends[0], buffer, 1));
	whole.l_type = F_RDLCK;
	int shared = fcntl(one, F_SETLK, &whole);
	SHOW(read(ends[0], buffer, 1));
	SHOW(shared);
	// The child's lock is released when the child ends.
	whole.l_type = F_WRLCK;
	SHOW(fcntl(one, F_SETLKW, &whole));
	SHOW(wait(NULL) > 0);
}

static void signals(int count, char **arguments)
{
	(void)count, (void)arguments;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int fd = signalfd(-1, &set, 0), child;
	struct signalfd_siginfo told;
	struct epoll_event event;
	pid_t self = getpid();
	fflush(stdout);
	if (!(child = fork())) {
		pause_a_little();
		kill(self, SIGUSR1);
		_exit(3);
	}
	SHOW(read(fd, &told, sizeof told));
	printf("%u %d %d\n", told.ssi_signo, told.ssi_code, told.ssi_pid == (uint32_t)child);
	int epoll = watch(fd, EPOLLIN);
	SHOW(wait_for(epoll, &event));
	SHOW(read(fd, &told, sizeof told));
	printf("%u %d %d %d\n", told.ssi_signo, told.ssi_code, told.ssi_pid == (uint32_t)child, told.ssi_status);
	SHOW(wait(NULL) == child);
	LATER(_exit(0));
	struct pollfd polled = {fd, POLLIN, 0};
	SHOW(poll(&polled, 1, 5000));
	// A signal that ends a process closes its descriptors.
	int ends[2];
	SHOW(pipe(ends));
	LATER(raise(SIGKILL));
	SHOW(close(ends[1]));
	SHOW(read(ends[0], buffer, 1));
}

static int watcher, late;

static void *add_later(void *nothing)
{
	pause_a_little();
	struct epoll_event event = {EPOLLIN, {.u64 = 9}};
	return epoll_ctl(watcher, EPOLL_CTL_ADD, late, &event) == 0 ? NULL : nothing;
}

static void *count_later(void *nothing)
{
	uint64_t number = 1;
	pause_a_little();
	return write(late, &number, 8) == 8 ? NULL : nothing;
}

static void threads(int count, char **arguments)
{
	(void)count, (void)arguments;
	pthread_t thread;
	struct epoll_event event;
	uint64_t number;
	late = eventfd(5, 0), watcher = epoll_create1(0);
	HOLDS(pthread_create(&thread, NULL, add_later, NULL) == 0);
	SHOW(epoll_wait(watcher, &event, 1, 5000));
	printf("%lu\n", (unsigned long)event.data.u64);
	HOLDS(pthread_join(thread, NULL) == 0);
	SHOW(read(late, &number, 8));
	HOLDS(pthread_create(&thread, NULL, count_later, NULL) == 0);
	SHOW(epoll_wait(watcher, &event, 1, 5000));
	HOLDS(pthread_join(thread, NULL) == 0);
	SHOW(read(late, &number, 8));
	HOLDS(pthread_create(&thread, NULL, count_later, NULL) == 0);
	SHOW(read(late, &number, 8));
	HOLDS(pthread_join(thread, NULL) == 0);
}

static const struct part PARTS[] = {{"files", files}, {"locks", locks}, {"signals", signals}, {"threads", threads}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
