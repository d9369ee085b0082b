"""Work is spread over threads that survive errors, nesting and forks."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from cce.compiled import parallel_for


def sum_of_squares(values: np.ndarray) -> float:
    total = 0.0
    for value in values:
        total += value * value
    return total


def run(code: str) -> subprocess.CompletedProcess:
    """In a process of its own, which is killed should it hang."""
    program = "import os, sys, torch\nfrom cce.compiled import parallel_for\ntorch.set_num_threads(2)\n" + code
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("num_tasks", [0, 1, 2, 50])
def test_every_task_runs_once(num_threads, threads, num_tasks):
    num_threads(threads)
    counts = [0] * num_tasks

    def task(index):
        counts[index] += 1

    assert parallel_for(task, num_tasks) is None
    assert counts == [1] * num_tasks


def test_two_threads_work_at_the_same_time(num_threads):
    """Each of two tasks waits for the other; one thread alone would wait in vain."""
    num_threads(2)
    barrier = threading.Barrier(2, timeout=30)
    parallel_for(lambda index: barrier.wait(), 2)


def test_one_thread_is_the_callers_own_and_goes_in_order(num_threads):
    num_threads(1)
    seen = []
    parallel_for(lambda index: seen.append((index, threading.get_ident())), 5)
    assert seen == [(index, threading.get_ident()) for index in range(5)]


def test_results_do_not_depend_on_the_number_of_threads(num_threads):
    results = []
    for threads in (1, 2, 3):
        num_threads(threads)
        out = np.zeros(40)

        def task(index, out=out):
            out[index] = sum_of_squares(np.arange(index, dtype=np.float64) / 7)

        parallel_for(task, 40)
        results.append(out.tobytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("failing", [0, 7, 19])
def test_an_error_in_a_task_reaches_the_caller(num_threads, threads, failing):
    num_threads(threads)

    def task(index):
        if index == failing:
            raise KeyError(f"task {index}")

    with pytest.raises(KeyError, match=f"task {failing}"):
        parallel_for(task, 20)


@pytest.mark.slow
def test_a_task_may_itself_run_tasks():
    """With as many outer tasks as threads, each inner call would otherwise wait for a thread that waits for it."""
    result = run(
        "counts = [[[0] * 3 for _ in range(4)] for _ in range(5)]\n"
        "def inner(a, b, c):\n"
        "    counts[a][b][c] += 1\n"
        "parallel_for(lambda a: parallel_for(lambda b: parallel_for(lambda c: inner(a, b, c), 3), 4), 5)\n"
        "assert counts == [[[1] * 3] * 4] * 5, counts\n"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_two_threads_may_ask_at_once():
    result = run(
        "import threading\n"
        "seen = [[], []]\n"
        "def ask(who):\n"
        "    for _ in range(50):\n"
        "        parallel_for(seen[who].append, 6)\n"
        "threads = [threading.Thread(target=ask, args=(who,)) for who in range(2)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "assert [sorted(s) for s in seen] == [sorted(list(range(6)) * 50)] * 2\n"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_forked_child_gets_threads_of_its_own():
    result = run(
        "parallel_for(lambda index: None, 4)\n"  # the parent's threads exist, and do not survive the fork
        "child = os.fork()\n"
        "if child == 0:\n"
        "    seen = []\n"
        "    parallel_for(seen.append, 6)\n"
        "    os._exit(0 if sorted(seen) == list(range(6)) else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "seen = []\n"
        "parallel_for(seen.append, 6)\n"
        "assert sorted(seen) == list(range(6))\n"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_an_interrupt_while_it_waits_is_raised_when_all_tasks_are_done(num_threads):
    num_threads(2)
    done = []

    def task(index):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.5)
        done.append(index)

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        parallel_for(lambda index: (time.sleep(0.05), task(index)), 2)
    assert sorted(done) == [0, 1]
    timer.join()
