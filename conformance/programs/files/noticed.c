// SPDX-License-Identifier: MIT OR Apache-2.0
// inotify events and signalfd signals. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

static const char *const NAMES[] = {"ACCESS", "MODIFY", "ATTRIB", "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN", "MOVED_FROM", "MOVED_TO", "CREATE",
	"DELETE", "DELETE_SELF", "MOVE_SELF", "?", "UNMOUNT", "OVERFLOW", "IGNORED"};

// Returns the number of an event's rename, from 1. Cookies themselves have gaps: all renames of the system are counted together.
static unsigned number_of(uint32_t cookie)
{
	static uint32_t last;
	static unsigned renames;
	if (cookie && cookie != last)
		last = cookie, renames++;
	return cookie ? renames : 0;
}

// Prints pending events.
static void events(const char *what, int notes)
{
	ssize_t got = read(notes, buffer, sizeof buffer);
	printf("%s:\n", what);
	for (ssize_t at = 0; at < got;) {
		struct inotify_event *event = (void *)(buffer + at);
		printf("  %d", event->wd);
		for (int bit = 0; bit < 16; bit++)
			if (event->mask >> bit & 1)
				printf(" %s", NAMES[bit]);
		printf("%s cookie %u length %u %s\n", event->mask & IN_ISDIR ? " ISDIR" : "", number_of(event->cookie), event->len,
			event->len ? event->name : "-");
		at += (ssize_t)(sizeof *event + event->len);
	}
	if (got < 0)
		printf("  %s\n", strerror(errno));
}

static void changes(int count, char **arguments)
{
	(void)count, (void)arguments;
	int notes = (int)SHOW(inotify_init1(IN_NONBLOCK));
	SHOW(mkdir("d", 0755));
	SHOW(mkdir("other", 0755));
	SHOW(inotify_add_watch(notes, "d", IN_ALL_EVENTS));
	SHOW(inotify_add_watch(notes, "other", IN_ALL_EVENTS));
	events("nothing", notes);
	int file = open("d/file", O_RDWR | O_CREAT, 0600);
	events("created", notes);
	SHOW(inotify_add_watch(notes, "d/file", IN_ALL_EVENTS));
	SHOW(write(file, "some text", 9));
	SHOW(write(file, "some text", 9));
	events("written twice", notes);
	SHOW(pread(file, buffer, 4, 0));
	SHOW(read(file, buffer, 4));
	events("read", notes);
	SHOW(ftruncate(file, 3));
	events("cut", notes);
	SHOW(truncate("d/file", 2));
	events("cut by name", notes);
	SHOW(fchmod(file, 0640));
	SHOW(chmod("d/file", 0644));
	events("permissions", notes);
	SHOW(utime("d/file", NULL));
	SHOW(futimens(file, NULL));
	events("times", notes);
	SHOW(chown("d/file", 1, 1));
	events("owner", notes);
	SHOW(setxattr("d/file", "user.x", "y", 1, 0));
	events("attribute", notes);
	SHOW(link("d/file", "d/link"));
	events("link", notes);
	SHOW(close(file));
	events("closed", notes);
	SHOW(close(open("d/file", O_RDONLY)));
	SHOW(close(open("d/file", O_WRONLY | O_TRUNC)));
	events("opened and closed", notes);
	SHOW(symlink("file", "d/symbolic"));
	SHOW(close(open("d/symbolic", O_RDONLY)));
	events("symbolic", notes);
	SHOW(mkdir("d/sub", 0755));
	SHOW(mkfifo("d/fifo", 0644));
	events("made", notes);
	SHOW(rename("d/file", "d/moved"));
	events("moved", notes);
	SHOW(rename("d/moved", "other/moved"));
	events("moved out", notes);
	SHOW(rename("d/sub", "other/sub"));
	events("directory moved", notes);
	SHOW(unlink("d/link"));
	events("one name less", notes);
	put("d/replaced", "x");
	SHOW(inotify_add_watch(notes, "d/replaced", IN_DELETE_SELF | IN_ATTRIB));
	events("put", notes);
	SHOW(rename("other/moved", "d/replaced"));
	events("replaced", notes);
	file = open("d/replaced", O_RDONLY);
	events("opened", notes);
	SHOW(unlink("d/replaced"));
	events("unlinked while open", notes);
	SHOW(close(file));
	events("closed", notes);
	SHOW(inotify_add_watch(notes, "other/sub", IN_ALL_EVENTS));
	SHOW(rmdir("other/sub"));
	events("directory removed", notes);
	DIR *directory = opendir("d");
	while (readdir(directory))
		;
	closedir(directory);
	events("listed", notes);
	SHOW(unlink("d/symbolic") + unlink("d/fifo"));
	SHOW(rmdir("d"));
	events("watched directory removed", notes);
	SHOW(rename("other", "another"));
	events("watched directory moved", notes);
	put("a", "x"), put("b", "x");
	SHOW(inotify_add_watch(notes, "a", IN_ALL_EVENTS));
	SHOW(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE));
	events("exchanged", notes);
}

static void watches(int count, char **arguments)
{
	(void)count, (void)arguments;
	int notes = (int)SHOW(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	SHOW(fcntl(notes, F_GETFL));
	SHOW(fcntl(notes, F_GETFD));
	SHOW(inotify_init1(1));
	SHOW(inotify_init());
	put("file", "text");
	SHOW(symlink("file", "symbolic"));
	SHOW(inotify_add_watch(notes, "none", IN_OPEN));
	SHOW(inotify_add_watch(notes, "file", 0));
	SHOW(inotify_add_watch(notes, "file", IN_ONLYDIR | IN_OPEN));
	SHOW(inotify_add_watch(notes, "file", IN_MASK_ADD | IN_MASK_CREATE | IN_OPEN));
	SHOW(inotify_add_watch(99, "file", IN_OPEN));
	SHOW(inotify_add_watch(0, "file", IN_OPEN));
	SHOW(inotify_add_watch(notes, nowhere, IN_OPEN));
	SHOW(inotify_rm_watch(notes, 1));
	SHOW(inotify_rm_watch(99, 1));
	SHOW(inotify_rm_watch(0, 1));
	SHOW(inotify_add_watch(notes, "file", IN_OPEN));
	SHOW(inotify_add_watch(notes, "symbolic", IN_CLOSE));
	SHOW(close(open("file", O_RDONLY)));
	events("mask replaced", notes);
	SHOW(inotify_add_watch(notes, "file", IN_OPEN | IN_MASK_ADD));
	SHOW(inotify_add_watch(notes, "file", IN_OPEN | IN_MASK_CREATE));
	SHOW(close(open("file", O_RDONLY)));
	int waiting = 0;
	SHOW(ioctl(notes, FIONREAD, &waiting));
	printf("%d\n", waiting);
	SHOW(read(notes, buffer, 15));
	SHOW(read(notes, buffer, 17));
	struct pollfd polled = {notes, POLLIN | POLLOUT | POLLRDNORM, 0};
	SHOW(poll(&polled, 1, 0));
	printf("%x\n", polled.revents);
	events("mask added to", notes);
	SHOW(poll(&polled, 1, 0));
	SHOW(inotify_add_watch(notes, "symbolic", IN_OPEN | IN_DONT_FOLLOW));
	SHOW(inotify_rm_watch(notes, 1));
	events("removed", notes);
	SHOW(inotify_add_watch(notes, ".", IN_CREATE | IN_ONESHOT | IN_ONLYDIR));
	put("one", ""), put("two", "");
	events("one shot", notes);
	SHOW(inotify_add_watch(notes, ".", IN_CREATE | IN_DELETE));
	for (int at = 0; at < 40; at++) {
		char name[200];
		snprintf(name, sizeof name, "%0*d", at + 1, at);
		close(open(name, O_CREAT | O_WRONLY, 0600));
		unlink(name);
	}
	SHOW(read(notes, buffer, 100));
	SHOW(read(notes, buffer, sizeof buffer));
	for (int at = 0; at < 17000; at++) {
		close(open(at % 2 ? "odd" : "even", O_CREAT | O_WRONLY, 0600));
		unlink(at % 2 ? "odd" : "even");
	}
	SHOW(ioctl(notes, FIONREAD, &waiting));
	printf("%d\n", waiting);
	SHOW(read(notes, buffer, sizeof buffer));
	struct inotify_event *last = (void *)(buffer + waiting - 16);
	printf("%d %x %u\n", last->wd, last->mask, last->len);
	SHOW(write(notes, "x", 1));
	SHOW(lseek(notes, 0, SEEK_SET));
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", notes);
	SHOW(readlink(path, buffer, sizeof buffer));
	printf("%.18s\n", buffer);
	int epoll = epoll_create1(0);
	struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 7}};
	SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, notes, &event));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	put("three", "");
	SHOW(epoll_wait(epoll, &event, 1, -1));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	put("four", "");
	SHOW(epoll_wait(epoll, &event, 1, -1));
}

static void ring(int number)
{
	printf("handled %d\n", number);
}

static void shown(const char *what, int fd)
{
	struct signalfd_siginfo told[3];
	ssize_t got = read(fd, told, sizeof told);
	printf("%s: %zd\n", what, got);
	for (int at = 0; got > 0 && at < got / (ssize_t)sizeof *told; at++)
		printf("  signal %u code %d from %d by %u value %d %lx timer %u overrun %u\n", told[at].ssi_signo, told[at].ssi_code,
			told[at].ssi_pid == (uint32_t)getpid() ? 1 : (int)told[at].ssi_pid, told[at].ssi_uid, told[at].ssi_int, (unsigned long)told[at].ssi_ptr,
			told[at].ssi_tid, told[at].ssi_overrun);
}

static void queue(int number, int value)
{
	siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};
	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = value;
	SHOW(syscall(SYS_rt_sigqueueinfo, getpid(), number, &info));
}

static void signals(int count, char **arguments)
{
	(void)count, (void)arguments;
	sigset_t set, more;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 3);
	sigaddset(&set, SIGKILL);
	more = set;
	sigaddset(&more, SIGALRM);
	sigaddset(&more, SIGINT);
	sigprocmask(SIG_BLOCK, &more, NULL);
	int fd = (int)SHOW(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
	SHOW(fcntl(fd, F_GETFL));
	SHOW(fcntl(fd, F_GETFD));
	struct pollfd polled = {fd, POLLIN | POLLOUT, 0};
	SHOW(poll(&polled, 1, 0));
	shown("none", fd);
	SHOW(read(fd, buffer, 127));
	SHOW(kill(getpid(), SIGUSR1));
	SHOW(kill(getpid(), SIGINT));
	SHOW(read(fd, buffer, 127));
	SHOW(poll(&polled, 1, -1));
	printf("%x\n", polled.revents);
	SHOW(read(fd, nowhere, 128));
	shown("one", fd);
	queue(SIGRTMIN + 3, 5), queue(SIGRTMIN + 3, 6), queue(SIGUSR1, 7), queue(SIGUSR1, 8);
	shown("several", fd);
	SHOW(poll(&polled, 1, 0));
	SHOW(signalfd(fd, &more, 0));
	shown("another set", fd);
	SHOW(signalfd(0, &more, 0));
	SHOW(signalfd(99, &more, 0));
	SHOW(signalfd(-1, &more, 1));
	SHOW(syscall(SYS_signalfd4, -1, &more, 4, 0));
	SHOW(syscall(SYS_signalfd4, -1, nowhere, 8, 0));
	SHOW(syscall(SYS_signalfd, -1, &more, 8) > 0);
	SHOW(write(fd, "x", 1));
	SHOW(lseek(fd, 0, SEEK_SET));
	int epoll = epoll_create1(0);
	struct epoll_event event = {EPOLLIN | EPOLLET, {.u64 = 7}};
	SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	struct itimerval timer = {{0, 0}, {0, 20000}};
	SHOW(setitimer(ITIMER_REAL, &timer, NULL));
	SHOW(epoll_wait(epoll, &event, 1, -1));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	shown("alarm", fd);
	SHOW(raise(SIGUSR1));
	SHOW(epoll_wait(epoll, &event, 1, 0));
	shown("raised", fd);
	// A signal reaches either a handler or this descriptor, never both.
	struct sigaction action = {.sa_handler = ring};
	sigaction(SIGUSR1, &action, NULL);
	SHOW(raise(SIGUSR1));
	shown("taken from the handler", fd);
	SHOW(raise(SIGUSR1));
	sigprocmask(SIG_UNBLOCK, &more, NULL);
	shown("left by the handler", fd);
	sigprocmask(SIG_BLOCK, &more, NULL);
	SHOW(fcntl(fd, F_SETFL, 0));
	SHOW(setitimer(ITIMER_REAL, &timer, NULL));
	shown("waited for", fd);
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	SHOW(readlink(path, buffer, sizeof buffer));
	printf("%.21s\n", buffer);
}

static const struct part PARTS[] = {{"changes", changes}, {"watches", watches}, {"signals", signals}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
