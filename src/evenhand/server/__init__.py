"""The guard as a server: OpenAI-compatible, with scoring endpoints, operation and a live page."""

import os

# The server scores one short text at a time, where more BLAS threads only wait for each other, at ten times the CPU.
# OpenBLAS reads this variable when it is first imported, which happens after this package.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
