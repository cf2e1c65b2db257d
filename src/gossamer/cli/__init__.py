"""The command. Thin: it parses, calls and prints. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from types import FrameType
from typing import NoReturn

from gossamer._core.process import configure_own_process


def main() -> NoReturn:
    """Run `gossamer`; a refusal is one sentence on standard error and its exit code, never a traceback."""
    configure_own_process()
    gc.set_threshold(
        100_000
    )  # what loading torch makes stays: to look through it again and again takes a tenth of that time
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        code = _run()
    except KeyboardInterrupt:
        code = _refused("stopped", 130)
    sys.exit(code)


def _run() -> int:
    import typer

    from gossamer.cli.app import app
    from gossamer.errors import GossamerError

    # click's own error; versions of typer differ in where they keep click.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(prog_name="gossamer", standalone_mode=False) or 0
    except GossamerError as error:
        return _refused(str(error), error.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        return _refused(
            f"cannot go on: {error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        )
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate" not in str(
            error
        ):  # torch's way to say it
            raise
        return _refused(
            "there is not enough memory for this study: give fewer devices, a smaller batch or a smaller model"
        )
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            return 2
        context = getattr(error, "ctx", None)
        message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
        message = re.sub(
            r"\. Did (you mean .*\?)$", r" (did \1)", message[:1].lower() + message[1:]
        )
        return _refused(
            f"{message}; see `{context.command_path if context else 'gossamer'} --help`"
        )
    if code == 130:
        raise KeyboardInterrupt
    return int(code)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C, as Python has it, but for one case: C++ that is being loaded cannot bear an exception and would abort."""
    while frame is not None:
        if "importlib._bootstrap" in frame.f_code.co_filename:
            _refused("stopped")
            if sys.stderr.isatty():
                print(
                    "\x1b[?25h", end="", file=sys.stderr, flush=True
                )  # a progress bar may have hidden the cursor
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _refused(sentence: str, code: int = 2) -> int:
    print("gossamer:", " ".join(sentence.splitlines()), file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:  # what cannot be written now cannot be written at the end of the process either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
