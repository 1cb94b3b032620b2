"""Processes that work for another are started whole, whenever the interrupt comes, and end with the one they serve."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from alewm.interrupts import DeferredInterrupts
from alewm.workers import WorkerPool, WorkerProcess, end_workers, starting_workers

# The server is held while it is asked for the second process, and everyone is interrupted meanwhile.
INTERRUPTED_IN_A_START = """
import os, signal, threading, time
from multiprocessing import forkserver
from alewm.workers import WorkerPool

def interrupt_all():
    time.sleep(0.5)
    os.killpg(0, signal.SIGINT)
    time.sleep(0.5)
    os.kill(server, signal.SIGCONT)

try:
    with WorkerPool(2) as pool:
        pool.submit(os.getpid).result()
        pool.submit(time.sleep, 3600)
        server = forkserver._forkserver._forkserver_pid
        os.kill(server, signal.SIGSTOP)
        threading.Thread(target=interrupt_all).start()
        pool.submit(time.sleep, 3600)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def interrupts_raise():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_a_start(interrupts_raise):
    reached = []

    def start():
        with starting_workers():
            signal.raise_signal(signal.SIGINT)
            reached.append("end")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached == ["end"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_without_an_interrupt_nothing_changes(interrupts_raise):
    with starting_workers():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_start_processes_too():
    started = []

    def start():
        with starting_workers():
            started.append(True)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert started == [True]


def test_a_process_that_is_starting_does_not_hear_interrupts():
    asks = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with starting_workers():
        during = subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, text=True)
    after = subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, text=True)
    assert [each.communicate()[0].strip() for each in (during, after)] == ["True", "False"]


def test_an_interrupt_while_a_process_is_being_started_leaves_none_behind_to_complain():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_IN_A_START],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    said, complained = process.communicate(timeout=1800)  # less than the tasks take: nobody waits for them
    assert (said, complained, process.returncode) == ("interrupted\n", "", 0)


def test_an_error_in_its_block_ends_the_processes_amid_their_tasks():
    processes, tasks = [], []

    def stumble():
        with WorkerPool(2) as pool:
            processes.append(pool.submit(os.getpid).result())
            tasks.extend(pool.submit(time.sleep, 3600) for _ in range(4))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stumble()
    # A task that was waited for would have ended well.
    assert all(task.cancelled() or isinstance(task.exception(), BrokenProcessPool) for task in tasks)
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_block_that_ends_well_has_waited_for_its_tasks():
    with WorkerPool(1) as pool:
        first = pool.submit(pow, 2, 10)
        assert first.result() == 1024
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(pow, 2, 10)


def test_a_worker_process_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "sleeper.py").write_text(
        "import time\n\ndef say_and_sleep(pipe, word):\n    print(word, flush=True)\n    time.sleep(3600)\n"
    )
    code = "import sleeper\nfrom alewm.workers import WorkerProcess\n"
    code += "if __name__ == '__main__':\n    WorkerProcess(sleeper.say_and_sleep, 'in').process.join()"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout.readline() == "in\n"
    parent.kill()
    parent.wait()
    # The pipe ends when its last writer, the worker, has ended.
    assert parent.stdout.read() == ""
    parent.stdout.close()


def save_when_asked_to_end(pipe, path):
    with DeferredInterrupts(lambda: pipe.send("asked")) as interrupts:
        pipe.send("ready")
        while not interrupts.is_waiting:
            time.sleep(0.01)
        path.write_text("saved")
        interrupts.answer()


def refuse_to_end(pipe):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send("ready")
    while True:
        time.sleep(1)


def test_workers_that_are_ended_may_save_first(tmp_path, capfd):
    workers = [WorkerProcess(save_when_asked_to_end, tmp_path / name) for name in "ab"]
    assert [worker.pipe.recv() for worker in workers] == ["ready", "ready"]
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        end_workers(workers)
    assert [(tmp_path / name).read_text() for name in "ab"] == ["saved", "saved"]
    said = "Interrupted: trainings write a checkpoint. Interrupt again to stop at once."
    assert capfd.readouterr().err.strip() == said  # and no traceback of theirs


def test_a_worker_that_does_not_end_is_killed(monkeypatch):
    worker = WorkerProcess(refuse_to_end)
    assert worker.pipe.recv() == "ready"
    number = worker.process.pid
    monkeypatch.setattr("alewm.workers.LONGEST_END_SECONDS", 0.0)
    end_workers([worker])
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
