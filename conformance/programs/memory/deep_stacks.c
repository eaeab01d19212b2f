// SPDX-License-Identifier: MIT OR Apache-2.0
// Fills a stack of 60 frames of the given size, and finds on the way back what it has written.
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAMES 60

// Returns the number of frames with wrong content.
static int descend(int frame, size_t size)
{
	volatile char *bytes = alloca(size);
	int wrong = 0;

	for (size_t at = 0; at < size; at += 64)
		bytes[at] = (char)(frame + 1);
	if (frame < FRAMES)
		wrong = descend(frame + 1, size);
	for (size_t at = 0; at < size; at += 64)
		if (bytes[at] != (char)(frame + 1))
			return wrong + 1;
	return wrong;
}

int main(int count, char **words)
{
	printf("%d frames are wrong\n", descend(0, count > 1 ? strtoul(words[1], NULL, 10) : 0));
	return 0;
}
