# SPDX-License-Identifier: MIT OR Apache-2.0
"""Maps a function over as many tasks as its argument says, in a pool of two processes."""
import multiprocessing
import sys


def work(seed: int) -> int:
    total = seed
    for step in range(20_000):
        total = (total * 31 + step) % 1_000_003
    return total


with multiprocessing.Pool(2) as pool:
    print(sum(pool.map(work, range(int(sys.argv[1])))))
