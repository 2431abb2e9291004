"""One project, and the runs of its suite that several tests look at, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_plugin.project import Ran, make_project, run_suite


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def plain(project: Path) -> Ran:
    """Without gradbot."""
    return run_suite(project)


@pytest.fixture(scope="session")
def checked(project: Path) -> Ran:
    """With the calls of gradcheck checked."""
    return run_suite(project, "--gradbot")


@pytest.fixture(scope="session")
def recorded(project: Path) -> Ran:
    """With calls recorded into `cases`."""
    return run_suite(project, "--gradbot-record", "--gradbot-dir", "cases")
