

# Does the work at the size that each line gives, and answers how many nanoseconds that took.
import sys
import time

for line in sys.stdin:
    start = time.monotonic_ns()
    work(int(line))
    print(time.monotonic_ns() - start, flush=True)
