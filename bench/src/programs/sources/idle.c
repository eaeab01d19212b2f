/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Prints a line, and sleeps as many seconds as its argument says. */
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
	if (count != 2 || write(1, "ready\n", 6) != 6)
		return 1;
	for (unsigned rest = atoi(words[1]); rest > 0;)
		rest = sleep(rest);
	return 0;
}
