"""What a device keeps when its fleet moves to another study: its model.

A device whose journal is of an earlier study, one that its file lists in `replaces`, begins the new
study with its model. Each tensor of `model.safetensors` whose name and shape the new model has is
taken; the others are those of the start that all devices share. Everything else of the earlier
study is dropped: momentum and other state of the method, exchanges in doubt, counts. Its files are
moved to a folder `before-…` of the device's folder, which nothing reads.

A crash at any point is followed by another attempt: the new checkpoint, written last, replaces that
of the earlier study.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gossamer._core.disk import SYSTEM_DISK, Disk
from gossamer._core.files import PRIVATE_MODE, os_errors, write_atomically
from gossamer.algorithms import Algorithm, State
from gossamer.engines import Plan
from gossamer.fleet import files
from gossamer.fleet.protocol.journal import CHECKPOINT_FILE, LOG_FILE, Checkpoint, Journal
from gossamer.fleet.recovery import GOOD_FILE, is_finite
from gossamer.tasks import Worker

BUFFER = "buffer/"  # prefix of the names of the model's buffers in a checkpoint
_FOLDER = "before-"  # the digest of the earlier study and its round follow
_DIGITS = 8  # digits of the digest
_BEFORE_ROUND_0 = -1  # a device goes on with the round after that of its checkpoint


@dataclass(frozen=True)
class CarryOver:
    """Moves a device from an earlier study to that of a plan.

    Args:
        folder: The device's folder.
        plan: The plan of the new study.
        worker: `make_worker` of the plan.
        digest: The digest of the new study.
        replaces: The digests of the earlier studies.
        sync: True if written data must survive a power failure.
        disk: Where the folder is.

    Example:
        carried = CarryOver(folder, plan, worker, digest, device.replaces, fleet.sync).run()
    """

    folder: Path
    plan: Plan
    worker: Worker
    digest: str
    replaces: tuple[str, ...]
    sync: bool
    disk: Disk = SYSTEM_DISK

    def run(self) -> str:
        """Carry the model over if the journal is of an earlier study.

        Returns:
            What was done, in one sentence; "" if there was nothing to do.

        Raises:
            DataError: If the journal is damaged, or a file cannot be read or written.
        """
        earlier = Journal(self.folder, self.sync, self.disk).written_by()
        if earlier is None or earlier[0] == self.digest or earlier[0] not in self.replaces:
            return ""
        study, round = earlier
        state, words = self._state()
        before = self.folder / f"{_FOLDER}{study[:_DIGITS]}-{round}"
        self._archive(before)
        checkpoint = self.folder / CHECKPOINT_FILE
        if state is None:
            with os_errors("remove", checkpoint):
                self.disk.remove(checkpoint)
            sentence = "its earlier model cannot be used: it starts as a new device"
        else:
            journal = Journal(self.folder, self.sync, self.disk, self.digest)
            journal.write_checkpoint(Checkpoint(_BEFORE_ROUND_0, state))
            sentence = f"it begins with the model of the earlier one ({words})"
        return f"the study is another one: {sentence}; files of the earlier one are in {before}"

    def _state(self) -> tuple[State | None, str]:
        """Return the state to begin with, if any, and how many tensors of it were taken."""
        start = self.worker.start()
        own = self.plan.task.learner.unstack(start)
        tensors = self._earlier_model()
        parts = {}
        fitting = 0
        for name, x in own.items():
            parts[name] = x
            found = tensors.get(name)
            if found is not None and found.shape == x.shape[1:]:
                parts[name] = found.to(x)[None]
                fitting += 1
        words = f"{fitting} of {len(own)} tensors"
        if not fitting:
            return None, words
        model = self.plan.task.learner.stack(parts)
        state = with_model(self.plan.algorithm, self.plan.algorithm.first_state(start), model)
        for name, b in self.worker.buffers.items():
            found = tensors.get(name)
            state[BUFFER + name] = b
            if found is not None and found.shape == b.shape[1:]:
                state[BUFFER + name] = found.to(b)[None]
        if not is_finite(state):
            return None, words
        return state, words

    def _earlier_model(self) -> dict[str, Tensor]:
        """Return the tensors of the earlier model; none if there is no whole one."""
        from safetensors.torch import load

        path = self.folder / files.MODEL
        if not self.disk.exists(path):
            return {}
        with os_errors("read", path):
            content = self.disk.read(path)
        try:
            return dict(load(content))
        except Exception:  # what safetensors raises is not documented
            return {}

    def _archive(self, before: Path) -> None:
        """Copy what is still needed, and move the rest."""
        with os_errors("make", before):
            self.disk.make_folder(before)
        for name in (files.MODEL, CHECKPOINT_FILE):
            if self.disk.exists(self.folder / name):
                with os_errors("read", self.folder / name):
                    content = self.disk.read(self.folder / name)
                write_atomically(
                    before / name, content, mode=PRIVATE_MODE, sync=self.sync, disk=self.disk
                )
        # The entries of the log of exchanges would count for the new checkpoint.
        for name in (files.LOG, GOOD_FILE, LOG_FILE):
            if self.disk.exists(self.folder / name):
                with os_errors("move", self.folder / name):
                    self.disk.replace(self.folder / name, before / name)
        history = self.folder / files.HISTORY
        with os_errors("move", history):
            models = self.disk.files(history)
            if models:
                self.disk.make_folder(before / files.HISTORY)
            for path in models:
                self.disk.replace(path, before / files.HISTORY / path.name)
        if self.sync:
            with os_errors("write", self.folder):
                self.disk.sync_folder(self.folder)


def with_model(algorithm: Algorithm, state: State, model: Tensor) -> State:
    """Return the initial state of a method with another model.

    Args:
        algorithm: The method.
        state: Its initial state.
        model: The model, a stack of one row.
    """
    own = algorithm.models(state)
    # What is mixed is the model, up to a start that all share.
    shift = model.to(own).view_as(own) - own
    return {**state, "w": state["w"] + shift}
