"""Commands that may die on their way, at a crash point or anywhere, and are called again then."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

from savepoints.handle import Store
from savepoints.model import Generation
from savepoints.store.locks import journal
from tests.e2e.shop import called
from tests.fidelity.driver_process import Processes
from tests.killed import KilledError, dying


@dataclass(kw_only=True)
class MortalCommands:
    """The command line as a walk calls it.

    Attributes:
        config: The settings file.
        processes: Where commands run that are killed by a signal.
        changes: How many files come or go at most before they are.
    """

    chance: random.Random
    config: str
    processes: Processes
    changes: int = 100
    number: int = 0

    @property
    def store(self) -> Store:
        raise NotImplementedError

    def note(self, text: str) -> None:
        self.number += 1
        print(f"{self.number:3} {text}", flush=True)

    def call(self, *words: str, needed: bool = False) -> bool:
        """Call a command; returns whether it did what it was asked.

        It may die on the way, and is called again then, or taken back.
        """
        self.note(" ".join(words))
        if self.chance.random() < (0.03 if needed else 0.4):
            before = self._current()
            done = self._may_die(*words, needed=needed)
            if done is not None:
                return done
            if self._current() != before and not journal.all_unfinished(self.store.root):
                return True  # In its last moment, when all was done.
            if not needed and self.chance.random() < 0.3 and self._take_back():
                return False
        return self._call(*words, needed=needed)

    def _current(self) -> list[Generation]:
        return [one for one in self.store.generations.all() if one.status == "current"]

    def _may_die(self, *words: str, needed: bool) -> bool | None:
        """Return as `call`, None if it died."""
        if self.chance.random() < 0.5:
            died: list[str] = []
            with suppress(KilledError), dying(self.chance.randint(1, 25), died.append):
                return self._call(*words, needed=needed)
            self.note(f"  killed at {died}")
            return None
        running = self.processes.command(*words, "--config", self.config)
        changes = self.chance.randint(1, self.changes)
        if running.killed_after(changes):
            self.note(f"  killed after {changes} changes")
            return None
        return self._judged(running.end(), running.text, needed=needed)

    def _call(self, *words: str, needed: bool) -> bool:
        code, _, err = called(*words, "--config", self.config)
        return self._judged(code, err, needed=needed)

    def _judged(self, code: int, err: str, *, needed: bool) -> bool:
        if code:
            self.note("  refused: " + err.strip()[-900:].replace("\n", " | "))
            assert not needed, err
            assert "Traceback" not in err, err
            assert code not in {1, 70}, err
        return code == 0

    def _take_back(self) -> bool:
        """Undo what is unfinished; says whether it was, as not everything can be undone."""
        begun = [
            self._call("operations", "undo", one.id, "--yes", needed=False)
            for one in journal.all_unfinished(self.store.root)
        ]
        self.note(f"  taken back: {begun}")
        return bool(begun) and all(begun)
