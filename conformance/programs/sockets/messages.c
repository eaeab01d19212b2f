// SPDX-License-Identifier: MIT OR Apache-2.0
// Control messages of sockets, and socket options. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "sockets.h"

// Sends a descriptor with a byte.
static ssize_t pass(int to, int passed)
{
	char control[CMSG_SPACE(sizeof passed)] = {0};
	struct iovec part = {"d", 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof passed)};
	memcpy(CMSG_DATA(header), &passed, sizeof passed);
	return sendmsg(to, &message, MSG_NOSIGNAL);
}

// Receives a message with its control messages. Returns the last received descriptor.
static int receive(int from, size_t room, size_t control_room, int flags)
{
	static char control[1000];
	int got = -1;
	struct sockaddr_un name;
	struct iovec part = {buffer, room};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_room, .msg_name = &name, .msg_namelen = sizeof name,
	};
	ssize_t bytes = recvmsg(from, &message, flags);
	printf("received %zd (%s), flags %#x, name %d, control %zu:", bytes, bytes < 0 ? strerror(errno) : "well", message.msg_flags,
		message.msg_namelen, message.msg_controllen);
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); bytes >= 0 && header; header = CMSG_NXTHDR(&message, header)) {
		printf(" %d of %zu", header->cmsg_type, header->cmsg_len);
		if (header->cmsg_type == SCM_RIGHTS) {
			memcpy(&got, CMSG_DATA(header), sizeof got);
			printf(" (%d, %d)", got, fcntl(got, F_GETFD));
		} else {
			struct ucred who;
			memcpy(&who, CMSG_DATA(header), sizeof who);
			printf(" (%d %d %d)", who.pid == getpid(), who.uid == getuid(), who.gid == getgid());
		}
	}
	printf("\n");
	return got;
}

static void passing(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], pipe_ends[2], on = 1;
	SHOW(pair_of(SOCK_STREAM, ends));
	SHOW(pipe(pipe_ends));
	SHOW(pass(ends[0], pipe_ends[1]));
	SHOW(close(pipe_ends[1]));
	SHOW(write(ends[0], "more", 4));
	SHOW(fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK));
	SHOW(read(pipe_ends[0], buffer, 1));
	int got = receive(ends[1], 100, 1000, MSG_CMSG_CLOEXEC);
	SHOW(write(got, "through", 7));
	SHOW(read(pipe_ends[0], buffer, 100));
	receive(ends[1], 100, 1000, 0);
	SHOW(pass(ends[0], got));
	SHOW(close(got));
	receive(ends[1], 100, 1000, MSG_PEEK);
	SHOW(close(receive(ends[1], 100, 1000, 0)));
	SHOW(pass(ends[0], 77));
	SHOW(pass(ends[0], 0));
	receive(ends[1], 100, 4, 0);
	SHOW(pass(ends[0], 0));
	SHOW(read(ends[1], buffer, 100));
	SHOW(write(ends[0], "plain", 5));
	SHOW(pass(ends[0], 0));
	SHOW(write(ends[0], "behind", 6));
	receive(ends[1], 100, 1000, 0);
	receive(ends[1], 100, 1000, 0);
	SHOW(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	SHOW(write(ends[0], "mine", 4));
	receive(ends[1], 100, 1000, 0);
	SHOW(pass(ends[0], 0));
	receive(ends[1], 100, 1000, 0);
	SHOW(pass(ends[0], 0));
	receive(ends[1], 100, CMSG_SPACE(sizeof(struct ucred)), 0);
	struct ucred who;
	socklen_t length = sizeof who;
	SHOW(getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &who, &length));
	SHOW(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
	int datagrams[2];
	SHOW(pair_of(SOCK_DGRAM, datagrams));
	SHOW(pass(datagrams[0], ends[0]));
	receive(datagrams[1], 0, 1000, 0);
	SHOW(pass(datagrams[0], datagrams[1]));
	SHOW(close(datagrams[1]));
	SHOW(pass(ends[0], datagrams[0]));
	SHOW(close(datagrams[0]) + close(ends[0]) + close(ends[1]));
	SHOW(socket(AF_UNIX, SOCK_STREAM, 0));
}

static void messages(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2];
	SHOW(pair_of(SOCK_DGRAM, ends));
	struct iovec parts[] = {{"one", 3}, {"two", 3}};
	struct mmsghdr several[3] = {
		{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}},
		{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 2}},
		{.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1}},
	};
	SHOW(sendmmsg(ends[0], several, 3, 0));
	printf("%u %u %u\n", several[0].msg_len, several[1].msg_len, several[2].msg_len);
	struct iovec rooms[] = {{buffer, 2}, {buffer + 100, 100}};
	for (int at = 0; at < 3; at++)
		several[at] = (struct mmsghdr){.msg_hdr = {.msg_iov = rooms + 1, .msg_iovlen = 1}};
	several[1].msg_hdr.msg_iov = rooms;
	SHOW(recvmmsg(ends[1], several, 3, MSG_WAITFORONE, NULL));
	printf("%u %#x %u %#x\n", several[0].msg_len, several[0].msg_hdr.msg_flags, several[1].msg_len, several[1].msg_hdr.msg_flags);
	SHOW(recvmmsg(ends[1], several, 3, 0, NULL));
	struct msghdr wrong = {.msg_iov = parts, .msg_iovlen = 2000};
	SHOW(sendmsg(ends[0], &wrong, 0));
	SHOW(sendmsg(ends[0], nowhere, 0));
	SHOW(recvmsg(ends[1], nowhere, 0));
	put("file", "the text of a file");
	SHOW(pair_of(SOCK_STREAM, ends));
	SHOW(sendfile(ends[0], open("file", O_RDONLY), NULL, 100));
	SHOW(read(ends[1], buffer, 100));
	printf("%.18s\n", buffer);
	struct timeval soon = {.tv_usec = 1000}, told;
	SHOW(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	SHOW(fcntl(ends[1], F_SETFL, 0));
	SHOW(read(ends[1], buffer, 100));
	socklen_t length = sizeof told;
	SHOW(getsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &told, &length));
	SHOW(write(ends[0], "part", 4));
	SHOW(recv(ends[1], buffer, 100, MSG_WAITALL));
	soon.tv_usec = 2000000;
	SHOW(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
}

// Receives a datagram, and prints its packet information.
static void packet(int from, size_t control_room)
{
	char control[200];
	struct iovec part = {buffer, 10};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_room};
	ssize_t bytes = recvmsg(from, &message, 0);
	printf("received %zd, flags %#x, control %zu:", bytes, message.msg_flags, message.msg_controllen);
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); bytes >= 0 && header; header = CMSG_NXTHDR(&message, header)) {
		printf(" %d %d [", header->cmsg_level, header->cmsg_type);
		for (size_t at = CMSG_LEN(0); at < header->cmsg_len; at++)
			printf("%s%02x", at == CMSG_LEN(0) ? "" : " ", ((unsigned char *)header)[at]);
		printf("]");
	}
	printf("\n");
}

static void packets(int count, char **arguments)
{
	(void)count, (void)arguments;
	static const struct { int level, option; } TOLD[] = {
		{IPPROTO_IP, IP_PKTINFO}, {IPPROTO_IP, IP_RECVTTL}, {IPPROTO_IP, IP_RECVTOS},
		{IPPROTO_IPV6, IPV6_RECVPKTINFO}, {IPPROTO_IPV6, IPV6_RECVHOPLIMIT}, {IPPROTO_IPV6, IPV6_RECVTCLASS},
	};
	int on = 1, hops = 9, usual = -1;
	for (int six = 0; six < 2; six++) {
		int receiver = SHOW(socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
		struct sockaddr_storage name = {.ss_family = six ? AF_INET6 : AF_INET};
		socklen_t length = sizeof name;
		SHOW(bind(receiver, (struct sockaddr *)&name, sizeof name));
		getsockname(receiver, (struct sockaddr *)&name, &length);
		if (six)
			((struct sockaddr_in6 *)&name)->sin6_addr = in6addr_loopback;
		else
			((struct sockaddr_in *)&name)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		int sender = socket(name.ss_family, SOCK_DGRAM, 0);
		SHOW(connect(sender, (struct sockaddr *)&name, length));
		SHOW(write(sender, "untold", 6));
		packet(receiver, 200);
		for (int told = 0; told < 3; told++)
			SHOW(setsockopt(receiver, TOLD[six * 3 + told].level, TOLD[six * 3 + told].option, &on, sizeof on));
		SHOW(write(sender, "told", 4));
		packet(receiver, 200);
		SHOW(setsockopt(sender, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_UNICAST_HOPS : IP_TTL, &hops, sizeof hops));
		SHOW(write(sender, "near", 4));
		packet(receiver, 200);
		SHOW(write(sender, "cut", 3));
		packet(receiver, 30);
		SHOW(write(sender, "cut", 3));
		packet(receiver, 10);
		SHOW(setsockopt(sender, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_UNICAST_HOPS : IP_TTL, &usual, sizeof usual));
		SHOW(write(sender, "usual", 5));
		packet(receiver, 200);
	}
}

static void options(int count, char **arguments)
{
	(void)count, (void)arguments;
	static const struct { int level, option; const char *name; } ASKED[] = {
		{SOL_SOCKET, SO_TYPE, "type"}, {SOL_SOCKET, SO_DOMAIN, "domain"}, {SOL_SOCKET, SO_PROTOCOL, "protocol"}, {SOL_SOCKET, SO_ERROR, "error"},
		{SOL_SOCKET, SO_ACCEPTCONN, "accepts"}, {SOL_SOCKET, SO_REUSEADDR, "reuse"}, {SOL_SOCKET, SO_REUSEPORT, "reuse port"},
		{SOL_SOCKET, SO_KEEPALIVE, "keep alive"}, {SOL_SOCKET, SO_BROADCAST, "broadcast"}, {SOL_SOCKET, SO_OOBINLINE, "inline"},
		{SOL_SOCKET, SO_PASSCRED, "credentials"}, {SOL_SOCKET, SO_RCVLOWAT, "low mark"}, {SOL_SOCKET, SO_PRIORITY, "priority"},
		{SOL_SOCKET, 999, "none"}, {77, 1, "no level"}, {IPPROTO_TCP, TCP_NODELAY, "at once"}, {IPPROTO_TCP, TCP_KEEPIDLE, "idle"},
		{IPPROTO_TCP, TCP_KEEPINTVL, "interval"}, {IPPROTO_TCP, TCP_KEEPCNT, "count"}, {IPPROTO_TCP, TCP_DEFER_ACCEPT, "deferred"},
		{IPPROTO_TCP, TCP_QUICKACK, "quick"}, {IPPROTO_TCP, TCP_CORK, "cork"}, {IPPROTO_TCP, TCP_USER_TIMEOUT, "patience"},
		{IPPROTO_TCP, 99, "none"}, {IPPROTO_IP, IP_TTL, "hops"}, {IPPROTO_IP, IP_TOS, "service"}, {IPPROTO_IPV6, IPV6_V6ONLY, "only"},
	};
	int sockets[] = {
		socket(AF_UNIX, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_DGRAM, 0), socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_DGRAM, 0),
		socket(AF_INET6, SOCK_STREAM, 0),
	};
	for (size_t at = 0; at < sizeof sockets / sizeof *sockets; at++)
		for (size_t asked = 0; asked < sizeof ASKED / sizeof *ASKED; asked++) {
			int value = -1;
			socklen_t length = sizeof value;
			int told = getsockopt(sockets[at], ASKED[asked].level, ASKED[asked].option, &value, &length);
			printf("%zu %s: %d (%s) %d", at, ASKED[asked].name, told, told ? strerror(errno) : "", value);
			value = 1;
			told = setsockopt(sockets[at], ASKED[asked].level, ASKED[asked].option, &value, sizeof value);
			printf(", set: %d (%s)", told, told ? strerror(errno) : "");
			told = getsockopt(sockets[at], ASKED[asked].level, ASKED[asked].option, &value, &length);
			printf(", %d %d of %d\n", told, value, length);
		}
	int size = 10000;
	socklen_t length = sizeof size;
	SHOW(setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
	SHOW(getsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &size, &length));
	printf("%d\n", size);
	size = 1;
	SHOW(setsockopt(sockets[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	SHOW(getsockopt(sockets[0], SOL_SOCKET, SO_RCVBUF, &size, &length));
	printf("%d\n", size);
	SHOW(setsockopt(sockets[0], SOL_SOCKET, SO_RCVBUF, &size, 2));
	SHOW(setsockopt(sockets[0], SOL_SOCKET, SO_TYPE, &size, 4));
	struct linger linger = {1, 5};
	SHOW(setsockopt(sockets[2], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	linger = (struct linger){0};
	length = sizeof linger;
	SHOW(getsockopt(sockets[2], SOL_SOCKET, SO_LINGER, &linger, &length));
	printf("%d %d, %d bytes\n", linger.l_onoff, linger.l_linger, length);
	length = 2;
	SHOW(getsockopt(sockets[2], SOL_SOCKET, SO_TYPE, &size, &length));
	printf("%d bytes\n", length);
	SHOW(getsockopt(sockets[2], SOL_SOCKET, SO_TYPE, nowhere, &length));
	struct tcp_info information = {0};
	length = sizeof information;
	SHOW(getsockopt(sockets[2], IPPROTO_TCP, TCP_INFO, &information, &length));
	printf("state %d\n", information.tcpi_state);
}

// Sockets bound to one interface, and an IPv6 socket whose datagrams go to an IPv4 address.
static void bound(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[] = {socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0)};
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = 16;
	char name[16] = "";
	SHOW(getsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, name, &length));
	printf("%d bytes\n", length);
	SHOW(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "none9", 5));
	SHOW(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
	length = 15;
	SHOW(getsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, name, &length));
	length = 16;
	SHOW(getsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, name, &length));
	printf("%s, %d bytes\n", name, length);
	length = sizeof here;
	SHOW(bind(ends[0], (struct sockaddr *)&here, sizeof here) + getsockname(ends[0], (struct sockaddr *)&here, &length));
	SHOW(connect(ends[1], (struct sockaddr *)&here, sizeof here));
	struct sockaddr_in6 found;
	length = sizeof found;
	SHOW(getpeername(ends[1], (struct sockaddr *)&found, &length));
	printf("family %d, mapped %d, port %d\n", found.sin6_family, IN6_IS_ADDR_V4MAPPED(&found.sin6_addr), found.sin6_port == here.sin_port);
	SHOW(write(ends[1], "by loopback", 11));
	SHOW(read(ends[0], buffer, 100));
	SHOW(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "", 0));
	SHOW(getsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, name, &length));
	printf("%d bytes\n", length);
	length = 16;
	SHOW(getsockopt(ends[0], IPPROTO_IP, IP_OPTIONS, name, &length));
	printf("%d bytes\n", length);
	int yes = 1, only = socket(AF_INET6, SOCK_DGRAM, 0), stream = socket(AF_INET6, SOCK_STREAM, 0);
	SHOW(setsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes));
	SHOW(connect(only, (struct sockaddr *)&here, sizeof here));
	SHOW(connect(stream, (struct sockaddr *)&here, sizeof here));
	here.sin_addr.s_addr = INADDR_ANY;
	SHOW(connect(ends[1], (struct sockaddr *)&here, sizeof here));
}

static const struct part PARTS[] = {
	{"passing", passing}, {"messages", messages}, {"packets", packets}, {"options", options}, {"bound", bound}, {0},
};

int main(int count, char **arguments)
{
	// The parent may have more descriptors open than the usual three.
	close_range(3, ~0u, 0);
	return run_part(PARTS, count, arguments);
}
