# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prints a line, and sleeps as many seconds as its argument says."""
import sys
import time

print("ready", flush=True)
time.sleep(int(sys.argv[1]))
