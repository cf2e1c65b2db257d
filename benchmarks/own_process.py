"""Import this before torch: it configures a benchmark's process as the command does its own."""

import os

from gossamer._core.process import configure_own_process

configure_own_process()

if os.environ.get("GOSSAMER_BACKEND") == "avx2":
    # As on a processor without AVX-512: torch and its libraries do without it too.
    os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX2")
