"""Jobs for processes that must be able to import them."""

import os
import time

import torch


def told(number: int) -> tuple[int, int, int]:
    return number, os.getpid(), torch.get_num_threads()


def slept(number: int) -> int:
    time.sleep(0.02)
    return number


def failed(number: int) -> int:
    if number == 1:
        raise ValueError("the second one")
    time.sleep(0.1)
    return number


def killed() -> None:
    os._exit(9)
