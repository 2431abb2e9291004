"""How configuration is found, merged and held to its types."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradbot import codec
from gradbot.config import CommentMode, Config, FailOn, TargetTable, help_for, load, markdown_table
from gradbot.config.documentation import option_fields
from gradbot.config.values import parse_size
from gradbot.errors import UsageError
from gradbot.model import Mode


def write(folder: Path, text: str, name: str = "gradbot.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, text: str, name: str = "gradbot.toml") -> Config:
    return load(write(folder, text, name), folder, {}, {})


def complaint(folder: Path, text: str, name: str = "gradbot.toml") -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text, name)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder / name) in message
    return message


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert load(None, tmp_path, {}, {}) == Config(root=str(tmp_path))


def test_the_nearest_pyproject_with_a_table_is_found_from_below(tmp_path: Path) -> None:
    write(tmp_path, '[tool.gradbot]\npackages = ["kernels"]\n', "pyproject.toml")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    write(below, "[tool.other]\n", "pyproject.toml")
    config = load(None, below, {}, {})
    assert config.packages == ("kernels",)
    assert config.root == str(tmp_path)
    assert config.source == str(tmp_path / "pyproject.toml")


def test_gradbot_toml_holds_options_at_its_top_and_wins_over_pyproject(tmp_path: Path) -> None:
    write(tmp_path, "[tool.gradbot]\nseed = 1\n", "pyproject.toml")
    write(tmp_path, "seed = 2\n")
    assert load(None, tmp_path, {}, {}).seed == 2


def test_the_search_stops_at_the_repository(tmp_path: Path) -> None:
    write(tmp_path, "seed = 2\n")
    inner = tmp_path / "checkout"
    (inner / ".git").mkdir(parents=True)
    assert load(None, inner, {}, {}).seed == 0


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'seed = 1\ntimeout = 5\nmode = "fast"\n')
    config = load(path, tmp_path, {"seed": 3, "mode": None}, {"GRADBOT_SEED": "2", "GRADBOT_TIMEOUT": "7.5"})
    assert (config.seed, config.timeout, config.mode) == (3, 7.5, Mode.FAST)
    assert config.flags == ("seed", "timeout")


def test_environment_lists_are_split_at_commas_and_blanks(tmp_path: Path) -> None:
    environ = {"GRADBOT_DTYPES": "float32, double", "GRADBOT_TRITON_INTERPRET": "1", "GRADBOT_FAIL_ON": "new-failures"}
    config = load(None, tmp_path, {}, environ)
    assert config.dtypes == ("float32", "float64")
    assert config.triton_interpret is True
    assert config.fail_on is FailOn.NEW_FAILURES


def test_the_environment_names_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "seed = 9\n", "elsewhere.toml")
    assert load(None, tmp_path, {}, {"GRADBOT_CONFIG": str(path)}).seed == 9


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no configuration file"):
        load(tmp_path / "none.toml", tmp_path, {}, {})


def test_an_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    message = complaint(tmp_path, '[tool.gradbot]\npackges = ["a"]\n', "pyproject.toml")
    assert message.endswith("unknown key 'packges'; did you mean 'packages'?")


def test_an_unknown_key_near_nothing_lists_what_is_valid(tmp_path: Path) -> None:
    assert "valid are atol, baseline" in complaint(tmp_path, "zzz = 1\n")


def test_an_unknown_key_of_a_target_names_the_table(tmp_path: Path) -> None:
    message = complaint(tmp_path, '[targets."a:B"]\natool = 1\n')
    assert "targets.\"a:B\": unknown key 'atool'; did you mean 'atol'?" in message


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("timeout = '60'", "timeout: expected a number, found str '60'"),
        ("timeout = true", "timeout: expected a number, found bool True"),
        ("timeout = 0", "timeout: expected a number above zero, found 0"),
        ("seed = 1.5", "seed: expected a whole number, found float 1.5"),
        ("seed = -1", "seed: expected a number that is not negative"),
        ("atol = nan", "atol: expected a number that is not negative"),
        ("packages = [1]", "packages: expected a list of strings, found list [1]"),
        ("triton_interpret = 1", "triton_interpret: expected true or false, found int 1"),
        ("recorded = ['a']", "recorded: expected a string, found list"),
        ("mode = 'exakt'", "mode: expected one of auto, fast, exact; found str 'exakt'; did you mean 'exact'?"),
        ("dtypes = ['float23']", "dtypes: unknown dtype 'float23'; did you mean 'float32'?"),
        ("devices = ['CUDA']", 'devices: expected a device such as "cpu" or "cuda:0", found \'CUDA\''),
        ("checks = ['bakward']", "checks: unknown check 'bakward'; did you mean 'backward'?"),
        ("ignore = ['nondeterminstic']", "unknown rule 'nondeterminstic'; did you mean 'nondeterministic'?"),
        ("memory_limit = 'much'", 'memory_limit: expected a size such as "4 GiB"'),
        ("targets = 3", "targets must hold tables"),
        ("targets = {'a:B' = 3}", 'targets."a:B" must be a table, found int 3'),
        ("x = = 1", "not TOML"),
        ("tool = 1", "tool must be a table"),
    ],
)
def test_a_wrong_value_is_one_clear_line(tmp_path: Path, line: str, said: str) -> None:
    assert said in complaint(tmp_path, line + "\n")


def test_a_wrong_environment_variable_is_named() -> None:
    with pytest.raises(UsageError, match="environment variable GRADBOT_SEED: seed: expected a whole number, found str"):
        load(None, Path("/"), {}, {"GRADBOT_SEED": "one"})


def test_expect_needs_a_reason(tmp_path: Path) -> None:
    assert 'needs a reason: add reason = "..."' in complaint(tmp_path, '[targets."a:B"]\nexpect = "reversal"\n')
    assert "expected one of surrogate" in complaint(tmp_path, '[targets."a:B"]\nexpect = "wrong"\nreason = "x"\n')


def test_hyphens_in_keys_and_single_strings_for_lists_are_accepted(tmp_path: Path) -> None:
    config = read(tmp_path, 'comment-mode = "off"\npackages = "kernels"\njobs = "auto"\n')
    assert config.comment_mode is CommentMode.OFF
    assert config.packages == ("kernels",)
    assert config.jobs == 0


def test_an_empty_override_is_not_set(tmp_path: Path) -> None:
    config = load(write(tmp_path, "packages = ['a']\n"), tmp_path, {"packages": (), "config": None}, {})
    assert config.packages == ("a",)


def test_configuration_travels_through_the_codec(tmp_path: Path) -> None:
    config = read(tmp_path, '[targets."a:*"]\natol = 1e-3\nchecks = ["backward"]\n')
    assert config.targets == (TargetTable(pattern="a:*", atol=1e-3, checks=("backward",)),)
    assert codec.loads(codec.dumps(config), Config) == config


def test_every_option_is_documented() -> None:
    for cls in (Config, TargetTable):
        for each in option_fields(cls):
            text = help_for(each.name, cls)
            assert text.endswith((".", "tables.")), each.name
            assert "{" not in text
            assert f"| `{each.name}` |" in markdown_table(cls)


@pytest.mark.parametrize(
    ("text", "size"),
    [("", None), ("4 GiB", 4 << 30), ("512M", 512 << 20), ("10kb", 10240), ("7", 7), ("1.5g", 3 << 29)],
)
def test_sizes(text: str, size: int | None) -> None:
    assert parse_size(text) == size
