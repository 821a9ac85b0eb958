"""Functions that child processes import."""

import os
import time

import torch


def process_info(number: int) -> tuple[int, int, int]:
    return number, os.getpid(), torch.get_num_threads()


def sleep_briefly(number: int) -> int:
    time.sleep(0.02)
    return number


def fail_second(number: int) -> int:
    if number == 1:
        raise ValueError("the second one")
    time.sleep(0.1)
    return number


def kill_itself() -> None:
    os._exit(9)
