"""What is in the wheel and the sdist: everything a user needs, and nothing that git ignores by mistake."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """The names in a freshly built wheel and sdist; the wheel is built from the sdist, as installers do."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    return set(zipfile.ZipFile(wheel).namelist()), in_sdist


def tracked(*folders: str) -> list[str]:
    listing = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout: there is no list of tracked files to compare with")
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_wheel_holds_every_tracked_file_of_the_package(distributions: tuple[set[str], set[str]]) -> None:
    wheel, _ = distributions
    assert set(tracked("gradbot")) <= wheel


def test_the_wheel_holds_the_schema_templates_demo_and_type_marker(distributions: tuple[set[str], set[str]]) -> None:
    wheel, _ = distributions
    assert "gradbot/schema/report-v1.schema.json" in wheel
    assert "gradbot/py.typed" in wheel
    assert "gradbot/demo/cases.py" in wheel
    assert any(name.startswith("gradbot/report/templates/") and name.endswith(".j2") for name in wheel)


def test_the_wheel_holds_no_tests_and_no_caches(distributions: tuple[set[str], set[str]]) -> None:
    wheel, _ = distributions
    assert not [name for name in wheel if name.startswith("tests/") or "__pycache__" in name]


def test_the_sdist_holds_every_tracked_file(distributions: tuple[set[str], set[str]]) -> None:
    _, sdist = distributions
    assert set(tracked()) - sdist <= {".gitignore", ".gitattributes"}


def test_gitignore_swallows_no_source_file() -> None:
    """A pattern such as `report*/` or `build/` in .gitignore silently drops whole packages."""
    here = [str(path.relative_to(ROOT)) for path in (ROOT / "gradbot").rglob("*") if path.is_file()]
    sources = [name for name in here if "__pycache__" not in name]
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    ignored = subprocess.run(
        ["git", "check-ignore", "--stdin"], input="\n".join(sources), cwd=ROOT, capture_output=True, text=True
    )
    assert ignored.stdout == ""


def test_the_distribution_is_not_called_like_the_package_of_others() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'name = "gradbot-ci"' in text
    assert 'gradbot = "gradbot.cli.main:main"' in text
