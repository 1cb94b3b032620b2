"""Imported first by the server that workers are forked from: an interrupt then ends it without a word.

The rest of what it imports takes seconds, in which Python would answer an interrupt with a traceback. A server that
ignores it is no better: it goes on to fork workers, which fail because the process that wanted them is gone.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
