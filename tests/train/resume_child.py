"""Trains the helpers' job and dies by SIGKILL at a given optimizer step, a checkpoint behind it every few steps.

Arguments: the folder, the step and, as JSON, arguments of `make_job`.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from train_helpers import dying, make_job

if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer = dying(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL))
    trainer(make_job(Path(sys.argv[1]), **json.loads(sys.argv[3]))).run()
