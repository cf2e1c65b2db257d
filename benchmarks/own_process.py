"""Import this before torch: it configures a benchmark's process as the command does its own."""

from gossamer._core.process import configure_own_process

configure_own_process()
