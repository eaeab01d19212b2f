# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads numpy, and forks for each line of input: the child prints a sum and ends; then the parent prints that it is ready."""
import os
import sys

import numpy

while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        print(numpy.arange(10).sum())
        break
    os.waitpid(child, 0)
    print("ready", flush=True)
