// SPDX-License-Identifier: MIT OR Apache-2.0
// Sockets within one process: Unix sockets, and TCP and UDP over loopback. Starts in an empty directory, and prints the
// results of system calls.
#define _GNU_SOURCE
#include "sockets.h"

static void error_of(const char *name, int fd)
{
	int error = -1;
	socklen_t length = sizeof error;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
	printf("%s: %s\n", name, strerror(error));
}

static struct sockaddr_un at_path(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	return address;
}

static struct sockaddr_in at_port(int port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int port_of(int fd)
{
	struct sockaddr_storage found;
	socklen_t length = sizeof found;
	getsockname(fd, (struct sockaddr *)&found, &length);
	return ntohs(((struct sockaddr_in *)&found)->sin_port);
}

// Prints the name of a socket, or of its peer. Ports differ from run to run and are only compared.
static void name_of(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage found = {0};
	socklen_t length = sizeof found;
	if (ask(fd, (struct sockaddr *)&found, &length)) {
		printf("%s: %s\n", what, strerror(errno));
		return;
	}
	char text[100] = "";
	const char *path = ((struct sockaddr_un *)&found)->sun_path;
	switch (found.ss_family) {
	case AF_INET:
		inet_ntop(AF_INET, &((struct sockaddr_in *)&found)->sin_addr, text, sizeof text);
		printf("%s: %s %s (%d bytes)\n", what, text, ((struct sockaddr_in *)&found)->sin_port ? "port" : "no port", length);
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&found)->sin6_addr, text, sizeof text);
		printf("%s: %s (%d bytes)\n", what, text, length);
		break;
	default:
		printf("%s: family %d, %d bytes, %s\n", what, found.ss_family, length, length > 2 && !*path ? path + 1 : path);
	}
}

static void pairs(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2];
	SHOW(pair_of(SOCK_STREAM, ends));
	printf("%d %d\n", ends[0], ends[1]);
	ready("fresh", ends[0]);
	SHOW(read(ends[0], buffer, 10));
	SHOW(write(ends[0], "some", 4));
	SHOW(write(ends[0], " text", 5));
	ready("with bytes", ends[1]);
	int waiting = -1;
	SHOW(ioctl(ends[1], FIONREAD, &waiting));
	printf("%d waiting\n", waiting);
	SHOW(recv(ends[1], buffer, 3, MSG_PEEK));
	SHOW(recv(ends[1], buffer, 100, 0));
	printf("%.9s\n", buffer);
	SHOW(recv(ends[1], buffer, 100, 0));
	SHOW(write(ends[0], nowhere, 10));
	SHOW(pread(ends[0], buffer, 1, 0));
	SHOW(lseek(ends[0], 0, SEEK_SET));
	SHOW(fcntl(ends[0], F_GETFL));
	struct stat found;
	SHOW(fstat(ends[0], &found) == 0 && S_ISSOCK(found.st_mode) && found.st_nlink == 1 && found.st_size == 0);
	printf("%o\n", found.st_mode);
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
	SHOW(readlink(path, buffer, sizeof buffer) > 0 && !memcmp(buffer, "socket:[", 8));
	SHOW(open(path, O_RDWR));
	name_of("own", ends[0], getsockname);
	name_of("peer", ends[0], getpeername);
	SHOW(shutdown(ends[0], SHUT_WR));
	ready("half closed", ends[0]);
	ready("at the end", ends[1]);
	SHOW(read(ends[1], buffer, 10));
	signal(SIGPIPE, SIG_IGN);
	SHOW(write(ends[0], "x", 1));
	SHOW(write(ends[1], "back", 4));
	SHOW(close(ends[1]));
	ready("alone", ends[0]);
	SHOW(read(ends[0], buffer, 10));
	SHOW(read(ends[0], buffer, 10));
	SHOW(send(ends[0], "x", 1, MSG_NOSIGNAL));
	name_of("peer that is gone", ends[0], getpeername);
	SHOW(pair_of(SOCK_STREAM, ends));
	SHOW(write(ends[0], "unread", 6));
	SHOW(close(ends[1]));
	ready("after unread bytes", ends[0]);
	SHOW(write(ends[0], "x", 1));
	SHOW(read(ends[0], buffer, 10));
	SHOW(read(ends[0], buffer, 10));
	SHOW(pair_of(SOCK_DGRAM, ends));
	ready("datagrams", ends[0]);
	SHOW(write(ends[0], "one", 3));
	SHOW(write(ends[0], "", 0));
	SHOW(write(ends[0], "three", 5));
	ready("datagrams", ends[1]);
	SHOW(recv(ends[1], buffer, 2, MSG_TRUNC));
	SHOW(recv(ends[1], buffer, 10, 0));
	SHOW(recv(ends[1], buffer, 10, 0));
	SHOW(recv(ends[1], buffer, 10, 0));
	SHOW(send(ends[0], buffer, 300000, 0));
	SHOW(close(ends[1]));
	ready("datagrams, alone", ends[0]);
	SHOW(write(ends[0], "x", 1));
	SHOW(write(ends[0], "x", 1));
	SHOW(pair_of(SOCK_SEQPACKET, ends));
	SHOW(write(ends[0], "one", 3));
	SHOW(write(ends[0], "two", 3));
	SHOW(read(ends[1], buffer, 100));
	SHOW(shutdown(ends[0], SHUT_RDWR));
	ready("packets", ends[1]);
	SHOW(read(ends[1], buffer, 2));
	SHOW(read(ends[1], buffer, 2));
	SHOW(write(ends[1], "x", 1));
	SHOW(socketpair(AF_INET, SOCK_STREAM, 0, ends));
	SHOW(socketpair(AF_UNIX, 77, 0, ends));
	SHOW(socketpair(AF_UNIX, SOCK_STREAM, 7, ends));
}

static void kinds(int count, char **arguments)
{
	(void)count, (void)arguments;
	SHOW(socket(AF_UNIX, SOCK_STREAM, 0));
	SHOW(socket(AF_UNIX, SOCK_RDM, 0));
	SHOW(socket(AF_UNIX, SOCK_STREAM, IPPROTO_TCP));
	SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_TCP));
	SHOW(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP));
	SHOW(socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
	SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
	SHOW(socket(AF_INET6, SOCK_STREAM, 0));
	SHOW(socket(AF_INET, SOCK_SEQPACKET, 0));
	SHOW(socket(AF_INET, 0, 0));
	SHOW(socket(AF_INET, 12, 0));
	SHOW(socket(77, SOCK_STREAM, 0));
	SHOW(socket(AF_APPLETALK + 60, SOCK_DGRAM, 0));
	int fd = SHOW(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	SHOW(fcntl(fd, F_GETFL));
	SHOW(fcntl(fd, F_GETFD));
	int number = -1;
	SHOW(getsockname(0, NULL, NULL));
	SHOW(getsockname(99, NULL, NULL));
	SHOW(bind(fd, nowhere, 16));
	SHOW(bind(fd, nowhere, 300));
	SHOW(ioctl(fd, FIONREAD, &number));
	SHOW(ioctl(fd, 0x1234, &number));
	SHOW(listen(0, 1));
	SHOW(send(0, "x", 1, 0));
	SHOW(ftruncate(fd, 0));
	SHOW(fsync(fd));
}

static void names(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct sockaddr_un address = at_path("door"), other = at_path("none"), found;
	struct sockaddr *door = (struct sockaddr *)&address;
	int listener = SHOW(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	ready("fresh", listener);
	name_of("own", listener, getsockname);
	name_of("peer", listener, getpeername);
	SHOW(listen(listener, 1));
	SHOW(accept(listener, NULL, NULL));
	SHOW(read(listener, buffer, 1));
	SHOW(write(listener, "x", 1));
	SHOW(bind(listener, door, 2 + 4));
	SHOW(bind(listener, door, sizeof address));
	name_of("own", listener, getsockname);
	status("door");
	SHOW(open("door", O_RDWR));
	int client = SHOW(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(bind(client, door, sizeof address));
	SHOW(connect(client, door, sizeof address));
	SHOW(connect(client, (struct sockaddr *)&other, sizeof other));
	SHOW(unlink("door"));
	SHOW(close(listener));
	listener = SHOW(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(bind(listener, door, sizeof address));
	SHOW(listen(listener, 1));
	ready("listening", listener);
	SHOW(accept(listener, NULL, NULL));
	SHOW(connect(client, door, sizeof address));
	SHOW(connect(client, door, sizeof address));
	name_of("client", client, getsockname);
	name_of("client's peer", client, getpeername);
	ready("listening", listener);
	SHOW(write(client, "early", 5));
	int clients[3];
	for (int at = 0; at < 3; at++) {
		clients[at] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		SHOW(connect(clients[at], door, sizeof address));
	}
	socklen_t length = sizeof found;
	int server = SHOW(accept4(listener, (struct sockaddr *)&found, &length, SOCK_NONBLOCK));
	printf("%d bytes of address\n", length);
	name_of("server", server, getsockname);
	name_of("server's peer", server, getpeername);
	SHOW(read(server, buffer, 10));
	SHOW(close(listener));
	ready("never accepted", clients[0]);
	SHOW(read(clients[0], buffer, 10));
	SHOW(read(clients[0], buffer, 10));
	SHOW(connect(clients[2], door, sizeof address));
	int datagrams = SHOW(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(connect(datagrams, door, sizeof address));
	other = at_path("letters");
	SHOW(bind(datagrams, (struct sockaddr *)&other, sizeof other));
	SHOW(connect(client, (struct sockaddr *)&other, sizeof other));
	SHOW(sendto(client, "x", 1, 0, (struct sockaddr *)&other, sizeof other));
	int sender = SHOW(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(write(sender, "x", 1));
	SHOW(sendto(sender, "letter", 6, 0, (struct sockaddr *)&other, sizeof other));
	length = sizeof found;
	SHOW(recvfrom(datagrams, buffer, 100, 0, (struct sockaddr *)&found, &length));
	printf("from %d bytes\n", length);
	memcpy(address.sun_path, "\0nowhere", 8);
	SHOW(bind(sender, (struct sockaddr *)&address, 10));
	name_of("abstract", sender, getsockname);
	SHOW(sendto(sender, "letter", 6, 0, (struct sockaddr *)&other, sizeof other));
	length = sizeof found;
	SHOW(recvfrom(datagrams, buffer, 100, 0, (struct sockaddr *)&found, &length));
	printf("from %d bytes, %s\n", length, found.sun_path + 1);
	SHOW(connect(datagrams, (struct sockaddr *)&address, 10));
	SHOW(write(datagrams, "answer", 6));
	SHOW(read(sender, buffer, 10));
	int third = SHOW(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(connect(third, (struct sockaddr *)&other, sizeof other));
	for (int at = 0; at < 12; at++)
		SHOW(sendto(sender, "x", 1, 0, (struct sockaddr *)&other, sizeof other));
	ready("full", sender);
	SHOW(bind(third, (struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX}, 2));
	length = sizeof found;
	SHOW(getsockname(third, (struct sockaddr *)&found, &length));
	printf("%d bytes\n", length);
	address = at_path("nothing/door");
	SHOW(bind(client, door, sizeof address));
	SHOW(bind(third, door, sizeof address));
	SHOW(close(datagrams));
	SHOW(sendto(sender, "x", 1, 0, (struct sockaddr *)&other, sizeof other));
	address.sun_family = AF_INET;
	SHOW(bind(socket(AF_UNIX, SOCK_STREAM, 0), door, sizeof address));
}

static void tcp(int count, char **arguments)
{
	(void)count, (void)arguments;
	signal(SIGPIPE, SIG_IGN);
	int on = 1;
	struct sockaddr_in address = at_port(0), found;
	struct sockaddr *here = (struct sockaddr *)&address;
	int listener = SHOW(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	ready("fresh", listener);
	SHOW(read(listener, buffer, 1));
	SHOW(write(listener, "x", 1));
	SHOW(shutdown(listener, SHUT_WR));
	SHOW(close(listener));
	listener = SHOW(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(accept(listener, NULL, NULL));
	SHOW(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	SHOW(bind(listener, here, 8));
	SHOW(bind(listener, here, sizeof address));
	SHOW(bind(listener, here, sizeof address));
	name_of("listener", listener, getsockname);
	address = at_port(port_of(listener));
	int client = SHOW(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(connect(client, here, sizeof address));
	SHOW(poll(&(struct pollfd){.fd = client, .events = POLLOUT}, 1, 1000));
	ready("refused", client);
	error_of("refused", client);
	ready("told", client);
	SHOW(connect(client, here, sizeof address));
	SHOW(connect(client, here, sizeof address));
	SHOW(close(client));
	SHOW(listen(listener, 5));
	ready("listening", listener);
	SHOW(read(listener, buffer, 1));
	SHOW(connect(listener, here, sizeof address));
	client = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(connect(client, here, sizeof address));
	SHOW(connect(client, here, sizeof address));
	SHOW(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 1000));
	ready("client", client);
	SHOW(write(client, "hello", 5));
	SHOW(fcntl(client, F_SETFL, O_NONBLOCK));
	socklen_t length = sizeof found;
	int server = SHOW(accept4(listener, (struct sockaddr *)&found, &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
	printf("%d bytes, client's port: %d\n", length, ntohs(found.sin_port) == port_of(client));
	name_of("server", server, getsockname);
	name_of("server's peer", server, getpeername);
	SHOW(port_of(server) == port_of(listener));
	ready("server", server);
	SHOW(recv(server, buffer, 2, MSG_PEEK));
	SHOW(recv(server, buffer, 100, 0));
	SHOW(recv(server, buffer, 100, 0));
	SHOW(send(server, "x", 1, MSG_OOB | MSG_DONTWAIT) == 1 || errno == EOPNOTSUPP);
	SHOW(recv(client, buffer, 1, MSG_OOB) <= 1);
	SHOW(write(server, "answer", 6));
	struct iovec parts[] = {{buffer, 2}, {buffer + 10, 100}};
	SHOW(readv(client, parts, 2) >= 6);
	SHOW(shutdown(client, SHUT_WR));
	ready("half closed", client);
	ready("at the end", server);
	SHOW(read(server, buffer, 10));
	SHOW(write(server, "still", 5));
	SHOW(read(client, buffer, 10));
	SHOW(shutdown(server, SHUT_WR));
	ready("both closed", client);
	SHOW(read(client, buffer, 10));
	SHOW(write(client, "x", 1));
	SHOW(shutdown(client, SHUT_RD));
	name_of("peer that closed", client, getpeername);
	SHOW(close(server));
	SHOW(close(client));
	client = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(connect(client, here, sizeof address));
	server = SHOW(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	SHOW(write(client, "unread", 6));
	SHOW(close(server));
	SHOW(poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 1000));
	ready("reset", client);
	SHOW(read(client, buffer, 10));
	SHOW(read(client, buffer, 10));
	SHOW(write(client, "x", 1));
	SHOW(close(client));
	client = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(connect(client, here, sizeof address));
	server = SHOW(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	SHOW(close(server));
	SHOW(poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 1000));
	ready("left", client);
	SHOW(write(client, "x", 1));
	ready("left and told", client);
	SHOW(write(client, "x", 1));
	SHOW(read(client, buffer, 10));
	SHOW(close(client));
	int second = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(bind(second, here, sizeof address));
	SHOW(setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	SHOW(bind(second, here, sizeof address));
	address.sin_addr.s_addr = htonl(INADDR_ANY);
	SHOW(bind(second, here, sizeof address));
	address.sin_addr.s_addr = htonl(0x08080808);
	SHOW(bind(second, here, sizeof address));
	address.sin_addr.s_addr = htonl(0x7f000005);
	SHOW(bind(second, here, sizeof address));
	address.sin_family = AF_UNIX;
	SHOW(bind(socket(AF_INET, SOCK_STREAM, 0), here, sizeof address));
	address = at_port(port_of(listener));
	client = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	SHOW(connect(client, here, sizeof address));
	SHOW(close(listener));
	SHOW(poll(&(struct pollfd){.fd = client, .events = POLLIN}, 1, 1000));
	ready("never accepted", client);
	SHOW(read(client, buffer, 10));
}

static void six(int count, char **arguments)
{
	(void)count, (void)arguments;
	int on = 1;
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	int listener = SHOW(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
	SHOW(bind(listener, (struct sockaddr *)&any, sizeof any));
	SHOW(listen(listener, 5));
	any.sin6_port = htons((unsigned short)port_of(listener));
	name_of("listener", listener, getsockname);
	int four = SHOW(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in address = at_port(ntohs(any.sin6_port));
	SHOW(bind(four, (struct sockaddr *)&address, sizeof address));
	SHOW(connect(four, (struct sockaddr *)&address, sizeof address));
	int server = SHOW(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	name_of("server", server, getsockname);
	name_of("server's peer", server, getpeername);
	name_of("client", four, getsockname);
	int client = SHOW(socket(AF_INET6, SOCK_STREAM, 0));
	any.sin6_addr = in6addr_loopback;
	SHOW(connect(client, (struct sockaddr *)&any, sizeof any));
	server = SHOW(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	name_of("server", server, getsockname);
	name_of("server's peer", server, getpeername);
	name_of("client", client, getsockname);
	client = SHOW(socket(AF_INET6, SOCK_STREAM, 0));
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &any.sin6_addr);
	SHOW(connect(client, (struct sockaddr *)&any, sizeof any));
	name_of("client", client, getsockname);
	name_of("client's peer", client, getpeername);
	SHOW(setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
	int only = SHOW(socket(AF_INET6, SOCK_STREAM, 0));
	SHOW(setsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
	any.sin6_addr = in6addr_any;
	any.sin6_port = 0;
	SHOW(bind(only, (struct sockaddr *)&any, sizeof any));
	SHOW(listen(only, 1));
	address = at_port(port_of(only));
	SHOW(bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address));
	SHOW(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address));
	SHOW(connect(socket(AF_INET6, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address));
}

static void udp(int count, char **arguments)
{
	(void)count, (void)arguments;
	struct sockaddr_in address = at_port(0), found;
	struct sockaddr *here = (struct sockaddr *)&address;
	socklen_t length = sizeof found;
	int receiver = SHOW(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	ready("fresh", receiver);
	SHOW(shutdown(receiver, SHUT_RD));
	SHOW(close(receiver));
	receiver = SHOW(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(bind(receiver, here, sizeof address));
	SHOW(listen(receiver, 1));
	SHOW(accept(receiver, NULL, NULL));
	address = at_port(port_of(receiver));
	int sender = SHOW(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(write(sender, "x", 1));
	name_of("unbound", sender, getsockname);
	SHOW(sendto(sender, "first", 5, 0, here, sizeof address));
	name_of("bound by sending", sender, getsockname);
	SHOW(sendto(sender, "", 0, 0, here, sizeof address));
	SHOW(sendto(sender, "third", 5, 0, here, 8));
	SHOW(sendto(sender, buffer, 65507, 0, here, sizeof address));
	SHOW(sendto(sender, buffer, 65508, 0, here, sizeof address));
	ready("with datagrams", receiver);
	int waiting = -1;
	SHOW(ioctl(receiver, FIONREAD, &waiting));
	printf("%d waiting\n", waiting);
	SHOW(recvfrom(receiver, buffer, 3, MSG_TRUNC | MSG_PEEK, (struct sockaddr *)&found, &length));
	printf("%d bytes, the sender's port: %d\n", length, ntohs(found.sin_port) == port_of(sender));
	SHOW(recv(receiver, buffer, 3, 0));
	SHOW(recv(receiver, buffer, 3, 0));
	SHOW(recv(receiver, buffer, sizeof buffer, 0));
	SHOW(recv(receiver, buffer, 3, 0));
	SHOW(connect(sender, here, sizeof address));
	name_of("connected", sender, getpeername);
	SHOW(write(sender, "connected", 9));
	SHOW(recvfrom(receiver, buffer, 100, 0, (struct sockaddr *)&found, &length));
	SHOW(sendto(receiver, "back", 4, 0, (struct sockaddr *)&found, length));
	SHOW(read(sender, buffer, 100));
	int stranger = SHOW(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(sendto(stranger, "strange", 7, 0, (struct sockaddr *)&found, length));
	SHOW(read(sender, buffer, 100));
	SHOW(shutdown(sender, SHUT_WR));
	SHOW(send(sender, "x", 1, MSG_NOSIGNAL));
	ready("shut", sender);
	SHOW(close(sender));
	sender = SHOW(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	SHOW(connect(sender, here, sizeof address));
	SHOW(close(receiver));
	SHOW(write(sender, "lost", 4));
	ready("told", sender);
	SHOW(read(sender, buffer, 10));
	SHOW(read(sender, buffer, 10));
	SHOW(write(sender, "lost", 4));
	SHOW(write(sender, "lost", 4));
	error_of("told", sender);
	SHOW(connect(sender, (struct sockaddr *)&(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
	name_of("not connected", sender, getpeername);
	name_of("not connected", sender, getsockname);
	SHOW(write(sender, "x", 1));
	SHOW(sendto(sender, "lost", 4, 0, here, sizeof address));
	SHOW(read(sender, buffer, 10));
	address.sin_port = 0;
	SHOW(sendto(sender, "lost", 4, 0, here, sizeof address));
}

static const struct part PARTS[] = {
	{"pairs", pairs}, {"kinds", kinds}, {"names", names}, {"tcp", tcp}, {"six", six}, {"udp", udp}, {0},
};

int main(int count, char **arguments)
{
	// The parent may have more descriptors open than the usual three.
	close_range(3, ~0u, 0);
	return run_part(PARTS, count, arguments);
}
