"""The command. Thin: it parses, calls and prints. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `gossamer`; a refusal is one sentence on standard error and its exit code, never a traceback."""
    from gossamer.cli.app import app
    from gossamer.errors import GossamerError

    try:
        app(prog_name="gossamer")
    except GossamerError as error:
        print(f"gossamer: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        print("gossamer: stopped", file=sys.stderr)
        sys.exit(130)
