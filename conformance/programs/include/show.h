// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by C test programs that only print the results of system calls: the same program on the host gives the expected output.
#ifndef SHOW_H
#define SHOW_H

#include <errno.h>
#include <stdio.h>
#include <string.h>

// A call, its result, and its error.
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
