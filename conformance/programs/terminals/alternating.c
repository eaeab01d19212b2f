// SPDX-License-Identifier: MIT OR Apache-2.0
// Writes the given number of single bytes, alternating between its two output streams.
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    long bytes = count > 1 ? atol(words[1]) : 0;
    for (long done = 0; done < bytes; done++)
        if (write(1 + done % 2, "ab" + done % 2, 1) != 1) return 1;
    return 0;
}
