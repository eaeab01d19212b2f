# SPDX-License-Identifier: MIT OR Apache-2.0
# A database in memory: rows inserted, indexed, joined, changed and deleted.

import sqlite3

STEPS = (
    "CREATE TABLE cell (id INTEGER PRIMARY KEY, host INTEGER, name TEXT, pages INTEGER)",
    "CREATE TABLE host (id INTEGER PRIMARY KEY, name TEXT)",
    """INSERT INTO cell WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
       SELECT i, i * 7919 % 997, 'cell ' || (i * 104729 % 1000003), i * 31 % 4096 FROM n""",
    "INSERT INTO host SELECT DISTINCT host, 'host ' || host FROM cell",
    "CREATE INDEX by_name ON cell (name)",
    "SELECT host.name, count(*), sum(pages) FROM cell JOIN host ON host.id = cell.host GROUP BY host.id ORDER BY 3 DESC",
    "SELECT count(*) FROM cell a JOIN cell b ON b.name = 'cell ' || a.pages",
    "UPDATE cell SET pages = pages + 1, name = name || '!' WHERE host % 3 = 0",
    "DELETE FROM cell WHERE host % 5 = 0",
    "SELECT substr(name, 6, 2), avg(pages) FROM cell GROUP BY 1",
)


def work(count):
    database = sqlite3.connect(":memory:")
    for step in STEPS:
        list(database.execute(step, {"rows": count} if ":rows" in step else {}))
    database.close()
