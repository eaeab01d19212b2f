// SPDX-License-Identifier: MIT OR Apache-2.0
// Urgent data of TCP, and sets of `select`. Prints the results of system calls.
#define _GNU_SOURCE
#include "sockets.h"

#include <sys/select.h>

static int client, server;

static void connected(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *here = (struct sockaddr *)&address;
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	HOLDS(!bind(listener, here, length) && !listen(listener, 1) && !getsockname(listener, here, &length));
	client = socket(AF_INET, SOCK_STREAM, 0);
	HOLDS(!connect(client, here, length));
	server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	close(listener);
}

// Waits until urgent data has arrived.
static void arrived(void)
{
	SHOW(poll(&(struct pollfd){.fd = server, .events = POLLPRI}, 1, 10000));
	ready("server", server);
}

static void received(size_t bytes, int flags)
{
	memset(buffer, 0, 100);
	ssize_t got = recv(server, buffer, bytes, flags);
	int mark = -1;
	ioctl(server, SIOCATMARK, &mark);
	printf("recv(%zu, %d) = %zd (%s) \"%s\", at the mark: %d\n", bytes, flags, got, got < 0 ? strerror(errno) : "", buffer, mark);
}

static void beside(int count, char **arguments)
{
	(void)count, (void)arguments;
	connected();
	received(1, MSG_OOB);
	SHOW(send(client, "abcX", 4, MSG_OOB));
	SHOW(send(client, "def", 3, 0));
	arrived();
	received(1, MSG_OOB | MSG_PEEK);
	received(10, MSG_PEEK);
	received(2, 0);
	received(10, 0);
	ready("at the mark", server);
	received(1, MSG_OOB);
	received(1, MSG_OOB);
	ready("received", server);
	received(10, 0);
	received(10, 0);
	SHOW(send(client, "Y", 1, MSG_OOB));
	arrived();
	received(10, 0);
	SHOW(send(client, "passed", 6, 0));
	SHOW(poll(&(struct pollfd){.fd = server, .events = POLLIN}, 1, 10000));
	received(10, 0);
	received(1, MSG_OOB);
	ready("passed", server);
	int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
	SHOW(recv(datagrams, buffer, 1, MSG_OOB | MSG_DONTWAIT));
}

static void in_line(int count, char **arguments)
{
	(void)count, (void)arguments;
	connected();
	SHOW(setsockopt(server, SOL_SOCKET, SO_OOBINLINE, &(int){1}, sizeof(int)));
	SHOW(send(client, "abcX", 4, MSG_OOB));
	SHOW(send(client, "def", 3, 0));
	arrived();
	received(1, MSG_OOB);
	received(10, 0);
	ready("at the mark", server);
	received(10, 0);
	ready("passed", server);
}

// The three sets for a pipe whose reader has closed, and for urgent data.
static void sets(int count, char **arguments)
{
	(void)count, (void)arguments;
	connected();
	int ends[2];
	HOLDS(!pipe(ends) && !close(ends[0]));
	SHOW(send(client, "X", 1, MSG_OOB));
	arrived();
	fd_set sets[3];
	for (int set = 0; set < 3; set++) {
		FD_ZERO(&sets[set]);
		FD_SET(server, &sets[set]), FD_SET(client, &sets[set]), FD_SET(ends[1], &sets[set]);
	}
	SHOW(select(server + 10, &sets[0], &sets[1], &sets[2], &(struct timeval){0}));
	for (int set = 0; set < 3; set++)
		printf("%d: server %d, client %d, pipe %d\n", set, !!FD_ISSET(server, &sets[set]), !!FD_ISSET(client, &sets[set]), !!FD_ISSET(ends[1], &sets[set]));
	FD_ZERO(&sets[2]);
	FD_SET(server, &sets[2]);
	SHOW(select(server + 1, NULL, NULL, &sets[2], NULL));
}

static const struct part PARTS[] = {{"beside", beside}, {"in-line", in_line}, {"sets", sets}, {0}};

int main(int count, char **arguments)
{
	// The parent may have more descriptors open than the usual three, and `select` is called with small sets.
	close_range(3, ~0u, 0);
	return run_part(PARTS, count, arguments);
}
