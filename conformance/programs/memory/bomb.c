// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that allocate as much as they can of one resource, and print what stopped them. Run them only in a cell.
#define _GNU_SOURCE
#include "holds.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

static char piece[PIECE];

// Prints what stopped it, in one write: others may print at the same time.
static void stopped(const char *what)
{
	char line[100];
	int length = snprintf(line, sizeof line, "%s: stopped by %s\n", what, strerrorname_np(errno));
	if (write(STDOUT_FILENO, line, length) != length)
		_exit(3);
}

// All processes fork forever.
static void forks(int count, char **words)
{
	(void)count, (void)words;
	for (;;)
		if (fork() < 0)
			stopped("fork");
}

// One process forks forever, and its children wait. The number of processes is limited by RLIMIT_NPROC.
static void children(int count, char **words)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NPROC, &limit);
	if (count > 0) {
		limit.rlim_cur = atoi(words[0]);
		setrlimit(RLIMIT_NPROC, &limit);
	}
	unsigned long made = 1;
	for (pid_t child; (child = fork()) >= 0; made++)
		if (child == 0)
			for (;;)
				pause();
	stopped("fork");
	HOLDS(made == limit.rlim_cur);
}

static void *waits(void *nothing)
{
	pause();
	return nothing;
}

static void threads(int count, char **words)
{
	(void)count, (void)words;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16 << 10);
	pthread_t thread;
	while ((errno = pthread_create(&thread, &small, waits, NULL)) == 0)
		;
	stopped("thread");
}

static void heap(int count, char **words)
{
	(void)count, (void)words;
	for (char *bytes; (bytes = malloc(PIECE)) != NULL;)
		memset(bytes, 1, PIECE);
	stopped("malloc");
}

static void shared(int count, char **words)
{
	(void)count, (void)words;
	for (char *bytes; (bytes = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED;)
		memset(bytes, 1, PIECE);
	stopped("mmap");
}

// Files in one directory after the other.
static void files(int count, char **words)
{
	(void)count;
	for (int number = 0;; number++) {
		char name[100];
		snprintf(name, sizeof name, "%s/bomb-%d", words[0], number);
		int file = open(name, O_RDWR | O_CREAT, 0600);
		if (file < 0)
			return stopped("open");
		for (int pieces = 0; pieces < 16; pieces++)
			if (write(file, piece, PIECE) < 0)
				return stopped("write");
		close(file);
	}
}

// Hard links only.
static void names(int count, char **words)
{
	(void)count;
	for (int number = 0;; number++) {
		char name[200];
		snprintf(name, sizeof name, "%s/%0150d", words[0], number);
		if (mkdir(name, 0700) < 0)
			return stopped("mkdir");
	}
}

static void mapped(int count, char **words)
{
	(void)count;
	int file = open(words[0], O_RDWR | O_CREAT, 0600);
	for (off_t size = PIECE;; size += PIECE) {
		if (ftruncate(file, size) < 0)
			return stopped("ftruncate");
		char *bytes = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, file, size - PIECE);
		if (bytes == MAP_FAILED)
			return stopped("mmap");
		memset(bytes, 1, PIECE);
	}
}

static void descriptors(int count, char **words)
{
	(void)count, (void)words;
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	int last = 0, file;
	while ((file = eventfd(0, 0)) >= 0)
		last = file;
	stopped("eventfd");
	HOLDS(last + 1 == (int)limit.rlim_cur);
}

// Pipes and sockets filled completely, by one process after the other.
static void filled(int count, char **words)
{
	(void)count, (void)words;
	for (;;) {
		int ends[2];
		while (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0 || pipe2(ends, O_NONBLOCK) == 0)
			while (write(ends[1], piece, PIECE) > 0)
				;
		if (errno != EMFILE)
			return stopped("pipe");
		pid_t child = fork();
		if (child < 0)
			return stopped("fork");
		if (child > 0) {
			wait(NULL);
			return;
		}
		for (int file = 3; file < 1000; file++)
			close(file);
	}
}

static void queued(int count, char **words)
{
	(void)count, (void)words;
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
		;
	stopped("sigqueue");
}

static void timers(int count, char **words)
{
	(void)count, (void)words;
	timer_t timer;
	while (timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0)
		;
	stopped("timer_create");
}

static void regions(int count, char **words)
{
	(void)count, (void)words;
	for (int turn = 0;; turn++)
		if (mmap(NULL, 4096, turn % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
			return stopped("mmap");
}

static const struct part PARTS[] = {
	{"forks", forks}, {"children", children}, {"threads", threads}, {"heap", heap}, {"shared", shared}, {"files", files}, {"names", names},
	{"mapped", mapped}, {"descriptors", descriptors}, {"filled", filled}, {"queued", queued}, {"timers", timers}, {"regions", regions}, {0},
};

int main(int count, char **arguments)
{
	setbuf(stdout, NULL);
	return run_part(PARTS, count, arguments);
}
