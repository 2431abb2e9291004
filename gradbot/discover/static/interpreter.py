"""What another interpreter says of where it finds packages. It is asked for their places and imports none of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradbot.errors import UsageError

_PROBE = """
import importlib.util, json, sys
path = [each for each in sys.path if each]
sys.path[:] = path
places = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is not None:
        places[name] = list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
print(json.dumps({"path": path, "places": places}))
"""
_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """`path` is its `sys.path`, `places` the folders or files of the packages that it was asked for."""

    path: tuple[str, ...]
    places: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)


def ask(python: str, names: Sequence[str]) -> Interpreter:
    """Ask an interpreter where it finds these top-level names. Raises `UsageError` if it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *names], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        places = {name: tuple(Path(each) for each in found) for name, found in answer["places"].items()}
        return Interpreter(path=tuple(answer["path"]), places=places)
    except OSError as error:
        raise UsageError(f"cannot run the interpreter {python}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"the interpreter {python} does not answer within {_SECONDS} s") from None
    except (subprocess.CalledProcessError, ValueError, KeyError, IndexError):
        raise UsageError(f"{python} does not answer as a Python interpreter does") from None
