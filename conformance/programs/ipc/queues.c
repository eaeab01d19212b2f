// SPDX-License-Identifier: MIT OR Apache-2.0
// POSIX message queues.
#define _GNU_SOURCE
#include "holds.h"

#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char name[40];

static int ready(mqd_t queue)
{
	struct pollfd asked = {queue, POLLIN | POLLOUT, 0};
	poll(&asked, 1, 0);
	return asked.revents & (POLLIN | POLLOUT);
}

static void opening(int count, char **words)
{
	(void)count, (void)words;
	struct mq_attr wanted = {.mq_maxmsg = 3, .mq_msgsize = 20}, found;
	FAILS(mq_open(name, O_RDWR), ENOENT);
	FAILS(syscall(SYS_mq_open, "", O_RDWR | O_CREAT, 0600, NULL), ENOENT);
	FAILS(syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, NULL), EACCES);
	FAILS(syscall(SYS_mq_open, (char *)8, O_RDWR, 0, NULL), EFAULT);
	wanted.mq_maxmsg = 0;
	FAILS(mq_open(name, O_RDWR | O_CREAT, 0600, &wanted), EINVAL);
	wanted.mq_maxmsg = 3;
	umask(022);
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0660, &wanted);
	HOLDS(queue >= 0 && fcntl(queue, F_GETFD) == FD_CLOEXEC);
	FAILS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0660, &wanted), EEXIST);
	mqd_t reader = mq_open(name, O_RDONLY | O_NONBLOCK), writer = mq_open(name, O_WRONLY | O_CREAT, 0, NULL);
	HOLDS(reader >= 0 && writer >= 0 && mq_getattr(reader, &found) == 0);
	HOLDS(found.mq_flags == O_NONBLOCK && found.mq_maxmsg == 3 && found.mq_msgsize == 20 && found.mq_curmsgs == 0);
	char room[20];
	FAILS(mq_receive(reader, room, 20, NULL), EAGAIN);
	FAILS(mq_receive(reader, room, 19, NULL), EMSGSIZE);
	FAILS(mq_receive(writer, room, 20, NULL), EBADF);
	FAILS(mq_send(reader, "x", 1, 0), EBADF);
	FAILS(mq_send(writer, room, 21, 0), EMSGSIZE);
	FAILS(mq_send(writer, "x", 1, 32768), EINVAL);
	FAILS(mq_send(0, "x", 1, 0), EBADF);
	FAILS(mq_getattr(0, &found), EBADF);
	HOLDS(ready(queue) == POLLOUT && mq_send(writer, "low", 3, 1) == 0 && mq_send(writer, "high", 4, 9) == 0 && ready(queue) == (POLLIN | POLLOUT));
	HOLDS(mq_send(writer, "again", 5, 9) == 0 && ready(queue) == POLLIN && mq_getattr(queue, &found) == 0 && found.mq_curmsgs == 3);
	// Reading it as a file gives its state.
	char text[100] = "";
	HOLDS(read(reader, text, 11) == 11 && read(reader, text + 11, 80) == 49 && read(reader, text, 80) == 0);
	printf("%s", text);
	HOLDS(read(writer, text, 80) == -1 && errno == EBADF);
	struct timespec past = {1, 0}, wrong = {1, -1};
	FAILS(mq_timedsend(writer, "x", 1, 0, &past), ETIMEDOUT);
	FAILS(mq_timedsend(writer, "x", 1, 0, &wrong), EINVAL);
	unsigned priority = 0;
	HOLDS(mq_receive(reader, room, 20, &priority) == 4 && priority == 9 && !memcmp(room, "high", 4));
	HOLDS(mq_receive(reader, room, 20, NULL) == 5 && mq_receive(reader, room, 20, &priority) == 3 && priority == 1);
	FAILS(mq_timedreceive(queue, room, 20, NULL, &past), ETIMEDOUT);
	struct mq_attr flags = {.mq_flags = O_NONBLOCK};
	HOLDS(mq_setattr(queue, &flags, &found) == 0 && found.mq_flags == 0 && mq_getattr(queue, &found) == 0 && found.mq_flags == O_NONBLOCK);
	FAILS(mq_receive(queue, room, 20, NULL), EAGAIN);
	flags.mq_flags = 1;
	FAILS(syscall(SYS_mq_getsetattr, queue, &flags, NULL), EINVAL);
	HOLDS(mq_close(queue) == 0 && mq_unlink(name) == 0);
	FAILS(mq_unlink(name), ENOENT);
	FAILS(mq_open(name, O_RDWR), ENOENT);
	// Open descriptors keep the old queue; a new one of that name is another.
	queue = mq_open(name, O_RDWR | O_CREAT, 0600, NULL);
	HOLDS(mq_getattr(queue, &found) == 0 && found.mq_maxmsg == 10 && found.mq_msgsize == 8192);
	HOLDS(mq_send(writer, "x", 1, 0) == 0 && ready(queue) == POLLOUT && mq_receive(reader, room, 20, NULL) == 1 && mq_unlink(name) == 0);
}

static volatile int rings;
static siginfo_t told;

static void ring(int number, siginfo_t *information, void *context)
{
	(void)number, (void)context;
	rings++;
	told = *information;
}

static void waiting(int count, char **words)
{
	(void)count, (void)words;
	struct mq_attr wanted = {.mq_maxmsg = 1, .mq_msgsize = 8};
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &wanted);
	char room[8];
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		for (int at = 0; at < 20; at++)
			if (mq_send(queue, (char *)&at, sizeof at, 0) != 0)
				_exit(1);
		_exit(0);
	}
	int sum = 0, status;
	for (int at = 0, got; at < 20; at++)
		sum += mq_receive(queue, (char *)&got, 8, NULL) == sizeof got && got == at;
	HOLDS(sum == 20 && waitpid(child, &status, 0) == child && status == 0);
	child = fork();
	if (child == 0)
		_exit(mq_receive(queue, room, 8, NULL) == 3 ? 7 : 8);
	HOLDS(mq_send(queue, "end", 3, 0) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	// A signal for the first message.
	struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
	HOLDS(mq_notify(queue, &event) == 0);
	FAILS(mq_notify(queue, &event), EBUSY);
	child = fork();
	if (child == 0)
		_exit(mq_notify(queue, &event) == -1 && errno == EBUSY && mq_notify(queue, NULL) == 0 && mq_send(queue, "one", 3, 0) == 0 ? 5 : 6);
	HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
	HOLDS(rings == 1 && told.si_code == SI_MESGQ && told.si_pid == child && told.si_value.sival_int == 77);
	HOLDS(mq_receive(queue, room, 8, NULL) == 3 && mq_send(queue, "two", 3, 0) == 0 && rings == 1);
	HOLDS(mq_notify(queue, &event) == 0 && mq_receive(queue, room, 8, NULL) == 3 && mq_notify(queue, NULL) == 0);
	HOLDS(mq_send(queue, "two", 3, 0) == 0 && rings == 1);
	event.sigev_signo = 65;
	FAILS(mq_notify(queue, &event), EINVAL);
	event.sigev_notify = 77;
	FAILS(syscall(SYS_mq_notify, queue, &event), EINVAL);
	FAILS(mq_notify(0, NULL), EBADF);
	HOLDS(mq_receive(queue, room, 8, NULL) == 3);
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGALRM, &action, NULL);
	ualarm(5000, 5000);
	FAILS(mq_receive(queue, room, 8, NULL), EINTR);
	HOLDS(mq_unlink(name) == 0);
}

static const struct part PARTS[] = {{"opening", opening}, {"waiting", waiting}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	sprintf(name, "/pando-%d", (int)getpid());
	return run_part(PARTS, count, arguments);
}
