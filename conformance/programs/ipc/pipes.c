// SPDX-License-Identifier: MIT OR Apache-2.0
// Pipes, FIFOs, event counters, and waiting for them, within one process. Starts in an empty directory, and prints the
// results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void pipes(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], other[2];
	SHOW(pipe(ends));
	printf("%d %d\n", ends[0], ends[1]);
	SHOW(write(ends[1], "some text", 9));
	int waiting = -1;
	SHOW(ioctl(ends[0], FIONREAD, &waiting));
	printf("%d waiting\n", waiting);
	SHOW(read(ends[0], buffer, 4));
	SHOW(read(ends[0], buffer, 100));
	SHOW(read(ends[1], buffer, 1));
	SHOW(write(ends[0], buffer, 1));
	SHOW(read(ends[0], buffer, 0));
	SHOW(pread(ends[0], buffer, 1, 0));
	SHOW(pwrite(ends[1], buffer, 1, 0));
	SHOW(lseek(ends[0], 0, SEEK_CUR));
	SHOW(write(ends[1], nowhere, 10));
	SHOW(pipe2(other, O_NONBLOCK | O_CLOEXEC));
	SHOW(fcntl(other[0], F_GETFL));
	SHOW(fcntl(other[1], F_GETFL));
	SHOW(fcntl(other[1], F_GETFD));
	SHOW(pipe2(other + 0, 0x10));
	SHOW(read(other[0], buffer, 1));
	SHOW(fcntl(other[0], F_GETPIPE_SZ));
	SHOW(write(other[1], buffer, 60000));
	SHOW(write(other[1], buffer, 4096));
	SHOW(write(other[1], buffer, 4096));
	SHOW(write(other[1], buffer, 10000));
	SHOW(write(other[1], buffer, 4000));
	SHOW(read(other[0], buffer, 65536));
	SHOW(write(other[1], buffer, 100000));
	SHOW(fcntl(other[0], F_SETPIPE_SZ, 4096));
	SHOW(fcntl(other[0], F_SETPIPE_SZ, 100000));
	SHOW(write(other[1], buffer, 100000));
	struct iovec parts[] = {{"one", 3}, {"two", 3}};
	SHOW(read(other[0], buffer, sizeof buffer));
	SHOW(writev(other[1], parts, 2));
	struct iovec rooms[] = {{buffer, 4}, {buffer + 10, 100}};
	SHOW(readv(other[0], rooms, 2));
	printf("%.4s %.2s\n", buffer, buffer + 10);
	struct stat found;
	SHOW(fstat(other[0], &found) == 0 && S_ISFIFO(found.st_mode) && found.st_size == 0 && found.st_nlink == 1);
	printf("%o\n", found.st_mode);
	SHOW(close(other[1]));
	SHOW(read(other[0], buffer, 1));
	SHOW(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	SHOW(close(ends[0]));
	SHOW(write(ends[1], "x", 1));
	SHOW(pipe(ends));
	int copy = dup(ends[1]);
	SHOW(close(ends[1]));
	SHOW(write(copy, "copied", 6));
	SHOW(read(ends[0], buffer, 100));
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
	int writer = (int)SHOW(open(path, O_WRONLY));
	SHOW(readlink(path, buffer, sizeof buffer) > 0 && !memcmp(buffer, "pipe:[", 6));
	SHOW(write(writer, "again", 5));
	SHOW(read(ends[0], buffer, 100));
}

static void fifos(int count, char **arguments)
{
	(void)count, (void)arguments;
	SHOW(mkfifo("fifo", 0644));
	SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
	int reader = SHOW(open("fifo", O_RDONLY | O_NONBLOCK));
	SHOW(read(reader, buffer, 10));
	int writer = SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
	SHOW(read(reader, buffer, 10));
	SHOW(write(writer, "through", 7));
	SHOW(read(reader, buffer, 10));
	int both = SHOW(open("fifo", O_RDWR));
	SHOW(write(both, "itself", 6));
	SHOW(read(both, buffer, 10));
	struct stat found, same;
	SHOW(fstat(both, &found) == 0 && stat("fifo", &same) == 0 && found.st_ino == same.st_ino);
	SHOW(unlink("fifo"));
	SHOW(write(writer, "still", 5));
	SHOW(read(reader, buffer, 10));
	SHOW(close(both) + close(writer));
	SHOW(read(reader, buffer, 10));
	SHOW(mkfifo("fifo", 0600));
	SHOW(open("fifo", O_RDWR | O_TRUNC) > 0);
	SHOW(truncate("fifo", 0));
}

static void events(int count, char **arguments)
{
	(void)count, (void)arguments;
	uint64_t number = 0;
	int event = SHOW(eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC));
	SHOW(read(event, &number, 8));
	printf("%lu\n", number);
	SHOW(read(event, &number, 8));
	SHOW(read(event, &number, 7));
	number = 5;
	SHOW(write(event, &number, 8));
	SHOW(write(event, &number, 8));
	SHOW(write(event, &number, 7));
	SHOW(read(event, buffer, 100));
	printf("%lu\n", number);
	number = UINT64_MAX;
	SHOW(write(event, &number, 8));
	number = UINT64_MAX - 1;
	SHOW(write(event, &number, 8));
	number = 1;
	SHOW(write(event, &number, 8));
	struct pollfd polled = {event, POLLIN | POLLOUT, 0};
	SHOW(poll(&polled, 1, 0));
	printf("%x\n", polled.revents);
	int steps = SHOW(eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK));
	SHOW(read(steps, &number, 8));
	printf("%lu\n", number);
	SHOW(read(steps, &number, 8));
	SHOW(read(steps, &number, 8));
	polled.fd = steps;
	SHOW(poll(&polled, 1, 0));
	printf("%x\n", polled.revents);
	SHOW(lseek(event, 0, SEEK_SET));
	SHOW(pread(event, &number, 8, 0));
	SHOW(eventfd(0, 0x40));
	SHOW(syscall(SYS_eventfd, 1));
	struct stat found;
	SHOW(fstat(event, &found) == 0 && found.st_size == 0 && found.st_nlink == 1);
	printf("%o\n", found.st_mode);
	SHOW(readlink("/proc/self/fd/3", buffer, sizeof buffer));
	printf("%.20s\n", buffer);
	SHOW(open("/proc/self/fd/3", O_RDWR));
	SHOW(fcntl(event, F_GETFL));
}

static void waiting(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2], file = open("file", O_RDWR | O_CREAT, 0600), name = open("file", O_PATH), directory = open(".", O_RDONLY);
	SHOW(pipe(ends));
	struct pollfd polled[] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}, {file, POLLIN | POLLOUT | POLLPRI, 0}, {name, POLLIN, 0},
		{directory, POLLIN | POLLOUT, 0}, {99, POLLIN, 0}, {-1, POLLIN, 9}};
	SHOW(poll(polled, 7, 0));
	for (int at = 0; at < 7; at++)
		printf(" %x", polled[at].revents);
	puts("");
	SHOW(poll(polled, 1, 10));
	SHOW(write(ends[1], buffer, 65536));
	SHOW(poll(polled, 2, -1));
	printf("%x %x\n", polled[0].revents, polled[1].revents);
	SHOW(poll(polled + 1, 1, 10));
	SHOW(read(ends[0], buffer, 4096));
	SHOW(poll(polled, 2, -1));
	printf("%x %x\n", polled[0].revents, polled[1].revents);
	fd_set reading, writing;
	FD_ZERO(&reading);
	FD_SET(ends[0], &reading), FD_SET(file, &reading);
	FD_ZERO(&writing);
	FD_SET(ends[1], &writing);
	SHOW(select(20, &reading, &writing, NULL, NULL));
	printf("%d %d %d\n", FD_ISSET(ends[0], &reading) != 0, FD_ISSET(file, &reading) != 0, FD_ISSET(ends[1], &writing) != 0);
	SHOW(close(ends[1]));
	SHOW(poll(polled, 1, -1));
	printf("%x\n", polled[0].revents);
	SHOW(read(ends[0], buffer, sizeof buffer));
	SHOW(poll(polled, 1, -1));
	printf("%x\n", polled[0].revents);
	polled[0].events = 0;
	SHOW(poll(polled, 1, -1));
	SHOW(pipe(ends));
	SHOW(close(ends[0]));
	polled[1].fd = ends[1];
	SHOW(poll(polled + 1, 1, -1));
	printf("%x\n", polled[1].revents);
	struct timeval soon = {0, 20000};
	FD_ZERO(&reading);
	SHOW(select(0, NULL, NULL, NULL, &soon));
	// Beyond the first 64 descriptors Linux checks only as many as the process has ever had.
	FD_SET(60, &reading);
	SHOW(select(61, &reading, NULL, NULL, &soon));
	SHOW(select(-1, NULL, NULL, NULL, NULL));
	// No set is longer than the descriptor table, whatever the argument.
	fd_set many;
	memset(&many, 0, sizeof many);
	FD_SET(1000, &many);
	SHOW(select(1024, &many, NULL, NULL, &(struct timeval){0}));
	int far = dup2(0, 65);
	SHOW(FD_ISSET(1000, &many)), FD_SET(66, &many);
	SHOW(select(1024, &many, NULL, NULL, &(struct timeval){0}));
	FD_CLR(66, &many);
	SHOW(select(1024, &many, NULL, NULL, &(struct timeval){0}));
	SHOW(FD_ISSET(1000, &many)), SHOW(close(far));
	SHOW(poll(NULL, 0, 5));
	SHOW(poll(nowhere, 1, 5));
}

static void descriptors(int count, char **arguments)
{
	(void)count, (void)arguments;
	// The parent may have left some open.
	syscall(SYS_close_range, 3, ~0u, 0);
	put("file", "0123456789");
	int file = SHOW(open("file", O_RDWR | O_APPEND | O_CLOEXEC));
	SHOW(fcntl(file, F_GETFL));
	SHOW(fcntl(open("file", O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_SYNC), F_GETFL));
	SHOW(fcntl(open("file", O_PATH), F_GETFL));
	SHOW(fcntl(open(".", O_PATH | O_DIRECTORY), F_GETFL));
	SHOW(fcntl(open(".", O_RDONLY | O_DIRECTORY), F_GETFL));
	SHOW(fcntl(open(".", O_TMPFILE | O_RDWR, 0600), F_GETFL));
	SHOW(fcntl(file, F_SETFL, O_NONBLOCK | O_RDONLY));
	SHOW(fcntl(file, F_GETFL));
	SHOW(fcntl(file, F_SETLEASE, F_RDLCK) >= -1);
	SHOW(fcntl(file, 9999));
	SHOW(fcntl(file, F_GETPIPE_SZ));
	SHOW(dup2(file, 20));
	SHOW(dup2(20, 21));
	SHOW(fcntl(20, F_GETFD));
	SHOW(dup3(20, 22, O_CLOEXEC));
	SHOW(fcntl(22, F_GETFD));
	SHOW(dup3(20, 22, 1));
	SHOW(dup2(20, -1));
	SHOW(dup2(20, 100000));
	SHOW(syscall(SYS_close_range, 20, 21, 0));
	SHOW(fcntl(20, F_GETFD));
	SHOW(fcntl(22, F_GETFD));
	SHOW(fcntl(22, F_SETFD, 0));
	SHOW(syscall(SYS_close_range, 20, ~0u, 4));
	SHOW(fcntl(22, F_GETFD));
	SHOW(syscall(SYS_close_range, 9, 8, 0));
	SHOW(syscall(SYS_close_range, 8, 9, 64));
	char path[100];
	snprintf(path, sizeof path, "/dev/fd/%d", file);
	int again = SHOW(open(path, O_RDONLY));
	SHOW(read(again, buffer, 4));
	SHOW(lseek(file, 0, SEEK_CUR));
	SHOW(open("/proc/self/fd/99", O_RDONLY));
	SHOW(open("/proc/self/fd/x", O_RDONLY));
	SHOW(unlink("file"));
	SHOW(read(open(path, O_RDONLY), buffer, 100));
	SHOW(access(path, F_OK));
	ssize_t got = readlink(path, buffer, sizeof buffer);
	SHOW(got > 10 && !memcmp(buffer + got - 10, " (deleted)", 10));
	int memory = SHOW(memfd_create("some name", MFD_CLOEXEC));
	SHOW(write(memory, "in memory", 9));
	SHOW(ftruncate(memory, 100000));
	SHOW(lseek(memory, 0, SEEK_END));
	snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
	got = readlink(path, buffer, sizeof buffer);
	printf("%.*s\n", (int)got, buffer);
	SHOW(read(open(path, O_RDONLY), buffer, 9));
	struct stat found;
	SHOW(fstat(memory, &found) == 0 && found.st_nlink == 0 && S_ISREG(found.st_mode));
	printf("%o\n", found.st_mode);
	SHOW(memfd_create("x", 0x4000));
	int null = SHOW(open("/dev/null", O_RDWR));
	SHOW(write(null, "x", 1));
	SHOW(read(null, buffer, 1));
	SHOW(lseek(null, 10, SEEK_SET));
	SHOW(ftruncate(null, 0));
	SHOW(fsync(null));
	SHOW(open("/dev/null", O_WRONLY | O_TRUNC | O_CREAT, 0600) > 0);
	SHOW(write(open("/dev/full", O_WRONLY), "x", 1));
	memset(buffer, 'x', 10);
	SHOW(read(open("/dev/zero", O_RDONLY), buffer, 8));
	printf("%d %d\n", buffer[7], buffer[8]);
	SHOW(read(open("/dev/urandom", O_RDONLY), buffer, 100));
	SHOW(stat("/dev/null", &found) == 0 && found.st_rdev == 0x103 && S_ISCHR(found.st_mode));
	SHOW(open("/dev/null/x", O_RDONLY));
	SHOW(open("/dev/none", O_RDONLY));
}

static void packets(int count, char **arguments)
{
	(void)count, (void)arguments;
	int ends[2];
	char buffer[10000] = "", other[10];
	SHOW(pipe2(ends, O_DIRECT | O_NONBLOCK));
	SHOW((fcntl(ends[1], F_GETFL) & O_DIRECT) != 0);
	SHOW(write(ends[1], "one", 3));
	SHOW(write(ends[1], "second", 6));
	SHOW(write(ends[1], "third", 5));
	SHOW(read(ends[0], buffer, sizeof buffer));
	// Bytes that do not fit are lost.
	SHOW(read(ends[0], buffer, 2));
	printf("%s\n", buffer);
	SHOW(read(ends[0], buffer, sizeof buffer));
	SHOW(read(ends[0], buffer, sizeof buffer));
	SHOW(write(ends[1], buffer, 5000));
	SHOW(write(ends[1], buffer, 0));
	SHOW(read(ends[0], buffer, sizeof buffer));
	SHOW(read(ends[0], buffer, sizeof buffer));
	struct iovec out[] = {{"together", 8}, {" with", 5}}, in[] = {{buffer, 8}, {other, sizeof other}};
	SHOW(writev(ends[1], out, 2));
	SHOW(write(ends[1], "x", 1));
	SHOW(readv(ends[0], in, 2));
	SHOW(memcmp(other, " with", 5));
	SHOW(readv(ends[0], in, 2));
	// One page each, regardless of their size.
	int held = 0;
	while (write(ends[1], "x", 1) == 1)
		held++;
	SHOW(held);
	SHOW(syscall(SYS_read, ends[0], 8, 1));
	SHOW(read(ends[0], buffer, 1));
	SHOW(syscall(SYS_write, ends[1], 8, 1));
	SHOW(write(ends[1], "x", 1));
}

static const struct part PARTS[] = {
	{"pipes", pipes}, {"packets", packets}, {"fifos", fifos}, {"events", events}, {"waiting", waiting}, {"descriptors", descriptors}, {0},
};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
