// SPDX-License-Identifier: MIT OR Apache-2.0
// Waiting for descriptors: epoll, timers and other pollable files. Prints the results of system calls.
#define _GNU_SOURCE
#include "show.h"
#include "holds.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 17];
static void *volatile nowhere = (void *)8;
static volatile int negative = -1;

static int by_data(const void *one, const void *other)
{
	const struct epoll_event *first = one, *second = other;
	return (first->data.u64 > second->data.u64) - (first->data.u64 < second->data.u64);
}

// Prints the events of an instance, sorted by their data.
static void told(int epoll, int max)
{
	struct epoll_event events[64];
	int count = epoll_wait(epoll, events, max, 0);
	if (count < 0) {
		printf("told: %s\n", strerror(errno));
		return;
	}
	qsort(events, (size_t)count, sizeof *events, by_data);
	printf("told:");
	for (int at = 0; at < count; at++)
		printf(" %lu:%x", (unsigned long)events[at].data.u64, events[at].events);
	puts("");
}

static long change(int epoll, int operation, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {events, {.u64 = data}};
	return epoll_ctl(epoll, operation, fd, &event);
}

static void level(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], epoll = (int)SHOW(epoll_create1(EPOLL_CLOEXEC));
	SHOW(fcntl(epoll, F_GETFD));
	SHOW(fcntl(epoll, F_GETFL));
	SHOW(pipe(ends));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 1));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT, 2));
	told(epoll, 8);
	SHOW(write(ends[1], buffer, 10));
	told(epoll, 8);
	told(epoll, 8);
	told(epoll, 1);
	told(epoll, 1);
	SHOW(write(ends[1], buffer, 65536 - 4096));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, 100));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, sizeof buffer));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_MOD, ends[1], EPOLLIN, 3));
	told(epoll, 8);
	SHOW(close(ends[1]));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_MOD, ends[0], 0, 4));
	told(epoll, 8);
	int copy = dup(ends[0]);
	SHOW(close(ends[0]));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_DEL, copy, 0, 0));
	SHOW(close(copy));
	told(epoll, 8);
	SHOW(pipe(ends));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLERR, 5));
	SHOW(close(ends[0]));
	told(epoll, 8);
	struct stat found;
	SHOW(fstat(epoll, &found) == 0 && found.st_size == 0 && found.st_nlink == 1);
	printf("%o\n", found.st_mode);
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", epoll);
	SHOW(readlink(path, buffer, sizeof buffer));
	printf("%.22s\n", buffer);
	SHOW(open(path, O_RDWR));
	SHOW(read(epoll, buffer, 8));
	SHOW(write(epoll, buffer, 8));
	SHOW(lseek(epoll, 0, SEEK_SET));
	SHOW(pread(epoll, buffer, 1, 0));
}

static void edge(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], epoll = (int)SHOW(epoll_create(1));
	uint64_t number = 1;
	SHOW(pipe2(ends, O_NONBLOCK));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET, 1));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLET, 2));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(write(ends[1], buffer, 10));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(write(ends[1], buffer, 10));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, 5));
	told(epoll, 8);
	SHOW(write(ends[1], buffer, 10));
	SHOW(read(ends[0], buffer, 1000));
	told(epoll, 8);
	SHOW(write(ends[1], buffer, 65536));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, 10));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, 4096));
	told(epoll, 8);
	SHOW(read(ends[0], buffer, 4096));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET, 3));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(close(ends[1]));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(read(ends[0], buffer, sizeof buffer));
	told(epoll, 8);
	int event = (int)SHOW(eventfd(0, EFD_NONBLOCK));
	SHOW(change(epoll, EPOLL_CTL_ADD, event, EPOLLIN | EPOLLOUT | EPOLLET, 4));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(write(event, &number, 8));
	told(epoll, 8);
	SHOW(write(event, &number, 8));
	told(epoll, 8);
	SHOW(read(event, &number, 8));
	told(epoll, 8);
	SHOW(read(event, &number, 8));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT, 5));
	number = 1;
	told(epoll, 8);
	SHOW(write(event, &number, 8));
	told(epoll, 8);
	told(epoll, 8);
	SHOW(write(event, &number, 8));
	told(epoll, 8);
	SHOW(change(epoll, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLONESHOT | EPOLLET, 6));
	told(epoll, 8);
	told(epoll, 8);
}

static void nested(int count, char **arguments)
{
	(void)count, (void)arguments;
	int chain[8], event = (int)SHOW(eventfd(0, EFD_NONBLOCK));
	uint64_t number = 1;
	for (int at = 0; at < 8; at++)
		chain[at] = epoll_create1(0);
	SHOW(change(chain[0], EPOLL_CTL_ADD, chain[0], EPOLLIN, 0));
	for (int at = 1; at < 8; at++)
		SHOW(change(chain[at], EPOLL_CTL_ADD, chain[at - 1], EPOLLIN, (uint64_t)at));
	SHOW(change(chain[0], EPOLL_CTL_ADD, chain[2], EPOLLIN, 0));
	SHOW(change(chain[0], EPOLL_CTL_ADD, event, EPOLLIN, 10));
	told(chain[2], 8);
	SHOW(write(event, &number, 8));
	told(chain[2], 8);
	told(chain[0], 8);
	struct pollfd polled = {chain[3], POLLIN | POLLOUT, 0};
	SHOW(poll(&polled, 1, 0));
	printf("%x\n", polled.revents);
	SHOW(read(event, &number, 8));
	told(chain[2], 8);
	SHOW(poll(&polled, 1, 0));
	// An edge-triggered event of one level is reported once above.
	SHOW(change(chain[0], EPOLL_CTL_MOD, event, EPOLLIN | EPOLLET, 11));
	SHOW(change(chain[1], EPOLL_CTL_MOD, chain[0], EPOLLIN | EPOLLET, 12));
	number = 1;
	SHOW(write(event, &number, 8));
	told(chain[1], 8);
	told(chain[1], 8);
	SHOW(write(event, &number, 8));
	told(chain[1], 8);
	told(chain[0], 8);
	told(chain[0], 8);
	told(chain[1], 8);
	SHOW(write(event, &number, 8));
	told(chain[0], 8);
	told(chain[1], 8);
	SHOW(close(chain[0]));
	told(chain[1], 8);
	told(chain[2], 8);
}

static void mistakes(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], epoll = (int)SHOW(epoll_create1(0)), file = open("/proc/self/exe", O_RDONLY), directory = open(".", O_RDONLY);
	struct epoll_event event = {EPOLLIN, {.u64 = 0}};
	SHOW(pipe(ends));
	SHOW(epoll_create(0));
	SHOW(epoll_create(-1));
	SHOW(epoll_create1(1));
	SHOW(change(epoll, EPOLL_CTL_ADD, file, EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, directory, EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, open("/dev/null", O_RDONLY), EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, open("/dev/zero", O_RDONLY), EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, open("/dev/urandom", O_RDONLY), EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, open(".", O_PATH), EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, 99, EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, epoll, EPOLLIN, 0));
	SHOW(change(ends[0], EPOLL_CTL_ADD, ends[1], EPOLLIN, 0));
	SHOW(change(file, EPOLL_CTL_ADD, file, EPOLLIN, 0));
	SHOW(change(99, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0));
	SHOW(change(epoll, 7, ends[0], EPOLLIN, 0));
	SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], nowhere));
	SHOW(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL));
	SHOW(change(epoll, EPOLL_CTL_MOD, ends[0], EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0));
	SHOW(change(epoll, EPOLL_CTL_ADD, dup(ends[0]), EPOLLIN, 0));
	SHOW(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLEXCLUSIVE, 1));
	SHOW(change(epoll, EPOLL_CTL_MOD, ends[1], EPOLLOUT, 1));
	SHOW(change(epoll, EPOLL_CTL_DEL, ends[1], EPOLLOUT, 1));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
	SHOW(change(epoll, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLEXCLUSIVE | EPOLLET | EPOLLWAKEUP, 1));
	SHOW(change(epoll, EPOLL_CTL_ADD, epoll_create1(0), EPOLLIN | EPOLLEXCLUSIVE, 1));
	SHOW(epoll_wait(epoll, &event, 0, 0));
	SHOW(epoll_wait(epoll, &event, negative, 0));
	SHOW(epoll_wait(ends[0], &event, 1, 0));
	SHOW(epoll_wait(99, &event, 1, 0));
	SHOW(epoll_wait(99, &event, 0, 0));
	SHOW(epoll_wait(epoll, nowhere, 1, 0));
	SHOW(epoll_wait(epoll, (void *)-100L, 1, 0));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	SHOW(epoll_wait(epoll, &event, 1, 20));
	sigset_t none;
	sigemptyset(&none);
	struct timespec soon = {0, 1000000}, wrong = {0, 1000000000};
	SHOW(epoll_pwait(epoll, &event, 1, 5, &none));
	SHOW(syscall(SYS_epoll_pwait, epoll, &event, 1, 5, &none, 4));
	SHOW(syscall(SYS_epoll_pwait2, epoll, &event, 1, &soon, &none, 8));
	SHOW(syscall(SYS_epoll_pwait2, epoll, &event, 1, &wrong, NULL, 8));
}

static void ring(int number)
{
	(void)number;
	if (write(1, "rung\n", 5) < 0)
		_exit(1);
}

static void waits(int count, char **arguments)
{
	(void)count, (void)arguments;
	int epoll = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK);
	struct epoll_event events[2];
	struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	change(epoll, EPOLL_CTL_ADD, event, EPOLLIN, 0);
	struct timespec before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	SHOW(epoll_wait(epoll, events, 2, 50));
	clock_gettime(CLOCK_MONOTONIC, &after);
	HOLDS((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec >= 50000000L);
	ualarm(20000, 0);
	SHOW(epoll_wait(epoll, events, 2, -1));
	sigset_t alarmed, none;
	sigemptyset(&none);
	sigemptyset(&alarmed);
	sigaddset(&alarmed, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarmed, NULL);
	raise(SIGALRM);
	SHOW(epoll_wait(epoll, events, 2, 10));
	SHOW(epoll_pwait(epoll, events, 2, -1, &none));
	SHOW(epoll_pwait(epoll, events, 2, 10, &none));
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	change(epoll, EPOLL_CTL_ADD, timer, EPOLLIN | EPOLLET, 1);
	struct itimerspec setting = {{0, 10000000}, {0, 10000000}};
	SHOW(timerfd_settime(timer, 0, &setting, NULL));
	SHOW(epoll_wait(epoll, events, 2, -1));
	printf("%x %d\n", events[0].events, events[0].data.fd);
	uint64_t number;
	// The expiration is still unread, so it is not a new edge.
	SHOW(epoll_wait(epoll, events, 2, 30));
	SHOW(read(timer, &number, 8));
	HOLDS(number >= 3);
	SHOW(epoll_wait(epoll, events, 2, -1));
	setting.it_interval.tv_nsec = 0;
	SHOW(timerfd_settime(timer, 0, &setting, NULL));
	change(epoll, EPOLL_CTL_MOD, timer, EPOLLIN, 1);
	int outer = epoll_create1(0);
	change(outer, EPOLL_CTL_ADD, epoll, EPOLLIN, 9);
	SHOW(epoll_wait(outer, events, 2, -1));
	printf("%x %d\n", events[0].events, events[0].data.fd);
}

static void timers(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct itimerspec setting = {{0, 0}, {0, 20000000}}, found;
	uint64_t number = 0;
	SHOW(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
	SHOW(timerfd_create(CLOCK_MONOTONIC, 1));
	SHOW(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC) > 0);
	int timer = (int)SHOW(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	SHOW(fcntl(timer, F_GETFL));
	SHOW(fcntl(timer, F_GETFD));
	SHOW(read(timer, &number, 8));
	SHOW(read(timer, &number, 7));
	SHOW(write(timer, &number, 8));
	SHOW(lseek(timer, 0, SEEK_SET));
	SHOW(timerfd_gettime(timer, &found));
	printf("%ld %ld\n", found.it_value.tv_sec, found.it_value.tv_nsec);
	SHOW(timerfd_settime(timer, 0, &setting, &found));
	struct pollfd polled = {timer, POLLIN | POLLOUT | POLLRDNORM, 0};
	SHOW(poll(&polled, 1, 0));
	SHOW(timerfd_gettime(timer, &found));
	HOLDS(found.it_value.tv_nsec > 0 && found.it_value.tv_nsec <= 20000000);
	SHOW(poll(&polled, 1, -1));
	printf("%x\n", polled.revents);
	SHOW(timerfd_gettime(timer, &found));
	printf("%ld %ld\n", found.it_value.tv_sec, found.it_value.tv_nsec);
	SHOW(read(timer, buffer, 100));
	printf("%lu\n", *(uint64_t *)(void *)buffer);
	SHOW(read(timer, &number, 8));
	SHOW(fcntl(timer, F_SETFL, 0));
	setting.it_interval.tv_nsec = 5000000;
	SHOW(timerfd_settime(timer, 0, &setting, NULL));
	SHOW(read(timer, &number, 8));
	struct timespec now, pause = {0, 30000000};
	nanosleep(&pause, NULL);
	SHOW(timerfd_gettime(timer, &found));
	HOLDS(found.it_value.tv_nsec > 0 && found.it_value.tv_nsec <= 5000000 && found.it_interval.tv_nsec == 5000000);
	SHOW(read(timer, &number, 8));
	HOLDS(number >= 5);
	setting = (struct itimerspec){{0, 0}, {0, 1}};
	SHOW(timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL));
	SHOW(read(timer, &number, 8));
	printf("%lu\n", number);
	int wall = (int)SHOW(timerfd_create(CLOCK_REALTIME, 0));
	clock_gettime(CLOCK_REALTIME, &now);
	setting.it_value = (struct timespec){now.tv_sec, now.tv_nsec};
	SHOW(timerfd_settime(wall, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &setting, NULL));
	SHOW(read(wall, &number, 8));
	printf("%lu\n", number);
	SHOW(timerfd_settime(wall, 8, &setting, NULL));
	setting.it_value.tv_nsec = 1000000000;
	SHOW(timerfd_settime(wall, 0, &setting, NULL));
	setting.it_value.tv_nsec = 0;
	SHOW(timerfd_settime(0, 0, &setting, NULL));
	SHOW(timerfd_settime(99, 0, &setting, NULL));
	SHOW(timerfd_settime(wall, 0, nowhere, NULL));
	SHOW(timerfd_gettime(wall, nowhere));
	SHOW(timerfd_gettime(0, &found));
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", timer);
	SHOW(readlink(path, buffer, sizeof buffer));
	printf("%.20s\n", buffer);
}

static const struct part PARTS[] = {
	{"level", level}, {"edge", edge}, {"nested", nested}, {"mistakes", mistakes}, {"waits", waits}, {"timers", timers}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
