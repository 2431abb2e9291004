"""Packages, folders and files are found in every layout, with the names that importing gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_projects import BODY, TORCH, ids, scanned, target, write

from gradbot.discover.static import scan
from gradbot.errors import UsageError

SQUARE = f"{TORCH}class Square(Function):{BODY}"


def roots(found_modules: object) -> dict[str, str]:
    return {each.name: each.import_root for each in found_modules}  # type: ignore[attr-defined]


def test_src_layout(tmp_path: Path) -> None:
    files = {"pyproject.toml": "", "src/pkg/__init__.py": "", "src/pkg/sub/ops.py": SQUARE, "src/single.py": SQUARE}
    for names in [(".",), ("src/pkg", "src/single.py"), ("pkg", "single")]:
        found = scanned(tmp_path, files, *names)
        assert ids(found) == {"pkg.sub.ops:Square", "single:Square"}
        assert set(roots(found.modules).values()) == {str(tmp_path / "src")}
    place = target(found, "pkg.sub.ops:Square").location
    assert place is not None
    assert place.path == "src/pkg/sub/ops.py"


def test_flat_layout_leaves_out_what_is_beside_the_package(tmp_path: Path) -> None:
    files = {
        "setup.py": "raise SystemExit('never imported')\n",
        "pkg/__init__.py": SQUARE,
        "pkg/__main__.py": SQUARE.replace("Square", "InMain"),
        "pkg/tests/test_it.py": "import pytest\n",
        "tests/test_ops.py": SQUARE,
        "docs/conf.py": SQUARE,
        "examples/demo.py": SQUARE,
        "build/lib/pkg/__init__.py": SQUARE,
        ".venv/lib/x.py": SQUARE,
        "myenv/pyvenv.cfg": "",
        "myenv/lib/x.py": SQUARE,
    }
    found = scanned(tmp_path, files)
    assert ids(found) == {"pkg:Square", "pkg.__main__:InMain"}
    assert [each.name for each in found.modules] == ["pkg"]


def test_packages_come_before_what_is_in_them(tmp_path: Path) -> None:
    files = {"pkg/a.py": "", "pkg/__init__.py": "", "pkg/sub/a.py": "", "pkg/sub/__init__.py": ""}
    found = scanned(tmp_path, files, "pkg")
    assert [each.name for each in found.modules] == ["pkg", "pkg.a", "pkg.sub", "pkg.sub.a"]


def test_namespace_packages(tmp_path: Path) -> None:
    files = {"pyproject.toml": "", "company/kernels/fast.py": SQUARE, "src/other/part/__init__.py": SQUARE}
    found = scanned(tmp_path, files)
    assert ids(found) == {"company.kernels.fast:Square", "other.part:Square"}
    assert roots(found.modules)["company.kernels.fast"] == str(tmp_path)
    assert ids(scanned(tmp_path, files, "company/kernels")) == {"company.kernels.fast:Square"}
    assert ids(scanned(tmp_path, files, "company")) == {"company.kernels.fast:Square"}
    assert ids(scanned(tmp_path, files, "other.part")) == {"other.part:Square"}


def test_a_folder_of_scripts_that_import_each_other(tmp_path: Path) -> None:
    files = {"scripts/ops.py": SQUARE, "scripts/run.py": "from ops import Square\nclass Two(Square): pass\n"}
    found = scanned(tmp_path, files, "scripts")
    assert ids(found) == {"ops:Square", "run:Two"}
    assert set(roots(found.modules).values()) == {str(tmp_path / "scripts")}


def test_a_single_file_in_a_package_keeps_the_packages_name(tmp_path: Path) -> None:
    files = {"deep/pkg/__init__.py": "", "deep/pkg/ops.py": SQUARE, "deep/pkg/more.py": SQUARE}
    found = scanned(tmp_path, files, "deep/pkg/ops.py")
    assert ids(found) == {"pkg.ops:Square"}
    assert roots(found.modules) == {"pkg.ops": str(tmp_path / "deep")}


def test_a_path_outside_the_project(tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/alone.py": SQUARE, "project/pyproject.toml": ""})
    found = scan([str(tmp_path / "elsewhere" / "alone.py")], root=tmp_path / "project")
    (only,) = found.targets
    assert only.id == "alone:Square"
    assert only.location is not None
    assert only.location.path == (tmp_path / "elsewhere" / "alone.py").as_posix()


def test_only_the_asked_part_of_a_package(tmp_path: Path) -> None:
    files = {"pkg/__init__.py": "", "pkg/a.py": SQUARE, "pkg/b/__init__.py": SQUARE, "pkg/b/c.py": SQUARE}
    assert ids(scanned(tmp_path, files, "pkg.a")) == {"pkg.a:Square"}
    assert ids(scanned(tmp_path, files, "pkg.b")) == {"pkg.b:Square", "pkg.b.c:Square"}


def test_editable_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a path entry, and by a finder on `sys.meta_path` that maps names to folders."""
    write(tmp_path, {"one/by_path/__init__.py": SQUARE, "two/other_name/__init__.py": SQUARE, "project/x.txt": ""})
    finder = f"""
        import sys
        from importlib.machinery import PathFinder

        class Finder:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                return PathFinder.find_spec(name, [{str(tmp_path / "two")!r}]) if name == "other_name" else None

        sys.meta_path.append(Finder)
    """
    write(tmp_path / "site", {"editable_finder.py": finder})
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    namespace: dict[str, object] = {}
    exec((tmp_path / "site" / "editable_finder.py").read_text(), namespace)
    assert ids(scan(["by_path", "other_name"], root=tmp_path / "project")) == {"by_path:Square", "other_name:Square"}


def test_another_interpreter(tmp_path: Path) -> None:
    write(tmp_path, {"site/only_there/__init__.py": SQUARE, "site/deps/base.py": SQUARE, "project/x.txt": ""})
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    root = tmp_path / "project"
    assert ids(scan(["only_there"], root=root, python=str(interpreter))) == {"only_there:Square"}
    with pytest.raises(UsageError, match="no package, folder or file 'only_there'"):
        scan(["only_there"], root=root)


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot run the interpreter"), ("#!/bin/sh\necho nonsense\n", "does not answer as a Python interpreter")],
)
def test_an_interpreter_that_is_none(tmp_path: Path, text: str | None, said: str) -> None:
    fake = tmp_path / "fake"
    if text is not None:
        fake.write_text(text)
        fake.chmod(0o755)
    with pytest.raises(UsageError, match=said):
        scan(["entmax"], root=tmp_path, python=str(fake))


def test_installed_packages_by_import_name_and_by_distribution_name(tmp_path: Path) -> None:
    assert len(ids(scan(["entmax"], root=tmp_path))) == 12
    assert any(each.startswith("cmarkgfm") for each in (m.name for m in scan(["cmarkgfm"], root=tmp_path).modules))
    names = {each.name for each in scan(["pytest-timeout"], root=tmp_path).modules}
    assert names == {"pytest_timeout"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_package", "no package, folder or file 'no_such_package'"),
        ("no/such/folder", "no package, folder or file 'no/such/folder'"),
        ("entmax.nothing", "no module 'entmax.nothing' in the package 'entmax'"),
        ("README.txt", r"README.txt is neither a Python nor a C\+\+ source file"),
    ],
)
def test_a_name_that_leads_nowhere_is_said(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "README.txt").touch()
    with pytest.raises(UsageError, match=said):
        scan([name], root=tmp_path)


def test_an_empty_folder_is_noted(tmp_path: Path) -> None:
    assert scanned(tmp_path, {"x.txt": ""}).notes == (".: no Python sources there",)


def test_the_static_step_needs_neither_torch_nor_what_has_it() -> None:
    code = (
        "import sys, gradbot.discover.static, gradbot.discover.merge; print([m for m in sys.modules if 'torch' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
