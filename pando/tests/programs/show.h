// SPDX-License-Identifier: MIT OR Apache-2.0
// What C test programs share that only say what the system answers: the same program on the host knows what is right.
#ifndef SHOW_H
#define SHOW_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

// A call, what it returned, and why if it failed.
#define SHOW(call) (errno = 0, show((long)(call), #call))

static inline long show(long result, const char *call)
{
	int error = errno;
	if (result == -1)
		printf("%s: %s\n", call, strerror(error));
	else
		printf("%s = %ld\n", call, result);
	fflush(stdout);
	return result;
}

#endif
