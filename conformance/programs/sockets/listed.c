// SPDX-License-Identifier: MIT OR Apache-2.0
// The entries of /proc/net for the program's own sockets: found by inode number, without the fields that differ between runs.
#define _GNU_SOURCE
#include "show.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static unsigned long number(int fd)
{
	struct stat status;
	fstat(fd, &status);
	return status.st_ino;
}

// A socket's line in a table of Internet sockets: addresses with their ports where those were chosen, the state, what waits, the user.
static void internet(const char *what, const char *path, int fd)
{
	char line[512], local[40], remote[40];
	unsigned local_port, remote_port, state, sent, received, timer, user, timeout;
	unsigned long when, retries, inode;
	FILE *table = fopen(path, "r");
	int found = 0;
	while (table && fgets(line, sizeof line, table)) {
		if (sscanf(line, " %*d: %39[0-9A-F]:%x %39[0-9A-F]:%x %x %x:%x %x:%lx %lx %u %u %lu", local, &local_port, remote, &remote_port, &state, &sent, &received, &timer, &when, &retries, &user, &timeout, &inode) != 13 || inode != number(fd))
			continue;
		found++;
		// An end that sends nothing more may not have been heard yet.
		if (state == 4)
			state = 5;
		printf("%s: %s:%s %s:%s state %02X, %u waits, user %u, %zu characters\n", what, local, local_port ? "port" : "0", remote, remote_port ? "port" : "0", state, received, user, path[strlen(path) - 1] == '6' ? 0 : strlen(line));
	}
	printf("%s: %d in %s\n", what, found, path);
	if (table)
		fclose(table);
}

static void local(const char *what, int fd)
{
	char line[512], path[200] = "";
	unsigned protocol, flags, type, state;
	unsigned long inode;
	FILE *table = fopen("/proc/net/unix", "r");
	int found = 0;
	while (table && fgets(line, sizeof line, table)) {
		path[0] = 0;
		if (sscanf(line, "%*[^:]: %*x %x %x %x %x %lu %199s", &protocol, &flags, &type, &state, &inode, path) < 5 || inode != number(fd))
			continue;
		found++;
		printf("%s: protocol %x flags %08x type %04x state %02x path %s\n", what, protocol, flags, type, state, path);
	}
	printf("%s: %d\n", what, found);
	if (table)
		fclose(table);
}

static void head(const char *path)
{
	char line[4096];
	FILE *table = fopen(path, "r");
	if (!table || !fgets(line, sizeof line, table)) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	printf("%s: %s", path, line);
	fclose(table);
}

static void streams(int family, const char *path)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} address = {0};
	socklen_t length = family == AF_INET ? sizeof address.four : sizeof address.six;
	address.any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		address.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		address.six.sin6_addr = in6addr_loopback;
	int listener = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0);
	internet("new", path, listener);
	if (bind(listener, &address.any, length) != 0) {
		perror("bind");
		return;
	}
	internet("bound", path, listener);
	SHOW(listen(listener, 5));
	internet("listens", path, listener);
	getsockname(listener, &address.any, &length);
	SHOW(connect(client, &address.any, length));
	internet("has one waiting", path, listener);
	internet("client", path, client);
	int server = accept(listener, NULL, NULL);
	internet("server", path, server);
	SHOW(write(client, "twelve bytes", 12));
	internet("is sent to", path, server);
	char bytes[20];
	SHOW(read(server, bytes, sizeof bytes));
	internet("has read", path, server);
	SHOW(shutdown(client, SHUT_WR));
	SHOW(read(server, bytes, sizeof bytes));
	internet("half closed", path, client);
	internet("other half", path, server);
	SHOW(close(server));
	SHOW(read(client, bytes, sizeof bytes));
	SHOW(close(client));
	SHOW(close(listener));
	// Datagrams.
	char table[32];
	snprintf(table, sizeof table, "/proc/net/udp%s", family == AF_INET ? "" : "6");
	int one = socket(family, SOCK_DGRAM, 0), two = socket(family, SOCK_DGRAM, 0);
	internet("unbound", table, one);
	address.four.sin_port = 0;
	SHOW(bind(one, &address.any, length));
	internet("bound", table, one);
	getsockname(one, &address.any, &length);
	SHOW(connect(two, &address.any, length));
	internet("connected", table, two);
	SHOW(close(one));
	SHOW(close(two));
}

// A table of counters: a protocol has a line of names and a line of as many values.
static void counters(const char *path, const char *protocol)
{
	char line[8192];
	size_t words[2] = {0}, found = 0;
	FILE *table = fopen(path, "r");
	while (table && fgets(line, sizeof line, table)) {
		char *word = strtok(line, " \n");
		if (!word || strcmp(word, protocol))
			continue;
		while (found < 2 && (word = strtok(NULL, " \n")))
			words[found]++;
		found++;
	}
	if (table)
		fclose(table);
	printf("%s %s %zu lines, %s\n", path, protocol, found, words[0] > 4 && words[0] == words[1] ? "complete" : "incomplete");
}

int main(void)
{
	int pair[2];
	static const char *const protocols[] = {"Ip:", "Icmp:", "Tcp:", "Udp:"};
	for (size_t at = 0; at < sizeof protocols / sizeof *protocols; at++)
		counters("/proc/net/snmp", protocols[at]);
	counters("/proc/net/netstat", "TcpExt:");
	counters("/proc/net/netstat", "IpExt:");
	static const char *const heads[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6", "/proc/net/unix"};
	for (size_t at = 0; at < sizeof heads / sizeof *heads; at++)
		head(heads[at]);
	streams(AF_INET, "/proc/net/tcp");
	streams(AF_INET6, "/proc/net/tcp6");
	struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0a name of its own"};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	local("new", listener);
	SHOW(bind(listener, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + 6));
	local("bound", listener);
	SHOW(listen(listener, 5));
	local("listens", listener);
	SHOW(connect(client, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + 6));
	local("client", client);
	int server = accept(listener, NULL, NULL);
	local("server", server);
	SHOW(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	local("pair", pair[0]);
	int datagrams = socket(AF_UNIX, SOCK_DGRAM, 0);
	char path[] = "/tmp/listed-XXXXXX";
	close(mkstemp(path));
	unlink(path);
	strcpy(name.sun_path, path);
	SHOW(bind(datagrams, (struct sockaddr *)&name, sizeof name));
	name.sun_path[0] = 0;
	struct sockaddr_un found;
	socklen_t length = sizeof found;
	SHOW(getsockname(datagrams, (struct sockaddr *)&found, &length) == 0 && !strcmp(found.sun_path, path));
	unlink(path);
	char line[512];
	FILE *table = fopen("/proc/net/unix", "r");
	int lines = 0;
	while (table && fgets(line, sizeof line, table))
		lines += strstr(line, path) != NULL;
	printf("%d\n", lines);
	return 0;
}
