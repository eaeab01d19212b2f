// SPDX-License-Identifier: MIT OR Apache-2.0
// What the C test programs share: each says what it asked of the system and whether the answer held.
// Nothing that they print depends on the machine, so a cell must print what the host prints.
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

// Whether the CPU shows user code the host's memory protection keys.
static inline int has_protection_keys(void)
{
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && c & 1 << 4;
}

// A part of a program, chosen by its first argument.
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
