"""Options and hooks. Loaded by every pytest run where gradbot is installed, so it imports nothing until it is asked.

`--gradbot-record` records the calls of custom Functions and ops; `--gradbot` puts gradbot's engine behind
`torch.autograd.gradcheck` and `gradgradcheck` and writes a report. Both work under pytest-xdist: every worker writes
into a folder that the controller made, and the controller joins them at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradbot.pytest_plugin.gradcheck_calls import Calls

NAME = "gradbot-session"
SPOOL = "gradbot_spool"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("gradbot", "gradients of custom PyTorch functions and ops")
    group.addoption("--gradbot", action="store_true", help="check gradcheck calls with gradbot and write a report")
    group.addoption("--gradbot-report", metavar="PATH", default=".gradbot/report.json", help="where --gradbot writes")
    group.addoption("--gradbot-record", action="store_true", help="record inputs of custom Functions and ops")
    group.addoption("--gradbot-dir", metavar="DIR", default="", help="folder of recordings (gradbot_cases)")
    group.addoption("--gradbot-packages", metavar="NAMES", default="", help="record these packages only, with commas")
    group.addoption("--gradbot-prune", action="store_true", help="drop recordings that this run did not see")


def pytest_configure(config: pytest.Config) -> None:
    """Start what was asked for."""
    asked = config.getoption("--gradbot") or config.getoption("--gradbot-record")
    if asked and not config.getoption("collectonly", False):
        config.pluginmanager.register(Session(config), NAME)


@dataclass
class Session:
    """One pytest process that records or checks."""

    config: pytest.Config
    stack: ExitStack = field(default_factory=ExitStack)
    calls: Calls | None = None
    summary: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        worker_input: dict[str, Any] | None = getattr(self.config, "workerinput", None)
        self.is_controller = worker_input is None
        self.spool = Path(worker_input[SPOOL] if worker_input else tempfile.mkdtemp(prefix="gradbot-"))
        if self.config.getoption("--gradbot-record"):
            self.stack.enter_context(self._recording())
        if self.config.getoption("--gradbot"):
            from gradbot.pytest_plugin.gradcheck_calls import Calls, replaced

            self.calls = Calls(folder=self.spool / "calls", root=Path(self.config.rootpath))
            self.stack.enter_context(replaced(self.calls))

    def _recording(self) -> AbstractContextManager[None]:
        from gradbot.record.session import Wish, recording

        packages = tuple(name for name in self.config.getoption("--gradbot-packages").split(",") if name)
        return recording(Wish(spool=str(self.spool / "seen"), packages=packages or self._own_packages()))

    def _own_packages(self) -> tuple[str, ...]:
        from gradbot.config import load

        found = load(None, Path(self.config.rootpath), {}, os.environ).packages
        return tuple(name for name in found if name.isidentifier() or "." in name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where to write."""
        node.workerinput[SPOOL] = str(self.spool)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        """Settle a test's gradcheck calls once it is known how the test ended."""
        outcome = yield
        if self.calls is not None and call.when == "call":
            report = outcome.get_result()
            passed = report.passed or hasattr(report, "wasxfail")
            line = item.location[1]
            self.calls.settle(item.nodeid, item.location[0], 1 if line is None else line + 1, test_passed=passed)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Join what the workers wrote, and write it down."""
        self.stack.close()
        if not self.is_controller:
            return
        try:
            if self.config.getoption("--gradbot-record"):
                self.summary.append(self._collect_recordings())
            if self.calls is not None:
                self.summary.append(self._write_report())
        finally:
            shutil.rmtree(self.spool, ignore_errors=True)

    def _collect_recordings(self) -> str:
        from gradbot.config import load
        from gradbot.errors import GradbotError
        from gradbot.record.collect import collect
        from gradbot.record.store import Limits

        root = Path(self.config.rootpath)
        folder = self.config.getoption("--gradbot-dir") or load(None, root, {}, os.environ).recorded
        prune = bool(self.config.getoption("--gradbot-prune"))
        try:
            result = collect(self.spool / "seen", root / folder, limits=Limits(), prune=prune)
        except GradbotError as error:
            return f"gradbot: {error}"
        left = "".join(f"\n  not written: {target}: {why[0]}" for target, why in result.not_portable.items())
        changed = f"{result.added} new, {result.removed} dropped"
        return f"gradbot: {result.samples} samples of {result.targets} targets in {folder} ({changed}){left}"

    def _write_report(self) -> str:
        from gradbot.pytest_plugin.gradcheck_calls import write_report

        path = Path(self.config.rootpath) / self.config.getoption("--gradbot-report")
        return write_report(self.spool / "calls", path, tuple(self.config.invocation_params.args))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was written."""
        for text in self.summary:
            terminalreporter.write_line(text)
