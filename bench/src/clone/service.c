/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A small service: listens at port 80, becomes a template, and echoes one line to each client. */
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    struct sockaddr_in everywhere = { .sin_family = AF_INET, .sin_port = htons(80) };
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int device = open("/dev/pando", O_RDWR | O_CLOEXEC);
    char line[256];

    if (bind(door, (struct sockaddr *)&everywhere, sizeof everywhere) || listen(door, 16) || write(device, "ready", 5) != 5)
        return 1;
    for (;;) {
        int client = accept(door, NULL, NULL);
        ssize_t length = read(client, line, sizeof line);

        if (length > 0 && write(client, line, length) != length)
            return 1;
        close(client);
    }
}
