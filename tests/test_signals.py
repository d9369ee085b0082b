"""The first Ctrl-C is a request, the second interrupts."""

import os
import signal
import threading

import pytest

from cce.signals import graceful_stop, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_and_the_second_interrupts(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), graceful_stop() as request:  # noqa: PT012
        assert not request.is_set
        os.kill(os.getpid(), number)
        assert request.is_set
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_other_threads_are_left_alone():
    requests = []

    def work():
        with graceful_stop() as request:
            requests.append(request.is_set)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert requests == [False]


def test_an_interrupt_waits_until_the_block_is_done():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012  # the block is what is tested
        os.kill(os.getpid(), signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_waits_too_and_errors_do_not_lose_it():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append("term"))
    try:
        with pytest.raises(RuntimeError), uninterrupted():  # noqa: PT012
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == []
            raise RuntimeError
        assert seen == ["term"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_without_an_interrupt_nothing_happens_in_any_thread():
    results = []

    def swap():
        with uninterrupted():
            results.append(1)

    thread = threading.Thread(target=swap)
    thread.start()
    thread.join()
    swap()
    assert results == [1, 1]
