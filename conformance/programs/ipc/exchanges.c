// SPDX-License-Identifier: MIT OR Apache-2.0
// Data exchanged through pipes, sockets, queues and terminals, and the notifications about it.
#define _GNU_SOURCE
#include "show.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static char block[200000] __attribute__((aligned(4096)));
static volatile int signals;

static void count(int signal)
{
	(void)signal;
	signals++;
}

// Waits until another process blocks, or has ended: it has entered its call once it no longer runs.
static void let_wait(pid_t process)
{
	char name[64], state = 'R';
	snprintf(name, sizeof name, "/proc/%d/stat", process);
	while (state == 'R') {
		FILE *file = fopen(name, "r");
		if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
			state = 'S';
		if (file)
			fclose(file);
		sched_yield();
	}
}

// A pipe that breaks during a write: a short count, and the signal.
static void broken(void)
{
	int ends[2];
	signal(SIGPIPE, count);
	if (pipe(ends))
		return;
	pid_t writer = fork();
	if (writer == 0) {
		close(ends[0]);
		SHOW(write(ends[1], block, sizeof block));
		printf("%d signals\n", signals);
		fflush(stdout);
		_exit(0);
	}
	let_wait(writer);
	close(ends[1]);
	close(ends[0]);
	waitpid(writer, NULL, 0);
}

// Invalid splices are refused at once; a write to a pipe waits for any room, not for room for all data.
static void spliced(void)
{
	int ends[2], more[2];
	if (pipe(ends) || pipe(more))
		return;
	SHOW(splice(ends[0], NULL, epoll_create1(0), NULL, 1, 0));
	SHOW(splice(ends[0], NULL, eventfd(0, 0), NULL, 1, 0));
	SHOW(splice(eventfd(0, 0), NULL, ends[1], NULL, 1, 0));
	struct iovec all = {block, 131072};
	SHOW(vmsplice(ends[1], &all, 1, 0));
	SHOW(vmsplice(ends[1], &all, 1, SPLICE_F_NONBLOCK));
	SHOW(read(ends[0], block, sizeof block));
	// Parts of pages occupy whole pages.
	struct iovec pieces[] = {{block + 100, 4096}, {block + 10, 20}, {block, 131072}};
	SHOW(vmsplice(ends[1], pieces, 3, 0));
	SHOW(read(ends[0], block, sizeof block));
	pieces[0].iov_base = NULL;
	SHOW(vmsplice(ends[1], pieces, 1, 0));
}

static volatile int given;

static void on_thread(union sigval value)
{
	given = value.sival_int;
	signals++;
}

// A message without a waiting receiver is notified: by a signal, even if a process polls, and by a thread.
static void notified(void)
{
	struct mq_attr wanted = {.mq_maxmsg = 3, .mq_msgsize = 8};
	char text[8];
	mq_unlink("/exchanges");
	mqd_t queue = mq_open("/exchanges", O_CREAT | O_RDWR, 0600, &wanted);
	signal(SIGUSR1, count);
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	SHOW(mq_notify(queue, &event));
	pid_t poller = fork();
	if (poller == 0) {
		struct pollfd poll_for = {queue, POLLIN, 0};
		_exit(poll(&poll_for, 1, -1));
	}
	let_wait(poller);
	SHOW(mq_send(queue, "one", 3, 0));
	waitpid(poller, NULL, 0);
	SHOW(signals);
	SHOW(mq_receive(queue, text, sizeof text, NULL));
	SHOW(mq_notify(queue, &event));
	pid_t receiver = fork();
	if (receiver == 0)
		_exit(mq_receive(queue, text, sizeof text, NULL));
	let_wait(receiver);
	SHOW(mq_send(queue, "two", 3, 0));
	waitpid(receiver, NULL, 0);
	SHOW(signals);
	SHOW(mq_notify(queue, NULL));
	struct sigevent by_thread = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_thread, .sigev_value = {.sival_int = 7}};
	SHOW(mq_notify(queue, &by_thread));
	SHOW(mq_notify(queue, &event));
	SHOW(mq_send(queue, "three", 5, 0));
	while (signals < 2)
		sched_yield();
	SHOW(given);
	SHOW(mq_receive(queue, text, sizeof text, NULL));
	SHOW(mq_notify(queue, &by_thread));
	SHOW(mq_close(queue));
	SHOW(mq_unlink("/exchanges"));
}

// One of several exclusive waiters is woken; when the other end closes, all are.
static void exclusive(void)
{
	enum { WAITERS = 4 };
	int ends[2], ready[2], woken = 0, status;
	pid_t children[WAITERS];
	if (pipe(ends) || pipe(ready))
		return;
	for (int at = 0; at < WAITERS; at++)
		if ((children[at] = fork()) == 0) {
			close(ends[1]);
			int watcher = epoll_create1(0);
			struct epoll_event event = {.events = EPOLLIN | EPOLLET | EPOLLEXCLUSIVE};
			epoll_ctl(watcher, EPOLL_CTL_ADD, ends[0], &event);
			epoll_wait(watcher, &event, 1, -1);
			char byte = event.events & EPOLLHUP ? 'h' : 'i';
			if (write(ready[1], &byte, 1) != 1)
				_exit(1);
			_exit(0);
		}
	for (int at = 0; at < WAITERS; at++)
		let_wait(children[at]);
	SHOW(write(ends[1], "x", 1));
	char told[WAITERS + 1] = "";
	SHOW(read(ready[0], told, 1));
	while (wait(&status) > 0 && ++woken < 1)
		;
	close(ends[1]);
	for (int at = 1; at < WAITERS; at++)
		SHOW(read(ready[0], told + at, 1));
	while (wait(&status) > 0)
		;
	printf("%s\n", told);
}

// Control messages with the sender's credentials, and flags of a message.
static void senders(void)
{
	int pair[2], on = 1;
	char byte, control[256];
	static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
	for (size_t at = 0; at < 3; at++) {
		if (socketpair(AF_UNIX, kinds[at], 0, pair))
			return;
		SHOW(write(pair[0], "a", 1));
		SHOW(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
		SHOW(write(pair[0], "b", 1));
		for (int message = 0; message < 2; message++) {
			struct iovec room = {&byte, 1};
			struct msghdr header = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
			SHOW(recvmsg(pair[1], &header, 0));
			struct cmsghdr *part = CMSG_FIRSTHDR(&header);
			struct ucred *who = part ? (void *)CMSG_DATA(part) : NULL;
			printf("flags %#x, process %d, user %d\n", header.msg_flags & ~MSG_CMSG_CLOEXEC, who ? who->pid == getpid() : -1, who ? (int)who->uid : -1);
		}
	}
}

// Datagrams that are corked.
static void corked(void)
{
	int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0), on = 1, off = 0;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	char bytes[20];
	bind(receiver, (void *)&address, length);
	getsockname(receiver, (void *)&address, &length);
	SHOW(send(sender, "abc", 3, MSG_MORE));
	SHOW(sendto(sender, "abc", 3, MSG_MORE, (void *)&address, length));
	SHOW(recv(receiver, bytes, sizeof bytes, MSG_DONTWAIT));
	SHOW(connect(sender, (void *)&address, length));
	SHOW(send(sender, "def", 3, 0));
	SHOW(recv(receiver, bytes, sizeof bytes, 0));
	SHOW(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
	SHOW(send(sender, "ghi", 3, 0));
	SHOW(send(sender, "jk", 2, 0));
	SHOW(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
	SHOW(recv(receiver, bytes, sizeof bytes, 0));
	SHOW(send(sender, block, 60000, MSG_MORE));
	SHOW(send(sender, block, 60000, 0));
	SHOW(send(sender, "l", 1, 0));
	SHOW(recv(receiver, bytes, sizeof bytes, 0));
}

// A connection to the socket itself, and a datagram without a receiver.
static void nobody(void)
{
	int both = socket(AF_INET, SOCK_STREAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0), receiver = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	char bytes[20], control[256];
	bind(both, (void *)&address, length);
	getsockname(both, (void *)&address, &length);
	SHOW(connect(both, (void *)&address, length));
	SHOW(write(both, "abc", 3));
	SHOW(read(both, bytes, sizeof bytes));
	SHOW(shutdown(both, SHUT_WR));
	SHOW(read(both, bytes, sizeof bytes));
	SHOW(close(both));
	address.sin_port = 0;
	bind(receiver, (void *)&address, length);
	getsockname(receiver, (void *)&address, &length);
	close(receiver);
	SHOW(sendto(sender, "abc", 3, 0, (void *)&address, length));
	SHOW(recv(sender, bytes, sizeof bytes, MSG_DONTWAIT));
	SHOW(setsockopt(sender, IPPROTO_IP, IP_RECVERR, &on, sizeof on));
	SHOW(sendto(sender, "abc", 3, 0, (void *)&address, length));
	SHOW(recv(sender, bytes, sizeof bytes, MSG_DONTWAIT));
	struct sockaddr_in from;
	struct iovec room = {bytes, sizeof bytes};
	struct msghdr header = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &room, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	SHOW(recvmsg(sender, &header, MSG_ERRQUEUE));
	struct cmsghdr *part = CMSG_FIRSTHDR(&header);
	// An error, its origin and its cause; then the offender's address.
	struct { uint32_t number; uint8_t origin, kind, code, pad; } *error = part ? (void *)CMSG_DATA(part) : NULL;
	printf("flags %#x, to the port: %d, %.3s\n", header.msg_flags, from.sin_port == address.sin_port, bytes);
	if (error)
		printf("%s, origin %d, kind %d, code %d\n", strerror(error->number), error->origin, error->kind, error->code);
	SHOW(recvmsg(sender, &header, MSG_ERRQUEUE));
}

static int open_terminal(int *master)
{
	*master = posix_openpt(O_RDWR | O_NOCTTY);
	grantpt(*master);
	unlockpt(*master);
	int terminal = open(ptsname(*master), O_RDWR | O_NOCTTY);
	struct termios settings;
	tcgetattr(terminal, &settings);
	settings.c_lflag &= ~ECHO;
	tcsetattr(terminal, TCSANOW, &settings);
	return terminal;
}

static void nothing(int signal)
{
	(void)signal;
}

// Unread lines wait, and are not lost.
static void lines(void)
{
	int master, terminal = open_terminal(&master);
	char line[256];
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\n';
	for (int at = 0; at < 40; at++)
		if (write(master, line, sizeof line) != sizeof line)
			printf("line %d does not fit\n", at);
	long sum = 0;
	for (int at = 0; at < 40; at++)
		sum += read(terminal, block, sizeof block);
	printf("%ld bytes\n", sum);
	// An unterminated line loses its excess characters, but not its end.
	memset(block, 'y', 6000);
	SHOW(write(master, block, 6000));
	SHOW(write(master, "z\n", 2));
	SHOW(read(terminal, block, sizeof block));
	printf("%c\n", block[4094]);
	// An end of file without a line is one read.
	SHOW(write(master, "\004", 1));
	SHOW(read(terminal, block, sizeof block));
}

// A writer that waits for room continues when the input queue is flushed.
static void flushed(void)
{
	int master, terminal = open_terminal(&master);
	struct termios settings;
	tcgetattr(terminal, &settings);
	cfmakeraw(&settings);
	tcsetattr(terminal, TCSANOW, &settings);
	memset(block, 'x', sizeof block);
	pid_t writer = fork();
	if (writer == 0) {
		long done = 0;
		while (done < 150000)
			done += write(master, block, 150000 - done);
		_exit(done == 150000);
	}
	int status, ended = 0;
	struct sigaction action = {.sa_handler = nothing};
	sigaction(SIGCHLD, &action, NULL);
	for (int at = 0; at < 1000 && !ended; at++) {
		let_wait(writer);
		if (ioctl(terminal, TCFLSH, TCIFLUSH))
			printf("cannot flush\n");
		ended = waitpid(writer, &status, WNOHANG) == writer;
	}
	printf("the writer went on: %d\n", ended && WEXITSTATUS(status) == 1);
	if (!ended)
		kill(writer, SIGKILL);
}

int main(int number, char **arguments)
{
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{"broken", broken}, {"spliced", spliced}, {"notified", notified}, {"exclusive", exclusive}, {"senders", senders}, {"corked", corked},
		{"nobody", nobody}, {"lines", lines}, {"flushed", flushed},
	};
	for (size_t at = 0; number > 1 && at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(arguments[1], parts[at].name))
			parts[at].run();
	fflush(stdout);
	return 0;
}
