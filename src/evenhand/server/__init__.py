"""The guard as a server: OpenAI-compatible, with scoring endpoints, operation and a live page."""

import os

# A server scores one short text at a time: more threads of the numeric library would only wait for each other, at ten
# times the CPU. It reads this when it is first imported, which nothing before this package does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
