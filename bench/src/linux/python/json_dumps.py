# SPDX-License-Identifier: MIT OR Apache-2.0
# Serialises objects as JSON, small ones and nested ones.

import json

SMALL = {"name": "cell", "number": 7, "size": 4096.5, "is_idle": True, "parent": None}
NESTED = {"cells": [dict(SMALL, number=number, events=list(range(number % 8))) for number in range(200)], "text": "\u00fc\"\\\n" * 200}


def work(count):
    for _ in range(count):
        for _ in range(50):
            json.dumps(SMALL)
        json.dumps(NESTED)
