// SPDX-License-Identifier: MIT OR Apache-2.0
// Data moved between files in the kernel: splice, tee, vmsplice; memfds and their seals. Starts in an empty directory.
#define _GNU_SOURCE
#include "tree.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void got(int fd)
{
	ssize_t count = read(fd, buffer, sizeof buffer);
	printf("got %zd: %.*s\n", count, count > 0 && count < 100 ? (int)count : 0, buffer);
}

static void splices(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "0123456789abcdef");
	int ends[2], other[2], pair[2], file = open("file", O_RDWR), null = open("/dev/null", O_WRONLY), appended = open("file", O_WRONLY | O_APPEND);
	loff_t at = 4;
	SHOW(pipe(ends) + pipe(other));
	SHOW(splice(file, &at, ends[1], NULL, 6, 0));
	printf("%ld\n", (long)at);
	got(ends[0]);
	SHOW(splice(file, NULL, ends[1], NULL, 100, 0));
	SHOW(lseek(file, 0, SEEK_CUR));
	SHOW(splice(file, NULL, ends[1], NULL, 100, 0));
	SHOW(tee(ends[0], other[1], 5, 0));
	SHOW(tee(ends[0], other[1], 100, 0));
	got(other[0]);
	SHOW(splice(ends[0], NULL, other[1], NULL, 3, SPLICE_F_MOVE | SPLICE_F_MORE));
	got(other[0]);
	at = 20;
	SHOW(splice(ends[0], NULL, file, &at, 4, 0));
	printf("%ld\n", (long)at);
	SHOW(lseek(file, 2, SEEK_SET));
	SHOW(splice(ends[0], NULL, file, NULL, 2, 0));
	SHOW(splice(ends[0], NULL, null, NULL, 100, 0));
	see("file");
	SHOW(splice(ends[0], NULL, file, NULL, 10, SPLICE_F_NONBLOCK));
	SHOW(tee(ends[0], other[1], 10, SPLICE_F_NONBLOCK));
	SHOW(splice(ends[0], NULL, file, NULL, 0, 0));
	SHOW(splice(ends[0], NULL, file, NULL, 1, 16));
	SHOW(splice(file, NULL, file, NULL, 1, 0));
	SHOW(splice(ends[0], NULL, ends[1], NULL, 1, 0));
	SHOW(tee(ends[0], ends[1], 1, 0));
	SHOW(splice(ends[1], NULL, file, NULL, 1, 0));
	SHOW(splice(file, NULL, ends[0], NULL, 1, 0));
	SHOW(splice(99, NULL, ends[1], NULL, 1, 0));
	SHOW(splice(ends[0], &at, file, NULL, 1, 0));
	SHOW(splice(file, NULL, ends[1], &at, 1, 0));
	SHOW(splice(file, nowhere, ends[1], NULL, 1, 0));
	SHOW(tee(file, ends[1], 1, 0));
	SHOW(write(ends[1], "more", 4));
	SHOW(splice(ends[0], NULL, appended, NULL, 1, 0));
	SHOW(fcntl(other[1], F_SETPIPE_SZ, 4096));
	SHOW(write(other[1], buffer, 4096));
	SHOW(splice(ends[0], NULL, other[1], NULL, 4, SPLICE_F_NONBLOCK));
	SHOW(splice(file, NULL, other[1], NULL, 4, SPLICE_F_NONBLOCK));
	got(other[0]);
	struct iovec parts[] = {{"one", 3}, {"two", 3}}, rooms[] = {{buffer, 4}, {buffer + 4, 100}};
	SHOW(vmsplice(ends[1], parts, 2, 0));
	SHOW(vmsplice(ends[0], rooms, 2, 0));
	printf("%.10s\n", buffer);
	SHOW(vmsplice(file, parts, 2, 0));
	SHOW(vmsplice(ends[1], parts, 2, 16));
	SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	SHOW(write(ends[1], "to a socket", 11));
	SHOW(splice(ends[0], NULL, pair[0], NULL, 100, 0));
	SHOW(splice(pair[1], NULL, ends[1], NULL, 4, 0));
	got(ends[0]);
	got(pair[1]);
	SHOW(splice(pair[1], NULL, ends[1], NULL, 4, SPLICE_F_NONBLOCK));
	SHOW(close(pair[0]));
	SHOW(splice(pair[1], NULL, ends[1], NULL, 4, 0));
	signal(SIGPIPE, SIG_IGN);
	SHOW(close(other[0]));
	SHOW(splice(file, NULL, other[1], NULL, 4, 0));
	SHOW(write(ends[1], "x", 1));
	SHOW(splice(ends[0], NULL, other[1], NULL, 4, 0));
	SHOW(close(ends[1]));
	got(ends[0]);
	SHOW(splice(ends[0], NULL, file, NULL, 4, 0));
	SHOW(tee(ends[0], other[1], 4, 0));
}

// Mappings that may become writable are as good as writable ones, also those of other processes.
static void mapped_seals(void)
{
	int shown = memfd_create("shown", MFD_ALLOW_SEALING), other = memfd_create("other", MFD_ALLOW_SEALING);
	SHOW(ftruncate(shown, 4096) + ftruncate(other, 4096));
	char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, shown, 0);
	SHOW(fcntl(shown, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(munmap(mapped, 4096));
	SHOW(fcntl(shown, F_ADD_SEALS, 0x10));
	mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, shown, 0);
	SHOW(mprotect(mapped, 4096, PROT_READ | PROT_WRITE));
	SHOW(fcntl(shown, F_ADD_SEALS, F_SEAL_WRITE));
	mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	pid_t child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	SHOW(munmap(mapped, 4096));
	SHOW(fcntl(other, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(kill(child, SIGKILL));
	SHOW(waitpid(child, NULL, 0) == child);
	SHOW(fcntl(other, F_ADD_SEALS, F_SEAL_WRITE));
	// The seal of executable files.
	int program = memfd_create("program", MFD_ALLOW_SEALING), data = memfd_create("data", MFD_ALLOW_SEALING);
	SHOW(fchmod(data, 0600));
	SHOW(fcntl(program, F_ADD_SEALS, 0x20));
	SHOW(fcntl(program, F_GET_SEALS));
	SHOW(fcntl(data, F_ADD_SEALS, 0x20));
	SHOW(fcntl(data, F_GET_SEALS));
	SHOW(fchmod(data, 0640));
	SHOW(fchmod(data, 0740));
	SHOW(fchmod(program, 0644));
	SHOW(fchmod(program, 0777));
}

static void seals(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "text");
	int plain = (int)SHOW(memfd_create("plain", 0)), memory = (int)SHOW(memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC)), file = open("file", O_RDWR);
	SHOW(fcntl(plain, F_GET_SEALS));
	SHOW(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(fcntl(memory, F_GET_SEALS));
	SHOW(fcntl(file, F_GET_SEALS));
	SHOW(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(write(memory, "0123456789", 10));
	SHOW(fcntl(memory, F_ADD_SEALS, 0x100));
	SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK));
	SHOW(fcntl(memory, F_GET_SEALS));
	SHOW(ftruncate(memory, 5));
	SHOW(ftruncate(memory, 20));
	SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_GROW));
	SHOW(ftruncate(memory, 30));
	SHOW(ftruncate(memory, 20));
	SHOW(pwrite(memory, "x", 1, 19));
	SHOW(pwrite(memory, "x", 1, 20));
	SHOW(pwrite(memory, "xxxx", 4, 18));
	SHOW(fallocate(memory, 0, 0, 100));
	SHOW(fallocate(memory, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 2));
	char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	SHOW(mapped != MAP_FAILED);
	SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE));
	SHOW(munmap(mapped, 4096));
	SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL));
	SHOW(fcntl(memory, F_GET_SEALS));
	SHOW(write(memory, "x", 1));
	SHOW(fallocate(memory, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 2));
	SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED);
	SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0) != MAP_FAILED);
	SHOW(mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0) != MAP_FAILED);
	SHOW(fcntl(memory, F_ADD_SEALS, F_SEAL_GROW));
	char path[100];
	snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
	int reader = open(path, O_RDONLY);
	SHOW(fcntl(reader, F_GET_SEALS));
	SHOW(read(reader, buffer, 100));
	SHOW(memfd_create("unexecutable", 8) >= 0);
	int future = memfd_create("future", MFD_ALLOW_SEALING);
	SHOW(write(future, "text", 4));
	mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, future, 0);
	SHOW(fcntl(future, F_ADD_SEALS, 0x10));
	mapped[0] = 'T';
	SHOW(pwrite(future, "x", 1, 0));
	SHOW(pread(future, buffer, 4, 0));
	printf("%.4s\n", buffer);
	mapped_seals();
}

static void flags(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "0123456789");
	int file = open("file", O_RDWR), ends[2];
	struct iovec part = {"xy", 2}, room = {buffer, 4};
	SHOW(pipe(ends));
	SHOW(pwritev2(file, &part, 1, 2, RWF_SYNC | RWF_DSYNC | RWF_HIPRI));
	SHOW(pwritev2(file, &part, 1, 0, RWF_APPEND));
	SHOW(pwritev2(file, &part, 1, -1, 0));
	see("file");
	SHOW(preadv2(file, &room, 1, 0, RWF_NOWAIT));
	SHOW(preadv2(ends[0], &room, 1, -1, RWF_NOWAIT));
	SHOW(preadv2(file, &room, 1, 0, 0x4000));
	SHOW(preadv2(file, &room, 1, -2, 0));
	int append = open("file", O_WRONLY | O_APPEND);
	SHOW(pwritev2(append, &part, 1, 0, 0x20));
	see("file");
}

static const struct part PARTS[] = {{"splices", splices}, {"seals", seals}, {"flags", flags}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
