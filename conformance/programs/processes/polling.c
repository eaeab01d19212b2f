// SPDX-License-Identifier: MIT OR Apache-2.0
// A thread polls a pipe until another one has read from it, and counts its polls.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 20, FEW = 200 };

static int data[2], done[2];

static void *read_all(void *unused)
{
	char byte;
	while (read(data[0], &byte, 1) == 1)
		if (write(done[1], &byte, 1) != 1)
			break;
	return unused;
}

int main(void)
{
	pthread_t reader;
	if (pipe(data) || pipe(done) || pthread_create(&reader, NULL, read_all, NULL))
		return 1;
	long polls = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char byte = 0;
		if (write(data[1], &byte, 1) != 1)
			return 1;
		struct pollfd ready = { .fd = data[0], .events = POLLIN };
		while (poll(&ready, 1, 0) == 1)
			polls++;
		if (read(done[0], &byte, 1) != 1)
			return 1;
	}
	close(data[1]);
	pthread_join(reader, NULL);
	printf("%s polls\n", polls < FEW ? "few" : "many");
	return 0;
}
