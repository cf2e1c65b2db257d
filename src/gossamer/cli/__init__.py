"""The command `gossamer`: parses arguments, calls the library, prints.

Nothing heavy is imported until a command needs it.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import warnings
from types import FrameType
from typing import Any, NoReturn

from gossamer._core.process import configure_own_process

# Objects made between two garbage collections. Loading torch makes many that stay: collecting them
# again and again takes a tenth of the loading time.
_GC_THRESHOLD = 100_000
_SHOW_CURSOR = "\x1b[?25h"
_ERROR = 2
_INTERRUPTED = 130


def main() -> NoReturn:
    """Run `gossamer`. An error is one sentence on standard error and an exit code."""
    configure_own_process()
    gc.set_threshold(_GC_THRESHOLD)
    # A sentence, without the line of source code that Python prints.
    warnings.showwarning = lambda message, *_: _print_warning(message)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        # A Ctrl-C while the interpreter shuts down must not change the code of a finished command.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)  # as Ctrl-C, so that the run is saved
    try:
        code = _run()
    except KeyboardInterrupt:
        code = _print_error("stopped", _INTERRUPTED)
    sys.exit(code)


def _run() -> int:
    """Run a command. Return its exit code."""
    import typer

    from gossamer.cli.app import app
    from gossamer.errors import GossamerError

    # click's own error; versions of typer differ in where they keep click.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(prog_name="gossamer", standalone_mode=False) or 0
    except GossamerError as error:
        return _print_error(str(error), error.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except OSError as error:
        message = f"cannot continue: {error.strerror or error}"
        if error.filename:
            message += f": {error.filename}"
        return _print_error(message)
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError when memory is short.
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        return _print_error(
            "there is not enough memory for this study: "
            "give fewer devices, a smaller batch or a smaller model"
        )
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        return _print_usage_error(error)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return int(code)


def _print_usage_error(error: Any) -> int:
    """Print click's error about arguments as one sentence; print the help if there are none."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return _ERROR
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    message = re.sub(r"\. Did (you mean .*\?)$", r" (did \1)", message)
    command = "gossamer"
    if getattr(error, "ctx", None):
        command = error.ctx.command_path
    return _print_error(f"{message}; see `{command} --help`")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but exit at once while a module is being imported.

    A C++ library that is being loaded would abort the process on an exception.
    """
    while frame is not None:
        if "importlib._bootstrap" in frame.f_code.co_filename:
            _print_error("stopped")
            if sys.stderr.isatty():  # a progress bar may have hidden the cursor
                print(_SHOW_CURSOR, end="", file=sys.stderr, flush=True)
            os._exit(_INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _print_warning(message: Warning | str) -> None:
    """Print a warning on standard error."""
    print("gossamer:", message, file=sys.stderr)


def _print_error(sentence: str, code: int = _ERROR) -> int:
    """Print an error on standard error. Return the exit code."""
    try:
        print("gossamer:", " ".join(sentence.splitlines()), file=sys.stderr)
        sys.stdout.flush()
    except OSError:  # otherwise the same error is raised when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
