// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread polls a pipe until another one has read from it, and counts its polls. The argument names the call by which it polls.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20, FEW = 200 };

static int data[2], done[2];

static void *read_all(void *unused)
{
	char byte;
	while (read(data[0], &byte, 1) == 1)
		if (write(done[1], &byte, 1) != 1)
			break;
	return unused;
}

static int poll_by(const char *call, int epoll)
{
	struct epoll_event event;
	if (!strcmp(call, "epoll_wait"))
		return epoll_wait(epoll, &event, 1, 0);
	if (!strcmp(call, "epoll_pwait2")) {
		struct timespec none = { 0 };
		return syscall(SYS_epoll_pwait2, epoll, &event, 1, &none, NULL, 0);
	}
	struct pollfd ready = { .fd = data[0], .events = POLLIN };
	return poll(&ready, 1, 0);
}

int main(int count, char **arguments)
{
	pthread_t reader;
	if (count < 2 || pipe(data) || pipe(done) || pthread_create(&reader, NULL, read_all, NULL))
		return 1;
	int epoll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, data[0], &event))
		return 1;
	long polls = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char byte = 0;
		if (write(data[1], &byte, 1) != 1)
			return 1;
		while (poll_by(arguments[1], epoll) == 1)
			polls++;
		if (read(done[0], &byte, 1) != 1)
			return 1;
	}
	close(data[1]);
	pthread_join(reader, NULL);
	printf("%s polls\n", polls < FEW ? "few" : "many");
	return 0;
}
