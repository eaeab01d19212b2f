// SPDX-License-Identifier: MIT OR Apache-2.0
// One file under several processes: read, written, mapped, truncated and replaced in random order by a seed. The results of
// all operations go into a checksum, which is printed regularly: natively and in a cell it must be the same.
//
// one_file DIRECTORY SEED OPERATIONS [FROM TO]: operations FROM to TO are printed one by one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 6, MOST = PAGES * PAGE, PROCESSES = 4, MAPPINGS = 2, EACH = 2000 };
// The address of fixed mappings.
static char *const FIXED = (char *)0x600000000000;

struct mapping {
	char *at;
	int bytes, offset, writable, fd;
};

struct answer {
	long result;
	int error;
	uint32_t sum;
};

static uint64_t state;
static int file = -1;
static struct mapping mappings[MAPPINGS];
static unsigned char bytes[MOST + PAGE];
static sigjmp_buf out;
static char path[4096], other[4200];

static uint32_t number(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % below;
}

static uint32_t mix(uint32_t sum, const void *data, size_t length)
{
	const unsigned char *byte = data;
	while (length--)
		sum = (sum ^ *byte++) * 16777619u;
	return sum;
}

static void on_bus(int signal)
{
	siglongjmp(out, signal);
}

// Draws a range below `most`: often at page boundaries.
static void range(int most, int *start, int *length)
{
	*start = number(3) ? (int)number((uint32_t)most) : (int)number((uint32_t)(most / PAGE + 1)) * PAGE;
	if (*start >= most)
		*start = most - 1;
	*length = number(3) ? 1 + (int)number(100) : 1 + (int)number((uint32_t)most);
	if (*start + *length > most)
		*length = most - *start;
}

static void fill(int length)
{
	unsigned char seed = (unsigned char)(1 + number(255));
	for (int i = 0; i < length; i++)
		bytes[i] = (unsigned char)(seed + i * 7);
}

static long opened(void)
{
	static const int ways[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_RDWR | O_APPEND, O_RDWR | O_TRUNC, O_WRONLY};
	if (file >= 0)
		close(file);
	file = open(path, ways[number(7)] | O_CREAT, 0600);
	return file >= 0;
}

static long unmapped(struct mapping *mapping)
{
	if (!mapping->at)
		return 0;
	long result = munmap(mapping->at, (size_t)mapping->bytes);
	close(mapping->fd);
	mapping->at = NULL;
	return result;
}

// A process maps each part of the file at most once: only Linux shows one page at two addresses.
static long mapped(int which, int process)
{
	struct mapping *mapping = &mappings[which];
	if (which)
		unmapped(&mappings[0]);
	else
		unmapped(&mappings[1]);
	unmapped(mapping);
	mapping->offset = (int)number(PAGES) * PAGE;
	mapping->bytes = (1 + (int)number(PAGES)) * PAGE;
	int permissions = number(3) ? PROT_READ | PROT_WRITE : PROT_READ;
	char *wanted = which ? FIXED + process * (1 << 20) : NULL;
	char *at = mmap(wanted, (size_t)mapping->bytes, permissions, MAP_SHARED | (which ? MAP_FIXED : 0), file, mapping->offset);
	if (at == MAP_FAILED)
		return -1;
	mapping->fd = dup(file);
	mapping->writable = permissions & PROT_WRITE;
	mapping->at = at;
	return 0;
}

static long loaded(const struct mapping *mapping, uint32_t *sum)
{
	int start, length;
	if (!mapping->at)
		return 0;
	range(mapping->bytes, &start, &length);
	int signal = sigsetjmp(out, 1);
	if (signal)
		return 1000 + signal;
	*sum = mix(*sum, mapping->at + start, (size_t)length);
	return length;
}

// Stores only within the file, or in a page behind its last one: the rest of the last page is unspecified.
static long stored(const struct mapping *mapping)
{
	int start, length;
	struct stat status;
	if (!mapping->at || !mapping->writable || fstat(mapping->fd, &status))
		return 0;
	range(mapping->bytes, &start, &length);
	long left = (long)status.st_size - mapping->offset - start;
	if (left <= 0 && (mapping->offset + start) / PAGE < (status.st_size + PAGE - 1) / PAGE)
		return 0;
	if (left > 0 && length > left)
		length = (int)left;
	fill(length);
	int signal = sigsetjmp(out, 1);
	if (signal)
		return 1000 + signal;
	memcpy(mapping->at + start, bytes, (size_t)length);
	return length;
}

// A private mapping shows the file when it is new, keeps its stores private, and ends at the end of the file.
static long private(uint32_t *sum)
{
	int start, length;
	char *at = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	if (at == MAP_FAILED)
		return -1;
	range(MOST, &start, &length);
	int signal = sigsetjmp(out, 1);
	if (!signal) {
		*sum = mix(*sum, at + start, (size_t)length);
		memset(at + start, 'p', (size_t)length);
		*sum = mix(*sum, at + start / PAGE * PAGE, PAGE);
	}
	munmap(at, MOST);
	return 1000 + signal;
}

static long replaced(int by_rename)
{
	int fresh = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int length = (int)number(MOST);
	fill(length);
	long done = write(fresh, bytes, (size_t)length);
	close(fresh);
	if (!by_rename && unlink(path))
		return -1;
	return rename(other, path) ? -1 : done;
}

static long allocated(void)
{
	static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
	int start, length, mode = modes[number(3)];
	range(MOST, &start, &length);
	return fallocate(file, mode, start, length);
}

static long written(int at_offset)
{
	int start, length;
	range(MOST, &start, &length);
	fill(length);
	if (at_offset)
		return pwrite(file, bytes, (size_t)length, start);
	// A file that all processes append to and write would grow without limit.
	return lseek(file, 0, SEEK_CUR) > MOST ? lseek(file, 0, SEEK_SET) : write(file, bytes, (size_t)length);
}

static long read_back(int at_offset, uint32_t *sum)
{
	int start, length;
	range(MOST, &start, &length);
	long done = at_offset ? pread(file, bytes, (size_t)length, start) : read(file, bytes, (size_t)length);
	if (done > 0)
		*sum = mix(*sum, bytes, (size_t)done);
	return done;
}

static long resized(void)
{
	struct stat status;
	long size = number(MOST);
	// Also within a page.
	if (!number(3) && !fstat(file, &status))
		size = status.st_size / PAGE * PAGE + number(PAGE);
	if (!number(6))
		size = size / PAGE * PAGE;
	return number(4) ? ftruncate(file, size) : truncate(path, size);
}

static long looked(uint32_t *sum)
{
	struct stat status;
	if (fstat(file, &status))
		return -1;
	long facts[] = {status.st_size, (long)status.st_nlink};
	*sum = mix(*sum, facts, sizeof facts);
	return 0;
}

static const char *const NAMES[] = {"open", "read", "pread", "write", "pwrite", "seek", "map", "map at", "unmap", "load", "store", "private", "msync", "resize",
	"allocate", "replace", "unlink", "stat", "fsync"};

static long operate(uint32_t what, int process, uint32_t *sum)
{
	struct mapping *mapping = &mappings[number(MAPPINGS)];
	int start, length;
	if (!mapping->at)
		mapping = &mappings[mapping == mappings];
	switch (what) {
	case 0: return opened();
	case 1: return read_back(0, sum);
	case 2: return read_back(1, sum);
	case 3: return written(0);
	case 4: return written(1);
	case 5: range(MOST, &start, &length); return lseek(file, start, SEEK_SET);
	case 6: return mapped(0, process);
	case 7: return mapped(1, process);
	case 8: return unmapped(mapping);
	case 9: return loaded(mapping, sum);
	case 10: return stored(mapping);
	case 11: return private(sum);
	case 12: return mapping->at ? msync(mapping->at, (size_t)mapping->bytes, number(4) ? MS_ASYNC : MS_SYNC) : 0;
	case 13: return resized();
	case 14: return allocated();
	case 15: return replaced(1);
	case 16: return replaced(0);
	case 17: return looked(sum);
	default: return number(8) ? 0 : fdatasync(file);
	}
}

// The relative frequency of each operation.
static const unsigned char WEIGHTS[] = {4, 6, 10, 6, 10, 3, 8, 3, 3, 20, 16, 3, 2, 8, 4, 1, 1, 4, 1};

static uint32_t choose(void)
{
	uint32_t sum = 0, kind = 0;
	for (size_t i = 0; i < sizeof WEIGHTS; i++)
		sum += WEIGHTS[i];
	for (uint32_t left = number(sum); left >= WEIGHTS[kind]; kind++)
		left -= WEIGHTS[kind];
	return kind;
}

struct order {
	uint64_t state;
	uint32_t what;
};

static struct answer obey(struct order order, int process)
{
	struct answer answer = {.sum = 2166136261u};
	state = order.state;
	errno = 0;
	answer.result = operate(order.what, process, &answer.sum);
	answer.error = answer.result == -1 ? errno : 0;
	return answer;
}

static int orders[PROCESSES][2], answers[PROCESSES][2];
static pid_t children[PROCESSES];

// Another process takes the place of one, with the same open files and mappings.
static void start(int process)
{
	if (children[process]) {
		close(orders[process][1]);
		close(answers[process][0]);
		waitpid(children[process], NULL, 0);
	}
	if (pipe2(orders[process], O_CLOEXEC) || pipe2(answers[process], O_CLOEXEC))
		exit(3);
	children[process] = fork();
	if (children[process]) {
		close(orders[process][0]);
		close(answers[process][1]);
		return;
	}
	for (int i = 1; i < PROCESSES; i++)
		if (i != process && children[i]) {
			close(orders[i][1]);
			close(answers[i][0]);
		}
	close(orders[process][1]);
	struct order order;
	while (read(orders[process][0], &order, sizeof order) == sizeof order) {
		struct answer answer = obey(order, process);
		if (write(answers[process][1], &answer, sizeof answer) != sizeof answer)
			break;
	}
	_exit(0);
}

int main(int count, char **words)
{
	if (count < 4)
		return 2;
	snprintf(path, sizeof path, "%s/file", words[1]);
	snprintf(other, sizeof other, "%s.new", path);
	long operations = atol(words[3]), from = count > 4 ? atol(words[4]) : -1, to = count > 5 ? atol(words[5]) : -1;
	uint64_t seed = strtoull(words[2], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
	struct sigaction action = {.sa_handler = on_bus};
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	uint32_t sum = 2166136261u;
	state = seed;
	int processes = 2 + (int)(seed >> 40) % (PROCESSES - 1);
	opened();
	for (int i = 1; i < processes; i++)
		start(i);
	for (long i = 0; i < operations; i++) {
		state = seed;
		int process = (int)number((uint32_t)processes);
		if (process && !number(500))
			start(process);
		struct order order = {.what = choose()};
		order.state = seed = state;
		struct answer answer = {0};
		if (!process)
			answer = obey(order, 0);
		else if (write(orders[process][1], &order, sizeof order) != sizeof order || read(answers[process][0], &answer, sizeof answer) != sizeof answer)
			answer.error = -1;
		sum = mix(sum, &answer.result, sizeof answer.result);
		sum = mix(sum, &answer.error, sizeof answer.error);
		sum = mix(sum, &answer.sum, sizeof answer.sum);
		if (i >= from && i < to)
			printf("%ld: %d %s = %ld, %d, %08x\n", i, process, NAMES[order.what], answer.result, answer.error, answer.sum);
		if (i % EACH == EACH - 1)
			printf("%ld: %08x\n", i + 1, sum);
		if (answer.error == -1)
			return 4;
	}
	for (int i = 1; i < processes; i++)
		close(orders[i][1]);
	while (wait(NULL) > 0)
		;
	return 0;
}
