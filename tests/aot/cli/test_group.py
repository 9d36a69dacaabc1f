"""Which commands there are, what loading them costs, and how failures end."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from nojit.aot.cli import commands
from nojit.aot.cli.group import _ORDER, cli
from nojit.aot.cli.lazy import LazyGroup, summary_of

from tests.aot.cli.conftest import Run
from tests.support.bundles import kernel, make_bundle


def leaves(name: str) -> list[tuple[str, ...]]:
    """List a command, or the commands that it groups."""
    command: click.Command = importlib.import_module(f"nojit.aot.cli.commands.{name}").command
    if not isinstance(command, click.Group):
        return [(name,)]
    return [(name, inner) for inner in command.list_commands(click.Context(command))]


COMMANDS = cli.list_commands(click.Context(cli))
(FOLDER,) = commands.__path__
FORBIDDEN_TO_MOST = ("triton", "msgspec", "torch", "numpy")


def python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    # other tests of this process may have set a fake driver or bundles of their own
    outside = {name: value for name, value in os.environ.items() if not name.startswith("NOJIT_")}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=outside | environment)


@pytest.mark.parametrize("words", [words for name in COMMANDS for words in leaves(name)], ids=" ".join)
def test_each_command_has_help_and_the_shared_options(run: Run, words: tuple[str, ...]) -> None:
    for flag in ("-h", "--help"):
        result = run(*words, flag)
        assert result.exit_code == 0
        # a command that the program replaces has no output of its own
        shared = ("-h, --help",) if words == ("run",) else ("--json", "-q, --quiet", "-v, --verbose", "-h, --help")
        for option in shared:
            assert option in result.stdout


def test_a_group_lists_its_commands(run: Run) -> None:
    result = run("bench", "-h")
    assert result.exit_code == 0
    assert {words[1] for words in leaves("bench")} <= set(result.stdout.split())


def test_help_lists_every_command(run: Run) -> None:
    result = run("-h")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.stdout
        assert summary_of(f"nojit.aot.cli.commands.{name}", FOLDER).split()[0] in result.stdout


def test_a_module_of_the_folder_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").touch()
    (tmp_path / "mine/yield_.py").write_text(
        '"""``nojit yield``: Give way."""\nimport click\ncommand = click.Command("yield")\n'
    )
    (tmp_path / "mine/bare.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    group = LazyGroup(name="mine", package="mine", order=("yield", "gone"))
    context = click.Context(group)
    assert group.list_commands(context) == ["yield", "bare"]
    assert "yield  Give way." in group.get_help(context)
    assert group.get_command(context, "yield").name == "yield"
    assert group.get_command(context, "gone") is None


def test_every_command_has_a_place_in_the_list() -> None:
    assert sorted(COMMANDS) == sorted(_ORDER)


def test_every_command_has_a_summary_in_its_first_line() -> None:
    for name in COMMANDS:
        assert summary_of(f"nojit.aot.cli.commands.{name}", FOLDER).endswith(".")
    for name in ("run", "select", "evaluate", "report", "import_"):
        assert summary_of(f"nojit.aot.cli.commands.tune.{name}", f"{FOLDER}/tune").endswith(".")


def test_version(run: Run) -> None:
    assert run("--version").stdout.startswith("nojit 0.")


@pytest.mark.parametrize("name", ["inspect", "verify", "diff", "extract", "doctor"])
def test_reading_commands_import_no_compiler(name: str, bundle: Path, tmp_path: Path) -> None:
    words = {
        "inspect": [str(bundle)],
        "verify": [str(bundle)],
        "diff": [str(bundle), str(bundle)],
        "extract": [str(bundle), "--kernel", "copy", "--out", str(tmp_path / "out")],
        "doctor": [],
    }[name]
    code = (
        "import sys\nfrom nojit.aot.cli.group import cli\n"
        "try: cli.main(sys.argv[1:], prog_name='nojit')\nexcept SystemExit as end: assert not end.code, end.code\n"
        f"print([name for name in {FORBIDDEN_TO_MOST} if name in sys.modules], file=sys.stderr)"
    )
    result = python(code, name, *words)
    assert result.stderr.strip().splitlines()[-1] == "[]"


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom nojit.aot.cli.group import cli\n"
        "try: cli.main(['-h'], prog_name='nojit')\nexcept SystemExit: pass\n"
        "print([name for name in ('rich', 'zstandard', 'nojit.runtime.bundle.file') if name in sys.modules], file=sys.stderr)"
    )
    assert python(code).stderr.strip() == "[]"


def test_help_is_light() -> None:
    """Calls are counted, for a time would be the machine's: loading the group and showing help adds about as many as click takes."""
    code = (
        "import sys\nseen = [0, 0]\n"
        "def count(place): sys.setprofile(lambda f, event, x: seen.__setitem__(place, seen[place] + event.endswith('call')))\n"
        "count(0)\nimport click\ncount(1)\nfrom nojit.aot.cli.group import cli\n"
        "try: cli.main(['-h'], prog_name='nojit')\nexcept SystemExit: pass\n"
        "sys.setprofile(None)\nprint(*seen, file=sys.stderr)"
    )
    click_alone, more = map(int, python(code).stderr.split())
    assert 0 < more < 1.25 * click_alone


def test_no_words_show_help_and_are_a_usage_error(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["inspct"], "did you mean 'inspect'?"),
        (["inspect", "--jsn", "x"], "--json"),
        (["inspect"], "BUNDLE"),
        (["build", "--jobs", "0"], "--jobs"),
        (["build", "--timeout", "0"], "--timeout"),
        (["build", "--profile", "all"], "--profile"),
        (["build", "--arch", "sm90"], "did you mean 'sm_90'?"),
        (["verify"], "BUNDLE"),
        (["completion", "csh"], "bash"),
        (["verify", ""], "expected a path, got ''"),
        (["pull", "oci://localhost/kernels:1", "--out", ""], "expected a path, got ''"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], expected: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "Usage: nojit" in result.stderr
    assert expected in result.stderr
    assert result.stdout == ""
    as_json = run(*words, "--json")
    assert as_json.exit_code == 2
    assert json.loads(as_json.stdout)["error"]["exit_code"] == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["-q", "diff", "A", "A"], ["diff", "A", "A", "-q"]),
        (["--json", "inspect", "A"], ["inspect", "A", "--json"]),
        (["-v", "inspect", "A"], ["inspect", "A", "-v"]),
        (["-v", "inspect", "A", "-v"], ["inspect", "A", "-vv"]),
        (["--json", "-q", "tune", "select"], ["tune", "select", "--json", "-q"]),
        (["tune", "--json", "select"], ["tune", "select", "--json"]),
        (["bench", "--json", "launch", "--rounds", "0"], ["bench", "launch", "--rounds", "0", "--json"]),
        (["--quiet", "--verbose", "inspect", "A"], ["inspect", "A", "--quiet", "--verbose"]),
    ],
    ids=" ".join,
)
def test_options_of_commands_can_stand_before_them(
    run: Run, tmp_path: Path, before: list[str], after: list[str]
) -> None:
    bundle = make_bundle(tmp_path / "a.nojit", kernel("add", {"n": "i32"}))
    one, other = (run(*(str(bundle) if word == "A" else word for word in words)) for words in (before, after))
    assert (one.exit_code, one.stdout, one.stderr) == (other.exit_code, other.stdout, other.stderr)


def test_options_without_a_command_are_a_usage_error(run: Run) -> None:
    result = run("--json", "-q")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["exit_code"] == 2


@pytest.mark.parametrize("words", [words for name in COMMANDS for words in leaves(name)], ids=" ".join)
def test_help_of_a_command_is_what_its_option_says(run: Run, words: tuple[str, ...]) -> None:
    asked = run("help", *words)
    assert asked.exit_code == 0
    assert asked.stdout == run(*words, "-h").stdout


def test_help_without_words_lists_the_commands(run: Run) -> None:
    assert run("help").stdout == run("-h").stdout
    assert run("help").exit_code == 0
    assert run("help", "tune").stdout == run("tune", "-h").stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["buidl"], "got 'buidl'; did you mean 'build'?"),
        (["tune", "slect"], "got 'slect'; did you mean 'select'?"),
        (["build", "more"], "expected no word after nojit build, which has no subcommands, got 'more'"),
    ],
)
def test_help_of_what_there_is_not_is_a_usage_error(run: Run, words: list[str], expected: str) -> None:
    result = run("help", *words)
    assert result.exit_code == 2
    assert expected in result.stderr


@pytest.mark.parametrize("words", [["-h"], ["build", "-h"], ["cache", "stats", "-h"], ["help", "build"]])
def test_help_fits_a_terminal_of_forty_columns(run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, run(*words).stdout.splitlines())) <= 40


def test_options_that_no_command_has_go_nowhere(run: Run) -> None:
    result = run("--jason", "build")
    assert result.exit_code == 2
    assert "No such option '--jason'" in result.stderr


def test_error_is_one_paragraph_and_its_facts_are_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "absent.nojit"
    result = run("inspect", path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"error: expected a bundle file, got no such file or directory - at {path}\n"
    error = json.loads(run("inspect", path, "--json").stdout)["error"]
    assert (error["type"], error["where"], error["exit_code"]) == ("BundleError", str(path), 1)


def test_traceback_takes_two_vs(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "absent.nojit"
    assert "Traceback" not in run("inspect", path, "-v").stderr
    assert "Traceback" in run("inspect", path, "-vv").stderr
    assert "Traceback" in run("inspect", path, "-v", "-v").stderr
    assert "Traceback" in run("inspect", path, "--verbose", "--verbose").stderr


def test_damage_exits_3(run: Run, bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:-1])
    for words in (["inspect", bundle], ["diff", bundle, bundle], ["verify", bundle]):
        assert run(*words).exit_code == 3


def test_missing_package_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    for name in [
        name for name in sys.modules if name.startswith(("nojit.aot.manifest", "nojit.aot.cli.commands.schema"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    result = run("schema")
    assert result.exit_code == 1
    assert "pip install 'nojit[build]'" in result.stderr


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 reads bundles without it")
def test_without_zstandard_no_compiler_is_asked_for(bundle: Path, tmp_path: Path) -> None:
    # as on a machine without libzstd
    code = (
        "import sys; sys.modules['zstandard'] = None\nfrom nojit.runtime import _core; _core.finds_zstd = lambda: False\n"
        "from nojit.aot.cli import main; main()"
    )
    outside = {"NOJIT_BUNDLES": str(bundle), "NOJIT_CACHE_DIR": str(tmp_path / "cache")}
    out = ("--kernel", "copy", "--out", str(tmp_path / "out"))
    for words in (("verify", str(bundle)), ("inspect", str(bundle)), ("extract", str(bundle), *out), ("doctor",)):
        result = python(code, *words, **outside)
        assert result.returncode == 1, result.stderr
        assert "pip install zstandard" in result.stderr
        assert "nojit[build]" not in result.stderr
        assert "Traceback" not in result.stderr
    # the last one went on
    assert "driver   " in result.stdout
    assert str(tmp_path / "cache") in result.stdout
    assert str(bundle) in result.stdout
    assert "pip install 'nojit[build]'" in python(code, "build", **outside).stderr


@pytest.mark.parametrize("name", ["click", "rich"])
def test_without_click_or_rich_the_script_names_the_extra_before_it_works(name: str) -> None:
    missing = f"from importlib import util; real = util.find_spec; util.find_spec = lambda name: None if name == {name!r} else real(name)"
    result = python(f"{missing}\nfrom nojit.aot.cli import main; main()")
    assert result.returncode == 1
    assert result.stderr == "error: the command line of nojit needs the extra cli: pip install 'nojit[cli]'\n"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_full_disk_behind_standard_output(bundle: Path, flags: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "nojit", "inspect", str(bundle), *flags],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert "expected to write the output, got No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_closed_pipe_behind_standard_output(bundle: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "nojit", "inspect", str(bundle), "--json"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_NOJIT_COMPLETE" in result.stdout


def test_completion_completes(run: Run) -> None:
    environment = {"_NOJIT_COMPLETE": "bash_complete", "COMP_WORDS": "nojit ins", "COMP_CWORD": "1"}
    result = python("from nojit.aot.cli import main; main()", **environment)
    assert result.stdout.strip() == "plain,inspect"


def test_schema_is_a_schema_that_fits_the_manifest(run: Run) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(run("schema", "--json").stdout) == schema


def test_every_command_is_its_modules(run: Run) -> None:
    context = cli.make_context("nojit", ["schema"])
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name


@pytest.mark.parametrize("group", ["tune", "bench"])
def test_a_group_alone_lacks_a_command(run: Run, group: str) -> None:
    result = run(group)
    assert result.exit_code == 2
    assert f"error: Missing command. (see: nojit {group} -h)" in result.stderr


@pytest.mark.parametrize(
    ("raised", "said"),
    [(KeyboardInterrupt(), ("interrupted", 130)), (SystemExit(143), ("terminated", 143))],
)
def test_a_signal_is_told_in_one_line_and_in_json(
    run: Run, monkeypatch: pytest.MonkeyPatch, bundle: Path, raised: BaseException, said: tuple[str, int]
) -> None:
    def interrupt(_path: Path) -> None:
        raise raised

    monkeypatch.setattr("nojit.aot.inspect.places.open_bundle", interrupt)
    result = run("inspect", bundle)
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (said[1], "", said[0])
    result = run("inspect", bundle, "--json")
    assert result.exit_code == said[1]
    error = json.loads(result.stdout)["error"]
    assert (error["type"], error["message"], error["exit_code"]) == (type(raised).__name__, *said)


def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback() -> None:
    code = (
        "import signal, sys\n"
        "import nojit.aot.cli as package\n"
        "class Impatient:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'nojit.aot.cli.group': signal.raise_signal(signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "package.main()"
    )
    ran = python(code, "doctor")
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "interrupted\n")


def test_what_the_system_refuses_is_said_in_words(run: Run, tmp_path: Path) -> None:
    absent = tmp_path / "absent.json"
    device = ("--device-name", "d", "--arch", "sm_90", "--multiprocessors", 132, "--memory-bytes", 1000)
    for words in (
        ("tune", "import", absent, "--kernel", "k", "--key", "n", *device),
        ("build", tmp_path / "absent.toml"),
        ("build", "--ptxas", absent, "--min-driver", "12.4", tmp_path),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert "[Errno" not in result.stderr
        assert str(tmp_path) in result.stderr


def test_a_path_that_the_encoding_lacks_is_escaped(bundle: Path) -> None:
    path = bundle.rename(bundle.with_name("\N{SNOWMAN}.nojit"))
    done = python("from nojit.aot.cli import main; main()", "verify", str(path), PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2603.nojit" in done.stdout


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_no_traceback(bundle: Path, stream: str) -> None:
    number = ("stdin", "stdout", "stderr").index(stream)
    code = f"import os, sys; os.close({number}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = python(code, "-m", "nojit", "inspect", str(bundle))
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


_TIMEOUT, _SIZE, _LOSS = ("build", "--timeout"), ("wheel", "--max-size"), ("tune", "select", "db", "--loss")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        *((words, number) for words in (_TIMEOUT, _SIZE, _LOSS) for number in ("nan", "inf", "-inf", "x")),
        *((words, number) for words in (_TIMEOUT, _SIZE) for number in ("0", "1e308")),
    ],
)
def test_what_is_no_number_of_the_range_is_wrong_usage(run: Run, words: tuple[str, ...], number: str) -> None:
    result = run(*words, number)
    assert (result.exit_code, type(result.exception)) == (2, SystemExit), result.output
    assert words[-1] in result.stderr
