// SPDX-License-Identifier: MIT OR Apache-2.0
// Advisory locks of one process. Starts in an empty directory, and prints the results of system calls.
#define _GNU_SOURCE
#include "tree.h"

#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

static long lock(int fd, int command, int type, int whence, off_t start, off_t length)
{
	struct flock asked = {(short)type, (short)whence, start, length, 0};
	long result = fcntl(fd, command, &asked);
	if (result == 0 && (command == F_GETLK || command == F_OFD_GETLK))
		printf("type %d whence %d start %ld length %ld owner %d\n", asked.l_type, asked.l_whence, asked.l_start, asked.l_len,
			asked.l_pid == getpid() ? 1 : asked.l_pid);
	return result;
}

static void ring(int number)
{
	(void)number;
}

static void whole(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "0123456789");
	int one = open("file", O_RDWR), other = open("file", O_RDONLY), name = open("file", O_PATH), copy = dup(one), directory = open(".", O_RDONLY);
	SHOW(flock(one, LOCK_EX));
	SHOW(flock(one, LOCK_EX | LOCK_NB));
	SHOW(flock(copy, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	SHOW(flock(other, LOCK_UN));
	SHOW(flock(one, LOCK_SH));
	SHOW(flock(other, LOCK_SH | LOCK_NB));
	// The old lock is lost.
	SHOW(flock(one, LOCK_EX | LOCK_NB));
	SHOW(flock(other, LOCK_EX | LOCK_NB));
	SHOW(close(one));
	SHOW(flock(copy, LOCK_EX | LOCK_NB));
	SHOW(close(other));
	SHOW(flock(copy, LOCK_EX | LOCK_NB));
	SHOW(flock(name, LOCK_SH));
	SHOW(flock(99, LOCK_SH));
	SHOW(flock(99, 0));
	SHOW(flock(copy, 3));
	SHOW(flock(copy, LOCK_NB));
	SHOW(flock(directory, LOCK_EX));
	one = open("file", O_RDWR);
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 0, 0));
	struct sigaction action = {.sa_handler = ring};
	sigaction(SIGALRM, &action, NULL);
	ualarm(20000, 0);
	SHOW(flock(one, LOCK_EX));
	SHOW(unlink("file"));
	put("file", "another");
	other = open("file", O_RDWR);
	SHOW(flock(other, LOCK_EX | LOCK_NB));
	int ends[2];
	SHOW(pipe(ends));
	SHOW(flock(ends[0], LOCK_EX | LOCK_NB));
	SHOW(flock(ends[1], LOCK_EX | LOCK_NB));
}

static void ranges(int count, char **arguments)
{
	(void)count, (void)arguments;
	put("file", "0123456789");
	int one = open("file", O_RDWR), other = open("file", O_RDONLY), name = open("file", O_PATH), third = open("file", O_RDWR);
	// A process's own locks do not conflict.
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(third, F_SETLK, F_WRLCK, SEEK_SET, 5, 10));
	SHOW(lock(other, F_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(other, F_SETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(other, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(other, F_OFD_SETLK, F_RDLCK, SEEK_SET, 0, 0));
	SHOW(lock(one, F_SETLK, F_UNLCK, SEEK_SET, 100, 50));
	SHOW(lock(other, F_OFD_GETLK, F_RDLCK, SEEK_SET, 50, 0));
	SHOW(lock(other, F_OFD_GETLK, F_RDLCK, SEEK_SET, 100, 50));
	SHOW(lock(other, F_OFD_GETLK, F_RDLCK, SEEK_SET, 120, 50));
	SHOW(lock(one, F_SETLK, F_RDLCK, SEEK_SET, 10, 20));
	SHOW(lock(other, F_OFD_SETLK, F_RDLCK, SEEK_SET, 10, 20));
	SHOW(lock(other, F_OFD_SETLK, F_RDLCK, SEEK_SET, 10, 21));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 10, 20));
	SHOW(lock(one, F_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(other, F_OFD_GETLK, F_WRLCK, SEEK_SET, 12, 1));
	SHOW(lock(other, F_OFD_SETLK, F_UNLCK, SEEK_SET, 15, 5));
	SHOW(lock(one, F_GETLK, F_WRLCK, SEEK_SET, 16, 0));
	SHOW(lock(third, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(close(other));
	SHOW(lock(third, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	other = open("file", O_RDONLY);
	SHOW(lock(third, F_OFD_SETLK, F_WRLCK, SEEK_SET, 100, 10));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 105, 1));
	SHOW(lock(third, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0));
	SHOW(lseek(one, 4, SEEK_SET));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_CUR, -4, 2));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_END, -5, 2));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 8, -4));
	SHOW(lock(third, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_CUR, -5, 2));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 8, -9));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_CUR, 0x7fffffffffffffff, 2));
	SHOW(lock(one, F_SETLK, F_WRLCK, SEEK_SET, 2, 0x7fffffffffffffff));
	SHOW(lock(one, F_SETLK, F_WRLCK, 3, 0, 0));
	SHOW(lock(one, F_SETLK, 7, SEEK_SET, 0, 0));
	SHOW(lock(one, F_GETLK, F_UNLCK, SEEK_SET, 0, 0));
	SHOW(lock(name, F_SETLK, F_RDLCK, SEEK_SET, 0, 0));
	SHOW(fcntl(one, F_SETLK, nowhere));
	struct flock owned = {F_RDLCK, SEEK_SET, 0, 0, 7};
	SHOW(fcntl(one, F_OFD_SETLK, &owned));
	SHOW(fcntl(one, F_OFD_GETLK, &owned));
	struct sigaction action = {.sa_handler = ring};
	sigaction(SIGALRM, &action, NULL);
	ualarm(20000, 0);
	SHOW(lock(third, F_OFD_SETLKW, F_WRLCK, SEEK_SET, 0, 0));
	// Closing any descriptor of the file releases the process's locks.
	SHOW(close(other));
	SHOW(lock(third, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lock(third, F_OFD_SETLKW, F_WRLCK, SEEK_SET, 0, 0));
	SHOW(lockf(one, F_TEST, 0));
	SHOW(lockf(one, F_TLOCK, 0));
	SHOW(dup2(one, third));
	SHOW(lockf(one, F_TLOCK, 0));
	SHOW(lock(open(".", O_RDONLY), F_SETLK, F_RDLCK, SEEK_SET, 0, 0));
}

static const struct part PARTS[] = {{"whole", whole}, {"ranges", ranges}, {0}};

int main(int count, char **arguments)
{
	return run_part(PARTS, count, arguments);
}
