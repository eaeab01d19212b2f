/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A child answers each byte of standard input, while its parent computes without a call and then writes more than the console copies. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 40, COMPUTED = 20000000, WRITTEN = 100 << 10 };

static char written[WRITTEN];

int main(void)
{
    int answers[2];
    char byte;

    if (pipe(answers) != 0)
        return 1;
    memset(written, '.', sizeof written);
    if (fork() == 0) {
        while (read(0, &byte, 1) == 1)
            if (write(answers[1], &byte, 1) != 1)
                _exit(1);
        _exit(0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (volatile int at = 0; at < COMPUTED; at++)
            ;
        for (size_t done = 0; done < sizeof written;) {
            ssize_t bytes = write(1, written + done, sizeof written - done);
            if (bytes <= 0)
                return 2;
            done += (size_t)bytes;
        }
        if (read(answers[0], &byte, 1) != 1)
            return 3;
    }
    return 0;
}
