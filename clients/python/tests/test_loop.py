# SPDX-License-Identifier: MIT OR Apache-2.0
"""The loop of `loop.py`: 40 requests, or 1,000 with PANDO_TESTS=all."""

import os
import random
import unittest

from support import Case

from loop import BAD, GOOD, loop, report


class Loop(Case):
    def test_every_snippet_has_the_right_result(self) -> None:
        seed = random.randrange(1 << 32)
        requests = 1000 if os.environ.get("PANDO_TESTS") == "all" else 40
        with self.subTest(seed=seed):
            told = report(loop(requests, seed, self.client))
            self.assertGreaterEqual(len(told), len(GOOD + BAD))


if __name__ == "__main__":
    unittest.main()
