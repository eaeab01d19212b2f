// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by the C test programs: each prints its system calls and whether the results were as expected. The output does not
// depend on the machine, so it must be the same in a cell as on the host.
#ifndef HOLDS_H
#define HOLDS_H

#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(condition) printf("%s: %s\n", (condition) ? "holds" : "DOES NOT HOLD", #condition)

// A call that must fail with this error.
#define FAILS(call, error) fails((long)(call), error, #call)

static inline void fails(long result, int wanted, const char *call)
{
	int found = errno;
	errno = 0;
	printf("%s: %s fails: %s\n", result == -1 && found == wanted ? "holds" : "DOES NOT HOLD", call, strerror(found));
}

// Whether user code can see the host's memory protection keys.
static inline int has_protection_keys(void)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1 << 4;
}

// A part of a program, selected by its first argument.
struct part {
	const char *name;
	void (*run)(int count, char **arguments);
};

static inline int run_part(const struct part *parts, int count, char **arguments)
{
	for (; parts->name; parts++)
		if (count > 1 && !strcmp(parts->name, arguments[1])) {
			parts->run(count - 2, arguments + 2);
			return 0;
		}
	fprintf(stderr, "%s: no such part\n", arguments[0]);
	return 2;
}

#endif
