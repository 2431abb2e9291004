"""Which settings hold for which target."""

from __future__ import annotations

from gradbot.config import Config, TargetTable
from gradbot.model import CheckSettings, Mode


def test_general_options_hold_where_no_table_matches() -> None:
    options = Config(atol=1e-3, dtypes=("float32",), timeout=5.0).settings_for("a:B")
    assert options.settings == CheckSettings(atol=1e-3)
    assert (options.devices, options.dtypes, options.timeout) == (("cpu",), ("float32",), 5.0)


def test_the_most_specific_table_wins_and_others_fill_in() -> None:
    config = Config(
        targets=(
            TargetTable(pattern="a:B", atol=1.0),
            TargetTable(pattern="a:*", atol=2.0, rtol=2.0),
            TargetTable(pattern="*", atol=3.0, rtol=3.0, eps=3.0, timeout=9.0),
        )
    )
    options = config.settings_for("a:B")
    assert (options.settings.atol, options.settings.rtol, options.settings.eps) == (1.0, 2.0, 3.0)
    assert options.timeout == 9.0
    assert config.settings_for("b:B").settings.atol == 3.0


def test_the_last_table_wins_among_equals() -> None:
    config = Config(targets=(TargetTable(pattern="a:*B", atol=1.0), TargetTable(pattern="*a:B", atol=2.0)))
    assert config.settings_for("a:B").settings.atol == 2.0


def test_what_the_command_line_set_wins_over_tables() -> None:
    table = TargetTable(pattern="*", mode=Mode.FAST, dtypes=("float32",), atol=1.0)
    config = Config(mode=Mode.EXACT, dtypes=("float64",), targets=(table,), flags=("dtypes", "mode"))
    options = config.settings_for("a:B")
    assert options.settings.mode is Mode.EXACT
    assert options.dtypes == ("float64",)
    assert options.settings.atol == 1.0


def test_include_and_exclude_are_globs_on_ids() -> None:
    config = Config(include=("a.*", "ns::*"), exclude=("*:Slow*",))
    assert config.selects_target("a.b:Fast")
    assert config.selects_target("ns::op.overload")
    assert not config.selects_target("a.b:SlowOne")
    assert not config.selects_target("b:Fast")
    assert Config().selects_target("anything")


def test_rules_are_selected_by_id_kind_and_prefix() -> None:
    assert Config().selects_rule("GB101")
    assert not Config(ignore=("GB1",)).selects_rule("jacobian_mismatch_backward")
    assert Config(ignore=("GB1",), select=("GB101",)).selects_rule("jacobian_mismatch_backward")
    assert not Config(ignore=("GB1",), select=("GB101",)).selects_rule("GB102")
    assert not Config(select=("GB1",), ignore=("nondeterministic", "GB101")).selects_rule("GB101")
    assert not Config(select=("GB2",)).selects_rule("GB101")
    assert not Config(ignore=("nondeterministic",)).selects_rule("GB201")


def test_patterns_that_match_nothing_are_named() -> None:
    config = Config(include=("a*",), exclude=("zz*",), targets=(TargetTable(pattern="b:C", atol=1.0),))
    assert config.unused_patterns(["a:B"]) == ("zz*", "b:C")
