"""Import this before torch: it configures the process of a benchmark as the command does its own."""

from gossamer._core.process import configure_own_process

configure_own_process()
