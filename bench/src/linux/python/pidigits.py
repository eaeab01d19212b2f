# SPDX-License-Identifier: MIT OR Apache-2.0
# Digits of pi, one after the other: a spigot over ever larger integers.


def work(count):
    digits = []
    a, b, c, factor = 1, 0, 1, 0
    while len(digits) < count:
        # The interval that contains the rest of pi, for its ends 3 and 4.
        low, high = (3 * a + b) // c, (4 * a + b) // c
        if low == high and a < c:
            digits.append(low)
            a, b = 10 * a, 10 * (b - low * c)
        else:
            factor += 1
            odd = 2 * factor + 1
            a, b, c = a * factor, (2 * a + b) * odd, c * odd
    assert digits[:6] == [3, 1, 4, 1, 5, 9]
