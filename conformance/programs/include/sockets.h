// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by test programs with sockets.
#ifndef SOCKETS_H
#define SOCKETS_H

#include "tree.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

// Prints the readiness of a descriptor.
static inline void ready(const char *name, int fd)
{
	struct pollfd asked = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI | POLLRDNORM | POLLWRNORM | POLLWRBAND};
	int answer = poll(&asked, 1, 0);
	printf("%s is ready for %#x (%d)\n", name, asked.revents, answer);
}

static inline int pair_of(int type, int ends[2])
{
	return socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, ends);
}

#endif
