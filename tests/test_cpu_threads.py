"""Small networks are computed in threads of one core; others, and what they compute, are as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from codevqa.models.cpu_threads import NetworkThread

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def where() -> tuple[str, int]:
    return threading.current_thread().name, torch.get_num_threads()


def test_a_small_network_has_a_thread_of_one_core() -> None:
    network = NetworkThread(torch.nn.Linear(30, 10), 1, CPU, large=1000)
    name, count = network.run(where)
    assert name.startswith("codevqa-network") and count == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        network.run(lambda: 1 // 0)


def test_a_large_network_has_all_cores() -> None:
    network = torch.nn.Linear(30, 10)  # 310 weights
    assert NetworkThread(network, 1, CPU, large=310).run(where) == (threading.current_thread().name, 2)
    assert NetworkThread(network, 2, CPU, large=310).run(where)[1] == 1  # 155 a block
    assert NetworkThread(network, 1, torch.device("cuda")).run(where)[1] == 2
