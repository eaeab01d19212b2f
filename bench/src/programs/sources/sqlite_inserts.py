# SPDX-License-Identifier: MIT OR Apache-2.0
"""Inserts rows into a database in /tmp, in transactions. Arguments: the number of transactions, the rows of each, `PRAGMA synchronous`."""
import sqlite3
import sys
import tempfile

transactions, rows = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory(dir="/tmp") as directory:
    database = sqlite3.connect(f"{directory}/database", isolation_level=None)
    database.execute(f"PRAGMA synchronous = {sys.argv[3]}")
    database.execute("CREATE TABLE entry (number INTEGER PRIMARY KEY, name TEXT, weight REAL)")
    for transaction in range(transactions):
        database.execute("BEGIN")
        for row in range(rows):
            number = transaction * rows + row
            database.execute("INSERT INTO entry VALUES (?, ?, ?)", (number, f"entry {number}", number / 7))
        database.execute("COMMIT")
    print(database.execute("SELECT count(*), sum(number), sum(length(name)) FROM entry").fetchone())
    database.close()
