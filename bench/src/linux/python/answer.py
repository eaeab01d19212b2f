

# Works at the size that each line gives, and prints the nanoseconds that this took.
import sys
import time

for line in sys.stdin:
    start = time.monotonic_ns()
    work(int(line))
    print(time.monotonic_ns() - start, flush=True)
