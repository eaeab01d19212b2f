// SPDX-License-Identifier: MIT OR Apache-2.0
// Pidfds: descriptors of processes.
#define _GNU_SOURCE
#include "holds.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_getfd 438
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif
#define BY_DESCRIPTOR ((idtype_t)3)

static int pidfd_open_(pid_t process, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, process, flags);
}

static int send_signal(int fd, int number, siginfo_t *information, unsigned flags)
{
	return (int)syscall(SYS_pidfd_send_signal, fd, number, information, flags);
}

static int readable(int fd, int timeout)
{
	struct pollfd asked = {fd, POLLIN, 0};
	return poll(&asked, 1, timeout) == 1 && asked.revents & POLLIN;
}

// A child that ends when its pipe is closed.
static pid_t waiter(int ends[2], int status)
{
	HOLDS(pipe2(ends, O_CLOEXEC) == 0);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		char room;
		close(ends[1]);
		read(ends[0], &room, 1);
		_exit(status);
	}
	return child;
}

static void ending(int count, char **words)
{
	(void)count, (void)words;
	int ends[2], status;
	pid_t child = waiter(ends, 7);
	int fd = pidfd_open_(child, 0), eager = pidfd_open_(child, O_NONBLOCK), watcher = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = 5};
	siginfo_t told = {0};
	HOLDS(fd >= 0 && eager >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(eager, F_GETFL) & O_NONBLOCK) != 0);
	HOLDS(epoll_ctl(watcher, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(watcher, &event, 1, 0) == 0 && !readable(fd, 0));
	FAILS(read(fd, &told, sizeof told), EINVAL);
	FAILS(write(fd, &told, sizeof told), EINVAL);
	FAILS(waitid(BY_DESCRIPTOR, (id_t)eager, &told, WEXITED), EAGAIN);
	HOLDS(waitid(BY_DESCRIPTOR, (id_t)fd, &told, WEXITED | WNOHANG) == 0 && told.si_pid == 0);
	HOLDS(send_signal(fd, 0, NULL, 0) == 0 && close(ends[1]) == 0);
	HOLDS(epoll_wait(watcher, &event, 1, -1) == 1 && event.data.u32 == 5 && epoll_wait(watcher, &event, 1, 0) == 0);
	HOLDS(readable(fd, -1) && readable(eager, 0) && send_signal(fd, 0, NULL, 0) == 0);
	HOLDS(waitid(BY_DESCRIPTOR, (id_t)fd, &told, WEXITED | WNOWAIT) == 0 && told.si_pid == child && told.si_code == CLD_EXITED);
	HOLDS(waitid(BY_DESCRIPTOR, (id_t)eager, &told, WEXITED) == 0 && told.si_status == 7 && told.si_signo == SIGCHLD);
	FAILS(waitid(BY_DESCRIPTOR, (id_t)fd, &told, WEXITED), ECHILD);
	FAILS(send_signal(fd, SIGTERM, NULL, 0), ESRCH);
	FAILS(pidfd_open_(child, 0), ESRCH);
	HOLDS(readable(fd, 0) && close(fd) == 0 && close(eager) == 0);
	FAILS(pidfd_open_(0, 0), EINVAL);
	FAILS(pidfd_open_(-1, 0), EINVAL);
	FAILS(pidfd_open_(getpid(), 1), EINVAL);
	FAILS(waitid(BY_DESCRIPTOR, (id_t)ends[0], &told, WEXITED), EBADF);
	FAILS(waitid(BY_DESCRIPTOR, (id_t)-1, &told, WEXITED), EINVAL);
	// A pidfd of the process itself, and of a child that is never waited for.
	fd = pidfd_open_(getpid(), 0);
	HOLDS(fd >= 0 && !readable(fd, 0) && close(fd) == 0);
	signal(SIGCHLD, SIG_IGN);
	child = waiter(ends, 0);
	fd = pidfd_open_(child, 0);
	HOLDS(close(ends[1]) == 0 && readable(fd, -1));
	FAILS(waitpid(child, &status, 0), ECHILD);
	FAILS(send_signal(fd, 0, NULL, 0), ESRCH);
}

static void sending(int count, char **words)
{
	(void)count, (void)words;
	int ends[2], others[2];
	pid_t child = waiter(ends, 7);
	int fd = pidfd_open_(child, 0);
	siginfo_t told = {.si_signo = SIGTERM, .si_code = SI_QUEUE};
	FAILS(send_signal(fd, SIGTERM, NULL, 0x100), EINVAL);
	FAILS(send_signal(fd, 65, NULL, 0), EINVAL);
	FAILS(send_signal(ends[0], SIGTERM, NULL, 0), EBADF);
	FAILS(send_signal(99, SIGTERM, NULL, 0), EBADF);
	FAILS(send_signal(fd, SIGHUP, &told, 0), EINVAL);
	FAILS(send_signal(fd, SIGTERM, (siginfo_t *)8, 0), EFAULT);
	told.si_code = SI_USER;
	FAILS(send_signal(fd, SIGTERM, &told, 0), EPERM);
	told.si_code = SI_QUEUE;
	// A directory of `/proc` also serves as a pidfd.
	char name[32];
	snprintf(name, sizeof name, "/proc/%d", child);
	int directory = open(name, O_RDONLY | O_DIRECTORY), all = open("/proc", O_RDONLY | O_DIRECTORY);
	HOLDS(directory >= 0 && send_signal(directory, 0, NULL, 0) == 0);
	FAILS(send_signal(all, SIGTERM, NULL, 0), EBADF);
	HOLDS(send_signal(directory, SIGTERM, &told, 0) == 0);
	HOLDS(waitid(BY_DESCRIPTOR, (id_t)fd, &told, WEXITED) == 0 && told.si_code == CLD_KILLED && told.si_status == SIGTERM);
	FAILS(send_signal(directory, 0, NULL, 0), ESRCH);
	close(fd), close(directory), close(all);
	// Descriptors of the other process.
	HOLDS(pipe(others) == 0);
	child = waiter(ends, 3);
	fd = pidfd_open_(child, 0);
	HOLDS(close(others[1]) == 0);
	int taken = (int)syscall(SYS_pidfd_getfd, fd, others[1], 0);
	HOLDS(taken >= 0 && fcntl(taken, F_GETFD) == FD_CLOEXEC && write(taken, "word", 4) == 4);
	char room[5] = "";
	HOLDS(read(others[0], room, 4) == 4 && !strcmp(room, "word"));
	FAILS(syscall(SYS_pidfd_getfd, fd, 99, 0), EBADF);
	FAILS(syscall(SYS_pidfd_getfd, fd, others[0], 1), EINVAL);
	FAILS(syscall(SYS_pidfd_getfd, ends[0], 0, 0), EBADF);
	HOLDS(close(ends[1]) == 0 && waitpid(child, NULL, 0) == child);
	FAILS(syscall(SYS_pidfd_getfd, fd, others[0], 0), ESRCH);
}

struct clone_arguments {
	uint64_t flags, pidfd, child_number, parent_number, signal, stack, stack_size, base;
};

static void cloning(int count, char **words)
{
	(void)count, (void)words;
	int fd = -1, status;
	struct clone_arguments wanted = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&fd, .signal = SIGCHLD};
	fflush(stdout);
	pid_t child = (pid_t)syscall(SYS_clone3, &wanted, sizeof wanted);
	if (child == 0)
		_exit(fd == -1 && fcntl(3, F_GETFD) == -1 ? 4 : 5);
	siginfo_t told = {0};
	HOLDS(child > 0 && fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC && waitid(BY_DESCRIPTOR, (id_t)fd, &told, WEXITED) == 0);
	HOLDS(told.si_pid == child && told.si_status == 4 && close(fd) == 0);
	child = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &fd, NULL, 0);
	if (child == 0)
		_exit(6);
	HOLDS(child > 0 && readable(fd, -1) && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 6);
	FAILS(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, NULL, &fd, NULL, 0), EINVAL);
	FAILS(syscall(SYS_clone, CLONE_PIDFD | 0x400000 | SIGCHLD, NULL, &fd, NULL, 0), EINVAL);
	FAILS(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, (void *)8, NULL, 0), EFAULT);
}

static const struct part PARTS[] = {{"ending", ending}, {"sending", sending}, {"cloning", cloning}, {0}};

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	return run_part(PARTS, count, arguments);
}
