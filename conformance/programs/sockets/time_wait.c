// SPDX-License-Identifier: MIT OR Apache-2.0
// TCP connections that are over: TIME_WAIT in /proc/net/tcp, and binding or connecting to their ports again.
#define _GNU_SOURCE
#include "sockets.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>

union address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

// A connection over loopback: its listener, its two ends, and their ports.
struct connection {
	int family, listener, client, server;
	unsigned server_port, client_port;
};

static union address loopback(int family, unsigned port)
{
	union address address = {.four = {.sin_family = AF_INET, .sin_port = htons((in_port_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	if (family == AF_INET6)
		address.six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((in_port_t)port), .sin6_addr = in6addr_loopback};
	return address;
}

static socklen_t size_of(int family)
{
	return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static unsigned port_of(int fd)
{
	union address address;
	socklen_t length = sizeof address;
	getsockname(fd, &address.any, &length);
	return ntohs(address.four.sin_port);
}

enum { REUSES = 1, SHARES = 2 };

static int stream(int family, int options)
{
	int fd = socket(family, SOCK_STREAM, 0), one = 1;
	if (options & REUSES)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (options & SHARES)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	return fd;
}

static int bind_to(int fd, int family, unsigned port)
{
	union address address = loopback(family, port);
	return bind(fd, &address.any, size_of(family));
}

static int connect_to(int fd, int family, unsigned port)
{
	union address address = loopback(family, port);
	return connect(fd, &address.any, size_of(family));
}

static struct connection connected(int family, int options)
{
	struct connection made = {.family = family, .listener = stream(family, options), .client = stream(family, options)};
	HOLDS(bind_to(made.listener, family, 0) == 0 && listen(made.listener, 5) == 0);
	made.server_port = port_of(made.listener);
	HOLDS(connect_to(made.client, family, made.server_port) == 0);
	made.client_port = port_of(made.client);
	made.server = accept(made.listener, NULL, NULL);
	HOLDS(made.server >= 0);
	return made;
}

// The row from one port to another in the table of a family. Returns its state, 0 if there is none.
static unsigned row(int family, unsigned from, unsigned to, char *kept)
{
	char line[512];
	unsigned local, remote, state, found = 0;
	FILE *table = fopen(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "r");
	while (table && fgets(line, sizeof line, table))
		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%x %x", &local, &remote, &state) == 3 && local == from && remote == to) {
			found = state;
			strcpy(kept, line);
		}
	if (table)
		fclose(table);
	return found;
}

// Prints the row from one port to another, once it has the state; the last one, if it never has. 0: there is no row.
static void shows(const char *what, int family, unsigned from, unsigned to, unsigned wanted)
{
	char line[512] = "", local[40], remote[40], rest[200];
	unsigned state = 0, sent, received, timer, user, timeout;
	unsigned long when, retries, inode;
	for (int tries = 0; tries < 5000; tries++) {
		if ((state = row(family, from, to, line)) == wanted)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (state == 0) {
		printf("%s: no row\n", what);
		return;
	}
	if (sscanf(line, " %*d: %39[0-9A-F]:%*x %39[0-9A-F]:%*x %*x %x:%x %x:%lx %lx %u %u %lu %199[^\n]", local, remote, &sent, &received, &timer, &when, &retries, &user, &timeout, &inode, rest) != 11) {
		printf("%s: %s", what, line);
		return;
	}
	rest[strcspn(rest, " ")] = 0;
	printf("%s: %s %s state %02X", what, local, remote, state);
	// The columns of a socket that is open are printed by other tests.
	if (timer == 3)
		printf(", %u:%u, %s, %lu, user %u, %u, inode %lu, %s holders, %zu characters", sent, received, when > 0 && when <= 6000 ? "within a minute" : "over", retries, user, timeout, inode, rest, family == AF_INET6 ? 0 : strlen(line));
	printf("\n");
}

// Prints whether a socket with some options can be bound to a port.
static void binds(const char *what, int family, int options, unsigned port)
{
	int fd = stream(family, options);
	int result = bind_to(fd, family, port);
	printf("%s%s%s: %s\n", what, options & REUSES ? " reusing" : "", options & SHARES ? " sharing" : "", result ? strerror(errno) : "bound");
	if (result == 0)
		printf("%s: %s\n", what, listen(fd, 5) ? strerror(errno) : "listens");
	close(fd);
}

// The state of a connection that a descriptor shows.
static void state(const char *what, int fd)
{
	struct tcp_info info = {0};
	socklen_t length = sizeof info;
	int result = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
	printf("%s: %d, state %d\n", what, result, info.tcpi_state);
}

static void both_rows(const char *what, struct connection *over, unsigned client, unsigned server)
{
	printf("%s\n", what);
	shows("  client", over->family, over->client_port, over->server_port, client);
	shows("  server", over->family, over->server_port, over->client_port, server);
}

static void rows_of(int family)
{
	struct connection one = connected(family, 0);
	close(one.client);
	both_rows("client closed", &one, 5, 8);
	close(one.server);
	both_rows("server closed, too", &one, 6, 0);
	close(one.listener);
	one = connected(family, 0);
	close(one.server);
	both_rows("server closed", &one, 8, 5);
	close(one.client);
	both_rows("client closed, too", &one, 0, 6);
	close(one.listener);
	// Ends that only stop sending.
	one = connected(family, 0);
	shutdown(one.client, SHUT_WR);
	both_rows("client stopped sending", &one, 5, 8);
	state("client", one.client);
	shutdown(one.server, SHUT_WR);
	both_rows("server stopped sending, too", &one, 6, 0);
	state("client", one.client);
	state("server", one.server);
	close(one.client);
	close(one.server);
	both_rows("both closed", &one, 6, 0);
	close(one.listener);
	one = connected(family, 0);
	shutdown(one.client, SHUT_WR);
	close(one.client);
	both_rows("client stopped sending and closed", &one, 5, 8);
	shutdown(one.server, SHUT_RDWR);
	both_rows("server shut down", &one, 6, 0);
	close(one.server);
	close(one.listener);
}

static void rows(int count, char **arguments)
{
	(void)count, (void)arguments;
	rows_of(AF_INET);
	rows_of(AF_INET6);
}

static void resets(int count, char **arguments)
{
	(void)count, (void)arguments;
	char bytes[8];
	struct connection one = connected(AF_INET, 0);
	struct linger at_once = {.l_onoff = 1};
	setsockopt(one.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(one.client);
	both_rows("client reset", &one, 0, 0);
	SHOW(read(one.server, bytes, sizeof bytes));
	close(one.server);
	binds("its port", AF_INET, 0, one.client_port);
	close(one.listener);
	one = connected(AF_INET, 0);
	SHOW(write(one.server, "unread", 6));
	close(one.client);
	both_rows("client closed with unread bytes", &one, 0, 0);
	close(one.server);
	close(one.listener);
	one = connected(AF_INET, 0);
	close(one.client);
	both_rows("client closed", &one, 5, 8);
	SHOW(write(one.server, "late", 4));
	both_rows("server wrote", &one, 0, 0);
	close(one.server);
	close(one.listener);
	one = connected(AF_INET, 0);
	SHOW(write(one.client, "unread", 6));
	close(one.client);
	both_rows("client wrote and closed", &one, 5, 8);
	close(one.server);
	both_rows("server closed with unread bytes", &one, 0, 0);
	close(one.listener);
	one = connected(AF_INET, 0);
	shutdown(one.client, SHUT_WR);
	close(one.server);
	both_rows("server closed last", &one, 6, 0);
	setsockopt(one.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(one.client);
	both_rows("client reset too late", &one, 6, 0);
	close(one.listener);
	// A connection that nobody accepts.
	one.listener = stream(AF_INET, 0);
	one.client = stream(AF_INET, 0);
	HOLDS(bind_to(one.listener, AF_INET, 0) == 0 && listen(one.listener, 5) == 0);
	one.server_port = port_of(one.listener);
	HOLDS(connect_to(one.client, AF_INET, one.server_port) == 0);
	one.client_port = port_of(one.client);
	close(one.client);
	both_rows("client closed before it was accepted", &one, 5, 8);
	close(one.listener);
	both_rows("listener closed", &one, 0, 0);
}

static const char *const names[] = {"plain", "reuse", "share", "reuse and share"};

static void ports(int count, char **arguments)
{
	(void)count, (void)arguments;
	for (int options = 0; options < 4; options++) {
		printf("sockets that %s\n", names[options]);
		struct connection one = connected(AF_INET, options);
		close(one.listener);
		for (int other = 0; other < 4; other++)
			binds("server's port, connected", AF_INET, other, one.server_port);
		close(one.server);
		for (int other = 0; other < 4; other++)
			binds("server's port, half closed", AF_INET, other, one.server_port);
		close(one.client);
		shows("server", AF_INET, one.server_port, one.client_port, 6);
		for (int other = 0; other < 4; other++)
			binds("server's port", AF_INET, other, one.server_port);
		binds("server's port of IPv6", AF_INET6, 0, one.server_port);
		binds("client's port", AF_INET, 0, one.client_port);
		int fd = stream(AF_INET, 0);
		union address other = loopback(AF_INET, one.server_port);
		other.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
		SHOW(bind(fd, &other.any, sizeof other.four));
		close(fd);
		fd = stream(AF_INET, 0);
		other.four.sin_addr.s_addr = 0;
		SHOW(bind(fd, &other.any, sizeof other.four));
		close(fd);
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		SHOW(bind_to(fd, AF_INET, one.server_port));
		close(fd);
		one = connected(AF_INET, options);
		close(one.client);
		close(one.server);
		close(one.listener);
		shows("client", AF_INET, one.client_port, one.server_port, 6);
		for (int other = 0; other < 4; other++)
			binds("client's port", AF_INET, other, one.client_port);
		binds("server's port", AF_INET, 0, one.server_port);
	}
}

// A server that closes its connections first, and starts again at once.
static void again(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct connection one = connected(AF_INET, REUSES);
	close(one.server);
	close(one.client);
	close(one.listener);
	shows("server", AF_INET, one.server_port, one.client_port, 6);
	one.listener = stream(AF_INET, REUSES);
	SHOW(bind_to(one.listener, AF_INET, one.server_port));
	SHOW(listen(one.listener, 5));
	// The client's port towards the server's old end, which takes a new connection.
	one.client = stream(AF_INET, REUSES);
	SHOW(bind_to(one.client, AF_INET, one.client_port));
	SHOW(connect_to(one.client, AF_INET, one.server_port));
	one.server = accept(one.listener, NULL, NULL);
	both_rows("connected again", &one, 1, 1);
	SHOW(write(one.client, "hello", 5));
	char bytes[8];
	SHOW(read(one.server, bytes, sizeof bytes));
	close(one.client);
	close(one.server);
	both_rows("client closed first", &one, 6, 0);
	// The client's old end gives way to a connection from its port.
	one.client = stream(AF_INET, REUSES);
	SHOW(bind_to(one.client, AF_INET, one.client_port));
	SHOW(connect_to(one.client, AF_INET, one.server_port));
	one.server = accept(one.listener, NULL, NULL);
	both_rows("connected a third time", &one, 1, 1);
	// The same connection cannot exist twice.
	int second = stream(AF_INET, REUSES);
	SHOW(bind_to(second, AF_INET, one.client_port));
	SHOW(connect_to(second, AF_INET, one.server_port));
	close(second);
	close(one.client);
	close(one.server);
	both_rows("client closed first", &one, 6, 0);
	// Ports that the system chooses are not those that connections are still in.
	int met = 0;
	for (int tries = 0; tries < 300; tries++) {
		int fd = stream(AF_INET, 0);
		if (connect_to(fd, AF_INET, one.server_port))
			perror("connect");
		int other = accept(one.listener, NULL, NULL);
		met += port_of(fd) == one.client_port;
		close(fd);
		close(other);
	}
	printf("%d of 300 connections have the port\n", met);
	close(one.listener);
	// A listener may listen anew whatever it has closed, without SO_REUSEADDR, too.
	one = connected(AF_INET, 0);
	SHOW(listen(one.listener, 6));
	close(one.server);
	close(one.client);
	shows("server", AF_INET, one.server_port, one.client_port, 6);
	SHOW(listen(one.listener, 7));
	close(one.listener);
	// A socket that connects to itself closes both ends.
	int self = stream(AF_INET, 0);
	SHOW(bind_to(self, AF_INET, 0));
	unsigned port = port_of(self);
	SHOW(connect_to(self, AF_INET, port));
	close(self);
	shows("connected to itself", AF_INET, port, port, 6);
}

// Enters a network namespace of its own, where the host has one to give: no other process uses its ports. A cell's ports are its own.
static void enter_own_network(void)
{
	if (unshare(CLONE_NEWNET) < 0)
		return;
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		perror("lo");
	close(fd);
}

int main(int count, char **arguments)
{
	enter_own_network();
	static const struct part parts[] = {{"rows", rows}, {"resets", resets}, {"ports", ports}, {"again", again}, {0}};
	return run_part(parts, count, arguments);
}
