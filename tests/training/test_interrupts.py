"""The first Ctrl-C is a wish, the second an order."""

import os
import signal
import threading

import pytest

from cce.training.interrupts import polite_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_and_the_second_interrupts(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), polite_interrupts() as wish:  # noqa: PT012
        assert not wish.to_stop
        os.kill(os.getpid(), number)
        assert wish.to_stop
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_other_threads_are_left_alone():
    wishes = []

    def work():
        with polite_interrupts() as wish:
            wishes.append(wish.to_stop)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert wishes == [False]
