"""The `gradbot` command: finds the subcommand's file, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from gradbot.errors import ExitCode, GradbotError

COMMANDS = {
    "check": "Check the gradients of a package, path or target.",
    "discover": "List the custom Functions and registered ops of a package or path.",
    "coverage": "Say which discovered targets are checked, and by inputs from where.",
    "record": "Run a command and record inputs for the targets that it calls.",
    "plan": "Cut the work into shards for a CI matrix.",
    "merge": "Join the reports of several shards.",
    "report": "Render a report, and compare it with another one.",
    "baseline": "Keep known failures, so that only new ones fail.",
    "show": "Print one case of a report in full.",
    "explain": "Say what a rule means, its usual causes and the remedy.",
    "publish": "Post a report to a pull request: comment, summary, annotations.",
}


_RUN_USER_CODE = frozenset({"check", "discover", "coverage", "record", "plan"})


class _LazyGroup(click.Group):
    """Imports a subcommand's module when it is asked for, so that `gradbot publish` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"gradbot.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gradbot-ci", prog_name="gradbot")
def gradbot() -> None:
    """Checks the gradients of custom PyTorch functions and ops.

    \b
    Exit codes: 0 right; 1 something is wrong with the targets; 2 usage or
    configuration; 3 nothing was checked; 4 gradbot itself broke.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of `ExitCode`.

    Commands that start user code first get rid of secrets in this process's environment.
    """
    if arguments is None and sys.argv[1:2] and sys.argv[1] in _RUN_USER_CODE:
        from gradbot.run.secrets import restart_without_secrets

        restart_without_secrets(sys.argv[1:])
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        result = gradbot.main(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.RIGHT
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return _say("interrupted", 130)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except GradbotError as error:
        return _say(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.RIGHT
    except Exception as error:  # noqa: BLE001  the last line of defence: a bug of ours must not look like a verdict
        if os.environ.get("GRADBOT_TRACEBACK"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{type(error).__name__}: {error} (at {os.path.basename(where.filename)}:{where.lineno})"
        return _say(f"gradbot itself broke: {line}. GRADBOT_TRACEBACK=1 shows where; please report it", ExitCode.BROKEN)


def _say(text: str, code: int) -> int:
    click.echo(f"gradbot: {' '.join(text.split())}", err=True)
    return code


if __name__ == "__main__":
    main()
