"""The tuner's database: one SQLite file with all measurements, each committed as soon as it is taken.

Values are stored as canonical JSON in the forms of `nojit.runtime.values`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Self

from nojit.aot.tune.store.records import Config, Device, KernelFacts, Measurement, Problem, Pruned, Run, Size
from nojit.aot.tune.store.sql_schema import SCHEMA, TABLES, UPGRADES, VERSION
from nojit.runtime.base.file_kinds import file_kind
from nojit.runtime.base.strict_json import canonical_json
from nojit.runtime.errors import NojitError
from nojit.runtime.values import Value, decode_value, encode_value

__all__ = ["Database", "now", "open_database"]

# seconds to wait for a lock of another process
_PATIENCE_S = 10.0


def now() -> str:
    """Return the current time as the database stores it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def open_database(path: str | PathLike[str], *, create: bool = False) -> Database:
    """Open a database.

    Args:
        path: the file.
        create: open for writing: create the file if it is missing, and upgrade an older version.

    Raises:
        FileNotFoundError: the file is missing, and `create` is False.
        NojitError: the file cannot be opened, is not a database of the tuner, or has an unknown version.
    """
    place = Path(path)
    if not create and not place.exists():
        raise FileNotFoundError(
            f"expected a database of measurements, got no such file - at {place}; create one with nojit tune run"
        )
    if place.exists() and not place.is_file():
        # SQLite would put a journal beside a device
        raise NojitError(
            "expected a database of measurements: nojit tune run makes one",
            got=file_kind(place.stat().st_mode),
            where=str(place),
        )
    if not create and place.is_file() and not place.stat().st_size:
        raise NojitError(
            "expected a database of measurements", got="an empty file; fill it with nojit tune run", where=str(place)
        )
    with _sqlite_errors(place):
        connection = sqlite3.connect(place, timeout=_PATIENCE_S, isolation_level=None)
        try:
            _prepare(connection, place, writes=create)
        except BaseException:
            connection.close()
            raise
    return Database(connection, place)


@contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into a `NojitError` that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise NojitError(
            "expected a database of measurements: nojit tune run makes one", got=str(error), where=str(path)
        ) from error


def _prepare(connection: sqlite3.Connection, path: Path, *, writes: bool) -> None:
    """Create the tables in an empty file; upgrade an older version before writing; refuse all other files."""
    connection.execute("PRAGMA foreign_keys = ON")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not version and not tables:
        # one transaction, so that a killed process leaves an empty file
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    elif version in UPGRADES and _is_ours(connection):
        if writes:
            _upgrade(connection)
    elif version != VERSION or not tables:
        got = f"version {version}; measure into a new file with nojit tune run"
        raise NojitError(f"expected a database of measurements, version {VERSION}", got=got, where=str(path))


def _is_ours(connection: sqlite3.Connection) -> bool:
    """Return whether the file has all tables of the tuner."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return tables >= TABLES


def _upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade an older version's tables in one transaction; do nothing if another process has already upgraded them."""
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for before in range(version, VERSION):
        connection.execute(UPGRADES[before])
        connection.execute(f"PRAGMA user_version = {before + 1}")
    connection.execute("COMMIT")


class Database:
    """An open database, from `open_database`. Its `with` block raises errors of SQLite as `NojitError`.

    Each row has a number. Adding an equal device, kernel, problem or config again returns the same number.

    Attributes:
        path: the file.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            with _sqlite_errors(self.path):
                raise error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes of the block, or none if it raises. A nested block joins the outer transaction."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def add_device(self, device: Device) -> int:
        """Find or add a device; return its number."""
        return self._add("device", _device_row(device))

    def add_kernel(self, kernel: KernelFacts) -> int:
        """Find or add a kernel, and store its current facts; return its number."""
        row = _kernel_row(kernel)
        number = self._find("kernel", {"name": kernel.name})
        if number is None:
            return self._add("kernel", row)
        updates = ", ".join(f'"{name}" = :{name}' for name in row)
        self._connection.execute(f"UPDATE kernel SET {updates} WHERE id = {number}", row)  # noqa: S608 - own names
        return number

    def add_problem(self, problem: Problem) -> int:
        """Find or add a problem, and store its current weight; return its number.

        Raises:
            NojitError: the database holds a different problem of this name.
        """
        row = _problem_row(problem)
        number = self._find("problem", {name: value for name, value in row.items() if name != "weight"})
        if number is not None:
            self._connection.execute("UPDATE problem SET weight = ? WHERE id = ?", (problem.weight, number))
            return number
        self._refuse_another(row)
        return self._insert("problem", row)

    def check_sizes(self, kernel: str, use: str, name: str, dtype: str, *, sizes: Mapping[str, Size]) -> None:
        """Check that a problem has the stored sizes; a new problem may have any.

        `use`: set of problems, such as ``tune`` or ``held_out``.

        Raises:
            NojitError: the sizes differ from the stored ones.
        """
        number = self._find("kernel", {"name": kernel})
        if number is not None:
            row = {"kernel": number, "use": use, "name": name, "dtype": dtype, "sizes": _text(dict(sizes))}
            self._refuse_another(row)

    def _refuse_another(self, row: Mapping[str, Any]) -> None:
        """Raise an error if the database has a problem of the same name with another value in a column of `row`."""
        alike = self._rows("problem", {name: row[name] for name in ("kernel", "use", "name", "dtype")})
        for _, known in alike:
            changed = [name for name in row if row[name] != known[name] and name != "weight"]
            # changes of other columns follow from these
            shown = [name for name in ("sizes", "case") if name in changed] or changed
            if shown:
                (kernel,) = self._connection.execute(
                    "SELECT name FROM kernel WHERE id = ?", (row["kernel"],)
                ).fetchone()
                stored, given = (", ".join(_shown(name, each[name]) for name in shown) for each in (known, row))
                what = f"expected problem {row['name']!r} ({row['use']}, {row['dtype']}) of kernel {kernel} to be as stored"
                raise NojitError(f"{what}, {stored}", got=f"{given}; measure into another file", where=str(self.path))

    def weigh(self, kernel: str, use: str, name: str, dtype: str, *, weight: float) -> None:
        """Store the weight of a problem, if the database has that problem.

        `use`: set of problems, such as ``tune`` or ``held_out``.
        """
        self._connection.execute(
            "UPDATE problem SET weight = ? WHERE use = ? AND name = ? AND dtype = ? "
            "AND kernel = (SELECT id FROM kernel WHERE name = ?)",
            (weight, use, name, dtype, kernel),
        )

    def add_config(self, config: Config) -> int:
        """Find or add a config; return its number."""
        return self._add("config", _config_row(config))

    def start_run(self, run: Run) -> int:
        """Add a run; return its number."""
        return self._insert("run", {name: getattr(run, name) for name in run.__slots__})

    def end_run(self, run: int) -> None:
        """Store the present time as the end of a successful run."""
        self._connection.execute("UPDATE run SET ended = ? WHERE id = ?", (now(), run))

    def record(self, measurements: Iterable[Measurement]) -> None:
        """Add measurements in one transaction."""
        self._record("measurement", ({name: getattr(item, name) for name in item.__slots__} for item in measurements))

    def record_pruned(self, pruned: Iterable[Pruned]) -> None:
        """Add pruned configs in one transaction."""
        self._record("pruned", ({name: getattr(item, name) for name in item.__slots__} for item in pruned))

    def _record(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        with self.transaction():
            for row in rows:
                self._insert(table, row)

    def _add(self, table: str, row: Mapping[str, Any]) -> int:
        found = self._find(table, row)
        return self._insert(table, row) if found is None else found

    def _find(self, table: str, row: Mapping[str, Any]) -> int | None:
        wanted = " AND ".join(f'"{name}" IS :{name}' for name in row)
        found = self._connection.execute(f"SELECT id FROM {table} WHERE {wanted}", row).fetchone()  # noqa: S608 - own names
        return None if found is None else int(found[0])

    def _insert(self, table: str, row: Mapping[str, Any]) -> int:
        names, values = ", ".join(f'"{name}"' for name in row), ", ".join(f":{name}" for name in row)
        cursor = self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({values})", row)  # noqa: S608 - own names
        return int(cursor.lastrowid or 0)

    # reading: rows by number, in order of insertion

    def devices(self) -> dict[int, Device]:
        """Return the devices that have measurements, by their number in the database."""
        return {number: Device(**row) for number, row in self._rows("device")}

    def runs(self) -> dict[int, Run]:
        """Return the runs of `nojit tune run`, by their number in the database."""
        return {number: Run(**row) for number, row in self._rows("run")}

    def kernels(self) -> dict[int, KernelFacts]:
        """Return the measured kernels, by their number in the database."""
        return {number: _kernel(row) for number, row in self._rows("kernel")}

    def problems(self, kernel: int | None = None, use: str | None = None) -> dict[int, Problem]:
        """Return the problems: of one kernel and one use (``tune``, ``held_out``), where these are given."""
        rows = self._rows("problem", {"kernel": kernel, "use": use})
        return {number: _problem(row) for number, row in rows}

    def configs(self, kernel: int | None = None) -> dict[int, Config]:
        """Return the configs: of one kernel, if it is given."""
        rows = self._rows("config", {"kernel": kernel})
        return {number: Config(**{**row, "settings": _values(row["settings"])}) for number, row in rows}

    def measurements(
        self, kernel: int | None = None, device: int | None = None, use: str | None = None
    ) -> tuple[Measurement, ...]:
        """Return the measurements of all rungs in order: of one kernel, device and use, where these are given."""
        picked = {"problem.kernel": kernel, "run.device": device, "problem.use": use}
        wanted = [f"{name} = ?" for name, value in picked.items() if value is not None] or ["1"]
        names = ", ".join(f"measurement.{name}" for name in Measurement.__slots__)
        query = f"SELECT {names} FROM measurement JOIN run ON run.id = run JOIN problem ON problem.id = problem"  # noqa: S608 - own names
        query += f" WHERE {' AND '.join(wanted)} ORDER BY measurement.id"
        values = [value for value in picked.values() if value is not None]
        return tuple(Measurement(*row) for row in self._connection.execute(query, values))

    def pruned(self, kernel: int | None = None) -> tuple[Pruned, ...]:
        """Return the pruned configs: of one kernel, if it is given."""
        return tuple(Pruned(**row) for _, row in self._rows("pruned", {"kernel": kernel}))

    def _rows(self, table: str, picked: Mapping[str, Any] | None = None) -> list[tuple[int, dict[str, Any]]]:
        values = {name: value for name, value in (picked or {}).items() if value is not None}
        wanted = " AND ".join(f'"{name}" = :{name}' for name in values) or "1"
        cursor = self._connection.execute(f"SELECT * FROM {table} WHERE {wanted} ORDER BY id", values)  # noqa: S608 - own names
        names = [column[0] for column in cursor.description]
        return [(row[0], dict(zip(names[1:], row[1:], strict=True))) for row in cursor]


def _text(value: Any) -> str:
    return canonical_json(value).decode("ascii")


def _encoded(values: Mapping[str, Value]) -> str:
    return _text({name: encode_value(value) for name, value in values.items()})


def _values(text: str) -> dict[str, Value]:
    return {name: decode_value(value, name) for name, value in json.loads(text).items()}


def _device_row(device: Device) -> dict[str, Any]:
    return {name: getattr(device, name) for name in device.__slots__}


def _kernel_row(kernel: KernelFacts) -> dict[str, Any]:
    alike = {axis: [list(map(encode_value, group)) for group in groups] for axis, groups in kernel.alike.items()}
    roles = {role: list(names) for role, names in kernel.roles.items()}
    return {"name": kernel.name, "key": _text(list(kernel.key)), "alike": _text(alike), "roles": _text(roles)}


def _kernel(row: Mapping[str, Any]) -> KernelFacts:
    alike = {
        axis: tuple(tuple(decode_value(value, axis) for value in group) for group in groups)
        for axis, groups in json.loads(row["alike"]).items()
    }
    roles = {role: tuple(names) for role, names in json.loads(row["roles"]).items()}
    return KernelFacts(row["name"], tuple(json.loads(row["key"])), alike, roles)


def _problem_row(problem: Problem) -> dict[str, Any]:
    row = {name: getattr(problem, name) for name in problem.__slots__}
    key, sizes = _text(list(problem.key)), _text(dict(problem.sizes))
    return {**row, "case": _encoded(problem.case), "key": key, "sizes": sizes}


def _problem(row: Mapping[str, Any]) -> Problem:
    # versions 1 and 2 call the column `meaning`
    facts = {"case" if name == "meaning" else name: value for name, value in row.items()}
    case, key, sizes = _values(facts["case"]), tuple(json.loads(row["key"])), json.loads(row["sizes"])
    return Problem(**{**facts, "case": case, "key": key, "sizes": sizes})


def _shown(name: str, stored: Any) -> str:
    """Return a stored column of a problem as text for a message."""
    if name not in {"sizes", "case"}:
        return f"{name} {stored}"
    values: dict[str, Any] = json.loads(stored)
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) or f"no {name}"


def _config_row(config: Config) -> dict[str, Any]:
    return {"kernel": config.kernel, "settings": _encoded(config.settings), "requires": config.requires}
