"""Schema of the tuner's database."""

from __future__ import annotations

from typing import Final

__all__ = ["SCHEMA", "TABLES", "UPGRADES", "VERSION"]

VERSION: Final = 3
"""Version of the schema: the ``PRAGMA user_version`` of a database."""

SCHEMA: Final = """
CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    arch TEXT NOT NULL,
    multiprocessors INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,
    driver TEXT NOT NULL,
    uuid TEXT NOT NULL,
    UNIQUE (name, arch, multiprocessors, memory_bytes, driver, uuid)
);
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES device (id),
    started TEXT NOT NULL,
    bundle TEXT NOT NULL,
    bundle_digest TEXT NOT NULL,
    nojit TEXT NOT NULL,
    torch TEXT NOT NULL,
    budget_s REAL,
    seed INTEGER NOT NULL,
    ended TEXT
);
CREATE TABLE kernel (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    alike TEXT NOT NULL,
    roles TEXT NOT NULL
);
CREATE TABLE problem (
    id INTEGER PRIMARY KEY,
    kernel INTEGER NOT NULL REFERENCES kernel (id),
    name TEXT NOT NULL,
    use TEXT NOT NULL,
    shape_class TEXT NOT NULL,
    dtype TEXT NOT NULL,
    "case" TEXT NOT NULL,
    key TEXT NOT NULL,
    sizes TEXT NOT NULL,
    moved_bytes INTEGER NOT NULL,
    flops INTEGER NOT NULL,
    weight REAL NOT NULL DEFAULT 1,
    UNIQUE (kernel, use, name, dtype)
);
CREATE TABLE config (
    id INTEGER PRIMARY KEY,
    kernel INTEGER NOT NULL REFERENCES kernel (id),
    settings TEXT NOT NULL,
    requires TEXT NOT NULL,
    UNIQUE (kernel, settings, requires)
);
CREATE TABLE measurement (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    problem INTEGER NOT NULL REFERENCES problem (id),
    config INTEGER NOT NULL REFERENCES config (id),
    image TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'wrong', 'failed')),
    rung INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    median_us REAL,
    noise REAL,
    best_us REAL,
    clock_mhz INTEGER,
    taken TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX measurement_of_problem ON measurement (problem, config);
CREATE TABLE pruned (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (id),
    kernel INTEGER NOT NULL REFERENCES kernel (id),
    label TEXT NOT NULL,
    reason TEXT NOT NULL
);
"""

TABLES: Final = frozenset({"device", "run", "kernel", "problem", "config", "measurement", "pruned"})
"""Names of the tables, equal in all versions."""
UPGRADES: Final = {
    1: "ALTER TABLE problem ADD COLUMN weight REAL NOT NULL DEFAULT 1",
    2: 'ALTER TABLE problem RENAME COLUMN meaning TO "case"',
}
"""For each older version, the statement that upgrades a database to the next one."""
